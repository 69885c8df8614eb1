"""Filter the messages and warnings of Lightning that do not help a user of `ltr`."""

import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import lightning

# These warnings are expected in small runs, or give advice that ltr follows already.
_IGNORED_WARNINGS = [
    ".*does not have many workers.*",
    ".*smaller than the logging interval.*",
    ".*Checkpoint directory .* exists and is not empty.*",
    ".*was configured so validation will run.*",
    ".*is not supported by the model summary.*",
    ".*callbacks used to create the checkpoint need to be provided.*",
    ".*infer the batch indices.*",
    ".*LeafSpec.*",
]

_LIGHTNING = str(Path(lightning.__path__[0]))


def _passes(record: logging.LogRecord) -> bool:
    """Return whether a message is a warning, or is not from Lightning."""
    return record.levelno >= logging.WARNING or not record.pathname.startswith(_LIGHTNING)


@contextmanager
def quiet_lightning() -> Iterator[None]:
    """Drop Lightning's routine messages and expected warnings; log its other messages to stdout.

    >>> with quiet_lightning():
    ...     warnings.warn("the dataloader does not have many workers which may be a bottleneck")
    """
    handlers = {
        handler
        for name in ("lightning", "lightning.pytorch", "lightning.fabric")
        for handler in logging.getLogger(name).handlers
        if isinstance(handler, logging.StreamHandler)
    }
    before = {handler: handler.stream for handler in handlers}
    for handler in handlers:
        handler.stream = sys.stdout
        handler.addFilter(_passes)
    try:
        with warnings.catch_warnings():
            # These warnings are meant for authors of libraries.
            warnings.simplefilter("ignore", DeprecationWarning)
            for pattern in _IGNORED_WARNINGS:
                warnings.filterwarnings("ignore", pattern)
            yield
    finally:
        for handler in handlers:
            handler.stream = before[handler]
            handler.removeFilter(_passes)
