"""A griffe extension: doctests in docstrings become code blocks on the pages.

Markdown would read `>>>` as quotes within quotes, and `["name"]` as a link.
"""

import re
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
