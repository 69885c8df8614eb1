"""Whose fault an error is: the user's, who can mend it, or that of ltr."""

import dis
import sysconfig
from pathlib import Path

_PACKAGE = Path(__file__).parent
_LIBRARIES = [Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib", "platlib")]


def is_mistake(error: ValueError) -> bool:
    """Return whether an error is a mistake of the user; otherwise it must be a bug of ltr.

    It is a mistake if a statement `raise` of ltr, or of the user's own code, made it. If another
    library made it, such as numpy, ltr has passed on a wrong argument, which is a bug.

    >>> import numpy as np
    >>> from ltr.columns import numbers
    >>> def told(function, *args):
    ...     try:
    ...         function(*args)
    ...     except ValueError as error:
    ...         return is_mistake(error)
    >>> told(numbers, "price", ["dear"], 1, float), told(np.concatenate, [])
    (True, False)
    """
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return False
    code = trace.tb_frame.f_code
    path = Path(code.co_filename)
    own = path.is_relative_to(_PACKAGE) or not any(map(path.is_relative_to, _LIBRARIES))
    # A library written in C has no frame, so that the innermost frame is at a call.
    raised = code.co_code[trace.tb_lasti] == dis.opmap["RAISE_VARARGS"]
    return path.is_absolute() and own and raised
