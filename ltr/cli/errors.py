"""The user's mistakes, each reported in one line; any other error is a bug."""

import re
import sys

from ltr.errors import is_mistake
from ltr.names import one_line

_MEMORY = re.compile("(can't allocate|out of) memory", re.IGNORECASE)
_MONITOR = "Early stopping conditioned on metric"
_LOST = re.compile("gloo.*Connection (closed|reset) by peer", re.DOTALL)


class CommandError(Exception):
    """A mistake in a command or a configuration, which `guarded` prints as one line; exit code 2.

    >>> from ltr.cli import guarded
    >>> def program():
    ...     raise CommandError("--seeds must be given")
    >>> guarded(program, "python -m own.run")
    2
    """


_FRAME = ("Does not validate", "Subtypes:", "Errors:", "Given value", "Parser key")
_FRAME += ("Expected a <class 'NoneType'>", "Expected a path but", "Problem with given class_path")


def innermost(report: str) -> str:
    r"""Return the causes in a report of jsonargparse, without the lists of types around them.

    >>> innermost("Does not validate against any of the Union subtypes\nSubtypes: [int, None]\n"
    ...     "Errors:\n  - top_k must be >= 1\n  - Expected a <class 'NoneType'>\nGiven value: x")
    'top_k must be >= 1'
    """
    if "Subtypes:" not in report and "Parser key" not in report:
        return one_line(report)
    text = report.partition("Subclass types expect one of")[0]
    lines = [line.strip().removeprefix("- ") for line in text.splitlines()]
    causes = [line for line in lines if line and not line.startswith(_FRAME)]
    return one_line("; ".join(dict.fromkeys(causes)) or report)


def as_user_error(error: Exception) -> str | None:
    """Return the error in one line if it is the user's mistake; None if it must be a bug.

    A `ValueError` is a mistake if `ltr.errors.is_mistake` says so.

    >>> from ltr.shapes import check_whole
    >>> import numpy as np
    >>> def told(function, *args):
    ...     try:
    ...         function(*args)
    ...     except Exception as error:
    ...         return as_user_error(error)
    >>> told(check_whole, "members", 0)
    'members must be a whole number >= 1, got 0'
    >>> told(open, "train.txt")
    'train.txt: No such file or directory'
    >>> told(np.concatenate, []) is told({}.__getitem__, "x") is None
    True
    """
    if isinstance(error, OSError) and error.filename is not None:
        return one_line(f"{error.filename}: {error.strerror}")
    if isinstance(error, OSError) and error.errno is not None:
        return one_line(error.strerror)
    if isinstance(error, MemoryError | RuntimeError) and (message := _of_runtime(error)):
        return message
    if isinstance(error, CommandError) or (isinstance(error, ValueError) and is_mistake(error)):
        return innermost(str(error)) or type(error).__name__
    # Lightning, if it is loaded, raises this error for options that exclude each other.
    lightning = sys.modules.get("lightning.fabric.utilities.exceptions")
    if lightning is not None and isinstance(error, lightning.MisconfigurationException):
        return one_line(error)
    return None


def _of_runtime(error: Exception) -> str | None:
    """Return the line for a lack of memory, a lost process or a value that is not logged.

    >>> _of_runtime(RuntimeError("gloo/transport/tcp/pair.cc:553] Connection closed by peer"))
    'another process of this run has failed; see its message'
    >>> _of_runtime(RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB."))
    'out of memory: CUDA out of memory'
    """
    message = str(error)
    if isinstance(error, MemoryError) or _MEMORY.search(message):
        return one_line(f"out of memory: {message.partition('. ')[0]}").removesuffix(": ")
    if _LOST.search(message):
        return "another process of this run has failed; see its message"
    return one_line(message) if message.startswith(_MONITOR) else None
