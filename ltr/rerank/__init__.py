"""Steps around a first stage: fuse rankers, diversify lists, rank rows, and make training lists.

`lists_from_run` makes training lists for text models. The other functions take arrays (of numpy,
pandas or polars), lists or tensors, with `qid`, the query of each row. `fuse` and `fusion_weights`
also take runs: dicts or TREC files.
"""

from typing import TYPE_CHECKING

from ltr.arrays import rank
from ltr.names import package_names
from ltr.rerank.candidates import CandidateLists, lists_from_run, read_texts
from ltr.rerank.cutoffs import cutoff
from ltr.rerank.diversity import diversify, mmr
from ltr.rerank.fusion import fuse
from ltr.rerank.normalization import normalize_scores
from ltr.rerank.weights import fusion_weights

__all__ = [
    "CandidateLists",
    "cutoff",
    "diversify",
    "fuse",
    "fusion_weights",
    "lists_from_run",
    "mmr",
    "normalize_scores",
    "rank",
    "read_texts",
]


if not TYPE_CHECKING:  # a type checker that saw __getattr__ would accept any name
    __getattr__, __dir__ = package_names(__name__, __all__)
