"""A collection ranks each batch once; alone, together, in torchmetrics' own it counts the same."""

import ast
import pickle
import re
from pathlib import Path

import pytest
import torch
from torchmetrics import MeanSquaredError, MetricCollection

import ltr
from ltr.metrics import (
    ERR,
    MAP,
    MRR,
    NDCG,
    RBO,
    AlphaNDCG,
    BPref,
    KendallTau,
    Precision,
    RankingMetrics,
    batches,
)
from ltr.metrics import functional as F


def batch() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(500, generator=generator)
    labels = torch.randint(0, 3, (500,), generator=generator)
    return scores, labels, torch.randint(0, 40, (500,), generator=generator)


def members() -> dict:
    return {
        "ndcg_10": NDCG(top_k=10),
        "map": MAP(),
        "precision_3": Precision(top_k=3),
        "tau": KendallTau(),
        "rbo": RBO(),
        "alpha": AlphaNDCG(),
        "bpref": BPref(),
    }


@pytest.fixture
def sorts(monkeypatch) -> list[int]:
    calls = []
    rank = batches.rank

    def counted(*args, **kwargs):
        calls.append(1)
        return rank(*args, **kwargs)

    monkeypatch.setattr(batches, "rank", counted)
    return calls


@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.filterwarnings("ignore:indexes")  # the same ids again mean other lists here
def test_each_batch_is_ranked_once(sorts, padded):
    scores, labels, ids = batch()
    given = (scores.view(20, 25), labels.view(20, 25), None) if padded else (scores, labels, ids)
    collection = RankingMetrics(members())
    MRR().update(*given)
    alone = len(sorts)  # one chunk or several
    for update in range(2, 4):
        collection.update(*given)
        assert len(sorts) == update * alone
    values = collection.compute()
    assert list(values) == list(members())
    for name, metric in members().items():
        metric.update(*given)
        torch.testing.assert_close(values[name], metric.compute(), rtol=0, atol=0)
        assert metric.lists * 2 == collection[name].lists


def test_forward_gives_the_batch_and_counts_it(sorts):
    scores, labels, _ = (x.view(20, 25) for x in batch())
    collection = RankingMetrics(members(), prefix="val_")
    first = collection(scores[:8], labels[:8])
    assert len(sorts) == 1
    collection(scores[8:], labels[8:])
    whole = collection.compute()
    for name, metric in members().items():
        torch.testing.assert_close(first[f"val_{name}"], metric(scores[:8], labels[:8]))
        metric.update(scores[8:], labels[8:])
        torch.testing.assert_close(whole[f"val_{name}"], metric.compute())


def test_reset_clone_pickle_and_state():
    scores, labels, _ = (x.view(20, 25) for x in batch())
    collection = RankingMetrics(members())
    collection.update(scores, labels)
    values = collection.compute()
    copies = [collection.clone(), pickle.loads(pickle.dumps(collection))]
    collection.persistent(True)
    other = RankingMetrics(members())
    other.persistent(True)
    other.load_state_dict(collection.state_dict())
    assert len(collection.state_dict()) == len(members())
    collection.reset()
    assert all(metric.lists == 0 for metric in collection.metrics.values())
    for copy in (*copies, other):
        copy.update(scores[:0], labels[:0])  # no list: a compute after an update warns of nothing
        for name, value in copy.compute().items():
            torch.testing.assert_close(value, values[name])
    assert collection.to("meta")["map"].sums.device.type == "meta"


def test_values_of_labels_with_gradients_are_kept_without_them():
    scores, labels, _ = (x.view(20, 25) for x in batch())
    collection = RankingMetrics({"ndcg": NDCG(keep_values=True)})
    collection.update(scores, labels.double().requires_grad_())
    assert collection.clone().compute() == collection.compute()


def test_an_error_leaves_nothing_in_any_member():
    scores, labels, ids = batch()
    collection = RankingMetrics({"mrr": MRR(), "strict": MAP(empty="error")})
    with pytest.raises(ValueError, match="empty is 'error' and 40 lists have no value"):
        collection.update(scores, labels * 0, ids)
    scores[3] = torch.nan
    with pytest.raises(ValueError, match=r"scores.*1 NaN"):
        collection.update(scores, labels, ids)
    assert all(metric.lists == 0 for metric in collection.metrics.values())


def test_weights_topics_and_judgements():
    scores, labels, ids = batch()
    weights = torch.rand(500, generator=torch.Generator().manual_seed(1))
    collection = RankingMetrics({"ndcg": NDCG(), "precision": Precision()})
    collection.update(scores, labels, ids, weights=weights)
    expected = F.ndcg(scores, labels, qid=ids, weights=weights)
    torch.testing.assert_close(collection.compute()["ndcg"], expected)
    collection = RankingMetrics({"ndcg": NDCG(), "mrr": MRR()})
    with pytest.raises(ValueError, match="weights must"):
        collection.update(scores, labels, ids, weights=weights)
    topics = torch.stack([labels > 0, labels > 1], -1)
    of_topics = RankingMetrics({"alpha": AlphaNDCG(), "none": AlphaNDCG(alpha=0.0)})
    of_topics.update(scores, topics, ids)
    expected = F.alpha_ndcg(scores, topics, qid=ids)
    torch.testing.assert_close(of_topics.compute()["alpha"], expected)
    with pytest.raises(ValueError, match="labels must"):
        RankingMetrics({"alpha": AlphaNDCG(), "ndcg": NDCG()}).update(scores, topics, ids)
    judged = weights < 0.5
    bpref = BPref()
    bpref.update(scores[:25], labels[:25], judged=judged[:25])
    torch.testing.assert_close(
        bpref.compute(), F.bpref(scores[:25], labels[:25], judged=judged[:25])
    )
    with pytest.raises(ValueError, match=r"judged.*torch\.float32"):
        bpref.update(scores, labels, judged=weights)


def test_other_metrics_are_refused():
    with pytest.raises(ValueError, match=r"must be ranking metrics, got MeanSq.* for 'mse'"):
        RankingMetrics({"mse": MeanSquaredError()})
    with pytest.raises(ValueError, match="metrics must"):
        RankingMetrics([MAP()])
    with pytest.raises(
        ValueError, match="must not have the name of an attribute of modules, got 'half'"
    ):
        RankingMetrics({"half": MAP()})
    for name in ("map.5", "", 5):
        with pytest.raises(ValueError, match=f"names without a dot, got {name!r}"):
            RankingMetrics({name: MAP()})


def square(labels):
    return labels**2


def cube(labels):
    return labels**3


@pytest.mark.parametrize(
    ("first", "second", "merged"),
    [
        (lambda: NDCG(top_k=5), lambda: NDCG(top_k=10), False),
        (lambda: NDCG(top_k=5), lambda: NDCG(top_k=5), True),
        (lambda: NDCG(), MAP, False),
        (lambda: NDCG(gain=square), lambda: NDCG(gain=cube), False),
        (lambda: NDCG(gain=square), lambda: NDCG(gain=square), True),
        (lambda: NDCG(gain=lambda y: y), lambda: NDCG(gain=lambda y: y * y), False),
        (lambda: MRR(empty=0), lambda: MRR(empty="skip"), False),
        (lambda: MRR(keep_values=True), lambda: MRR(), False),
        (lambda: ERR(max_label=4), lambda: ERR(max_label=5), False),
    ],
)
def test_torchmetrics_merges_equal_metrics_alone(first, second, merged):
    # after a first batch on which both have the same sums
    collection = MetricCollection({"a": first(), "b": second()})
    perfect = torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[1.0, 0.0, 0.0]])
    later = torch.tensor([[1.0, 2.0, 3.0, 0.0]]), torch.tensor([[0.0, 3.0, 1.0, 0.0]])
    collection.update(*perfect)
    assert len(collection.compute_groups) == (1 if merged else 2)
    collection.update(*later)
    for name, make in (("a", first), ("b", second)):
        metric = make()
        metric.update(*perfect)
        metric.update(*later)
        torch.testing.assert_close(collection.compute()[name], metric.compute())


def test_states_are_named_by_the_arguments_alone():
    assert list(NDCG(3).metric_state) == list(NDCG(top_k=3).metric_state)
    assert NDCG(3).metric_state.keys() != NDCG(4).metric_state.keys()
    assert list(NDCG(gain=square).clone().metric_state) == list(NDCG(gain=square).metric_state)


def imports_of(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def test_metrics_stand_on_gains_and_not_on_losses():
    root = Path(ltr.__file__).parent
    reached, todo = set(), sorted((root / "metrics").glob("*.py"))
    while todo:
        path = todo.pop()
        for name in imports_of(path):
            file = root.parent / Path(*name.split(".")).with_suffix(".py")
            package = root.parent / Path(*name.split("."), "__init__.py")
            for found in (file, package):
                if name.startswith("ltr.") and found.exists() and name not in reached:
                    reached.add(name)
                    todo.append(found)
    assert {"ltr.gains", "ltr.kernels.sorting"} < reached
    higher = {"losses", "reports", "datasets", "models", "modules", "cli"}
    assert not {name.split(".")[1] for name in reached} & higher


def test_no_metric_has_hidden_state():
    for path in (Path(ltr.__file__).parent / "metrics").glob("*.py"):
        assert not re.search(r"threading|weakref|randbits|\b_sync_dist\b", path.read_text()), path
