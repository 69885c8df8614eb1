"""Self-attention over the list, so that a score can depend on the list's other documents."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from ltr.models.dropout import Dropout
from ltr.models.mlp import MLPScorer, hidden_layers
from ltr.models.scorer import FeatureScorer
from ltr.shapes import check_at_least


class AttentionScorer(FeatureScorer):
    """Scores each document in the context of its list, by self-attention.

    The network is an MLP on each document, then self-attention over the list, then the output
    layer, which gives one score for each document.

    A document's score depends on the other documents of its list, but not on their order or on
    padding. So a list must be scored as a whole. A list of one document attends to itself.

    With `points`, documents do not attend to each other directly, but through `points` learned
    vectors: the vectors attend to the documents, then the documents attend to the vectors.
    Use `points` for lists of more than about 1,000 documents.

    Args:
        num_features: d, the number of features. Default: taken from the data (`Scorer.build`).
        hidden: widths of the MLP's layers; `heads` must divide the last width, w.
        heads: the number of attention heads, >= 1.
        blocks: the number of blocks, >= 1. A block is attention, then a hidden layer of 2 w units.
            A layer norm precedes each of the two, and normalizes each document by itself.
        points: the number of learned vectors, >= 1. Default: None, for no such vectors: each
            document attends to all documents of its list.
        dropout: probability of dropping a unit in training, in [0, 1).

    Raises:
        ValueError: an argument is out of range, or `heads` does not divide the last width.

    Cost: for each block and list of n documents, O(n^2 w + n w^2); with p points,
    O(n p w + (n + p) w^2).

    Reference: Pobrotyn et al., "Context-aware learning to rank with self-attention", 2020. Pang et
    al., "SetRank: learning a permutation-invariant ranking model for information retrieval", 2020.
    For `points`: Lee et al., "Set Transformer", 2019, equations 9 and 10.

    >>> scorer = AttentionScorer(num_features=46, hidden=(64, 32), heads=4)
    >>> features, mask = torch.randn(8, 20, 46), torch.arange(20) < 12
    >>> scores = scorer(features, mask.expand(8, 20))
    >>> scores.shape
    torch.Size([8, 20])
    """

    per_document = False
    takes_codes = True

    def __init__(
        self,
        num_features: int | None = None,
        hidden: Sequence[int] = (128, 64),
        heads: int = 4,
        blocks: int = 2,
        points: int | None = None,
        dropout: float = 0.1,
    ):
        MLPScorer(hidden=hidden, dropout=dropout)  # this checks `hidden` and `dropout`
        self.hidden = tuple(map(int, hidden))
        self.heads = check_at_least("heads", heads, 1)
        self.blocks = check_at_least("blocks", blocks, 1)
        self.points = None if points is None else check_at_least("points", points, 1)
        self.dropout = dropout
        if not self.hidden or self.hidden[-1] % heads:
            raise ValueError(
                f"hidden must end in a width that heads={heads} divides, got {hidden!r}"
            )
        super().__init__(num_features)

    def make_layers(self, num_features: int) -> nn.Module:
        """Return the network: features (..., n, d) and mask -> (..., n, 1)."""
        return _Network(self, num_features)

    def score(self, features: Tensor, mask: Tensor | None) -> Tensor:
        """Return the scores (..., n) of features (..., n, d)."""
        layers = self.ready(features)
        # A list without documents attends to its padding, since attention needs at least
        # one item. `sum` replaces `any`, whose ONNX form, a maximum, differs between opsets.
        if mask is not None:
            mask = mask | (mask.sum(-1, keepdim=True) == 0)
        return layers(features, mask).squeeze(-1)


class _Network(nn.Module):
    def __init__(self, options: AttentionScorer, num_features: int):
        super().__init__()
        width = options.hidden[-1]
        self.encoder = nn.Sequential(*hidden_layers(num_features, options.hidden, options.dropout))
        self.blocks = nn.ModuleList(_Block(options, width) for _ in range(options.blocks))
        self.last = nn.Linear(width, 1)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        x = self.encoder(x)
        for block in self.blocks:
            x = block(x, mask)
        return self.last(x)


class _Block(nn.Module):
    """Adds the output of attention to x, then the output of a hidden layer.

    At first both outputs are 0, because the weights of their last layers are 0.
    """

    def __init__(self, options: AttentionScorer, width: int):
        super().__init__()
        self.attention = _Attention(width, options.heads)
        self.points, self.gather = None, None
        if options.points is not None:
            self.points = nn.Parameter(torch.randn(options.points, width) * width**-0.5)
            self.gather = _Attention(width, options.heads)
        self.norm = nn.LayerNorm(width)
        self.layer = nn.Sequential(
            nn.LayerNorm(width),
            nn.Linear(width, 2 * width),
            nn.ReLU(),
            Dropout(options.dropout),
            nn.Linear(2 * width, width),
        )
        self.drop = Dropout(options.dropout)
        for last in (self.attention.last, self.layer[-1]):
            assert isinstance(last, nn.Linear)
            nn.init.zeros_(last.weight)
            nn.init.zeros_(last.bias)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        normed = self.norm(x)
        others = normed
        if self.points is not None and self.gather is not None:
            points = self.points.expand(*x.shape[:-2], *self.points.shape)
            others, mask = points + self.gather(points, normed, mask), None
        x = x + self.drop(self.attention(normed, others, mask))
        return x + self.drop(self.layer(x))


class _Attention(nn.Module):
    """Multi-head attention of queries (..., m, w) to items (..., n, w) with a mask (..., n)."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.last = nn.Linear(width, width)

    def forward(self, queries: Tensor, items: Tensor, mask: Tensor | None) -> Tensor:
        parts = (self.query(queries), self.key(items), self.value(items))
        q, k, v = (x.unflatten(-1, (self.heads, -1)).transpose(-2, -3) for x in parts)
        seen = None if mask is None else mask[..., None, None, :]
        attended = scaled_dot_product_attention(q, k, v, attn_mask=seen)
        return self.last(attended.transpose(-2, -3).flatten(-2))
