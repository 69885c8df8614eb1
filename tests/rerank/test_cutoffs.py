"""`cutoff`: its definition by brute force, and its guarantee by simulation and on MQ2008."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ltr.arrays import rank
from ltr.datasets import read_letor
from ltr.datasets.splits import find_splits
from ltr.rerank import cutoff


def losses(kept, labels, qid, loss):
    """The loss of each list with a relevant document."""
    found = []
    for q in np.unique(qid):
        relevant = (labels > 0) & (qid == q)
        if relevant.any():
            recall = kept[relevant].mean()
            found.append(float(recall == 0) if loss == "none" else 1 - recall)
    return np.array(found)


def best_by_definition(scores, labels, qid, risk, loss, of):
    """The highest cutoff that the theorem allows, out of all that make a difference."""
    if of == "scores":
        candidates = np.unique(scores)[::-1]
        keep = {t: scores >= t for t in candidates}
    else:
        position = rank(scores, qid)
        candidates = np.arange(1, position.max() + 1)
        keep = {k: position <= k for k in candidates}
    for value in candidates:
        found = losses(keep[value], labels, qid, loss)
        if (found.sum() + 1) / (len(found) + 1) <= risk + 1e-12:
            return value, found.mean()
    raise AssertionError("keeping all documents loses nothing")


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(st.integers(-3, 3), st.integers(0, 1), st.integers(0, 6)), min_size=4),
    st.sampled_from([0.2, 0.3, 0.5, 0.9]),
    st.sampled_from(["none", "recall"]),
    st.sampled_from(["scores", "documents"]),
)
def test_the_cutoff_is_the_highest_that_the_theorem_allows(rows, risk, loss, of):
    scores, labels, qid = map(np.array, zip(*rows, strict=True))
    counted = len({q for q, label in zip(qid, labels, strict=True) if label})
    assume(counted)
    if risk * (counted + 1) < 1 - 1e-9:
        with pytest.raises(ValueError, match="lists with a relevant document are needed"):
            cutoff(scores, labels, qid, risk, loss=loss, of=of)
        return
    found = cutoff(scores, labels, qid, risk, loss=loss, of=of)
    value, observed = best_by_definition(scores, labels, qid, risk, loss, of)
    kept = found.keep(scores, qid)
    np.testing.assert_allclose(losses(kept, labels, qid, loss).mean(), found.observed, atol=1e-12)
    assert found.observed == pytest.approx(observed, abs=1e-12)
    assert found.lists == counted
    # Both cut off the same relevant documents; between two of them, no cutoff differs in its loss.
    expected = scores >= value if of == "scores" else rank(scores, qid) <= value
    np.testing.assert_array_equal(kept[labels > 0], expected[labels > 0])


@pytest.mark.parametrize("loss", ["none", "recall"])
@pytest.mark.parametrize("of", ["scores", "documents"])
@pytest.mark.parametrize(
    "lists",
    [25, pytest.param(200, marks=pytest.mark.slow)],  # the same draws, of more lists
)
def test_new_lists_lose_at_most_the_risk(lists, of, loss):
    """The mean over many draws of the given lists, as the theorem has it; and not far below."""
    risk, new, found = 0.1, 200, []
    for seed in range(150):
        rng = np.random.default_rng(seed)
        qid = np.repeat(np.arange(lists + new), 8)
        labels = rng.random(len(qid)) < 0.3
        hard = np.repeat(rng.normal(size=lists + new), 8)
        scores = labels * (1 + hard) + rng.normal(size=len(qid))
        mine = qid < lists
        chosen = cutoff(scores[mine], labels[mine], qid[mine], risk, loss=loss, of=of)
        kept = chosen.keep(scores[~mine], qid[~mine])
        found.append(losses(kept, labels[~mine], qid[~mine], loss).mean())
    error = np.std(found) / np.sqrt(len(found))
    assert np.mean(found) < risk + 3 * error
    if of == "scores":  # a number of documents is coarse
        assert np.mean(found) > risk - 1 / (lists + 1) - 3 * error - 0.01


@pytest.mark.slow
@pytest.mark.parametrize("of", ["scores", "documents"])
def test_the_guarantee_on_mq2008(data_root, of):
    """Random halves of the lists of a fold; the score is LMIR.JM of the whole document."""
    lists = read_letor(find_splits(data_root / "MQ2008", 1)["train"])
    lengths = np.asarray(lists.lengths)
    features, labels = np.asarray(lists.features), np.asarray(lists.labels)
    qid = np.repeat(np.arange(len(lengths)), lengths)
    scores = features[:, 39]
    risk, found = 0.1, []
    for seed in range(200):
        half = np.random.default_rng(seed).random(len(lengths)) < 0.5
        mine = half[qid]
        chosen = cutoff(scores[mine], labels[mine], qid[mine], risk, of=of)
        kept = chosen.keep(scores[~mine], qid[~mine])
        found.append(losses(kept, labels[~mine], qid[~mine], "none").mean())
    assert np.mean(found) < risk + 0.01  # the halves are not independent of each other
    assert np.mean(found) > 0.03


def test_a_number_of_documents_goes_by_list():
    qid = np.repeat(np.arange(30), 4)
    labels = np.tile([0, 1, 0, 0], 30)
    found = cutoff(np.tile([4.0, 3, 2, 1], 30), labels, qid, of="documents")
    assert (found.value, found.observed, found.kept) == (2, 0, 0.5)
    assert found.keep([1, 5, 3, 2, 1], ["a", "b", "a", "a", "b"]).tolist() == [
        False,
        True,
        True,
        True,
        True,
    ]
    assert "keep 2 first" in str(found)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scores": [1.0]}, "labels must have the shape of scores"),
        ({"scores": [np.nan] * 40}, "scores must not be NaN"),
        ({"labels": [-1] * 40}, "labels must be finite and >= 0"),
        ({"labels": [0] * 40}, "at least 19 lists with a relevant document are needed.*got 0"),
        ({"qid": [1] * 40}, "at least 19 lists with a relevant document are needed.*got 1"),
        ({"qid": None}, "qid must be the query of each row"),
        ({"qid": [1]}, "qid must have one value for each of the 40 rows"),
        ({"risk": 0}, r"risk must lie in \(0, 1\), got 0"),
        ({"risk": np.nan}, r"risk must lie in \(0, 1\)"),
        ({"risk": 0.001}, "at least 999 lists"),
        ({"loss": "ndcg"}, "loss must be"),
        ({"of": "lists"}, "of must be"),
    ],
)
def test_wrong_input_is_one_line(change, message):
    given = {"scores": np.arange(40.0), "labels": [1] * 40, "qid": np.arange(40), "risk": 0.05}
    with pytest.raises(ValueError, match=message) as error:
        cutoff(**(given | change))
    assert "\n" not in str(error.value)
