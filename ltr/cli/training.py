"""`ltr fit`, `validate` and `test`: in this process, or `fit` on a Ray cluster."""

from typing import cast

from ltr.cli.arguments import LineParser
from ltr.cli.help import short_help
from ltr.cli.on_ray import add_workers


def run(command: str, args: list[str]) -> int:
    """Run the command `fit`, `validate` or `test`; `fit` may run on a Ray cluster."""
    if "--help" in args or "-h" in args:
        print(short_help(command))
        return 0
    args = ["--help" if arg == "--help-all" else arg for arg in args]
    workers = None
    if command == "fit":
        parser = LineParser("ltr fit", add_help=False)
        add_workers(parser)
        given, args = parser.parse_known_args(args)
        workers = given.workers

    # these import torch and Lightning, which takes seconds
    from ltr.cli.lightning_cli import Command, make_cli, train
    from ltr.cli.quiet import quiet
    from ltr.cli.recipes import used_files
    from ltr.modules.checkpoints import is_first_process

    if is_first_process() and not any(arg.startswith("--print_config") for arg in args):
        for line in used_files(args):
            print(line)
    with quiet():
        if workers is not None:
            from ltr.cli import ray_runs

            return ray_runs.fit(args, workers)
        cli = make_cli(cast(Command, command), args)
        if command == "test" and cli.ckpt_path is None and is_first_process():
            print("no --ckpt_path: testing a model that is not trained")
        if command == "fit":
            train(cli)
        else:
            cli.execute()
    return 0
