"""Suggestions of correct names for wrong ones, and names that are imported on their first use."""

import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import lru_cache
from importlib import import_module
from types import MappingProxyType
from typing import Any

_LIKE = 0.6  # two names are similar if difflib's ratio is at least this
_REORDERED = 0.8  # two names of the same letters in another order are at least as similar as this
_AS_CLOSE = 0.1  # a suggested name's ratio is at most this far below the best ratio
_FEW = 20  # an error message lists at most this many names


def no_attribute(module: str, name: str, names: Iterable[str]) -> AttributeError:
    """Return the error for a name that a module does not have, with the most similar name.

    Upper and lower case count as equal.

    >>> str(no_attribute("ltr.losses", "ListNET", ["ListMLE", "ListNet"]))
    "module 'ltr.losses' has no attribute 'ListNET': did you mean 'ListNet'?"
    """
    text = f"module {module!r} has no attribute {name!r}"
    if not name.startswith("_"):  # Python and other libraries look for names such as __path__
        text += _suggestion(name, tuple(names))
    # With `name` and `obj` set, Python adds no suggestion of its own.
    return AttributeError(text, name=name, obj=None)


@lru_cache(maxsize=1000)  # a parser of the command line looks for the same names in each class
def _suggestion(name: str, names: tuple[str, ...]) -> str:
    def likeness(one: str) -> tuple[float, bool]:
        # On a tie, the first letter decides: the names of classes begin in upper case.
        return _likeness(name, one), one[:1] == name[:1]

    near = max(names, key=likeness)
    return f": did you mean {near!r}?" if likeness(near)[0] >= _LIKE else ""


def package_names(
    package: str,
    names: Collection[str],
    homes: Mapping[str, str] = MappingProxyType({}),
    extra: str | None = None,
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the `__getattr__` and the `__dir__` of a package.

    Args:
        package: the package's `__name__`.
        names: its `__all__`; the error for a wrong name has the most similar of these names.
        homes: for each name that is imported on its first use, the module that has it. Default: the
            package has imported all its names.
        extra: the extra of `ltr-torch` without which these modules cannot be imported. Default:
            they need none.

    >>> load, listed = package_names("ltr.names", ["nearest", "Path"], {"Path": "pathlib"})
    >>> load("Path").__name__, "nearest" in listed()
    ('Path', True)
    """

    def load(name: str) -> Any:
        if name not in homes:
            raise no_attribute(package, name, names)
        try:
            value = getattr(import_module(homes[name]), name)
        except ModuleNotFoundError as error:
            if extra is None:
                raise
            needed = f"{package}.{name} needs pip install 'ltr-torch[{extra}]'"
            raise ImportError(f"{needed}: {error}") from error
        setattr(sys.modules[package], name, value)
        return value

    return load, lambda: sorted({*vars(sys.modules[package]), *names})


def one_line(text: object) -> str:
    r"""Return the text without line breaks.

    >>> one_line("temperature must be\n  >= 0")
    'temperature must be >= 0'
    """
    return " ".join(str(text).split())


def plural(count: float, one: str, several: str = "") -> str:
    """Return the noun for a count; by default, the plural is the singular and "s".

    >>> plural(1, "row"), plural(0, "row"), plural(2, "query", "queries")
    ('row', 'rows', 'queries')
    """
    return one if count == 1 else several or f"{one}s"


def printable(text: str) -> str:
    r"""Return the text with its control characters escaped, because a terminal would obey them.

    >>> printable("a\x1b[2Jb, é")
    'a\\x1b[2Jb, é'
    """
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in text)


def close_matches(word: str, choices: Iterable[str], at_least: float = _LIKE) -> list[str]:
    """Return at most three choices that are similar to `word`, the best first; case is ignored.

    >>> close_matches("softsrt", ["SigmoidRank", "SoftSort"])
    ['SoftSort']
    >>> close_matches("Table", ["DigitsDataModule", "TableDataModule"])
    ['TableDataModule']
    >>> close_matches("ngcd", ["ndcg", "dcg"])
    ['ndcg']
    """
    rated = sorted(((_likeness(word, choice), choice) for choice in set(choices)), reverse=True)[:3]
    return [choice for rate, choice in rated if rate >= max(at_least, rated[0][0] - _AS_CLOSE)]


def _likeness(word: str, choice: str) -> float:
    """Return how similar two names are, from 0 to 1; upper and lower case count as equal."""
    from difflib import SequenceMatcher  # this import is needed only for wrong names

    a, b = word.lower(), choice.lower()
    ratio = SequenceMatcher(None, a, b).ratio()
    if len(a) > 2 and b and sorted(a) == sorted(b):
        return max(_REORDERED, ratio)
    return max(_LIKE, ratio) if len(a) > 2 and b and (a in b or b in a) else ratio


def nearest(word: str, choices: Iterable[str], prefix: str = "") -> str:
    """Return the end of a message: the most similar choices, or all choices if none is similar.

    >>> nearest("digts", ["digits", "letor"])
    'did you mean digits?'
    >>> nearest("xyz", ["digits", "letor"])
    'choose from digits, letor'
    >>> nearest("lss", ["loss"], prefix="--model.")
    'did you mean --model.loss?'
    """
    names = sorted(set(choices))
    if found := close_matches(word, names):
        return f"did you mean {' or '.join(prefix + name for name in found)}?"
    if not names:
        return "there is none"
    if len(names) > _FEW:
        return f"there are {len(names)} others, such as {prefix}{names[0]}"
    return f"choose from {', '.join(prefix + name for name in names)}"


def shown_names(names: Collection[str]) -> str:
    """Return the first 12 names as text, for error messages."""
    shown = [repr(name) for name in list(names)[:12]]
    return ", ".join(shown + ["..."] * (len(names) > len(shown))) or "none"
