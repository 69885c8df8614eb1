"""The metrics against scikit-learn, scipy, trec_eval and plain loops."""

from itertools import combinations, product

import numpy as np
import pytest
import pytrec_eval
import torch
from scipy.stats import kendalltau, spearmanr, weightedtau
from sklearn.metrics import dcg_score, label_ranking_average_precision_score, top_k_accuracy_score

from ltr.metrics import functional as F
from ltr.metrics.pairs import dense_ranks, rising_pairs


def draw(lists: int = 30, n: int = 12, levels: int = 5, seed: int = 0) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(lists, n, dtype=torch.float64, generator=generator)
    labels = torch.randint(0, levels, (lists, n), generator=generator) - levels // 2
    mask = torch.rand(lists, n, generator=generator) < 0.7
    mask[:, 0] = True
    return scores, labels.clamp(min=0).double(), mask


@pytest.mark.parametrize("top_k", [None, 1, 4, 30])
def test_dcg_is_scikit_learns(top_k):
    scores, labels, _ = draw()
    expected = dcg_score(labels.numpy(), scores.numpy(), k=top_k)
    assert F.dcg(scores, labels, top_k=top_k, gain="linear").item() == pytest.approx(expected)


def test_dcg_with_ties_is_scikit_learns():
    scores, labels, _ = draw()
    scores = scores.round()
    for top_k in (None, 3):
        expected = dcg_score(labels.numpy(), scores.numpy(), k=top_k)
        found = F.dcg(scores, labels, top_k=top_k, gain="linear", ties="expected")
        assert found.item() == pytest.approx(expected, abs=1e-12)


def test_average_precision_is_scikit_learns_for_labels():
    scores, labels, _ = draw()
    labels[:, 0] = 1
    expected = label_ranking_average_precision_score((labels > 0).numpy(), scores.numpy())
    assert F.average_precision(scores, labels).item() == pytest.approx(expected)


@pytest.mark.parametrize("top_k", [1, 3])
def test_top_k_accuracy_is_scikit_learns(top_k):
    scores, _, _ = draw()
    classes = torch.arange(30) % 12
    expected = top_k_accuracy_score(classes.numpy(), scores.numpy(), k=top_k)
    labels = torch.nn.functional.one_hot(classes, 12)
    assert F.top_k_accuracy(scores, labels, top_k=top_k).item() == pytest.approx(expected)
    assert F.hit_rate(scores, labels, top_k=top_k).item() == pytest.approx(expected)


def trec(measure: str, scores: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor) -> list:
    run, qrels = {}, {}
    for i, (s, y, m) in enumerate(
        zip(scores.tolist(), labels.tolist(), mask.tolist(), strict=True)
    ):
        real = [j for j in range(len(s)) if m[j]]
        run[str(i)] = {str(j): s[j] for j in real}
        qrels[str(i)] = {str(j): int(y[j]) for j in real}
    results = pytrec_eval.RelevanceEvaluator(qrels, {measure}).evaluate(run)
    return [results[str(i)][measure.replace(".", "_")] for i in range(len(scores))]


def test_values_are_trec_evals():
    scores, labels, mask = draw()
    labels[0] = 0
    lists = {"scores": scores, "labels": labels, "mask": mask}
    for values, measure in [
        (F.precision(**lists, top_k=5, reduction="none"), "P.5"),
        (F.precision(**lists, top_k=20, reduction="none"), "P.20"),
        (F.recall(**lists, top_k=5, reduction="none"), "recall.5"),
        (F.hit_rate(**lists, top_k=1, reduction="none"), "success.1"),
        (F.r_precision(**lists, reduction="none"), "Rprec"),
        (F.bpref(**lists, reduction="none"), "bpref"),
        (F.bpref(**lists, top_k=12, reduction="none"), "bpref"),
    ]:
        np.testing.assert_allclose(values, trec(measure, scores, labels, mask), atol=1e-12)


@pytest.mark.parametrize("n", [12, 40])
@pytest.mark.parametrize("decimals", [None, 0])
def test_correlations_are_scipys(n, decimals):
    scores, labels, mask = draw(n=n)
    if decimals is not None:
        scores = scores.round()
    mask[1] = False
    mask[1, 3] = True
    for function, values in [
        (kendalltau, F.kendall_tau(scores, labels, mask=mask, empty="skip", reduction="none")),
        (spearmanr, F.spearman(scores, labels, mask=mask, empty="skip", reduction="none")),
        (
            weightedtau,
            F.kendall_tau(
                scores, labels, mask=mask, variant="weighted", empty="skip", reduction="none"
            ),
        ),
    ]:
        for s, y, m, value in zip(scores, labels, mask, values, strict=True):
            if m.sum() < 2 or len(s[m].unique()) < 2 or len(y[m].unique()) < 2:
                assert value.isnan()
                continue
            expected = function(s[m].numpy(), y[m].numpy()).statistic
            np.testing.assert_allclose(value, expected, atol=1e-12)


def test_a_long_list_is_scipys():
    generator = torch.Generator().manual_seed(1)
    scores = torch.randn(3000, dtype=torch.float64, generator=generator).mul(100).round()
    labels = (scores + 200 * torch.randn(3000, generator=generator)).clamp(min=0).round()
    for variant, function in (("b", kendalltau), ("weighted", weightedtau)):
        expected = function(scores.numpy(), labels.numpy()).statistic
        value = F.kendall_tau(scores, labels, variant=variant).item()
        assert value == pytest.approx(expected, abs=1e-12)
    ordered = (scores.unsqueeze(-1) > scores) & (labels.unsqueeze(-1) > labels)
    pairs = labels.unsqueeze(-1) > labels
    tied = (scores.unsqueeze(-1) == scores) & pairs
    expected = (ordered.sum() + tied.sum() / 2).double() / pairs.sum()
    assert F.opa(scores, labels, ties="expected").item() == pytest.approx(expected.item(), abs=1e-7)


@pytest.mark.parametrize("n", [1, 2, 7, 32, 33, 64, 100])
def test_pairs_are_those_of_the_definition(n):
    generator = torch.Generator().manual_seed(n)
    values = torch.randint(0, n, (3, n), generator=generator)
    early, late = torch.rand(2, 3, n, dtype=torch.float64, generator=generator)
    ascending = (values.unsqueeze(-1) < values.unsqueeze(-2)).double().triu(1)
    ranks = dense_ranks(values)
    for first, weights in (
        (None, late.unsqueeze(-2)),
        (early, early.unsqueeze(-1) + late[:, None]),
    ):
        expected = (ascending * weights).sum((-1, -2))
        torch.testing.assert_close(rising_pairs(ranks, first, late), expected)


def test_opa_by_the_pairs():
    scores, labels, mask = draw(n=40)
    weights = torch.rand(scores.shape, generator=torch.Generator().manual_seed(1)).double()
    each = F.opa(scores, labels, mask=mask, weights=weights, reduction="none")
    for s, y, m, w, value in zip(scores, labels, mask, weights, each, strict=True):
        s, y, w = s[m], y[m], w[m]
        right = total = 0.0
        for i, j in combinations(range(len(s)), 2):
            high, low = (i, j) if y[i] > y[j] else (j, i)
            if y[i] != y[j]:
                total += w[high].item()
                right += w[high].item() * (s[high] > s[low]).item()
        assert value.item() == pytest.approx(right / total)


def test_err_and_rbp_and_arp_by_the_formula():
    scores, labels = torch.tensor([4.0, 3.0, 2.0]), torch.tensor([1.0, 0.0, 2.0])
    r = [1 / 4, 0, 3 / 4]
    assert F.err(scores, labels).item() == pytest.approx(r[0] + r[2] / 3 * (1 - r[0]))
    assert F.err(scores, labels, max_label=4).item() == pytest.approx(
        1 / 16 + 3 / 16 / 3 * (1 - 1 / 16)
    )
    assert F.err(scores, labels, top_k=2).item() == pytest.approx(r[0])
    assert F.rbp(scores, labels, p=0.9).item() == pytest.approx(0.1 * (1 + 0.81))
    assert F.arp(scores, labels).item() == pytest.approx((1 * 1 + 2 * 3) / 3)
    with pytest.raises(ValueError, match=r"labels.*2"):
        F.err(scores, labels, max_label=1)


def test_alpha_ndcg_by_the_formula():
    topics = torch.tensor([[1, 1, 0], [1, 0, 0], [0, 0, 1], [0, 1, 0]])
    scores = torch.tensor([1.0, 4.0, 3.0, 2.0])  # order 1, 2, 3, 0
    discount = 1 / torch.log2(torch.arange(4) + 2.0)
    gains = torch.tensor([1, 1, 1, 0.5 + 0.5])
    ideal = torch.tensor([2, 1, 0.5, 0.5])  # 0, 2, then 1 and 3
    expected = (gains * discount).sum() / (ideal * discount).sum()
    torch.testing.assert_close(F.alpha_ndcg(scores, topics), expected)
    cut = (gains * discount)[:2].sum() / (ideal * discount)[:2].sum()
    torch.testing.assert_close(F.alpha_ndcg(scores, topics, top_k=2), cut)
    with pytest.raises(ValueError, match="an axis of topics, got"):
        F.alpha_ndcg(scores, topics[:3])


def test_rank_biased_overlap_by_the_formula():
    scores, labels = torch.tensor([4.0, 3.0, 2.0, 1.0]), torch.tensor([1.0, 4.0, 2.0, 3.0])
    # orders 0 1 2 3 and 1 3 2 0
    share, p = [0, 1 / 2, 2 / 3, 1], 0.9
    total = (1 - p) / p * sum(a * p ** (d + 1) for d, a in enumerate(share)) + p**4
    assert F.rbo(scores, labels).item() == pytest.approx(total)
    total = (1 - p) / p * sum(a * p ** (d + 1) for d, a in enumerate(share[:2])) + p**2 / 2
    assert F.rbo(scores, labels, top_k=2).item() == pytest.approx(total)
    for bad in (0, 1, "x"):
        with pytest.raises(ValueError, match=r"p must"):
            F.rbo(scores, labels, p=bad)


def test_precision_divides_by_k_however_short_the_list():
    scores, labels = torch.tensor([2.0, 1.0]), torch.tensor([1.0, 1.0])
    assert F.precision(scores, labels, top_k=10).item() == pytest.approx(0.2)
    assert F.precision(scores, labels).item() == 1
    assert F.recall(scores, labels, top_k=10).item() == 1
    assert F.average_precision(scores, labels, top_k=10).item() == 1


@pytest.mark.parametrize("top_k", [None, 1, 5, 20])
def test_f1_is_the_mean_of_precision_and_recall(top_k):
    scores, labels, mask = draw()
    labels[0] = 0
    each = F.f1(scores, labels, mask=mask, top_k=top_k, reduction="none")
    for s, y, m, value in zip(scores, labels, mask, each, strict=True):
        order = s[m].argsort(descending=True)
        k = len(order) if top_k is None else top_k
        hits, relevant = (y[m][order] > 0)[:k].sum().item(), (y[m] > 0).sum().item()
        p, r = hits / k, hits / max(relevant, 1)  # as ranx has it
        assert value.item() == pytest.approx(2 * p * r / (p + r) if hits else 0.0)


@pytest.mark.parametrize("top_k", [None, 3])
def test_graded_rank_biased_precision_by_the_sum(top_k):
    scores, labels, mask = draw()
    gains = {
        "binary": lambda y, top: float(y > 0),
        "linear": lambda y, top: y / top,
        "exp2": lambda y, top: (2**y - 1) / 2**top,
    }
    for (gain, function), top in product(gains.items(), (4, None)):
        options = {"gain": gain, "max_label": top, "top_k": top_k, "p": 0.7}
        each = F.rbp(scores, labels, mask=mask, reduction="none", **options)
        for s, y, m, value in zip(scores, labels, mask, each, strict=True):
            ranked = y[m][s[m].argsort(descending=True)].tolist()
            most = top or max(ranked)
            total = sum(
                0.3 * 0.7**i * function(label, most)
                for i, label in enumerate(ranked[:top_k])
                if label
            )
            assert value.item() == pytest.approx(total)
    perfect = F.rbp(torch.arange(60.0), torch.full((60,), 3.0), gain="linear", max_label=3)
    assert perfect.item() == pytest.approx(1, abs=1e-5)
    with pytest.raises(ValueError, match=r"gain.*'cube'"):
        F.rbp(scores, labels, gain="cube")
    with pytest.raises(ValueError, match=r"labels.*2"):
        F.rbp(scores, labels, gain="linear", max_label=1)


@pytest.mark.parametrize("top_k", [1, 5, 20])
def test_average_precision_over_all_relevant_items_is_trec_evals(top_k):
    scores, labels, mask = draw()
    labels[0] = 0
    options = {"top_k": top_k, "divisor": "relevant", "reduction": "none"}
    each = F.average_precision(scores, labels, mask=mask, **options)
    np.testing.assert_allclose(each, trec(f"map_cut.{top_k}", scores, labels, mask), atol=1e-12)
    for s, y, m, value in zip(scores, labels, mask, each, strict=True):
        hits = (y[m][s[m].argsort(descending=True)] > 0).tolist()
        found = [sum(hits[: i + 1]) / (i + 1) for i in range(min(top_k, len(hits))) if hits[i]]
        assert value.item() == pytest.approx(sum(found) / max(sum(hits), 1))
    with pytest.raises(ValueError, match=r"divisor.*'k'"):
        F.average_precision(scores, labels, divisor="k")


def test_bad_options():
    scores, labels = torch.zeros(2), torch.ones(2)
    with pytest.raises(ValueError, match=r"weights.*-1"):
        F.recall(scores, labels, weights=-labels)
    with pytest.raises(ValueError, match="judged must"):
        F.bpref(scores, labels, judged=labels)
    with pytest.raises(ValueError, match=r"alpha.*2"):
        F.alpha_ndcg(scores, labels, alpha=2)
    with pytest.raises(ValueError, match=r"ties.*'worst'"):
        F.rbo(scores, labels, ties="worst")
