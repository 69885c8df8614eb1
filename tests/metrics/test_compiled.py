"""The functional metrics in `torch.compile`: one graph without breaks, and the values of eager."""

from functools import partial
from inspect import signature
from itertools import product

import pytest
import torch
from metric_table import WEIGHTED

from ltr.metrics import NDCG
from ltr.metrics import functional as F

FUNCTIONS = {name: getattr(F, name) for name in F.__all__}
ITEMS = 13


def draw(metric, shape, seed):
    """Scores with ties, labels, and the further columns that the metric has."""
    generator = torch.Generator().manual_seed(seed)
    given = {
        "scores": torch.randn(shape, generator=generator).round(decimals=1),
        "labels": torch.randint(-1, 4, shape, generator=generator).clamp(min=0),
        "weights": torch.rand(shape, generator=generator),
        "judged": torch.rand(shape, generator=generator) < 0.7,
    }
    known = {"scores", "labels"} | ({"weights"} if metric in WEIGHTED else set())
    known |= {"judged"} & {*signature(metric).parameters}
    return {name: x for name, x in given.items() if name in known}


def ids_to_try():
    """Ids of a few lists, other ones, a list for each item, and one list of all."""
    generator = torch.Generator().manual_seed(5)
    few = [torch.randint(-2, 3, (ITEMS,), generator=generator) for _ in range(2)]
    return [*few, torch.arange(ITEMS).flip(0), torch.zeros(ITEMS, dtype=torch.int64)]


def compiled(metric, **options):
    torch.compiler.reset()
    return torch.compile(partial(metric, **options), backend="eager", fullgraph=True)


def check(metric, several, **options):
    """Compile once, and compare each call with the eager one; (N,) values end with NaN.

    Returns the compiled metric, for more calls of the same shapes.
    """
    graph = compiled(metric, **options)
    for number, columns in enumerate(several):
        with torch.compiler.set_stance("fail_on_recompile" if number else "default"):
            found = graph(**columns)
        expected = metric(**columns, **options)
        if "qid" in columns and options.get("reduction") == "none":
            assert found.shape == (ITEMS,)
            assert found[len(expected) :].isnan().all()
            found = found[: len(expected)]
        torch.testing.assert_close(found, expected, equal_nan=True)
    return graph


# the others, or what shares their code, are compiled with ids in the tests below
PADDED = {"average_precision", "bpref", "elementwise_accuracy", "hit_rate", "opa"}
PADDED |= {"arp", "r_precision", "rbo", "rbp"}


@pytest.mark.parametrize(
    "metric",
    [  # a trace takes a quarter of a second
        pytest.param(metric, marks=[] if name in PADDED else [pytest.mark.slow], id=name)
        for name, metric in FUNCTIONS.items()
    ],
)
def test_padded_lists_with_any_mask_and_with_wrong_values(metric):
    several = []
    for seed in range(2):
        mask = torch.rand(4, 6, generator=torch.Generator().manual_seed(seed)) < 0.6
        mask[1] = seed == 0  # all of them, or none
        columns = draw(metric, (4, 6), seed)
        columns["scores"] = columns["scores"].masked_fill(~mask, torch.nan)
        several.append({**columns, "mask": mask})
    graph = check(metric, several, reduction="none")
    columns = draw(metric, (4, 6), 9)
    columns["mask"] = torch.ones(4, 6, dtype=torch.bool)
    columns["labels"] = torch.tensor([[2, 1, 0, 3, 0, 1]] * 4)
    with torch.compiler.set_stance("fail_on_recompile"):
        assert not graph(**columns).isnan().any()
        for name, value in {"scores": torch.nan, "labels": -1, "weights": torch.inf}.items():
            if name in columns:
                changed = columns[name].clone()
                changed[1, 2] = value
                found = graph(**{**columns, name: changed})
                assert found.isnan().tolist() == [False, True, False, False], name


# the others are compiled with ids in `test_options`, `test_topics` and `test_every_reduction`, or
# share the code of one that is compiled
BY_QID = {"exact_match", "precision"}


@pytest.mark.parametrize(
    "metric",
    [  # the others compile what other tests compile too, up to two seconds each
        pytest.param(metric, marks=[] if name in BY_QID else [pytest.mark.slow], id=name)
        for name, metric in FUNCTIONS.items()
    ],
)
def test_rows_by_qid_with_any_ids(metric):
    columns = draw(metric, (ITEMS,), 2)
    check(metric, [{**columns, "qid": ids} for ids in ids_to_try()], reduction="none")


# each kind and each reduction; "mean" of masks and ids, and "none" of masks, are compiled above and
# below for other metrics
REDUCTIONS = {("mask", "sum"), ("lengths", "none"), ("qid", "sum")}


@pytest.mark.parametrize(
    ("kind", "reduction"),
    [  # the other pairs compile the same code again, half a second each
        pytest.param(*pair, marks=[] if pair in REDUCTIONS else [pytest.mark.slow])
        for pair in product(["mask", "lengths", "qid"], ["mean", "sum", "none"])
    ],
)
def test_every_reduction(kind, reduction):
    if kind == "mask":
        several = [{"mask": torch.arange(ITEMS) < n} for n in (13, 4, 0)]
    elif kind == "lengths":
        several = [{"lengths": torch.tensor(x)} for x in ([0, 13, 0], [1, 10, 2])]
    else:
        several = [{"qid": ids} for ids in ids_to_try()]
    columns = draw(F.spearman, (ITEMS,), 3)
    several = [{**columns, **x} for x in several]
    check(F.spearman, several, reduction=reduction, empty="skip")


OPTIONS = [
    (F.ndcg, {"ties": "expected", "top_k": 2, "short_list_value": 0.25}),
    (F.dcg, {"ties": "worst", "gain": lambda y: y.square(), "discount": "letor4"}),
    (F.kendall_tau, {"variant": "weighted"}),
    (F.average_precision, {"ties": "expected", "top_k": 3}),
    (F.bpref, {"ties": "worst", "top_k": 3}),
    (F.err, {"ties": "worst", "max_label": 3}),
    (F.opa, {"ties": "expected"}),
    (F.rbo, {"top_k": 4}),
    (F.rbp, {"gain": "exp2", "max_label": 3, "ties": "worst"}),
]


@pytest.mark.parametrize(
    ("metric", "options"),
    [  # the others trace the same kinds of code again, up to two seconds each
        pytest.param(
            *case, marks=[] if number in (0, 2) else [pytest.mark.slow], id=case[0].__name__
        )
        for number, case in enumerate(OPTIONS)
    ],
)
def test_options(metric, options):
    columns = draw(metric, (ITEMS,), 4)
    check(metric, [{**columns, "qid": ids} for ids in ids_to_try()], **options)


def test_topics():
    columns = draw(F.alpha_ndcg, (ITEMS,), 6)
    columns["labels"] = torch.rand(ITEMS, 3, generator=torch.Generator().manual_seed(7)).round()
    several = [{**columns, "qid": ids} for ids in ids_to_try()]
    check(F.alpha_ndcg, several, reduction="none")


@pytest.mark.slow  # traces Kendall's tau with both of its counts
def test_long_lists():  # Kendall's tau counts their pairs in another way
    scores, labels = draw(F.kendall_tau, (90,), 8).values()
    graph = compiled(F.kendall_tau)
    for ids in (torch.arange(90) % 2, torch.arange(90) // 10):
        torch.testing.assert_close(
            graph(scores, labels, qid=ids), F.kendall_tau(scores, labels, qid=ids)
        )


WRONG = [
    (F.dcg, {}, [200.0, 1.0]),  # 2^label overflows
    (F.dcg, {"gain": lambda y: 1 - y}, [2.0, 1.0]),
    (F.err, {"max_label": 1}, [2.0, 1.0]),
    (F.rbp, {"gain": "linear", "max_label": 1}, [2.0, 1.0]),
    (F.mrr, {"empty": "error"}, [0.0, 0.0]),
    (F.precision, {"top_k": 1}, [torch.nan, 1.0]),
    (F.alpha_ndcg, {}, [[2.0, -1.0], [1.0, 0.0]]),  # their sum is no wrong label
]


@pytest.mark.parametrize(
    ("metric", "options", "labels"),
    [  # each is traced two or three times; the others have their checks from the same function
        pytest.param(*case, marks=[] if case[0] in (F.err, F.mrr) else [pytest.mark.slow])
        for case in WRONG
    ],
)
def test_what_eager_code_refuses_makes_the_mean_and_the_sum_nan(metric, options, labels):
    labels = torch.tensor(labels)
    labels = torch.stack([labels, torch.ones_like(labels)])
    scores = torch.tensor([[2.0, 1.0], [2.0, 1.0]])
    with pytest.raises(ValueError, match=r"labels|gain|empty"):
        metric(scores, labels, **options)
    for reduction in ("mean", "sum") if metric is F.mrr else ("mean",):
        assert compiled(metric, reduction=reduction, **options)(scores, labels).isnan()
    graph = compiled(metric, reduction="none", **options)
    rows = scores.flatten(), labels.flatten(0, 1)
    assert graph(*rows, qid=torch.tensor([7, 7, 3, 3])).isnan().tolist() == [
        False,
        True,
        True,  # only two lists
        True,
    ]


def test_no_rows():
    none = torch.zeros(0)
    assert compiled(F.ndcg)(none, none, qid=none.long()).isnan()


def test_a_class_in_compiled_code_counts_its_lists():
    torch.compiler.reset()
    metric, expected = NDCG(deduplicate=False), NDCG(deduplicate=False)
    update = torch.compile(metric.update, backend="eager")
    scores, labels = draw(F.mrr, (ITEMS,), 10).values()
    for ids in ids_to_try():
        update(scores, labels, ids)
        expected.update(scores, labels, ids)
    assert metric.lists == expected.lists
    torch.testing.assert_close(metric.compute(), expected.compute())
    with pytest.raises(ValueError, match=r"labels.*-1"):
        update(scores, labels - 1)
