"""After the scores: fuse rankers, diversify a list, give each row its position.

All functions take arrays (numpy's, pandas', polars', lists, tensors) with `qid`, the query of each
row. `fuse` and `fusion_weights` take runs too: dicts, or files of TREC.
"""

from typing import TYPE_CHECKING, Any

from ltr.arrays import rank
from ltr.names import no_attribute
from ltr.rerank.diversity import diversify, mmr
from ltr.rerank.fusion import fuse
from ltr.rerank.normalization import normalize_scores
from ltr.rerank.weights import fusion_weights

__all__ = [
    "diversify",
    "fuse",
    "fusion_weights",
    "mmr",
    "normalize_scores",
    "rank",
]


if not TYPE_CHECKING:  # if it saw __getattr__, a type checker would accept any name

    def __getattr__(name: str) -> Any:
        raise no_attribute(__name__, name, __all__)
