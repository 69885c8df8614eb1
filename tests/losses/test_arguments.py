"""The arguments of every loss: padded, ragged and nested lists, and labels that mark padding."""

import inspect

import numpy as np
import pytest
import torch
from loss_table import LOSSES
from pairwise import each

from ltr.losses import (
    XENDCG,
    Penalized,
    PointwiseMSE,
    PointwiseOrdinal,
    PointwiseSigmoid,
    PositionBias,
    QuantileLoss,
    RankingLoss,
    SoftNDCG,
    TopKCrossEntropy,
    TopKLoss,
    Unbiased,
)
from ltr.operators import soft_rank

every = each("make", LOSSES)
LENGTHS = torch.tensor([3, 0, 5, 1, 4])


def draw(*shape: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(5)
    scores = torch.randn(shape, generator=generator, dtype=torch.float64)
    return scores, torch.randint(0, 4, shape, generator=generator).double()


def ragged() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return *draw(13), torch.rand(13, generator=torch.Generator().manual_seed(6)).double()


def nest(x: torch.Tensor, lengths: list[int] | None = None) -> torch.Tensor:
    lists = x.split(LENGTHS.tolist() if lengths is None else lengths)
    return torch.nested.nested_tensor(list(lists), layout=torch.jagged)


@every
def test_nested_lists_are_ragged_lists(make):
    scores, labels, weights = ragged()
    nested, flat = nest(scores).requires_grad_(), scores.clone().requires_grad_()
    found = make(reduction="none")(nested, nest(labels), weights=nest(weights))
    expected = make(reduction="none")(flat, labels, weights=weights, lengths=LENGTHS)
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
    found.sum().backward()
    expected.sum().backward()
    torch.testing.assert_close(nested.grad.values(), flat.grad, rtol=0, atol=0)
    torch.testing.assert_close(make()(nested, nest(labels)), make()(flat, labels, lengths=LENGTHS))


def test_nested_lists_through_a_model_and_through_narrow():
    scores, labels, _ = ragged()
    features = torch.nested.nested_tensor([torch.ones(n, 2) for n in (2, 3)], layout=torch.jagged)
    model = torch.nn.Linear(2, 1)
    grades = torch.nested.nested_tensor([[1.0, 0.0], [0.0, 2.0, 1.0]], layout=torch.jagged)
    SoftNDCG()(model(features).squeeze(-1), grades).backward()
    assert model.weight.grad is not None
    padded = scores[:12].view(3, 4).clone().requires_grad_()
    starts, lengths = torch.tensor([0, 1, 0]), torch.tensor([4, 2, 3])
    part = torch.nested.narrow(padded, 1, starts, lengths, layout=torch.jagged)
    like = torch.nested.nested_tensor([labels[:4], labels[5:7], labels[8:11]], layout=torch.jagged)
    found = SoftNDCG()(part, like)
    inside = [0, 1, 2, 3, 5, 6, 8, 9, 10]
    expected = SoftNDCG()(scores[inside], labels[inside], lengths=lengths)
    torch.testing.assert_close(found, expected)
    found.backward()
    assert (padded.grad.view(-1)[[4, 7, 11]] == 0).all()
    assert (padded.grad.view(-1)[inside] != 0).all()


def test_nested_lists_that_do_not_fit():
    scores, labels, _ = ragged()
    loss = SoftNDCG()
    with pytest.raises(ValueError, match="labels must"):
        loss(nest(scores), labels)
    with pytest.raises(ValueError, match="labels must not be nested here"):
        loss(scores, nest(labels))
    with pytest.raises(
        ValueError, match=r"mask, lengths and qid exclude.* got lengths and nested tensors"
    ):
        loss(nest(scores), nest(labels), lengths=LENGTHS)
    with pytest.raises(
        ValueError, match=r"mask, lengths and qid exclude.* got qid and nested tensors"
    ):
        loss(nest(scores), nest(labels), qid=LENGTHS)
    other = nest(labels, [4, 3, 3, 3])
    same_count = nest(labels, [4, 0, 4, 1, 4])
    for wrong in (other, same_count):
        with pytest.raises(ValueError, match="labels must"):
            loss(nest(scores), wrong)
    cube = torch.nested.nested_tensor([torch.ones(2, 2)], layout=torch.jagged)
    with pytest.raises(ValueError, match=r"dimensions \(lists, items\), got torch\.jagged and 3"):
        loss(cube, nest(labels))
    with pytest.raises(ValueError, match="x must"):
        soft_rank(nest(scores))


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_the_old_layout_of_nested_tensors_is_refused():
    scores = torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)])
    with pytest.raises(ValueError, match=r"layout=torch\.jagged .*, got torch\.strided and 2"):
        SoftNDCG()(scores, scores)


@pytest.mark.parametrize("kind", [list, tuple, np.array, lambda x: torch.tensor(x).int()])
@pytest.mark.parametrize("loss", [SoftNDCG(), PointwiseMSE()], ids=repr)
def test_lengths_of_any_kind(loss, kind):
    scores, labels, _ = ragged()
    found = loss(scores, labels, lengths=kind(LENGTHS.tolist()))
    torch.testing.assert_close(found, loss(scores, labels, lengths=LENGTHS))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.uint16, torch.uint32, torch.uint64])
def test_labels_of_unsigned_integers(dtype):
    scores, labels, _ = ragged()
    loss, own = SoftNDCG(), labels.to(dtype)
    for rows in ({"lengths": LENGTHS}, {"qid": torch.arange(13) % 3}, {}):
        torch.testing.assert_close(loss(scores, own, **rows), loss(scores, labels, **rows))
    lists = scores.view(1, -1), own.view(1, -1)
    torch.testing.assert_close(torch.func.vmap(loss)(*lists), loss(scores, labels).view(1))
    with pytest.raises(ValueError, match=r"labels must be <= 1, got 3"):
        PointwiseSigmoid(threshold=None)(scores, own)
    with pytest.raises(ValueError, match=r"labels must be class indices from 0 to 4, got 5"):
        TopKLoss()(scores[:10].view(2, 5), torch.tensor([1, 5]).to(dtype))


def padded() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    scores, labels = draw(3, 6)
    labels[0, 4:], labels[2, 1] = -1, -1
    return scores, labels, labels != -1


@each("name", {name: name for name in LOSSES})
def test_a_label_of_minus_1_is_an_error_unless_it_is_a_target(name):
    scores, labels, mask = padded()
    loss = LOSSES[name]()
    # the labels are targets, not grades; a loss around another leaves them to that one
    if not loss.grades and not hasattr(loss, "loss"):
        assert loss(scores, labels).isfinite()
        return
    words = r"labels must be >= 0, got -1: .* mask=labels != -1 or padding=-1$"
    for given in (labels, labels.long(), labels.float()):
        with pytest.raises(ValueError, match=words):
            loss(scores, given)
    with pytest.raises(ValueError, match=words):
        loss(scores[0], labels[0], lengths=[2, 4])
    with pytest.raises(ValueError, match=words):
        loss(scores, labels, torch.arange(6) < torch.tensor([[5], [6], [6]]))
    assert loss(scores, labels, mask).isfinite()  # under the mask any label is allowed
    labels[0, 4] = torch.nan  # a NaN under the mask does not hide a negative label
    mask[0, 5] = True
    with pytest.raises(ValueError, match=words):
        loss(scores, labels, mask)


@every
def test_padding_is_a_mask(make):
    scores, labels, mask = padded()
    expected = make()(scores, labels, mask)
    torch.testing.assert_close(make()(scores, labels.long(), padding=-1), expected)
    more = torch.arange(6).expand(3, 6) != 3
    expected = make()(scores, labels, mask & more)
    torch.testing.assert_close(make()(scores, labels, more, padding=-1), expected)


@every
def test_padding_in_vmap(make):
    scores, labels, mask = padded()
    each = torch.func.vmap(lambda s, y: make()(s, y, padding=-1))(scores, labels)
    torch.testing.assert_close(each, make(reduction="none")(scores, labels, mask))


def test_padding_and_nested_lists_compile_in_one_graph():
    scores, labels, _ = padded()
    loss = SoftNDCG()

    def padding(s, y):
        return loss(s, y, padding=-1)

    torch.compiler.reset()
    found = torch.compile(padding, backend="eager", fullgraph=True)(scores, labels)
    torch.testing.assert_close(found, loss(scores, labels, padding=-1))
    scores, labels, _ = ragged()
    compiled = torch.compile(loss, backend="eager", fullgraph=True)
    torch.testing.assert_close(
        compiled(nest(scores), nest(labels)), loss(scores, labels, lengths=LENGTHS)
    )


@pytest.mark.parametrize("wrong", ["-1", True, float("nan"), None.__class__])
def test_padding_that_is_not_a_number(wrong):
    scores, labels, _ = padded()
    with pytest.raises(ValueError, match="padding must"):
        SoftNDCG()(scores, labels, padding=wrong)
    with pytest.raises(ValueError, match=r"padding.*lengths.*-1"):
        SoftNDCG()(scores[0], labels[0], lengths=[6], padding=-1)


def test_a_custom_loss_says_whether_labels_are_grades():
    class Error(RankingLoss):
        def per_list(self, scores, labels, mask, weights):
            return (scores - labels).square().sum(-1)

    class Regression(Error):
        grades = False

    scores, labels, _ = padded()
    with pytest.raises(ValueError, match=r"labels.*-1"):
        Error()(scores, labels)
    assert Regression()(scores, labels).isfinite()


@every
def test_a_flag_that_is_not_a_bool(make):
    for name, parameter in inspect.signature(make).parameters.items():
        if isinstance(parameter.default, bool):
            with pytest.raises(ValueError, match=f"{name} must be True or False, got 'no'"):
                make(**{name: "no"})


@pytest.mark.parametrize(
    ("make", "name", "wrong"),
    [
        *((XENDCG, "gamma", wrong) for wrong in (None, True, [0.5])),
        *((PointwiseOrdinal, "thresholds", wrong) for wrong in (0.5, "x", [float("nan")])),
        (QuantileLoss, "q", None),
        *((loss, "distribution", 0.5) for loss in (TopKLoss, TopKCrossEntropy)),
        *((PositionBias, "examination", wrong) for wrong in (0.5, "x")),
        *((loss, "loss", SoftNDCG) for loss in (Penalized, Unbiased)),
        (Penalized, "penalty", 1.0),
        (Unbiased, "bias", 1.0),
    ],
)
def test_an_argument_of_a_wrong_type(make, name, wrong):
    with pytest.raises(ValueError, match=f"^{name} must .*got"):
        make(**{name: wrong})


def test_labels_are_needed():
    for padding in (None, -1):
        with pytest.raises(ValueError, match="labels must be a tensor, got None"):
            SoftNDCG()(torch.zeros(3), None, padding=padding)


def returning(result):
    """Return a loss whose `per_list` returns `result(scores)`."""

    class Own(RankingLoss):
        def per_list(self, scores, labels, mask, weights):
            return result(scores)

    return Own()


@pytest.mark.parametrize(
    ("result", "got"),
    [
        (lambda scores: scores, r"\(2, 3\)"),
        (lambda scores: scores.sum(-1, keepdim=True), r"\(2, 1\)"),
        (lambda scores: scores.sum(), r"\(\)"),
        (lambda scores: scores[:1].sum(-1), r"\(1,\)"),
        (lambda scores: [0.0, 0.0], "a list"),
        (lambda scores: None, "a NoneType"),
    ],
)
def test_per_list_must_return_one_value_for_each_list(result, got):
    loss, scores, labels = returning(result), torch.zeros(2, 3), torch.ones(2, 3)
    wanted = rf"^Own\.per_list must return one value for each list, a tensor \(2,\), got {got}$"
    with pytest.raises(ValueError, match=wanted):
        loss(scores, labels)
    with pytest.raises(ValueError, match=wanted):
        Penalized(loss)(scores, labels)
    for form in ({"lengths": [3, 3]}, {"qid": torch.tensor([4, 4, 4, 1, 1, 1])}):
        with pytest.raises(ValueError, match=wanted):
            loss(scores.flatten(), labels.flatten(), **form)


def test_the_shape_of_per_list_in_several_axes_and_in_vmap():
    loss, scores = returning(lambda scores: scores.flatten(0, -2).sum(-1)), torch.zeros(4, 2, 3)
    with pytest.raises(ValueError, match=r"a tensor \(4, 2\), got \(8,\)"):
        loss(scores, scores)
    loss = returning(lambda scores: scores)
    with pytest.raises(ValueError, match=r"a tensor \(2,\), got \(2, 3\)"):
        torch.func.vmap(loss)(scores, scores)
    with pytest.raises(ValueError, match=r"a tensor \(\), got a float"):
        returning(lambda scores: 1.0)(scores[0, 0], scores[0, 0])


def test_leading_axes_of_per_list_are_samples():
    scores = torch.tensor([[1.0, 3.0], [2.0, 6.0]])
    loss = returning(lambda scores: torch.stack([scores.sum(-1), 3 * scores.sum(-1)]))
    loss.reduction = "none"
    torch.testing.assert_close(loss(scores, scores), torch.tensor([8.0, 16.0]))
    flat = scores.flatten()
    torch.testing.assert_close(loss(flat, flat, lengths=[2, 2]), torch.tensor([8.0, 16.0]))


@pytest.mark.parametrize(
    "loss",
    [SoftNDCG(), TopKLoss(), Penalized(), Unbiased(), Unbiased(self_normalize=True)],
    ids=lambda loss: type(loss).__name__,
)
def test_an_unknown_argument_is_named_with_the_nearest(loss):
    scores, labels = torch.zeros(6), torch.tensor([1, 0, 0, 1, 0, 0])
    wrong = r"got an unexpected keyword argument 'lngths': did you mean lengths\?$"
    with pytest.raises(TypeError, match=wrong):
        loss(scores, labels, lngths=[3, 3])
    with pytest.raises(TypeError, match=r"'quid': did you mean qid\?$"):
        loss(scores, labels, quid=labels)


def test_arguments_that_another_loss_takes():
    scores, labels = torch.zeros(3), torch.tensor([1, 0, 0])
    others = "choose from lengths, mask, padding, qid, weights"
    with pytest.raises(TypeError, match=rf"^SoftNDCG\(\) .* 'position': {others}$"):
        SoftNDCG()(scores, labels, position=labels)
    with pytest.raises(TypeError, match=r"'positin': did you mean position\?$"):
        Unbiased()(scores, labels, positin=labels)
    with pytest.raises(TypeError, match=r"'protect': did you mean protected\?$"):
        Penalized()(scores, labels, protect=labels)
    assert SoftNDCG()(scores, labels, position=None) == SoftNDCG()(scores, labels)

    class Any(RankingLoss):
        def per_list(self, scores, labels, mask, weights, **extra):
            return sum(extra.values()).sum(-1)

    assert Any()(scores, labels, whatever=torch.ones(3)) == 3
