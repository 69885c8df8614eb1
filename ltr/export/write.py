"""Write an exported model, and compare it with the model on the spot."""

import copy
import json
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ltr._files import atomic_write
from ltr.config import to_config
from ltr.export.card import Evaluation, model_card
from ltr.export.program import ExportedRanker, Target, describe

LIMIT = 1e-5
"""The largest difference from the model that an export may have, of the largest score."""

_SHAPES = ((1, 1), (2, 5), (3, 1), (6, 40), (9, 130))  # lists x documents
_SUFFIX = {"onnx": ".onnx", "torch": ".pt2"}
_OLDEST = 18  # the lowest opset that torch writes; onnx converts to those below
_INSTALL = "export needs onnx, onnxscript and onnxruntime: pip install 'ltr-torch[export]'"


@dataclass(frozen=True)
class Exported:
    """What an export wrote.

    Attributes:
        model: the file of the model.
        card: the model card.
        difference: the largest difference from the model's scores, of the largest absolute score.
    """

    model: Path
    card: Path
    difference: float


def export_model(
    module: ExportedRanker,
    path: str | PathLike[str],
    *,
    to: Target = "onnx",
    opset: int = 17,
    evaluation: Evaluation | None = None,
) -> Exported:
    """Write a model for other programs, and check it against the model.

    The file takes raw features, NaN for a missing value, and codes of categories; the transform is
    inside. Numbers of lists and lengths are free. The check scores lists inside the range of the
    training data, with missing values and unseen categories, and far outside the range, of 1 to
    130 documents.

    Args:
        module: the model.
        path: a file that ends in .onnx or .pt2, with the card beside it (`NAME.md`); or a folder,
            made if it is missing, which gets the model, `README.md` (the card),
            `model.safetensors` and `config.json`.
        to: "onnx", which onnxruntime and search engines run, or "torch", a program of
            `torch.export` for `torch.export.load`. Neither needs ltr.
        opset: of ONNX.
        evaluation: metrics for the card; see `evaluate`.

    Raises:
        ValueError: an argument is wrong, a package is missing, the model cannot be exported, or
            the exported one differs by more than 1e-5 of the largest absolute score. Then no file
            is left.

    >>> from tempfile import mkdtemp
    >>> from ltr.models import LinearScorer
    >>> module = ExportedRanker(None, LinearScorer(3), None)
    >>> export_model(module, Path(mkdtemp(), "model.pt2"), to="torch").difference
    0.0
    """
    if to not in _SUFFIX:
        raise ValueError(f'to must be "onnx" or "torch", got {to!r}')
    if isinstance(opset, bool) or not isinstance(opset, int) or opset < 13:
        raise ValueError(f"opset must be a whole number >= 13, got {opset!r}")
    path = Path(path)
    if path.suffix in _SUFFIX.values():
        if path.suffix != _SUFFIX[to]:
            raise ValueError(f"path must end in {_SUFFIX[to]} for to={to!r}, got {path}")
        target, card, folder = path, path.with_suffix(".md"), None
    else:
        target, card, folder = path / f"model{_SUFFIX[to]}", path / "README.md", path
    target.parent.mkdir(parents=True, exist_ok=True)
    module = module.cpu().eval()
    with atomic_write(target) as partial:
        if to == "onnx":
            _write_onnx(module, partial, opset)
            run = _onnx_runner(partial)
        else:
            _write_program(module, partial)
            run = _program_runner(partial)
        difference = _largest_difference(module, run)
        if not difference <= LIMIT:
            raise ValueError(
                f"the exported model differs from the model by {difference:.2g} of the largest "
                f"score, more than {LIMIT:g}"
            )
    if folder is not None:
        _write_weights(module, folder)
    text = model_card(module, target.name, to, difference, evaluation)
    with atomic_write(card) as partial:
        partial.write_text(text, encoding="utf-8")
    return Exported(target, card, difference)


def _shapes(module: ExportedRanker) -> tuple[dict[int, Any], ...]:
    """Return which axes of the inputs are free."""
    if module.per_document:
        free: dict[int, Any] = {0: torch.export.Dim("documents", min=1)}
    else:
        free = {0: torch.export.Dim("lists", min=1), 1: torch.export.Dim("documents", min=1)}
    return tuple(free for _ in module.inputs)


def _write_program(module: ExportedRanker, path: Path) -> None:
    module = copy.deepcopy(module)
    for part in module.modules():
        for name, buffer in [*part.named_buffers(recurse=False)]:
            if not buffer.numel():  # torch.export.save takes all empty buffers for one
                delattr(part, name)
                setattr(part, name, buffer)  # no buffer now, and no graph uses it
    with _quiet():
        program = torch.export.export(
            _Positional(module), module.example(3, 4), dynamic_shapes=(_shapes(module),)
        )
        with path.open("wb") as file:  # a path must end in .pt2, which a partial file's does not
            torch.export.save(program, file, extra_files={"ltr.json": json.dumps(describe(module))})


def _write_onnx(module: ExportedRanker, path: Path, opset: int) -> None:
    try:
        import onnx
        import onnx.version_converter
        import onnxscript  # noqa: F401  # torch's exporter imports it
    except ImportError as error:
        raise ValueError(_INSTALL) from error
    with _quiet():
        program = torch.onnx.export(
            _Positional(module),
            module.example(3, 4),
            dynamo=True,
            opset_version=max(opset, _OLDEST),
            dynamic_shapes=(_shapes(module),),
            input_names=list(module.inputs),
            output_names=["scores"],
            verbose=False,
        )
    assert program is not None  # it is, with dynamo=True
    model = program.model_proto
    try:
        if opset < _OLDEST:
            model = onnx.version_converter.convert_version(model, opset)
        onnx.checker.check_model(model)
    except (RuntimeError, onnx.checker.ValidationError) as error:
        raise ValueError(f"opset must be higher for this model, got {opset}: {error}") from error
    onnx.helper.set_model_props(model, {"ltr": json.dumps(describe(module))})
    path.write_bytes(model.SerializeToString())


def _onnx_runner(path: Path) -> Callable[..., np.ndarray]:
    try:
        import onnxruntime
    except ImportError as error:
        raise ValueError(_INSTALL) from error
    session = onnxruntime.InferenceSession(path.read_bytes(), providers=["CPUExecutionProvider"])
    names = [one.name for one in session.get_inputs()]

    def run(*inputs: Tensor) -> np.ndarray:
        given = {name: x.numpy() for name, x in zip(names, inputs, strict=True)}
        return np.asarray(session.run(None, given)[0])

    return run


def _program_runner(path: Path) -> Callable[..., np.ndarray]:
    with path.open("rb") as file, _quiet():
        module = torch.export.load(file).module()

    def run(*inputs: Tensor) -> np.ndarray:
        with torch.no_grad():
            return module(*inputs).numpy()

    return run


def _largest_difference(module: ExportedRanker, run: Callable[..., np.ndarray]) -> float:
    """Return the largest difference of the scores, of the largest absolute score of each shape."""
    worst = 0.0
    for seed, (lists, length) in enumerate(_SHAPES):
        inputs = module.example(lists, length, seed)
        with torch.no_grad():
            expected = module(*inputs).numpy()
        found = run(*inputs)
        if found.shape != expected.shape:
            raise ValueError(f"scores must be {expected.shape}, the export gives {found.shape}")
        largest = float(np.abs(expected).max(initial=0)) or 1.0
        worst = max(worst, float(np.abs(found - expected).max(initial=0)) / largest)
        if not np.isfinite(worst):
            return worst
    return worst


def _write_weights(module: ExportedRanker, folder: Path) -> None:
    """Write weights and configuration beside the model."""
    from safetensors.torch import save_file

    parts: dict[str, nn.Module] = {"scorer": module.scorer}
    if module.transform is not None:
        parts["transform"] = module.transform
    state = {
        f"{part}.{name}": x.detach().contiguous()
        for part, one in parts.items()
        for name, x in one.state_dict().items()
    }
    content: dict[str, Any] = {**describe(module)}
    for name, one in parts.items():
        try:
            content[name] = to_config(one)
        except ValueError as error:
            content[name] = None
            warnings.warn(f"{name} is not in config.json: {error}", stacklevel=3)
    content["schema"] = None if module.schema is None else module.schema.to_dict()
    with atomic_write(folder / "model.safetensors") as partial:
        save_file(state, partial)
    with atomic_write(folder / "config.json") as partial:
        partial.write_text(json.dumps(content, indent=1, allow_nan=False) + "\n", encoding="utf-8")


class _Positional(nn.Module):
    """The model with its inputs as one tuple of arguments, as the exporters want their shapes."""

    def __init__(self, module: ExportedRanker) -> None:
        super().__init__()
        self.module = module
        self.eval()

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.module(*inputs)


@contextmanager
def _quiet() -> Iterator[None]:
    """Hide what the exporters say of their own parts, such as a missing torchvision."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "torch.export")]
    levels = [one.level for one in loggers]
    try:
        for one in loggers:
            one.setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for one, level in zip(loggers, levels, strict=True):
            one.setLevel(level)
