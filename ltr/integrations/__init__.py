"""Losses and metrics of this package for other libraries: sentence-transformers and Optuna.

`CrossEncoderLoss` is a loss for sentence-transformers' `CrossEncoderTrainer`, `EncoderLoss` one for
the trainers of its models that embed, with `ListCollator`. `CollapseAlarm` warns if the scores
within lists become equal in training. `evaluate_reranker` and `compare_training` measure how well a
reranker ranks, with confidence intervals. These names need the extra `text`. They are loaded on
first use, because the libraries of the extra take seconds to load.
`ltr.integrations.optuna` ends unpromising trials of Optuna's studies (extra `tune`).
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ltr.names import no_attribute

if TYPE_CHECKING:
    from ltr.integrations.collapse import CollapseAlarm
    from ltr.integrations.cross_encoder import CrossEncoderLoss
    from ltr.integrations.encoder import EncoderLoss, ListCollator
    from ltr.integrations.rerankers import compare_training, evaluate_reranker

__all__ = [
    "CollapseAlarm",
    "CrossEncoderLoss",
    "EncoderLoss",
    "ListCollator",
    "compare_training",
    "evaluate_reranker",
]

_HOMES = {
    "CollapseAlarm": "collapse",
    "CrossEncoderLoss": "cross_encoder",
    "EncoderLoss": "encoder",
    "ListCollator": "encoder",
    "compare_training": "rerankers",
    "evaluate_reranker": "rerankers",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise no_attribute(__name__, name, __all__)
    try:
        home = import_module(f"{__name__}.{_HOMES[name]}")
    except ModuleNotFoundError as error:
        raise ImportError(
            f"{__name__}.{name} needs pip install 'ltr-torch[text]': {error}"
        ) from error
    value = getattr(home, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
