"""The speed comparison: sort random scores by gradient descent, through several operators."""

import re
from collections.abc import Mapping
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule
from torch import Tensor, nn

from ltr.metrics.functional import spearman
from ltr.modules import CheckFinite, SeedSteps
from ltr.operators import NeuralSort, SoftSort, SortOperator
from ltr.shapes import check_number, check_whole
from recipes.speed.random_scores import RandomScoresDataModule
from recipes.speed.step_cost import StepCost


def sorting_loss(
    theta: Tensor, operator: SortOperator, order: Tensor, *, weight_decay: float = 0.01
) -> Tensor:
    """Return the mean of -log P[i, order_i] plus |theta|^2 weight_decay / 2.

    Each list is scaled to [0, 1] by its minimum and maximum, which count as constants. P is the
    operator's permutation of the scaled list; only its `log_prob` is used.

    Args:
        theta: (lists, n), the parameters.
        operator: any `SortOperator` with a row for each item.
        order: (lists, n) int64: item `order[..., i]` belongs at position i.
        weight_decay: factor of the decay; the published 0.01 means |theta|^2 / 200.

    Returns:
        A scalar. A list of equal values gives NaN. Cost: the operator's.

    Reference: Prillo and Eisenschlos, ICML 2020, section 5.5. Their code has mean(1 - log P) and
    leaves the decay to the optimizer; the gradient is the same.

    >>> theta = torch.tensor([[1.0, -1.0]])  # scores 1 and 0, in order: log(1 + exp(-1 / 0.1))
    >>> sorting_loss(theta, SoftSort(0.1), torch.tensor([[0, 1]]), weight_decay=0.0)
    tensor(4.5418e-05)
    """
    low, high = theta.detach().aminmax(dim=-1, keepdim=True)
    P = operator.permutation((theta - low) / (high - low))
    log_p = P.log_prob(order.expand(P.scores.shape))
    return theta.square().sum() * (weight_decay / 2) - log_p.mean()


class SpeedTask(LightningModule):
    """Sorts random scores by momentum SGD, each operator its own copy, and measures every step.

    The operators take turns: in each training step every operator takes one step. So whatever slows
    the machine slows all of them, and ratios of their times compare runs side by side. A step sets
    the gradients to None, computes `sorting_loss`, runs backward, and steps the optimizer.

    The scores come from the data module, a `RandomScoresDataModule`, the same for each operator.

    Logged each epoch, for an operator NAME: `train_loss_NAME` before the step; after it
    `val_spearman_NAME`, Spearman's rho of the scores with the order; and `val_ms_NAME` and
    `val_cpu_ms_NAME`, milliseconds of the step in wall time and in processor time. A test logs
    from the checkpoint: `test_spearman_NAME`, `test_loss_NAME` (of the last step),
    `test_steps_NAME`, the medians `test_ms_NAME` and `test_cpu_ms_NAME`, `test_mb_NAME` (see
    `peak_memory`; in 10^6 bytes), and for each baseline `test_NAME_to_BASELINE`, the ratio of
    NAME's time to the baseline's: in processor time for one thread on a CPU, else in wall time. A
    first step is not timed (see `StepCost`).

    Args:
        operators: by name, of letters, digits and _. Default: `neuralsort`, `NeuralSort(100)`,
            and `softsort`, `SoftSort(0.1, power=2)`.
        steps: at most how many steps the operators of these names take; the others take all.
        steps_above: `steps` applies to lists longer than this.
        baselines: names of operators whose times divide the others'. Default: none.
        lr: learning rate of SGD.
        momentum: momentum of SGD.
        weight_decay: factor of the decay in the loss, see `sorting_loss`.

    Raises:
        ValueError: there is no operator, a name is malformed or unknown, or a number is out of
            range; in training, the data module is another.

    Reference: Prillo and Eisenschlos, ICML 2020, section 5.5.

    >>> SpeedTask({"softsort": SoftSort(0.1)}, steps={"neuralsort": 3})
    Traceback (most recent call last):
    ValueError: steps must be of softsort, got 'neuralsort'
    """

    def __init__(
        self,
        operators: dict[str, SortOperator] | None = None,
        steps: dict[str, int] | None = None,
        steps_above: int = 0,
        baselines: list[str] | None = None,
        lr: float = 10.0,
        momentum: float = 0.5,
        weight_decay: float = 0.01,
    ):
        super().__init__()
        _check_names(operators, steps, baselines)
        self.automatic_optimization = False
        chosen = _default_operators() if operators is None else operators
        self.operators = nn.ModuleDict(chosen)
        self.steps = {name: check_whole(f"steps.{name}", k) for name, k in (steps or {}).items()}
        self.steps_above = int(check_number("steps_above", steps_above, minimum=0))
        self.baselines = list(baselines or [])
        self.lr = check_number("lr", lr, minimum=0.0)
        self.momentum = check_number("momentum", momentum, minimum=0.0)
        self.weight_decay = check_number("weight_decay", weight_decay, minimum=0.0)
        self.theta = nn.ParameterDict()
        self.costs = {name: StepCost() for name in self.operators}
        self.losses: dict[str, float] = {}

    def forward(self, name: str) -> Tensor:
        """Return the current scores (lists, n) of an operator."""
        return self.theta[name]

    def setup(self, stage: str) -> None:
        """Take a copy of the data module's scores for each operator."""
        data = getattr(self.trainer, "datamodule", None)
        if not isinstance(data, RandomScoresDataModule):
            raise ValueError(f"data must be a RandomScoresDataModule, got {type(data).__name__}")
        for name in self.operators:
            if name not in self.theta:
                self.theta[name] = nn.Parameter(data.start)

    def training_step(self, batch: dict[str, Tensor], batch_idx: int) -> None:
        """Take one step through each operator that has steps left."""
        optimizers, order = self.optimizers(), batch["order"]
        optimizers = optimizers if isinstance(optimizers, list) else [optimizers]
        limits = self.steps if order.shape[-1] > self.steps_above else {}
        for optimizer, (name, operator) in zip(optimizers, self.operators.items(), strict=True):
            if name not in limits or self.costs[name].steps < limits[name]:
                self._step(name, operator, optimizer, order)
        losses = {f"train_loss_{name}": loss for name, loss in self.losses.items()}
        self.log_dict(losses, on_step=False, on_epoch=True)
        mean = sum(self.losses.values()) / len(self.losses)
        self.log("train_loss", mean, on_step=False, on_epoch=True, prog_bar=True)

    def _step(self, name: str, operator: Any, optimizer: Any, order: Tensor) -> None:
        theta, kept = self.theta[name], []

        def step() -> None:
            optimizer.zero_grad()
            loss = sorting_loss(theta, operator, order, weight_decay=self.weight_decay)
            self.manual_backward(loss)
            optimizer.step()
            kept.append(loss.detach())

        self.costs[name].add(step, theta.device)
        self.losses[name] = kept[0].item()

    def validation_step(self, batch: dict[str, Tensor], batch_idx: int) -> None:
        """Log Spearman's rho of each operator's scores, and the cost of its last step."""
        found = self._spearman("val", batch["order"])
        for name, cost in self.costs.items():
            if cost.wall:
                found[f"val_ms_{name}"] = 1e3 * cost.wall[-1]
                found[f"val_cpu_ms_{name}"] = 1e3 * cost.cpu[-1]
        self.log_dict(found)

    def test_step(self, batch: dict[str, Tensor], batch_idx: int) -> None:
        """Log the medians and the ratios."""
        found = self._spearman("test", batch["order"])
        by_processor = self.device.type == "cpu" and torch.get_num_threads() == 1
        for name, cost in self.costs.items():
            found[f"test_steps_{name}"] = float(cost.steps)
            if name in self.losses:
                found[f"test_loss_{name}"] = self.losses[name]
            if cost.memory is not None:
                found[f"test_mb_{name}"] = cost.memory / 1e6
            seconds, cpu = cost.seconds(), cost.seconds(by_processor=True)
            if seconds is None or cpu is None:
                continue
            found[f"test_ms_{name}"], found[f"test_cpu_ms_{name}"] = 1e3 * seconds, 1e3 * cpu
            for other in self.baselines:
                base = self.costs[other].seconds(by_processor)
                if other != name and base:
                    ratio = (cpu if by_processor else seconds) / base
                    found[f"test_{name}_to_{other}"] = ratio
        self.log_dict(found)

    def _spearman(self, stage: str, order: Tensor) -> dict[str, Any]:
        positions = torch.arange(order.shape[-1] - 1, -1, -1, device=order.device)
        labels = torch.empty_like(order).scatter(-1, order, positions.expand_as(order))
        return {
            f"{stage}_spearman_{name}": spearman(theta.detach(), labels.to(theta.dtype))
            for name, theta in self.theta.items()
        }

    def configure_optimizers(self) -> list[torch.optim.Optimizer]:
        """Return an SGD optimizer for each operator."""
        return [
            torch.optim.SGD([theta], lr=self.lr, momentum=self.momentum)
            for theta in self.theta.values()
        ]

    def configure_callbacks(self) -> list[Callback]:
        """Return those of `SeedSteps` and `CheckFinite` that the Trainer lacks."""
        present = {type(callback) for callback in getattr(self.trainer, "callbacks", [])}
        return [kind() for kind in (SeedSteps, CheckFinite) if kind not in present]

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add the costs and losses."""
        checkpoint["costs"] = {name: cost.state() for name, cost in self.costs.items()}
        checkpoint["losses"] = dict(self.losses)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Restore the costs and losses, and make the parameters that the state has values for."""
        for name in self.operators:
            value = checkpoint["state_dict"].get(f"theta.{name}")
            if name not in self.theta and value is not None:
                self.theta[name] = nn.Parameter(torch.empty_like(value))
        for name, state in checkpoint["costs"].items():
            self.costs[name] = StepCost(**state)
        self.losses = dict(checkpoint["losses"])


def _default_operators() -> dict[str, SortOperator]:
    return {"neuralsort": NeuralSort(100.0), "softsort": SoftSort(0.1, power=2)}


def _check_names(operators: Any, steps: Any, baselines: Any) -> None:
    if operators is not None and (not operators or not isinstance(operators, Mapping)):
        raise ValueError(f"operators must be a dict of operators by name, got {operators!r}")
    chosen = _default_operators() if operators is None else operators
    names = list(chosen)
    for name, operator in chosen.items():
        # a name becomes an attribute of torch's containers, too
        if re.fullmatch(r"\w+", name) is None or hasattr(nn.ModuleDict, name):
            raise ValueError(f"operators must have names of letters, digits and _, got {name!r}")
        if not isinstance(operator, SortOperator):
            raise ValueError(f"operators.{name} must be a SortOperator, got {operator!r}")
    for argument, given in (("steps", steps), ("baselines", baselines)):
        for name in given or ():
            if name not in names:
                raise ValueError(f"{argument} must be of {', '.join(names)}, got {name!r}")
