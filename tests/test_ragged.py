"""Ragged lists: their lengths, chunks, sums and queries."""

import pytest
import torch

from ltr.ragged import check_lengths, chunks, from_chunks, group_by_qid, sum_lists

INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.uint16, torch.int32, torch.uint32]
INTEGERS += [torch.int64, torch.uint64]


@pytest.mark.parametrize("lengths", [[3, 0, 5, 1], [0, 0], [], [1], [700, 2, 300]])
def test_the_sum_of_each_list(lengths):
    scores = torch.randn(sum(lengths), dtype=torch.float64)
    sums = [part.sum() for part in scores.split(lengths)] or [torch.zeros(0)]
    found = sum_lists(scores, torch.tensor(lengths, dtype=torch.int64))
    torch.testing.assert_close(found, torch.hstack(sums).double())


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("lengths", [[3, 0, 5, 1], [0, 0], [], [1], [700, 2, 300], [9] * 4])
def test_chunks_hold_each_list_once(lengths, compiled, monkeypatch):
    if compiled:  # the chunks of one graph for any lengths
        monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    monkeypatch.setattr("ltr.ragged.SPARE_POSITIONS", 100)
    scores = torch.randn(sum(lengths), dtype=torch.float64, requires_grad=True)
    names = torch.stack([torch.arange(sum(lengths)), -torch.arange(sum(lengths))], -1)
    sizes, found = torch.tensor(lengths, dtype=torch.int64), {}
    parts = []
    for lists, mask, (padded, pairs) in chunks(sizes, scores, names):
        real = torch.ones_like(padded, dtype=torch.bool) if mask is None else mask
        assert (padded[~real] == 0).all()
        assert (pairs[~real] == 0).all()
        rows = zip(lists.tolist(), padded, pairs, real, strict=True)
        found |= {r: (x[m], y[m]) for r, x, y, m in rows if r < len(lengths)}
        parts.append((lists, padded.sum(-1)))
    assert sorted(found) == [r for r, size in enumerate(lengths) if size]
    for r, (x, y) in enumerate(zip(scores.split(lengths), names.split(lengths), strict=True)):
        assert r not in found or (found[r][0].equal(x) and found[r][1].equal(y))
    sums = from_chunks(parts, len(lengths))
    torch.testing.assert_close(sums, sum_lists(scores, sizes))
    weights = torch.randn(len(lengths), dtype=torch.float64)
    (gradient,) = torch.autograd.grad((sums * weights).sum(), scores)
    assert gradient.equal(weights.repeat_interleave(sizes))


@pytest.mark.parametrize(
    ("scores", "lengths", "words"),
    [
        (torch.zeros(3), torch.tensor([1, 1]), "lengths.*2"),
        (torch.zeros(3), torch.tensor([4, -1]), "lengths.*-1"),
        (torch.zeros(1, 3), torch.tensor([3]), r"scores.*\(1, 3\)"),
        (torch.zeros(3), torch.tensor([3.0]), "lengths must"),
        (torch.zeros(3), [1.5, 1.5], "lengths must"),
        (torch.zeros(3), [[3]], "lengths must"),
        (torch.zeros(3), ["a"], "lengths must"),
        (torch.zeros(3), [True], "lengths must"),
        (torch.zeros(3), 3, "lengths must"),
        (torch.zeros(3), [1, 1], "lengths.*2"),
    ],
)
def test_lengths_that_do_not_fit(scores, lengths, words):
    with pytest.raises(ValueError, match=words):
        check_lengths(scores, lengths)


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("compiled", [False, True])
def test_rows_are_grouped_by_ascending_qid(dtype, compiled):
    torch.compiler.reset()
    group = torch.compile(group_by_qid, backend="eager", fullgraph=True)
    group = group if compiled else group_by_qid
    least = torch.iinfo(dtype).min
    rows = [[5, 3, 5, 100, 3, 5], [least, 3, least, 4, 4, 9], [1, 1, 2, 3, 3, 3], [7] * 6]
    for ids in [*rows, [2**63, 1, 2**63, 2**64 - 1, 1, 2]] if dtype == torch.uint64 else rows:
        order, lengths = group(torch.tensor(ids, dtype=dtype), 6)
        assert (order is None) == (not compiled and ids == sorted(ids))
        order = torch.arange(6) if order is None else order
        assert order.tolist() == sorted(range(6), key=lambda i: ids[i])
        counts = [ids.count(i) for i in sorted(set(ids))]
        assert lengths.tolist() == counts + [0] * (compiled * 6 - compiled * len(counts))
        assert order.dtype == lengths.dtype == torch.int64


def test_large_and_few_qids():
    ids = torch.tensor([2**40, -(2**40), 2**40, 0])
    order, lengths = group_by_qid(ids, 4)
    assert order.tolist() == [1, 3, 0, 2]
    assert lengths.tolist() == [1, 1, 2]
    ids = torch.randint(0, 300, (5000,))
    for rows in (ids, ids.sort().values, torch.cat([torch.arange(2000), ids])):
        order, lengths = group_by_qid(rows, len(rows))
        ordered, expected = rows.sort(stable=True)
        assert order is None if rows.equal(ordered) else order.equal(expected)
        assert lengths.equal(rows.unique(return_counts=True)[1])
    order, lengths = group_by_qid(torch.zeros(0, dtype=torch.int32), 0)
    assert order is None
    assert lengths.shape == (0,)


@pytest.mark.parametrize(
    ("qid", "got"),
    [
        ([1, 2], "got a list"),
        (torch.ones(2), "float32"),
        (torch.ones(2).bool(), "bool"),
        (torch.ones(2, dtype=torch.complex64), "complex64"),
        (torch.ones(3).long(), r"\(3,\)"),
        (torch.ones(2, 1).long(), r"\(2, 1\)"),
    ],
)
def test_a_qid_must_be_an_integer_a_row(qid, got):
    with pytest.raises(ValueError, match=f"qid.*{got}"):
        group_by_qid(qid, 2)
