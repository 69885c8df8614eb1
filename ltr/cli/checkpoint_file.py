"""The file that `--ckpt_path` names, which may be damaged or come from a stranger."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import BaseFinetuning, EarlyStopping, Timer
from lightning.pytorch.trainer.states import TrainerFn
from lightning.pytorch.utilities import rank_zero_warn
from torch import Tensor

from ltr.cli.errors import CommandError
from ltr.modules.checkpoint_file import errors_name
from ltr.modules.watching import is_out_of_memory

_TEXT_IS_NO_PATH = (BaseFinetuning, EarlyStopping, Timer)
# Lightning has no loaders yet when `fit` begins, and does not restore the other loops
_NOT_IN_FIT = {"combined_loader", "validate_loop", "test_loop", "predict_loop"}


class CheckpointGuard(Callback):
    """Restores only harmless states from a checkpoint, and reports the others in one line.

    - The state of a callback that holds text is not restored, since the text may be a path that the
      callback opens or removes, as Lightning's `ModelCheckpoint` does.
    - The state of loops and schedulers must have the form of this run's own: Lightning would set
      any attribute.
    - After the data are set up, and until the first batch is done, every error is taken as an error
      of the checkpoint.

    Args:
        path: the file, or None.
        content: the content of the file.

    >>> CheckpointGuard("last.ckpt", {"loops": []}).path
    'last.ckpt'
    """

    def __init__(self, path: str | None, content: dict[str, Any]) -> None:
        self.path = path
        self._loops = content.get("loops")
        self._schedulers = content.get("lr_schedulers")
        self._restores, self._begins = False, path is not None

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Name the checkpoint in errors from now on: Lightning has set up the data before."""
        self._restores = self.path is not None

    def on_load_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Remove the states that hold text."""
        states = checkpoint["callbacks"]
        for callback in trainer.callbacks:  # pyright: ignore[reportAttributeAccessIssue]
            state = states.get(callback.state_key)
            if _has_text(state) and not isinstance(callback, _TEXT_IS_NO_PATH):
                del states[callback.state_key]
                rank_zero_warn(
                    f"{type(callback).__name__} starts without its saved state: the state "
                    f"in {self.path} holds text, which may be a path"
                )

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Check the state of the loops and the schedulers before Lightning restores it."""
        if self._loops is not None:
            _check_like(self._loops, {"fit_loop": trainer.fit_loop.state_dict()}, "loops")
        own = [config.scheduler.state_dict() for config in trainer.lr_scheduler_configs]
        _check_like(self._schedulers, own, "lr_schedulers")

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Everything is restored."""
        self._restores = False

    on_validation_start = on_test_start = on_predict_start = on_train_start

    def on_train_batch_end(self, trainer: Trainer, *args: Any, **kwargs: Any) -> None:
        """The states have been used, unless `fit` validates before its first training batch."""
        fits = trainer.state.fn == TrainerFn.FITTING
        self._begins = self._begins and fits and not trainer.training

    on_validation_batch_end = on_test_batch_end = on_predict_batch_end = on_train_batch_end

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Report a checkpoint of another model, or one that cannot be restored, in one line."""
        try:
            yield
        except (OSError, CommandError):
            raise
        except Exception as error:
            if self.path is None:
                raise
            if isinstance(error, RuntimeError) and "loading state_dict" in str(error):
                raise CommandError(
                    f"{self.path} does not fit the configured model: use config.yaml from "
                    "the logs of the run that wrote it"
                ) from error
            known = isinstance(error, ValueError) or is_out_of_memory(error)
            if self._restores or (self._begins and not known):
                with errors_name(self.path):
                    raise
            raise


def _has_text(value: Any, *, top: bool = True) -> bool:
    """Return whether a callback's state holds text, besides the names of its values."""
    if isinstance(value, dict):
        inner = [*value.values()] if top else [*value, *value.values()]
        return any(_has_text(one, top=False) for one in inner)
    if isinstance(value, list | tuple | set):
        return any(_has_text(one, top=False) for one in value)
    return isinstance(value, str | bytes)


def _check_like(found: Any, own: Any, where: str) -> None:
    """Raise `ValueError` unless a part of a checkpoint has the form of this run's own part."""
    if isinstance(own, dict):
        good = isinstance(found, dict)
        if good and all(isinstance(key, str) for key in own):
            for key in {*found} - _NOT_IN_FIT:
                if key not in own:
                    raise ValueError(f"{where} must not have {key!r}")
                _check_like(found[key], own[key], f"{where}.{key}")
    elif isinstance(own, list | tuple):
        good = isinstance(found, list | tuple)
        if good and own:
            likes = own if len(own) == len(found) else [own[0]] * len(found)
            for one, like in zip(found, likes, strict=True):
                _check_like(one, like, where)
    elif own is None:
        good = found is None or isinstance(found, int | float)
    elif isinstance(own, float):
        good = isinstance(found, int | float)
    elif isinstance(own, int) and not isinstance(own, bool) and own >= 0:  # a counter
        good = isinstance(found, int) and found >= 0
    else:
        good = isinstance(found, type(own)) or not isinstance(own, int | str | Tensor)
    if not good:
        raise ValueError(f"{where} must be like {own!r}, got {found!r}")
