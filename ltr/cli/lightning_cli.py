"""`ltr fit`, `validate` and `test` of a configuration: Lightning's command line."""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Literal, NoReturn

from jsonargparse import Namespace
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch import Callback, LightningDataModule, LightningModule, Trainer
from lightning.pytorch.callbacks import ProgressBar, Timer
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.plugins import CheckpointIO
from lightning.pytorch.strategies import DDPStrategy
from lightning.pytorch.utilities import rank_zero_info

from ltr.cli.epoch_lines import EpochLines, PlainBar
from ltr.cli.errors import CommandError
from ltr.cli.help import ABOUT, CHECKPOINT
from ltr.cli.mistakes import explain
from ltr.cli.options import given_options
from ltr.cli.recipes import expand_configs
from ltr.cli.runs import (
    hold,
    named_checkpoint,
    new_run,
    read_checkpoint,
    remove_run,
    removed_unless,
)

# so that their names are enough: jsonargparse finds classes that are imported
from ltr.datasets import (
    DigitsDataModule,  # noqa: F401
    ListDataModule,  # noqa: F401
    TableDataModule,  # noqa: F401
)
from ltr.files import name_full_disk
from ltr.modules import CheckFinite, CheckMonitors, SeedSteps  # noqa: F401
from ltr.modules.checkpoints import (
    BestCheckpoint,
    EarlyStopping,
    LastCheckpoint,
    WholeCheckpoints,
    is_first_process,
)
from ltr.modules.watching import BatchInMemory
from ltr.names import one_line

Command = Literal["fit", "validate", "test"]

SEED = 42
"""The default of `seed_everything`. It is fixed, so that a run can be repeated."""


class _ParseError(Exception):
    """An error of jsonargparse's parser."""


class RankingParser(LightningArgumentParser):
    """A parser that raises its errors instead of exiting."""

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        """Raise the message, which `explain` turns into one line."""
        raise _ParseError(message) from ex


class RankingCLI(LightningCLI):
    """Lightning's command line, parsed and instantiated; `execute` runs the command.

    The options may name any LightningModule and LightningDataModule; the default model is a
    `Ranker`. The options `best_checkpoint` and `early_stopping` configure the callbacks of `fit`.
    Each `fit` writes to its own folder, `<trainer.default_root_dir>/1` and so on, which holds
    `checkpoints`, the CSV `logs` and the `model` of a `Ranker`. `--ckpt_path last` continues in the
    folder of its run. `validate` and `test` log in the folder of the run that they load.

    Args:
        command: the command to run.
        args: the options, `--config` with files only.
        name: the run's name; the default of `trainer.default_root_dir` is `runs/<name>`.
        numbered: whether `fit` makes a folder for each run; otherwise it uses the root.
        trainer: options of the Trainer, as objects, instead of those in `args`.

    Raises:
        CommandError: an option, class or value is wrong.
    """

    config: Any
    config_init: Any

    def __init__(
        self,
        command: Command,
        args: list[str],
        name: str,
        numbered: bool,
        trainer: dict[str, Any] | None = None,
    ) -> None:
        self.command: Command = command
        self._trainer_options = trainer or {}
        self.numbered = numbered
        super().__init__(
            LightningModule,
            LightningDataModule,
            save_config_kwargs={"overwrite": True},
            trainer_defaults={
                "default_root_dir": f"runs/{name}",
                "log_every_n_steps": 10,
                "enable_model_summary": False,
            },
            seed_everything_default=SEED,
            parser_class=RankingParser,
            parser_kwargs={
                "prog": f"ltr {command}",
                "description": ABOUT[command],
                "allow_abbrev": False,
            },
            subclass_mode_model=True,
            subclass_mode_data=True,
            args=args,
            run=False,
            auto_configure_optimizers=False,
        )

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Add options for the callbacks and the checkpoint."""
        parser.set_defaults({"model": {"class_path": "ltr.modules.Ranker"}})
        parser.add_lightning_class_args(BestCheckpoint, "best_checkpoint")
        parser.add_lightning_class_args(EarlyStopping, "early_stopping")
        parser.add_argument(
            "--ckpt_path",
            type=str | None,
            default=None,
            help=CHECKPOINT,
        )

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:
        """Parse the arguments; a mistake becomes one line."""
        try:
            self.config = parser.parse_args(args)
        except _ParseError as error:
            raise CommandError(explain(parser, args, str(error))) from error
        for group in ("trainer", "best_checkpoint", "early_stopping"):
            if not isinstance(value := self.config[group], Namespace):
                raise CommandError(f"{group} must be a mapping of options to values, got {value!r}")

    @property
    def root(self) -> Path:
        """The folder of the runs."""
        return Path(self.config.trainer.default_root_dir)

    def before_instantiate_classes(self) -> None:
        """Find the checkpoint and its run, and choose the seed of the data.

        Data without a seed get that of the training, or of `seed_everything`.
        """
        self.run, self.goes_on = self.root, False
        value = self.config.ckpt_path
        path = None if value is None else self._find_checkpoint(str(value))
        self.ckpt_path = None if path is None else str(path)
        content = {} if path is None else read_checkpoint(path, resume=self.command == "fit")
        options = self.config.get("data.init_args") or {}
        if "seed" in options and options["seed"] is None:
            trained_on = content.get(LightningDataModule.CHECKPOINT_HYPER_PARAMS_KEY, {})
            seed = trained_on.get("seed", self.config.seed_everything)
            options["seed"] = 0 if seed is None else int(seed)

    def _find_checkpoint(self, value: str) -> Path | None:
        """Return the file, and set the run that it belongs to; None if there is no `last` yet."""
        resume = self.command == "fit"
        path = named_checkpoint(value, self.root, resume=resume)
        if path is None:
            if is_first_process():
                print(f"no last.ckpt in {self.root} yet: training from the start")
            return None
        if str(path) != str(Path(value).expanduser()):
            rank_zero_info(f"{value}: {path}")
        self.goes_on = resume and value == "last"
        if path.parent.name == "checkpoints" and (self.goes_on or not resume):
            self.run = path.parent.parent
        return path

    @property
    def _is_new(self) -> bool:
        """Whether this process has made the folder of the run."""
        return self.command == "fit" and self.run != self.root and not self.goes_on

    def instantiate_trainer(self, **kwargs: Any) -> Trainer:
        """Return the trainer, with ltr's callbacks for `fit` and a CSV log."""
        config = {**self.config_init.trainer.as_dict(), **kwargs, **self._trainer_options}
        light = config["fast_dev_run"]
        if self.command == "fit" and not self.goes_on:
            # the first process makes the folder; the others take it from its callbacks
            first = self.numbered and not light and is_first_process()
            self.run, self.made = new_run(self.root) if first else (self.root, [])
        config["default_root_dir"] = str(self.run)
        if config["logger"] in (None, True):
            config["logger"] = CSVLogger(self.run, name="logs")
        self.memory = BatchInMemory()
        self.timer = Timer()  # the seconds of training, including those before a resume
        callbacks: list[Callback] = [self.memory]
        if self.command == "fit":
            callbacks += [self.timer, CheckFinite(), CheckMonitors()]
        if self.command == "fit" and not light:
            plugins = _as_list(config["plugins"] or [])
            # strategies for sharded models write checkpoints in their own way
            whole = re.match("auto|ddp|single", str(config["strategy"]))
            whole = whole or isinstance(config["strategy"], DDPStrategy)
            if whole and not any(isinstance(one, CheckpointIO) for one in plugins):
                config["plugins"] = [*plugins, WholeCheckpoints()]
            if self.config.early_stopping.patience is not None:
                callbacks.append(self.config_init.early_stopping)
            if config["enable_checkpointing"] is not False:
                callbacks += [self.config_init.best_checkpoint, LastCheckpoint()]
        elif not light:
            config["enable_checkpointing"] = False
        own_bar = any(isinstance(one, ProgressBar) for one in _as_list(config["callbacks"]))
        if config["enable_progress_bar"] is None and not own_bar:
            config["enable_progress_bar"] = sys.stdout.isatty()
            callbacks += [PlainBar()] if config["enable_progress_bar"] else []
        if self.command == "fit":
            callbacks.append(EpochLines(self.config.best_checkpoint.monitor))
        if self.save_config_callback and not config["fast_dev_run"]:
            save = self.save_config_callback(self.parser, self.config, **self.save_config_kwargs)
            callbacks.append(save)
        config["callbacks"] = [*_as_list(config["callbacks"] or []), *callbacks]
        try:
            return self.trainer_class(**config)
        except (MisconfigurationException, TypeError, ValueError) as error:
            said = str(error)
            option = "accelerator" if str(config["accelerator"]).lower() in said.lower() else ""
            option = "devices" if "devices" in said else option
            where = f"--trainer.{option} {config[option]}" if option else "trainer"
            if self._is_new:
                remove_run(self.run, self.made)
            raise CommandError(f"{where}: {one_line(error)}") from error

    def execute(self) -> None:
        """Run the command."""
        fit = self.command == "fit" and is_first_process()
        with ExitStack() as stack:
            if self._is_new:
                batches = self.trainer.fit_loop.epoch_loop.batch_progress
                trained = lambda: batches.total.ready > 0  # noqa: E731
                stack.enter_context(removed_unless(self.run, self.made, trained))
            stack.enter_context(self.memory.explained(self.datamodule))
            stack.enter_context(self._naming_the_checkpoint())
            stack.enter_context(name_full_disk(self.run))
            if fit and self.trainer.checkpoint_callbacks:
                stack.enter_context(hold(self.run))
            getattr(self.trainer, self.command)(
                self.model,
                datamodule=self.datamodule,
                ckpt_path=self.ckpt_path,
                weights_only=True,  # whatever the environment says
            )

    @contextmanager
    def _naming_the_checkpoint(self) -> Iterator[None]:
        """Report a checkpoint of another model in one line."""
        try:
            yield
        except RuntimeError as error:
            if self.ckpt_path is None or "loading state_dict" not in str(error):
                raise
            raise CommandError(
                f"{self.ckpt_path} does not fit the configured model: use config.yaml from the "
                "logs of the run that wrote it"
            ) from error


def make_cli(
    command: Command,
    args: list[str],
    name: str | None = None,
    numbered: bool = True,
    trainer: dict[str, Any] | None = None,
) -> RankingCLI:
    """Parse and instantiate a command; `args` may name recipes after `--config`.

    Args:
        command: "fit", "validate" or "test".
        args: its options.
        name: the run's name. Default: the recipe's or file's name, or "ltr" without a `--config`.
        numbered: whether each `fit` makes its own folder.
        trainer: see `RankingCLI`.

    Raises:
        CommandError: a file, option, class or value is wrong.
    """
    expanded, found = expand_configs(args)
    given_options(expanded)  # which names the line of a mistake in a file
    return RankingCLI(command, expanded, name or found or "ltr", numbered, trainer)


def train(cli: RankingCLI) -> None:
    """Train, then print the folder of the run, and the best value with its file."""
    if cli.trainer.is_global_zero and cli.trainer.checkpoint_callbacks:
        print(f"run: {cli.run}")
    cli.execute()
    best = cli.config_init.best_checkpoint
    if best.best_model_score is not None and cli.trainer.is_global_zero:
        path = best.model_path if best.model_path.is_dir() else best.best_model_path
        path = str(path).removeprefix(f"{Path.cwd()}{os.sep}")
        print(f"best {best.monitor}: {best.best_model_score:.4f}, in {path}")


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
