"""Configurations: every public object comes back from its own, and no file's code runs."""

import inspect
import json
import math
import pkgutil
import sys
from collections.abc import Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, get_args, get_type_hints

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import ltr
from ltr.config import from_config, import_path, parameters, read_arguments, to_config
from ltr.datasets import (
    FeatureTransform,
    Join,
    ListTransform,
    PiecewiseLinearBins,
    RankPerList,
    Standardize,
)
from ltr.gains import linear_gain
from ltr.losses import (
    DeltaNDCG,
    HingeCost,
    PairCost,
    PairWeights,
    RankingLoss,
    SeveralLabels,
    SoftMRR,
    SoftNDCG,
)
from ltr.metrics import MAP, NDCG, RankingMetric, RankingMetrics
from ltr.models import (
    Ensemble,
    FeatureScorer,
    LinearScorer,
    MLPScorer,
    MonotoneScorer,
    RankingModel,
    Scorer,
)
from ltr.modules import Ranker
from ltr.operators import RankOperator, SigmoidRank, SoftSort, SortOperator

SCORES = torch.tensor([[0.3, -1.2, 0.8, 0.1, 2.0], [0.0, 0.5, -0.4, 1.5, 0.2]])
LABELS = torch.tensor([[2.0, 0.0, 1.0, 0.0, 3.0], [0.0, 1.0, 0.0, 0.0, 2.0]])


def own_gain(labels: Tensor) -> Tensor:
    """A user's own gain."""
    return labels.square()


class OwnLoss(RankingLoss):
    """A user's own loss, which keeps its arguments, those handed on too."""

    def __init__(self, factor: float = 1.0, **kwargs: Any):
        super().__init__(**kwargs)
        self.factor = factor


class Forgetful(nn.Module):
    """One that does not."""

    def __init__(self, width: int = 3):
        super().__init__()
        self.layer = nn.Linear(width, 1)


def public_classes() -> list[type[nn.Module]]:
    """All public modules of the toolkit, in any of its packages."""
    found: set[type[nn.Module]] = set()
    for module in pkgutil.walk_packages(ltr.__path__, "ltr."):
        # what the integrations have takes models of other libraries, which have no configuration;
        # a `Ranker` is configured by YAML, and what it saves is a `RankingModel`
        other = ("ltr.cli", "ltr.integrations", "ltr.kernels", "ltr.modules", "ltr.recipes")
        if module.ispkg and not module.name.startswith(other):
            home = import_module(module.name)
            names = getattr(home, "__all__", [name for name in vars(home) if name[0] != "_"])
            found.update(
                one
                for one in (getattr(home, name) for name in names)
                if inspect.isclass(one)
                and issubclass(one, nn.Module)
                and one.__module__.startswith("ltr.")
                and one is not RankingMetric  # which is not made itself
            )
    return sorted(found, key=import_path)


def candidates(default: Any, hint: Any) -> list[Any]:
    """Values to try for an argument, other than the default."""
    members = [hint, *get_args(hint)]
    literals = [x for one in members for x in get_args(one) if isinstance(x, str)]
    found: list[Any] = [one for one in literals if one != default]
    if isinstance(default, bool):
        return [not default]
    if isinstance(default, int | float):
        found += [default + 1, default / 2, default * 2 + 0.5]
    objects: list[tuple[Any, Any]] = [
        (SortOperator, SoftSort(temperature=0.3, power=2.0)),
        (RankOperator, SigmoidRank(temperature=0.7)),
        (RankingLoss, SoftMRR(top_k=2)),
        (PairWeights, DeltaNDCG(gain="linear", discount="letor4")),
        (PairCost, HingeCost(margin=2.0)),
        (Scorer, LinearScorer(num_features=4)),
        (list[FeatureTransform], [RankPerList(), PiecewiseLinearBins()]),
    ]
    found += [value for base, value in objects if base in members]
    if type[nn.Module] in members:
        found.append(nn.GELU)
    if isinstance(default, tuple):
        found += [default[:1], (4,)]
    if hint == str | None:
        found.append("a_")
    if default is None:
        found += [2, 0.5, [0.9, 0.4, 0.2], [1.0, 3.0], (1, 8, 8)]
    return found


def variants(cls: type[nn.Module]) -> list[nn.Module]:
    """One object made with defaults, and one for each argument that can be another."""
    needed = NEEDED.get(cls, {})
    made = [cls(**needed)]
    hints = get_type_hints(cls.__init__)
    for name, parameter in parameters(cls).items():
        for value in candidates(parameter.default, hints.get(name)):
            try:
                made.append(cls(**{**needed, name: value}))
                break
            except (NotImplementedError, ValueError, TypeError):
                continue
    return made


def outcome(obj: nn.Module, state: dict[str, Tensor] | None) -> tuple[Any, dict[str, Tensor]]:
    """What an object does with some lists, and its state; or the error that it raises."""
    torch.manual_seed(0)
    try:
        if isinstance(obj, FeatureTransform):
            if state is None:
                obj.fit(SCORES, labels=LABELS[:, 0] if obj.fits_labels else None)
            else:
                obj.load_state_dict(state)
            return obj(SCORES), obj.state_dict()
        if isinstance(obj, Scorer) and getattr(obj, "num_features", 0) is None:
            obj.build(5)
        if state is not None:
            obj.load_state_dict(state)
        if isinstance(obj, Scorer):
            features = SCORES if getattr(obj, "num_features", 5) == 5 else SCORES[:, :4]
            return obj.eval()(features), obj.state_dict()
        if isinstance(obj, RankingMetric | RankingMetrics):
            obj.update(SCORES, LABELS)
            found = obj.compute()
            return torch.stack([*found.values()]) if isinstance(found, dict) else found, {}
        if isinstance(obj, RankingLoss):
            names = [*inspect.signature(obj.per_list).parameters][4:]
            extra = {name: (LABELS > 0).float() for name in names}
            if "loss" in parameters(type(obj)):  # it hands on what its parts take
                extra = {"protected": (LABELS > 0).float()} if hasattr(obj, "penalty") else {}
                extra |= (
                    {"position": torch.arange(1, 6.0).expand(2, 5)} if hasattr(obj, "bias") else {}
                )
            return obj(SCORES, LABELS, **extra), obj.state_dict()
        if isinstance(obj, SeveralLabels):
            return obj(SCORES, torch.stack([LABELS, LABELS.flip(-1)], -1)), obj.state_dict()
        if isinstance(obj, PairWeights):
            from ltr.losses import PairwiseLoss

            return PairwiseLoss(None, obj)(SCORES, LABELS), {}
        if isinstance(obj, PairCost):
            return obj(SCORES, LABELS), {}
        if state is not None:
            obj.load_state_dict(state)
        return obj(SCORES), obj.state_dict()
    except (NotImplementedError, ValueError, TypeError, RuntimeError) as error:
        return f"{type(error).__name__}: {error}", obj.state_dict()


CLASSES = public_classes()
ABSTRACT = (FeatureScorer,)
NEEDED = {
    RankingMetrics: {"metrics": {"ndcg": NDCG(top_k=3, gain="linear"), "map": MAP()}},
    Ensemble: {"scorer": MLPScorer(hidden=(8,)), "members": 3},
    Join: {"transforms": [Standardize(), Standardize()]},
    MonotoneScorer: {"directions": [1, 0, 0, -1, 0]},
    RankingModel: {"scorer": LinearScorer(num_features=5)},
    SeveralLabels: {"losses": {"click": (SoftMRR(), 1.0), "purchase": (SoftNDCG(), 3.0)}},
}
BEHAVED = (RankOperator, RankingLoss, RankingMetric, PairWeights, PairCost, FeatureTransform)


@pytest.mark.parametrize("cls", CLASSES, ids=import_path)
def test_every_public_class_comes_back(cls: type[nn.Module]):
    made = variants(cls)
    assert len(made) > 1 or not parameters(cls) or cls in ABSTRACT
    for obj in made:
        config = to_config(obj)
        assert config["class_path"] == import_path(cls)
        assert {*config.get("init_args", {})} == {*parameters(cls)}
        again = from_config(json.loads(json.dumps(config, allow_nan=False)), cls)
        assert type(again) is cls
        assert to_config(again) == config
        assert repr(again) == repr(obj)
        before, state = outcome(obj, None)
        after, _ = outcome(again, state)
        if isinstance(before, Tensor):
            torch.testing.assert_close(after, before, rtol=0, atol=0, equal_nan=True)
        else:
            assert after == before


def test_the_walk_finds_them_and_compares_what_they_do():
    assert {SoftNDCG, SoftSort, MLPScorer, Standardize} <= {*CLASSES}
    abstract = {RankOperator, SortOperator, RankingLoss, RankingMetric, PairCost}
    abstract |= {FeatureTransform, ListTransform}
    silent = {
        cls
        for cls in CLASSES
        if issubclass(cls, BEHAVED)
        and not isinstance(outcome(cls(**NEEDED.get(cls, {})), None)[0], Tensor)
    }
    assert silent <= abstract


def test_what_was_given_is_what_is_kept():
    loss = SoftNDCG(
        SoftSort(0.3), top_k=4, gain="linear", discount="letor4", mean="arithmetic", reduction="sum"
    )
    assert to_config(loss) == {
        "class_path": "ltr.losses.SoftNDCG",
        "init_args": {
            "operator": {
                "class_path": "ltr.operators.SoftSort",
                "init_args": {"temperature": 0.3, "power": 1.0},
            },
            "top_k": 4,
            "gain": "linear",
            "discount": "letor4",
            "mean": "arithmetic",
            "dequantize": False,
            "softmax": 0.0,
            "reduction": "sum",
        },
    }
    loss.operator.temperature = 0.9  # an object is stored as it is now
    assert to_config(loss)["init_args"]["operator"]["init_args"]["temperature"] == 0.9


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.just(nn.GELU)
    | st.sampled_from(["class_path", "init_args", "class", "function", "float", "dict"]),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(st.text() | st.integers(), inner)
        | st.dictionaries(st.sampled_from(["class_path", "float", "dict", "class"]), inner)
    ),
    max_leaves=8,
)


@given(PLAIN)
def test_plain_values_come_back_whatever_they_look_like(value):
    assert from_config(json.loads(json.dumps(to_config(value), allow_nan=False))) == value


def test_values_that_json_lacks():
    values = [math.inf, -math.inf, np.float32(0.5), np.int64(3), np.bool_(True), (1, 2), Path("a")]
    again = from_config(to_config(values))
    assert again == [math.inf, -math.inf, 0.5, 3, True, [1, 2], "a"]
    assert [type(one) for one in again[2:5]] == [float, int, bool]
    assert math.isnan(from_config(json.loads(json.dumps(to_config(math.nan), allow_nan=False))))


def test_classes_and_functions():
    scorer = from_config(to_config(MLPScorer(4, hidden=(8,), activation=nn.Tanh)))
    assert (scorer.activation, [*scorer.hidden]) == (nn.Tanh, [8])
    assert read_arguments(MLPScorer, {"activation": "torch.nn.GELU"}) == {"activation": nn.GELU}
    assert from_config(to_config(SoftNDCG(gain=linear_gain))).gain is linear_gain


@pytest.mark.parametrize(
    "layer",
    [nn.ReLU(), nn.Linear(3, 2, bias=False), nn.Linear(3, 2), nn.LayerNorm(4), nn.Dropout(0.3)],
    ids=repr,
)
def test_torchs_own_modules(layer: nn.Module):
    again = from_config(to_config(layer), nn.Module)
    assert repr(again) == repr(layer)
    again.load_state_dict(layer.state_dict())


def test_another_package_is_imported_only_if_it_is_named():
    loss = OwnLoss(2.0, reduction="sum")
    config = to_config(loss)
    assert config["init_args"] == {"factor": 2.0, "reduction": "sum"}
    for trust in (
        (),
        ("other",),
        (__name__ + "_evil",),
        (__name__[:-1],),
        (f"{__name__}.OwnLoss",),
    ):
        with pytest.raises(ValueError, match="which is not named in trust"):
            from_config(config, trust=trust)
    again = from_config(config, RankingLoss, trust=[__name__])
    assert (again.factor, again.reduction) == (2.0, "sum")
    gain = to_config(SoftNDCG(gain=own_gain))
    with pytest.raises(ValueError, match=r"gain: .*own_gain is in the package"):
        from_config(gain)
    assert from_config(gain, trust=[__name__]).gain is own_gain


@pytest.mark.parametrize(
    ("obj", "message"),
    [
        (SoftNDCG(gain=lambda y: y), "SoftNDCG.gain has no configuration: it is a lambda"),
        (SoftNDCG(discount=torch.log1p), "SoftNDCG.discount has no configuration"),
        ({"a": [Forgetful()]}, r"dict\['a'\]\[0\] .* does not keep its argument .*'width'"),
        (nn.Sequential(nn.ReLU()), r"takes \*args"),
        (torch.zeros(2), "Tensor has no configuration: it is a torch.Tensor"),
        (partial(open, "x"), "it is a functools.partial"),
        (partial(torch.optim.SGD, lr=0.1), "it is a functools.partial"),
        (type("Local", (nn.Module,), {"__qualname__": "f.<locals>.Local"})(), "cannot be imported"),
        (type("Main", (nn.Module,), {"__module__": "__main__"})(), "Main is in __main__"),
        (type("Gone", (nn.Module,), {"__module__": "ltr"})(), "is a different "),
        ({1, 2}, "set has no configuration"),
        ({(1, 2): 3}, "dict has no configuration: a key must be text or a finite number"),
        ({math.inf: 3}, "dict has no configuration: a key must be"),
    ],
)
def test_what_has_no_configuration_is_named(obj: Any, message: str):
    with pytest.raises(ValueError, match=message):
        to_config(obj)


def test_an_object_within_itself():
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(ValueError, match="nested too deeply"):
        to_config(loop)
    deep: Any = 0
    for _ in range(5000):
        deep = [deep]
    with pytest.raises(ValueError, match="nested too deeply"):
        from_config(deep)


MISTAKE = (
    "not named in trust|a path is a dotted name|^(scorer: )?no |is not a class|"
    "is not a function|must be keyword arguments|has no argument|is not a |must be (inf|pairs)|"
    r"init_args, got|plain data, got|ltr\.\w+\.\w+: |torch\.nn\.Linear: |cannot be imported|"
    "hidden must be widths"
)


def call(path: str, **arguments: Any) -> dict[str, Any]:
    return {"class_path": path, "init_args": arguments}


@pytest.mark.parametrize(
    "config",
    [
        call("os.system", command="touch hit"),
        call("posix.system", command="touch hit"),
        call("subprocess.Popen", args=["touch", "hit"]),
        call("builtins.eval", source="open('hit', 'w')"),
        call("builtins.exec"),
        call("ltr.losses.base.torch.hub.load", repo_or_dir="x"),
        call("ltr.x.os.system", command="touch hit"),
        call("ltr.cli.os.system", command="touch hit"),
        call("ltr.cli.main", argv=["--version"]),
        call("ltr.cli.convert.convert"),
        call("ltr.cli.recipes.Path", args="hit"),
        call("ltr.losses.base.nn", x=1),
        call("ltr.losses.base.Tensor"),
        call("ltr.losses.inverse_propensity_weights"),
        call("ltr.losses.SoftNDCG.__init__"),
        call("ltr.losses.SoftNDCG.__class__"),
        call("ltr.__loader__"),
        call("ltr_evil.Scorer"),
        call("ltr"),
        call("torch.hub.load", repo_or_dir="x"),
        call("torch.load", f="x"),
        call("torch.nn.functional.torch.load"),
        call("torch.nn.modules.module.OrderedDict"),
        call("torch.optim.optimizer.functools.partial"),
        call("torch.utils.data.DataLoader"),
        call("lightning.pytorch.cli.instantiate_module"),
        call("lightning.pytorch.Trainer"),
        call("__main__.Anything"),
        call(".os.system"),
        call("os..system"),
        call("os"),
        call(""),
        {"class_path": None},
        {"class_path": ["os", "system"]},
        {"class": "subprocess.Popen"},
        {"class": "ltr.losses.base.Tensor"},
        {"function": "os.system"},
        {"function": "os.path.exists"},
        {"function": "ltr.cli.main"},
        {"function": "ltr.cli.convert.convert"},
        {"function": "ltr.config.from_config"},
        {"function": "ltr.losses.SoftNDCG"},
        {"function": "ltr.losses.base.nullcontext"},
        {"function": "torch.nn.functional.relu"},
        {"class_path": "ltr.losses.SoftNDCG", "dict_kwargs": {}},
        {"class_path": "ltr.losses.SoftNDCG", "init_args": [1]},
        call("ltr.losses.SoftNDCG", nothing=1),
        call("ltr.losses.SoftNDCG", operator=call("torch.nn.ReLU")),
        call("ltr.losses.SoftNDCG", operator=call("ltr.losses.SoftMRR")),
        call("ltr.losses.SoftNDCG", gain={"function": "os.system"}),
        call("ltr.models.MLPScorer", hidden="abc"),
        call("torch.nn.Linear", in_features=1, out_features="x"),
        call("torch.nn.Linear"),
        {"float": "1.5"},
        {"dict": 3},
        {"dict": [[[], 1]]},
        {"dict": [1]},
        {1: 2},
        torch.zeros(1),
        object(),
    ],
    ids=lambda config: str(config).partition(" at 0x")[0],
)
def test_configurations_that_are_refused(
    config: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=MISTAKE):
        from_config(config, nn.Module)
    with pytest.raises(ValueError, match=MISTAKE):
        read_arguments(Ranker, {"scorer": config})
    assert not [*tmp_path.iterdir()]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Packages on the path that leave a file when they are imported: that file."""
    hit = tmp_path / "hit"
    text = (
        f"open({str(hit)!r}, 'w').close()\nimport subprocess\nfrom subprocess import Popen, run\n"
    )
    text += "from torch import nn\nclass Scorer(nn.Module):\n    pass\n"
    for name in ("untrusted", "mypackage_evil", "ltr_evil", "mypackage"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(text)
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    yield hit
    sys.modules.pop("mypackage", None)


@pytest.mark.parametrize("name", ["untrusted", "mypackage_evil", "ltr_evil"])
@pytest.mark.parametrize("mark", ["class_path", "class", "function"])
def test_an_untrusted_package_is_not_imported(package: Path, name: str, mark: str):
    for trust in ((), ("mypackage",), (f"{name}.sub",), (f"{name}x",)):
        with pytest.raises(ValueError, match=f"in the package {name}, which is not named in trust"):
            from_config({mark: f"{name}.Scorer"}, trust=trust)
        assert not package.exists()
        assert name not in sys.modules


def test_a_trusted_package_gives_its_own_classes_alone(package: Path):
    made = from_config({"class_path": "mypackage.Scorer"}, trust=["mypackage"])
    assert type(made).__module__ == "mypackage"
    for path in ("mypackage.Popen", "mypackage.subprocess.Popen", "mypackage.nn"):
        with pytest.raises(ValueError, match=r"is not a class|^no "):
            from_config(call(path, args=["touch", "hit"]), trust=["mypackage"])
    with pytest.raises(ValueError, match="run is defined in subprocess"):
        from_config({"function": "mypackage.run"}, trust=["mypackage"])


@pytest.mark.parametrize("trust", ["mypackage", ["a b"], [""], [3], ["a."], ["__main__"], None, 3])
def test_trust_is_a_list_of_packages(trust: Any):
    with pytest.raises(ValueError, match="trust must"):
        from_config(1, trust=trust)


def test_main_is_no_package_to_trust():
    with pytest.raises(
        ValueError, match=r"got \['own', '__main__'\]: move the class from __main__"
    ):
        from_config(1, trust=["own", "__main__"])


def of_numpy(value: Any) -> Any:
    """The same number, flag or sequence of numbers in numpy's types; None if it is none of them."""
    if isinstance(value, bool):
        return np.bool_(value)
    if isinstance(value, int | float):
        return np.int64(value) if isinstance(value, int) else np.float64(value)
    if isinstance(value, tuple | list) and value:
        found = [of_numpy(one) for one in value]
        return None if None in found else type(value)(found)
    return None


def test_arguments_of_numpy_give_the_same_configuration():
    wrong = []
    for cls in public_classes():
        for made in variants(cls):
            known = {x: getattr(made, x) for x in parameters(cls) if hasattr(made, x)}
            for name, value in known.items():
                # torchmetrics checks the flags that are its own
                flag = isinstance(value, bool) and issubclass(cls, RankingMetric)
                if flag or (given := of_numpy(value)) is None:
                    continue
                try:
                    expected = cls(**known)
                except (TypeError, ValueError):  # arguments that exclude each other
                    continue
                try:
                    same = to_config(cls(**{**known, name: given})) == to_config(expected)
                except (TypeError, ValueError) as error:
                    same = f"{error}"
                wrong += [] if same is True else [f"{cls.__name__}({name}={given!r}): {same}"]
    assert not wrong
