"""Write docs/examples.md: each program of examples/ with what it prints and draws.

python docs/examples.py
"""

import contextlib
import io
import re
import runpy
import shutil
import tempfile
import warnings
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "examples.md"
PICTURES = ROOT / "docs" / "img" / "examples"
PROGRAMS = {
    "shop": "A shop's table, from Parquet to HTTP",
    "trade_off": "Clicks and purchases",
    "sessions": "A recommender by session ids",
    "trees_with_our_loss": "LightGBM with our loss",
    "clicks": "A click log to a debiased model",
    "compare_runs": "Compare two runs",
    "explain_query": "Explain a query",
    "fuse_and_diversify": "Fuse and diversify",
    "slices_and_probabilities": "Slices and calibration",
}
TEXT = ["rerank_text", "search"]
HEAD = """# Examples: short programs to copy

Each program has at most 60 lines. All but the last two make their own data, and run in seconds. Try
`python examples/shop.py` in a clone.
"""
FOOT = """## Text rerankers

These programs need a model and [lists of texts](text-rerankers.md#lists).
"""


def run(name: str, folder: Path) -> str:
    """Run a program whose files go to a folder, and return what it prints."""
    plt.close("all")
    program = runpy.run_path(str(ROOT / "examples" / f"{name}.py"))
    with contextlib.redirect_stdout(io.StringIO()) as said, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program["main"](["--output", str(folder)])
    return said.getvalue().rstrip()


def section(name: str, title: str, said: str, drawn: bool) -> str:
    """Return the section of a program."""
    text = (ROOT / "examples" / f"{name}.py").read_text()
    about = re.sub(r"\s+", " ", text.split('"""')[1].partition("\n\n")[0])
    about = about.partition(": ")[2] or about  # without what the title says
    parts = [f"## {title}", about[0].upper() + about[1:], f"```output\n{said}\n```"]
    if drawn:
        parts.append(f"![What {name}.py draws](img/examples/{name}.png)")
    return "\n\n".join([*parts, included(name)])


def included(name: str) -> str:
    """Return what shows a program on the page."""
    # ruff, which formats Python in pages, would break the line that includes the program
    code = f'    ``` {{.python}}\n    --8<-- "examples/{name}.py"\n    ```'
    return f'??? example "examples/{name}.py"\n\n{code}'


def main() -> None:
    """Run all programs, and write the page and its pictures."""
    sections = [HEAD.rstrip()]
    PICTURES.mkdir(exist_ok=True)
    for name, title in PROGRAMS.items():
        with tempfile.TemporaryDirectory() as folder:
            said = run(name, Path(folder))
            drawn = [*Path(folder).glob("*.png")]
            if drawn:
                shutil.copy(drawn[0], PICTURES / f"{name}.png")
            sections.append(section(name, title, said, bool(drawn)))
    sections += [FOOT.rstrip(), *map(included, TEXT)]
    PAGE.write_text("\n\n".join(sections) + "\n")


if __name__ == "__main__":
    main()
