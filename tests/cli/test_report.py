"""`ltr evaluate --html`: the page has the printed numbers, and names are only text in it."""

import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ltr.metrics.trec import write_qrels, write_run

FAST = ("--resamples", "200")
QRELS = ("--qrels", "qrels.txt")


class Page(HTMLParser):
    """A page's elements, its text by section, and the elements that are open."""

    def __init__(self):
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: dict[str, str] = {}
        self.open: list[str] = []
        self.section = "head"

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag != "meta":
            self.open.append(tag)
        if tag in ("header", "section"):
            self.section = dict(attrs).get("id") or tag

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.section != "head":
            self.text[self.section] = self.text.get(self.section, "") + " " + data.strip()

    def handle_decl(self, decl):
        assert decl == "doctype html"


def read(path="report.html") -> Page:
    page = Page()
    page.feed(Path(path).read_text(encoding="utf-8"))
    page.close()
    assert page.open == []
    page.text = {name: " ".join(text.split()) for name, text in page.text.items()}
    return page


def make(lists=20, names=("a", "b"), documents=15, seed=0):
    """Runs and qrels of documents that are found by chance, the later runs better."""
    draw = np.random.default_rng(seed)
    docs = [f"d{j}" for j in range(documents)]
    labels = draw.integers(0, 3, (lists, documents))
    qids = [f"q{i}" for i in range(lists)]
    write_qrels(
        "qrels.txt",
        {
            q: dict(zip(docs, row.tolist(), strict=True))
            for q, row in zip(qids, labels, strict=True)
        },
    )
    for i, name in enumerate(names):
        scores = labels + draw.normal(size=labels.shape) * 2 / (1 + i)
        run = {
            q: dict(zip(docs, s, strict=True)) for q, s in zip(qids, scores.tolist(), strict=True)
        }
        write_run(f"{name}.run", run)


def shown(text: str) -> str:
    """A printed number as the page has it."""
    return text.replace("-", "\N{MINUS SIGN}")


def test_one_run_has_the_numbers_that_are_printed(ltr):
    make()
    answer = ltr("evaluate", "a.run", *QRELS, "--html", "sub/report.html", *FAST)
    assert (answer.code, answer.err) == (0, "")
    assert "wrote sub/report.html" in answer.out
    page = read("sub/report.html")
    printed = re.findall(r"(ndcg@10|map|mrr) +([\d.]+ \[[\d., ]+\]) +(\d+)", answer.out)
    assert len(printed) == 3
    for title, interval, lists in printed:
        assert f"{title} {interval} " in page.text["metrics"]
        assert re.search(rf"{re.escape(interval)}.* {lists}", page.text["metrics"])
    assert "20 queries, by ndcg@10, map, mrr." in page.text["header"]
    assert {*page.text} >= {"header", "metrics", "distribution", "queries", "method"}
    assert "agreement" not in page.text
    assert "against" not in page.text["queries"]
    assert "Best" in page.text["queries"]
    assert "Worst" in page.text["queries"]
    assert sum(tag == "details" for tag, _ in page.tags) == 10
    assert "qrels.txt" in page.text["method"]
    assert "linear" in page.text["method"]


@pytest.mark.parametrize("runs", [2, 5])
def test_several_runs_have_the_numbers_that_are_printed(ltr, runs):
    names = [f"run{i}" for i in range(runs)]
    make(30, names)
    files = [f"{name}.run" for name in names]
    answer = ltr("evaluate", *files, *QRELS, "--html", "report.html", *FAST)
    assert answer.code == 0, answer.err
    text = read().text["metrics"]
    number = r"[+-]?\d\.\d{4}"
    interval = rf"{number} \[{number}, {number}\]"
    rows = re.findall(
        rf"(run\d) +({interval})(?: +({interval}) +(.+?) +(\d+ / \d+ / \d+))?", answer.out
    )
    assert len(rows) == 3 * runs
    for name, mean, difference, p, counts in rows:
        assert f"{name} {mean}" in text
        if difference:
            cells = [shown(difference), p.replace("<", "< "), counts]
            assert " ".join(" ".join(cells).split()) in " ".join(text.split())
    assert ("p (Holm)" in text) == (runs > 2)
    assert read().text["agreement"].count(" and ") == 1 + runs * (runs - 1) // 2


def test_the_best_and_worst_queries_have_their_documents(ltr):
    write_qrels(
        "qrels.txt", {"up": {"r": 1, "n": 0}, "down": {"r": 2, "n": 0, "z": 1}, "same": {"r": 1}}
    )
    write_run(
        "a.run", {"up": {"n": 2.0, "r": 1.0}, "down": {"r": 9.5, "n": 0.25}, "same": {"r": 1.0}}
    )
    write_run("b.run", {"up": {"r": 7.5, "new": 3.0}, "down": {"n": 5.0}, "same": {"r": 2.0}})
    args = ("--metrics", "mrr", "--html", "report.html", *FAST)
    answer = ltr("evaluate", "a.run", "b.run", *QRELS, *args)
    assert answer.code == 0, answer.err
    text = read().text["queries"]
    gains, losses = text.split("Largest losses")
    assert "up 0.5000 → 1.0000 +0.5000" in gains
    assert "a 0.5000 # document label score 1 n 0 2.0000 2 r 1 1.0000" in gains
    assert "b 1.0000 # was document label score 1 2 r 1 7.5000 2 – new – 3.0000" in gains
    assert "down 1.0000 → 0.0000 −1.0000" in losses
    assert "1 of 2 relevant documents in the first 10; 1 not retrieved." in losses
    assert "0 of 2 relevant documents in the first 10; 2 not retrieved." in losses
    assert "same" not in text.replace("same first", "")


def test_the_differences_are_counted(ltr):
    make(40)
    assert ltr("evaluate", "a.run", "b.run", *QRELS, "--html", "report.html", *FAST).code == 0
    page = read()
    bars = re.findall(r"to −?[\d.]+: (\d+)", page.text["distribution"])
    lower, equal, higher = zip(
        *re.findall(r"(\d+) lower (\d+) equal (\d+) higher", page.text["distribution"]), strict=True
    )
    assert sum(map(int, bars)) == sum(map(int, lower + higher))
    assert sum(map(int, lower + equal + higher)) == 3 * 40


def test_lower_values_of_arp_are_better(ltr):
    Path("t.csv").write_text(
        "qid,label,old,new\n" + "".join(f"{q},1,0,1\n{q},0,1,0\n{q},0,2,-1\n" for q in range(20))
    )
    args = ("--score", "old", "--score", "new", "--metrics", "arp", "--html", "report.html", *FAST)
    assert ltr("evaluate", "t.csv", *args).code == 0
    page = read()
    assert "new is better than old −2.0000" in page.text["header"]
    assert "lower is better" in page.text["metrics"]
    assert "20 lower 0 equal 0 higher" in page.text["distribution"]
    assert "0 3.0000 → 1.0000 −2.0000" in page.text["queries"].split("Largest losses")[0]
    assert "Largest losses" not in page.text["queries"]


def test_tables_of_two_files_agree_by_their_document_ids_or_rows(ltr):
    rows = [(q, d, (d + q) % 3) for q in range(6) for d in range(4)]
    for name, kept in [("a", rows), ("b", rows[::-1])]:
        lines = [f"{q},{label},{-d},x{d}\n" for q, d, label in kept]
        Path(f"{name}.csv").write_text("qid,label,score,doc_id\n" + "".join(lines))
        bare = [line.rpartition(",")[0] + "\n" for line in lines]
        Path(f"{name}_bare.csv").write_text("qid,label,score\n" + "".join(bare))
    assert ltr("evaluate", "a.csv", "b.csv", "--html", "report.html", *FAST).code == 0
    assert "a and b 1.0000 1.0000 1.0000 6" in read().text["agreement"]
    assert "No query differs." in read().text["queries"]
    assert ltr("evaluate", "a.csv", "--html", "report.html", *FAST).code == 0
    assert "1 x0 " in read().text["queries"]
    assert ltr("evaluate", "a_bare.csv", "b_bare.csv", "--html", "report.html", *FAST).code == 0
    assert "the documents have no ids" in read().text["agreement"]
    shutil.copy("a_bare.csv", "c_bare.csv")
    assert ltr("evaluate", "a_bare.csv", "c_bare.csv", "--html", "report.html", *FAST).code == 0
    assert "a_bare and c_bare 1.0000 1.0000 1.0000 6" in read().text["agreement"]
    assert ltr("evaluate", "a_bare.csv", "--html", "report.html", *FAST).code == 0
    assert "row 1" in read().text["queries"]


def test_names_are_text_and_nothing_else(ltr):
    evil = "<script>alert(1)</script>"
    words = evil.replace("/", "\\")  # a file's name has no slash
    quote = '"><img/src=x/onerror=alert(2)>&amp;'
    write_qrels("qrels.txt", {evil: {evil: 1, "n": 0}, quote: {quote: 2, "n": 0}})
    for name, best in [(words, 2.0), ("b", 0.5)]:
        run = {evil: {evil: best, "n": 1.0}, quote: {quote: 3.0, "n": 1.0}}
        write_run(f"{name}.run", run)
    answer = ltr("evaluate", f"{words}.run", "b.run", *QRELS, "--html", "report.html", *FAST)
    assert answer.code == 0, answer.err
    page = read()
    assert not {"script", "img"} & {tag for tag, _ in page.tags}
    assert not [name for _, attrs in page.tags for name in attrs if name.startswith("on")]
    assert evil in page.text["queries"]
    assert words in page.text["header"]
    assert words in page.text["method"]
    assert ltr("evaluate", f"{words}.run", *QRELS, "--html", "one.html", *FAST).code == 0
    page = read("one.html")
    assert not {"script", "img"} & {tag for tag, _ in page.tags}
    assert quote in page.text["queries"]
    assert words in page.text["header"]


def test_names_that_are_no_utf8_or_very_long(ltr):
    lines = [b"q\xe9 0 d\xff 1\n", b"q2 0 " + b"x" * 5000 + b" 1\n"]
    Path("qrels.txt").write_bytes(b"".join(lines))
    Path("a.run").write_bytes(b"q\xe9 Q0 d\xff 1 2 t\nq2 Q0 " + b"x" * 5000 + b" 1 1 t\n")
    assert ltr("evaluate", "a.run", *QRELS, "--html", "report.html", *FAST).code == 0
    text = read().text["queries"]
    assert r"q\udce9" in text
    assert "x" * 100 in text
    assert "x" * 200 not in text


def test_the_page_needs_no_network(ltr):
    make()
    assert ltr("evaluate", "a.run", "b.run", *QRELS, "--html", "report.html", *FAST).code == 0
    text, page = Path("report.html").read_text(encoding="utf-8"), read()
    assert "://" not in text
    assert "url(" not in text
    assert "@import" not in text
    assert not [attrs for _, attrs in page.tags if {"src", "href", "srcset", "data"} & {*attrs}]
    assert {"link", "script", "iframe", "img", "object"}.isdisjoint(tag for tag, _ in page.tags)
    policy = [attrs for _, attrs in page.tags if attrs.get("http-equiv")]
    assert [attrs["content"] for attrs in policy] == [
        "default-src 'none'; style-src 'unsafe-inline'"
    ]


def test_the_same_files_give_the_same_page(ltr):
    make()
    for name in ("one.html", "two.html"):
        assert ltr("evaluate", "a.run", "b.run", *QRELS, "--html", name, *FAST).code == 0
    assert Path("one.html").read_bytes() == Path("two.html").read_bytes()


def test_many_queries_are_a_small_page(ltr):
    make(2000, documents=5)
    args = ("--html", "report.html", "--resamples", "20")
    assert ltr("evaluate", "a.run", "b.run", *QRELS, *args).code == 0
    assert Path("report.html").stat().st_size < 400_000
    assert "2,000 queries" in read().text["header"]


def test_a_page_is_written_whole_or_not_at_all(ltr, monkeypatch):
    make()
    Path("report.html").write_text("before")

    def full(self, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    answer = ltr("evaluate", "a.run", *QRELS, "--html", "report.html", *FAST)
    assert answer.code == 2
    assert answer.err == "ltr evaluate: report.html: No space left on device\n"
    assert Path("report.html").read_text() == "before"
    assert not [path for path in Path().iterdir() if "partial" in path.name]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["a.run", *QRELS, "--html", "."], "--html must be a file, got the folder ."),
        (["--html", "a.run", "b.run", *QRELS], "--html must end in .html, .htm, got a.run"),
        (["t.csv", "--html", "r.html", "--doc-id", "sku"], "t.csv: no column 'sku': choose from"),
        (["u.csv", "--html", "r.html"], "u.csv, row 3: query 'q' has 'x' twice"),
        (["v.parquet", "--html", "r.html"], "v.parquet, row 2: column 'doc_id' must have a val"),
    ],
)
def test_mistakes_are_one_line(ltr, args, message):
    make()
    Path("t.csv").write_text("qid,label,score\nq,1,2\n")
    Path("u.csv").write_text("qid,label,score,doc_id\nq,1,2,x\np,1,2,x\nq,1,2,x\n")
    rows = [{"qid": "q", "label": 1, "score": 2.0, "doc_id": name} for name in ("x", None)]
    pq.write_table(pa.Table.from_pylist(rows), "v.parquet")
    answer = ltr("evaluate", *args, *FAST)
    assert answer.code == 2
    assert answer.err.startswith(f"ltr evaluate: {message}")
    assert answer.err.count("\n") == 1
    assert not Path("r.html").exists()


def test_a_report_needs_jinja(ltr, monkeypatch):
    make()
    monkeypatch.setitem(sys.modules, "jinja2", None)
    answer = ltr("evaluate", "a.run", *QRELS, "--html", "report.html")
    assert answer.code == 2
    assert answer.err == ("ltr evaluate: a report needs jinja2: pip install 'ltr-torch[report]'\n")
    assert ltr("evaluate", "a.run", *QRELS, *FAST).code == 0


# The title says how wide the page is, how wide its content is, and how many elements reach beyond.
PROBE = """<script>onload = () => {
  const width = document.documentElement.clientWidth;
  const beyond = [...document.querySelectorAll("body *")].filter(
    one => one.getBoundingClientRect().right > width + 0.5);
  document.title = [width, document.documentElement.scrollWidth, beyond.length].join(" ");
}</script>"""
# A window has a least width, and a frame has any.
FRAME = """<iframe src="inner.html" style="width:{}px;height:3000px;border:0"></iframe><script>
onload = () => setTimeout(() => document.body.dataset.found = frames[0].document.title, 500)
</script>"""


def browse(browser: str, path: str, *options: str) -> subprocess.CompletedProcess[str]:
    """What a browser makes of a page, and what it logs."""
    quiet = ["--no-first-run", "--disable-quic", "--disable-background-networking"]
    quiet += ["--disable-component-update", "--disable-sync", "--disable-gpu"]
    profile = f"--user-data-dir={Path('profile').resolve()}"
    headless = ["--headless", "--no-sandbox", "--hide-scrollbars", "--enable-logging=stderr"]
    command = [browser, *headless, *quiet, profile, *options]
    command += ["--dump-dom", Path(path).resolve().as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=True)


@pytest.mark.slow  # a browser is started eight times
@pytest.mark.parametrize("width", [390, 1440])
def test_a_browser_shows_it_without_overflow_or_errors(ltr, width):
    browser = next(filter(None, map(shutil.which, ("chromium", "google-chrome", "chrome"))), None)
    if browser is None:
        pytest.skip("no chromium on PATH")
    names = ["bm25", "a_run_with_a_name_as_long_as_those_of_experiments_" + "x" * 60, "c"]
    make(25, names)
    files = [f"{name}.run" for name in names]
    assert ltr("evaluate", *files, *QRELS, "--html", "several.html", *FAST).code == 0
    assert ltr("evaluate", files[1], *QRELS, "--html", "one.html", *FAST).code == 0
    for path in ("several.html", "one.html"):
        done = browse(browser, path)
        assert "<h1>" in done.stdout
        assert "CONSOLE" not in done.stderr
        # a copy that may run a script, with all documents shown
        text = re.sub(r"<meta http-equiv[^>]*>", "", Path(path).read_text(encoding="utf-8"))
        text = text.replace("<details", "<details open").replace("</body>", PROBE + "</body>")
        Path("inner.html").write_text(text, encoding="utf-8")
        Path("outer.html").write_text(FRAME.format(width))
        options = ("--allow-file-access-from-files", "--virtual-time-budget=5000")
        done = browse(browser, "outer.html", "--window-size=1600,1200", *options)
        found = re.search(r'data-found="([^"]*)"', done.stdout)
        assert found is not None, done.stderr[-2000:]
        assert found[1] == f"{width} {width} 0"
