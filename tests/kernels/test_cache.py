"""The cache of compiled code: missing, in a folder that cannot be written, and shared."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ltr.kernels.cpu import cache

ROOT = Path(__file__).parents[2]

MODULE = """
import numpy as np
from ltr.kernels.cpu.jit import entry, jit

@jit
def _twice(x):
    return 2 * x

@entry
@jit
def double(x, out):
    for k in range(len(x)):
        out[k] = _twice(x[k])
"""

CALL = """
import json, sys, warnings
import numba, numpy as np
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import module
out = np.empty(2)
module.double(np.array([1.0, 2.0]), out)
stats = module.double.__wrapped__.stats
print(json.dumps({
    "out": out.tolist(),
    "hits": sum(stats.cache_hits.values()),
    "misses": sum(stats.cache_misses.values()),
    "path": stats.cache_path,
    "warnings": [str(w.message) for w in caught],
}))
"""

Run = Callable[..., subprocess.Popen]


def starter(folder: Path) -> Run:
    """Start Python code in a process that finds `module`; without HOME but with what is given."""
    (folder / "code").mkdir()
    (folder / "code" / "module.py").write_text(MODULE)

    def start(code: str, **environment: str) -> subprocess.Popen:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("NUMBA", "XDG"))}
        kept |= {"HOME": os.devnull, "PYTHONDONTWRITEBYTECODE": "1", **environment}
        kept["PYTHONPATH"] = os.pathsep.join([str(folder / "code"), str(ROOT)])
        return subprocess.Popen(
            [sys.executable, "-c", code],
            cwd=folder,  # which Python would search for modules first
            env=kept,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return start


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return starter(tmp_path)


LINE = "ltr: compiling, once, which takes up to a minute\n"


class Warm(NamedTuple):
    """A folder with `code` and a `cache`, which several processes at once have filled."""

    folder: Path
    run: Run
    answers: list[dict]
    said: list[str]
    """What each process wrote on stderr."""

    @property
    def cache(self) -> Path:
        return self.folder / "cache"


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Warm:
    folder = tmp_path_factory.mktemp("warm")
    run = starter(folder)
    at_once = [run(CALL, NUMBA_CACHE_DIR=str(folder / "cache")) for _ in range(2)]
    ended = [answer(process) for process in at_once]
    return Warm(folder, run, [out for out, _ in ended], [error for _, error in ended])


def answer(process: subprocess.Popen) -> tuple[Any, str]:
    """Return the value that a process has printed, and what it wrote on stderr."""
    out, error = process.communicate(timeout=300)
    assert process.returncode == 0, error
    return json.loads(out), error


def test_one_process_compiles_and_the_others_load(warm: Warm):
    assert [x["out"] for x in warm.answers] == [[2.0, 4.0]] * 2
    assert sorted((x["hits"], x["misses"]) for x in warm.answers) == [(0, 1), (1, 0)]


def test_the_process_that_compiles_prints_one_line(warm: Warm):
    assert warm.said == [LINE * x["misses"] for x in warm.answers]
    other = "\nmodule.double(np.array([1, 2]), out)  # another dtype\n"
    found, said = answer(warm.run(CALL + other, NUMBA_CACHE_DIR=str(warm.cache)))
    assert (found["hits"], said) == (1, LINE)


def test_a_writable_folder_is_used_without_a_warning(warm: Warm):
    for found in warm.answers:
        assert found["warnings"] == []
        assert Path(found["path"]).parent == warm.cache


READ_ONLY = """
import os, tempfile
written = tempfile.TemporaryFile
def refuse(*args, dir=None, **kwargs):
    if str(dir).startswith(os.environ["NUMBA_CACHE_DIR"]):
        raise OSError
    return written(*args, dir=dir, **kwargs)
tempfile.TemporaryFile = refuse
"""


# imports the module a second time, from a folder beside which no cache can be written
UNCACHED = """
numba.config.CACHE_DIR = ""
del sys.modules["module"]
sys.path.insert(0, "uncached")
"""


class Refused(NamedTuple):
    """What two calls in a process find that may not write into the cache, and what it says."""

    elsewhere: dict
    nowhere: dict
    """Without any folder that can be written."""
    said: str
    is_untouched: bool
    """Whether the cache's files stayed as they were."""


@pytest.fixture(scope="module")
def refused(warm: Warm) -> Refused:
    before = sorted(p.relative_to(warm.cache) for p in warm.cache.rglob("*"))
    (warm.folder / "uncached").mkdir()
    (warm.folder / "uncached" / "module.py").write_text(MODULE)
    # a file in the place of the folder cannot be written into by root either
    (warm.folder / "uncached" / "__pycache__").touch()
    code = READ_ONLY + CALL + UNCACHED + CALL
    out, error = warm.run(code, NUMBA_CACHE_DIR=str(warm.cache)).communicate(timeout=300)
    elsewhere, nowhere = map(json.loads, out.splitlines() or [error])
    after = sorted(p.relative_to(warm.cache) for p in warm.cache.rglob("*"))
    return Refused(elsewhere, nowhere, error, before == after)


def test_with_a_read_only_cache_code_is_compiled_anew(warm: Warm, refused: Refused):
    found = refused.elsewhere
    assert found["out"] == [2.0, 4.0]
    assert (found["hits"], found["misses"]) == (0, 1)
    assert found["warnings"] == []
    assert Path(found["path"]) == warm.folder / "code" / "__pycache__"
    assert refused.said == LINE
    assert refused.is_untouched


def test_no_writable_folder_is_one_warning_and_compiles(refused: Refused):
    found = refused.nowhere
    assert found["out"] == [2.0, 4.0]
    assert found["path"] is None
    assert len(found["warnings"]) == 1
    assert "NUMBA_CACHE_DIR" in found["warnings"][0]


HOLD = """
import time
from pathlib import Path
from filelock import FileLock
with FileLock(Path({folder!r}) / "ltr-compile.lock"):
    print("held", flush=True)
    time.sleep(600)
"""


def test_waiting_for_a_holder_ends_and_a_dead_one_gives_up_its_lock(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder = tmp_path / "cache"
    folder.mkdir()
    holder = run(HOLD.format(folder=str(folder)))
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with monkeypatch.context() as patch:
            patch.setattr(cache, "WAIT_SECONDS", 0.2)
            entered = False
            with cache.locked(str(folder)):
                entered = True
            assert entered
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.communicate()
    begin = time.monotonic()
    with cache.locked(str(folder)):
        pass
    assert time.monotonic() - begin < cache.WAIT_SECONDS / 2  # not the limit but the lock


def test_a_folder_that_cannot_be_locked_is_no_error(tmp_path: Path):
    (tmp_path / "file").touch()
    for folder in (None, str(tmp_path / "file")):
        entered = False
        with cache.locked(folder):
            entered = True
        assert entered


def test_an_error_within_a_turn_is_raised_and_ends_it(tmp_path: Path):
    def fail() -> None:
        with cache.locked(str(tmp_path)):
            raise OSError("no space left")

    with pytest.raises(OSError, match="no space left"):
        fail()
    with cache.locked(str(tmp_path)):
        pass


@pytest.mark.slow  # compiles everything, for minutes
def test_after_precompile_nothing_is_compiled(run: Run, tmp_path: Path):
    cache = str(tmp_path / "cache")
    first = run("from ltr.precompile import main\nraise SystemExit(main())", NUMBA_CACHE_DIR=cache)
    out, error = first.communicate()
    assert first.returncode == 0, error
    assert cache in out
    use = """
import json, torch
from numba.core import event
recorder = event.RecordingListener()
event.register("numba:compile", recorder)
from ltr.losses import LambdaRank, NeuralNDCG, RankNet, SoftNDCG
from ltr.operators import GaussianRank, LapSum, NeuralSort, SoftRank, SoftSort
for dtype in (torch.float32, torch.float64):
    for shape in ((4, 11), (3, 900), (2, 2, 30)):
        scores = torch.randn(shape, dtype=dtype, requires_grad=True)
        labels = torch.randint(0, 3, shape).to(dtype)
        operators = GaussianRank(), LapSum(), NeuralSort(), SoftRank(), SoftSort()
        losses = [SoftNDCG(x, top_k=5, mean="arithmetic") for x in operators]
        losses += [SoftNDCG(mean="tight"), NeuralNDCG(), RankNet(), LambdaRank()]
        for loss in losses:
            loss(scores, labels).backward()
print(json.dumps([str(e.data["dispatcher"]) for _, e in recorder.buffer]))
"""
    assert answer(run(use, NUMBA_CACHE_DIR=cache))[0] == []


@pytest.mark.slow  # compiles what a loss needs, without a cache
def test_losses_in_an_installation_that_cannot_cache(run: Run, tmp_path: Path):
    shutil.copytree(ROOT / "ltr", tmp_path / "code" / "ltr", ignore=lambda *_: ["__pycache__"])
    (tmp_path / "code" / "ltr" / "kernels" / "cpu" / "__pycache__").touch()
    code = """
import json, warnings, torch
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    from ltr.losses import SoftNDCG
    from ltr.operators import SoftSort
    scores = torch.tensor([0.5, 0.1, 0.3], requires_grad=True)
    SoftNDCG(SoftSort())(scores, torch.tensor([0.0, 1.0, 0.0])).backward()
print(json.dumps([scores.grad.isfinite().all().item(), [str(w.message) for w in caught]]))
"""
    (finite, caught), _ = answer(run(code))
    assert finite
    assert len(caught) == 1
    assert "NUMBA_CACHE_DIR" in caught[0]
