"""The model that a command names.

It may be a checkpoint, `best` or `last` of the newest run, the folder of a run, the folder that
`NeuralRanker.save`, `Blend.save` or an export wrote, or an ONNX file.
"""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from ltr.cli.errors import CommandError
from ltr.cli.runs import find_checkpoint, numbered
from ltr.config.folder import CONFIG, read_folder
from ltr.datasets import Schema
from ltr.datasets.column_steps import STEPS
from ltr.estimators.scoring import looks_at_list, score_codes
from ltr.models import RankingModel, Scorer
from ltr.modules import Ranker
from ltr.modules.checkpoint_file import read_checkpoint
from ltr.names import nearest
from ltr.serving import steps_of

if TYPE_CHECKING:
    from ltr.estimators import Blend
    from ltr.serving import OnnxRanker

_NAMES = ("best", "last")
_RUNS = Path("runs")


def find_model(value: str, root: Path | None = None, *, resume: bool = False) -> Path | None:
    """Return the file or the folder of a model.

    Args:
        value: the user's argument; see the module.
        root: the folder whose runs `best` and `last` refer to. Default: the one with the newest
            checkpoint of this name in the folder `runs`.
        resume: whether to resume a training: the folder of a run stands for its `last.ckpt`, and
            the result is None if there is no `last` yet. Default: the folder stands for
            `best.ckpt`, or for `last.ckpt` if there is none.

    Raises:
        CommandError: there is no such model; the message names the nearest.
    """
    path = Path(value).expanduser()
    if value in _NAMES:
        roots = [root] if root else [one for one in _RUNS.glob("*") if one.is_dir()]
        found = [file for one in roots if (file := find_checkpoint(one, value))]
        if found:
            return max(found, key=lambda file: file.stat().st_mtime_ns)
        if resume and value == "last":
            return None
    elif path.is_file() or (path / CONFIG).is_file():
        return path
    elif path.is_dir():
        for name in _NAMES[resume:]:
            if file := find_checkpoint(path, name):
                return file
    root = path if path.is_dir() else root or _RUNS
    there = [str(file) for run in numbered(root) for file in run.glob("checkpoints/*.ckpt")]
    choice = nearest(value, there) if there else f"{root} has none"
    raise CommandError(f"no checkpoint {value!r}: {choice}")


def is_checkpoint(path: Path) -> bool:
    """Return whether a model is a checkpoint: neither a folder nor an exported file.

    >>> is_checkpoint(Path("best.ckpt")), is_checkpoint(Path("model.onnx"))
    (True, False)
    """
    return not path.is_dir() and path.suffix not in (".onnx", ".pt2")


def is_of_table(path: Path) -> bool:
    """Return whether a model has the columns of the table that it was trained on.

    Raises:
        ValueError: it is damaged, or a program of `torch.export`.
    """
    if path.suffix == ".pt2":
        raise CommandError(
            f"{path} is a torch.export program, which ltr cannot run: give the ONNX file or "
            "the original model"
        )
    if is_checkpoint(path):
        return read_checkpoint(path).get("schema") is not None
    if path.is_dir():
        return read_folder(path)[0].get("schema") is not None
    return _onnx(path).about["features"] is not None


def is_blend(path: Path) -> bool:
    """Return whether a model is a folder that `Blend.save` wrote.

    Raises:
        ValueError: it is a damaged folder.
    """
    return path.is_dir() and "rankers" in read_folder(path)[0]


def load_ranker(path: Path, trust: list[str]) -> Ranker:
    """Return a model for tests and scores.

    Raises:
        ValueError: it is damaged, or names a class that is not trusted.
    """
    if is_checkpoint(path):
        return Ranker.load_from_checkpoint(path, map_location="cpu", trust=trust)
    if is_blend(path):
        from ltr.estimators import Blend

        blend = Blend.load(path, trust=trust)
        return _ranker(_OutsideScorer(_BlendModel(blend)), _Joined(), blend.schema_)
    if path.is_dir():
        saved = RankingModel.load(path, trust=trust)
        return _ranker(saved.scorer, saved.transform, saved.schema)
    model = _onnx(path)
    schema = Schema("", steps=steps_of(model.about, STEPS)) if model.steps else None
    return _ranker(_OutsideScorer(model), _Joined(), schema)


def use_names(ranker: Ranker, data: Any) -> None:
    """Use the data's names of qid, label and ids for a model that is not a checkpoint.

    `NeuralRanker` has its own names for them, and an ONNX file has none.

    Raises:
        ValueError: the column of the qid has no name.
    """
    uses = {key: name for key, name in getattr(data, "uses", {}).items() if name is not None}
    if ranker.schema is not None:
        ranker.schema = replace(ranker.schema, **uses)
        if not ranker.schema.qid:
            raise ValueError("--data.qid is required: an ONNX file does not name the column")


def _ranker(scorer: Scorer, transform: Any, schema: Schema | None) -> Ranker:
    found = Ranker()  # which would copy a scorer that it is given; that of ONNX has no copy
    found.scorer, found.transform, found.schema = scorer, transform, schema
    return found


def _onnx(path: Path) -> "OnnxRanker":
    from ltr.serving import OnnxRanker

    return OnnxRanker(path, threads=torch.get_num_threads())


class _Joined(nn.Module):
    """Concatenate features and codes of categories: the transform is inside the ONNX file."""

    within_list, takes_missing = False, True

    def forward(
        self, features: Tensor, mask: Tensor | None, categories: Tensor | None = None
    ) -> Tensor:
        return features if categories is None else torch.cat([features, categories.float()], -1)


class _BlendModel:
    """A Blend with the attributes `about` and `score_arrays` of `OnnxRanker`."""

    def __init__(self, blend: "Blend") -> None:
        self.blend = blend
        schema = blend.schema_
        categories = {} if schema is None else schema.categories
        self.about = {"looks_at_list": looks_at_list(blend), "categories": categories}

    def score_arrays(self, features: np.ndarray, codes: np.ndarray | None) -> np.ndarray:
        """Return the scores (documents,) of one list, float64."""
        return score_codes(self.blend, features, codes)


class _OutsideScorer(Scorer):
    """The model of an ONNX file or a Blend, which scores one list at a time."""

    def __init__(self, model: "OnnxRanker | _BlendModel") -> None:
        super().__init__()
        self.model = model
        self.per_document = not model.about["looks_at_list"]
        self.num_categories = len(model.about["categories"] or {})

    def score(self, features: Tensor, mask: Tensor | None) -> Tensor:
        """Return the scores (..., n) of the result of `_Joined`."""
        lists = features.cpu().flatten(0, -3) if features.dim() > 2 else features.cpu()[None]
        if self.per_document:
            lists, mask = lists.flatten(0, 1)[None], None
        real = torch.ones(lists.shape[:2], dtype=torch.bool)
        real = real if mask is None else mask.cpu().reshape(real.shape)
        scores = torch.zeros(real.shape)
        width = features.shape[-1] - self.num_categories
        for rows, kept, found in zip(lists, real, scores, strict=True):
            values, codes = rows[kept].split([width, self.num_categories], dim=-1)
            given = codes.long().numpy() if self.num_categories else None
            own = self.model.score_arrays(values.numpy(), given)
            found[kept] = torch.from_numpy(own).to(found.dtype)
        return scores.reshape(features.shape[:-1]).to(features.device)
