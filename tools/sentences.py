"""Draw sentences from docstrings, messages and pages, to read them aloud.

Each third of the sample is of one kind. The seed repeats a sample:

    python tools/sentences.py --seed 1 --number 60

A sentence that needs a second reading by someone who has not read the code is rewritten.
`--words` counts the words of the pages instead; the aim is at most 33,000.
"""

import argparse
import ast
import random
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CODE, TABLE = (
    re.compile(r"```.*?```|<!-- table.*?<!-- end -->", re.DOTALL),
    re.compile(r"^[|#!<>\-]"),
)
HIDDEN = re.compile(
    r"<!-- (table|results).*?<!-- end -->|<!--.*?-->|^```.*?^```|(?<=\n\n)(    [^\n]*\n)+",
    re.DOTALL | re.MULTILINE,
)
END = re.compile(r"(?<=[.!?:])\s+(?=[A-Z`*])")


def sentences(text: str) -> Iterator[str]:
    r"""Yield the sentences of the paragraphs of prose, without tables, headings and examples.

    >>> list(sentences("This is one idea. And this is\nanother one.\n\n    >>> code\n"))
    ['This is one idea.', 'And this is another one.']
    """
    for paragraph in re.split(r"\n\s*\n", text):
        lines = [line.strip() for line in paragraph.strip().splitlines()]
        if not lines or TABLE.match(lines[0]) or lines[0].startswith(("Args:", "Returns:", ">>>")):
            continue
        for sentence in END.split(" ".join(lines)):
            if len(sentence.split()) > 3 and sentence[-1] in ".!?":
                yield sentence


def words(text: str) -> int:
    r"""Return the number of words of a page, without code blocks and generated tables.

    Headings and tables written by hand count. A word has a letter or a digit.

    >>> words("# One\n\nTwo `three` - 4\n\n```\ncode\n```\n<!-- table x -->\n| 5 |\n<!-- end -->\n")
    4
    """
    return sum(any(map(str.isalnum, word)) for word in HIDDEN.sub("", text).split())


def pages() -> list[Path]:
    """Return the files of the prose: the README, the pages, and what the pages include.

    The pages of the API come from docstrings, and the changelog is history: both are left out.
    """
    files = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    files += [*ROOT.glob("recipes/*/README.md"), *ROOT.glob("ltr/recipes/*/README.md")]
    return sorted(path for path in files if path.parent != ROOT / "docs" / "api")


def docstrings(tree: ast.Module) -> Iterator[str]:
    """Yield the docstrings of a module, its classes and its functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            yield ast.get_docstring(node) or ""


def messages(tree: ast.Module) -> Iterator[str]:
    """Yield the texts of errors and warnings, with {...} for each value."""
    for node in ast.walk(tree):
        calls = isinstance(node, ast.Call) and ast.unparse(node.func)
        if not calls or not re.search(r"Error$|warn$|fail$", calls) or not node.args:
            continue
        text = node.args[0]
        if isinstance(text, ast.Constant) and isinstance(text.value, str):
            yield text.value
        elif isinstance(text, ast.JoinedStr):
            parts = (x.value if isinstance(x, ast.Constant) else "{...}" for x in text.values)
            yield "".join(str(part) for part in parts)


def found() -> dict[str, list[str]]:
    """Return the sentences of each kind, as `file: sentence`."""
    kinds: dict[str, list[str]] = {"docstring": [], "message": [], "page": []}
    for path in sorted((ROOT / "ltr").rglob("*.py")):
        tree, name = ast.parse(path.read_text("utf-8")), path.relative_to(ROOT)
        texts = [text for one in docstrings(tree) for text in sentences(one)]
        kinds["docstring"] += [f"{name}: {text}" for text in texts]
        kinds["message"] += [f"{name}: {text}" for text in messages(tree)]
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        text = CODE.sub("", path.read_text("utf-8"))
        kinds["page"] += [f"{path.relative_to(ROOT)}: {one}" for one in sentences(text)]
    return kinds


def main() -> None:
    """Print the sample, or the words of each page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--number", type=int, default=60)
    parser.add_argument("--words", action="store_true", help="count the words of the pages")
    options = parser.parse_args()
    if options.words:
        counts = {str(path.relative_to(ROOT)): words(path.read_text("utf-8")) for path in pages()}
        for name, count in sorted(counts.items(), key=lambda one: -one[1]):
            print(f"{count:6,} {name}")
        print(f"{sum(counts.values()):6,} in all")
        return
    draw = random.Random(options.seed)
    for kind, texts in found().items():
        for text in draw.sample(texts, options.number // 3):
            print(f"[{kind}] {text}")


if __name__ == "__main__":
    main()
