"""The text below the tables of `ltr bench`: how they were made, and the published sources."""

from collections.abc import Sequence
from typing import Any

from ltr.cli.chosen import Result, tried_runs
from ltr.cli.layers import plain
from ltr.cli.options import pairs
from ltr.cli.plan import Plan, short_name
from ltr.cli.table import Table, make_tables, number, sources_of


def render(plan: Plan, results: dict[str, Result]) -> str:
    """Return the content of `table.md`: the tables, their caption, and the sources.

    Args:
        plan: the plan of the bench.
        results: the results of the finished runs, by name.
    """
    tables = "\n\n".join(table.markdown() for table in make_tables(plan, results))
    parts = [tables, caption(plan, results)]
    if "±" in tables:
        parts[1] += " ± is the standard deviation over the runs of a cell."
    parts += [table.markdown() for table in tried(plan, results)]
    notes = [f"[{number}] {source}" for number, source in enumerate(sources_of(plan), start=1)]
    if notes:
        parts.append(f"Published: {'; '.join(notes)}.")
    return "\n\n".join(parts) + "\n"


def tried(plan: Plan, results: dict[str, Result]) -> list[Table]:
    """Return a table for each cell of a search: all that it tried, the best in validation first."""
    tables = []
    for found in tried_runs(plan, results):
        run, first = found[0]
        planned = sum(other.place == run.place for other in plan.runs)
        part = "" if len(found) == planned else f" ({len(found)} of {planned})"
        head = [*(short_name(key) for key in run.tried), first["monitor"]]
        rows = [
            [*(str(value) for value in one.tried.values()), _value(result[result["monitor"]])]
            for one, result in found
        ]
        tables.append(Table(f"{run.cell}: tried{part}", head, rows))
    return tables


def _value(value: float | None) -> str:
    return "-" if value is None else number(value)


def caption(plan: Plan, results: dict[str, Result]) -> str:
    """Return a sentence on the finished runs: their count, epochs, seeds, machines, versions."""
    done = [results[run.name] for run in plan.runs if run.name in results]
    finished = "all" if len(done) == len(plan.runs) else f"{len(done)} of"
    trained = [result for result in done if "epochs" in result]
    seeds = sorted({result["seed"] for result in done if "seed" in result})
    environments = [result["environment"] for result in done if "environment" in result]
    parts = [f"{finished} {len(plan.runs)} runs finished"]
    if trained:
        epochs, steps = ([result[key] for result in trained] for key in ("epochs", "steps"))
        parts.append(f"trained {_span(epochs)} epochs, {_span(steps)} steps")
    if seeds:
        parts.append(f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}")
    given = {plain(option.removeprefix("--")): value for option, value in pairs(plan.overrides)}
    parts += [
        f"{option} {value}" for option, value in given.items() if short_name(option) == "seed"
    ]
    for option in plan.grid:
        if short_name(option) == "seed" and option != "seed_everything":
            found = dict.fromkeys(run.point[option] for run in plan.runs if run.name in results)
            parts.append(f"{option} {', '.join(map(str, found))}")
    precision = plan.config.get("trainer", {}).get("precision")
    if precision := given.get("trainer.precision", precision):
        parts.append(f"precision {precision}")
    parts += dict.fromkeys(_machine(one) for one in environments)
    parts += dict.fromkeys(_versions(one) for one in environments)
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}."


def _span(values: Sequence[int]) -> str:
    low, high = min(values), max(values)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _machine(environment: dict[str, Any]) -> str:
    threads = environment["threads"]
    return f"{environment['device']}, {threads} thread{'s' * (threads != '1')}"


def _versions(environment: dict[str, Any]) -> str:
    names = [name for name in environment if name not in ("device", "threads")]
    return ", ".join(f"{name} {environment[name]}" for name in names)
