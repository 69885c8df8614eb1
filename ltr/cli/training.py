"""`ltr fit`, and `ltr test` of a recipe: in this process, or `fit` on a Ray cluster."""

import atexit
from typing import TYPE_CHECKING

from ltr.cli.arguments import LineParser, import_from_here
from ltr.cli.on_ray import add_workers
from ltr.cli.recipes import find_configs, names_own_code, resolve
from ltr.files import check_path

if TYPE_CHECKING:
    from ltr.cli.lightning_cli import Command


def fit(parser: LineParser, args: list[str]) -> None:
    """Train a recipe or classes of your own (`ltr train` trains on a table).

    Data (of a table; `ltr fit --config letor` for LETOR text):
      --data.path TABLE            CSV, Parquet, LETOR text or its folds, or lists on disk
      --data.qid COLUMN            the query of each row
      --data.label COLUMN          the relevance of each row, >= 0
      --data.validation 0.2        fraction of the queries to hold out for validation
      --data.val_path TABLE        a table to validate on
      --data.batch_size N          lists in a batch

    Model:
      --model.scorer CLASS         such as MLPScorer, AdditiveScorer, AttentionScorer
      --model.loss CLASS           such as SoftNDCG, ListNet, LambdaRank
      --model.optimizer CLASS      such as AdamW; then --model.optimizer.lr 0.001

    Training:
      --trainer.max_epochs N       epochs at most
      --trainer.accelerator NAME   cpu, cuda or mps; default: what exists
      --early_stopping.patience N  epochs without a better value; null: never; auto: 40 steps, or 3
      --seed_everything N          of data, weights and batches; default: 42
      --ckpt_path last             resume the newest run
      --print_config               print all options with their values, as YAML
    """
    add_workers(parser)
    run_recipe("fit", parser, args)


def run_recipe(command: "Command", parser: LineParser, args: list[str]) -> None:
    """Run a command of Lightning, in this process or, for `fit`, on a Ray cluster."""
    parser.usage = f"{parser.prog} --config RECIPE [options]"
    add = parser.add_argument
    overlaid = "a recipe (`ltr recipes`) or a YAML file; repeat it to overlay"
    add("-c", "--config", action="append", default=[], metavar="NAME", help=overlaid)
    add("--help-all", action="store_true", help="list all options")
    given, options = parser.parse_known_args(args)
    files, name = find_configs(given.config)
    args = [*(f"--config={file}" for file in files), *options, *["--help"] * given.help_all]
    if names_own_code(given.config, options):
        import_from_here()

    # These modules import torch and Lightning, which takes seconds.
    from ltr.cli.lightning_cli import RankingCLI, train
    from ltr.cli.quiet import quiet_lightning
    from ltr.modules.checkpoints import is_first_process

    if is_first_process() and not any(option.startswith("--print_config") for option in options):
        for value in given.config:
            if (file := resolve(value)[1][-1]) != check_path("config", value):
                print(f"{value}: {file}")
    atexit.register(_leave_processes)
    with quiet_lightning():
        if command == "fit" and given.workers is not None:
            from ltr.cli import ray_runs

            ray_runs.fit(args, name or "ltr", given.workers)
            return
        cli = RankingCLI(command, args, name or "ltr")
        if command == "test" and cli.ckpt_path is None and is_first_process():
            print("no --ckpt_path: testing a model that is not trained")
        if command == "fit":
            train(cli)
        else:
            cli.execute()


def _leave_processes() -> None:
    """Leave the other processes of a run, if there are any.

    Otherwise a thread of Gloo may release a tensor while Python exits, which aborts the process.
    """
    from torch import distributed

    if distributed.is_available() and distributed.is_initialized():
        distributed.destroy_process_group()
