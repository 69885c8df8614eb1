"""Write an exported model, after its scores are compared with those of the original model."""

import copy
import gc
import io
import json
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from os import PathLike
from pathlib import Path
from typing import Any, cast, overload

import numpy as np
import torch
from torch import Tensor

from ltr.config.folder import Saved, write_folder
from ltr.export.blend import ExportedBlend
from ltr.export.card import CardMetrics, Difference, model_card
from ltr.export.engines import ENGINES, Engine, EngineExport, Missing, export_engine
from ltr.export.program import Examples, ExportedModule, ExportedRanker, Target, describe
from ltr.files import check_path, write_files
from ltr.models import RankingModel
from ltr.models.blend import BlendModel
from ltr.shapes import check_at_least

LIMIT = 1e-5
"""The largest allowed difference from the model's scores, as a fraction of the largest score."""

DIFFERS = 1e-4
"""Rows are counted if their score differs by more than this fraction of the largest score."""

_SUFFIX = {"onnx": ".onnx", "torch": ".pt2"}
_OPSET = 17  # by default
_OLDEST = 18  # torch writes no lower opset, but onnx can convert the model to one


@dataclass(frozen=True)
class Exported:
    """The result of an export.

    Attributes:
        model: the file of the model.
        card: the model card.
        difference: the largest difference from the model's scores, as a fraction of the largest
            absolute score.
        rows: how many rows were compared.
        differing: how many rows differ by more than 1e-4 of the largest absolute score.
    """

    model: Path
    card: Path
    difference: float
    rows: int
    differing: int


@overload
def export_model(
    model: Any,
    path: str | PathLike[str],
    *,
    to: Target | None = None,
    opset: int | None = None,
    evaluation: CardMetrics | None = None,
    per_document: bool = False,
    single: bool = False,
    saved: Saved | None = None,
) -> Exported: ...
@overload
def export_model(
    model: Any,
    path: str | PathLike[str],
    *,
    to: Engine,
    missing: Missing = "model",
    rows: Any = None,
    qid: Any = None,
) -> EngineExport: ...
def export_model(
    model: Any,
    path: str | PathLike[str],
    *,
    to: Target | Engine | None = None,
    opset: int | None = None,
    evaluation: CardMetrics | None = None,
    per_document: bool = False,
    single: bool = False,
    saved: Saved | None = None,
    missing: Missing = "model",
    rows: Any = None,
    qid: Any = None,
) -> Exported | EngineExport:
    """Write a model to a file for other programs, and check that the file gives the same scores.

    For "onnx" and "torch", the file takes raw features, with NaN for a missing value, and codes of
    categories. It contains the transform. It takes any number of lists, of any lengths. The check
    scores lists of 1 to 130 documents, with values within the range of the training data and far
    outside it, missing values and unseen categories. For trees, some values lie exactly on splits,
    and some next to splits.

    For a search engine, the file is JSON of trees or of a weighted sum. Engines compare float32
    numbers, and OpenSearch and Solr sum float32 scores, so that each addition rounds by up to 6e-8
    of the sum. The check reads the file by the rule of the engine, also with missing values and
    values at and next to every threshold. Columns of categories, columns relative to the list and
    networks are errors.

    Args:
        model: a `RankingModel`; the `model_` of a `Blend` of networks and trees; or a fitted ranker
            or regressor of LightGBM, XGBoost or CatBoost, a `Booster`, or a
            `HistGradientBoostingRegressor`. `Blend.export` and `NeuralRanker.export` call this
            function. For a search engine: such trees, a `Blend` of them, or a `NeuralRanker` or
            `RankingModel` with a `LinearScorer` (or an `AdditiveScorer` without hidden layers),
            alone or behind `Standardize`.
        path: a file that ends in .onnx or .pt2, with the card beside it (`NAME.md`); or a folder,
            made if it is missing. The folder gets the model, `README.md` (the card) and what
            `saved` says. If the process is killed, each of these files is the old one or the new
            one. For a search engine: a file that ends in .json, with `NAME.features.json` beside
            it; or a folder, which gets `model.json` and `features.json`.
        to: "onnx", which onnxruntime and search engines run, or "torch", a program of
            `torch.export` for `torch.export.load`. Neither needs ltr. Or "opensearch" (also for the
            plugin of Elasticsearch), "elasticsearch" (its own learning to rank) or "solr". Default:
            the format that the ending of `path` names, otherwise "onnx".
        opset: the version of the ONNX operator set, for "onnx" alone, >= 14, or >= 15 for a model
            with trees. onnx cannot convert a model to an older version. Default: 17.
        evaluation: metrics for the card; see `card_metrics`.
        per_document: whether the inputs are single documents (N, d), not lists (B, n, d).
        single: whether features are float32, for trees and blends; the features of a network are
            float32 anyway. Default: float64, so that a value next to a split takes the same branch
            as in the model. With float32 it may take the other branch. Such rows are not errors;
            `Exported.differing` counts them.
        saved: what makes a folder loadable; only for a folder. Default: the parts of a
            `RankingModel`, otherwise nothing.
        missing: where a search engine sends a missing value: "model", as the model does, or "zero",
            as it sends 0, for engines that know no missing values.
        rows: a table, an array (rows, columns) or a `ListDataset` of rows that the check of a
            search engine's file compares too. Its report says what their missing values cost.
        qid: (rows,), the query of each of these rows. Default: they are one list.

    Returns:
        An `Exported`, or an `EngineExport` for a search engine.

    Raises:
        ValueError: an argument is wrong or does not belong to the format, a package is missing, the
            path cannot be written, the model gives a score that is not finite or cannot be
            exported, or a score of the export differs by more than 1e-5 of the largest absolute
            score (float32 trees are exempt). All files are then unchanged.

    >>> from tempfile import mkdtemp
    >>> from ltr.models import LinearScorer
    >>> model = RankingModel(LinearScorer(3))
    >>> export_model(model, Path(mkdtemp(), "model.pt2"), to="torch").difference
    0.0
    >>> from lightgbm import LGBMRegressor
    >>> X, y = np.random.default_rng(0).normal(size=(100, 2)), np.arange(100)
    >>> trees = LGBMRegressor(n_estimators=5, verbose=-1).fit(X, y)
    >>> export_model(trees, Path(mkdtemp(), "model.json"), to="opensearch", rows=X).moved
    0
    """
    if to in ENGINES:
        others = {"evaluation": evaluation, "saved": saved, "opset": opset}
        others |= {"per_document": per_document or None, "single": single or None}
        _refuse(others, to)
        with _naming(check_path("path", path)):
            return export_engine(model, path, cast(Engine, to), missing, rows, qid)
    _refuse({"rows": rows, "qid": qid}, to)
    if evaluation is not None and not isinstance(evaluation, CardMetrics):
        raise ValueError(f"evaluation must be a result of `card_metrics`, got {evaluation!r}")
    path = check_path("path", path)
    if to is None:
        to = "torch" if path.suffix == _SUFFIX["torch"] else "onnx"
    if to not in ("onnx", "torch"):
        known = ", ".join(map(repr, (*_SUFFIX, *ENGINES)))
        raise ValueError(f"to must be one of {known}, got {to!r}")
    if missing != "model":
        raise ValueError(f"missing must be 'model' for to={to!r}, got {missing!r}")
    if path.suffix == ".json":  # otherwise this would be the name of a folder
        engines = ", ".join(ENGINES)
        raise ValueError(f"to must be one of {engines} for a path in .json, got {to!r}: {path}")
    if to == "torch":
        _refuse({"opset": opset}, to)
    if to != "onnx" and not isinstance(model, RankingModel):
        raise ValueError(f'to must be "onnx" for trees, got {to!r}')
    if single and isinstance(model, RankingModel):
        raise ValueError("single must be False for a RankingModel, whose features are float32")
    if is_file(path):
        if path.suffix != _SUFFIX[to]:
            raise ValueError(f"path must end in {_SUFFIX[to]} for to={to!r}, got {path}")
        if saved is not None:
            raise ValueError(f"path must be a folder if saved is given, got {path}")
        target, card, folder = path, path.with_suffix(".md"), None
    else:
        target, card, folder = path / f"model{_SUFFIX[to]}", path / "README.md", path
    if isinstance(model, RankingModel):
        saved = saved or Saved(model.parts, model.to_dict())
        module = ExportedRanker(copy.deepcopy(model).cpu().float().eval(), per_document)
    elif isinstance(model, BlendModel):
        module = ExportedBlend.of_blend(model, per_document, single)
    else:
        module = ExportedBlend.of(model, per_document, single)
    version = _OPSET if opset is None else check_at_least("opset", opset, module.lowest_opset)
    content, compared = _checked(module, to, version)
    gc.collect()  # this drops copies of the scorer's classes that torch's exporters leave behind
    text = model_card(module, target.name, to, compared, evaluation).encode()
    with _naming(path):
        if folder is not None and saved is not None:
            write_folder(folder, saved, {card.name: text, target.name: content})
        else:
            write_files({card: text, target: content})
    return Exported(target, card, compared.largest, compared.rows, compared.differing)


def _refuse(given: Mapping[str, Any], to: str | None) -> None:
    """Raise a `ValueError` for an argument that is not None and that the format does not take."""
    for name, value in given.items():
        if value is not None:
            shown = repr(value) if isinstance(value, bool | int | str) else type(value).__name__
            raise ValueError(f"{name} must not be given for to={to!r}, got {shown}")


def is_file(path: str | PathLike[str]) -> bool:
    """Return whether an export to this path is one file beside its card, not a folder.

    >>> is_file("model.onnx"), is_file("model")
    (True, False)
    """
    return Path(path).suffix in _SUFFIX.values()


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Turn the error of a path that cannot be written into a ValueError that names the path."""
    try:
        yield
    except OSError as error:
        raise ValueError(f"path must be writable, got {path}: {error}") from error


def _checked(module: ExportedModule, to: Target, opset: int) -> tuple[bytes, Difference]:
    """Return the file's content and how its scores differ; a large difference is an error."""
    if to == "onnx":
        try:
            import onnxruntime  # noqa: F401
            import onnxscript  # noqa: F401  # torch's exporter imports it
        except ImportError as error:
            raise ValueError(
                "export needs onnx, onnxscript and onnxruntime: pip install 'ltr-torch[export]'"
            ) from error
    expected = _finite(module.examples())
    example = expected[1][0]  # the axes of this example have distinct lengths
    if to == "torch":
        content = _program(module, example)
        run = _program_runner(content)
    else:
        content = _onnx(module, example, opset)
        run = _onnx_runner(content)
    difference = _difference(run, expected)
    allowed = isinstance(module, ExportedBlend) and module.single
    if not difference.largest <= LIMIT and not allowed:
        raise ValueError(
            "the exported model must score like the model, but differs by "
            f"{difference.largest:.2g} of the largest score (limit {LIMIT:g}), and by more than "
            f"{DIFFERS:g} in {difference.differing} of {difference.rows} rows"
        )
    return content, difference


def _shapes(module: ExportedModule) -> tuple[dict[int, Any], ...]:
    """Return, for each input, the axes that may have any length."""
    if module.per_document:
        free: dict[int, Any] = {0: torch.export.Dim("documents", min=1)}
    else:
        free = {0: torch.export.Dim("lists", min=1), 1: torch.export.Dim("documents", min=1)}
    return tuple(free for _ in module.inputs)


def _program(module: ExportedModule, example: tuple[Tensor, ...]) -> bytes:
    module = copy.deepcopy(module)
    for part in module.modules():
        for name, buffer in [*part.named_buffers(recurse=False)]:
            if not buffer.numel():  # torch.export.save treats all empty buffers as one buffer
                delattr(part, name)
                setattr(part, name, buffer)  # it becomes a plain attribute, which no graph uses
    with _quiet():
        program = torch.export.export(module, example, dynamic_shapes=(_shapes(module),))
        content = io.BytesIO()
        torch.export.save(program, content, extra_files={"ltr.json": json.dumps(describe(module))})
    return content.getvalue()


def _onnx(module: ExportedModule, example: tuple[Tensor, ...], opset: int) -> bytes:
    import onnx
    import onnx.version_converter

    with _quiet():
        program = torch.onnx.export(
            module,
            example,
            dynamo=True,
            opset_version=max(opset, _OLDEST),
            dynamic_shapes=(_shapes(module),),
            input_names=list(module.inputs),
            output_names=["scores"],
            verbose=False,
        )
    assert program is not None  # this holds with dynamo=True
    model = program.model_proto
    try:
        if opset < _OLDEST:
            model = onnx.version_converter.convert_version(model, opset)
        module.complete(model.graph)
        onnx.checker.check_model(model)
    except (RuntimeError, onnx.checker.ValidationError) as error:
        raise ValueError(f"opset must be higher for this model, got {opset}: {error}") from error
    if (written := {known.domain: known.version for known in model.opset_import}[""]) != opset:
        raise ValueError(
            f"opset must be one that torch and onnx can write, got {opset} (they wrote {written})"
        )
    onnx.helper.set_model_props(model, {"ltr": json.dumps(describe(module))})
    content = model.SerializeToString()
    # The digest is a separate message after the model: protobuf merges consecutive messages.
    end = onnx.ModelProto()
    onnx.helper.set_model_props(end, {"ltr.sha256": sha256(content).hexdigest()})
    return content + end.SerializeToString()


def _onnx_runner(content: bytes) -> Callable[..., np.ndarray]:
    import onnxruntime

    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    names = [given.name for given in session.get_inputs()]

    def run(*inputs: Any) -> np.ndarray:
        given = {name: np.asarray(x) for name, x in zip(names, inputs, strict=True)}
        return np.asarray(session.run(None, given)[0])

    return run


def _program_runner(content: bytes) -> Callable[..., np.ndarray]:
    with _quiet():
        module = torch.export.load(io.BytesIO(content)).module()

    def run(*inputs: Tensor) -> np.ndarray:
        with torch.no_grad():
            return module(*inputs).numpy()

    return run


def _finite(examples: Examples) -> Examples:
    for _, scores in examples:
        if (bad := scores[~np.isfinite(scores)]).size:
            raise ValueError(f"the model's scores must be finite, got {bad[0]}: train it again")
    return examples


def _difference(run: Callable[..., np.ndarray], examples: Examples) -> Difference:
    """Return how the scores differ, as a fraction of each example's largest absolute score."""
    worst, rows, differing = 0.0, 0, 0
    for inputs, scores in examples:
        exported = run(*inputs)
        if exported.shape != scores.shape:
            raise ValueError(f"scores must be {scores.shape}, the export gives {exported.shape}")
        largest = float(np.abs(scores).max(initial=0)) or 1.0
        shares = np.abs(exported - scores) / largest
        rows, differing = rows + shares.size, differing + int((~(shares <= DIFFERS)).sum())
        if not (share := float(shares.max(initial=0))) <= worst:  # `not <=` is also true for NaN
            worst = share
    return Difference(worst, rows, differing)


@contextmanager
def _quiet() -> Iterator[None]:
    """Hide the exporters' warnings, such as one about a missing torchvision."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "torch.export")]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
