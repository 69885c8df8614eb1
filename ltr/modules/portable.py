"""Modules whose checkpoints hold the constructor's arguments as configurations."""

import inspect
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Self

from lightning.pytorch import LightningModule
from torch import Tensor

from ltr.config import check_trust, import_path, parameters, read_arguments, to_config
from ltr.config.folder import check_finite
from ltr.modules.checkpoint_file import errors_name, read_checkpoint

_HPARAMS = ("hyper_parameters", "datamodule_hyper_parameters")


class PortableModule(LightningModule):
    """A LightningModule whose arguments may be objects: modules, classes, functions.

    A checkpoint holds only tensors and plain values, so reading one runs no code from the file. It
    holds the arguments as a configuration (`ltr.config.to_config`), from which
    `load_from_checkpoint` makes the module. Some arguments have no configuration, such as a lambda
    or an object whose class is in `__main__`. Saving a checkpoint warns about them, and
    `load_from_checkpoint` needs them again.

    A subclass calls plain `self.save_hyperparameters()`. Then `hparams` show an object by its
    `repr`, for the loggers.

    Attributes:
        trust: packages whose classes a checkpoint may name when the Trainer reads it (`ckpt_path`);
            `load_from_checkpoint` has an argument for it.

    >>> import torch
    >>> class Tiny(PortableModule):
    ...     def __init__(self, layer: torch.nn.Module, rate: float = 0.1):
    ...         super().__init__()
    ...         self.save_hyperparameters()
    >>> dict(Tiny(torch.nn.ReLU()).hparams)
    {'layer': 'ReLU()', 'rate': 0.1}
    """

    trust: Sequence[str] = ()

    extra_parts: tuple[str, ...] = ()
    """Attributes that `load_from_checkpoint` takes and the constructor does not."""

    _given: dict[str, Any]

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Keep the constructor's arguments, whoever calls it."""
        new = super().__new__(cls)
        bound = inspect.signature(cls.__init__).bind_partial(new, *args, **kwargs)
        given = {}
        for name, value in list(bound.arguments.items())[1:]:
            kind = bound.signature.parameters[name].kind
            given.update(value if kind is inspect.Parameter.VAR_KEYWORD else {name: value})
        object.__setattr__(new, "_given", given)
        return new

    def get_params(self, deep: bool = False) -> dict[str, Any]:
        """Return the arguments by name, as scikit-learn's estimators do.

        If an argument was None or not passed, it returns the object that the module made instead.

        Args:
            deep: ignored; exists for scikit-learn. Arguments of arguments are never included.
        """
        parts = dict(self.named_children())
        found = {}
        for name, parameter in parameters(type(self)).items():
            value = self._given.get(name, parameter.default)
            found[name] = parts.get(name) if value is None else value
        return found

    def save_hyperparameters(self, *args: Any, frame: Any = None, **kwargs: Any) -> None:
        """Save hyper-parameters as Lightning does; show objects by their `repr`."""
        here = inspect.currentframe()
        with warnings.catch_warnings():  # Lightning advises to leave modules out
            warnings.filterwarnings("ignore", ".*already saved during checkpointing.*")
            caller = here.f_back if here and frame is None else frame
            super().save_hyperparameters(*args, frame=caller, **kwargs)
        objects = {name: repr(value) for name, value in self.hparams.items() if not is_plain(value)}
        if objects:
            super().save_hyperparameters({**self.hparams, **objects}, **kwargs)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add the configuration, and remove what `weights_only=True` refuses."""
        arguments, checkpoint["unsaved"] = {}, {}
        for name, value in self.get_params().items():
            arguments[name] = self.save_part(checkpoint, name, value)
        for name in checkpoint["unsaved"]:
            del arguments[name]
        try:
            path = import_path(type(self))
        except ValueError:
            path = type(self).__qualname__  # for readers; loading does not use it
        checkpoint["config"] = {"class_path": path, "init_args": arguments}
        for key in _HPARAMS:  # for Lightning's own command line, and for readers
            if key in checkpoint:
                checkpoint[key] = {
                    name: str(value) if isinstance(value, Path) else value
                    for name, value in checkpoint[key].items()
                    if is_plain(value) or isinstance(value, Path)
                }

    def save_part(self, checkpoint: dict[str, Any], name: str, value: Any) -> Any:
        """Return a part's configuration; if it has none, warn and note it in `unsaved`.

        Args:
            checkpoint: the checkpoint that is being written.
            name: the name of the part.
            value: the part.
        """
        try:
            return to_config(value)
        except ValueError as error:
            # LightningCLI turns optimizers into functions, and keeps their configurations
            config = self.hparams.get(name)
            if isinstance(config, dict) and "class_path" in config:
                return config
            checkpoint["unsaved"][name] = str(error)
            warnings.warn(
                f"{name} is not in the checkpoint; give it again to load the checkpoint: {error}",
                stacklevel=2,
            )
            return None

    @classmethod
    def load_from_checkpoint(  # pyright: ignore[reportIncompatibleVariableOverride]
        cls,
        checkpoint_path: str | Path | IO[bytes],
        map_location: Any = None,
        hparams_file: str | Path | None = None,
        strict: bool | None = None,
        weights_only: bool | None = None,
        *,
        trust: Sequence[str] = (),
        **kwargs: Any,
    ) -> Self:
        """Return the module as it was saved: arguments and state.

        No code from the file runs. Classes are imported only from `ltr`, `torch.nn` and
        `torch.optim`, unless `trust` names their package.

        Args:
            checkpoint_path: the file.
            map_location: as for `torch.load`.
            hparams_file: must be None. Lightning has this argument; here, pass arguments by name.
            strict: whether the state must fit exactly.
            weights_only: None or True; Lightning has False too, which could run any code.
            trust: packages whose classes and functions the file may name: `["mypackage"]`.
            **kwargs: arguments, or extra parts, that the file lacks or that replace the saved ones.

        Raises:
            ValueError: a required argument is missing; the file names a class of a package that is
                not trusted, or holds more than tensors and plain values; its checksums or its
                content are wrong; a parameter is not finite, or a buffer has NaN.
            OSError: the file cannot be opened.
        """
        trusted = check_trust(trust)
        if hparams_file is not None:
            raise ValueError(
                f"hparams_file must be None: give arguments by their names, got {hparams_file!r}"
            )
        if weights_only is False:
            raise ValueError("weights_only must be None or True, got False")
        checkpoint = read_checkpoint(checkpoint_path, map_location)
        if not _is_portable(checkpoint):
            raise ValueError(f"{checkpoint_path} is not a checkpoint of ltr")
        with errors_name(checkpoint_path):
            return cls._from_content(checkpoint, strict, trusted, kwargs)

    @classmethod
    def _from_content(
        cls,
        checkpoint: dict[str, Any],
        strict: bool | None,
        trusted: tuple[str, ...],
        given: dict[str, Any],
    ) -> Self:
        for name, reason in checkpoint["unsaved"].items():
            if name not in given and name in {*parameters(cls), *cls.extra_parts}:
                raise ValueError(f"{name} must be given, as it could not be saved: {reason}")
        saved = checkpoint["config"]["init_args"]
        arguments = {name: value for name, value in saved.items() if name not in given}
        extra = {name: given.pop(name) for name in cls.extra_parts if name in given}
        new = cls(**{**read_arguments(cls, arguments, trusted), **given})
        new.trust = trusted
        for name, value in extra.items():
            setattr(new, name, value)
            checkpoint["unsaved"][name] = "given"
        new.restore(checkpoint, strict)
        return new

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> Any:
        """Load parameters and buffers, as `torch.nn.Module` does.

        Raises:
            ValueError: a parameter is not finite, or a buffer has NaN.
        """
        found = super().load_state_dict(state_dict, strict, assign)
        check_finite(self)
        return found

    def restore(self, checkpoint: dict[str, Any], strict: bool | None = None) -> None:
        """Load the state of a checkpoint, and move to its device."""
        self.configure_model()
        self.on_load_checkpoint(checkpoint)
        state = checkpoint["state_dict"]
        self.load_state_dict(state, strict=self.strict_loading if strict is None else strict)
        device = next((x.device for x in state.values() if isinstance(x, Tensor)), None)
        self.to(device)


def is_plain(value: Any) -> bool:
    """Return whether `value` has only None, numbers, strings, lists, tuples and dicts.

    >>> import torch
    >>> is_plain({"hidden": [64, 32], "loss": None}), is_plain(torch.nn.ReLU)
    (True, False)
    """
    if isinstance(value, dict):
        return all(map(is_plain, [*value.keys(), *value.values()]))
    if isinstance(value, list | tuple):
        return all(map(is_plain, value))
    return value is None or type(value) in (bool, int, float, str)


def _is_portable(checkpoint: dict[str, Any]) -> bool:
    config, unsaved = checkpoint.get("config"), checkpoint.setdefault("unsaved", {})
    arguments = config.get("init_args") if isinstance(config, Mapping) else None
    return isinstance(arguments, Mapping) and isinstance(unsaved, Mapping)
