"""The metric classes with their functions, and how the tests find them."""

import ltr.metrics
from ltr.metrics import RankingMetric
from ltr.metrics import functional as F

CLASSES = [getattr(ltr.metrics, name) for name in ltr.metrics.__all__]
CLASSES = [x for x in CLASSES if isinstance(x, type) and issubclass(x, RankingMetric)]
CLASSES.remove(RankingMetric)

# a class and its function have the same letters in their names, but for one
FUNCTIONS = {
    cls: next(
        getattr(F, name)
        for name in F.__all__
        if {"MAP": "averageprecision"}.get(cls.__name__, cls.__name__.lower())
        == name.replace("_", "")
    )
    for cls in CLASSES
}
WEIGHTED = {function for cls, function in FUNCTIONS.items() if cls.takes_weights}
