"""Write a configuration: turn an object into plain data."""

import inspect
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FunctionType
from typing import Any

from torch import nn

from ltr.config.signatures import parameters

MARKS = ("class_path", "class", "function", "float", "dict")
"""The keys with a special meaning in a configuration."""

DEPTH = 64
"""The largest depth of nesting in a configuration."""

# The modules of torch.nn do not keep these arguments as attributes, because `.to` changes them or
# they are deprecated.
_NOT_KEPT = ("device", "dtype", "size_average", "reduce")


def to_config(obj: Any) -> Any:
    """Return plain data from which `from_config` can make the object again.

    The result can be written as JSON. None, booleans, numbers and strings stand for themselves;
    tuples become lists and paths become strings. Other values become dicts:

    - an object is `{"class_path": "ltr.losses.SoftNDCG", "init_args": {...}}`, jsonargparse's own
      form. `init_args` has all arguments, so a later change of a default does not change the
      object;
    - a class is `{"class": path}`, a function `{"function": path}`;
    - inf and nan, which JSON lacks, are `{"float": "inf"}`;
    - a dict with keys that are not strings, or that have a special meaning here, is
      `{"dict": [[key, value], ...]}`.

    Weights and other tensors belong to a `state_dict` and are left out.

    Args:
        obj: the object. Its attributes give the arguments of its constructor.

    Raises:
        ValueError: a part of the object has no such form: a lambda, a class or function in
            `__main__` or in another function, a tensor, or an object whose class does not keep
            its arguments.

    >>> from ltr.config import from_config
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


def import_path(obj: Any) -> str:
    """Return the shortest path by which a class or function can be imported.

    >>> from ltr.losses.ndcg import SoftNDCG
    >>> import_path(SoftNDCG)
    'ltr.losses.SoftNDCG'

    Raises:
        ValueError: `obj` cannot be imported, for example because it is a lambda or in `__main__`.
    """
    module, name = getattr(obj, "__module__", None), getattr(obj, "__qualname__", "")
    if name.endswith("<lambda>"):
        raise ValueError("it is a lambda, which has no name")
    if module == "__main__":
        raise ValueError(f"{name} is in __main__, which no other program can import")
    if not isinstance(module, str) or not name.isidentifier():
        raise ValueError(f"{name or obj!r} cannot be imported by its name")
    parts = module.split(".")
    for end in range(1, len(parts) + 1):
        parent = ".".join(parts[:end])
        if getattr(sys.modules.get(parent), name, None) is obj:
            return f"{parent}.{name}"
    raise ValueError(f"{module}.{name} is a different {type(obj).__name__}")


def is_within(module: str, packages: Sequence[str]) -> bool:
    """Return whether a module is one of the packages, or is inside one of them."""
    return any(module == package or module.startswith(f"{package}.") for package in packages)


def _to(value: Any, where: str, depth: int) -> Any:
    if depth > DEPTH:
        raise ValueError(f"{where} is nested too deeply, or contains itself")
    if type(value).__module__ == "numpy" and getattr(value, "shape", None) == ():
        value = value.item()  # turn a numpy number into a Python number
    if value is None or type(value) in (bool, int, str):
        return value
    if type(value) is float:
        return value if math.isfinite(value) else {"float": str(value)}
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, list | tuple) or type(value) is nn.ModuleList:
        return [_to(inner, f"{where}[{i}]", depth + 1) for i, inner in enumerate(value)]
    if isinstance(value, dict) or type(value) is nn.ModuleDict:
        items = [(key, _to(inner, f"{where}[{key!r}]", depth + 1)) for key, inner in value.items()]
        if all(type(key) is str and key not in MARKS for key, _ in items):
            return dict(items)
        pairs = [[_to(key, f"a key of {where}", depth + 1), inner] for key, inner in items]
        if any(isinstance(key, list | dict) for key, _ in pairs):
            raise ValueError(f"{where} has no configuration: a key must be text or a finite number")
        return {"dict": pairs}
    try:
        config, arguments = _form(value)
    except ValueError as error:
        raise ValueError(f"{where} has no configuration: {error}") from None
    if arguments:
        config["init_args"] = {
            name: _to(argument, f"{where}.{name}", depth + 1)
            for name, argument in arguments.items()
        }
    return config


def _form(value: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the configuration of a value without its arguments, and the arguments by name."""
    if isinstance(value, type):
        return {"class": import_path(value)}, {}
    if isinstance(value, FunctionType):
        return {"function": import_path(value)}, {}
    if isinstance(value, nn.Module):
        return {"class_path": import_path(type(value))}, _arguments(value)
    raise ValueError(f"it is a {type(value).__module__}.{type(value).__qualname__}")


def _arguments(obj: nn.Module) -> dict[str, Any]:
    """Return the arguments of an object's constructor, by name."""
    of_module = type(obj).__init__ is nn.Module.__init__
    own = () if of_module else inspect.signature(type(obj)).parameters.values()
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in own):
        raise ValueError(f"{type(obj).__name__} takes *args, which have no names")
    values = {}
    of_torch = is_within(type(obj).__module__, ("torch.nn",))
    for name, parameter in parameters(type(obj)).items():
        value = getattr(obj, name, parameter.empty)
        if value is parameter.empty:
            if of_torch and (name in _NOT_KEPT or name.startswith("_")):
                continue
            raise ValueError(
                f"{type(obj).__name__} does not keep its argument as an attribute {name!r}"
            )
        if of_torch and isinstance(parameter.default, bool) and not isinstance(value, bool):
            value = value is not None  # the attribute `bias` of a layer is a tensor or None
        values[name] = value
    return values
