"""Losses and metrics of this package for other libraries: sentence-transformers and Optuna.

`CrossEncoderLoss` is a loss for sentence-transformers' `CrossEncoderTrainer`, `EncoderLoss` one for
the trainers of its models that embed, with `ListCollator`. `CollapseAlarm` warns if the scores
within lists become equal in training. `evaluate_reranker` and `compare_training` measure how well a
reranker ranks, with confidence intervals. These names need the extra `text`. They are loaded on
first use, because the libraries of the extra take seconds to load.
`ltr.integrations.optuna` ends unpromising trials of Optuna's studies (extra `tune`).
"""

from typing import TYPE_CHECKING

from ltr.names import package_names

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

_LAZY = {
    "CollapseAlarm": "ltr.integrations.collapse",
    "CrossEncoderLoss": "ltr.integrations.cross_encoder",
    "EncoderLoss": "ltr.integrations.encoder",
    "ListCollator": "ltr.integrations.encoder",
    "compare_training": "ltr.integrations.rerankers",
    "evaluate_reranker": "ltr.integrations.rerankers",
}


if not TYPE_CHECKING:  # a type checker that saw __getattr__ would accept any name
    __getattr__, __dir__ = package_names(__name__, __all__, _LAZY, extra="text")
