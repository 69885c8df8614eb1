"""Kernel sums over sorted scores: the engine below operators, losses and metrics.

`use` is all that a user may need from here: it pins matrices or kernel sums.
"""

from ltr.kernels.choice import use

__all__ = ["use"]
