"""Networks and operators of the recipes come back from their configurations."""

import json
from typing import Any

import pytest
from torch import nn

from ltr.config import from_config, import_path, to_config
from ltr.operators import SoftSort
from recipes.knn.autoencoder import ConvAutoencoder, DenseAutoencoder
from recipes.knn.soft_neighbors import SharedStochastic
from recipes.networks import MNISTCNN, ImageCNN, ResNet18, VanillaCNN
from recipes.speed.published_sorts import PublishedNeuralSort, PublishedSoftSort

MADE: list[tuple[Any, dict[str, Any]]] = [
    (ImageCNN, {"outputs": 3}),
    (MNISTCNN, {"channels": [4, 8], "hidden": 16, "padding": 2}),
    (VanillaCNN, {"channels": [4, 8], "hidden": 16, "out": 10, "shape": [1, 8, 8]}),
    (ResNet18, {"out": 3}),
    (DenseAutoencoder, {"shape": [1, 8, 8]}),
    (ConvAutoencoder, {}),
    (SharedStochastic, {"operator": SoftSort(0.5), "samples": 3}),
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
