"""Networks, modules and operators of the recipes come back from their configurations."""

import json
from typing import Any

import pytest
from torch import nn

from ltr.config import from_config, import_path, to_config
from ltr.operators import NeuralSort, SoftSort
from recipes.classifier import ImageClassifier
from recipes.knn.autoencoder import ConvAutoencoder, DenseAutoencoder
from recipes.knn.baselines import AutoencoderNeighbors, PixelNeighbors
from recipes.knn.soft_neighbors import SharedStochastic, SoftNearestNeighbors
from recipes.networks import MNISTCNN, ImageCNN, ResNet18, VanillaCNN
from recipes.quantile.regressor import QuantileRegressor
from recipes.regression.regressor import Regressor
from recipes.sort.matrix_sorter import MatrixSorter
from recipes.speed.published_sorts import PublishedNeuralSort, PublishedSoftSort
from recipes.speed.task import SpeedTask

MADE: list[tuple[Any, dict[str, Any]]] = [
    (ImageCNN, {"outputs": 3}),
    (MNISTCNN, {"channels": [4, 8], "hidden": 16, "padding": 2}),
    (VanillaCNN, {"channels": [4, 8], "hidden": 16, "out": 10, "shape": [1, 8, 8]}),
    (ResNet18, {"out": 3}),
    (DenseAutoencoder, {"shape": [1, 8, 8]}),
    (ConvAutoencoder, {}),
    (ImageClassifier, {"network": VanillaCNN(out=3)}),
    (SoftNearestNeighbors, {"operator": NeuralSort(0.5), "top_k": 3}),
    (PixelNeighbors, {"components": [3, 5], "top_k": [1, 3]}),
    (AutoencoderNeighbors, {"weightings": ["uniform"]}),
    (SharedStochastic, {"operator": SoftSort(0.5), "samples": 3}),
    (MatrixSorter, {}),
    (QuantileRegressor, {"operator": SoftSort(0.5), "value_scale": 10.0}),
    (Regressor, {}),
    (SpeedTask, {"operators": {"softsort": SoftSort(0.5)}, "lr": 2.0}),
    (PublishedNeuralSort, {"temperature": 2.0, "fixed": True}),
    (PublishedSoftSort, {"power": 2.0}),
]


@pytest.mark.parametrize(("cls", "arguments"), MADE, ids=lambda one: getattr(one, "__name__", ""))
def test_a_class_comes_back(cls: type[nn.Module], arguments: dict[str, Any]):
    for given in ({}, arguments) if cls is not SharedStochastic else (arguments,):
        made = cls(**given)
        config = to_config(made)
        assert config["class_path"] == import_path(cls)
        assert set(given) <= set(config["init_args"])
        again = from_config(json.loads(json.dumps(config)), cls, trust=["recipes"])
        assert to_config(again) == config
        assert repr(again) == repr(made)
        with pytest.raises(ValueError, match=r"trust"):
            from_config(config, cls)
