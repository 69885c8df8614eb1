"""NDCG@10 on grades of rankers that learn from clicks, by the number of sessions.

    python -m recipes.clicks.run --data.root data
    python -m recipes.clicks.run --data.root data --sets MQ2008 --sessions 10000 --seeds 1

`data` holds the folders of the sets, in LETOR's files.
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from recipes.clicks.figure import by_sessions
from recipes.results import Result
from recipes.sweep import Run, Sweep, of
from recipes.tables import markdown

METRICS = {"test_ndcg_10": "NDCG@10 on grades"}
ON_CLICKS = {
    "naive clicks": "naive",
    "true propensities": "true",
    "estimated propensities": "estimated",
}
WITHOUT = {
    "production ranker": {
        "data.learn": "production",
        "data.transform": "NoTransform",
        "model.scorer": of("recipes.clicks.data.GivenScores"),
    },
    "all grades": {"data.learn": "grades"},
}


def runs(
    overlays: Sequence[str],
    sets: Sequence[str] = ("MQ2008", "MSLR-WEB10K-part", "digits"),
    sessions: Sequence[int] = (10_000, 100_000, 1_000_000),
    seeds: Sequence[int] = (1, 2, 3),
) -> Iterator[Run]:
    """Yield a run for each set, way to learn, number of sessions and seed."""
    for name in sets:
        for variant, options in WITHOUT.items():
            for seed in seeds:
                fixed = {"data.source": name, "data.seed": seed, "seed_everything": seed}
                point = {"log": "no log", "seed": seed}
                fit = options["data.learn"] == "grades"
                yield Run(f"{name}, {variant}", point, fixed | options, fit)
        for variant, learn in ON_CLICKS.items():
            for count in sessions:
                for seed in seeds:
                    fixed = {"data.source": name, "data.seed": seed, "seed_everything": seed}
                    options = {"data.learn": learn, "data.sessions": count}
                    point = {"log": f"{count:,} sessions", "seed": seed}
                    yield Run(f"{name}, {variant}", point, fixed | options)


def gains(runs: list[Run], results: dict[str, Result]) -> str:
    """Return a table of what propensities gain over naive clicks, from runs with the same log."""
    rows = []
    for run in runs:
        plain = {"data.learn": "naive"}
        naive = next((x for x in runs if x.options == run.options | plain), None)
        if "data.sessions" in run.options and naive is not run and naive is not None:
            pair = [results.get(one.name) for one in (run, naive)]
            if all(pair):
                new, old = (one["metrics"]["test_ndcg_10"] for one in pair if one)
                rows.append((run.variant, run.point["log"], new - old))
    if not rows:
        return ""
    frame = pd.DataFrame(rows, columns=["variant", "log", "gain"])
    cells = frame.groupby(["variant", "log"], sort=False)["gain"].agg(
        lambda gain: (
            f"{gain.mean():+.4f} ± {gain.sem():.4f}" if len(gain) > 1 else f"{gain.mean():+.4f}"
        )
    )
    title = "What propensities gain over naive clicks, with the standard error over the seeds:"
    grid: Any = cells.unstack("log", sort=False)
    return f"{title}\n\n{markdown(grid)}"


SWEEP = Sweep(Path(__file__).parent, runs, METRICS, columns="log", figure=by_sessions, below=gains)

if __name__ == "__main__":
    sys.exit(SWEEP.main("recipes.clicks.run"))
