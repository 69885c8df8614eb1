"""Wrong names, and the right ones that they are like."""

from collections.abc import Iterable

_LIKE = 0.6  # of difflib's ratio: from here on a name is like another
_AS_CLOSE = 0.1  # names less like it than the most alike by more than this are not offered
_FEW = 20  # names that a line has room for


def renamed(module: str, name: str, now: str) -> AttributeError:
    """Return the error for a public name that another one has replaced.

    >>> str(renamed("ltr.datasets", "Standardise", "Standardize"))
    "module 'ltr.datasets' has no attribute 'Standardise' any more: it is 'Standardize' now"
    """
    text = f"module {module!r} has no attribute {name!r} any more: it is {now!r} now"
    return AttributeError(text, name=name, obj=None)


def no_attribute(module: str, name: str, names: Iterable[str]) -> AttributeError:
    """Return the error for a name that a module does not have, with the nearest that it has.

    Upper and lower case count as alike.

    >>> str(no_attribute("ltr.losses", "ListNET", ["ListMLE", "ListNet"]))
    "module 'ltr.losses' has no attribute 'ListNET': did you mean 'ListNet'?"
    """
    text = f"module {module!r} has no attribute {name!r}"
    if not name.startswith("_"):  # those that Python and other libraries look for
        from difflib import SequenceMatcher  # where it is needed: most imports are of right names

        def likeness(one: str) -> tuple[float, bool]:
            ratio = SequenceMatcher(None, name.lower(), one.lower()).ratio()
            return ratio, one[:1] == name[:1]  # a class for a class, a function for a function

        near = max(names, key=likeness)
        text += f": did you mean {near!r}?" if likeness(near)[0] >= _LIKE else ""
    # with name and obj set, Python does not add a suggestion of its own behind ours
    return AttributeError(text, name=name, obj=None)


def one_line(text: object) -> str:
    r"""The text without line breaks.

    >>> one_line("temperature must be\n  >= 0")
    'temperature must be >= 0'
    """
    return " ".join(str(text).split())


def close_matches(word: str, choices: Iterable[str], at_least: float = _LIKE) -> list[str]:
    """The choices most like `word`, best first, three at most; upper and lower case are alike.

    >>> close_matches("softsrt", ["SigmoidRank", "SoftSort"])
    ['SoftSort']
    >>> close_matches("Letor", ["DigitsDataModule", "LetorDataModule"])
    ['LetorDataModule']
    """
    from difflib import SequenceMatcher  # where it is needed: most names are right

    def likeness(choice: str) -> float:
        a, b = word.lower(), choice.lower()
        if len(a) > 2 and (a in b or b in a) and b:
            return max(_LIKE, SequenceMatcher(None, a, b).ratio())
        return SequenceMatcher(None, a, b).ratio()

    rated = sorted(((likeness(choice), choice) for choice in set(choices)), reverse=True)[:3]
    return [choice for rate, choice in rated if rate >= max(at_least, rated[0][0] - _AS_CLOSE)]


def nearest(word: str, choices: Iterable[str], prefix: str = "") -> str:
    """The end of a message: the nearest right names, or all of them where none is near.

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
