"""What stands below the tables."""

from pathlib import Path

import pytest

from ltr.cli.caption import caption, render
from ltr.cli.plan import Plan, make_plan

BENCH = """\
variants: {A: {}, B: {fit: false}}
grid: {seed_everything: [7, 8]}
metrics: {test_x: X}
"""

PUBLISHED = """\
published:
  - {source: "Doe (2020), Table 1", where: {variant: A}, metric: test_x, value: 0.5}
  - {source: Roe (2019), where: {variant: A}, metric: test_x, value: 0.25}
"""

MACHINE = {"python": "3.11", "torch": "2.0", "device": "cpu (x86_64)", "threads": "1"}
OTHER = {"python": "3.11", "torch": "2.1", "device": "cuda (big)", "threads": "16"}


def make(folder: Path, more: str = "") -> Plan:
    (folder / "config.yaml").write_text("{}")
    (folder / "bench.yaml").write_text(BENCH + more)
    return make_plan(str(folder), [])


def result(seed: int, environment: dict[str, str], **more: int) -> dict:
    return {"metrics": {"test_x": 0.25}, "seed": seed, "environment": environment, **more}


def test_nothing_run(tmp_path):
    assert caption(make(tmp_path), {}) == "0 of 4 runs finished."


def test_how_the_runs_were_made(tmp_path):
    results = {
        "a-seed-7": result(7, MACHINE, epochs=3, steps=1500),
        "a-seed-8": result(8, OTHER, epochs=5, steps=2500),
        "b-seed-8": result(8, MACHINE),
    }
    assert caption(make(tmp_path), results) == (
        "3 of 4 runs finished; trained 3 to 5 epochs, 1,500 to 2,500 steps; seeds 7, 8; "
        "cpu (x86_64), 1 thread; cuda (big), 16 threads; python 3.11, torch 2.0; "
        "python 3.11, torch 2.1."
    )
    results["b-seed-7"] = result(7, MACHINE)
    results["a-seed-8"] = result(8, MACHINE, epochs=3, steps=1500)
    assert caption(make(tmp_path), results) == (
        "All 4 runs finished; trained 3 epochs, 1,500 steps; seeds 7, 8; "
        "cpu (x86_64), 1 thread; python 3.11, torch 2.0."
    )


def test_the_seeds_of_the_data(tmp_path):
    (tmp_path / "config.yaml").write_text("{}")
    grid = "grid: {data.seed: [1, 2, 3]}\nmetrics: {test_x: X}\n"
    (tmp_path / "bench.yaml").write_text("variants: {A: {}}\n" + grid)
    results = {f"a-seed-{seed}": result(42, MACHINE) for seed in (1, 3)}
    found = caption(make_plan(str(tmp_path), []), results)
    assert found.startswith("2 of 3 runs finished; seed 42; data.seed 1, 3; cpu (x86_64)")


@pytest.mark.parametrize("several", [False, True])
def test_the_whole_page(tmp_path, several):
    results = {"a-seed-7": result(7, MACHINE, epochs=3, steps=1500)}
    spread = ""
    if several:
        results["a-seed-8"] = result(8, MACHINE, epochs=3, steps=1500)
        spread = " ± 0.0000"
    part = "" if several else " (1 of 2)"
    lines = render(make(tmp_path, PUBLISHED), results).split("\n")
    assert lines[:6] == [
        *("|  | X |", "|:--|--:|"),
        f"| A | 0.2500{spread}{part} |",
        "| A, published [1] | 0.5 |",
        "| A, published [2] | 0.25 |",
        "",
    ]
    assert lines[6].startswith(
        f"{1 + several} of 4 runs finished; trained 3 epochs, 1,500 steps; seed"
    )
    assert ("± is the standard deviation" in lines[6]) == several
    assert lines[7:] == ["", "Published: [1] Doe (2020), Table 1; [2] Roe (2019).", ""]
