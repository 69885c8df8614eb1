import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sklearn.datasets import dump_svmlight_file, load_svmlight_file

from ltr.datasets import ListDataset, letor, read_letor, svmlight_jit

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(text: str | bytes, name: str = "train.txt") -> Path:
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def always_odd(*_) -> int:
    """Replaces the compiled parser: the strict one reads each line."""
    return svmlight_jit.ODD


def assert_same(got: ListDataset, want: ListDataset) -> None:
    np.testing.assert_array_equal(got.features, want.features)
    np.testing.assert_array_equal(got.labels, want.labels)
    np.testing.assert_array_equal(got.offsets, want.offsets)
    assert list(got.qids) == list(want.qids)
    assert (got.doc_id is None) == (want.doc_id is None)
    if got.doc_id is not None:
        assert got.doc_id.to_pylist() == want.doc_id.to_pylist()


# --- golden files, one a format ---

MQ2008 = (
    "0 qid:10002 1:0.007477 2:0.000000 3:1.000000 #docid = GX008-86-4444840 inc = 1 prob = 0.086\n"
    "2 qid:10002 1:0.603738 2:0.000000 3:0.500000 #docid = GX037-06-11625428 inc = 0.003 prob = 1\n"
    "1 qid:10032 1:0.1 2:0.25 3:0 #docid = GX1-2-3 inc = 1 prob = 0.1\n"
)


@pytest.mark.parametrize("line_end", ["\n", "\r\n", " \n", " \t\r\n"])
@pytest.mark.parametrize("zipped", [False, True])
def test_letor4_as_shipped(write: Write, line_end: str, zipped: bool):
    text = MQ2008.replace("\n", line_end).encode()
    path = write(gzip.compress(text) if zipped else text)
    data = read_letor(path)
    np.testing.assert_array_equal(
        data.features,
        np.array([[0.007477, 0, 1], [0.603738, 0, 0.5], [0.1, 0.25, 0]], dtype=np.float32),
    )
    assert data.features.dtype == data.labels.dtype == np.float32
    assert data.labels.tolist() == [0, 2, 1]
    assert data.offsets.tolist() == [0, 2, 3]
    assert data.qids == ["10002", "10032"]
    assert data.doc_id.to_pylist() == ["GX008-86-4444840", "GX037-06-11625428", "GX1-2-3"]


def test_ohsumed_and_mslr_lines(write: Write):
    ohsumed = read_letor(write("2 qid:1 1:3.0 2:-3.87 #docid = 40626\r\n"))
    assert ohsumed.doc_id.to_pylist() == ["40626"]
    mslr = read_letor(write("2 qid:1 1:3 2:11089534 3:0 \r\n0 qid:1 1:1 2:0.5 3:0 \r\n"))
    assert mslr.doc_id is None
    assert mslr.features.tolist() == [[3, 11089534, 0], [1, 0.5, 0]]


def test_sparse_lines_blank_lines_and_comments(write: Write):
    path = write(
        "\ufeff# a header\n"
        "\n"
        "1 qid:a 3:3\n"
        "  \t\n"
        "0.5 qid:a 5:-1e-3 2:+.5 # a remark # and more \n"
        "# in between\r\n"
        "+2 qid:b\t1:1.  4:1E2 #\n"
        "0 qid:b #docid=X\n"
        "0 qid:b # caf\xe9"
    )
    data = read_letor(path)
    assert data.features.tolist() == [
        [0, 0, 3, 0, 0],
        [0, 0.5, 0, 0, np.float32(-1e-3)],
        [1, 0, 0, 100, 0],
        [0, 0, 0, 0, 0],
        [0, 0, 0, 0, 0],
    ]
    assert data.labels.tolist() == [1, 0.5, 2, 0, 0]
    assert data.doc_id.to_pylist() == ["", "a remark # and more", "", "X", "café"]


def test_a_comment_that_is_not_utf8_is_latin1(write: Write):
    assert read_letor(write(b"1 qid:1 1:1 # caf\xe9\n")).doc_id.to_pylist() == ["café"]


def test_declared_width(write: Write):
    assert read_letor(write("1 qid:1 2:1\n"), num_features=4).features.tolist() == [[0, 1, 0, 0]]
    with pytest.raises(ValueError, match=r"num_features.*0"):
        read_letor("any", num_features=0)


def test_a_split_list_is_gathered(write: Write):
    path = write("0 qid:b 1:1 #w\n1 qid:a 1:2 #x\n2 qid:b 1:3 #y\n3 qid:a 1:4 #z\n")
    data = read_letor(path)
    assert data.rows.tolist() == [0, 2, 1, 3]
    assert data.qids == ["b", "a"]
    assert data.labels.tolist() == [0, 2, 1, 3]
    assert data.features.ravel().tolist() == [1, 3, 2, 4]
    assert data.doc_id.to_pylist() == ["w", "y", "x", "z"]
    assert data.offsets.tolist() == [0, 2, 4]


@pytest.mark.parametrize("name", ["rank.train.query", "rank.train.group", "rank.train.query.gz"])
def test_group_sizes_beside_the_file(write: Write, name: str):
    path = write("0 1:1\n1 2:0.5\n2 1:3\n", "rank.train")
    sizes = b"1\r\n\r\n 2 \n"
    write(gzip.compress(sizes) if name.endswith(".gz") else sizes, name)
    data = read_letor(path)
    assert data.qids == ["1", "2"]
    assert data.offsets.tolist() == [0, 1, 3]
    assert data.features.tolist() == [[1, 0], [0, 0.5], [3, 0]]


def test_group_sizes_elsewhere_and_for_gzip(write: Write):
    path = write(gzip.compress(b"0 1:1\n1 2:0.5\n"), "rank.train.gz")
    write("1\n1\n", "rank.train.query")
    assert len(read_letor(path)) == 2
    assert len(read_letor(path, group_file=write("2\n", "sizes"))) == 1
    with pytest.raises(ValueError, match=r"group_file.*none\.txt"):
        read_letor(path, group_file="none.txt")
    with pytest.raises(ValueError, match="group_file must"):
        read_letor(write("1 qid:1 1:1"), group_file=write("1\n", "sizes"))


def test_group_sizes_are_not_looked_at_where_lines_have_a_qid(write: Write):
    path = write("1 qid:7 1:1\n")
    write("nonsense", "train.txt.query")
    assert read_letor(path).qids == ["7"]


# --- bad input: file, line and text ---

BAD = {
    "no label": ("qid:1 1:1", "the label is missing, got 'qid:1 1:1'"),
    "no label, no qid": ("1:1 2:1", "the label is missing, got '1:1 2:1'"),
    "negative label": (
        "-1 qid:1 1:1",
        "the label must be >= 0 (leave out lines of padding or without a judgement), got '-1'",
    ),
    "NaN label": ("nan qid:1 1:1", "the label must be a finite number >= 0, got 'nan'"),
    "infinite label": ("inf qid:1 1:1", "the label must be a finite number >= 0, got 'inf'"),
    "huge label": ("1e39 qid:1 1:1", "the label must be a finite number >= 0, got '1e39'"),
    "word for a label": ("good qid:1 1:1", "the label must be a finite number >= 0, got 'good'"),
    "no qid": ("1 1:1 2:1", "the qid is missing, got '1 1:1 2:1'"),
    "a label alone": ("1", "the qid is missing, got '1'"),
    "empty qid": ("1 qid: 1:1", "the qid is empty, got '1 qid: 1:1'"),
    "no colon": ("1 qid:1 1:1 2", "a feature must be written index:value, got '2'"),
    "blank before colon": ("1 qid:1 1 :1", "a feature must be written index:value, got '1'"),
    "blank after colon": ("1 qid:1 1: 1", "a feature value must be a finite number, got '1:'"),
    "two colons": ("1 qid:1 1:1:1", "a feature value must be a finite number, got '1:1:1'"),
    "comma": ("1 qid:1 1,5", "a feature must be written index:value, got '1,5'"),
    "word for an index": ("1 qid:1 bm25:1", "a feature must be written index:value, got 'bm25:1'"),
    "second qid": ("1 qid:1 1:1 qid:2", "a feature must be written index:value, got 'qid:2'"),
    "hexadecimal index": ("1 qid:1 0x1:1", "a feature must be written index:value, got '0x1:1'"),
    "decimal index": ("1 qid:1 1.0:1", "a feature must be written index:value, got '1.0:1'"),
    "infinity": ("1 qid:1 1:-inf", "a feature value must be a finite number, got '1:-inf'"),
    "beyond float32": (
        "1 qid:1 1:3.5e38",
        "a feature value must be a finite number, got '1:3.5e38'",
    ),
    "underscore": ("1 qid:1 1:1_0", "a feature value must be a finite number, got '1:1_0'"),
    "decimal comma": ("1 qid:1 1:1,5", "a feature value must be a finite number, got '1:1,5'"),
    "index -0": ("1 qid:1 -0:1", "a feature index must be >= 1, got '-0:1'"),
    "negative index": ("1 qid:1 -3:1", "a feature index must be >= 1, got '-3:1'"),
    "double index": ("1 qid:1 1:1 2:2 1:1", "a line must not repeat a feature index, got '1:1'"),
    "absurd index": (
        "1 qid:1 99999999:1",
        "a feature index must be <= 1048576 (declare num_features for more), got '99999999:1'",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_line_is_named(write: Write, case: str):
    line, message = BAD[case]
    path = write(f"0 qid:0 1:1 2:1\n1 qid:0 1:2 2:1\n\n0 qid:1 1:2 2:1\n{line} #x\n0 qid:1 1:1\n")
    with pytest.raises(ValueError, match="line 5") as error:
        read_letor(path)
    assert str(error.value) == f"{path}, line 5: {message}"


@pytest.mark.parametrize("strict", [False, True])
def test_missing_values_are_kept(write: Write, monkeypatch: pytest.MonkeyPatch, strict: bool):
    if strict:
        monkeypatch.setattr(svmlight_jit, "parse", always_odd)
    path = write("0 qid:0 1:1 2:NULL\n1 qid:0 1:NaN 2:nan\n0 qid:1 2:2\n")
    want = [[1, np.nan], [np.nan, np.nan], [0, 2]]
    np.testing.assert_array_equal(read_letor(path).features, want)
    for text in ("1:nanx", "1:NULL5", "1:inf", "NULL:1", "1:null"):
        bad = write(f"0 qid:0 1:1 2:NULL\n1 qid:0 {text}\n")
        with pytest.raises(ValueError, match=f"line 2: .*'{text}'"):
            read_letor(bad)


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("density", [1.0, 0.3])
def test_indices_from_0_as_scikit_learn_writes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, strict: bool, density: float
):
    if strict:
        monkeypatch.setattr(svmlight_jit, "parse", always_odd)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 7)).astype(np.float32) * (rng.random((40, 7)) < density)
    X[:3, 0] = 0  # the first lines do not have the feature 0
    X[-1] = 1
    y, qid = rng.integers(0, 3, 40), np.arange(40) // 5
    dump_svmlight_file(X, y, str(tmp_path / "t.txt"), query_id=qid)
    data = read_letor(tmp_path / "t.txt")
    np.testing.assert_array_equal(data.features, X)
    np.testing.assert_array_equal(data.labels, y)
    assert data.first_feature == data.select([1, 0]).first_feature == 0
    wide = read_letor(tmp_path / "t.txt", num_features=9, zero_based=True)
    np.testing.assert_array_equal(wide.features, np.pad(X, ((0, 0), (0, 2))))
    with pytest.raises(ValueError, match=r"a feature index must be >= 1, got '0:"):
        read_letor(tmp_path / "t.txt", zero_based=False)
    with pytest.raises(ValueError, match=r"a feature index must be <= 5 \(num_features\), got '6:"):
        read_letor(tmp_path / "t.txt", num_features=6)
    # Without this index, the indices begin with 1, unless the caller says otherwise.
    X[:, 0] = 0
    dump_svmlight_file(X, y, str(tmp_path / "t.txt"), query_id=qid)
    np.testing.assert_array_equal(read_letor(tmp_path / "t.txt").features, X[:, 1:])
    np.testing.assert_array_equal(read_letor(tmp_path / "t.txt", zero_based=True).features, X)


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize(
    "value", ["1.797693134862316E308", "1.7976931348623157e+308", "-1.797e308", "1.797693E+308"]
)
def test_the_largest_float64_is_missing_as_in_istella(
    write: Write, monkeypatch: pytest.MonkeyPatch, strict: bool, value: str
):
    if strict:
        monkeypatch.setattr(svmlight_jit, "parse", always_odd)
    path = write(f"1 qid:1 1:1 2:2\n0 qid:1 1:{value} 2:3\n0 qid:1 1:4 2:{value}\n")
    want = [[1, 2], [np.nan, 3], [4, np.nan]]
    np.testing.assert_array_equal(read_letor(path).features, want)
    for other in ("1.8e308", "1.797e309", "1.797e-308", "1.797e3080", "17.97e307", "1.797e308x"):
        bad = write(f"1 qid:1 1:1 2:2\n0 qid:1 1:1 2:{other}\n")
        if other == "1.797e-308":
            assert read_letor(bad).features[1, 1] == 0
            continue
        with pytest.raises(ValueError, match="line 2: a feature value must be a finite number"):
            read_letor(bad)
    label = write(f"1 qid:1 1:1\n{value.lstrip('-')} qid:1 1:1\n")
    with pytest.raises(ValueError, match="line 2: the label must be a finite number"):
        read_letor(label)


def test_the_compiled_parser_reads_lines_of_istella_itself(write: Write, monkeypatch):
    path = write("1 qid:1 1:1.797693134862316E308 2:2 220:1\n" * 9)
    calls = counting(monkeypatch, letor, "parse_pairs")
    assert np.isnan(read_letor(path).features[:, 0]).all()
    assert len(calls) == 1


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("line", ["0 qid:q#1 1:0.5", "0 qid:q#1", "0 qid:q# 1:0.5"])
def test_a_qid_with_a_number_sign_is_named(
    write: Write, monkeypatch: pytest.MonkeyPatch, strict: bool, line: str
):
    if strict:
        monkeypatch.setattr(svmlight_jit, "parse", always_odd)
    for number, before in ((1, ""), (3, "1 qid:p 1:2\n0 qid:p 1:3\n")):
        path = write(f"{before}{line}\n")
        problem = "a blank must stand between the qid and a comment: a qid has no #"
        with pytest.raises(ValueError, match=f"line {number}: {problem}, got '{line}'"):
            read_letor(path)
    assert read_letor(write("0 qid:q #1\n1 qid:q 1:1#x\n")).doc_id.to_pylist() == ["1", "x"]


def test_an_index_beyond_the_declared_width(write: Write):
    path = write("1 qid:1 1:1 2:1\n0 qid:1 1:1 3:1\n")
    with pytest.raises(ValueError, match=r"line 2: a feature index must be <= 2 .*got '3:1'"):
        read_letor(path, num_features=2)


def test_a_missing_qid_says_which_file_was_looked_for(write: Write):
    path = write("1 1:1\n", "rank.train")
    with pytest.raises(
        ValueError, match=r"rank.train, line 1: the qid is missing, and there is no f"
    ):
        read_letor(path)
    write("1\n", "rank.train.query")
    path.write_text("1 1:1\n1 qid:2 1:1\n")
    with pytest.raises(
        ValueError, match=r"line 2: this line has a qid, but earlier lines have none, got 'qid:2'"
    ):
        read_letor(path)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ("1\n2\n", r"rank.train.query: the group sizes must sum to the 2 documents of .*, got 3"),
        ("", r"the group sizes.*0"),
        ("1\n0\n1\n", r"rank.train.query, line 2: a group size must be a whole .* >= 1, got '0'"),
        ("1\nx\n", r"rank.train.query, line 2: a group size must be a whole number >= 1, got 'x'"),
    ],
)
def test_bad_group_sizes(write: Write, sizes: str, message: str):
    path = write("1 1:1\n1 1:1\n", "rank.train")
    write(sizes, "rank.train.query")
    with pytest.raises(ValueError, match=message):
        read_letor(path)


@pytest.mark.parametrize("qid", ["21:0.7", "2a1:0.7", "11:1", "21:-.5e3", "1:2:3"])
def test_a_missing_blank_after_the_qid(write: Write, qid: str):
    path = write(f"2 qid:3 1:1\n1 qid:{qid} 2:1\n")
    message = rf"{path}, line 2: a blank must stand between the qid and .*, got 'qid:{qid}'"
    with pytest.raises(ValueError, match=message):
        read_letor(path)


def test_a_qid_may_have_a_colon(write: Write):
    assert read_letor(write("2 qid:trec:301 1:1\n1 qid:a:b 1:1\n")).qids == ["trec:301", "a:b"]


def test_a_qid_is_text_as_it_is_written(write: Write):
    names = ["05", "5", "5.0", "-5", "5a", "05a"]
    text = "".join(f"1 qid:{name} 1:1\n0 qid:{name} 1:2\n" for name in names)
    assert read_letor(write(text)).qids == names


def test_empty_missing_and_damaged_files(write: Write, tmp_path: Path):
    for text in ("", "\n \n", "# nothing\n"):
        path = write(text)
        with pytest.raises(ValueError, match=f"{path}: the file must have at least one document"):
            read_letor(path)
    with pytest.raises(ValueError, match="at least one line must have a feature"):
        read_letor(write("1 qid:1\n"))
    assert read_letor(write("1 qid:1\n"), num_features=2).features.tolist() == [[0, 0]]
    with pytest.raises(ValueError, match=rf"path.*{tmp_path}/none\.txt"):
        read_letor(tmp_path / "none.txt")
    with pytest.raises(ValueError, match=f"path.*{tmp_path}"):
        read_letor(tmp_path)
    path = write(gzip.compress(MQ2008.encode() * 50)[:-20])
    with pytest.raises(ValueError, match=f"{path}: the gzip file is damaged"):
        read_letor(path)


def test_long_text_is_cut_short(write: Write):
    with pytest.raises(ValueError, match=r"got '1 1:1 .*\.\.\.'") as error:
        read_letor(write("1 " + " ".join(f"{i}:1" for i in range(1, 200))))
    assert len(str(error.value)) < 400


# --- the compiled parser agrees with the strict one and with scikit-learn; blocks join up ---

token = st.text("0123456789:+-.eE nx,_\t", max_size=12)
lines = st.one_of(
    token,
    st.lists(st.tuples(st.integers(1, 12), st.floats(width=32))).map(
        lambda pairs: " ".join(f"{k}:{v}" for k, v in pairs)
    ),
)


@given(st.lists(lines, min_size=1, max_size=4))
@example(["1:+-3"])
@example(["1:2:3 4"])
@example(["1:1e400"])
@example(["1:1e-400 2:-0"])
@example(["2:1 1:1", ""])
@example(["", "1:1", "", "", "2:2", ""])
@example(["1:1 1:1"])
@example(["1:nan 2:NULL", "1:\x0c1"])
@settings(max_examples=150, deadline=None)
def test_compiled_and_strict_agree(tmp_path_factory, texts: list[str]):
    path = tmp_path_factory.getbasetemp() / "agree.txt"
    path.write_text("".join(f"1 qid:1 {text}\n" for text in ["10:1", *texts]))
    found = []
    for strict in (False, True):
        with pytest.MonkeyPatch.context() as patch:
            if strict:
                patch.setattr(svmlight_jit, "parse", always_odd)
            try:
                found.append(read_letor(path, num_features=10).features.tobytes())
            except ValueError as error:
                found.append(str(error))
    assert found[0] == found[1]


middles = st.floats(2.0**-120, 2.0**120, width=32).map(
    # halfway between two float32, where a wrong last digit of the float64 shows
    lambda x: (float(x) + float(np.nextafter(np.float32(x), np.float32(np.inf)))) / 2
)
numbers = st.one_of(
    st.from_regex(r"[+-]?[0-9]{0,25}\.[0-9]{1,25}([eE][+-]?[0-9]{1,2})?", fullmatch=True),
    st.from_regex(r"[+-]?[0-9]{1,24}([eE][+-]?[0-9]{1,3})?", fullmatch=True),
    st.floats(width=32, allow_nan=False, allow_infinity=False).map(repr),
    st.floats(-3e38, 3e38).map(repr),
    st.floats(-3e38, 3e38).map(lambda x: f"{x:.16g}"),
    middles.map(lambda x: f"{x:.60g}"),
    middles.map(lambda x: repr(float(np.nextafter(x, 0)))),
    middles.map(lambda x: f"{float(np.nextafter(x, np.inf)):.25e}"),
)


@given(st.lists(numbers, min_size=1, max_size=12))
@example(["16777217", "33554435", "-0", "0.000", "1e-45", "7e-46", "1.17549435e-38", "00012.50"])
@example(["3.4028235677973365e38", "9007199254740993", "123456789012345678901234567890e-20"])
@example(["0e999", "-0e-999", "1e-310", "2.2250738585072011e-308", "4.9406564584124654e-324"])
@settings(max_examples=150, deadline=None)
def test_the_bits_of_numbers_are_those_of_sklearn(tmp_path_factory, texts: list[str]):
    texts = [text for text in texts if abs(float(text)) < letor.FLOAT32_OVERFLOW]
    path = tmp_path_factory.getbasetemp() / "bits.txt"
    first = " ".join(f"{i}:1" for i in range(1, len(texts) + 2))
    pairs = " ".join(f"{i}:{text}" for i, text in enumerate(texts, start=1))
    path.write_text(f"1 qid:1 {first}\n1 qid:1 {pairs} {len(texts) + 1}:1\n")
    with np.errstate(over="ignore", under="ignore"):
        wanted, *_ = load_svmlight_file(str(path), dtype=np.float32)
    got = read_letor(path).features
    assert got.tobytes() == wanted.data.reshape(got.shape).tobytes()


def test_the_compiled_parser_reads_the_usual_lines_itself(write: Write, monkeypatch):
    text = "1 qid:1 1:0.5 2:-3e2 3:nan 4:16777217 5:0.1234567890123456789 # docid = X\n"
    path = write(text * 3)
    odd = []
    strict = letor.LetorReader._read_odd
    monkeypatch.setattr(
        letor.LetorReader,
        "_read_odd",
        lambda *given: (odd.append(given), strict(*given)),
    )
    data = read_letor(path)
    assert len(odd) == 1  # the first line, which says how wide the lists are
    assert data.features[1].tobytes() == data.features[0].tobytes()
    assert data.doc_id.to_pylist() == ["X"] * 3


documents = st.lists(
    st.tuples(
        st.integers(0, 4),
        st.dictionaries(
            st.integers(1, 9), st.floats(width=32, allow_nan=False, allow_infinity=False)
        ),
        st.from_regex(r"[a-z0-9#=]{0,6}", fullmatch=True),
    ),
    min_size=1,
    max_size=5,
)


@given(
    st.dictionaries(
        st.from_regex(r"[1-9][0-9]{0,5}|[a-zA-Z:._][a-zA-Z0-9._-]{0,5}", fullmatch=True),
        documents,
        min_size=1,
    ),
    st.sampled_from(["\n", "\r\n", " \n"]),
    st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_lists_to_text_and_back(tmp_path_factory, lists, line_end: str, strict: bool):
    path = tmp_path_factory.mktemp("letor") / "data.txt"
    rows = [(label, qid, *rest) for qid, docs in lists.items() for label, *rest in docs]
    with path.open("w", newline="") as file:
        for label, qid, features, comment in rows:
            pairs = "".join(f" {k}:{v!r}" for k, v in features.items())
            file.write(f"{label} qid:{qid}{pairs} #{comment}{line_end}")
    with pytest.MonkeyPatch.context() as patch:
        if strict:
            patch.setattr(svmlight_jit, "parse", always_odd)
        data = read_letor(path, num_features=9)
    want = np.zeros((len(rows), 9), dtype=np.float32)
    for row, (_, _, features, _) in zip(want, rows, strict=True):
        for index, value in features.items():
            row[index - 1] = value
    np.testing.assert_array_equal(data.features, want)
    assert data.labels.tolist() == [row[0] for row in rows]
    assert data.qids == list(lists)
    assert data.lengths.tolist() == [len(docs) for docs in lists.values()]
    comments = [row[3].strip() for row in rows]
    assert (data.doc_id.to_pylist() if data.doc_id is not None else [""] * len(rows)) == comments


@pytest.mark.parametrize("block", [1, 7, 64])
def test_blocks_join_up(write: Write, monkeypatch: pytest.MonkeyPatch, block: int):
    text = MQ2008 + "1 qid:x 3:5 1:2 # odd\n" + MQ2008.replace("qid:1", "qid:2")
    path = write(text.rstrip())
    want = read_letor(path)
    monkeypatch.setattr(letor, "BLOCK", block)
    assert_same(read_letor(path), want)
    path.write_text(text + "1 qid:y 1:inf\n")
    with pytest.raises(ValueError, match=r"line 8: .*'1:inf'"):
        read_letor(path)


# --- the real files ---

REAL = {  # lists, documents, features, documents by label, a document id
    "MQ2008/Fold1/train.txt.gz": (471, 9630, 46, [7820, 1223, 587], "GX008-86-4444840"),
    "MQ2008/Fold1/vali.txt.gz": (157, 2707, 46, [2140, 400, 167], None),
    "MQ2008/Fold1/test.txt.gz": (156, 2874, 46, [2319, 378, 177], None),
    "OHSUMED/Fold1/trainingset.txt.gz": (63, 9219, 25, [6052, 1765, 1402], "40626"),
    "OHSUMED/Fold1/validationset.txt.gz": (21, 3538, 25, [2457, 546, 535], None),
    "OHSUMED/Fold1/testset.txt.gz": (22, 3383, 25, [2794, 274, 315], None),
    "MSLR-WEB10K-part/Fold1/train.txt.gz": (43, 5000, 136, [2792, 1458, 665, 55, 30], None),
    "MSLR-WEB10K-part/Fold1/vali.txt.gz": (24, 2408, 136, [1100, 848, 391, 50, 19], None),
    "MSLR-WEB10K-part/Fold1/test.txt.gz": (43, 5000, 136, [2847, 1442, 579, 98, 34], None),
    "lightgbm-lambdarank/rank.train": (201, 3005, 300, [645, 1211, 858, 222, 69], None),
    "lightgbm-lambdarank/rank.test": (50, 768, 300, [206, 256, 252, 44, 10], None),
}


@pytest.mark.parametrize("name", REAL)
def test_real_files_by_their_counts(data_root: Path, name: str):
    lists, count, features, by_label, doc_id = REAL[name]
    data = read_letor(data_root / name)
    assert (len(data), len(data.labels), data.num_features) == (lists, count, features)
    assert np.bincount(data.labels.astype(int)).tolist() == by_label
    if doc_id is not None:
        assert data.doc_id[0].as_py() == doc_id


@pytest.mark.parametrize("name", ["MQ2008/Fold1/test.txt.gz", "MSLR-WEB10K-part/Fold1/vali.txt.gz"])
def test_real_files_against_sklearn(data_root: Path, name: str, monkeypatch: pytest.MonkeyPatch):
    data = read_letor(data_root / name)
    features, labels, qids = load_svmlight_file(str(data_root / name), query_id=True)
    np.testing.assert_array_equal(data.features, features.toarray().astype(np.float32))
    np.testing.assert_array_equal(data.labels, labels)
    assert np.repeat(data.qids, data.lengths).tolist() == [str(qid) for qid in qids]
    monkeypatch.setattr(svmlight_jit, "parse", always_odd)
    assert_same(read_letor(data_root / name), data)


def test_real_group_sizes(data_root: Path):
    data = read_letor(data_root / "lightgbm-lambdarank/rank.train")
    assert data.lengths[:3].tolist() == [1, 13, 5]
    assert data.summary().of_one == 1


def test_real_lists_without_a_relevant_document(data_root: Path):
    splits = [read_letor(data_root / f"MQ2008/Fold1/{s}.txt.gz") for s in ("train", "vali", "test")]
    assert sum(data.summary().without_relevant for data in splits) == 220
    assert sum(data.summary().lists for data in splits) == 784


# --- files of strangers: work that is linear in the bytes ---


def counting(monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> list[None]:
    """Count the calls of a function."""
    calls: list[None] = []
    plain = getattr(module, name)

    def counted(*given: Any) -> Any:
        calls.append(None)
        return plain(*given)

    monkeypatch.setattr(module, name, counted)
    return calls


@pytest.mark.parametrize("blank", [b"\n", b"\x0b\n", b"# only a comment\n"])
@pytest.mark.parametrize("qid", [b"qid:1 ", b""])
def test_blank_lines_are_passed_over_at_once(
    write: Write, monkeypatch: pytest.MonkeyPatch, blank: bytes, qid: bytes
):
    path = write(gzip.compress(blank * 300_000 + b"1 " + qid + b"1:1\n"), "train.gz")
    if not qid:
        write("1\n", "train.gz.query")
    calls = counting(monkeypatch, svmlight_jit, "parse")
    assert read_letor(path).features.tolist() == [[1]]
    assert len(calls) <= 4


def test_unsorted_indices_need_no_strict_parser(write: Write, monkeypatch: pytest.MonkeyPatch):
    rows = [[(3, i), (1, 2 * i), (2, 3 * i)] for i in range(1000)]
    texts = [
        "".join(f"1 qid:1 {' '.join(f'{k}:{v}' for k, v in row)}\n" for row in order)
        for order in (map(sorted, rows), rows)
    ]
    calls = counting(monkeypatch, letor, "parse_pairs")
    ascending = read_letor(write(texts[0], "ascending"))
    assert_same(read_letor(write(texts[1], "unsorted")), ascending)
    assert len(calls) == 2  # the first line of each, which is wider than what stood before
    twice = write(texts[1] + "1 qid:1 3:1 1:2 3:3\n", "twice")
    with pytest.raises(
        ValueError, match="line 1001: a line must not repeat a feature index, got '3:3'"
    ):
        read_letor(twice)


def test_lines_that_grow_wider_copy_little(write: Write, monkeypatch: pytest.MonkeyPatch):
    count = 1000
    calls = counting(monkeypatch, letor, "parse_pairs")
    path = write("".join(f"1 qid:1 {i}:{i}\n" for i in range(1, count + 1)))
    np.testing.assert_array_equal(read_letor(path).features, np.diag(np.arange(1, count + 1)))
    assert len(calls) <= 12
    assert read_letor(path, num_features=count).num_features == count


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("1" * 200_000 + "x qid:1 1:1", "the label must be a finite number"),
        ("1 qid:1 1:" + "1" * 200_000 + "x", "a feature value must be a finite number"),
        ("1 qid:1:" + "1" * 200_000 + " 1:1", "a blank must stand between the qid"),
    ],
)
def test_numbers_of_many_digits_are_refused_at_once(write: Write, line: str, problem: str):
    with pytest.raises(ValueError, match=f"line 1: {problem}") as error:
        read_letor(write(line))
    assert len(str(error.value)) < 500
    assert read_letor(write("1 qid:" + "0" * 200_000 + "x 1:1")).num_features == 1


@pytest.mark.parametrize("text", ["1_000", "٣", "nan", "inf", "-+5", "0x1", "9" * 5000])
def test_labels_that_are_no_numbers(write: Write, text: str):
    with pytest.raises(ValueError, match="line 2: the label must be a finite number") as error:
        read_letor(write(f"0 qid:1 1:1\n{text} qid:1 1:1\n"))
    assert len(str(error.value)) < 500
    assert read_letor(write(f"0 qid:{text} 1:1\n")).qids == [text]  # a qid is a name


def test_lists_go_on_in_the_next_file(tmp_path: Path):
    texts = [
        "2 qid:1 1:1\n1 qid:5 1:2\n",
        "0 qid:5 3:3\n1 qid:5 1:4\n",
        "1 qid:5 1:5\n0 qid:2 1:6\n",
    ]
    files = [tmp_path / name for name in "abc"]
    for file, text in zip(files, texts, strict=True):
        file.write_text(text)
    data = letor.read_letor_files(files)
    assert data.qids == ["1", "5", "2"]
    assert data.offsets.tolist() == [0, 1, 5, 6]
    assert data.features[:, 0].tolist() == [1, 2, 0, 4, 5, 6]
    assert data.features.shape == (6, 3)
    files[2].write_text("1 qid:5 1:5\n0 qid:1 1:6\n")
    gathered = letor.read_letor_files(files)
    assert gathered.qids == ["1", "5"]
    assert gathered.rows.tolist() == [0, 5, 1, 2, 3, 4]


def test_lists_of_group_sizes_in_several_files_are_apart(tmp_path: Path):
    files = [tmp_path / name for name in ("a.train", "b.train")]
    for file, sizes in zip(files, ("1\n2\n", "1\n"), strict=True):
        count = sum(map(int, sizes.split()))
        file.write_text("1 1:1\n" * count)
        file.with_name(f"{file.name}.query").write_text(sizes)
    data = letor.read_letor_files(files)
    assert data.qids == ["1", "2", "3"]
    assert data.lengths.tolist() == [1, 2, 1]
    files[1].write_text("1 qid:4 1:1\n")
    with pytest.raises(
        ValueError, match=r"b\.train, line 1: this line has a qid, but earlier lines have none"
    ):
        letor.read_letor_files(files)
