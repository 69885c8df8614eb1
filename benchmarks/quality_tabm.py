"""TabM as a ranker, for the table of `quality.py`: members that share their matrices.

Y. Gorishniy, A. Kotelnikov, A. Babenko: TabM: Advancing Tabular Deep Learning with
Parameter-Efficient Ensembling. ICLR 2025. Each member i has vectors r_i, s_i and b_i at every
hidden layer, l_i(x) = s_i * (W (r_i * x)) + b_i, and an output layer of its own. W is shared. Each
member's scores have their own loss; the loss that is minimized is the mean.
"""

import copy

import numpy as np
import torch
from torch import Tensor, nn

from ltr.datasets import PiecewiseLinearBins, TableTransform
from ltr.losses import XENDCG
from ltr.metrics.functional import ndcg
from ltr.models.dropout import Dropout


class SharedLinear(nn.Module):
    """The linear layers of all members: (members, N, width) -> (members, N, out)."""

    def __init__(self, members: int, width: int, out: int, *, first: bool) -> None:
        super().__init__()
        self.shared = nn.Linear(width, out, bias=False)
        inner = torch.randint(0, 2, (members, 1, width)) * 2.0 - 1 if first else None
        self.inner = nn.Parameter(torch.ones(members, 1, width) if inner is None else inner)
        self.outer = nn.Parameter(torch.ones(members, 1, out))
        bound = width**-0.5
        self.bias = nn.Parameter(torch.empty(members, 1, out).uniform_(-bound, bound))

    def forward(self, x: Tensor) -> Tensor:
        """Return (members, N, out) of (1 or members, N, width)."""
        return self.shared(x * self.inner) * self.outer + self.bias


class TabMNet(nn.Module):
    """Scores of all members: (N, width) -> (members, N)."""

    def __init__(self, members: int, width: int, hidden: tuple[int, ...], dropout: float) -> None:
        super().__init__()
        widths = (width, *hidden)
        layers: list[nn.Module] = []
        for position, out in enumerate(hidden):
            layers += [
                SharedLinear(members, widths[position], out, first=position == 0),
                nn.ReLU(),
                Dropout(dropout),
            ]
        self.layers = nn.Sequential(*layers)
        bound = widths[-1] ** -0.5
        self.head = nn.Parameter(torch.empty(members, widths[-1], 1).uniform_(-bound, bound))

    def forward(self, x: Tensor) -> Tensor:
        """Return the scores."""
        return torch.bmm(self.layers(x[None]), self.head).squeeze(-1)


class TabMRanker:
    """TabM on bins with XENDCG, stopped by NDCG@10 on the validation lists, as our ranker is.

    Args:
        rate: learning rate of AdamW.
        seed: of the weights, the order of the lists and the noise of the loss.
        members: k of the paper.
    """

    def __init__(self, rate: float, seed: int, members: int = 16) -> None:
        self.rate, self.seed, self.members = rate, seed, members
        self.hidden, self.dropout, self.decay = (128, 64), 0.1, 1e-2
        self.batch, self.epochs = 64, 200

    def fit(
        self, X: np.ndarray, y: np.ndarray, *, qid: np.ndarray, eval_set: list, eval_qid: list
    ) -> "TabMRanker":
        """Train on sorted lists, and keep the weights of the best epoch."""
        torch.manual_seed(self.seed)
        self.transform = TableTransform(PiecewiseLinearBins(8)).fit(X.astype(np.float32))
        x, labels, lengths = self._tensors(X, y, qid)
        self.net = TabMNet(self.members, x.shape[1], self.hidden, self.dropout)
        optimizer = torch.optim.AdamW(
            self.net.parameters(), lr=self.rate, weight_decay=self.decay, fused=True
        )
        loss = XENDCG(gamma="random")
        parts = list(zip(x.split(lengths.tolist()), labels.split(lengths.tolist()), strict=True))
        steps = -(-len(parts) // self.batch)
        patience = max(3, -(-40 // steps))  # what our ranker takes
        best, best_state, best_epoch = -1.0, copy.deepcopy(self.net.state_dict()), 0
        for epoch in range(self.epochs):
            self.net.train()
            for positions in torch.randperm(len(parts)).split(self.batch):
                features, grades = (torch.cat([parts[i][j] for i in positions]) for j in (0, 1))
                scores = self.net(features)
                optimizer.zero_grad()
                loss(
                    scores.flatten(),
                    grades.repeat(self.members),
                    lengths=lengths[positions].repeat(self.members),
                ).backward()
                optimizer.step()
            value = self._quality(eval_set[0][0], eval_set[0][1], eval_qid[0])
            if value > best:
                best, best_state, best_epoch = value, copy.deepcopy(self.net.state_dict()), epoch
            elif epoch - best_epoch >= patience:
                break
        self.net.load_state_dict(best_state)
        return self

    def predict(self, X: np.ndarray, qid: np.ndarray | None = None) -> np.ndarray:
        """Return the mean of the members' scores, one number per row."""
        self.net.eval()
        with torch.no_grad():
            rows = self.transform(torch.from_numpy(X.astype(np.float32)))
            return torch.cat([self.net(some).mean(0) for some in rows.split(4096)]).numpy()

    def _tensors(self, X: np.ndarray, y: np.ndarray, qid: np.ndarray) -> tuple[Tensor, ...]:
        x = self.transform(torch.from_numpy(X.astype(np.float32)))
        return x, torch.from_numpy(y.astype(np.float32)), torch.from_numpy(np.bincount(qid))

    def _quality(self, X: np.ndarray, y: np.ndarray, qid: np.ndarray) -> float:
        labels, lengths = torch.from_numpy(y.astype(np.float32)), torch.from_numpy(np.bincount(qid))
        return float(ndcg(torch.from_numpy(self.predict(X)), labels, lengths=lengths, top_k=10))
