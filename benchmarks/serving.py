"""The time of scoring one list through onnxruntime: 100 documents of 136 features, one thread.

    python benchmarks/serving.py

The model is `NeuralRanker()` with its defaults but for the number of epochs, which does not change
the time: five networks after piecewise-linear bins. It is exported to ONNX, and scores a list as a
service does, from arrays (`score_arrays`) and from one dict per document (`score`). Beside it is
`NeuralRanker.predict` of the same rows. CPU time, the median over the calls.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from measure import RESULTS, environment, rounded, write

from ltr.estimators import NeuralRanker
from ltr.serving import OnnxRanker


def median_milliseconds(call: Callable[[], Any], rounds: int) -> float:
    """Return the median CPU time of a call, in milliseconds; the first ten calls do not count."""
    times = []
    for _ in range(rounds + 10):
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return 1000 * statistics.median(times[10:])


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description="Time of scoring one list with an exported model")
    parser.add_argument("--documents", type=int, default=100, help="of the list")
    parser.add_argument("--features", type=int, default=136, help="of a document")
    parser.add_argument("--rounds", type=int, default=500, help="calls")
    parser.add_argument("--output", type=Path, default=RESULTS / "serving.json")
    given = parser.parse_args()
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(20_000, given.features)).astype(np.float32))
    X = X.add_prefix("f")
    y = (X["f0"] + X["f1"] > 1).astype(int)
    qid = np.arange(len(X)) // 100
    ranker = NeuralRanker(max_epochs=2, verbose=0, random_state=0).fit(X, y, qid=qid)
    rows = X[: given.documents]
    features, dicts = rows.to_numpy(), rows.to_dict("records")
    with tempfile.TemporaryDirectory() as folder:
        written = ranker.export(Path(folder, "model.onnx"))
        size = written.model.stat().st_size
        served = OnnxRanker(str(written.model))
    found = {
        "onnxruntime, arrays": median_milliseconds(
            lambda: served.score_arrays(features), given.rounds
        ),
        "onnxruntime, dicts": median_milliseconds(lambda: served.score(dicts), given.rounds),
        "NeuralRanker.predict": median_milliseconds(
            lambda: ranker.predict(rows), given.rounds // 5
        ),
    }
    for name, milliseconds in found.items():
        print(f"{milliseconds:8.3f} ms  {name}")
    result = {
        "environment": environment(),
        "documents": given.documents,
        "features": given.features,
        "bytes": size,
        "difference": written.difference,
        "milliseconds": {name: rounded(value) for name, value in found.items()},
    }
    write(given.output, result)


if __name__ == "__main__":
    main()
