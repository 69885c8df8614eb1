"""The model of an ONNX file as a `Predictor`."""

from itertools import pairwise
from typing import Any

import numpy as np

from ltr.columns import steps_of
from ltr.datasets.column_steps import STEPS
from ltr.datasets.lists import ListDataset
from ltr.datasets.schema import Schema
from ltr.models.predictor import predict_table
from ltr.serving import OnnxRanker


class OnnxModel:
    """Scores tables and lists with an ONNX file, as a `RankingModel` does with its scorer.

    Args:
        ranker: the ranker of the file.

    Attributes:
        ranker: the ranker of the file.
        schema: how the columns of a table are used; None if the file has no names of columns. A
            file of an older version lacks the names of the columns of the queries, labels and
            documents; its `qid` is then "".
        num_features: the number of features of a document.
        looks_at_list: whether a score depends on the other documents of the list.
        takes_exact: True: the ranker rounds numbers to the type of its inputs.
    """

    takes_exact = True

    def __init__(self, ranker: OnnxRanker) -> None:
        self.ranker = ranker
        steps = steps_of(ranker.about, STEPS)
        keys = ranker.about.get("keys", {})
        qid, label, doc_id = keys.get("qid") or "", keys.get("label"), keys.get("doc_id")
        label = tuple(label) if isinstance(label, list) else label  # of several labels
        self.schema = Schema(qid, label, doc_id=doc_id, steps=steps) if steps else None
        self.num_features: int = ranker.about["num_features"]
        self.looks_at_list: bool = ranker.about["looks_at_list"]

    def predict(self, table: Any, qid: Any = None) -> np.ndarray:
        """Return the scores of a table's rows, float32 (rows,); see `RankingModel.predict`."""
        return predict_table(self, table, qid)

    def score(self, lists: ListDataset, exact: np.ndarray | None = None) -> np.ndarray:
        """Return the scores of lists, float32 (documents,); see `Predictor`."""
        features = lists.features if exact is None else exact
        bounds = lists.offsets.tolist() if self.looks_at_list else [0, len(features)]
        parts = [np.empty(0, np.float32)]
        for start, end in pairwise(bounds):
            codes = None if lists.categories is None else lists.categories[start:end]
            parts.append(self.ranker.score_arrays(features[start:end], codes))
        return np.concatenate(parts)
