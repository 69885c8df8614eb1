"""Checks of scores and gradients in training, and their messages."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ltr.ragged import list_ids, sum_lists

_NAMED = 5  # a message names at most this many lists


def check_scores(
    scores: Tensor,
    batch: dict[str, Any],
    *,
    finite: bool = False,
    learning_rate: float | None = None,
) -> None:
    """Raise an error that names the list if a score of a real document is NaN.

    The check waits for the device, as metrics do.

    Args:
        scores: (N,) if the batch has `lengths`, else (B, n).
        batch: the batch that has these scores: `features` (N, ...) with `lengths` (B,), or
            `features` (B, n, ...) with `mask` (B, n); and `qid` if the lists have names.
        finite: whether an infinite score is an error too.
        learning_rate: the learning rate of the training, for the message; None if it is unknown.

    Raises:
        ValueError: a score is NaN or, with `finite`, infinite. The message says whether the list's
            features are finite, and so whether the data or the model is the cause. A model may have
            diverged, so the message then names the learning rate.

    >>> batch = {"features": torch.ones(2, 1, 3), "qid": ["a", "b"]}
    >>> check_scores(torch.tensor([[0.5], [float("nan")]]), batch)
    Traceback (most recent call last):
    ValueError: scores must not be NaN, got 1 of 1 in list 'b'; its features are finite, so the \
model is the cause: if training diverged, a smaller learning rate helps
    """
    mask, lengths = batch.get("mask"), batch.get("lengths")
    bad = ~scores.isfinite() if finite else scores.isnan()
    if mask is not None:
        bad = bad & mask
    if not bool(bad.any()):
        return
    if lengths is None:
        row = int(bad.any(-1).nonzero()[0])
        own = torch.zeros_like(bad)
        own[row] = True if mask is None else mask[row]
    else:
        ids = list_ids(scores, lengths)
        row = int(ids[bad][0])
        own = ids == row
    name = f"list {batch['qid'][row]!r}" if "qid" in batch else f"list {row} of the batch"
    cause = ""
    if isinstance(features := batch.get("features"), Tensor):
        missing = int((~features[own].isfinite()).sum())
        cause = f"; its features are finite, so the model is the cause: {_advice(learning_rate)}"
        if missing:
            cause = f"; {missing} of its features are not finite"
    wanted = "be finite" if finite else "not be NaN"
    count = f"{int((bad & own).sum())} of {int(own.sum())}"
    raise ValueError(f"scores must {wanted}, got {count} in {name}{cause}")


def all_finite(loss: Tensor, gradients: Any = ()) -> Tensor:
    """Return whether a loss and gradients are finite: a bool tensor on the loss's device.

    >>> bool(all_finite(torch.tensor(1.0), [torch.ones(2), torch.tensor([0.0, float("nan")])]))
    False
    """
    good = loss.isfinite().all()
    return good & _largest(gradients).isfinite().to(good.device)


def _advice(learning_rate: float | None) -> str:
    used = "" if learning_rate is None else f" than {learning_rate:g}"
    return f"if training diverged, a smaller learning rate{used} helps"


@dataclass
class FailedStep:
    """A training step whose loss or gradients are not finite, and what is known about the cause.

    Args:
        batch: the batch of the step.
        loss: the loss of the step.
        epoch: the epoch, counted from 1.
        step: the step, counted from 1 over the whole training run.
        batch_idx: the index of the batch within the epoch, from 0.

    Attributes:
        cause: the cause in words; empty if nothing is known.
        rows: (B,) bool, the lists of the batch whose output is not finite; None if unknown.
        found: whether a layer whose output is not finite was found.
    """

    batch: Any
    loss: Tensor
    epoch: int
    step: int
    batch_idx: int
    cause: str = ""
    rows: Tensor | None = None
    found: bool = False

    def find_layer(self, module: nn.Module, run: Callable[[], Any]) -> None:
        """Run the step again, and name in `cause` the first layer whose output is not finite.

        Args:
            module: the module with the layers.
            run: a function that computes the loss of the batch with the random numbers of the step.
        """
        from torchmetrics import Metric

        handles = []

        def look(name: str, layer: nn.Module, inputs: Any, output: Any) -> None:
            if not self.found and (wrong := _not_finite(output)) is not None:
                self.found, self.rows = True, wrong_lists(self.batch, wrong)
                given = "" if _not_finite(inputs) is None else ", as its input is not"
                kind = type(layer).__name__
                self.cause = f"the first layer that is not finite is {name} ({kind}){given}"

        for name, layer in module.named_modules():
            if name and not isinstance(layer, Metric):
                hook = lambda *args, name=name: look(name, *args)  # noqa: E731
                handles.append(layer.register_forward_hook(hook))
        try:
            with torch.compiler.set_stance("force_eager"), torch.enable_grad():
                run()
        except Exception as error:  # the report is still made, without this detail
            said = f"the batch could not be run again ({type(error).__name__}: {error})"
            self.cause = "; ".join(filter(None, [said, self.cause]))
        finally:
            for handle in handles:
                handle.remove()

    def find_gradient(self, module: nn.Module) -> None:
        """If no layer was found, name in `cause` the bad gradient that is nearest to the loss."""
        if not self.found:
            self.cause = "; ".join(filter(None, [self.cause, _first_gradient(module)]))

    def report(self, folder: str | Path, learning_rate: float | None = None) -> str:
        """Return a description of the problem, and save the batch in a folder.

        The description names the learning rate, unless a feature of the batch is not finite.

        `torch.load` reads the file, a dict with the keys `batch`, `lists` (the names of the bad
        lists, or of all lists if these are unknown), `epoch`, `step`, `batch_idx` and `loss`.
        """
        lists, names = _lists(self.batch, self.rows)
        path = Path(folder) / f"not-finite-epoch{self.epoch}-step{self.step}.pt"
        content = {
            "batch": _plain(self.batch),
            "lists": names,
            "epoch": self.epoch,
            "step": self.step,
            "batch_idx": self.batch_idx,
            "loss": self.loss.detach().cpu(),
        }
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            torch.save(content, path)
            saved = f"the batch is saved in {path}"
        except (OSError, RuntimeError) as error:
            saved = f"the batch could not be saved in {path}: {error}"
        if bool(self.loss.isfinite().all()):
            what = "gradients must be finite, got NaN or inf"
        else:
            what = f"loss must be finite, got {self.loss.sum().item()}"
        position = f"epoch {self.epoch}, step {self.step}, {lists}"
        parts = [f"{what} in {position}", self.cause, saved]
        features = self.batch.get("features") if isinstance(self.batch, dict) else None
        if features is None or _not_finite(features) is None:
            parts.insert(2, _advice(learning_rate))
        return "; ".join(parts)


def _largest(tensors: Any) -> Tensor:
    """Return the largest absolute value of tensors; it is not finite if any value is not.

    This is the maximum norm, because the squares in a Euclidean norm could overflow.
    """
    dense = [t.coalesce().values() if t.is_sparse else t for t in tensors]
    norms = [torch.linalg.vector_norm(t, inf) for t in dense if t.numel()]
    return torch.stack(norms).amax() if norms else torch.zeros(())


def _first_gradient(module: nn.Module) -> str:
    """Return a text about the gradients that are not finite, with the one nearest to the loss."""
    with_gradient = [(n, p.grad) for n, p in module.named_parameters() if p.grad is not None]
    wrong = [name for name, gradient in with_gradient if not gradient.isfinite().all()]
    if not wrong:
        return "every layer and every gradient is finite"
    return (
        f"every layer is finite, but the gradients of {len(wrong)} of {len(with_gradient)} "
        f"parameters are not; from the loss back {wrong[-1]} is the first"
    )


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from _tensors(one)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _tensors(one)


def _not_finite(value: Any) -> Tensor | None:
    """Return the first tensor in `value` that is not finite, or None."""
    for tensor in _tensors(value):
        if tensor.is_floating_point() and not tensor.isfinite().all():
            return tensor.detach()
    return None


def wrong_lists(batch: Any, output: Tensor) -> Tensor | None:
    """Return the lists (B,) bool for which a layer's output is not finite; None if unknown."""
    lengths = batch.get("lengths") if isinstance(batch, dict) else None
    if lengths is not None and output.dim() and len(output) == int(lengths.sum()):
        documents = ~output.isfinite().reshape(len(output), -1).all(1)
        return sum_lists(documents.float(), lengths) > 0
    if output.dim() > 1 and len(output) == _size(batch):
        return ~output.isfinite().flatten(1).all(1)
    return None


def _size(batch: Any) -> int:
    """Return the number of lists of a batch, including empty lists that fill the batch."""
    if isinstance(batch, dict) and "lengths" in batch:
        return len(batch["lengths"])
    return next((len(tensor) for tensor in _tensors(batch) if tensor.dim()), 0)


def _lists(batch: Any, rows: Tensor | None) -> tuple[str, list[Any]]:
    """Return a text on the lists selected by `rows`, and their qids, or else indices."""
    size = _size(batch)
    batch = batch if isinstance(batch, dict) else {}
    mask = batch.get("mask")
    real = torch.ones(size, dtype=torch.bool)
    if "lengths" in batch:
        real = batch["lengths"].cpu() > 0
    elif isinstance(mask, Tensor) and len(mask) == size:
        real = mask.flatten(1).any(1).cpu()
    chosen = real if rows is None else rows.cpu() & real
    positions = (chosen if chosen.any() else real).nonzero().flatten().tolist()
    qids = batch.get("qid")
    named = isinstance(qids, list) and len(qids) == size
    names = [qids[i] for i in positions] if isinstance(qids, list) and named else positions
    shown = ", ".join(map(str, names[:_NAMED])) + ", ..." * (len(names) > _NAMED)
    kind = "qid" if named else "position in the batch"
    return f"{len(names)} of {int(real.sum())} lists ({kind} {shown})", names


def _plain(value: Any) -> Any:
    """Return `value` reduced to tensors and plain values, so that `weights_only=True` reads it."""
    if isinstance(value, Tensor):
        return value.detach().cpu()
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value if value is None or isinstance(value, bool | int | float | str) else repr(value)
