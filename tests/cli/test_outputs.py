"""What commands write: the option `--output`, and files that are never those that are read."""

import pytest


@pytest.mark.parametrize(
    "args",
    [
        ("train", "t.csv", "--out", "model"),
        ("convert", "t.csv", "--out=lists"),
        ("evaluate", "t.csv", "--out", "m.json"),
        ("test", "model", "t.csv", "--out", "m.json"),
        ("fuse", "a.run", "--out", "b.run"),
        ("predict", "model", "t.csv", "--out", "s.csv"),
    ],
)
def test_the_old_option_names_the_new(ltr, args):
    answer = ltr(*args)
    assert answer.code == 2
    name = f"ltr {args[0]}"
    assert answer.err == f"{name}: --out is now --output (see `{name} --help`)\n"
