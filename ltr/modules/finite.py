"""Stop training at a loss, gradients or weights that are not finite."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any, NoReturn

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor, nn
from torchmetrics import Metric

from ltr.kernels.lists import sum_lists
from ltr.modules.callbacks import SeedSteps

_NAMED = 5  # lists that the message names


class CheckFinite(Callback):
    """Stops the training at the first step whose loss or gradient is not finite.

    The error names the epoch, the step, the lists and the first layer whose output is not finite.
    The batch is saved in the Trainer's `default_root_dir`. `torch.load` reads the file: a dict of
    the `batch`, its `lists`, `epoch`, `step`, `batch_idx` and the `loss`. To find the layer, the
    batch runs once more with the same random numbers.

    Parameters that are not finite are never saved, so the last good checkpoint stays.

    A step costs one read of a number from the device. Under a gradient scaler (precision 16-mixed)
    only the loss is checked, since gradients may overflow there and the scaler skips such steps.
    With manual optimization the check comes at the end of the batch, and the error names no layer.

    The modules of `ltr` add this callback to their Trainer, unless it has one already.

    Raises:
        ValueError: in training, the loss or a gradient is not finite; when a checkpoint is saved,
            a parameter is not finite.
    """

    def __init__(self) -> None:
        self._batch: Any = None
        self._batch_idx = 0
        self._loss: Tensor | None = None

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Keep the batch for the message."""
        self._batch, self._batch_idx, self._loss = batch, batch_idx, None

    def on_before_backward(
        self, trainer: Trainer, pl_module: LightningModule, loss: Tensor
    ) -> None:
        """Keep the loss; with manual optimization, the sum of the batch's losses."""
        loss = loss.detach()
        self._loss = loss if self._loss is None else self._loss + loss

    def on_after_backward(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Check the loss and the gradients."""
        if pl_module.automatic_optimization:
            self._check(trainer, pl_module)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, *args: Any, **kwargs: Any
    ) -> None:
        """Check a batch of manual optimization."""
        if not pl_module.automatic_optimization:
            self._check(trainer, pl_module)
        self._batch = self._loss = None

    def on_save_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Raise `ValueError` if a parameter is not finite."""
        if (name := first_not_finite(pl_module)) is not None:
            raise ValueError(
                f"{name} must be finite to be saved, got NaN or inf after step "
                f"{trainer.global_step} in epoch {trainer.current_epoch + 1}; the checkpoint "
                "before stays as it was"
            )

    def _check(self, trainer: Trainer, module: LightningModule) -> None:
        if self._loss is None:
            return
        bad = ~self._loss.isfinite().all()
        groups = [group for one in trainer.optimizers for group in one.param_groups]
        gradients = [p.grad for group in groups for p in group["params"] if p.grad is not None]
        if getattr(trainer.precision_plugin, "scaler", None) is None:
            bad = bad | ~_largest(gradients).isfinite().to(bad.device)
        # the processes stop together: one that went on would wait for the others
        if trainer.world_size > 1:
            torch.distributed.all_reduce(bad := bad.to(torch.int32))
        if bad:
            self._stop(trainer, module, self._loss)

    def _stop(self, trainer: Trainer, module: LightningModule, loss: Tensor) -> NoReturn:
        cause, found = "", None
        if module.automatic_optimization:
            try:
                found = self._first_layer(trainer, module)
            except Exception as error:  # the message must not be lost for the want of a detail
                cause = f"the batch could not be run again ({type(error).__name__}: {error})"
        here = found is not None or not bool(loss.isfinite().all())
        source, together = 0, trainer.world_size > 1
        if together:  # the process whose own batch failed writes the message
            wrong: list[Any] = [None] * trainer.world_size
            torch.distributed.all_gather_object(wrong, here)
            source = wrong.index(True) if True in wrong else 0
        text = None
        if trainer.global_rank == source:
            said = [cause] if cause else []
            said += [str(found)] if found is not None else [_first_gradient(module)]
            text = self._describe(trainer, module, loss, found, "; ".join(filter(None, said)))
        if together:
            text = trainer.strategy.broadcast(text, src=source)
        raise ValueError(text)

    def _describe(
        self,
        trainer: Trainer,
        module: LightningModule,
        loss: Tensor,
        found: "_Layer | None",
        cause: str,
    ) -> str:
        epoch = trainer.current_epoch + 1
        step = trainer.global_step + int(module.automatic_optimization)
        lists, names = _lists(self._batch, None if found is None else found.rows)
        path = Path(trainer.default_root_dir) / f"not-finite-epoch{epoch}-step{step}.pt"
        content = {
            "batch": _plain(self._batch),
            "lists": names,
            "epoch": epoch,
            "step": step,
            "batch_idx": self._batch_idx,
            "loss": loss.detach().cpu(),
        }
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            torch.save(content, path)
            saved = f"the batch is saved in {path}"
        except (OSError, RuntimeError) as error:
            saved = f"the batch could not be saved in {path}: {error}"
        if bool(loss.isfinite().all()):
            what = "gradients must be finite, got NaN or inf"
        else:
            what = f"loss must be finite, got {loss.sum().item()}"
        return f"{what} in epoch {epoch}, step {step}, {lists}; {cause}; {saved}"

    def _first_layer(self, trainer: Trainer, module: LightningModule) -> "_Layer | None":
        """Run the batch again, and return the first layer whose output is not finite."""
        found: list[_Layer] = []
        handles = []

        def look(name: str, layer: nn.Module, inputs: Any, output: Any) -> None:
            if not found and (wrong := _not_finite(output)) is not None:
                fresh = _not_finite(inputs) is None
                rows = wrong_lists(self._batch, wrong)
                found.append(_Layer(name, type(layer).__name__, fresh, rows))

        for name, layer in module.named_modules():
            if name and not isinstance(layer, Metric):
                hook = lambda *args, name=name: look(name, *args)  # noqa: E731
                handles.append(layer.register_forward_hook(hook))
        try:
            for callback in trainer.callbacks:  # type: ignore[attr-defined]
                if isinstance(callback, SeedSteps):
                    callback.on_train_batch_start(trainer, module, self._batch, self._batch_idx)
            precision = trainer.precision_plugin.train_step_context()
            with torch.compiler.set_stance("force_eager"), torch.enable_grad(), precision:
                module.training_step(self._batch, self._batch_idx)
        finally:
            for handle in handles:
                handle.remove()
        return found[0] if found else None


@dataclass
class _Layer:
    name: str
    kind: str
    fresh: bool  # its input was finite
    rows: Tensor | None  # (B,) bool: the lists of the batch whose output is not finite

    def __str__(self) -> str:
        given = "" if self.fresh else ", as its input is not"
        return f"the first layer that is not finite is {self.name} ({self.kind}){given}"


def first_not_finite(module: nn.Module) -> str | None:
    """Return the name of the first parameter that is not finite, or None.

    >>> layer = nn.Linear(2, 1)
    >>> layer.bias.data.fill_(float("nan"))
    tensor([nan])
    >>> first_not_finite(layer)
    'bias'
    """
    parameters = {name: p.detach() for name, p in module.named_parameters()}
    if _largest(parameters.values()).isfinite():
        return None
    return next(name for name, p in parameters.items() if not p.isfinite().all())


def _largest(tensors: Any) -> Tensor:
    """Return the largest absolute value of tensors, which is not finite if any value is not.

    The squares in a Euclidean norm could overflow.
    """
    dense = [t.coalesce().values() if t.is_sparse else t for t in tensors]
    norms = [torch.linalg.vector_norm(t, inf) for t in dense if t.numel()]
    return torch.stack(norms).amax() if norms else torch.zeros(())


def _first_gradient(module: nn.Module) -> str:
    """Return a text that names the first parameter, from the loss back, with a bad gradient."""
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
    """Return the first tensor in `value` that is not finite."""
    for tensor in _tensors(value):
        if tensor.is_floating_point() and not tensor.isfinite().all():
            return tensor.detach()
    return None


def wrong_lists(batch: Any, output: Tensor) -> Tensor | None:
    """Return the lists (B,) bool of which a layer's output is not finite; None if unknown."""
    lengths = batch.get("lengths") if isinstance(batch, dict) else None
    if lengths is not None and output.dim() and len(output) == int(lengths.sum()):
        documents = ~output.isfinite().reshape(len(output), -1).all(1)
        return sum_lists(documents.float(), lengths) > 0
    if output.dim() > 1 and len(output) == _size(batch):
        return ~output.isfinite().flatten(1).all(1)
    return None


def _size(batch: Any) -> int:
    """Return the number of lists of a batch, including empty ones that fill it up."""
    if isinstance(batch, dict) and "lengths" in batch:
        return len(batch["lengths"])
    return next((len(tensor) for tensor in _tensors(batch) if tensor.dim()), 0)


def _lists(batch: Any, rows: Tensor | None) -> tuple[str, list[Any]]:
    """Return the lists in words, and their names: qids, or places in the batch if it has none."""
    size = _size(batch)
    batch = batch if isinstance(batch, dict) else {}
    mask = batch.get("mask")
    real = torch.ones(size, dtype=torch.bool)
    if "lengths" in batch:
        real = batch["lengths"].cpu() > 0
    elif isinstance(mask, Tensor) and len(mask) == size:
        real = mask.flatten(1).any(1).cpu()
    chosen = real if rows is None else rows.cpu() & real
    places = (chosen if chosen.any() else real).nonzero().flatten().tolist()
    qids = batch.get("qid")
    named = isinstance(qids, list) and len(qids) == size
    names = [qids[i] for i in places] if isinstance(qids, list) and named else places
    shown = ", ".join(map(str, names[:_NAMED])) + ", ..." * (len(names) > _NAMED)
    kind = "qid" if named else "place in the batch"
    return f"{len(names)} of {int(real.sum())} lists ({kind} {shown})", names


def _plain(value: Any) -> Any:
    """Return `value` with only tensors and plain values, so that `weights_only=True` reads it."""
    if isinstance(value, Tensor):
        return value.detach().cpu()
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value if value is None or isinstance(value, bool | int | float | str) else repr(value)
