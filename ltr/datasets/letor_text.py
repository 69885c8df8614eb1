"""The text of a file: its blocks of lines, its errors, and the file of group sizes beside it."""

import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa

from ltr.compressed import MAX_LINE, open_text
from ltr.datasets.seen_qids import spelled_alike

BLOCK = 1 << 22
"""The bytes of text that are read at a time."""


def read_blocks(
    path: Path, watch: Callable[[int], object] | None = None, max_line: int = MAX_LINE
) -> Iterator[tuple[int, bytes]]:
    """Yield a file in blocks of whole lines, with the number of the first line of each.

    Args:
        path: the file.
        watch: called with the place in the file, in bytes of the file as it is.
        max_line: the bytes that a line may have.

    Raises:
        ValueError: `path` is no file, or a line is longer.
    """
    if not path.is_file():
        raise ValueError(f"path must be a file, got {path}")
    number, rest = 1, bytearray()
    with open_text(path) as file:
        while chunk := file.read(min(BLOCK, max_line)):
            if watch is not None:
                watch(file.place())
            if number == 1 and not rest:
                chunk = chunk.removeprefix(b"\xef\xbb\xbf")
            end = chunk.rfind(b"\n") + 1
            if len(rest) + (chunk.find(b"\n") if end else len(chunk)) > max_line:
                problem = f"a line must have at most {max_line:,} bytes"
                raise bad_line(path, number, problem, bytes(rest[:100]))
            if not end:
                rest += chunk
                continue
            yield number, (block := bytes(rest) + chunk[:end])
            number += block.count(b"\n")
            rest = bytearray(chunk[end:])
    if rest:
        yield number, bytes(rest) + b"\n"


def read_sizes(group_file: Path) -> np.ndarray:
    """Return the group sizes of a file, int64 (groups,).

    Raises:
        ValueError: a line is not a whole number >= 1.
    """
    sizes: list[int] = []
    for first, block in read_blocks(group_file):
        for number, line in enumerate(block.split(b"\n"), start=first):
            text = line.strip()
            if text and (not re.fullmatch(rb"[0-9]{1,18}", text) or int(text) < 1):
                problem = "a group size must be a whole number >= 1"
                raise bad_line(group_file, number, problem, text)
            if text:
                sizes.append(int(text))
    return np.array(sizes, np.int64)


def refuse_return(path: Path, gather: bool) -> None:
    """Read the qids again, line by line, for the error that names the lines, if there is one."""
    runs: list[tuple[bytes, int, int]] = []  # qid, first line, last line
    last_run: dict[bytes, int] = {}
    spelled: dict[bytes, int] = {}
    back: tuple[int, int] | None = None
    for first, block in read_blocks(path):
        for number, line in enumerate(block.split(b"\n"), start=first):
            tokens = line.partition(b"#")[0].split(None, 2)
            if len(tokens) < 2 or not tokens[1].startswith(b"qid:"):
                continue
            qid = tokens[1][4:]
            if runs and runs[-1][0] == qid:
                runs[-1] = (qid, runs[-1][1], number)
                continue
            other = spelled.setdefault(spelled_alike(qid), len(runs))
            if other < len(runs) and runs[other][0] != qid:
                problem = (
                    "a qid must be written in one way (qid:"
                    f"{decode(runs[other][0])} stands at line {runs[other][1]}; write "
                    "both alike if they are one list, else give them different numbers)"
                )
                raise bad_line(path, number, problem, b"qid:" + qid)
            if back is None and qid in last_run:
                back = (last_run[qid], len(runs))
            last_run[qid] = len(runs)
            runs.append((qid, number, number))
    if back is not None and not gather:
        (_, first, last), (qid, again, _) = runs[back[0]], runs[back[1]]
        problem = (
            f"a qid must not come back (its list stood at lines {first} to {last}; "
            "sort_by_qid=True gathers it)"
        )
        raise bad_line(path, again, problem, b"qid:" + qid)


def bad_line(path: Path, number: int, problem: str, text: bytes) -> ValueError:
    """Return the error that names a file, a line, what is wrong there, and the text."""
    shown = decode(text.strip())
    if len(shown) > 80:
        shown = shown[:77] + "..."
    return ValueError(f"{path}, line {number}: {problem}, got {shown!r}")


def decode(text: bytes) -> str:
    """Return text that is UTF-8, or else Latin-1."""
    try:
        return text.decode()
    except UnicodeDecodeError:
        return text.decode("latin-1")


def encode(text: str) -> bytes:
    """Return the bytes of a qid that is text; equal ones for equal texts alone."""
    return text.encode(errors="surrogateescape")


def as_strings(offsets: np.ndarray, joined: np.ndarray) -> pa.StringArray:
    """Return the strings whose bytes are joined; offsets says where each one begins."""
    try:
        joined.tobytes().decode()
    except UnicodeDecodeError:
        pieces = [joined[a:b].tobytes() for a, b in pairwise(offsets)]
        return pa.array([decode(piece) for piece in pieces], pa.string())
    buffers = (pa.py_buffer(offsets), pa.py_buffer(joined))
    return pa.StringArray.from_buffers(len(offsets) - 1, *buffers)
