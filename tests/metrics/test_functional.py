"""The functional metrics against formulas, scikit-learn, scipy, trec_eval and brute force."""

from inspect import signature
from itertools import combinations, permutations, product
from math import log2
from typing import get_args

import numpy as np
import pytest
import pytrec_eval
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pairwise import each
from scipy.stats import kendalltau
from sklearn.metrics import ndcg_score

from ltr import ragged
from ltr.metrics import functional as F
from ltr.metrics.functional import (
    average_precision,
    elementwise_accuracy,
    exact_match,
    kendall_tau,
    mrr,
    ndcg,
)
from ltr.reports import evaluate

METRICS = {name: getattr(F, name) for name in F.__all__}
CORRELATIONS = ("kendall_tau", "spearman", "opa")  # one item has no value
# no 1 for the best order: they depend on how many items there are, or are lower for the better
OPEN = ("arp", "dcg", "err", "f1", "f_beta", "precision", "rbp", "rbp_residual")
OPEN += ("set_f_beta", "set_precision")
every = each("metric", METRICS)
CUT = [ndcg, mrr, average_precision]


def draw(lists: int = 30, n: int = 12) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(lists, n, dtype=torch.float64, generator=generator)
    labels = torch.randint(0, 5, (lists, n), generator=generator) - 2
    mask = torch.rand(lists, n, generator=generator) < 0.7
    mask[:, 0] = True
    return scores, labels.clamp(min=0).double(), mask


def mean_of(metric, values: torch.Tensor) -> torch.Tensor:
    """The mean of a metric's values, for one of them the geometric mean."""
    return values.log().nanmean().exp() if metric is F.gmap else values.nanmean()


@pytest.mark.parametrize("top_k", [None, 1, 3, 10])
@pytest.mark.parametrize("gain", ["exp2", "linear"])
def test_ndcg_is_scikit_learns(top_k, gain):
    scores, labels, _ = draw()
    labels[:, 0] = 1  # scikit-learn gives 0 for a list without a relevant item; tested below
    gains = 2**labels - 1 if gain == "exp2" else labels
    expected = ndcg_score(gains.numpy(), scores.numpy(), k=top_k)
    assert ndcg(scores, labels, top_k=top_k, gain=gain).item() == pytest.approx(expected, abs=1e-12)


def test_ndcg_by_the_formula():
    scores, labels = torch.tensor([0.1, 0.9, 0.5]), torch.tensor([2.0, 0.0, 1.0])
    dcg = 0 / log2(2) + 1 / log2(3) + 3 / log2(4)
    ideal = 3 / log2(2) + 1 / log2(3)
    assert ndcg(scores, labels).item() == pytest.approx(dcg / ideal)
    assert ndcg(scores, labels, top_k=2).item() == pytest.approx((1 / log2(3)) / ideal)
    letor = (0 + 1 + 3 / log2(3)) / (3 + 1)
    assert ndcg(scores, labels, discount="letor4").item() == pytest.approx(letor)


def test_short_lists_count_what_is_asked():
    scores, labels = torch.tensor([[3.0, 2.0, 1.0]] * 2), torch.tensor([[1.0, 0.0, 0.0]] * 2)
    mask = torch.tensor([[True, True, False], [True] * 3])
    each = ndcg(scores, labels, mask=mask, top_k=3, short_list_value=0, reduction="none")
    assert each.tolist() == [0, 1]
    assert ndcg(scores, labels, mask=mask, top_k=3, reduction="none").tolist() == [1, 1]
    all_masked = torch.zeros(2, 3, dtype=torch.bool)
    assert (
        ndcg(scores, labels, mask=all_masked, top_k=3, short_list_value=0, reduction="none")
        .isnan()
        .all()
    )


def trec(measure: str, scores: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor) -> list:
    run, qrels = {}, {}
    for i, (s, y, m) in enumerate(
        zip(scores.tolist(), labels.tolist(), mask.tolist(), strict=True)
    ):
        real = [j for j in range(len(s)) if m[j]]
        run[str(i)] = {str(j): s[j] for j in real}
        qrels[str(i)] = {str(j): int(y[j]) for j in real}
    results = pytrec_eval.RelevanceEvaluator(qrels, {measure}).evaluate(run)
    key = measure.replace(".", "_")
    return [results[str(i)][key] for i in range(len(scores))]


def test_values_are_trec_evals():
    scores, labels, mask = draw()
    labels[0] = 0
    for metric, measure in [
        (mrr(scores, labels, mask=mask, reduction="none"), "recip_rank"),
        (average_precision(scores, labels, mask=mask, reduction="none"), "map"),
        (ndcg(scores, labels, mask=mask, gain="linear", reduction="none"), "ndcg"),
        (ndcg(scores, labels, mask=mask, gain="linear", top_k=5, reduction="none"), "ndcg_cut.5"),
    ]:
        np.testing.assert_allclose(metric, trec(measure, scores, labels, mask), atol=1e-12)


def test_relevant_items_with_negative_scores_count():
    scores, labels = torch.tensor([-1.0, -2.0, -3.0]), torch.tensor([0.0, 1.0, 1.0])
    assert mrr(scores, labels).item() == pytest.approx(1 / 2)
    assert average_precision(scores, labels).item() == pytest.approx((1 / 2 + 2 / 3) / 2)


def test_mrr_of_a_list_without_a_relevant_item_is_empty_whatever_else_is_there():
    scores, labels = torch.tensor([3.0, 2.0, 1.0]), torch.tensor([0.0, 0.0, 1.0])
    none = torch.zeros(3)
    for empty, value in ((0, 0.0), (1, 1.0), (0.25, 0.25)):
        alone = mrr(scores, none, empty=empty, reduction="none")
        beside = mrr(
            torch.stack([scores] * 3),
            torch.stack([none, labels, none]),
            empty=empty,
            reduction="none",
        )
        assert alone.item() == value
        torch.testing.assert_close(beside, torch.tensor([value, 1 / 3, value]))
    skipped = mrr(torch.stack([scores] * 2), torch.stack([none, labels]), empty="skip")
    assert skipped.item() == pytest.approx(1 / 3)


def test_gains_that_overflow_or_fall_below_zero_are_refused():
    scores = torch.tensor([2.0, 1.0])
    with pytest.raises(ValueError, match=r"gains.*labels up to 128"):
        F.dcg(scores, torch.tensor([128.0, 0.0]))
    with pytest.raises(ValueError, match="gains must"):  # in their sum alone
        F.dcg(scores, torch.tensor([127.9, 127.9]), discount=torch.ones_like)
    assert F.dcg(scores.double(), torch.tensor([128.0, 0.0])).isfinite()
    for metric in (F.ndcg, F.dcg):
        assert metric(scores, torch.tensor([128.0, 0.0]), gain="linear").isfinite()
        with pytest.raises(ValueError, match=r"gain.*-1"):
            metric(scores, torch.tensor([1.0, 0.0]), gain=torch.neg)
    with pytest.raises(ValueError, match=r"gains.*labels up to 3e\+38"):
        F.ndcg(scores, torch.tensor([3e38, 3e38]), gain="linear")


@pytest.mark.parametrize("ties", ["stable", "expected", "worst"])
@pytest.mark.parametrize("weighted", [False, True])
def test_ndcg_takes_labels_of_any_size_in_float32(ties, weighted):
    scores = torch.tensor([1.0, 3.0, 2.0, 2.0, 0.0])
    labels = torch.tensor([130.0, 127.0, 129.0, 128.0, 400.0])
    mask = torch.arange(5) < 4
    weights = torch.tensor([1.0, 0.5, 0.0, 2.0, 1.0]) if weighted else None
    exact = F.ndcg(
        scores.double(),
        (labels.double() - 120).where(mask, 0),
        mask=mask,
        weights=None if weights is None else weights.double(),
        gain=lambda y: torch.exp2(y) - 2.0**-120,
        ties=ties,
    )
    found = F.ndcg(scores, labels, mask=mask, weights=weights, ties=ties)
    torch.testing.assert_close(found.double(), exact, rtol=1e-6, atol=0)
    assert F.ndcg(scores, scores + 1e5) == 1
    # An item of weight 0 has no gain, however large its label.
    heavy = torch.tensor([1.0, 1.0, 1.0, 1.0, 0.0])
    expected = F.ndcg(scores[:4], torch.tensor([1.0, 0.0, 2.0, 0.0]))
    labels = torch.tensor([1.0, 0.0, 2.0, 0.0, 300.0])
    torch.testing.assert_close(F.ndcg(scores, labels, weights=heavy), expected)


@every
def test_labels_of_any_dtype(metric):
    scores, labels, mask = draw(6, 5)
    expected = metric(scores, labels, mask=mask)
    for dtype in (torch.uint8, torch.int32, torch.int64, torch.float16):
        torch.testing.assert_close(metric(scores, labels.to(dtype), mask=mask), expected)
    torch.testing.assert_close(
        metric(scores, labels > 0, mask=mask), metric(scores, (labels > 0).double(), mask=mask)
    )
    scores, labels = scores.flatten(), labels.flatten()
    for rows in ({"lengths": [7, 9, 14]}, {"qid": torch.arange(30) % 4}):
        expected = metric(scores, labels, **rows)
        for dtype in (torch.uint8, torch.uint16, torch.uint32, torch.uint64):
            torch.testing.assert_close(metric(scores, labels.to(dtype), **rows), expected)


@every
def test_no_lists_and_no_items(metric):
    known = signature(metric).parameters
    options = [{}]
    if "ties" in known:
        options += [{"ties": ties} for ties in get_args(known["ties"].annotation)]
    for shape, own in product([(0, 3), (0, 0), (2, 0)], options):
        each = metric(torch.zeros(shape), torch.zeros(shape), reduction="none", **own)
        assert each.shape == shape[:1], (shape, own)
        assert each.isnan().all(), (shape, own)


@every
def test_a_cut_beyond_the_list_is_none(metric):
    known = signature(metric).parameters
    if "top_k" not in known or known["top_k"].default is not None:
        return
    if metric in (F.precision, F.f1, F.f_beta):  # they divide by k
        return
    scores, labels, mask = draw()
    each = metric(scores, labels, mask=mask, reduction="none")
    torch.testing.assert_close(metric(scores, labels, mask=mask, top_k=99, reduction="none"), each)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
@every
def test_a_gpu_gives_the_same(metric):
    scores, labels, mask = draw()
    lists = {"scores": scores, "labels": labels, "mask": mask}
    expected = metric(**lists, reduction="none")
    each = metric(**{name: x.cuda() for name, x in lists.items()}, reduction="none")
    assert each.is_cuda
    torch.testing.assert_close(each.cpu(), expected)
    scores, labels = (x.flatten()[torch.randperm(x.numel())] for x in (scores, labels))
    ids = torch.arange(scores.numel()) % 7 - 3
    each = metric(scores.cuda(), labels.cuda(), qid=ids.cuda(), reduction="none")
    assert each.is_cuda
    torch.testing.assert_close(each.cpu(), metric(scores, labels, qid=ids, reduction="none"))


@every
@given(data=st.data())
@settings(max_examples=15, deadline=None)
def test_padding_and_the_order_of_lists_change_nothing(metric, data):
    n, lists = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 4))
    whole = st.lists(st.integers(-2, 3), min_size=n * lists, max_size=n * lists)
    scores = torch.tensor(data.draw(whole)).double().view(lists, n) / 2  # ties, and below 0
    labels = torch.tensor(data.draw(whole)).clamp(min=0).double().view(lists, n)
    each = metric(scores, labels, reduction="none")
    order = torch.tensor(data.draw(st.permutations(range(lists))))
    permuted = metric(scores[order], labels[order], reduction="none")
    torch.testing.assert_close(permuted, each[order], rtol=0, atol=1e-12)
    wide = data.draw(st.integers(1, 3))
    padded, real = (torch.nn.functional.pad(x, (wide, wide), value=9.0) for x in (scores, labels))
    mask = torch.zeros_like(padded, dtype=torch.bool)
    mask[:, wide:-wide] = True
    found = metric(padded, real, mask=mask, reduction="none")
    torch.testing.assert_close(found, each, rtol=0, atol=1e-12)


@every
@given(data=st.data())
@settings(max_examples=15, deadline=None)
def test_the_order_of_rows_changes_nothing_without_ties_or_with_expected_ones(metric, data):
    known = signature(metric).parameters
    n = data.draw(st.integers(1, 7))
    labels = torch.tensor(data.draw(st.lists(st.integers(0, 3), min_size=n, max_size=n))).double()
    tied = torch.tensor(data.draw(st.lists(st.integers(-2, 2), min_size=n, max_size=n))).double()
    untied = torch.tensor(data.draw(st.permutations(range(n)))).double() - n / 2
    order = torch.tensor(data.draw(st.permutations(range(n))))
    expects = "ties" in known and "expected" in get_args(known["ties"].annotation)
    cases = [(tied, {"ties": "expected"})] if expects else []
    # the labels of rbo are a ranking too, whose ties are in list order
    cases += [] if metric is F.rbo else [(untied, {})]
    for scores, options in cases:
        expected = metric(scores, labels, **options)
        found = metric(scores[order], labels[order], **options)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def test_average_precision_and_mrr_at_k():
    scores, labels = torch.tensor([4.0, 3.0, 2.0, 1.0]), torch.tensor([0.0, 1.0, 1.0, 1.0])
    assert average_precision(scores, labels, top_k=2).item() == pytest.approx((1 / 2) / 2)
    assert average_precision(scores, labels, top_k=10).item() == pytest.approx(
        (1 / 2 + 2 / 3 + 3 / 4) / 3
    )
    assert mrr(scores, labels, top_k=1) == 0
    assert mrr(scores, labels, top_k=2).item() == 0.5


@pytest.mark.parametrize("ties", [False, True])
def test_kendall_tau_b_is_scipys(ties):
    scores, labels, mask = draw()
    if ties:
        scores = scores.round()
    each = kendall_tau(scores, labels, mask=mask, empty="skip", reduction="none")
    for s, y, m, value in zip(scores, labels, mask, each, strict=True):
        expected = kendalltau(s[m], y[m]).statistic
        np.testing.assert_allclose(value, expected, atol=1e-12)


NUMBERS = {"top_k": 3, "alpha": 0.5, "p": 0.75, "empty": 0.5, "relevant_from": 1.0}
NUMBERS |= {"max_label": 4.0, "threshold": 0.25, "beta": 2.0, "recall": 0.5}


@every
def test_numpy_scalars_are_numbers(metric):
    scores, labels, mask = draw()
    for name in NUMBERS.keys() & signature(metric).parameters.keys():
        value = NUMBERS[name]
        kinds = (np.int8, np.uint64) if isinstance(value, int) else (np.float16, np.float64)
        expected = metric(scores, labels, mask=mask, **{name: value})
        for kind in kinds:
            found = metric(scores, labels, mask=mask, **{name: kind(value)})
            torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("variant", ["a", "b"])
@pytest.mark.parametrize("seed", range(5))
def test_kendall_tau_of_tied_scores_is_that_of_their_orders(variant, seed):
    draw = np.random.default_rng(seed)
    scores, labels = draw.integers(0, 3, 6).astype(float), draw.permutation([0.0, 0, 1, 2, 2, 3])
    taus = []
    for order in permutations(range(6)):
        if (np.diff(scores[list(order)]) <= 0).all():
            y = labels[list(order)]
            signs = [np.sign(y[i] - y[j]) for i, j in combinations(range(6), 2)]
            pairs = 15 if variant == "a" else (15 * np.count_nonzero(signs)) ** 0.5
            taus.append((sum(signs) / pairs, order))
    found = {
        ties: kendall_tau(
            torch.tensor(scores), torch.tensor(labels), variant=variant, ties=ties
        ).item()
        for ties in ("stable", "worst", "expected")
    }
    assert found["worst"] == pytest.approx(min(taus)[0])
    assert found["expected"] == pytest.approx(np.mean([tau for tau, _ in taus]))
    stable = tuple(np.argsort(-scores, kind="stable").tolist())
    assert found["stable"] == pytest.approx(next(tau for tau, order in taus if order == stable))
    padded = torch.tensor([[*scores, 9.0, 1.0]]), torch.tensor([[*labels, 7.0, 0.0]])
    mask = torch.tensor([[True] * 6 + [False] * 2])
    for ties, value in found.items():
        again = kendall_tau(*padded, variant=variant, ties=ties, mask=mask)
        assert again.item() == pytest.approx(value)


def test_kendall_tau_weighted_has_no_order_of_ties():
    with pytest.raises(ValueError, match=r'ties must be "tied".*worst'):
        kendall_tau(torch.zeros(3), torch.ones(3), variant="weighted", ties="worst")


def test_evaluate_takes_the_definition_of_kendall_tau():
    labels, scores = [0, 1, 2, 2], [1.0, 1.0, 2.0, 3.0]
    for ties in ("stable", "worst", "expected"):
        found = evaluate(labels, scores, [1] * 4, ["kendall_tau"], ties=ties)["kendall_tau"].mean
        assert found == pytest.approx(kendalltau(scores, labels).statistic)


def test_kendall_tau_a_by_brute_force():
    scores, labels, mask = draw()
    each = kendall_tau(scores, labels, mask=mask, variant="a", reduction="none")
    for s, y, m, value in zip(scores, labels, mask, each, strict=True):
        pairs = list(combinations(np.flatnonzero(m), 2))
        signs = [np.sign((s[i] - s[j]).item()) * np.sign((y[i] - y[j]).item()) for i, j in pairs]
        assert value.item() == pytest.approx(sum(signs) / len(pairs) if pairs else 0)


def test_exact_match_by_brute_force():
    generator = torch.Generator().manual_seed(0)
    scores = torch.randint(0, 4, (300, 3), generator=generator).double()
    labels = torch.randint(0, 3, (300, 3), generator=generator).double()
    mask = torch.rand(300, 3, generator=generator) < 0.8
    each = exact_match(scores, labels, mask=mask, reduction="none")
    for s, y, m, value in zip(scores, labels, mask, each, strict=True):
        real = np.flatnonzero(m)
        if not len(real):
            assert value.isnan()
            continue
        good = all(s[i] > s[j] for i in real for j in real if y[i] > y[j])
        assert value == good


def test_elementwise_accuracy_by_brute_force():
    generator = torch.Generator().manual_seed(0)
    scores = torch.randint(0, 6, (400, 4), generator=generator).double()
    labels = torch.randint(0, 4, (400, 4), generator=generator).double()
    mask = torch.rand(400, 4, generator=generator) < 0.8
    each = elementwise_accuracy(scores, labels, mask=mask, reduction="none")
    perfect = exact_match(scores, labels, mask=mask, reduction="none")
    for s, y, m, value, whole in zip(scores, labels, mask, each, perfect, strict=True):
        real = np.flatnonzero(m)
        if not len(real):
            assert value.isnan()
            continue
        order = sorted(real, key=lambda i: -s[i])
        due = sorted((y[i].item() for i in real), reverse=True)
        good = [
            y[i] == label and not any(s[j] == s[i] and y[j] != y[i] for j in real)
            for i, label in zip(order, due, strict=True)
        ]
        assert value.item() == pytest.approx(sum(good) / len(good))
        assert (value == 1) == (whole == 1)


@every
def test_mask_is_deletion_whatever_lies_under_it(metric):
    scores, labels, mask = draw()
    each = metric(scores, labels, mask=mask, reduction="none")
    looped = [metric(s[m], y[m]) for s, y, m in zip(scores, labels, mask, strict=True)]
    torch.testing.assert_close(each, torch.stack(looped))
    dirty = torch.where(mask, scores, torch.nan), torch.where(mask, labels, -1.0)
    torch.testing.assert_close(metric(*dirty, mask=mask, reduction="none"), each)


@every
def test_batch_shapes_and_reductions(metric):
    scores, labels, _ = draw(6, 5)
    each = metric(scores, labels, reduction="none")
    shaped = metric(scores.view(2, 3, 5), labels.view(2, 3, 5), reduction="none")
    torch.testing.assert_close(shaped, each.view(2, 3))
    torch.testing.assert_close(metric(scores, labels), mean_of(metric, each))
    torch.testing.assert_close(metric(scores, labels, reduction="sum"), each.sum())
    assert metric(scores[0], labels[0]).shape == ()


@each("metric", {name: METRICS[name] for name in METRICS if name not in OPEN})
def test_infinite_and_extreme_scores_are_ranked(metric):
    labels = torch.tensor([3.0, 2.0, 1.0, 0.0])
    for scores in [[torch.inf, 1e30, -1e30, -torch.inf], [3e-45, 0.0, -3e-45, -1e-38]]:
        assert metric(torch.tensor(scores), labels).item() == pytest.approx(1)


@every
def test_half_precision_is_computed_in_float32(metric):
    scores, labels, _ = draw(4, 6)
    value = metric(scores.half(), labels.half())
    assert value.dtype == torch.float32
    torch.testing.assert_close(value, metric(scores.half().float(), labels.float()))
    scores, labels, _ = draw()
    scores = scores.float()
    with torch.autocast("cpu", torch.bfloat16):
        value = metric(scores, labels)
    torch.testing.assert_close(value, metric(scores, labels))


@every
@pytest.mark.parametrize("n", [0, 1])
def test_very_short_lists(metric, n):
    value = metric(torch.zeros(2, n), torch.ones(2, n))
    expected = torch.nan if n == 0 else 0.0 if metric.__name__ in CORRELATIONS else 1.0
    if n == 1 and metric.__name__ in ("err", "rbp", "rbp_residual"):
        expected = {"err": 0.5, "rbp": 1 - 0.8, "rbp_residual": 0.8}[metric.__name__]
    assert value.item() == pytest.approx(expected, nan_ok=True)


@every
def test_all_masked_lists_are_left_out(metric):
    scores, labels, mask = draw(4, 6)
    mask[1] = False
    torch.testing.assert_close(
        metric(scores, labels, mask=mask),
        metric(scores[[0, 2, 3]], labels[[0, 2, 3]], mask=mask[[0, 2, 3]]),
    )
    assert metric(scores[[1]], labels[[1]], mask=mask[[1]]).isnan()


@each("metric", {name: METRICS[name] for name in METRICS if name not in OPEN})
def test_lists_without_a_value(metric):
    if "empty" not in signature(metric).parameters:
        return  # each list has a value
    if metric in (F.gmap, F.judged):
        return  # test_peers.py has them
    scores = torch.tensor([[2.0, 1.0], [2.0, 1.0]])
    labels = torch.tensor([[1.0, 0.0], [0.0, 0.0]])
    assert metric(scores, labels).item() == 0.5
    assert metric(scores, labels, empty=1).item() == 1
    assert metric(scores, labels, empty="skip").item() == 1
    each = metric(scores, labels, empty="skip", reduction="none")
    assert each[1].isnan()
    with pytest.raises(ValueError, match="empty is 'error' and 1 list has no value"):
        metric(scores, labels, empty="error")
    with pytest.raises(ValueError, match=r"empty.*'none'"):
        metric(scores, labels, empty="none")


@every
def test_bad_values(metric):
    scores, labels, mask = draw(2, 3)
    bad = scores.clone()
    bad[0, 1] = torch.nan
    mask[0, 1] = True
    with pytest.raises(ValueError, match=r"scores.*1 NaN"):
        metric(bad, labels, mask=mask)
    for value in [-1.0, torch.nan, torch.inf]:
        broken = labels.clone()
        broken[0, 0] = value
        with pytest.raises(ValueError, match=f"labels.*{value:g}"):
            metric(scores, broken)
    with pytest.raises(ValueError, match="labels must"):
        metric(scores, labels[0])
    with pytest.raises(ValueError, match="mask must"):
        metric(scores, labels, mask=mask[0])
    with pytest.raises(ValueError, match=r"reduction.*'max'"):
        metric(scores, labels, reduction="max")


@every
@pytest.mark.parametrize("way", [{}, {"lengths": [2]}, {"qid": torch.zeros(2).long()}])
def test_lists_that_are_no_tensors(metric, way):
    for wrong in (None, [1.0, 0.0], np.ones(2)):
        kind = type(wrong).__name__
        with pytest.raises(ValueError, match=f"scores must be a tensor, got {kind}"):
            metric(wrong, torch.ones(2), **way)
        with pytest.raises(ValueError, match=f"labels must be a tensor, got {kind}"):
            metric(torch.zeros(2), wrong, **way)


@pytest.mark.parametrize("wrong", ["0", [0], True, float("nan")])
def test_bad_short_list_value(wrong):
    with pytest.raises(ValueError, match="short_list_value must be None or a finite number"):
        ndcg(torch.zeros(3), torch.ones(3), short_list_value=wrong)


@pytest.mark.parametrize("metric", CUT)
def test_bad_top_k(metric):
    with pytest.raises(ValueError, match=r"top_k.*2\.5"):
        metric(torch.zeros(3), torch.ones(3), top_k=2.5)


def test_bad_variant():
    with pytest.raises(ValueError, match=r"variant.*'c'"):
        kendall_tau(torch.zeros(3), torch.ones(3), variant="c")


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_rows_in_any_order_are_the_ragged_ones(data):
    lengths = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=5))
    items = sum(lengths)
    ids = torch.repeat_interleave(torch.arange(len(lengths)) * 7, torch.tensor(lengths))
    scores = torch.tensor(data.draw(st.permutations(range(items)))).double()
    labels = torch.tensor(data.draw(st.lists(st.integers(0, 3), min_size=items, max_size=items)))
    shuffle = torch.tensor(data.draw(st.permutations(range(items))))
    each = ndcg(scores[shuffle], labels[shuffle], qid=ids[shuffle], reduction="none")
    assert len(each) == len(lengths)
    for i, value in enumerate(each):
        torch.testing.assert_close(value, ndcg(scores[ids == 7 * i], labels[ids == 7 * i]))
    torch.testing.assert_close(each, ndcg(scores, labels, lengths=lengths, reduction="none"))


@every
def test_lists_by_qid_are_the_loop_over_lists(metric):
    generator = torch.Generator().manual_seed(2)
    lengths = torch.randint(1, 40, (50,), generator=generator)
    ids = torch.repeat_interleave(torch.randperm(50, generator=generator) - 20, lengths)
    ids = ids[torch.randperm(len(ids), generator=generator)]
    scores = torch.randn(len(ids), dtype=torch.float64, generator=generator)
    labels = torch.randint(0, 3, (len(ids),), generator=generator)
    each = metric(scores, labels, qid=ids, reduction="none")
    looped = torch.stack([metric(scores[ids == i], labels[ids == i]) for i in ids.unique()])
    torch.testing.assert_close(each, looped)
    torch.testing.assert_close(metric(scores, labels, qid=ids), mean_of(metric, looped))


def test_chunks_of_any_size(monkeypatch):
    generator = torch.Generator().manual_seed(2)
    monkeypatch.setattr(ragged, "ITEMS_PER_LENGTH", 100)
    for high, lists in ((4, 300), (200, 60)):  # many lists a length, and few
        lengths = torch.randint(1, high, (lists,), generator=generator)
        ids = torch.repeat_interleave(torch.arange(lists), lengths)
        scores = torch.randn(len(ids), generator=generator)
        labels = torch.randint(0, 3, (len(ids),), generator=generator)
        whole = mrr(scores, labels, qid=ids, reduction="none")
        for positions in (1, 7, 300, 1 << 20):
            monkeypatch.setattr(ragged, "CHUNK_POSITIONS", positions)
            assert mrr(scores, labels, qid=ids, reduction="none").equal(whole)
            cuts = ragged._cuts(lengths.sort().values)
            assert [a for a, _ in cuts] == [0, *(b for _, b in cuts[:-1])]
            assert cuts[-1][1] == lists


@pytest.mark.parametrize("change", ["none", "swap", "split", "last"])
def test_ids_in_order_or_nearly(change):
    generator = torch.Generator().manual_seed(4)
    ids = torch.repeat_interleave(torch.arange(400), torch.arange(400) % 9 + 1)
    if change == "swap":  # whole lists, late
        ids = torch.where(ids == 390, 399, torch.where(ids == 399, 390, ids))
    elif change == "split":  # one list in two parts of the data
        ids[-3:] = 300
    elif change == "last":
        ids[-1] = -1
    scores = torch.randn(len(ids), dtype=torch.float64, generator=generator)
    labels = torch.randint(0, 3, (len(ids),), generator=generator)
    each = ndcg(scores, labels, qid=ids, reduction="none")
    looped = torch.stack([ndcg(scores[ids == i], labels[ids == i]) for i in ids.unique()])
    torch.testing.assert_close(each, looped)


def test_columns_of_any_stride_and_with_further_axes():
    ids = torch.repeat_interleave(torch.arange(30), torch.arange(30) % 4 + 1)
    generator = torch.Generator().manual_seed(4)
    both = torch.rand(len(ids), 2, dtype=torch.float64, generator=generator)
    topics = torch.randint(0, 2, (3, len(ids)), generator=generator).T
    contiguous = both.T.flip(0).contiguous()
    assert ndcg(both[:, 1], both[:, 0], qid=ids) == ndcg(*contiguous, qid=ids)
    whole = F.alpha_ndcg(both[:, 0], topics, qid=ids)
    looped = [F.alpha_ndcg(both[ids == i, 0], topics[ids == i]) for i in range(30)]
    torch.testing.assert_close(whole, torch.stack(looped).mean())


INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.uint16, torch.int32, torch.uint32]
INTEGERS += [torch.int64, torch.uint64]


@pytest.mark.parametrize("dtype", INTEGERS)
def test_ids_of_any_integer_dtype_in_ascending_order(dtype):
    info = torch.iinfo(dtype)
    ids = [info.max, info.min, 7, info.max, 7, info.min, 5]
    scores, labels = -torch.arange(7.0), torch.tensor([0, 1, 0, 1, 1, 0, 1])
    found = mrr(scores, labels, qid=torch.tensor(ids, dtype=dtype), reduction="none")
    each = {i: [y for y, own in zip(labels.tolist(), ids, strict=True) if own == i] for i in ids}
    assert found.tolist() == [1 / (each[i].index(1) + 1) for i in sorted(each)]


@every
@pytest.mark.parametrize("way", ["lengths", "qid"])
def test_no_rows(metric, way):
    none = torch.zeros(0)
    found = metric(none, none, **{way: torch.zeros(0, dtype=torch.int64)}, reduction="none")
    assert found.shape == (0,)
    assert metric(none, none, **{way: torch.zeros(0, dtype=torch.int64)}).isnan()


@every
def test_mask_lengths_and_qid_exclude_each_other(metric):
    given = {
        "mask": torch.ones(2, dtype=torch.bool),
        "lengths": torch.tensor([1, 1]),
        "qid": torch.tensor([1, 2]),
    }
    for one, other in combinations(given, 2):
        some = {name: given[name] for name in (one, other)}
        with pytest.raises(ValueError, match=f"mask, lengths and qid .*{one} and {other}"):
            metric(torch.zeros(2), torch.zeros(2), **some)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"qid": torch.zeros(2)}, r"qid.*float32"),
        ({"qid": torch.zeros(3).long()}, r"qid.*\(3,\)"),
        ({"qid": [1, 2]}, r"qid.*got a list"),
        ({"labels": torch.zeros(3)}, r"labels.*\(3,\)"),
        ({"scores": torch.zeros(1, 2), "labels": torch.zeros(1, 2)}, r"scores.*\(1, 2\)"),
        ({"scores": torch.tensor([torch.nan, 1.0])}, r"scores.*1 NaN"),
    ],
)
def test_bad_rows(change, message):
    given = {"scores": torch.zeros(2), "labels": torch.zeros(2), "qid": torch.arange(2), **change}
    with pytest.raises(ValueError, match=message):
        mrr(**given)
