"""Configurations as nested dicts: build one from an option, merge two, list differences."""

from typing import Any


def nested(key: str, value: Any) -> dict[str, Any]:
    """Return an option and its value as the content of a configuration file.

    >>> nested("data.fold", 2), nested("seed_everything", 1)
    ({'data': {'init_args': {'fold': 2}}}, {'seed_everything': 1})
    >>> nested("data.images.class_path", "MNIST")
    {'data': {'init_args': {'images': {'class_path': 'MNIST'}}}}
    """
    parts = [part for part in key.split(".") if part != "init_args"]
    if parts[0] in ("model", "data"):  # classes, whose arguments are one level down
        parts = [name for part in parts for name in (part, "init_args")][:-1]
        if parts[-1] == "class_path":
            del parts[-2]
    for part in reversed(parts):
        value = {part: value}
    return value


def merged(below: Any, above: Any) -> Any:
    """Return `below` with `above` laid over it. An object of another class replaces the old one.

    >>> merged({"a": {"b": 1, "c": 2}}, {"a": {"c": 3}})
    {'a': {'b': 1, 'c': 3}}
    """
    if not (isinstance(below, dict) and isinstance(above, dict)):
        return above
    if above.get("class_path", below.get("class_path")) != below.get("class_path"):
        return above
    keys = dict.fromkeys([*below, *above])
    return {key: merged(below.get(key), above[key]) if key in above else below[key] for key in keys}


def differences(one: Any, other: Any, prefix: str = "") -> list[str]:
    """Return the options in which two configurations differ.

    >>> differences({"a": {"b": 1, "c": 2}}, {"a": {"b": 1}, "d": 3})
    ['a.c', 'd']
    """
    if not (isinstance(one, dict) and isinstance(other, dict)):
        return [] if one == other else [prefix.removesuffix(".")]
    return [
        name
        for key in dict.fromkeys([*one, *other])
        for name in (
            differences(one[key], other[key], f"{prefix}{key}.")
            if key in one and key in other
            else [f"{prefix}{key}"]
        )
    ]


def plain(option: str) -> str:
    """Return an option's name without `init_args`.

    >>> plain("data.init_args.fold")
    'data.fold'
    """
    return option.replace(".init_args.", ".")
