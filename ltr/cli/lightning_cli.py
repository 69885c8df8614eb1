"""`ltr fit`, `validate`, `test` and `predict`: Lightning's command line with ltr's defaults."""

import os
import re
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal, NoReturn

from jsonargparse import Namespace
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch import Callback, LightningDataModule, LightningModule, Trainer
from lightning.pytorch.callbacks import ProgressBar, Timer
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI, SaveConfigCallback
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.plugins import CheckpointIO
from lightning.pytorch.strategies import DDPStrategy
from lightning.pytorch.utilities import rank_zero_info

from ltr.cli.checkpoint_file import CheckpointGuard
from ltr.cli.epoch_lines import EpochLines, PlainBar
from ltr.cli.errors import CommandError
from ltr.cli.explain import explain
from ltr.cli.help import ABOUT, MODEL
from ltr.cli.named_models import find_model, is_checkpoint, is_of_table, load_ranker, use_names
from ltr.cli.options import given_options
from ltr.cli.recipes import expand_configs
from ltr.cli.runs import hold, new_run, removed_unless
from ltr.config import check_trust

# so that their names are enough: jsonargparse finds classes that are imported
from ltr.datasets import (
    DigitsDataModule,  # noqa: F401
    LetorDataModule,  # noqa: F401
    ListDataModule,  # noqa: F401
    TableDataModule,  # noqa: F401
)
from ltr.files import name_full_disk
from ltr.modules import CheckFinite, CheckMonitors, PortableModule
from ltr.modules.checkpoint_file import read_checkpoint
from ltr.modules.checkpoints import (
    BestCheckpoint,
    EarlyStopping,
    LastCheckpoint,
    WholeCheckpoints,
    is_first_process,
)
from ltr.modules.prediction_writer import PredictionWriter
from ltr.modules.watching import BatchInMemory
from ltr.names import one_line

Command = Literal["fit", "validate", "test", "predict"]

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
    `checkpoints` and the CSV `logs`. `--ckpt_path last` continues in the folder of its run.
    `validate` and `test` log in the folder of the run that they load. `predict` writes no log.

    Args:
        command: the command to run.
        args: the options, `--config` with files only.
        name: the run's name; the default of `trainer.default_root_dir` is `runs/<name>`.
        numbered: whether `fit` makes a folder for each run; otherwise it uses the root.
        trainer: options of the Trainer, as objects, instead of those in `args`.
        model: the file or folder of the model that `--ckpt_path` names, or None.
        alone: whether only `--ckpt_path` says which model to use, and no configuration.

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
        model: Path | None = None,
        alone: bool = False,
    ) -> None:
        self.command: Command = command
        self._trainer_options = trainer or {}
        self.numbered = numbered
        self.named = model
        self.alone = alone
        super().__init__(
            LightningModule,
            LightningDataModule,
            # beside the log; `predict` writes none
            save_config_callback=None if command == "predict" else SaveConfigCallback,
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
        """Add options for the callbacks, the initial checkpoint and the predictions."""
        parser.set_defaults({"model": {"class_path": "ltr.modules.Ranker"}})
        parser.add_lightning_class_args(BestCheckpoint, "best_checkpoint")
        parser.add_lightning_class_args(EarlyStopping, "early_stopping")
        parser.add_argument(
            "--ckpt_path",
            type=str | None,
            default=None,
            help=f"{MODEL}; fit resumes from a checkpoint",
        )
        parser.add_argument(
            "--trust",
            type=str,
            nargs="+",
            default=[],
            metavar="PACKAGE",
            help="packages whose classes the checkpoint may name, besides ltr's",
        )
        if self.command == "predict":
            parser.add_argument(
                "--output", type=str | None, default=None, help="file: .csv, .parquet, .run or .txt"
            )
            parser.add_argument(
                "--format",
                type=Literal["csv", "parquet", "trec"] | None,
                default=None,
                help="format of the output, if its name does not tell",
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
        """Check the options that can be checked before the model is made."""
        if self.command == "predict":
            self.writer = PredictionWriter(self.config.output, self.config.format)
            if self.named is None:
                raise CommandError(f"--ckpt_path is required: {MODEL}")
        self.ckpt_path = self._read_checkpoint()
        self._seed_data()

    def _seed_data(self) -> None:
        """Use the seed of the training for data without a seed, or that of `seed_everything`."""
        options = self.config.get("data.init_args") or {}
        if "seed" in options and options["seed"] is None:
            seed = self.trained_on.get("seed", self.config.seed_everything)
            options["seed"] = 0 if seed is None else int(seed)

    def _read_checkpoint(self) -> str | None:
        """Read the checkpoint, and find its run."""
        self.run = self.root
        self.goes_on = False
        self.trained_on: dict[str, Any] = {}
        self.guard = CheckpointGuard(None, {})
        path = self.named
        if path is None:
            if self.command == "fit" and self.config.ckpt_path and is_first_process():
                print(f"no last.ckpt in {self.root} yet: training from the start")
            return None
        if not is_checkpoint(path):
            if self.command == "fit":
                raise CommandError(f"fit resumes only from a checkpoint, got {path}")
            return None
        if str(path) != str(Path(self.config.ckpt_path).expanduser()):
            rank_zero_info(f"{self.config.ckpt_path}: {path}")
        self.goes_on = self.command == "fit" and self.config.ckpt_path == "last"
        if path.parent.name == "checkpoints" and (self.goes_on or self.command != "fit"):
            self.run = path.parent.parent
        content = read_checkpoint(path)
        self.guard = CheckpointGuard(str(path), content)
        key = LightningDataModule.CHECKPOINT_HYPER_PARAMS_KEY
        self.trained_on = content.get(key, {})
        known = isinstance(self.trained_on, dict)
        if not known or not isinstance(self.trained_on.get("seed"), int | None):
            raise CommandError(f"{path}: {key} must have a seed, got {self.trained_on!r}")
        return str(path)

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
            self.run = new_run(self.root) if first else self.root
        config["default_root_dir"] = str(self.run)
        if config["logger"] in (None, True):
            logs = self.command != "predict"
            config["logger"] = CSVLogger(self.run, name="logs") if logs else False
        self.memory = BatchInMemory()
        self.timer = Timer()  # the seconds of training, including those before a resume
        callbacks: list[Callback] = [self.memory]
        if self.ckpt_path is not None:
            callbacks.append(self.guard)
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
        if self.command == "predict":
            callbacks.append(self.writer)
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
                self.run.rmdir()
            raise CommandError(f"{where}: {one_line(error)}") from error

    def execute(self) -> None:
        """Run the command."""
        if self.named is not None and (self.alone or self.ckpt_path is None):
            self.model = load_ranker(self.named, self.config.trust)
            if self.ckpt_path is None:
                use_names(self.model, self.datamodule)
        if isinstance(self.model, PortableModule):
            self.model.trust = check_trust(self.config.trust)
        fit = self.command == "fit" and is_first_process()
        with ExitStack() as stack:
            if self._is_new:
                batches = self.trainer.fit_loop.epoch_loop.batch_progress
                stack.enter_context(removed_unless(self.run, lambda: batches.total.ready > 0))
            stack.enter_context(self.memory.explained(self.datamodule))
            stack.enter_context(self.guard.errors())
            stack.enter_context(name_full_disk(self.run))
            if fit and self.trainer.checkpoint_callbacks:
                stack.enter_context(hold(self.run))
            options: dict[str, Any] = {
                "datamodule": self.datamodule,
                "ckpt_path": self.ckpt_path,
                "weights_only": True,  # whatever the environment says
            }
            if self.command == "predict":
                _check_predicts(self.model)
                self.trainer.predict(self.model, return_predictions=False, **options)
                if self.trainer.is_global_zero and self.writer.part is None:
                    print(f"wrote {self.writer.path}: {self.writer.rows} rows")
            else:
                getattr(self.trainer, self.command)(self.model, **options)


def make_cli(
    command: Command,
    args: list[str],
    name: str | None = None,
    numbered: bool = True,
    trainer: dict[str, Any] | None = None,
) -> RankingCLI:
    """Parse and instantiate a command; `args` may name recipes after `--config`.

    The model of `--ckpt_path` is read before the options are checked, so that a missing file is
    reported first.

    Args:
        command: "fit", "validate", "test" or "predict".
        args: its options.
        name: the run's name. Default: the recipe's or file's name, or "ltr" without a `--config`.
        numbered: whether each `fit` makes its own folder.
        trainer: see `RankingCLI`.

    Raises:
        CommandError: a file, option, class or value is wrong.
    """
    expanded, found = expand_configs(args)
    given = given_options(expanded)
    named = {option.partition(".")[0] for option in given}
    path, root = (
        None if (one := given.get(option)) is None or one.value is None else str(one.value)
        for option in ("ckpt_path", "trainer.default_root_dir")
    )
    known = "model" in named or any(arg == "--config" for arg in expanded)
    model, alone = None, False
    if path is not None:
        if root is None and (known or command == "fit"):
            root = f"runs/{name or found or 'ltr'}"
        model = find_model(path, None if root is None else Path(root), resume=command == "fit")
    if model is not None:
        of_table = is_of_table(model)
        alone = command != "fit" and not known
        if of_table and alone and "data" not in given:
            expanded = ["--data", "TableDataModule", *expanded]
    return RankingCLI(
        command, expanded, name or found or "ltr", numbered, trainer, model=model, alone=alone
    )


def train(cli: RankingCLI) -> None:
    """Train, then print the folder of the run, and the best value with its file."""
    if cli.trainer.is_global_zero and cli.trainer.checkpoint_callbacks:
        print(f"run: {cli.run}")
    cli.execute()
    callback = cli.trainer.checkpoint_callback
    if isinstance(callback, BestCheckpoint) and callback.best_model_score is not None:
        score, path = callback.best_model_score, callback.best_model_path
        if cli.trainer.is_global_zero:
            path = path.removeprefix(f"{Path.cwd()}{os.sep}")
            print(f"best {callback.monitor}: {score:.4f}, in {path}")


def _check_predicts(model: LightningModule) -> None:
    if type(model).predict_step is LightningModule.predict_step:
        raise CommandError(
            f"ltr predict writes the scores of lists, but {type(model).__name__} has no "
            "predict_step"
        )


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
