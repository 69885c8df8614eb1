"""NDCG@10 on grades of rankers that learn from clicks, by the number of sessions.

    python -m recipes.clicks.run --data.root data
    python -m recipes.clicks.run --data.root data --sets MQ2008 --sessions 10000 --seeds 1

`data` holds the folders of the sets, in LETOR's files.
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from recipes.clicks.figure import by_sessions
from recipes.sweep import Run, Sweep, of

METRICS = {"test_ndcg_10": "NDCG@10 on grades", "seconds": "seconds of training"}
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


SWEEP = Sweep(Path(__file__).parent, runs, METRICS, columns="log", figure=by_sessions)

if __name__ == "__main__":
    sys.exit(SWEEP.main("recipes.clicks.run"))
