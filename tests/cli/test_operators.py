"""Every rank operator can be named in a configuration, its arguments set, printed and read back."""

import inspect
from pathlib import Path

import pytest
import yaml

import ltr.operators
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
OPERATORS = [
    name
    for name, cls in vars(ltr.operators).items()
    if inspect.isclass(cls)
    and issubclass(cls, RankOperator)
    and cls not in (RankOperator, SortOperator, HardRank)  # HardRank has no gradient to train by
]


@pytest.mark.parametrize("name", OPERATORS)
def test_every_operator_trains_a_step_and_is_read_back(ltr, name):
    loss = {"operator": {"class_path": name, "init_args": ARGUMENTS.get(name, {})}}
    layer = {"model": {"init_args": {"loss": {"init_args": loss}}}}
    Path("operator.yaml").write_text(yaml.safe_dump(layer))
    layers = ["--config", "tiny.yaml", "--config", "operator.yaml"]
    first = ltr("fit", *layers, "--print_config")
    assert first.code == 0, first.err
    operator = yaml.safe_load(first.out)["model"]["init_args"]["loss"]["init_args"]["operator"]
    assert operator["class_path"] == f"ltr.operators.{name}"
    expected = ARGUMENTS.get(name, {})
    found = {argument: operator["init_args"][argument] for argument in expected}
    if "operator" in found:  # printed with its defaults
        found["operator"] = {"class_path": found["operator"]["class_path"]}
    assert found == expected
    Path("printed.yaml").write_text(first.out)
    assert ltr("fit", "--config", "printed.yaml", "--print_config").out == first.out
    one_step = ["--trainer.max_epochs", "1", "--trainer.limit_train_batches", "1"]
    answer = ltr("fit", "--config", "printed.yaml", *one_step)
    assert answer.code == 0, answer.err


@pytest.mark.parametrize("name", [*OPERATORS, "HardRank"])
def test_every_operator_can_be_named_on_the_command_line(ltr, name):
    option = ["--model.loss.operator.class_path", name]
    answer = ltr("fit", "--config", "digits/smoke", *option, "--print_config")
    assert answer.code == 0, answer.err
    operator = yaml.safe_load(answer.out)["model"]["init_args"]["loss"]["init_args"]["operator"]
    assert operator["class_path"] == f"ltr.operators.{name}"
