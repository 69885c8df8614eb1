"""Put data sets of lists together."""

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from ltr.datasets.lists import ListDataset


def join_lists(parts: Iterable[ListDataset], *, across: bool = False) -> ListDataset:
    """Return the lists of several data sets, one after another, in memory.

    Where a part has fewer features, the others are 0; where a part has no document ids and another
    one has, they are "". Other columns that a part lacks are left out.

    Args:
        parts: one or more.
        across: whether the first list of a part goes on with the last one of the part before where
            both have the same qid.

    >>> one = ListDataset.from_arrays([[1.0], [2.0]], labels=[0, 1], qid=["a", "b"])
    >>> two = ListDataset.from_arrays([[3.0, 4.0]], labels=[2], qid=["b"])
    >>> join_lists([one, two], across=True)[1]["features"]
    tensor([[2., 0.],
            [3., 4.]])
    """
    parts = list(parts)
    if len(parts) == 1:
        return parts[0]
    documents = sum(len(part.features) for part in parts)
    width = max(part.num_features for part in parts)
    features = np.empty((documents, width), np.float32)
    qids: list[str] = []
    starts = []
    begin = 0
    for part in parts:
        end = begin + len(part.features)
        features[begin:end, : part.num_features] = part.features
        features[begin:end, part.num_features :] = 0
        same = across and bool(qids) and qids[-1] == part.qids[0]
        qids += part.qids[same:]
        starts.append(part.offsets[same:-1] + begin)
        begin = end
    doc_ids = None
    if any(part.doc_ids is not None for part in parts):
        ids = [
            pa.repeat(pa.scalar("", pa.string()), len(part.features))
            if part.doc_ids is None
            else part.doc_ids
            for part in parts
        ]
        doc_ids = pa.concat_arrays(ids)
    columns = {
        name: np.concatenate([part.columns()[name] for part in parts])
        for name in parts[0].columns()
        if all(name in part.columns() for part in parts)
    }
    return ListDataset(
        features,
        columns.pop("labels", None),
        np.r_[np.concatenate(starts), documents].astype(np.int64),
        qids,
        doc_ids,
        **columns,
    )
