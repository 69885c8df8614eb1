"""What one `update` of a metric class tells the functions it calls, and what it hears from them."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from torch import Tensor

if TYPE_CHECKING:
    from ltr.metrics.functional._ranking import Ranked


class _Scope(threading.local):
    """Of this thread: the lists at work, already in ranked order, and the lists without a value."""

    ranked: "Ranked | None" = None
    undefined: Tensor | None = None


scope = _Scope()


@contextmanager
def at_work(ranked: "Ranked | None", undefined: Tensor) -> Iterator[_Scope]:
    """Within it, a metric called with the tensors of `ranked` neither checks nor sorts them.

    `undefined` counts the lists without a value.
    """
    before = scope.ranked, scope.undefined
    scope.ranked, scope.undefined = ranked, undefined
    try:
        yield scope
    finally:
        scope.ranked, scope.undefined = before
