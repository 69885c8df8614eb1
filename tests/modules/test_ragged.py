"""Ragged batches train, validate and score as the same lists do, padded."""

from functools import partial

import numpy as np
import pytest
import torch
from lightning.pytorch import Trainer
from pairwise import covering
from torch import nn
from torch.utils.data import DataLoader

from ltr.datasets import (
    FeatureTransform,
    ListDataModule,
    ListDataset,
    MinMaxPerList,
    NoTransform,
    Standardize,
    TableTransform,
    collate_lists,
    collate_ragged,
    pad_batch,
)
from ltr.losses import ListNet, SoftNDCG
from ltr.models import LinearScorer, MLPScorer, Scorer
from ltr.models.ragged import score_ragged
from ltr.modules import Ranker
from ltr.training.finite import check_scores
from recipes.networks import ImageCNN
from recipes.quantile.regressor import QuantileRegressor
from recipes.regression.regressor import Regressor
from recipes.sort.matrix_sorter import MatrixSorter

NAN, INF = float("nan"), float("inf")
INPUTS = ("features", "mask", "lengths", "categories")
LENGTHS = [3, 1, 5, 2, 4, 6, 1]


def lists(seed: int = 0, features: int = 3) -> ListDataset:
    rng = np.random.default_rng(seed)
    documents = sum(LENGTHS)
    return ListDataset(
        rng.normal(size=(documents, features)).astype(np.float32),
        rng.integers(0, 3, documents).astype(np.float32),
        np.r_[0, np.cumsum(LENGTHS)],
        [f"q{i}" for i in range(len(LENGTHS))],
        [f"d{i}" for i in range(documents)],
    )


class Module(ListDataModule):
    """The same few lists as every split; padded if asked for."""

    def __init__(self, transform: FeatureTransform, padded: bool = False, batch_size: int = 3):
        super().__init__(batch_size=batch_size, transform=transform, seed=1)
        self.padded = padded

    def load_splits(self):
        return {name: lists(i) for i, name in enumerate(("train", "val", "test", "predict"))}

    def collate(self, batch):
        return pad_batch(batch) if self.padded else batch


class Spread(Scorer):
    """Looks at the whole list: how far an item is from the list's mean."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(0.5, 1, 3))
        self.shapes: list[tuple[int, ...]] = []

    def score(self, features, mask):
        self.shapes.append(tuple(features.shape))
        real = torch.ones(features.shape[:-1]) if mask is None else mask.float()
        mean = (features * real.unsqueeze(-1)).sum(-2, keepdim=True)
        mean = mean / real.sum(-1).clamp(min=1).unsqueeze(-1).unsqueeze(-1)
        return (features - mean) @ self.weight


def trainer(folder, **options) -> Trainer:
    quiet = {"logger": False, "enable_progress_bar": False, "enable_checkpointing": False}
    quiet |= {"enable_model_summary": False, "accelerator": "cpu", "default_root_dir": folder}
    return Trainer(**{**quiet, **options})


SCORERS = {
    "mlp": lambda: MLPScorer(hidden=(8,), dropout=0.0),
    "linear": lambda: LinearScorer(),
    "of lists": Spread,
}
TRANSFORMS = {
    "none": NoTransform,
    "standardize": Standardize,
    "min-max": MinMaxPerList,
    "table": lambda: TableTransform(MinMaxPerList()),
}


@covering("make, transform", SCORERS, TRANSFORMS)
def test_a_run_is_that_of_padded_batches(tmp_path, make, transform):
    states, numbers, scores = [], [], []
    for padded in (False, True):
        torch.manual_seed(0)
        ranker = Ranker(make(), SoftNDCG(), optimizer=partial(torch.optim.SGD, lr=0.5))
        fit = trainer(tmp_path, max_epochs=2)
        data = Module(transform(), padded)
        fit.fit(ranker, data)
        numbers.append(fit.callback_metrics)
        [tested] = fit.test(ranker, data, verbose=False)
        numbers[-1] = {k: float(v) for k, v in {**numbers[-1], **tested}.items()}
        states.append(ranker.state_dict())
        with torch.no_grad():
            batches = list(data.predict_dataloader())
            found = [ranker(**{k: b[k] for k in INPUTS if k in b}) for b in batches]
        if padded:
            found = [x[b["mask"]] for x, b in zip(found, batches, strict=True)]
        else:
            assert torch.cat([batch["lengths"] for batch in batches]).tolist() == LENGTHS
        scores.append(torch.cat(found))
    assert numbers[0].keys() == numbers[1].keys()
    assert numbers[0] == pytest.approx(numbers[1], rel=1e-5)
    for name, value in states[0].items():
        torch.testing.assert_close(value, states[1][name], rtol=1e-4, atol=1e-6, msg=name)
    torch.testing.assert_close(*scores, rtol=1e-4, atol=1e-5)


def test_a_scorer_of_one_document_gets_no_padding():
    seen = []
    scorer = LinearScorer(3)
    scorer.register_forward_hook(lambda _, inputs, out: seen.append(inputs[0].shape))
    batch = lists().__getitems__([0, 2, -1])
    scores = Ranker(scorer)(batch["features"], lengths=batch["lengths"])
    assert seen == [(8, 3)]
    assert scores.shape == (8,)


def test_a_scorer_of_the_list_gets_a_padded_view_without_fillers():
    scorer = Spread()
    batch = lists().__getitems__([0, -1, 2, 1, -1])
    found = score_ragged(scorer, batch["features"], batch["lengths"])
    assert scorer.shapes == [(3, 5, 3)]
    alone = [scorer(lists()[i]["features"]) for i in (0, 2, 1)]
    torch.testing.assert_close(found, torch.cat(alone))


@pytest.mark.parametrize("scorer", [LinearScorer(3), MLPScorer(3), Spread()])
def test_a_batch_of_fillers_alone_trains_nothing(scorer):
    ranker = Ranker(scorer, ListNet())
    ranker.log = lambda *args, **kwargs: None
    loss = ranker.training_step(lists().__getitems__([-1, -1]), 0)
    loss.backward()
    assert loss.item() == 0
    for parameter in ranker.parameters():
        assert parameter.grad is not None
        assert not parameter.grad.any()


def test_a_mask_or_lengths():
    with pytest.raises(ValueError, match="mask must"):
        Ranker(LinearScorer(3))(
            torch.zeros(2, 3), torch.ones(2, dtype=torch.bool), lengths=torch.tensor([2])
        )


def test_weights_of_ragged_lists_reach_the_loss():
    batch = lists().__getitems__([0, 2])
    ranker = Ranker(LinearScorer(3), ListNet())
    ranker.log = lambda *args, **kwargs: None
    weighted = {**batch, "weight": torch.rand(8)}
    found = ranker.training_step(weighted, 0)
    torch.testing.assert_close(found, ranker.training_step(pad_batch(weighted), 0))
    assert found != ranker.training_step(batch, 0)


def test_the_list_of_a_bad_score_is_named():
    batch = lists().__getitems__([0, -1, 3])
    scores = torch.zeros(5)
    check_scores(scores, batch)
    scores[4] = NAN
    with pytest.raises(ValueError, match="got 1 of 2 in list 'q3'; its features are finite, so"):
        check_scores(scores, batch)
    batch["features"][3, 1:] = INF
    batch["features"][0, 0] = NAN  # of another list
    with pytest.raises(ValueError, match="got 1 of 2 in list 'q3'; 2 of its features are not fin"):
        check_scores(scores, batch)
    with pytest.raises(ValueError, match=r"got 1 of 2 in list 2 of the batch$"):
        check_scores(scores, {"lengths": batch["lengths"]})


@pytest.mark.filterwarnings("ignore:.*but have no `validation_step`.*")
@pytest.mark.parametrize("make", [lambda: Regressor(LinearScorer(3)), lambda: quantile()])
def test_modules_of_padded_lists_pad_them(tmp_path, make):
    fit = trainer(tmp_path, fast_dev_run=True)
    fit.fit(model := make(), Module(NoTransform()))
    fit.test(model, Module(NoTransform()), verbose=False)
    [ragged] = fit.predict(model, Module(NoTransform()))
    [padded] = fit.predict(model, Module(NoTransform(), padded=True))
    torch.testing.assert_close(ragged["scores"], padded["scores"])


def quantile() -> QuantileRegressor:
    return QuantileRegressor(LinearScorer(3), LinearScorer(3))


def test_loaders_of_ones_own(tmp_path):
    ranker = Ranker(LinearScorer(3))
    fit = trainer(tmp_path, max_epochs=1)
    ragged, padded = (
        DataLoader(lists(), batch_size=3, collate_fn=collate)
        for collate in (collate_ragged, collate_lists)
    )
    fit.fit(ranker, ragged, padded)
    [one], [other] = (fit.test(ranker, x, verbose=False) for x in (ragged, padded))
    assert one == pytest.approx(other)


def test_a_matching_of_ragged_lists(tmp_path):
    images = lists(features=16)
    images = images.with_arrays(features=images.features.reshape(-1, 1, 4, 4))
    sorter = MatrixSorter(ImageCNN((1, 4, 4), outputs=6))
    ragged, padded = (
        DataLoader(images, batch_size=3, collate_fn=collate)
        for collate in (collate_ragged, collate_lists)
    )
    fit = trainer(tmp_path, fast_dev_run=True)
    fit.fit(sorter, ragged, ragged)
    one, other = (sorter.score_batch(next(iter(x))).scores for x in (ragged, padded))
    torch.testing.assert_close(one, other)


@pytest.mark.parametrize("scorer", [LinearScorer(3), Spread()])
@pytest.mark.parametrize("transform", [None, Standardize(), MinMaxPerList(), TableTransform()])
def test_lengths_that_are_not_those_of_the_documents(scorer, transform):
    ranker = Ranker(scorer)
    if transform is not None:
        ranker.transform = transform.fit(np.eye(3, dtype=np.float32))
    features = torch.zeros(4, 3)
    for lengths, message in (
        (torch.tensor([2, 3]), "lengths must sum to 4 documents, got 5"),
        (torch.tensor([5, -1]), "lengths must be >= 0, got -1"),
        (torch.tensor([2.0, 2.0]), "lengths must be whole numbers"),
    ):
        with pytest.raises(ValueError, match=message):
            ranker(features, lengths=lengths)
        with pytest.raises(ValueError, match=message):
            score_ragged(scorer, features, lengths)
    with pytest.raises(ValueError, match="features must"):
        ranker(torch.zeros(2, 2, 3), lengths=torch.tensor([1, 1]))


def test_a_compiled_ranker_takes_lengths():
    ranker = Ranker(MLPScorer(3, dropout=0.0))
    ranker.transform = MinMaxPerList()
    compiled = torch.compile(ranker.forward, fullgraph=True, backend="aot_eager")
    features, lengths = torch.randn(4, 3), torch.tensor([1, 3])
    torch.testing.assert_close(
        compiled(features, lengths=lengths), ranker(features, lengths=lengths)
    )
