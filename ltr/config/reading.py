"""Read a configuration: make the object that it describes, from allowed classes only."""

from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from types import FunctionType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from torch import nn

from ltr.config.signatures import annotations, parameters, takes_any
from ltr.config.writing import DEPTH, MARKS, is_within

_OWN = __name__.partition(".")[0]
_PACKAGES = (_OWN, "torch.nn")
# Functions of ltr are allowed only from these modules, whose functions only compute values.
_FUNCTIONS = tuple(
    f"{_OWN}.{name}" for name in ("gains", "operators", "losses", "metrics.functional")
)


Bases = tuple[type, ...] | None
"""The classes that an object must be an instance of; None for any allowed class."""


class NotTrusted(ValueError):
    """The error for a class or function whose package is not named in `trust`."""


def from_config(
    config: Any,
    base: type | tuple[type, ...] | None = None,
    trust: Sequence[str] = (),
) -> Any:
    """Return the object that a configuration describes.

    Classes are imported only from `ltr` and `torch.nn`, unless `trust` names their package. A
    name is checked before anything is imported. A class must be an `nn.Module`, be defined in an
    allowed package, and fit the annotation of the argument that it is given for. A function is
    looked up but never called.

    Args:
        config: the result of `to_config`, or the same content read from YAML.
        base: the class of the object, or a tuple of classes. Default: any allowed class.
        trust: more packages or modules that may be imported, such as `["mypackage"]`.

    Raises:
        ValueError: the configuration is malformed or names something that is not allowed, or a
            constructor raises an error.

    >>> from_config({"class_path": "ltr.operators.SoftSort", "init_args": {"temperature": 0.5}})
    SoftSort(temperature=0.5, power=1)
    >>> from_config({"class_path": "os.system"})  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ltr.config.reading.NotTrusted: os.system is in the package os, which is not named in trust: ...
    """
    bases = (base,) if isinstance(base, type) else base
    return _Reader(check_trust(trust)).read(config, bases, "", 0)


def read_arguments(
    cls: type, arguments: Mapping[str, Any], trust: Sequence[str] = ()
) -> dict[str, Any]:
    """Make a constructor's arguments from their configurations.

    Args:
        cls: the class of the constructor.
        arguments: the `init_args` of the class's configuration.
        trust: see `from_config`.

    Raises:
        ValueError: the class lacks one of the arguments, or `from_config` would raise `ValueError`.

    >>> from ltr.losses import SoftNDCG
    >>> read_arguments(SoftNDCG, {"operator": {"class_path": "ltr.operators.HardRank"}, "top_k": 5})
    {'operator': HardRank(), 'top_k': 5}
    """
    return _Reader(check_trust(trust)).read_arguments(cls, arguments, "", 0)


def check_trust(trust: Sequence[str]) -> tuple[str, ...]:
    """Return the packages' names, or raise `ValueError` if `trust` is not a list of dotted names.

    >>> check_trust("mypackage")
    Traceback (most recent call last):
    ValueError: trust must be a list of packages, such as ['mypackage'], got 'mypackage'
    """
    several = isinstance(trust, Iterable) and not isinstance(trust, str)
    names = tuple(trust) if several else ()
    if "__main__" in names:
        raise ValueError(
            f"trust must name packages that other programs can import, got {trust!r}: move the "
            "class from __main__ (a script or a notebook) into a module, and save the model again"
        )
    if not several or not all(isinstance(name, str) and _is_dotted(name) for name in names):
        raise ValueError(f"trust must be a list of packages, such as ['mypackage'], got {trust!r}")
    return names


class _Reader:
    """Reads configurations, with classes from `ltr`, `torch.nn` and the packages in `trust`."""

    def __init__(self, trust: tuple[str, ...]) -> None:
        self.trust = trust

    def read(self, config: Any, bases: Bases, where: str, depth: int) -> Any:
        """Return the value of a configuration; an error names its position, `where`."""
        if depth > DEPTH:
            raise ValueError(f"{where} is nested too deeply")
        if config is None or type(config) in (bool, int, float, str):
            return config
        if isinstance(config, list | tuple):
            inner = (f"{where}[{i}]" for i in range(len(config)))
            return [
                self.read(value, bases, at, depth + 1)
                for value, at in zip(config, inner, strict=True)
            ]
        if not isinstance(config, Mapping):
            raise ValueError(f"{_at(where)}a configuration is plain data, got {type(config)}")
        keys = {*config}
        if "class_path" in keys and keys <= {"class_path", "init_args"}:
            return self._make(config, bases, where, depth)
        if keys == {"class"}:
            return self._find_class(config["class"], bases, where)
        if keys == {"function"}:
            return self._find_function(config["function"], where)
        if keys == {"float"}:
            if config["float"] not in ("inf", "-inf", "nan"):
                raise ValueError(f"{_at(where)}float must be inf, -inf or nan, got {config}")
            return float(config["float"])
        if keys == {"dict"}:
            return self._read_pairs(config["dict"], bases, where, depth)
        if keys & {*MARKS} or not all(isinstance(key, str) for key in keys):
            raise ValueError(
                f"{_at(where)}an object has class_path and init_args, got {sorted(map(str, keys))}"
            )
        return {
            key: self.read(value, bases, f"{where}.{key}".strip("."), depth + 1)
            for key, value in config.items()
        }

    def _read_pairs(self, pairs: Any, bases: Bases, where: str, depth: int) -> dict[Any, Any]:
        try:
            items = dict(pairs).items()
        except (TypeError, ValueError):
            raise ValueError(
                f"{_at(where)}dict must be pairs of a key and a value, got {pairs!r}"
            ) from None
        return {
            key: self.read(value, bases, f"{where}[{key!r}]", depth + 1) for key, value in items
        }

    def _make(self, config: Mapping[str, Any], bases: Bases, where: str, depth: int) -> Any:
        cls = self._find_class(config["class_path"], bases, where)
        given = config.get("init_args") or {}
        if not isinstance(given, Mapping):
            raise ValueError(f"{_at(where)}init_args must be keyword arguments, got {given!r}")
        arguments = self.read_arguments(cls, given, where, depth)
        try:
            return cls(**arguments)
        except ValueError:
            raise
        except Exception as error:  # a constructor may raise anything for a wrong value
            raise ValueError(f"{_at(where)}{config['class_path']}: {error}") from error

    def read_arguments(
        self, cls: type, given: Mapping[str, Any], where: str, depth: int
    ) -> dict[str, Any]:
        """Return the arguments of a class's constructor, read from their configurations."""
        known, hints = parameters(cls), annotations(cls)
        unknown = sorted(map(str, {*given} - {*known}))
        if unknown and not takes_any(cls):
            raise ValueError(
                f"{_at(where)}{cls.__name__} has no argument {', '.join(unknown)}, only "
                f"{', '.join(known) or 'none'}"
            )
        arguments = {}
        for name, value in given.items():
            at, hint = f"{where}.{name}".strip("."), hints.get(name)
            if isinstance(value, str) and _wants_class(hint):  # YAML names a class by a string
                arguments[name] = self._find_class(value, _wanted(hint), at)
            else:
                arguments[name] = self.read(value, _wanted(hint), at, depth + 1)
        return arguments

    def _find_class(self, path: Any, bases: Bases, where: str) -> type:
        cls = self._find(path, where)
        if not isinstance(cls, type) or not issubclass(cls, nn.Module):
            raise ValueError(f"{_at(where)}{path} is not a class of modules")
        self._check_home(cls, path, (*_PACKAGES, *self.trust), where)
        if bases and not issubclass(cls, bases):
            names = " or ".join(base.__name__ for base in bases)
            raise ValueError(f"{_at(where)}{path} is not a {names}")
        return cls

    def _find_function(self, path: Any, where: str) -> FunctionType:
        function = self._find(path, where)
        if not isinstance(function, FunctionType):
            raise ValueError(f"{_at(where)}{path} is not a function")
        self._check_home(function, path, (*_FUNCTIONS, *self.trust), where)
        return function

    def _find(self, path: Any, where: str) -> Any:
        """Import the object at a path, after checking the path."""
        if not isinstance(path, str) or "." not in path or not _is_dotted(path):
            raise ValueError(f"{_at(where)}a path is a dotted name, got {path!r}")
        module, _, name = path.rpartition(".")
        if not is_within(module, (*_PACKAGES, *self.trust)):
            package = path.partition(".")[0]
            raise NotTrusted(
                f"{_at(where)}{path} is in the package {package}, which is not named in trust: if "
                f"you trust its code, give trust=[{package!r}] (--trust {package} of a command)"
            )
        try:
            home = import_module(module)
        except ImportError as error:
            raise ValueError(f"{_at(where)}no {path}: {error}") from error
        try:
            return getattr(home, name)
        except AttributeError as error:
            raise ValueError(f"{_at(where)}no class or function {path}: {error}") from error

    def _check_home(self, value: Any, path: str, homes: tuple[str, ...], where: str) -> None:
        if not is_within(value.__module__, homes):
            raise NotTrusted(
                f"{_at(where)}{path} is defined in {value.__module__}, which is not named in trust"
            )


def _wanted(hint: Any) -> Bases:
    """Return the module classes that an annotation names, or None if any class is allowed."""
    leaves = [leaf for leaf in _leaves(hint) if get_origin(leaf) is not Literal]
    if not all(isinstance(leaf, type) for leaf in leaves):
        return None
    return tuple(leaf for leaf in leaves if issubclass(leaf, nn.Module)) or None


def _leaves(hint: Any) -> list[Any]:
    """Return the types in an annotation, with unions and containers replaced by their parts."""
    if get_origin(hint) not in (Union, UnionType, list, tuple, dict, Sequence, Mapping, type):
        return [hint]
    return [leaf for part in get_args(hint) if part is not ... for leaf in _leaves(part)]


def _wants_class(hint: Any) -> bool:
    return get_origin(hint) is type or any(get_origin(part) is type for part in get_args(hint))


def _is_dotted(name: str) -> bool:
    # Dunder names, such as `__main__` and `__globals__`, are refused.
    return all(part.isidentifier() and not part.startswith("__") for part in name.split("."))


def _at(where: str) -> str:
    return f"{where}: " if where else ""
