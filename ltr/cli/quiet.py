"""Filter the messages and warnings of Lightning that tell a user of `ltr` nothing."""

import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

# either expected in small runs, or advice that ltr follows already
_IGNORED_WARNINGS = [
    ".*does not have many workers.*",
    ".*smaller than the logging interval.*",
    ".*Checkpoint directory .* exists and is not empty.*",
    ".*was configured so validation will run.*",
    ".*is not supported by the model summary.*",
    ".*callbacks used to create the checkpoint need to be provided.*",
    ".*infer the batch indices.*",
    ".*LeafSpec.*",
    ".*torch.jit.script.*",
]

_ADVERTISEMENTS = ("💡", "TPU available")
_SAME_FOR_EVERY_RUN = ("Seed set", "GPU available", "Restor", "Loaded model", "`Trainer.fit` stop")


class _Filter(logging.Filter):
    """Log filter that drops messages by their first words."""

    def __init__(self, words: tuple[str, ...]) -> None:
        super().__init__()
        self.words = words

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a message passes."""
        return not record.getMessage().startswith(self.words)


@contextmanager
def quiet(brief: bool = False) -> Iterator[None]:
    """Send Lightning's messages to stdout, without advertisements; stderr keeps warnings.

    Args:
        brief: whether to drop also the messages that are the same for every run.
    """
    handlers = {
        handler
        for name in ("lightning", "lightning.pytorch", "lightning.fabric")
        for handler in logging.getLogger(name).handlers
        if isinstance(handler, logging.StreamHandler)
    }
    before = {handler: handler.stream for handler in handlers}
    silence = _Filter(_ADVERTISEMENTS + (_SAME_FOR_EVERY_RUN if brief else ()))
    for handler in handlers:
        handler.stream = sys.stdout
        handler.addFilter(silence)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # between libraries
            for pattern in _IGNORED_WARNINGS:
                warnings.filterwarnings("ignore", pattern)
            yield
    finally:
        for handler in handlers:
            handler.stream = before[handler]
            handler.removeFilter(silence)
