"""Check the names of the logged values that callbacks and schedulers watch."""

import difflib
from collections.abc import Iterator
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer


class CheckMonitors(Callback):
    """Checks before the first epoch that the values which others watch will be logged.

    Watchers are the callbacks with a `monitor` (early stopping, checkpoints) and the schedulers.
    Known names are those that the module returns from `logged_names`, and those that the sanity
    check logged. If a module has no `logged_names`, only watched names that begin with "val" are
    checked, and only after a sanity check.

    Raises:
        ValueError: nothing of this name will be logged.
    """

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Keep the names that the sanity check logged."""
        if trainer.sanity_checking:
            self._seen |= set(trainer.callback_metrics)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Check the names."""
        tell: Any = getattr(pl_module, "logged_names", None)
        told: set[str] = set() if tell is None else tell()
        known = told | self._seen
        for option, name, needed in _watched(trainer):
            names = known
            if needed and not any(trainer.num_val_batches):  # nothing is validated
                names = {one for one in known if not one.startswith("val")}
            # a resumed run has no sanity check, and a subclass may log more than `logged_names`
            complete = bool(told) and (bool(self._seen) or trainer.ckpt_path is None)
            complete = complete or (bool(self._seen) and name.startswith("val"))
            if complete and name not in names:
                near = " or ".join(difflib.get_close_matches(name, sorted(names), n=2))
                hint = (
                    f"did you mean {near}?" if near else f"choose from {', '.join(sorted(names))}"
                )
                raise ValueError(
                    f"{option}.monitor must be a value that is logged, got {name!r}: {hint}"
                )


def _watched(trainer: Trainer) -> Iterator[tuple[str, str, bool]]:
    """Yield each watcher of a logged value, the value's name, and whether the watcher needs it."""
    for callback in trainer.callbacks:  # pyright: ignore[reportAttributeAccessIssue]
        option = getattr(callback, "option", type(callback).__name__)
        if isinstance(monitor := getattr(callback, "monitor", None), str):
            yield option, monitor, getattr(callback, "strict", False)
    for config in trainer.lr_scheduler_configs:
        if config.reduce_on_plateau and isinstance(config.monitor, str):
            yield "scheduler", config.monitor, config.strict
