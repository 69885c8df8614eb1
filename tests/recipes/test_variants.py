"""The variants of the tables train as the papers say, not by what a layer below left over."""

import random
from importlib import import_module
from typing import Any

import pytest
import yaml

from recipes.sweep import Run


def settings(ltr, name: str, run: Run) -> dict[str, Any]:
    """All that `ltr fit` is given for a run of a sweep, by option."""
    answer = ltr("fit", "--config", name, *run.args, "--print_config")
    assert answer.code == 0, answer.err
    return yaml.safe_load(answer.out)


def one_of_each(name: str, **point: Any) -> list[Any]:
    """Each variant at one point of the sweep, the first value of what is not said."""
    recipe, _, overlay = name.partition("/")
    lists = {key: [value] for key, value in point.items()}
    runs = list(import_module(f"recipes.{recipe}.run").SWEEP.runs([overlay], **lists))
    first = [run for run in runs if run.point == runs[0].point]
    # Each is a command. The fast tests have one of a configuration, the slow ones all.
    chosen = random.Random(f"{name} {point}").randrange(len(first))
    slow = [[] if number == chosen else [pytest.mark.slow] for number in range(len(first))]
    return [
        pytest.param(name, run, id=f"{name} {run.variant}", marks=marks)
        for run, marks in zip(first, slow, strict=True)
    ]


@pytest.mark.parametrize(("name", "run"), [*one_of_each("sort"), *one_of_each("sort/paper", n=15)])
def test_sorting(ltr, name, run):
    model = settings(ltr, name, run)["model"]["init_args"]
    optimizer = model["optimizer"]
    assert optimizer["class_path"].endswith("Adam")
    assert (optimizer["init_args"]["lr"], optimizer["init_args"]["weight_decay"]) == (0.005, 0.0)
    assert set(model["metrics"]) == {"perfect_order", "elements_in_place"}
    if run.variant.endswith("30 epochs"):
        assert model["scheduler"]["init_args"]["gamma"] == 0.9
    elif name == "sort/paper":
        assert model["scheduler"] is None
    else:
        assert model["scheduler"]["init_args"]["gamma"] == 0.3
    operator = model["operator"] if "operator" in model else model["loss"]["init_args"]["operator"]
    given = operator["init_args"]
    if operator["class_path"].endswith("Stochastic"):
        assert given["samples"] == 5
        given = given["operator"]["init_args"]
    if "Sinkhorn" not in operator["class_path"]:
        assert given["temperature"] == (1024.0 if run.point["n"] == 3 else 128.0)


# Table 1 of the appendix
TEMPERATURES = {
    "SoftSort": {5: 2048, 9: 2048, 15: 256},
    "NeuralSort": {5: 1024, 9: 512, 15: 1024},
    "SoftSort, stochastic": {5: 4096, 9: 2048, 15: 2048},
    "NeuralSort, stochastic": {5: 2048, 9: 512, 15: 4096},
}


@pytest.mark.parametrize(
    ("name", "run"),
    [
        *(run for n in (5, 9, 15) for run in one_of_each("quantile", n=n)),
        *one_of_each("quantile/paper"),
    ],
)
def test_medians(ltr, name, run):
    config = settings(ltr, name, run)
    model = config["model"]["init_args"]
    assert model["optimizer"]["init_args"]["lr"] == 0.001
    assert model["optimizer"]["init_args"]["weight_decay"] == 0.0
    operator = model["operator"]["init_args"]
    if "stochastic" in run.variant:
        assert (model["expected"], operator["samples"]) == (True, 5)
        operator = operator["operator"]["init_args"]
    assert operator["temperature"] == TEMPERATURES[run.variant][run.point["n"]]
    if name == "quantile/paper":
        assert (model["scheduler"], model["value_scale"]) == (None, 1.0)
        assert config["data"]["init_args"]["batch_size"] == 5
        assert config["trainer"]["precision"] == "32-true"


@pytest.mark.parametrize(
    ("name", "run"),
    [
        *(run for image in ("MNIST", "CIFAR10") for run in one_of_each("knn", images=image)),
        *one_of_each("knn/paper", images="FashionMNIST"),
        *one_of_each("knn/paper", images="CIFAR10"),
    ],
)
def test_neighbors(ltr, name, run):
    config = settings(ltr, name, run)
    model = config["model"]["init_args"]
    has_network = not run.variant.startswith("kNN on")
    large = run.point["images"] != "MNIST"
    assert config["data"]["init_args"]["normalize"] == (has_network and large)
    if has_network:
        network = "ResNet18" if large else "MNISTCNN"
        assert model["network"]["class_path"].endswith(network)
        optimizer = model["optimizer"]["init_args"]
        assert (optimizer["momentum"], optimizer["weight_decay"]) == (0.9, 0.0005)
    if run.variant == "kNN on autoencoder":
        assert model["optimizer"]["class_path"].endswith("Adam")
        assert model["optimizer"]["init_args"]["weight_decay"] == 0.0
    if run.variant == "CNN":
        epochs = config["trainer"]["max_epochs"]
        assert model["scheduler"]["init_args"]["T_max"] == epochs
    if name == "knn/paper":
        assert config["trainer"]["precision"] == "32-true"
