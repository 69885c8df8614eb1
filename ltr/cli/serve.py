"""`ltr serve`: rank over HTTP with an exported model."""

from argparse import Namespace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from ltr.cli.arguments import LineParser, up_to
from ltr.cli.errors import CommandError
from ltr.cli.models import add_model, find_model, load_model, open_onnx
from ltr.files import check_path

if TYPE_CHECKING:
    from ltr.serving import OnnxRanker


def serve(parser: LineParser, args: list[str]) -> None:
    """Rank over HTTP until the command is interrupted or terminated.

    A model that is not exported is exported first. The service has no authentication.
    """
    add_model(parser, "an ONNX file, or the folder of an export, of a model or of a run")
    add = parser.add_argument
    add("--host", default="127.0.0.1", help="where to listen (default: 127.0.0.1, this machine)")
    add("--port", type=up_to(65535), default=8000, help="default: 8000; 0: any free one")
    add("--threads", type=int, default=1, help="CPU threads for the scores of one list; default: 1")
    add("--max-documents", type=int, default=1000, help="of a list")
    add("--max-lists", type=int, default=100, help="of a request")
    add("--max-bytes", type=int, default=16_000_000, help="of a request")
    add("--max-seconds", type=int, default=10, help="in which the body of a request must arrive")
    given = parser.parse_args(args)
    try:
        import uvicorn

        from ltr.serve import Limits, make_app
    except ImportError as error:
        raise CommandError(f"ltr serve needs pip install 'ltr-torch[serve]': {error}") from error

    path = check_path("model", given.model) / "model.onnx"
    path = path if path.is_file() else find_model(given.model)
    ranker = _exported(given) if path.is_dir() else open_onnx(path, given.threads)
    limits = Limits(given.max_documents, given.max_lists, given.max_bytes, given.max_seconds)
    app = make_app(ranker, limits)
    config = uvicorn.Config(
        app,
        given.host,
        given.port,
        log_level="info",
        access_log=False,
        timeout_graceful_shutdown=5,
    )
    try:
        uvicorn.Server(config).run()
    except SystemExit as error:
        address = f"{given.host}:{given.port}"
        raise CommandError(f"cannot listen on {address}; see the message above") from error


def _exported(given: Namespace) -> "OnnxRanker":
    """Export the model of a folder to a temporary ONNX file, check it, and return its ranker."""
    from ltr.export import export_model

    with TemporaryDirectory() as folder:
        file = Path(folder, "model.onnx")
        export_model(load_model(given), file)
        return open_onnx(file, given.threads)
