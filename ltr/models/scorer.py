"""The base classes of scorers: `Scorer` for any items, `FeatureScorer` for feature vectors."""

from typing import Any, cast

import torch
from torch import Tensor, nn

from ltr.datasets.coded import Coded
from ltr.datasets.table_transform import TableTransform
from ltr.datasets.transforms import FeatureTransform
from ltr.shapes import check_at_least, check_mask


class Scorer(nn.Module):
    """Base class of scorers: the models that give each item of a list a score.

    A scorer maps features (..., n, *item) and a mask (..., n) to scores (..., n).

    There may be any number of batch axes. A new scorer is a subclass that defines `score`. Every
    scorer follows two rules:

    - The features of masked items, NaN and inf included, affect neither scores nor gradients:
      `score` gets 0 instead of them. The score of a masked item is 0.
    - The real items get the scores that they would get with the masked items deleted. A list gets
      the scores that it would get alone: nothing is averaged over the batch or over padding.

    Attributes:
        item_dims: the number of axes of an item: 1 for a feature vector (default), 2 or 3 for an
            image.
        per_document: whether an item's score depends only on that item. Such a scorer gets the
            items of ragged lists directly, (N, *item); any other scorer gets padded lists.
        takes_codes: whether `score` also takes `Coded` features: categories as codes, not as
            one-hot values. A subclass does not inherit this value, but sets it again, since the
            subclass may change the features.

    >>> class Total(Scorer):
    ...     def score(self, features, mask):
    ...         return features.sum(-1)
    >>> features = torch.tensor([[1.0, 2.0], [float("nan"), 5.0]])
    >>> Total()(features, mask=torch.tensor([True, False]))
    tensor([3., 0.])
    """

    item_dims: int = 1
    per_document: bool = False
    takes_codes: bool = False

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.takes_codes = cls.__dict__.get("takes_codes", False)

    def build(self, num_features: int | tuple[int, ...]) -> None:
        """Set the number of features; called before training, and before weights are loaded.

        A scorer that does not depend on the number of features need not override this method.

        Args:
            num_features: d, the length of an item's feature vector; (C, H, W) for images.
        """

    def score(self, features: Tensor, mask: Tensor | None) -> Tensor:
        """Return the scores (..., n) of features (..., n, *item), which are 0 for masked items."""
        raise NotImplementedError(f"{type(self).__name__} must define score")

    def forward(self, features: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the scores (..., n) of features (..., n, *item); 0 for masked items.

        Args:
            features: (..., n, *item); or `Coded`, which stands for (..., n, d).
            mask: (..., n) bool, True for a real item. Default: all are real.

        Raises:
            ValueError: features are neither a tensor nor `Coded`, or have too few axes; or mask is
                not bool of shape (..., n).
        """
        if not isinstance(features, Tensor | Coded):
            raise ValueError(f"features must be a tensor, got {type(features).__name__}")
        if features.dim() <= self.item_dims:
            raise ValueError(
                f"features must have {self.item_dims + 1} axes (..., n, *item) or more, "
                f"got {tuple(features.shape)}"
            )
        given = cast(Tensor | Coded, features)
        if isinstance(given, Coded) and not self.takes_codes:
            given = given.dense()
        if mask is None:
            return self.score(cast(Tensor, given), None)
        check_mask(mask, given.shape[: given.dim() - self.item_dims])
        real = mask.reshape(*mask.shape, *(1,) * self.item_dims)
        clean = given.where(real) if isinstance(given, Coded) else torch.where(real, given, 0)
        scores = self.score(cast(Tensor, clean), mask)
        return torch.where(mask, scores, 0)


class FeatureScorer(Scorer):
    """Base class of scorers for feature vectors; a subclass defines `make_layers`.

    A subclass whose layers look at other items of the list sets `per_document = False` and
    overrides `score`, since the inherited `score` does not pass the mask to the layers.

    Args:
        num_features: d, the number of features. Default: None; `build` then makes the layers.

    Raises:
        ValueError: `num_features` is < 1.

    >>> class Last(FeatureScorer):
    ...     def make_layers(self, num_features):
    ...         return torch.nn.Linear(num_features, 1, bias=False)
    >>> scorer = Last()
    >>> scorer.build(3)
    >>> scorer(torch.randn(2, 5, 3)).shape
    torch.Size([2, 5])
    """

    per_document = True

    def __init__(self, num_features: int | None = None):
        super().__init__()
        self.fixed = num_features is not None
        self.num_features: int | None = None
        self.layers: nn.Module | None = None
        if num_features is not None:
            self._make(num_features)

    def make_layers(self, num_features: int) -> nn.Module:
        """Return the network: (..., num_features) -> (..., 1)."""
        raise NotImplementedError(f"{type(self).__name__} must define make_layers")

    def build(self, num_features: int | tuple[int, ...]) -> None:
        """Make the layers, with new weights, unless they already have this number of features.

        Raises:
            ValueError: `num_features` is < 1, is an image's shape, or is not the constructor's.
        """
        if self.num_features == num_features:
            return
        if isinstance(num_features, tuple):
            raise ValueError(
                f"num_features must be a whole number: {type(self).__name__} scores feature "
                f"vectors, not images; got {num_features}"
            )
        if self.fixed:
            raise ValueError(
                f"num_features must be {self.num_features}, which the scorer was made with, "
                f"got {num_features}"
            )
        self._make(num_features)

    def score(self, features: Tensor, mask: Tensor | None) -> Tensor:
        """Return the layers' output for each item."""
        return self.ready(features)(features).squeeze(-1)

    def ready(self, features: Tensor | Coded) -> nn.Module:
        """Check the features (..., n, d), and return the layers.

        Raises:
            ValueError: the layers are missing, or the features are not floating point or do not
                have the layers' number of features.
        """
        if self.layers is None:
            raise ValueError(
                f"num_features must be given to {type(self).__name__}, or to its `build`, "
                "before it scores, got None"
            )
        if not features.is_floating_point():
            dtype = (features.numbers if isinstance(features, Coded) else features).dtype
            raise ValueError(f"features must be floating point, got {dtype}")
        if features.shape[-1] != self.num_features:
            raise ValueError(
                f"features must have num_features={self.num_features}, got {features.shape[-1]}"
            )
        return self.layers

    def _make(self, num_features: int) -> None:
        num_features = check_at_least("num_features", num_features, 1)
        self.layers = self.make_layers(num_features)
        self.num_features = num_features


def build_scorer(scorer: Scorer, transform: FeatureTransform | None, num_features: Any) -> None:
    """Make the weights of a scorer for the output of a fitted transform, if its width is known.

    Args:
        scorer: the scorer.
        transform: the transform, or None.
        num_features: the number of features before the transform, which is that of the output if
            the transform does not tell another; None if it is unknown.
    """
    width = getattr(transform, "out_features", None)
    if width is None and not getattr(transform, "takes_missing", False):
        width = num_features
    if width is not None:
        scorer.build(width)


def transformed(
    scorer: Scorer,
    transform: FeatureTransform,
    features: Tensor,
    mask: Tensor | None = None,
    categories: Tensor | None = None,
    lengths: Tensor | None = None,
) -> Tensor | Coded:
    """Return a transform's output: a tensor, or `Coded`.

    The output is `Coded` if categories are given and both the scorer and the transform support it.
    A user's own transform need not take `categories` or `lengths`. So it gets `categories` only if
    they are given, and `lengths` only if it looks at whole lists.

    Args:
        scorer: the scorer that gets the output.
        transform: the fitted transform.
        features: see `FeatureTransform.forward`.
        mask: see `FeatureTransform.forward`.
        categories: see `FeatureTransform.forward`.
        lengths: see `FeatureTransform.forward`.
    """
    known: dict[str, Tensor] = {} if categories is None else {"categories": categories}
    if transform.within_list and lengths is not None:
        known["lengths"] = lengths
    # A subclass that overrides `forward` is excluded, since its `coded` may give other values.
    if (
        categories is not None
        and scorer.takes_codes
        and isinstance(transform, TableTransform)
        and type(transform).forward is TableTransform.forward
    ):
        return transform.coded(features, mask, **known)
    return transform(features, mask, **known)
