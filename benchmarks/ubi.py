"""The time of reading a log of User Behavior Insights: JSON lines and Parquet.

    python benchmarks/ubi.py

One million events: lists of ten documents are shown, and a document is clicked with probability .1
(and these events are part of the million). The seconds are CPU time.
"""

import argparse
import json
import resource
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow.json
import pyarrow.parquet
from measure import RESULTS, environment, rounded, times, write

from ltr.clicks import read_ubi


def write_log(path: Path, events: int) -> None:
    """Write a log of JSON lines."""
    draw = np.random.default_rng(0)
    with path.open("w") as file:
        number = showing = 0
        while number < events:
            for position in range(1, 11):
                clicked = draw.random() < 0.1
                for action in ("impression", "click")[: 1 + clicked]:
                    attributes = {
                        "object": {"object_id": f"d{showing % 5000}-{position}"},
                        "position": {"ordinal": position},
                    }
                    event = {
                        "action_name": action,
                        "query_id": f"q{showing}",
                        "client_id": f"c{showing % 30000}",
                        "user_query": f"query {showing % 5000}",
                        "timestamp": "2026-11-28T10:00:00Z",
                        "event_attributes": attributes,
                    }
                    file.write(json.dumps(event) + "\n")
                    number += 1
            showing += 1


def main() -> None:
    """Read the arguments, measure, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--events", type=int, default=1_000_000, help="events of the log")
    parser.add_argument("--output", type=Path, default=RESULTS / "ubi.json")
    arguments = parser.parse_args()
    with TemporaryDirectory() as folder:
        lines, parquet = Path(folder, "events.jsonl"), Path(folder, "events.parquet")
        write_log(lines, arguments.events)
        pyarrow.parquet.write_table(pyarrow.json.read_json(lines), parquet)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        found = read_ubi(lines)
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        calls = {"JSON lines": partial(read_ubi, lines), "Parquet": partial(read_ubi, parquet)}
        seconds = {name: rounded(x) for name, x in times(calls, 1).items()}
    result = {"events": found.events, "rows": len(found.rows), "seconds": seconds}
    result["MiB of a first call"] = round(grown)
    print(result, flush=True)
    write(arguments.output, {"environment": environment(), "log": result})


if __name__ == "__main__":
    main()
