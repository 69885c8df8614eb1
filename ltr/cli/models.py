"""The model that a command names: a folder, a run, or an ONNX file."""

from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ltr.cli.arguments import LineParser, import_from_here
from ltr.cli.errors import CommandError
from ltr.files import check_path
from ltr.names import nearest

if TYPE_CHECKING:
    from ltr.estimators import Calibrated
    from ltr.serving import OnnxRanker

_ABOUT = "the folder of a model or of a run, or an ONNX file"
MODEL = "model"
"""The name of the folder of the best model in the folder of a run."""


def find_model(value: str) -> Path:
    """Return the folder or the file of a model.

    Args:
        value: the user's argument: a folder that `ltr fit`, `NeuralRanker.save`, `Blend.save` or an
            export wrote; the folder of a run, which stands for its best model; the folder of a
            recipe's runs, which stands for the newest model; or an ONNX file.

    Raises:
        CommandError: there is no such model (the message names similar ones), or it is a program of
            `torch.export` or a checkpoint.
    """
    from ltr.cli.runs import numbered
    from ltr.config.folder import CONFIG

    path = check_path("model", value)
    if path.suffix == ".pt2" and path.is_file():
        raise CommandError(
            f"{path} is a torch.export program, which ltr cannot run: give the ONNX file or the "
            "folder of the model"
        )
    if path.suffix == ".ckpt":
        raise CommandError(
            f"{path} is a checkpoint, from which a training goes on: give the folder of the "
            f"model, which `ltr fit` writes beside it ({path.parent.parent / MODEL})"
        )
    if path.is_file() or (path / CONFIG).is_file():
        return path
    runs = numbered(path) if path.is_dir() else []
    for run in runs:
        if (run / MODEL / CONFIG).is_file():
            return run / MODEL
    configs = [*Path().glob(f"*/{CONFIG}"), *Path("runs").glob(f"*/*/{MODEL}/{CONFIG}")]
    what = "holds no model" if path.is_dir() else "is no model"
    choice = f": {nearest(value, [str(config.parent) for config in configs])}" if configs else ""
    raise CommandError(f"{value} {what}{choice}")


def add_model(parser: LineParser, about: str = _ABOUT) -> None:
    """Add the arguments for the model and for the packages of its classes."""
    add = parser.add_argument
    parser.reads(add("model", metavar="MODEL", help=about), model_files)
    trusted = "a package whose classes the model may name; repeat it for several"
    add("--trust", action="append", default=[], metavar="PACKAGE", help=trusted)


def model_files(value: str) -> list[Path]:
    """Return the files from which a model is loaded, and their folder; or the ONNX file."""
    from ltr.config.folder import model_files

    path = find_model(value)
    return [path] if path.is_file() else [path, *model_files(path)]


def load_model(given: Namespace) -> Any:
    """Return the `RankingModel`, `BlendModel` or `OnnxModel` that the arguments name.

    Raises:
        CommandError: there is no such model, or onnxruntime is not installed for an ONNX file.
        ValueError: the model is damaged, or names a class that is not trusted.
    """
    path = find_model(given.model)
    if given.trust:
        import_from_here()
    if not path.is_dir():
        import torch

        from ltr.models.onnx import OnnxModel

        return OnnxModel(open_onnx(path, torch.get_num_threads()))
    from ltr.config.folder import read_folder

    if read_folder(path)[0]["kind"] == "Blend":
        from ltr.estimators import Blend

        return Blend.load(path, trust=given.trust).model_
    from ltr.models import RankingModel

    return RankingModel.load(path, trust=given.trust)


def load_calibration(given: Namespace) -> "Calibrated | None":
    """Return the calibration that is saved with the model that the arguments name, or None."""
    from ltr.config.folder import read_folder

    path = find_model(given.model)
    if not path.is_dir() or "calibration" not in read_folder(path)[0]:
        return None
    from ltr.estimators import Calibrated

    return Calibrated.of_folder(path)


def open_onnx(path: Path, threads: int) -> "OnnxRanker":
    """Return the ranker of an ONNX file; raise a `CommandError` if onnxruntime is not installed."""
    from ltr.serving import OnnxRanker

    try:
        return OnnxRanker(path, threads)
    except ModuleNotFoundError as error:
        raise CommandError("an ONNX file needs onnxruntime: pip install onnxruntime") from error
