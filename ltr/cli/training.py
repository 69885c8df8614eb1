"""`ltr fit`, `validate`, `test` and `predict`: in this process, or on a Ray cluster."""

from ltr.cli import ray_runs
from ltr.cli.lightning_cli import make_cli, say_best
from ltr.cli.quiet import quiet
from ltr.cli.recipes import used_files
from ltr.modules.checkpoints import is_first_process


def run(command: str, args: list[str], workers: int | None = None) -> int:
    """Run the command `fit`, `validate`, `test` or `predict`, on a Ray cluster with `workers`."""
    if is_first_process() and not any(arg.startswith("--print_config") for arg in args):
        for line in used_files(args):
            print(line)
    if workers is not None:
        with quiet():
            return (ray_runs.fit if command == "fit" else ray_runs.predict)(args, workers)
    with quiet():
        cli = make_cli(command, args)  # pyright: ignore[reportArgumentType]
        if command == "test" and cli.ckpt_path is None and is_first_process():
            print("no --ckpt_path: testing a model that is not trained")
        cli.execute()
        if command == "fit" and cli.trainer.is_global_zero:
            say_best(cli)
    return 0
