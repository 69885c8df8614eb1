"""Checkpoints that hold the arguments of their module, objects too."""

import inspect
import io
import pickle
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Self

import torch
from lightning.pytorch import LightningModule

_HPARAMS = ("hyper_parameters", "datamodule_hyper_parameters")


class PortableModule(LightningModule):
    """A LightningModule whose arguments may be objects: modules, classes, functions.

    The Trainer and LightningCLI read a checkpoint with `weights_only=True`, which refuses objects.
    So a checkpoint has plain values alone, and each object pickled, as bytes. A module made by
    LightningCLI has no such objects: its `hparams` are its configuration.

    A subclass calls plain `self.save_hyperparameters()`. Afterwards `hparams` show an object by
    its `repr`, for the loggers. An argument that cannot be pickled, such as a lambda, has to be
    given again to `load_from_checkpoint`; `functools.partial` of a class need not.

    >>> class Tiny(PortableModule):
    ...     def __init__(self, layer: torch.nn.Module, rate: float = 0.1):
    ...         super().__init__()
    ...         self.save_hyperparameters()
    >>> dict(Tiny(torch.nn.ReLU()).hparams)
    {'layer': 'ReLU()', 'rate': 0.1}
    """

    def __init__(self):
        super().__init__()
        self._objects: dict[str, bytes | None] = {}  # None: cannot be pickled
        self._defaults: set[str] = set()  # arguments that are objects, the default ones

    def save_hyperparameters(self, *args: Any, frame: Any = None, **kwargs: Any) -> None:
        """As Lightning's; keeps objects as they are now, before training."""
        here = inspect.currentframe()
        with warnings.catch_warnings():  # Lightning would rather have modules left out
            warnings.filterwarnings("ignore", ".*already saved during checkpointing.*")
            caller = here.f_back if here and frame is None else frame
            super().save_hyperparameters(*args, frame=caller, **kwargs)
        objects = {name: value for name, value in self.hparams.items() if not is_plain(value)}
        parameters = inspect.signature(type(self).__init__).parameters
        for name, value in objects.items():
            if name in parameters and parameters[name].default is value:
                self._defaults.add(name)
            else:
                self._objects[name] = _try_pack(value)
        if objects:
            readable = {name: repr(value) for name, value in objects.items()}
            super().save_hyperparameters({**self.hparams, **readable}, **kwargs)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Put the objects in, and leave nothing in that `weights_only=True` refuses."""
        checkpoint["objects"] = self._objects
        for key in _HPARAMS:
            if key in checkpoint:
                checkpoint[key] = {
                    name: str(value) if isinstance(value, Path) else value
                    for name, value in checkpoint[key].items()
                    if is_plain(value) or isinstance(value, Path)
                }
        if _HPARAMS[0] in checkpoint:
            for name in (*self._objects, *self._defaults):
                checkpoint[_HPARAMS[0]].pop(name, None)

    @classmethod
    def load_from_checkpoint(  # pyright: ignore[reportIncompatibleVariableOverride]
        cls,
        checkpoint_path: str | Path | IO[bytes],
        map_location: Any = None,
        hparams_file: str | Path | None = None,
        strict: bool | None = None,
        weights_only: bool | None = None,
        **kwargs: Any,
    ) -> Self:
        """The module as it was saved: arguments and state.

        Args:
            checkpoint_path: the file.
            map_location: as for `torch.load`.
            hparams_file: as for `LightningModule.load_from_checkpoint`.
            strict: whether the state must fit exactly.
            weights_only: True unpickles no argument, for files of unknown origin; a module that was
                made in Python then needs those that are objects here. Default: False in effect:
                open only files that you trust.
            **kwargs: arguments that replace the saved ones.

        Raises:
            ValueError: an argument has to be given here and is not.
        """
        # read twice: Lightning takes the arguments before it asks the class
        checkpoint = torch.load(checkpoint_path, map_location="cpu", weights_only=weights_only)
        if not isinstance(checkpoint_path, str | Path):
            checkpoint_path.seek(0)
        for name, packed in checkpoint.get("objects", {}).items():
            if name not in kwargs:
                if packed is None:
                    raise ValueError(f"{name} must be given: it could not be pickled, got nothing")
                if weights_only:
                    raise ValueError(f"{name} must be given with weights_only=True, got nothing")
                kwargs[name] = unpack(packed)
        return super().load_from_checkpoint(
            checkpoint_path, map_location, hparams_file, strict, weights_only, **kwargs
        )


def pack(value: Any) -> bytes:
    """`value`, pickled by `torch.save`.

    >>> unpack(pack(torch.tensor([1.0])))
    tensor([1.])
    """
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def unpack(data: bytes, base: type | None = None) -> Any:
    """What was packed, on the CPU.

    Args:
        data: from `pack`.
        base: restore tensors, plain values and subclasses of `base` that are imported already, and
            nothing else. Default: anything, which can run any code.

    Raises:
        pickle.UnpicklingError: the data hold something else.
    """
    buffer = io.BytesIO(data)
    if base is None:
        return torch.load(buffer, map_location="cpu", weights_only=False)
    with torch.serialization.safe_globals(list(_subclasses(base))):
        return torch.load(buffer, map_location="cpu", weights_only=True)


def is_plain(value: Any) -> bool:
    """Whether `value` is made of None, numbers, strings, lists, tuples and dicts alone.

    >>> is_plain({"hidden": [64, 32], "loss": None}), is_plain(torch.nn.ReLU)
    (True, False)
    """
    if isinstance(value, dict):
        return all(map(is_plain, [*value.keys(), *value.values()]))
    if isinstance(value, list | tuple):
        return all(map(is_plain, value))
    return value is None or type(value) in (bool, int, float, str)


def _try_pack(value: Any) -> bytes | None:
    try:
        return pack(value)
    except (pickle.PicklingError, AttributeError, TypeError, RuntimeError):  # as Lightning has it
        return None


def _subclasses(base: type) -> Iterator[type]:
    yield base
    for child in base.__subclasses__():
        yield from _subclasses(child)
