"""The search box of the site finds the page that answers each question of docs/questions.md."""

import json
import math
import re
import subprocess
import sys
from collections import Counter, defaultdict
from html import unescape
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
WORDS = [
    "tuning", "Optuna", "importance", "reproducible", "seeds", "GPU", "sentence-transformers",
    "early stopping", "position bias",
]  # fmt: skip
TITLE = 1000  # what Material counts a word of a title for, beside one of the text
K, B = 1.2, 0.75  # BM25, as lunr has it
STOP = {"a", "and", "are", "for", "how", "i", "in", "is", "of", "or", "own", "the", "to", "which"}


def questions() -> list[tuple[str, list[str], str]]:
    """Return the rows of the page: the question, what to search for, the page that answers."""
    lines = (DOCS / "questions.md").read_text(encoding="utf-8").splitlines()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line[:2] == "| "]
    found = []
    for question, answer, words in rows[2:]:
        page = re.search(r"\]\(([\w/-]+\.md)", answer) or re.search(r"`([\w-]+\.md)`", answer)
        assert page, question
        found.append((question, words.split("; "), page[1]))
    return found


SEARCHES = [(words, page) for _, each, page in questions() for words in each]


def stems(text: str) -> list[str]:
    """Return the words of a text that count, without the endings of English.

    >>> stems("Seeds &amp; a run: <b>training</b>")
    ['seed', 'run', 'train']
    """
    words = re.findall(r"\w+", unescape(re.sub(r"<[^>]*>", " ", text)).lower())
    return [re.sub(r"(?<=\w{3})(ings?|ed|es|s|e)$", "", w) for w in words if w not in STOP]


class Search:
    """BM25 over the titles and the texts of the sections, as the site's search has it."""

    def __init__(self, docs: list[dict[str, Any]]) -> None:
        self.positions = [doc["location"].partition("#")[0] for doc in docs]
        self.boosts = [doc.get("boost", 1) for doc in docs]
        self.fields = {key: [Counter(stems(doc[key])) for doc in docs] for key in ("title", "text")}

    def pages(self, words: str) -> list[str]:
        """Return the pages, the best first; that of a page is the best of its sections."""
        total: dict[str, float] = defaultdict(float)
        scores = [0.0] * len(self.positions)
        for key, boost in (("title", TITLE), ("text", 1)):
            counts = self.fields[key]
            lengths = [count.total() for count in counts]
            mean = sum(lengths) / len(lengths)
            for word in stems(words):
                having = sum(word in count for count in counts)
                rare = math.log(1 + (len(counts) - having + 0.5) / (having + 0.5))
                for i, (count, length) in enumerate(zip(counts, lengths, strict=True)):
                    norm = K * (1 - B + B * length / mean) + count[word]
                    scores[i] += boost * rare * (K + 1) * count[word] / norm
        for position, score, boost in zip(self.positions, scores, self.boosts, strict=True):
            total[position] = max(total[position], score * boost)
        return sorted(filter(total.get, total), key=total.__getitem__, reverse=True)


@pytest.fixture(scope="module")
def search(tmp_path_factory) -> Search:
    pytest.importorskip("material")
    pytest.importorskip("mkdocstrings")
    site = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", site]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    return Search(index["docs"])


def test_each_question_has_words_to_search_for():
    rows = questions()
    assert len(rows) == 54
    assert all(words for _, words, _ in rows)
    assert set(WORDS) <= {words for words, _ in SEARCHES}


def test_a_page_that_exists_is_linked():
    text = (DOCS / "questions.md").read_text(encoding="utf-8")
    named = re.findall(r"`([\w-]+\.md)`", text)
    assert [page for page in named if (DOCS / page).is_file()] == []


@pytest.mark.slow  # the whole site is built
@pytest.mark.parametrize(("words", "page"), SEARCHES, ids=[words for words, _ in SEARCHES])
def test_the_page_that_answers_is_among_the_first_three(words, page, search):
    if not (DOCS / page).is_file():
        pytest.skip(f"docs/{page} is not written yet")
    position = re.sub(r"(^|/)index\.md$", r"\1", page).replace(".md", "/")
    found = search.pages(words)[:3]
    assert position in found
