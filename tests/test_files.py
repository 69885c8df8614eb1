"""Files appear under their names whole, or not at all."""

import errno
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from ltr.cli import main
from ltr.export import export_model
from ltr.files import atomic_write, check_path
from ltr.metrics.trec import read_qrels, read_run, write_qrels, write_run
from ltr.models import LinearScorer, RankingModel
from ltr.rerank import fuse, lists_from_run, read_texts
from ltr.serving import OnnxRanker

WAIT = """
import sys, time
from ltr.files import atomic_write
with atomic_write(sys.argv[1]) as partial:
    partial.write_text("half")
    print("writing", flush=True)
    time.sleep(60)
"""


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def writer(path: Path) -> subprocess.Popen:
    process = subprocess.Popen([sys.executable, "-c", WAIT, str(path)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"writing\n"
    return process


def test_the_file_appears_whole_and_replaces_the_old_one(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with atomic_write(path) as partial:
        assert partial.parent == tmp_path
        assert partial.read_bytes() == b""
        partial.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert names(tmp_path) == ["a.txt"]


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt, SystemExit])
def test_after_an_error_the_old_file_stands_alone(tmp_path, kind):
    path = tmp_path / "a.txt"
    path.write_text("old")

    def fail() -> None:
        with atomic_write(path) as partial:
            partial.write_text("half")
            raise kind

    with pytest.raises(kind):
        fail()
    assert path.read_text() == "old"
    assert names(tmp_path) == ["a.txt"]


def test_a_symbolic_link_stays_one(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link.txt").symlink_to(tmp_path / "real" / "a.txt")
    with atomic_write(tmp_path / "link.txt") as partial:
        partial.write_text("new")
    assert (tmp_path / "link.txt").is_symlink()
    assert (tmp_path / "real" / "a.txt").read_text() == "new"


def test_a_name_of_255_bytes_can_be_written(tmp_path):
    path = tmp_path / ("é" * 127)
    with atomic_write(path) as partial:
        partial.write_text("new")
    assert path.read_text() == "new"


def test_only_the_home_of_a_user_is_replaced(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert check_path("path", "~/a.txt") == tmp_path / "a.txt"
    assert check_path("path", "~no such user.txt") == Path("~no such user.txt")


def test_what_is_written_in_the_home_folder_is_read_there(tmp_path, monkeypatch):
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("HOME", str(tmp_path))
    run, qrels, texts = {"q": {"a": 1.0}}, {"q": {"a": 1}}, {"q": "cat", "a": "red cat"}
    write_run("~/a.run", run)
    write_qrels("~/new/q.txt", qrels)
    assert read_run("~/a.run") == run
    assert read_qrels("~/new/q.txt") == qrels
    assert fuse(["~/a.run", run])["q"].keys() == {"a"}
    lists_from_run("~/a.run", "~/new/q.txt", texts, texts).write("~/l.jsonl")
    (tmp_path / "t.tsv").write_text("q\tcat\n")
    assert [*read_texts("~/t.tsv")] == [("q", "cat")]
    export_model(RankingModel(LinearScorer(2)), "~/m.pt2")
    assert names(tmp_path) == ["a.run", "l.jsonl", "m.md", "m.pt2", "new", "t.tsv", "work"]
    assert main(["evaluate", "~/a.run", "--qrels", "~/new/q.txt", "--resamples", "5"]) == 0
    assert names(tmp_path / "work") == []
    with pytest.raises(ValueError, match="no digest"):  # the file is found
        OnnxRanker("~/a.run")


def test_an_error_without_a_number_keeps_its_message(tmp_path):
    with pytest.raises(OSError, match="8 requested and 3 written"), atomic_write(tmp_path / "a"):
        raise OSError("8 requested and 3 written")  # as numpy says on a full disk


def test_a_full_disk_is_named_by_the_file(tmp_path):
    path = tmp_path / "a.txt"
    with pytest.raises(OSError, match=r"a\.txt") as caught, atomic_write(path):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert caught.value.errno == errno.ENOSPC
    assert names(tmp_path) == []


def test_a_missing_folder_is_made_and_goes_after_an_error(tmp_path):
    path = tmp_path / "new" / "one" / "a.txt"
    with pytest.raises(ValueError, match="stop"), atomic_write(path):
        raise ValueError("stop")
    assert names(tmp_path) == []
    with atomic_write(path) as partial:
        partial.write_text("whole")
    assert path.read_text() == "whole"


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "no").write_text("a file")
    with pytest.raises(OSError, match="no"), atomic_write(tmp_path / "no" / "a.txt"):
        pass


def test_threads_that_write_one_file_leave_one_of_theirs(tmp_path):
    path = tmp_path / "a.txt"

    def write(text: str) -> None:
        for _ in range(20):
            with atomic_write(path) as partial:
                partial.write_text(text * 1000)

    threads = [threading.Thread(target=write, args=(text,)) for text in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert path.read_text() in {text * 1000 for text in "abc"}
    assert names(tmp_path) == ["a.txt"]
