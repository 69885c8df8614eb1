"""A griffe extension: doctests in docstrings become code blocks on the pages.

Markdown would read `>>>` as quotes within quotes, and `["name"]` as a link.
"""

import re
from typing import Any

import griffe


def fenced(text: str) -> str:
    r"""The text with each doctest, to the next blank line, in a fence.

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
    """Fences the doctests of everything that has a docstring."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Called for each object once it is read."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)
