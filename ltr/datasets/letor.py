"""Read lists from LETOR / svmlight text, in the form in which data sets are published."""

from collections.abc import Iterable
from os import PathLike
from pathlib import Path
from typing import Literal

import numpy as np

from ltr.compressed import SUFFIXES
from ltr.datasets.letor_reader import LetorReader
from ltr.datasets.lists import ListDataset, gather_runs, join_lists
from ltr.files import check_path
from ltr.shapes import check_at_least

_GROUP_SUFFIXES = (".query", ".group")


def read_letor(
    path: str | PathLike[str],
    *,
    num_features: int | None = None,
    sort_by_qid: bool = False,
    group_file: str | PathLike[str] | None = None,
    missing: Literal["keep", "error"] = "keep",
) -> ListDataset:
    r"""Read learning-to-rank text: `label qid:Q 1:v 2:v ... # comment`, one document a line.

    The file may be plain, gzip, bzip2, xz, zstd or a zip of one file; its first bytes decide. Lines
    end in LF or CRLF, and have at most 64 MiB. Blank lines, lines with only a comment, and blanks
    at the end of a line are allowed. A feature that a line leaves out is 0. If any line has a
    comment, the comments become document ids: `#docid = GX004-93-7097963 inc = 1` gives
    `GX004-93-7097963`, any other comment gives its text, and a line without a comment gives the
    empty string. LightGBM's files have no
    qid. They have a file of group sizes beside them (`rank.train.query` or `rank.train.group` for
    `rank.train`), and their lists are named "1", "2", ...

    Args:
        path: the file.
        num_features: the number of features; a larger index is an error. Default: the largest
            index in the file (at most 1,048,576).
        sort_by_qid: gather the lines of a qid that comes back after another qid. Lists and
            documents are in the order of their first appearance. By default such a qid is an error.
        group_file: the file of group sizes. Default: the one beside `path`, if there is one.
        missing: "keep" reads the values `NULL`, `NaN` and `nan` as NaN; "error" refuses them.

    Returns:
        The lists: features float32 (documents, num_features), NaN where missing. Where lines were
        gathered, `rows` says where each document stood, from 0.

    Raises:
        ValueError: the file is missing, empty, damaged or in another format; a label is missing,
            negative or not a finite number; a qid is missing, comes back, is written in two ways
            (`qid:5` and `qid:05`), or runs into a feature because a blank is missing; an
            `index:value` is malformed; an index is 0, negative, too large or comes twice in a line;
            a value is not a finite number; or the group sizes do not fit. The message names the
            file, the line and the text.

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder, "train.txt")
    ...     _ = file.write_text("2 qid:7 1:0.5 3:1 #docid = A1\n0 qid:7 2:0.25 #docid = B2\n")
    ...     data = read_letor(file)
    >>> data[0]["features"]
    tensor([[0.5000, 0.0000, 1.0000],
            [0.0000, 0.2500, 0.0000]])
    >>> data[0]["labels"], data[0]["doc_ids"]
    (tensor([2., 0.]), ['A1', 'B2'])
    """
    reader = letor_reader(path, num_features, sort_by_qid, group_file, missing)
    pieces = list(reader.pieces())
    check_end(reader, group_file)
    data = join_lists(pieces, across=True).widen(reader.width)
    if len({*data.qids}) < len(data.qids):
        data.rows = np.arange(len(data.labels))
    return gather_runs(data)


def letor_reader(
    path: str | PathLike[str],
    num_features: int | None,
    sort_by_qid: bool,
    group_file: str | PathLike[str] | None,
    missing: str,
    skipped: Iterable[str] = (),
) -> LetorReader:
    """Return the reader of a file; the arguments are those of `read_letor` and `LetorReader`.

    Raises:
        ValueError: an argument is out of range, or there is no such group file.
    """
    file = check_path("path", path)
    if num_features is not None:
        check_at_least("num_features", num_features, 1)
    if missing not in ("keep", "error"):
        raise ValueError(f'missing must be "keep" or "error", got {missing!r}')
    sizes = find_group_file(file, group_file)
    keep = missing == "keep"
    return LetorReader(file, num_features, sizes, keep, sort_by_qid, skipped)


def check_end(reader: LetorReader, group_file: str | PathLike[str] | None) -> None:
    """Check what only the whole file shows.

    Raises:
        ValueError: see `LetorReader.finish`; or there are qids, and a group file is given too.
    """
    reader.finish()
    if group_file is not None and reader.has_qid:
        raise ValueError(f"group_file must be None where lines have a qid, got {group_file}")


def find_group_file(
    path: str | PathLike[str], group_file: str | PathLike[str] | None = None
) -> Path | None:
    """Return the file of group sizes of `path`: `group_file`, or one beside it, or None.

    Raises:
        ValueError: there is no such `group_file`.

    >>> find_group_file("no/such/rank.train") is None
    True
    """
    if group_file is not None:
        found = check_path("group_file", group_file)
        if not found.is_file():
            raise ValueError(f"group_file must be a file, got {group_file}")
        return found
    stem = str(path)
    packed = Path(stem).suffix in SUFFIXES
    for base in (stem, *([stem.rpartition(".")[0]] if packed else [])):
        for suffix in _GROUP_SUFFIXES:
            for candidate in (Path(base + suffix + ending) for ending in ("", *SUFFIXES)):
                if candidate.is_file():
                    return candidate
    return None
