"""The compiled parser of svmlight lines: one pass over the bytes of a block.

It parses lines of the usual form, and stops at any other line, valid or not. Then
`ltr.datasets.letor` reads that line with its strict parser.

A number becomes the float32 that Python's `float` and a conversion to float32 would give. If the
digits fit into a float64 and the power of ten is exact, a single multiplication or division rounds
like `float`. Otherwise the result is within a few units in the last place of the true float64. The
float32 is then correct unless that result is near the middle between two float32 numbers; the
strict parser reads such a number with `float`. This module loads numba.
"""

from typing import Any

import numpy as np

from ltr.kernels.cpu.jit import compiler, entry

DONE, FULL, ODD = 0, 1, 2
"""Why the parser stopped: the text ended, the arrays are full, or a line has an unusual form."""

_POWERS = np.array([float(f"1e{i}") for i in range(291)])
_EXACT = 22  # 10^22 is the largest power of ten that a float64 holds exactly
_MIDDLE = 1 << 28  # this is half of 2^29, since float32 lacks the last 29 bits of a float64
_NEAR = 64  # the error of a product or quotient is less than this many units in the last place
_LEAST, _LARGEST = 2.0**-125, 3.4e38  # outside this range, a float32 may be subnormal or infinite
_LF, _SPACE, _HASH, _PLUS, _MINUS, _DOT, _COLON = b"\n #+-.:"
_E, _SMALL_E, _N, _SMALL_N = b"EeNn"
_NULL, _NAN, _SMALL_NAN = (np.frombuffer(word, np.uint8) for word in (b"NULL", b"NaN", b"nan"))
_QID = np.frombuffer(b"qid:", np.uint8)
_LARGEST_HEAD, _LARGEST_TAIL = (np.frombuffer(word, np.uint8) for word in (b"1.797", b"308"))

_jit = compiler()  # no fast math is allowed, so that -0 stays -0


@_jit
def _is_blank(c: Any) -> Any:
    return c == _SPACE or (9 <= c <= 13 and c != _LF)


@_jit
def _starts(text: Any, i: Any, word: Any) -> Any:
    if i + len(word) > len(text):
        return False
    for k in range(len(word)):  # noqa: SIM110 (numba has no generators in `all`)
        if text[i + k] != word[k]:
            return False
    return True


@_jit
def _number(text: Any, i: Any) -> Any:
    """Return the number at text[i:], the index of its end, and whether it is surely correct."""
    negative = text[i] == _MINUS
    if negative or text[i] == _PLUS:
        i += 1
    mantissa = np.uint64(0)
    ten = np.uint64(10)
    digits = 0  # those of the mantissa
    exponent = 0
    seen = 0
    point = 0  # 1 after the decimal point
    while 48 <= text[i] <= 57 or (text[i] == _DOT and point == 0):
        if text[i] == _DOT:
            point = 1
        elif digits < 19:
            mantissa = mantissa * ten + np.uint64(text[i] - 48)
            digits += mantissa > 0
            exponent -= point
            seen += 1
        else:
            exponent += 1 - point
        i += 1
    if seen == 0:
        return 0.0, i, False
    if text[i] == _E or text[i] == _SMALL_E:
        i += 1
        down = text[i] == _MINUS
        if down or text[i] == _PLUS:
            i += 1
        power = 0
        begin = i
        while 48 <= text[i] <= 57:
            if power < 10000:
                power = power * 10 + (text[i] - 48)
            i += 1
        if i == begin:
            return 0.0, i, False
        exponent += -power if down else power
    value = float(mantissa)
    if mantissa > 0 and exponent != 0:
        if exponent > 290 or exponent < -290:
            return 0.0, i, False
        value = value * _POWERS[exponent] if exponent > 0 else value / _POWERS[-exponent]
    exact = mantissa <= np.uint64(1 << 53) and -_EXACT <= exponent <= _EXACT
    if mantissa > 0 and not exact:
        if value < _LEAST or value > _LARGEST:
            return 0.0, i, False
        low = np.float64(value).view(np.int64) & ((1 << 29) - 1)
        if abs(low - _MIDDLE) <= _NEAR:
            return 0.0, i, False
    return (-value if negative else value), i, True


@_jit
def _is_largest(text: Any, begin: Any, end: Any) -> Any:
    """Return whether the number text[begin:end] is 1.797...e308; see `letor._LARGEST`."""
    if text[begin] == _PLUS or text[begin] == _MINUS:
        begin += 1
    if not _starts(text, begin, _LARGEST_HEAD):
        return False
    begin += len(_LARGEST_HEAD)
    while 48 <= text[begin] <= 57:
        begin += 1
    if text[begin] != _E and text[begin] != _SMALL_E:
        return False
    begin += 1
    if text[begin] == _PLUS:
        begin += 1
    return _starts(text, begin, _LARGEST_TAIL) and begin + len(_LARGEST_TAIL) == end


@_jit
def _parse(
    text: Any,
    state: Any,
    has_qid: Any,
    rows: Any,
    labels: Any,
    comments: Any,
    runs: Any,
    seen: Any,
) -> Any:
    pos, lines, docs, lists, widest = state[0], state[1], state[2], state[3], state[4]
    shift = 1 - state[5]
    stop, width, room = len(text), rows.shape[1], len(rows)
    why, line = DONE, pos
    while pos < stop:
        line = pos
        while _is_blank(text[pos]):
            pos += 1
        if text[pos] == _HASH:
            while text[pos] != _LF:
                pos += 1
        if text[pos] == _LF:
            pos += 1
            lines += 1
            continue
        if docs == room:
            why = FULL
            break
        why = ODD  # a line counts as odd until it has been read to its end
        label, pos, sure = _number(text, pos)
        if not sure or label < 0 or not _is_blank(text[pos]):
            break
        while _is_blank(text[pos]):
            pos += 1
        first = last = pos
        if has_qid:
            if not _starts(text, pos, _QID):
                break
            first = pos = pos + len(_QID)
            while text[pos] > _SPACE and text[pos] != _HASH and text[pos] != _COLON:
                pos += 1
            last = pos
            if first == last or not (_is_blank(text[pos]) or text[pos] == _LF):
                break
        for k in range(width):
            rows[docs, k] = 0
        largest = 0
        while True:
            while _is_blank(text[pos]):
                pos += 1
            c = text[pos]
            if c in (_LF, _HASH):
                why = DONE
                break
            index = 0
            begin = pos
            while 48 <= text[pos] <= 57 and pos - begin < 9:
                index = index * 10 + (text[pos] - 48)
                pos += 1
            index += shift
            if pos == begin or text[pos] != _COLON or index < 1 or index > width:
                break
            if seen[index - 1] == lines + 1:
                break
            seen[index - 1] = lines + 1
            pos += 1
            c = text[pos]
            value = np.nan
            if c in (_N, _SMALL_N):
                if _starts(text, pos, _NULL):
                    pos += 4
                elif _starts(text, pos, _NAN) or _starts(text, pos, _SMALL_NAN):
                    pos += 3
                else:
                    break
            else:
                begin = pos
                value, pos, sure = _number(text, pos)
                if not sure and _is_largest(text, begin, pos):
                    value, sure = np.nan, True
                if not sure:
                    break
            c = text[pos]
            if not (_is_blank(c) or c in (_LF, _HASH)):
                break
            rows[docs, index - 1] = value
            largest = max(largest, index)
        if why == ODD:
            break
        widest = max(widest, largest)
        comments[docs, 0] = comments[docs, 1] = pos
        if text[pos] == _HASH:
            comments[docs, 0] = pos + 1
            while text[pos] != _LF:
                pos += 1
            comments[docs, 1] = pos
        pos += 1
        lines += 1
        labels[docs] = label
        if has_qid:
            before = lists - 1
            same = lists > 0 and runs[before, 2] - runs[before, 1] == last - first
            if not same or not _starts(text, runs[before, 1], text[first:last]):
                runs[lists, 0], runs[lists, 1], runs[lists, 2] = docs, first, last
                lists += 1
        docs += 1
    if why != DONE:
        pos = line
    state[0], state[1], state[2], state[3], state[4] = pos, lines, docs, lists, widest
    return why


parse = entry(_parse)
"""Parse `text` (uint8, ending in a line feed) from `state` on; return why the parser stopped.

`state` holds the index of the next byte in `text`, the number of lines before that byte, the
numbers of documents and of runs in the other arrays, the number of features so far, and the index
of the first feature, 0 or 1. A run is a sequence of documents with the same qid. For each document,
`rows` gets the features (0 for a feature that the line leaves out), `labels` the label, and
`comments` the start and the end of the comment. For each run, `runs` gets the number of its first
document, and the start and the end of its qid. `seen` (as wide as `rows`) has for each index the
number of the last line that has it.
"""
