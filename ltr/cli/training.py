"""`ltr fit`, `validate` and `test`: in this process, or `fit` on a Ray cluster."""

from pathlib import Path
from typing import cast

from ltr.cli.arguments import LineParser, import_from_here
from ltr.cli.help import USAGE, Command, short_help
from ltr.cli.on_ray import add_workers
from ltr.cli.recipes import find_configs, names_own_code, resolve


def run_recipe(parser: LineParser, args: list[str]) -> None:
    """Run `ltr fit`, `validate` or `test`; `fit` may run on a Ray cluster."""
    command = cast(Command, parser.prog.removeprefix("ltr "))
    parser.usage, parser.description = USAGE[command], short_help(command)
    add = parser.add_argument
    overlaid = "a recipe (`ltr recipes`) or a YAML file; repeat it to overlay"
    add("-c", "--config", action="append", default=[], metavar="NAME", help=overlaid)
    if command == "fit":
        add_workers(parser)
    add("--help-all", action="store_true", help="list all options")
    given, options = parser.parse_known_args(args)
    files, name = find_configs(given.config)
    args = [*(f"--config={file}" for file in files), *options, *["--help"] * given.help_all]
    if names_own_code(given.config, options):
        import_from_here()

    # these import torch and Lightning, which takes seconds
    from ltr.cli.lightning_cli import RankingCLI, train
    from ltr.cli.quiet import quiet
    from ltr.modules.checkpoints import is_first_process

    if is_first_process() and not any(option.startswith("--print_config") for option in options):
        for value in given.config:
            if (file := resolve(value)[1][-1]) != Path(value).expanduser():
                print(f"{value}: {file}")
    with quiet():
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
