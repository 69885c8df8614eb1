"""What a user did wrong, in one line."""

import difflib
import sys
from collections.abc import Iterable

_CLOSE = 0.6  # of difflib's ratio: from here on a name is like another
_AS_CLOSE = 0.1  # names less like it than the most alike by more than this are not offered
_FEW = 20  # names that a line has room for


class CommandError(Exception):
    """A mistake in a command or a configuration: printed as one line, exit code 2."""


def one_line(text: object) -> str:
    r"""The text without line breaks.

    >>> one_line("temperature must be\n  >= 0")
    'temperature must be >= 0'
    """
    return " ".join(str(text).split())


def close_matches(word: str, choices: Iterable[str], at_least: float = _CLOSE) -> list[str]:
    """The choices most like `word`, best first, three at most; upper and lower case are alike.

    >>> close_matches("softsrt", ["SigmoidRank", "SoftSort"])
    ['SoftSort']
    >>> close_matches("Letor", ["DigitsDataModule", "LetorDataModule"])
    ['LetorDataModule']
    """

    def likeness(choice: str) -> float:
        a, b = word.lower(), choice.lower()
        if len(a) > 2 and (a in b or b in a) and b:
            return max(_CLOSE, difflib.SequenceMatcher(None, a, b).ratio())
        return difflib.SequenceMatcher(None, a, b).ratio()

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


def innermost(text: str) -> str:
    r"""The cause in jsonargparse's account of all the types that a value is not.

    >>> innermost("Does not validate against any of the Union subtypes\nSubtypes: [int, None]\n"
    ...     "Errors:\n  - top_k must be >= 1\n  - Expected a <class 'NoneType'>\nGiven value: x")
    'top_k must be >= 1'
    """
    if "Does not validate against any of the Union subtypes" not in text:
        return one_line(text)
    no_cause = ("Does not validate", "Subtypes:", "Errors:", "Given value", "Parser key")
    no_cause += ("Expected a <class 'NoneType'>", "Problem with given class_path")
    lines = [line.strip().removeprefix("- ") for line in text.splitlines()]
    return next((line for line in lines if line and not line.startswith(no_cause)), one_line(text))


def as_user_error(error: Exception) -> str | None:
    """One line for a mistake of the user's; None for what must be a bug.

    >>> as_user_error(ValueError("temperature must be >= 0, got -1.0"))
    'temperature must be >= 0, got -1.0'
    >>> as_user_error(FileNotFoundError(2, "No such file or directory", "train.txt"))
    'train.txt: No such file or directory'
    >>> as_user_error(KeyError("x")) is None
    True
    """
    if isinstance(error, OSError) and error.filename is not None:
        return one_line(f"{error.filename}: {error.strerror}")
    if isinstance(error, (CommandError, ValueError)):
        return innermost(str(error)) or type(error).__name__
    # Lightning's word for options that do not go together; it is loaded if one was raised
    lightning = sys.modules.get("lightning.fabric.utilities.exceptions")
    if lightning is not None and isinstance(error, lightning.MisconfigurationException):
        return one_line(error)
    return None
