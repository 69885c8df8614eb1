"""The arguments of constructors, and their annotations."""

import inspect
from typing import Any, get_type_hints

from torch import nn


def parameters(cls: type) -> dict[str, inspect.Parameter]:
    """Return the arguments of a constructor by name.

    These include the arguments that the constructor passes to its base class as `**kwargs`.
    """
    arguments: dict[str, inspect.Parameter] = {}
    for parameter in _all_parameters(cls):
        if parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
            arguments.setdefault(parameter.name, parameter)
    return arguments


def _all_parameters(cls: type) -> list[inspect.Parameter]:
    """Return the parameters of the constructor, then those of bases that receive its `**kwargs`."""
    arguments: list[inspect.Parameter] = []
    for base in cls.__mro__:
        if base in (object, nn.Module):
            break
        if "__init__" in vars(base):
            given = list(inspect.signature(vars(base)["__init__"]).parameters.values())[1:]
            arguments += given
            if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in given):
                break
    return arguments


def takes_any(cls: type) -> bool:
    """Return whether the constructor, or a base that receives its `**kwargs`, takes any keyword."""
    last = _all_parameters(cls)[-1:]
    return bool(last) and last[0].kind is inspect.Parameter.VAR_KEYWORD


def annotations(cls: type) -> dict[str, Any]:
    """Return the annotations of a constructor's arguments, if they can be evaluated."""
    hints: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        if "__init__" in vars(base):
            try:
                hints.update(get_type_hints(vars(base)["__init__"]))
            except (NameError, TypeError):  # a name may be imported only for type checkers
                continue
    return hints
