"""The losses with their defaults and with other arguments, which the tests of properties share."""

import random
from collections.abc import Callable, Collection, Mapping

import torch
from loss_table import LOSSES as BY_NAME
from pairwise import split, together

from ltr.losses import (
    ADRMSE,
    ARPLoss1,
    DeltaMAP,
    DeltaMRR,
    DeltaNDCG,
    DeltaPrecision,
    Distillation,
    ExposureParity,
    KNNLoss,
    LabelDifference,
    LambdaLoss,
    LambdaRank,
    ListMLE,
    NDCGLoss1,
    NDCGLoss2,
    NeuralNDCG,
    PListMLE,
    QuantileLoss,
    RankingLoss,
    RankNet,
    SoftERR,
    SoftMAP,
    SoftmaxLoss,
    SoftMRR,
    SoftNDCG,
    SoftPrecision,
    SoftRecall,
    SpearmanLoss,
    TopKLoss,
    UniqueSoftmax,
)
from ltr.operators import SigmoidRank, SoftplusRank, SoftSort, Standardized

# other arguments than the defaults, where they choose other code
VARIANTS = {
    "SoftNDCG-SoftSort": lambda **options: SoftNDCG(SoftSort(0.5), **options),
    "SoftNDCG-SoftSort-2": lambda **options: SoftNDCG(SoftSort(0.5, power=2), **options),
    "SoftNDCG-SigmoidRank": lambda **options: SoftNDCG(SigmoidRank(0.5), **options),
    "SoftNDCG@2": lambda **options: SoftNDCG(
        SigmoidRank(0.5), top_k=2, mean="arithmetic", **options
    ),
    "SoftNDCG-arithmetic": lambda **options: SoftNDCG(
        SigmoidRank(0.5), mean="arithmetic", **options
    ),
    "SoftNDCG-regret": lambda **options: SoftNDCG(mean="regret", **options),
    "SoftNDCG-tight": lambda **options: SoftNDCG(mean="tight", **options),
    "SoftNDCG-tight@2": lambda **options: SoftNDCG(
        SoftplusRank(0.5), 2, "linear", mean="tight", **options
    ),
    "SoftNDCG-Standardized": lambda **options: SoftNDCG(Standardized(), **options),
    "SoftNDCG-linear": lambda **options: SoftNDCG(gain="linear", **options),
    "SoftNDCG-softmax": lambda **options: SoftNDCG(SigmoidRank(0.5), softmax=1.0, **options),
    "SoftMRR-SoftSort@3": lambda **options: SoftMRR(SoftSort(0.5), top_k=3, **options),
    "SoftMAP-SoftSort@3": lambda **options: SoftMAP(SoftSort(0.5), top_k=3, **options),
    "SoftERR-raw@3": lambda **options: SoftERR(top_k=3, max_label=5, normalize=False, **options),
    "SoftPrecision@2": lambda **options: SoftPrecision(top_k=2, **options),
    "SoftPrecision-raw": lambda **options: SoftPrecision(top_k=2, normalize=False, **options),
    "SoftRecall@1,3": lambda **options: SoftRecall(SoftSort(0.5), top_k=[1, 3], **options),
    "SoftRecall-raw": lambda **options: SoftRecall(top_k=2, normalize=False, **options),
    "ADRMSE-SoftSort": lambda **options: ADRMSE(SoftSort(0.5), torch.reciprocal, **options),
    "SpearmanLoss-raw": lambda **options: SpearmanLoss(SoftSort(0.5), normalize=False, **options),
    "NeuralNDCG@2": lambda **options: NeuralNDCG(SoftSort(0.5), top_k=2, **options),
    "NeuralNDCG-transposed": lambda **options: NeuralNDCG(transposed=True, **options),
    "NeuralNDCG-scaled": lambda **options: NeuralNDCG(top_k=3, scaling=5, **options),
    "NeuralNDCG-both": lambda **options: NeuralNDCG(transposed=True, scaling=5, **options),
    "TopKLoss-hard-cutoff": lambda **options: TopKLoss(
        SoftSort(0.5), top_k=2, step="cutoff", **options
    ),
    "QuantileLoss-0.3": lambda **options: QuantileLoss(SoftSort(0.5), 0.3, True, **options),
    "KNNLoss-log": lambda **options: KNNLoss(SoftSort(0.5), 2, "log", **options),
    "ExposureParity-one-sided": lambda **options: ExposureParity(
        top_k=3, one_sided=True, **options
    ),
    "Distillation-3": lambda **options: Distillation(3.0, **options),
    "RankNet-sum": lambda **options: RankNet(0.5, normalize=False, **options),
    "LambdaRank@3": lambda **options: LambdaRank(3, gain="linear", **options),
    "LambdaRank@3-any": lambda **options: LambdaRank(3, "any", **options),
    "LambdaRank@3-both": lambda **options: LambdaRank(3, "both", normalize=False, **options),
    **{
        f"LambdaLoss-{weights!r}": lambda weights=weights, **options: LambdaLoss(weights, **options)
        for weights in [
            DeltaMAP(),
            DeltaMRR(),
            DeltaNDCG(),
            DeltaPrecision(2),
            LabelDifference(),
            ARPLoss1(),
            NDCGLoss1(),
            NDCGLoss2(),
            NDCGLoss2(3),
        ]
    },
    "SoftmaxLoss-raw": lambda **options: SoftmaxLoss(normalize=False, **options),
    "UniqueSoftmax-raw": lambda **options: UniqueSoftmax("linear", normalize=False, **options),
    "ListMLE@3": lambda **options: ListMLE(3, **options),
    "ListMLE-first": lambda **options: ListMLE(ties="first", **options),
    "PListMLE-log2": lambda **options: PListMLE("log2", **options),
}
LOSSES = BY_NAME | VARIANTS


def code_of(make: Callable[..., RankingLoss]) -> tuple[type, ...]:
    """Return the classes that compute a loss."""
    loss = make()
    return (type(loss), type(loss.pair_weights)) if isinstance(loss, LambdaLoss) else (type(loss),)


def losses(
    *axes: Mapping[str, object],
    arguments: str = "make",
    but: Collection[str] = (),
    table: Mapping[str, Callable[..., RankingLoss]] = LOSSES,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Call a test with a loss of each class, and in a slow test with the others.

    A draw of the test's name picks one of a class, so that every variant meets many properties.

    Args:
        axes: Values of more arguments: a loss takes one of each axis, the others are slow.
        arguments: The test's arguments. "make" is the loss's class or variant, "name" its name.
        but: Names that are left out.
        table: The losses.
    """
    left = {name: make for name, make in table.items() if name not in but}
    values = {name: name for name in left} if arguments.startswith("name") else left

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        by_class: dict[tuple[type, ...], list[str]] = {}
        for name, make in left.items():
            by_class.setdefault(code_of(make), []).append(name)
        draw = random.Random(test.__name__)
        picked = {draw.choice(names) for names in by_class.values()}
        some = {name: value for name, value in values.items() if name in picked}
        fast, more = split(some, *axes)
        others, rest = split({k: v for k, v in values.items() if k not in picked}, *axes)
        return together(arguments, fast, {**more, **others, **rest})(test)

    return decorate
