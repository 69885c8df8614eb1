"""`ltr fit` and `test` of a configuration: Lightning's command line."""

import os
import sys
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any, Literal, NoReturn

from jsonargparse import Namespace
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch import LightningDataModule, LightningModule, Trainer
from lightning.pytorch.callbacks import Callback, EarlyStopping, ProgressBar, Timer
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI, SaveConfigCallback
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.utilities import rank_zero_info

from ltr.cli.epoch_lines import EpochLines, PlainBar
from ltr.cli.errors import CommandError
from ltr.cli.mistakes import explain
from ltr.cli.options import given_options
from ltr.cli.runs import hold, named_checkpoint, new_run, read_checkpoint

# These classes are imported here, so that jsonargparse finds them by their names alone.
from ltr.datasets import (
    DigitsDataModule,  # noqa: F401
    ListDataModule,  # noqa: F401
    TableDataModule,  # noqa: F401
)
from ltr.files import check_path, name_full_disk
from ltr.modules import CheckFinite, SeedSteps  # noqa: F401
from ltr.modules.checkpoints import BestCheckpoint, LastCheckpoint, is_first_process
from ltr.names import one_line
from ltr.training.patience import default_patience

Command = Literal["fit", "test"]


class _ParseError(Exception):
    """An error of jsonargparse's parser."""


class RankingParser(LightningArgumentParser):
    """A parser that raises its errors instead of exiting."""

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        """Raise an error with the message, which `explain` turns into one line."""
        raise _ParseError(message) from ex

    def dump(self, *args: Any, **kwargs: Any) -> str:
        """Return the configuration as text; it was checked when it was parsed."""
        return super().dump(*args, **{"skip_validation": True, **kwargs})


class SaveConfig(SaveConfigCallback):
    """Saves the configuration beside the logs of the run, but never over one that was read."""

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Save the configuration, unless a file of `--config` is in its place."""
        saved = Path(trainer.log_dir or trainer.default_root_dir, self.config_filename)
        for path in self.config.config or ():
            if saved.exists() and saved.samefile(path.absolute):
                raise CommandError(f"trainer.logger must not log beside {path}: it is replaced")
        super().setup(trainer, pl_module, stage)


class AutoPatience(Callback):
    """Gives early stopping the patience of `NeuralRanker`."""

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Set the patience, which depends on the number of steps of an epoch."""
        if isinstance(stopping := trainer.early_stopping_callback, EarlyStopping):
            stopping.patience = default_patience(trainer.num_training_batches)


class RankingCLI(LightningCLI):
    """Lightning's command line: parses options and makes objects; `execute` runs the command.

    The options may name any LightningModule and LightningDataModule; the default model is a
    `Ranker`. The options `best_checkpoint` and `early_stopping` configure the callbacks of `fit`.
    Each `fit` writes to its own folder, `<trainer.default_root_dir>/1` and so on, which holds
    `checkpoints`, the CSV `logs` and the `model` of a `Ranker`. `--ckpt_path last` continues in the
    folder of the resumed run. `test` logs in the folder of the run that it loads.

    Args:
        command: the command to run.
        args: the options; a `--config` among them names a file, not a recipe.
        name: the run's name; the default of `trainer.default_root_dir` is `runs/<name>`.
        numbered: whether `fit` makes a folder for each run; otherwise it writes to the root itself.
        trainer: arguments of the Trainer, as objects; they replace those in `args`.

    Attributes:
        config: the options.
        model: the module.
        datamodule: the data module.
        trainer: the Trainer.
        timer: Lightning's timer of the training.

    Raises:
        CommandError: an option, class or value is wrong.

    >>> from ltr.cli import find_configs, quiet_lightning
    >>> files, name = find_configs(["digits"])
    >>> args = [*(f"--config={file}" for file in files), "--data.batch_size=8"]
    >>> with quiet_lightning():
    ...     cli = RankingCLI("fit", args, name, numbered=False)
    >>> cli.datamodule.batch_size, type(cli.model).__name__
    (8, 'Ranker')
    """

    config: Any
    config_init: Any

    def __init__(
        self,
        command: Command,
        args: list[str],
        name: str,
        numbered: bool = True,
        trainer: dict[str, Any] | None = None,
    ) -> None:
        self.command: Command = command
        self._trainer_options = trainer or {}
        self.numbered = numbered
        super().__init__(
            LightningModule,
            LightningDataModule,
            save_config_callback=SaveConfig,
            save_config_kwargs={"overwrite": True},
            trainer_defaults={
                "default_root_dir": f"runs/{name}",
                "log_every_n_steps": 10,
                "enable_model_summary": False,
            },
            seed_everything_default=42,  # the seed is fixed, so that a run can be repeated
            parser_class=RankingParser,
            parser_kwargs={
                "prog": f"ltr {command}",
                "description": f"All options of `ltr {command}`.",
                "allow_abbrev": False,
            },
            subclass_mode_model=True,
            subclass_mode_data=True,
            args=args,
            # Lightning's subcommands would take a model's options from the file of `--ckpt_path`,
            # and would run the command in the constructor. But a sweep first trains, and then
            # tests, the objects of one constructor call.
            run=False,
            auto_configure_optimizers=False,
        )

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Add options for the callbacks and the checkpoint."""
        parser.set_defaults({"model": {"class_path": "ltr.modules.Ranker"}})
        parser.add_class_arguments(BestCheckpoint, "best_checkpoint")
        parser.add_class_arguments(EarlyStopping, "early_stopping", skip={"patience"})
        about = "epochs in a row without a better value, then training stops; null: never; auto: 3,"
        about += " or as many as have 40 steps, as in `ltr train`"
        kind = int | Literal["auto"] | None
        parser.add_argument("--early_stopping.patience", type=kind, default=10, help=about)
        parser.set_defaults({"early_stopping.monitor": "val_ndcg_10", "early_stopping.mode": "max"})
        checkpoint = "a checkpoint, or `best` or `last` of the newest run; fit resumes from it"
        parser.add_argument("--ckpt_path", type=str | None, default=None, help=checkpoint)

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:
        """Parse the arguments; a mistake becomes an error of one line."""
        given = given_options(args)  # this comes first, since its error names the line of the file
        try:
            self.config = parser.parse_args(args)
        except _ParseError as error:
            raise CommandError(explain(parser, args, given, str(error))) from error
        for group in ("trainer", "best_checkpoint", "early_stopping"):
            if not isinstance(value := self.config[group], Namespace):
                raise CommandError(f"{group} must be a mapping of options to values, got {value!r}")

    def instantiate_classes(self) -> None:
        """Make the objects; a value that the class of another library refuses is a mistake."""
        try:
            super().instantiate_classes()
        except ValueError as error:
            raise CommandError(one_line(error)) from error

    def before_instantiate_classes(self) -> None:
        """Find the checkpoint and its run, and choose the seed of the data.

        Data without a seed get the seed of the checkpoint's data, or else that of
        `seed_everything`.
        """
        self.run = self.root = Path(self.config.trainer.default_root_dir)
        self.goes_on = False
        self.ckpt_path, content = None, {}
        if (value := self.config.ckpt_path) is not None:
            content = self._find_checkpoint(str(value))
        options = self.config.get("data.init_args") or {}
        if "seed" in options and options["seed"] is None:
            trained_on = content.get(LightningDataModule.CHECKPOINT_HYPER_PARAMS_KEY, {})
            seed = trained_on.get("seed", self.config.seed_everything)
            options["seed"] = 0 if seed is None else int(seed)

    def _find_checkpoint(self, value: str) -> dict[str, Any]:
        """Set the checkpoint's path and run, and return its content, {} if there is no file."""
        resume = self.command == "fit"
        path = named_checkpoint(value, self.root, resume=resume)
        if path is None:
            if is_first_process():
                print(f"no last.ckpt in {self.root} yet: training from the start")
            return {}
        if str(path) != str(check_path("ckpt_path", value)):
            rank_zero_info(f"{value}: {path}")
        self.ckpt_path = str(path)
        self.goes_on = resume and value == "last"
        if path.parent.name == "checkpoints" and (self.goes_on or not resume):
            self.run = path.parent.parent
        return read_checkpoint(path, resume=resume)

    def instantiate_trainer(self, **kwargs: Any) -> Trainer:
        """Return the trainer, with ltr's callbacks and a CSV log, and make the run's folder."""
        given = self.config_init.trainer
        callbacks = [*_as_list(given.callbacks or [])]
        bar = given.enable_progress_bar
        if bar is None and not any(isinstance(callback, ProgressBar) for callback in callbacks):
            bar = sys.stdout.isatty()
            callbacks += [PlainBar()] if bar else []
        # The timer counts the seconds of training, including those before a resume.
        self.timer = Timer()
        callbacks += [self.timer, CheckFinite()]
        callbacks.append(EpochLines(self.config.best_checkpoint.monitor))
        if self.config.early_stopping.patience is not None:
            callbacks.append(self.config_init.early_stopping)
        if self.config.early_stopping.patience == "auto":
            callbacks.append(AutoPatience())
        if given.enable_checkpointing is not False:
            callbacks += [self.config_init.best_checkpoint, LastCheckpoint()]
        with ExitStack() as stack:
            is_new = self.command == "fit" and self.numbered and not self.goes_on
            # The first process makes the folder; its callbacks send the path to the others.
            if is_new and not given.fast_dev_run and is_first_process():
                trained = lambda: self.timer.start_time() is not None  # noqa: E731
                self.run = stack.enter_context(new_run(self.root, keep=trained))
            if (logger := given.logger) in (None, True):
                logger = CSVLogger(self.run, name="logs")
            try:
                trainer = super().instantiate_trainer(
                    default_root_dir=str(self.run),
                    logger=logger,
                    enable_progress_bar=bar,
                    callbacks=callbacks,
                    **self._trainer_options,
                )
            except (MisconfigurationException, TypeError, ValueError) as error:
                message = str(error)
                option = "accelerator" if str(given.accelerator).lower() in message.lower() else ""
                option = "devices" if "devices" in message else option
                where = f"--trainer.{option} {given[option]}" if option else "trainer"
                raise CommandError(f"{where}: {one_line(error)}") from error
            self._opened = stack.pop_all()
        self.keeps = (
            self.command == "fit" and not given.fast_dev_run and bool(trainer.checkpoint_callbacks)
        )
        return trainer

    def execute(self) -> None:
        """Run the command."""
        with (
            self._opened,
            name_full_disk(self.run),
            hold(self.run) if self.keeps and is_first_process() else nullcontext(),
        ):
            try:
                getattr(self.trainer, self.command)(
                    self.model,
                    datamodule=self.datamodule,
                    ckpt_path=self.ckpt_path,
                    weights_only=True,  # this keeps environment variables from allowing pickles
                )
            except RuntimeError as error:
                if self.ckpt_path is None or "loading state_dict" not in str(error):
                    raise
                raise CommandError(
                    f"{self.ckpt_path} does not fit the configured model: use config.yaml from the "
                    "logs of the run that wrote it"
                ) from error


def train(cli: RankingCLI) -> None:
    """Print the folder of the run, train, and print the best value with the path of its model."""
    if cli.trainer.is_global_zero and cli.keeps:
        print(f"run: {cli.run}")
    cli.execute()
    best = cli.config_init.best_checkpoint
    if best.best_model_score is not None and cli.trainer.is_global_zero:
        path = best.model_path if best.model_path.is_dir() else best.best_model_path
        path = str(path).removeprefix(f"{Path.cwd()}{os.sep}")
        print(f"best {best.monitor}: {best.best_model_score:.4f}, in {path}")


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
