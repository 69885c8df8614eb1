"""Write docs/llms.txt, the public API in one page of text: `python docs/llms.py`.

Each name has its arguments and the first sentence of its docstring. A test checks that the page is
that of the code.
"""

import importlib
import inspect
import re
from pathlib import Path

PAGE = Path(__file__).parent / "llms.txt"
PACKAGES = (
    "estimators", "losses", "operators", "metrics", "metrics.functional", "reports", "rerank",
    "clicks", "preferences", "datasets", "models", "modules", "integrations", "export", "boosting",
    "config", "cli", "shapes", "kernels",
)  # fmt: skip
HEAD = """# ltr

> Learning to rank for PyTorch and Lightning: differentiable ranks and sorts in sort time and O(n)
> memory, losses that take any of them, exact metrics, rankers for tables and text. The
> distribution is `ltr-torch`, the import is `ltr`, the command is `ltr`.

A loss is called as loss(scores, labels), with mask=, lengths= or qid= for lists of different
lengths; an operator as operator(scores) -> ranks from 1 for the highest score; a metric function as
ndcg(scores, labels, top_k=10). A ranker of tables is used like LightGBM's:
NeuralRanker().fit(X, y, qid=qid).predict(X). The command trains and scores tables:
ltr train TABLE --qid query --label grade --output MODEL, then ltr predict MODEL NEW.parquet.
"""


def first_sentence(text: str) -> str:
    r"""Return the first sentence of a docstring, on one line.

    >>> first_sentence("Ranks by a sigmoid.\n\n    More of it.")
    'Ranks by a sigmoid.'
    """
    paragraph = " ".join(text.strip().partition("\n\n")[0].split())
    return re.split(r"(?<=[.:])\s+(?=[A-Z])", paragraph)[0]


def arguments(thing: object) -> str:
    """Return the names of the arguments, with their defaults, in brackets.

    >>> arguments(first_sentence)
    '(text)'
    """
    if not callable(thing):
        return ""
    try:
        parameters = inspect.signature(thing).parameters.values()
    except ValueError:  # some classes of other libraries have none
        return "()"
    shown = [str(one.replace(annotation=inspect.Parameter.empty)) for one in parameters]
    by_name = [one.name for one in parameters if one.kind is inspect.Parameter.KEYWORD_ONLY]
    starred = any(one.kind is inspect.Parameter.VAR_POSITIONAL for one in parameters)
    if by_name and not starred:
        shown.insert([one.name for one in parameters].index(by_name[0]), "*")
    return re.sub(r" at 0x\w+", "", f"({', '.join(shown)})")


def page() -> str:
    """Return the text of the page."""
    lines = [HEAD]
    for name in PACKAGES:
        package = importlib.import_module(f"ltr.{name}")
        about = first_sentence(package.__doc__ or "")
        lines.append(f"## ltr.{name}\n\n{about}\n")
        for public in sorted(package.__all__):
            thing = getattr(package, public)
            lines.append(f"- {public}{arguments(thing)}: {first_sentence(thing.__doc__ or '')}")
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
