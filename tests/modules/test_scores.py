"""A NaN score names its list, and whether the list's features are finite."""

import pytest
import torch
from lightning.pytorch import Trainer
from torch.utils.data import DataLoader

from ltr.datasets import ListDataset, collate_lists
from ltr.models import LinearScorer
from ltr.modules import Ranker
from ltr.training.finite import check_scores

NAN, INF = float("nan"), float("inf")


def batch(**more):
    features = torch.ones(2, 3, 4)
    mask = torch.tensor([[True, True, True], [True, True, False]])
    return {"features": features, "mask": mask, "qid": ["a", "b"], **more}


def test_what_is_no_error():
    check_scores(torch.zeros(2, 3), batch())
    check_scores(torch.tensor([[0, 0, 0], [0, INF, NAN]]), batch())  # NaN under the mask
    check_scores(torch.zeros(2, 3), {})


def test_the_list_is_named():
    scores = torch.tensor([[0, 1, 2], [NAN, 0, NAN]])
    message = "^scores must not be NaN, got 1 of 2 in list 'b'; its features are finite, so the"
    with pytest.raises(ValueError, match=message):
        check_scores(scores, batch())
    damaged = batch()
    damaged["features"][1, 0, 2:] = torch.tensor([INF, NAN])
    damaged["features"][1, 2] = NAN  # padding
    damaged["features"][0, 0] = NAN  # another list
    with pytest.raises(ValueError, match="got 1 of 2 in list 'b'; 2 of its features are not fin"):
        check_scores(scores, damaged)


def test_what_a_batch_need_not_have():
    with pytest.raises(ValueError, match=r"got 1 of 3 in list 1 of the batch$"):
        check_scores(torch.tensor([[0, 1, 2], [NAN, 0, 0]]), {})


def test_infinite_scores_where_they_are_refused():
    scores = torch.tensor([[0, INF, 2], [0, 0, 0]])
    check_scores(scores, batch())
    with pytest.raises(ValueError, match=r"scores.*1 of 3 in list 'a'; its"):
        check_scores(scores, batch(), finite=True)


@pytest.mark.parametrize("what", ["validate", "test"])
@pytest.mark.parametrize("broken", ["model", "data"])
def test_a_run_stops_and_names_the_list(tmp_path, what: str, broken: str):
    data = ListDataset.from_arrays([[1.0], [2.0], [3.0]], [0, 1, 2], ["x", "y", "y"])
    scorer = LinearScorer(num_features=1)
    if broken == "model":
        torch.nn.init.constant_(next(scorer.parameters()), NAN)
        message = "got 1 of 1 in list 'x'; its features are finite, so the model is the cause"
    else:
        data.features[2] = NAN
        message = "got 1 of 2 in list 'y'; 1 of its features are not finite"
    trainer = Trainer(
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_checkpointing=False,
        default_root_dir=tmp_path,
    )
    loader = DataLoader(data, batch_size=2, collate_fn=collate_lists)
    with pytest.raises(ValueError, match=message):
        getattr(trainer, what)(Ranker(scorer), loader)
