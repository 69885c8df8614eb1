"""Print metrics, intervals, a paired test, and the queries on which the second run loses most.

python examples/compare_runs.py --output runs/compare
"""

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from ltr.metrics import NDCG, Comparison, compare, join, read_qrels, read_run


def write(folder: Path, queries: int) -> None:
    """Write judgements and the runs of a poor and a good ranker."""
    rng = np.random.default_rng(0)
    with (
        (folder / "qrels.txt").open("w") as qrels,
        (folder / "a.run").open("w") as a,
        (folder / "b.run").open("w") as b,
    ):
        for query in range(queries):
            grades = rng.integers(0, 4, 30) * (rng.random(30) < 0.3)
            for document, grade in enumerate(grades):
                qrels.write(f"q{query} 0 d{document} {grade}\n")
            for run, noise in ((a, 2.0), (b, 1.5)):
                scores = grades + rng.normal(0, noise, 30)
                for rank, document in enumerate(np.argsort(-scores), 1):
                    run.write(f"q{query} Q0 d{document} {rank} {scores[document]:.4f} run\n")


def main(argv: list[str] | None = None) -> Comparison:
    """Write the files, read them as anybody's, and print and draw the comparison."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--output", type=Path, default=Path("runs/compare"))
    parser.add_argument("--queries", type=int, default=80)
    given = parser.parse_args(argv)
    given.output.mkdir(parents=True, exist_ok=True)
    write(given.output, given.queries)
    qrels = read_qrels(given.output / "qrels.txt")
    runs = {name: read_run(given.output / f"{name}.run") for name in ("a", "b")}
    lists = {name: join(run, qrels) for name, run in runs.items()}
    values = {name: joined.values(NDCG(top_k=10)) for name, joined in lists.items()}
    result = compare(values)
    print(result)
    worst = (values["b"] - values["a"]).argsort()[:3]
    print("b loses most on", ", ".join(lists["a"].qids[i] for i in worst))
    result.plot(plt.figure(figsize=(6, 2)).subplots())
    plt.savefig(given.output / "compare.png", dpi=90, bbox_inches="tight")
    return result


if __name__ == "__main__":
    main()
