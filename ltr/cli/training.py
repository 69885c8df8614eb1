"""`ltr fit`, `validate` and `test`: in this process, or `fit` on a Ray cluster."""

from pathlib import Path
from typing import cast

from ltr.cli.arguments import LineParser, import_from_here
from ltr.cli.help import short_help
from ltr.cli.on_ray import add_workers
from ltr.cli.recipes import find_configs, names_own_code, resolve


def run(command: str, args: list[str]) -> int:
    """Run the command `fit`, `validate` or `test`; `fit` may run on a Ray cluster."""
    parser = LineParser(f"ltr {command}", add_help=False)
    parser.add_argument("-h", "--help", action="store_true")
    parser.add_argument("--help-all", action="store_true")
    parser.add_argument("-c", "--config", action="append", default=[])
    if command == "fit":
        add_workers(parser)
    given, options = parser.parse_known_args(args)
    if given.help:
        print(short_help(command))
        return 0
    files, name = find_configs(given.config)
    args = [*(f"--config={file}" for file in files), *options, *["--help"] * given.help_all]
    if names_own_code(given.config, options):
        import_from_here()

    # these import torch and Lightning, which takes seconds
    from ltr.cli.lightning_cli import Command, RankingCLI, train
    from ltr.cli.quiet import quiet
    from ltr.modules.checkpoints import is_first_process

    if is_first_process() and not any(option.startswith("--print_config") for option in options):
        for value in given.config:
            if (file := resolve(value)[1][-1]) != Path(value).expanduser():
                print(f"{value}: {file}")
    with quiet():
        if command == "fit" and given.workers is not None:
            from ltr.cli import ray_runs

            return ray_runs.fit(args, name or "ltr", given.workers)
        cli = RankingCLI(cast(Command, command), args, name or "ltr")
        if command == "test" and cli.ckpt_path is None and is_first_process():
            print("no --ckpt_path: testing a model that is not trained")
        if command == "fit":
            train(cli)
        else:
            cli.execute()
    return 0
