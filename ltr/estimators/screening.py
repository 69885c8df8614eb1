"""Choose the kind of the networks, and whether they see columns relative to the list.

Each candidate trains one member for a short time. The validation lists decide.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from sklearn.linear_model import Ridge

from ltr.datasets import (
    FeatureTransform,
    Join,
    ListDataset,
    RankPerList,
    SignedLog1pStandardize,
    Standardize,
    StandardizePerList,
    TableTransform,
)
from ltr.datasets.transforms import fit_documents
from ltr.estimators.parameters import Settings, for_trial, with_relative
from ltr.estimators.scoring import mean_gain, values_of_dataset
from ltr.models import RankingModel

_LISTS = 10_000
"""A trial trains on at most this many lists."""

_VALUES = 1 << 23
"""The linear models are fitted on about this many values: documents times transformed columns."""

_DOCUMENTS = 30_000
"""The linear models are fitted on about this many documents at most."""

_PROMISING, _CLEAR = 1.0, 2.0
"""By how many standard errors the metric must gain by relative columns.

With less than the first gain of a linear model, no network is tried. With more than the second gain
of a network, the columns are kept.
"""

_FEWEST = 100
"""With fewer validation lists, relative columns are not tried: the lists could not tell."""

_NOT_KEPT = (
    "columns relative to the list were tried and not kept: a {} gained {:+.4f} "
    "(standard error {:.4f})"
)


@dataclass(frozen=True)
class Trial:
    """One member of some settings, trained for a short time.

    Attributes:
        settings: those of the networks.
        model: the member with its transform.
        seed: the seed of its training.
    """

    settings: Settings
    model: RankingModel
    seed: int


def try_out(settings: Settings, lists: ListDataset, of_lists: bool) -> Trial:
    """Train one member on some of the lists.

    Args:
        settings: those of the networks.
        lists: the training lists.
        of_lists: whether the weights are those of lists, not of rows.
    """
    from ltr.estimators.training import train  # torchmetrics takes a while to import

    # There is no validation here. Early stopping would favor an epoch that is good on the
    # validation lists by chance. Shuffling any column would undo this luck, so each would look
    # useful.
    lists = evenly(lists, _LISTS)
    trained = train(for_trial(settings, len(lists)), lists, None, of_lists=of_lists)
    model = RankingModel(trained.scorer, trained.transform).eval()
    return Trial(settings, model, trained.seed)


def choose_settings(
    candidates: Sequence[Settings],
    relative: bool,
    lists: ListDataset,
    validation: ListDataset,
    of_lists: bool,
) -> tuple[Settings, Trial | None, str]:
    """Return the best candidate, with relative columns if they help, and its trial.

    Args:
        candidates: the settings of the kinds of networks, none with relative columns unless they
            were asked for.
        relative: whether to try relative columns too.
        lists: the training lists.
        validation: the validation lists.
        of_lists: whether the weights are those of lists, not of rows.

    Returns:
        The settings; the member that was trained with them, None if there was nothing to try; and
        a note that relative columns were tried and not kept, otherwise "".
    """
    first = candidates[0]
    relative = relative and len(validation) >= _FEWEST and lists.num_features > 0
    if len(candidates) == 1 and not relative:
        return first, None, ""
    sample = evenly(validation, first.choice.lists).to_fit()

    def values(scores: np.ndarray) -> np.ndarray:
        return values_of_dataset(scores, sample, first.metric)

    def score(trial: Trial) -> np.ndarray:
        return values(trial.model.score(sample, device=first.device))

    note = ""
    if relative:
        gain, error = mean_gain(*(values(scores) for scores in linear_scores(lists, sample)))
        relative = gain > _PROMISING * error
        if not relative:
            note = _NOT_KEPT.format("linear model", gain, error)
    if len(candidates) == 1 and not relative:
        return first, None, note
    tried = [try_out(candidate, lists, of_lists) for candidate in candidates]
    measured = [score(trial) for trial in tried]
    best = int(np.argmax([values.mean() for values in measured]))
    chosen = tried[best]
    if relative:
        wider = try_out(with_relative(chosen.settings), lists, of_lists)
        gain, error = mean_gain(score(wider), measured[best])
        if gain > _CLEAR * error:
            chosen = wider
        else:
            note = _NOT_KEPT.format("network", gain, error)
    return chosen.settings, chosen, note


def linear_scores(lists: ListDataset, validation: ListDataset) -> tuple[np.ndarray, np.ndarray]:
    """Return scores of validation lists by linear models with relative columns and without.

    Both are ridge regressions of the grades minus their list's mean grade. They get the columns
    with their logarithms, since ranks bend a column too.
    """
    documents = min(_DOCUMENTS, _VALUES // (4 * lists.num_features))
    per_list = max(1, int(lists.offsets[-1]) // len(lists))
    lists = evenly(lists, max(1, documents // per_list)).to_fit()
    lengths = np.diff(lists.offsets)
    owners = np.repeat(np.arange(len(lengths)), lengths)
    means = np.bincount(owners, lists.relevance, len(lengths)) / np.maximum(lengths, 1)
    plain: list[FeatureTransform] = [SignedLog1pStandardize(), Standardize()]
    scores = []
    for parts in ([*plain, RankPerList(), StandardizePerList()], plain):
        transform = TableTransform(Join(parts))
        fit_documents(transform, lists)
        model = Ridge(alpha=1.0, fit_intercept=False, copy_X=False)
        model.fit(_transformed(transform, lists), lists.relevance - means[owners])
        scores.append(model.predict(_transformed(transform, validation)))
    return scores[0], scores[1]


def evenly(lists: ListDataset, most: int) -> ListDataset:
    """Return at most `most` of the lists, evenly spaced."""
    if len(lists) <= most:
        return lists
    return lists.select(np.linspace(0, len(lists) - 1, most).astype(np.int64))


def _transformed(transform: FeatureTransform, lists: ListDataset) -> np.ndarray:
    codes = None if lists.categories is None else torch.from_numpy(lists.categories)
    lengths = torch.from_numpy(np.diff(lists.offsets))
    with torch.no_grad():
        numbers = transform(torch.from_numpy(lists.features), None, codes, lengths)
    return numbers.numpy()
