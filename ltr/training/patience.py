"""The number of epochs without a better value after which both training loops stop."""

import math

_EPOCHS, _STEPS = 3, 40


def default_patience(steps: float) -> int:
    """Return how many epochs without a better value end a training.

    These are 3 epochs, or as many as have 40 steps: after a few steps, a value tells little.

    Args:
        steps: the number of training steps of an epoch, > 0; inf if it is not known.

    >>> default_patience(100), default_patience(3), default_patience(math.inf)
    (3, 14, 3)
    """
    return max(_EPOCHS, math.ceil(_STEPS / steps))
