"""CollapseAlarm: by hand, and in Hugging Face's Trainer."""

import math
import warnings
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from sentence_transformers.cross_encoder import CrossEncoder
from torch import Tensor, nn

from ltr.integrations import CollapseAlarm, CrossEncoderLoss
from ltr.losses import SoftmaxLoss

LABELS = torch.tensor([0.0, 1.0, 2.0, 0.0, 1.0])


def heard(alarm: CollapseAlarm, scales: list[float], **lists: object) -> list[str]:
    """The warnings after one step of each scale."""
    scores = torch.tensor([0.0, 1.0, 3.0, -1.0, 1.0])
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        for scale in scales:
            alarm.update(scale * scores + 5, LABELS, **(lists or {"lengths": [3, 2]}))
    return [str(one.message) for one in found]


def test_one_warning_when_the_spread_falls():
    alarm = CollapseAlarm(window=2)
    assert heard(alarm, [1.0] * 4) == []
    (message,) = heard(alarm, [1e-3] * 20)
    spread = (math.sqrt(14) / 3 + 1) / 2  # the mean of the two lists' standard deviations
    assert alarm.largest == pytest.approx(spread, rel=1e-6)
    assert message.startswith(
        f"scores within lists are nearly equal: their standard deviation is {spread * 1e-3:.2g}, "
        f"and was {spread:.2g}; 4 of 4 lists have documents with different labels. Try a lower"
    )


@pytest.mark.parametrize("scale", [0.02, 1.0, float("nan")])
def test_no_warning_above_the_limits(scale):
    assert heard(CollapseAlarm(window=1), [1.0, *[scale] * 3]) == []


def test_scores_that_never_differed():
    (message,) = heard(CollapseAlarm(window=1), [0.0])
    assert "their standard deviation is 0, and was 0;" in message


def test_a_window_is_one_mean():
    alarm = CollapseAlarm(window=4)
    assert heard(alarm, [1.0] * 4 + [0.0] * 3 + [1.0]) == []


def test_every_form_of_lists_has_the_same_spread():
    found = []
    order = torch.tensor([3, 0, 4, 1, 2])
    scores = torch.tensor([0.0, 1.0, 3.0, -1.0, 1.0])
    padded = torch.tensor([[0.0, 1.0, 3.0], [-1.0, 1.0, math.nan]])
    real = ~padded.isnan()
    for given in (
        ((scores, LABELS), {"lengths": [3, 2]}),
        ((scores[order], LABELS[order]), {"qid": torch.tensor([7, 7, 7, 9, 9])[order]}),
        ((padded, torch.zeros(2, 3), real), {}),
    ):
        alarm = CollapseAlarm(window=1)
        alarm.update(*given[0], **given[1])
        found.append(alarm.largest)
    assert found == pytest.approx([(math.sqrt(14) / 3 + 1) / 2] * 3, rel=1e-6)


def test_single_documents_say_nothing():
    alarm = CollapseAlarm(window=1)
    assert heard(alarm, [1.0], lengths=[1] * 5) == []
    assert alarm.largest == 0


def test_lists_without_different_labels_are_counted():
    alarm = CollapseAlarm(window=1)
    with pytest.warns(UserWarning, match=r"; 1 of 2 lists have documents with different labels"):
        alarm.update(torch.zeros(4), torch.tensor([0, 1, 2, 2]), lengths=[2, 2])


def test_a_trainer_reads_the_scores_of_the_training_alone():
    loss = SoftmaxLoss()
    alarm = CollapseAlarm(loss, window=1)
    state = SimpleNamespace(is_world_process_zero=True)

    def step(scores: Tensor) -> None:
        loss(scores, labels=LABELS, lengths=[3, 2])

    training = torch.zeros(5, requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        step(training)  # before the training
        alarm.on_train_begin(None, state, None)
        step(torch.zeros(5))  # an evaluation
    with pytest.warns(UserWarning, match="scores within lists are nearly equal"):
        step(training)
    alarm.on_train_end(None, state, None)
    alarm.warned = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        step(training)


def test_padding_and_nested_tensors_are_read_as_the_loss_reads_them():
    """The scores of padding are far from the others, which are equal."""
    nested = partial(torch.nested.nested_tensor, layout=torch.jagged)
    for scores, labels, options in (
        (
            torch.tensor([[0.0, 0.0, 9.0], [1.0, 1.0, 9.0]]),
            [[1, 0, -1], [0, 1, -1]],
            {"padding": -1},
        ),
        (nested([torch.zeros(2), torch.zeros(3)]), nested([LABELS[:2], LABELS[2:]]), {}),
    ):
        loss = SoftmaxLoss()
        alarm = CollapseAlarm(loss, window=1)
        alarm.on_train_begin(None, SimpleNamespace(is_world_process_zero=True), None)
        with pytest.warns(UserWarning, match="scores within lists are nearly equal"):
            loss(
                scores.requires_grad_(),
                torch.as_tensor(labels) if isinstance(labels, list) else labels,
                **options,
            )


def test_the_loss_may_be_inside_a_text_loss(model_path):
    loss = SoftmaxLoss()
    model = CrossEncoder(model_path, device="cpu")
    assert CollapseAlarm(CrossEncoderLoss(model, loss)).loss is loss


def test_other_processes_do_not_look():
    loss = SoftmaxLoss()
    alarm = CollapseAlarm(loss, window=1)
    alarm.on_train_begin(None, SimpleNamespace(is_world_process_zero=False), None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loss(torch.zeros(5, requires_grad=True), LABELS, lengths=[3, 2])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss": nn.MSELoss()}, r"^loss must be a RankingLoss.*MSELoss"),
        ({"window": 0}, r"^window .*0"),
        ({"fraction": 1.5}, r"^fraction .*1\.5"),
        ({"fraction": -1.0}, r"^fraction .*-1"),
        ({"least": -1.0}, r"^least .*-1"),
    ],
)
def test_wrong_options(options, message):
    with pytest.raises(ValueError, match=message):
        CollapseAlarm(**options)


def test_shapes_must_agree():
    with pytest.raises(ValueError, match=r"^labels must have the shape of scores \(5,\)"):
        CollapseAlarm().update(torch.zeros(5), torch.zeros(4), lengths=[3, 2])
