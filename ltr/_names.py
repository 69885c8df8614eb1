"""Wrong names, and the right ones that they are like."""

from collections.abc import Iterable

_LIKE = 0.6  # of difflib's ratio: from here on a name is like another


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
