"""The arguments of constructors, and their annotations."""

import inspect
from typing import Any, get_type_hints

from torch import nn


def parameters(cls: type) -> dict[str, inspect.Parameter]:
    """Return the arguments of a constructor by name.

    These include the arguments that the constructor passes to its base class as `**kwargs`.
    """
    found: dict[str, inspect.Parameter] = {}
    for one in _all_parameters(cls):
        if one.kind not in (one.VAR_KEYWORD, one.VAR_POSITIONAL):
            found.setdefault(one.name, one)
    return found


def _all_parameters(cls: type) -> list[inspect.Parameter]:
    """Return the parameters of the constructor, then those of bases that receive its `**kwargs`."""
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


def takes_any(cls: type) -> bool:
    """Return whether the constructor, or a base that receives its `**kwargs`, takes any keyword."""
    last = _all_parameters(cls)[-1:]
    return bool(last) and last[0].kind is inspect.Parameter.VAR_KEYWORD


def annotations(cls: type) -> dict[str, Any]:
    """Return the annotations of a constructor's arguments, if they can be evaluated."""
    found: dict[str, Any] = {}
    for one in reversed(cls.__mro__):
        if "__init__" in vars(one):
            try:
                found.update(get_type_hints(vars(one)["__init__"]))
            except (NameError, TypeError):  # a name may be imported only for type checkers
                continue
    return found
