"""What all tests share: one thread per worker, and where the real data lies."""

import atexit
import gc
import logging
import os
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cache
from importlib import import_module
from pathlib import Path

# One thread for each worker: numpy and child processes read this when they start. LightGBM takes a
# thread for each core all the same, unless there is a limit, and waiting threads take a core too.
os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"
os.environ["OMP_THREAD_LIMIT"] = "1"

import pytest
import torch

torch.set_num_threads(1)
gc.disable()  # until the tests are collected
atexit.register(gc.unfreeze)  # libraries look for what is left as Python ends

# Keep bytecode even if the environment says not to: without it each process, those that tests start
# too, compiles ltr again, which takes three seconds, and each worker the tests, which takes ten.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Without a handler Python prints warnings of loggers, and Lightning adds a handler of its own.
logging.getLogger().addHandler(logging.NullHandler())


def pytest_collection_finish(session: pytest.Session) -> None:
    """Import shap without its compiler, and let the collector pass over what the imports made.

    shap compiles for seven seconds in each process; its Python code adds up our few rows at once.
    The imports leave a million objects that stay, and a trace of torch makes as many that are soon
    gone: the collector, which looks for circles after 700 new objects by default, waits for more.
    """
    if any("contributions" in item.nodeid or "explain" in item.nodeid for item in session.items):
        with suppress(ImportError), pytest.MonkeyPatch.context() as patch:
            patch.setattr("numba.config.DISABLE_JIT", True)
            import_module("shap")
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 10, 10)
    gc.enable()


@pytest.fixture(scope="module", autouse=True)
def collected() -> Iterator[None]:
    """Collect what a module's tests leave, and let the collector pass over what stays.

    Exports leave copies of classes, and the command line finds a class by its name. Besides,
    exports call the collector, which takes a third of a second for all that the imports made.
    """
    keep_table_of_exporter()
    yield
    gc.collect()
    gc.freeze()


def keep_table_of_exporter() -> None:
    """Keep the table of operators that torch's ONNX exporter makes again for each export.

    It is the same one for a version of ONNX, and takes half a second, a fifth of an export.
    """
    module = sys.modules.get("torch.onnx._internal.exporter._registration")
    registry = getattr(module, "ONNXRegistry", None)
    if registry is not None and not isinstance(vars(registry)["from_torchlib"], staticmethod):
        registry.from_torchlib = staticmethod(cache(registry.from_torchlib))


@pytest.fixture(scope="session", autouse=True)
def user_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder for the user's cache, instead of the real one, for child processes too."""
    folder = tmp_path_factory.mktemp("user-cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        yield folder


@pytest.fixture(scope="session")
def data_root() -> Path:
    """The folder with the real data sets (`LTR_DATA`, or shared/data beside the checkout)."""
    default = Path(__file__).parents[2] / "shared" / "data"
    root = Path(os.environ.get("LTR_DATA", default))
    if not root.is_dir():
        pytest.skip(
            f"no real data at {root}: set LTR_DATA to the folder that holds MQ2008 and others"
        )
    return root


@pytest.fixture
def messages() -> Iterator[list[str]]:
    """The messages that are logged, from the level INFO."""
    found: list[str] = []
    handler, log = logging.Handler(), logging.getLogger()
    handler.emit = lambda record: found.append(record.getMessage())
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    yield found
    log.removeHandler(handler)
    log.setLevel(level)


@pytest.fixture
def largest_file(
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[[int], AbstractContextManager[None]]:
    """A context in which no file becomes larger than a number of bytes, as on a full disk."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # Python would leave half a file

    @contextmanager
    def limited(size: int) -> Iterator[None]:
        import resource  # which Windows has not

        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    return limited


@pytest.fixture
def free_port() -> int:
    """A port of this machine that nothing listens on."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return server.getsockname()[1]
