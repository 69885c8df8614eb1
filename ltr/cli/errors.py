"""The user's mistakes, each reported in one line."""

import re
import sys

from ltr.names import one_line

_LOST = re.compile("gloo.*Connection (closed|reset) by peer", re.DOTALL)


class CommandError(Exception):
    """A mistake in a command or a configuration: printed as one line, exit code 2."""


def innermost(text: str) -> str:
    r"""Return the cause from jsonargparse's report, which lists every type that failed.

    >>> innermost("Does not validate against any of the Union subtypes\nSubtypes: [int, None]\n"
    ...     "Errors:\n  - top_k must be >= 1\n  - Expected a <class 'NoneType'>\nGiven value: x")
    'top_k must be >= 1'
    """
    if "Does not validate against any of the Union subtypes" not in text:
        return one_line(text)
    no_cause = ("Does not validate", "Subtypes:", "Errors:", "Given value", "Parser key")
    no_cause += ("Expected a <class 'NoneType'>", "Problem with given class_path")
    lines = [line.strip().removeprefix("- ") for line in text.splitlines()]
    return next((line for line in lines if line and not line.startswith(no_cause)), one_line(text))


def as_user_error(error: Exception) -> str | None:
    """Return one line if the error is the user's mistake, or None if it must be a bug.

    >>> as_user_error(ValueError("temperature must be >= 0, got -1.0"))
    'temperature must be >= 0, got -1.0'
    >>> as_user_error(FileNotFoundError(2, "No such file or directory", "train.txt"))
    'train.txt: No such file or directory'
    >>> as_user_error(RuntimeError("gloo/transport/tcp/pair.cc:553] Connection closed by peer"))
    'another process of this run has ended: what it said tells the cause'
    >>> as_user_error(KeyError("x")) is None
    True
    """
    if isinstance(error, OSError) and error.filename is not None:
        return one_line(f"{error.filename}: {error.strerror}")
    if isinstance(error, RuntimeError) and _LOST.search(str(error)):
        return "another process of this run has ended: what it said tells the cause"
    if isinstance(error, (CommandError, ValueError)):
        return innermost(str(error)) or type(error).__name__
    # Lightning raises this for options that exclude each other; then its module is loaded
    lightning = sys.modules.get("lightning.fabric.utilities.exceptions")
    if lightning is not None and isinstance(error, lightning.MisconfigurationException):
        return one_line(error)
    return None
