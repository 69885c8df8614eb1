"""Configurations: an object as plain data, and the object again.

A configuration is what YAML has for LightningCLI: a class's path and its constructor's arguments,
and so on inwards. Each public class keeps what it was given as attributes of the arguments' names,
so nothing has to be registered. Checkpoints hold configurations in place of pickled objects:
reading one runs no code of the file's, and imports nothing but what this module lets in.
"""

import inspect
import math
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from types import FunctionType, ModuleType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

BASES = (nn.Module, Optimizer, LRScheduler)
"""What a class in a configuration must be a subclass of."""

_OWN = __name__.partition(".")[0]
_PACKAGES = (_OWN, "torch.nn", "torch.optim")
# a scheduler that needs a `monitor`, which `Ranker` takes from Lightning
_CLASSES = ("lightning.pytorch.cli.ReduceLROnPlateau",)
# of our own functions only those of tensors, which do nothing but return a tensor
_FUNCTIONS = tuple(
    f"{_OWN}.{one}" for one in ("gains", "operators", "losses", "metrics.functional")
)

# where torch.nn does not keep an argument: what `.to` changes, and names it has given up
_NOT_KEPT = ("device", "dtype", "size_average", "reduce")
_MARKS = ("class_path", "class", "function", "float", "dict")
_DEPTH = 64


def to_config(obj: Any) -> Any:
    """Return plain data for an object, which `from_config` makes the object of again.

    The result can be written as JSON. None, booleans, numbers and strings stand for themselves;
    tuples become lists and paths become strings. The rest are dicts:

    - an object is `{"class_path": "ltr.losses.SoftNDCG", "init_args": {...}}`, jsonargparse's own
      form, with all arguments: a default that changes in a later version does not change it;
    - an optimizer or scheduler, which a module takes as a class or as a `functools.partial` of
      one, has that form too;
    - any other class is `{"class": path}`, a function `{"function": path}`;
    - inf and nan, which JSON lacks, are `{"float": "inf"}`; a dict whose keys are not strings, or
      have one of these meanings, is `{"dict": [[key, value], ...]}`.

    Weights and other tensors are a `state_dict`'s business, and are left out.

    Args:
        obj: the object. Its arguments are what `obj.get_params(deep=False)` says, if it has that,
            or else its attributes.

    Raises:
        ValueError: something in it has no such form: a lambda, a class or function of `__main__`
            or of another function, a tensor, a class that does not keep its arguments.

    >>> from ltr.losses import SoftMRR
    >>> config = to_config(SoftMRR(top_k=10))
    >>> config["class_path"], config["init_args"]["operator"]["init_args"]
    ('ltr.losses.SoftMRR', {'temperature': 0.1})
    >>> from_config(config)
    SoftMRR(
      (operator): SigmoidRank(temperature=0.1)
    )
    """
    return _to(obj, type(obj).__name__, 0)


def from_config(
    config: Any,
    base: type | tuple[type, ...] | None = None,
    trust: Sequence[str] = (),
) -> Any:
    """Return the object of a configuration.

    Classes are imported from `ltr`, `torch.nn` and `torch.optim` alone, unless `trust` names their
    package, and the name is looked at before anything is imported. A class must be an `nn.Module`,
    an optimizer or a scheduler, be defined in a package that is let in, and fit the annotation of
    the argument that it is for. Optimizers and schedulers come as `functools.partial`. A function
    is looked up, and never called.

    Args:
        config: from `to_config`, or the same in YAML.
        base: the class, or one of several, that the object must be of. Default: any that is let in.
        trust: packages, or modules, that may be imported too: `["mypackage"]`.

    Raises:
        ValueError: the configuration names something else, or is malformed; the object's own
            errors.

    >>> from_config({"class_path": "ltr.operators.SoftSort", "init_args": {"temperature": 0.5}})
    SoftSort(temperature=0.5, power=1)
    >>> from_config({"class_path": "os.system", "init_args": {"command": "echo"}})
    Traceback (most recent call last):
    ValueError: os.system is of the package os, which is not named in trust
    """
    return _Reader(check_trust(trust)).read(config, _as_bases(base), "", 0)


def read_arguments(
    cls: type, arguments: Mapping[str, Any], trust: Sequence[str] = ()
) -> dict[str, Any]:
    """Return a constructor's arguments, made from the configurations of each.

    Args:
        cls: the class whose constructor they are for.
        arguments: `init_args` of its configuration.
        trust: as for `from_config`.

    Raises:
        ValueError: the class has no such argument; what `from_config` raises.

    >>> from ltr.losses import SoftNDCG
    >>> read_arguments(SoftNDCG, {"operator": {"class_path": "ltr.operators.HardRank"}, "top_k": 5})
    {'operator': HardRank(), 'top_k': 5}
    """
    return _Reader(check_trust(trust)).read_arguments(cls, arguments, "", 0)


def packages(config: Any) -> set[str]:
    """Return the top-level packages of the classes and functions that a configuration names.

    >>> sorted(packages(to_config([nn.ReLU(), nn.GELU])))
    ['torch']
    """
    if isinstance(config, list):
        return set().union(*map(packages, config))
    if not isinstance(config, dict):
        return set()
    named = [config[mark] for mark in ("class_path", "class", "function") if mark in config]
    return set().union(
        (path.partition(".")[0] for path in named if isinstance(path, str)),
        *map(packages, config.values()),
    )


def check_trust(trust: Sequence[str]) -> tuple[str, ...]:
    """Return the packages' names, if they are dotted names, in a list.

    Raises:
        ValueError: they are not.

    >>> check_trust("mypackage")
    Traceback (most recent call last):
    ValueError: trust must be a list of packages, such as ['mypackage'], got 'mypackage'
    """
    names = () if isinstance(trust, str) else tuple(trust)
    good = all(isinstance(name, str) and _is_dotted(name) for name in names)
    if isinstance(trust, str) or not good:
        raise ValueError(f"trust must be a list of packages, such as ['mypackage'], got {trust!r}")
    return names


def import_path(obj: Any) -> str:
    """Return the shortest path by which a class or function can be imported.

    >>> from ltr.losses.ndcg import SoftNDCG
    >>> import_path(SoftNDCG)
    'ltr.losses.SoftNDCG'

    Raises:
        ValueError: there is none, as for a lambda, or a class of `__main__`.
    """
    module, name = getattr(obj, "__module__", None), getattr(obj, "__qualname__", "")
    if name.endswith("<lambda>"):
        raise ValueError("it is a lambda, which has no name")
    if module == "__main__":
        raise ValueError(f"{name} is of __main__, which no other program can import")
    if not isinstance(module, str) or not name.isidentifier():
        raise ValueError(f"{name or obj!r} cannot be imported by its name")
    parts = module.split(".")
    for end in range(1, len(parts) + 1):
        parent = ".".join(parts[:end])
        if getattr(sys.modules.get(parent), name, None) is obj:
            return f"{parent}.{name}"
    raise ValueError(f"{module}.{name} is something else than the {type(obj).__name__} given")


def parameters(cls: type) -> dict[str, inspect.Parameter]:
    """Return the arguments of a constructor by their names.

    Those that it hands on to its base class as `**kwargs` are among them.
    """
    found: dict[str, inspect.Parameter] = {}
    for one in _all_parameters(cls):
        if one.kind not in (one.VAR_KEYWORD, one.VAR_POSITIONAL):
            found.setdefault(one.name, one)
    return found


def _all_parameters(cls: type) -> list[inspect.Parameter]:
    """Of the constructor, and of those that it hands `**kwargs` on to; base classes come last."""
    found: list[inspect.Parameter] = []
    for one in cls.__mro__:
        if one in (object, nn.Module):
            break
        if "__init__" in vars(one):
            given = list(inspect.signature(vars(one)["__init__"]).parameters.values())[1:]
            found += given
            if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in given):
                break
    return found


def _takes_any(cls: type) -> bool:
    """Whether the last of these constructors takes names that no signature tells."""
    last = _all_parameters(cls)[-1:]
    return bool(last) and last[0].kind is inspect.Parameter.VAR_KEYWORD


def _to(value: Any, where: str, depth: int) -> Any:
    if depth > _DEPTH:
        raise ValueError(f"{where} is nested too deeply, or within itself")
    if type(value).__module__ == "numpy" and getattr(value, "shape", None) == ():
        value = value.item()  # a number of numpy's, as Python's own
    if value is None or type(value) in (bool, int, str):
        return value
    if type(value) is float:
        return value if math.isfinite(value) else {"float": str(value)}
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, list | tuple) or type(value) is nn.ModuleList:
        return [_to(one, f"{where}[{i}]", depth + 1) for i, one in enumerate(value)]
    if isinstance(value, dict) or type(value) is nn.ModuleDict:
        items = [(key, _to(one, f"{where}[{key!r}]", depth + 1)) for key, one in value.items()]
        if all(type(key) is str and key not in _MARKS for key, _ in items):
            return dict(items)
        return {"dict": [[_to(key, f"a key of {where}", depth + 1), one] for key, one in items]}
    try:
        config, arguments = _form(value)
    except ValueError as error:
        raise ValueError(f"{where} has no configuration: {error}") from None
    if arguments:
        config["init_args"] = {
            name: _to(one, f"{where}.{name}", depth + 1) for name, one in arguments.items()
        }
    return config


def _form(value: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The configuration of an object, class or function, without its arguments; and those."""
    if isinstance(value, type):
        mark = "class_path" if issubclass(value, Optimizer | LRScheduler) else "class"
        return {mark: import_path(value)}, {}
    if isinstance(value, FunctionType):
        return {"function": import_path(value)}, {}
    if isinstance(value, partial):
        cls = value.func
        if not (isinstance(cls, type) and issubclass(cls, Optimizer | LRScheduler)) or value.args:
            raise ValueError(
                "of functools.partial only an optimizer's or scheduler's class with arguments by "
                f"name has one, got {value!r}"
            )
        arguments: dict[str, Any] = value.keywords
    elif isinstance(value, nn.Module):
        cls = type(value)
        arguments = _arguments(value)
    else:
        raise ValueError(f"it is a {type(value).__module__}.{type(value).__qualname__}")
    return {"class_path": import_path(cls)}, arguments


def _arguments(obj: nn.Module) -> dict[str, Any]:
    """What the constructor was given, by the arguments' names."""
    if inspect.ismethod(get_params := getattr(obj, "get_params", None)):
        return get_params(deep=False)
    of_module = type(obj).__init__ is nn.Module.__init__
    own = () if of_module else inspect.signature(type(obj)).parameters.values()
    if any(one.kind is one.VAR_POSITIONAL for one in own):
        raise ValueError(f"{type(obj).__name__} takes arguments without names")
    found = {}
    of_torch = _is_within(type(obj).__module__, ("torch.nn",))
    for name, parameter in parameters(type(obj)).items():
        value = getattr(obj, name, parameter.empty)
        if value is parameter.empty:
            if of_torch and (name in _NOT_KEPT or name.startswith("_")):
                continue
            raise ValueError(
                f"{type(obj).__name__} does not keep its argument as an attribute {name!r}"
            )
        if of_torch and isinstance(parameter.default, bool) and not isinstance(value, bool):
            value = value is not None  # `bias` of the layers is the tensor
        found[name] = value
    return found


class _Reader:
    """Reads configurations, given the packages that are trusted."""

    def __init__(self, trust: tuple[str, ...]) -> None:
        self.trust = trust

    def read(self, config: Any, bases: tuple[type, ...] | None, where: str, depth: int) -> Any:
        """The value of a configuration, at a place that errors name."""
        if depth > _DEPTH:
            raise ValueError(f"{where} is nested too deeply")
        if config is None or type(config) in (bool, int, float, str):
            return config
        if isinstance(config, list | tuple):
            inner = (f"{where}[{i}]" for i in range(len(config)))
            return [
                self.read(one, bases, at, depth + 1) for one, at in zip(config, inner, strict=True)
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
        if keys & {*_MARKS} or not all(isinstance(key, str) for key in keys):
            raise ValueError(
                f"{_at(where)}an object has class_path and init_args, got {sorted(map(str, keys))}"
            )
        return {
            key: self.read(one, bases, f"{where}.{key}".strip("."), depth + 1)
            for key, one in config.items()
        }

    def _read_pairs(
        self, pairs: Any, bases: tuple[type, ...] | None, where: str, depth: int
    ) -> dict[Any, Any]:
        good = isinstance(pairs, list) and all(
            isinstance(pair, list | tuple) and len(pair) == 2 and not isinstance(pair[0], list)
            for pair in pairs
        )
        if not good:
            raise ValueError(f"{_at(where)}dict must be pairs of a key and a value, got {pairs!r}")
        values = [self.read(one, bases, f"{where}[{key!r}]", depth + 1) for key, one in pairs]
        keys = [self.read(key, None, f"a key of {where}", depth + 1) for key, _ in pairs]
        return dict(zip(keys, values, strict=True))

    def _make(
        self, config: Mapping[str, Any], bases: tuple[type, ...] | None, where: str, depth: int
    ) -> Any:
        cls = self._find_class(config["class_path"], bases, where)
        given = config.get("init_args") or {}
        if not isinstance(given, Mapping):
            raise ValueError(f"{_at(where)}init_args must be arguments by name, got {given!r}")
        arguments = self.read_arguments(cls, given, where, depth)
        if issubclass(cls, Optimizer | LRScheduler):
            return partial(cls, **arguments) if arguments else cls
        try:
            return cls(**arguments)
        except TypeError as error:  # a value of another type than the constructor can do with
            raise ValueError(f"{_at(where)}{config['class_path']}: {error}") from error

    def read_arguments(
        self, cls: type, given: Mapping[str, Any], where: str, depth: int
    ) -> dict[str, Any]:
        """The arguments of a class's constructor."""
        known, hints = parameters(cls), _hints(cls)
        unknown = sorted(map(str, {*given} - {*known}))
        if unknown and not _takes_any(cls):
            raise ValueError(
                f"{_at(where)}{cls.__name__} has no argument {', '.join(unknown)}, only "
                f"{', '.join(known) or 'none'}"
            )
        arguments = {}
        for name, one in given.items():
            at, hint = f"{where}.{name}".strip("."), hints.get(name)
            if isinstance(one, str) and _wants_class(hint):  # as YAML names it
                arguments[name] = self._find_class(one, _wanted(hint), at)
            else:
                arguments[name] = self.read(one, _wanted(hint), at, depth + 1)
        return arguments

    def _find_class(self, path: Any, bases: tuple[type, ...] | None, where: str) -> type:
        found = self._find(path, where)
        if not isinstance(found, type) or not issubclass(found, BASES):
            raise ValueError(
                f"{_at(where)}{path} is not a class of modules, optimizers or schedulers"
            )
        self._check_home(found, path, (*_PACKAGES, *self.trust), where)
        if bases and not issubclass(found, bases):
            names = " or ".join(one.__name__ for one in bases)
            raise ValueError(f"{_at(where)}{path} is no {names}")
        return found

    def _find_function(self, path: Any, where: str) -> FunctionType:
        found = self._find(path, where)
        if not isinstance(found, FunctionType):
            raise ValueError(f"{_at(where)}{path} is not a function")
        self._check_home(found, path, (*_FUNCTIONS, *self.trust), where)
        return found

    def _find(self, path: Any, where: str) -> Any:
        """What stands under a path; the path is looked at before anything is imported."""
        if not isinstance(path, str) or "." not in path or not _is_dotted(path):
            raise ValueError(f"{_at(where)}a path is a dotted name, got {path!r}")
        module, _, name = path.rpartition(".")
        if module == "__main__":
            raise ValueError(f"{_at(where)}{path} has to be given, {module} cannot be imported")
        if not _is_within(module, (*_PACKAGES, *self.trust)) and path not in _CLASSES:
            package = path.partition(".")[0]
            raise ValueError(
                f"{_at(where)}{path} is of the package {package}, which is not named in trust"
            )
        try:
            home = import_module(module)
        except ImportError as error:
            raise ValueError(f"{_at(where)}no {path}: {error}") from error
        try:
            found = getattr(home, name)
        except AttributeError as error:
            raise ValueError(f"{_at(where)}no class or function {path}: {error}") from error
        if found is None or isinstance(found, ModuleType):
            raise ValueError(f"{_at(where)}no class or function {path}")
        return found

    def _check_home(self, found: Any, path: str, homes: tuple[str, ...], where: str) -> None:
        if not _is_within(found.__module__, homes) and path not in _CLASSES:
            raise ValueError(
                f"{_at(where)}{path} is defined in {found.__module__}, which is not named in trust"
            )


def _wanted(hint: Any) -> tuple[type, ...] | None:
    """The classes of modules that an annotation names, or None where it lets in others too."""
    members = _members(hint)
    if members is None:
        return None
    return tuple(one for one in members if issubclass(one, BASES)) or None


def _wants_class(hint: Any) -> bool:
    return get_origin(hint) is type or any(get_origin(one) is type for one in get_args(hint))


def _members(hint: Any) -> list[type] | None:
    origin = get_origin(hint)
    if isinstance(hint, type) and origin is None:
        return [hint]
    if origin in (Union, UnionType, list, tuple, dict, Sequence, Mapping, type):
        inner = [_members(one) for one in get_args(hint) if one is not ...]
        if any(one is None for one in inner):
            return None
        return [one for members in inner for one in members or ()]
    if origin is Literal:
        return []
    return None


def _hints(cls: type) -> dict[str, Any]:
    """The annotations of a constructor's arguments, those that can be evaluated."""
    found: dict[str, Any] = {}
    for one in reversed(cls.__mro__):
        if "__init__" in vars(one):
            try:
                found.update(get_type_hints(vars(one)["__init__"]))
            except (NameError, TypeError):  # a name that is imported for type checkers alone
                continue
    return found


def _as_bases(base: type | tuple[type, ...] | None) -> tuple[type, ...] | None:
    return (base,) if isinstance(base, type) else base


def _is_dotted(name: str) -> bool:
    # no dunders: neither `__main__` nor `__globals__`
    return all(part.isidentifier() and not part.startswith("__") for part in name.split("."))


def _is_within(module: str, packages: Sequence[str]) -> bool:
    return any(module == one or module.startswith(f"{one}.") for one in packages)


def _at(where: str) -> str:
    return f"{where}: " if where else ""
