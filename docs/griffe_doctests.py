"""Griffe extensions for the pages: doctests as code blocks, and whole signatures of metrics.

Markdown would read `>>>` as quotes within quotes, and `["name"]` as a link. Griffe only reads the
code, so it would not show the arguments that a function takes as `Unpack[...]`.
"""

import inspect
import re
from importlib import import_module
from typing import Any

import griffe


def fenced(text: str) -> str:
    r"""Return the text with a fence around each doctest, which ends at a blank line.

    >>> fenced(">>> 1 + 1\n2\n\nEnd.")
    '```pycon\n>>> 1 + 1\n2\n```\n\nEnd.'
    """
    return re.sub(
        r"^([ ]*)(>>> (?:.*\n?)+?)(?=[ ]*$(?![^\n])|\Z)",
        lambda match: f"{match[1]}```pycon\n{match[1]}{match[2].rstrip()}\n{match[1]}```\n",
        text,
        flags=re.MULTILINE,
    )


class Doctests(griffe.Extension):
    """Puts a fence around each doctest of every object."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Change the docstring of an object; griffe calls this once it has read the object."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)


class Signatures(griffe.Extension):
    """Shows the arguments that a function takes as `Unpack[...]`, with their defaults."""

    def on_function(self, *, func: griffe.Function, **kwargs: Any) -> None:
        """Add to the signature of a metric function what `help` shows besides its own arguments."""
        *own, last = func.parameters or [None]
        if last is None or not str(last.annotation).startswith("Unpack[") or func.parent is None:
            return
        if not func.parent.is_module:
            return
        shown = inspect.signature(getattr(import_module(func.parent.path), func.name)).parameters
        names = {parameter.name for parameter in own}
        shared = [
            griffe.Parameter(
                name,
                annotation=inspect.formatannotation(parameter.annotation),
                kind=griffe.ParameterKind.keyword_only,
                default=repr(parameter.default),
            )
            for name, parameter in shown.items()
            if parameter.kind is parameter.KEYWORD_ONLY and name not in names
        ]
        func.parameters = griffe.Parameters(*own, *shared, last)
