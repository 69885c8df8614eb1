"""Every rank operator can be named in a configuration, its arguments set, printed and read back."""

import inspect
from pathlib import Path
from typing import Any

import pytest
import yaml

import ltr.operators
from ltr.config import from_config
from ltr.operators import HardRank, RankOperator, SortOperator

# what is set beside the defaults; a new operator needs no line here
ARGUMENTS = {
    "IsotonicRank": {"temperature": 0.5, "regularization": "kl"},
    "SinkhornSort": {"epsilon": 0.05, "milestones": [0.9, 0.5, 0.1], "cost": 1.5},
    "SoftRank": {"temperature": 0.5, "distribution": "exact"},
    "SoftSort": {"temperature": 0.5, "power": 2.0},
    "SortingNetwork": {"network": "bitonic", "distribution": "cauchy"},
    "Stochastic": {"operator": {"class_path": "ltr.operators.LapSum"}, "samples": 2},
    "StraightThrough": {"operator": {"class_path": "ltr.operators.NeuralSort"}},
}
# Three commands for each operator; all are trained in tests/losses, without the command line.
SLOW = [pytest.mark.slow]
OPERATORS = [
    name
    for name, cls in vars(ltr.operators).items()
    if inspect.isclass(cls)
    and issubclass(cls, RankOperator)
    and cls not in (RankOperator, SortOperator, HardRank)  # HardRank has no gradient to train by
]


def printed(ltr, name: str) -> str:
    """The configuration of a run with an operator and its arguments."""
    layer = {"model": {"init_args": {"loss": {"init_args": {"operator": {"class_path": name}}}}}}
    operator = layer["model"]["init_args"]["loss"]["init_args"]["operator"]
    operator["init_args"] = ARGUMENTS.get(name, {})
    Path("operator.yaml").write_text(yaml.safe_dump(layer))
    layers = ["--config", "tiny.yaml", "--config", "operator.yaml"]
    answer = ltr("fit", *layers, "--print_config")
    assert answer.code == 0, answer.err
    return answer.out


def operator_of(text: str) -> dict[str, Any]:
    """The operator in a printed configuration."""
    return yaml.safe_load(text)["model"]["init_args"]["loss"]["init_args"]["operator"]


@pytest.mark.parametrize("name", [*OPERATORS, "HardRank"])
def test_every_operator_is_named_set_and_made(ltr, name):
    operator = operator_of(printed(ltr, name))
    assert operator["class_path"] == f"ltr.operators.{name}"
    expected = ARGUMENTS.get(name, {})
    found = {argument: operator["init_args"][argument] for argument in expected}
    if "operator" in found:  # printed with its defaults
        found["operator"] = {"class_path": found["operator"]["class_path"]}
    assert found == expected
    made = from_config(operator, RankOperator)
    assert type(made).__name__ == name


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n == "Stochastic" else SLOW) for n in OPERATORS]
)
def test_every_operator_trains_a_step_and_is_read_back(ltr, name):
    first = printed(ltr, name)
    Path("printed.yaml").write_text(first)
    assert ltr("fit", "--config", "printed.yaml", "--print_config").out == first
    one_step = ["--trainer.max_epochs", "1", "--trainer.limit_train_batches", "1"]
    answer = ltr("fit", "--config", "printed.yaml", *one_step)
    assert answer.code == 0, answer.err


def test_an_operator_is_named_on_the_command_line(ltr):
    option = ["--model.loss.operator.class_path", "LapSum"]
    answer = ltr("fit", "--config", "tiny.yaml", *option, "--print_config")
    assert answer.code == 0, answer.err
    assert operator_of(answer.out)["class_path"] == "ltr.operators.LapSum"
