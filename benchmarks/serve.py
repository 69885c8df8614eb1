"""`ltr serve` beside an empty endpoint of FastAPI: lists of 100 documents with 136 features.

    apt-get install apache2-utils
    python benchmarks/serve.py

The load generator is `ab`, on this machine, against 127.0.0.1 alone. It sends the next request of a
connection when the last one is answered, so it has no fixed rate; requests a second say which rate
there was. The CPU time of the server hardly depends on what else runs. The model is a blend:
`NeuralRanker()` and 100 trees of `LGBMRanker`, in one ONNX file. The median of the runs; the two
servers take turns. Before that, the time of scoring eight lists in one call of onnxruntime beside
eight calls: what could be gained by scoring concurrent requests together. Last, the memory of the
server before and after many requests for one document.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from lightgbm import LGBMRanker
from measure import RESULTS, environment, rounded, write

from ltr.estimators import Blend, NeuralRanker
from ltr.serving import OnnxRanker

EMPTY = """
import sys
import uvicorn
from fastapi import FastAPI, Request

app = FastAPI()

@app.post("/rank")
async def rank(request: Request):
    await request.body()
    return {}

@app.get("/health")
async def health():
    return {}

uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning", access_log=False)
"""


def start(command: list[str], port: int) -> subprocess.Popen[bytes]:
    """Start a server, and return when it answers."""
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    while True:
        try:
            with opener.open(f"http://127.0.0.1:{port}/health"):
                return process
        except OSError:
            if process.poll() is not None:
                raise RuntimeError(f"{command} has ended") from None
            time.sleep(0.2)


def load(port: int, body: Path, requests: int, connections: int) -> dict[str, float]:
    """Return what `ab` says of so many requests."""
    url = f"http://127.0.0.1:{port}/rank"
    command = ["ab", "-q", "-n", str(requests), "-c", str(connections)]
    command += ["-p", str(body), "-T", "application/json", url]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    patterns = {
        "p50 ms": r"50%\s+(\d+)",
        "p99 ms": r"99%\s+(\d+)",
        "requests a second": r"Requests per second:\s+([\d.]+)",
        "failed": r"Failed requests:\s+(\d+)",
    }
    found = {name: re.search(pattern, said) for name, pattern in patterns.items()}
    values = {name: float(match[1]) for name, match in found.items() if match is not None}
    return values | {"not 2xx": float("Non-2xx" in said)}


def memory(process: subprocess.Popen[bytes]) -> float:
    """Return the memory that a process holds, in MiB."""
    text = Path(f"/proc/{process.pid}/status").read_text()
    return rounded(int(re.findall(r"VmRSS:\s+(\d+)", text)[0]) / 1024)


def processor(process: subprocess.Popen[bytes]) -> float:
    """Return the CPU time of a process so far, in milliseconds."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return 1000 * (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def together(served: OnnxRanker, rows: np.ndarray, rounds: int) -> dict[str, float]:
    """Return the CPU time of a list, scored by itself and with seven others."""
    times: dict[str, list[float]] = {"alone": [], "together": []}
    many = np.concatenate([rows] * 8)
    for _ in range(rounds):
        for name, given in (("alone", rows), ("together", many)):
            begin = time.process_time()
            served.score_arrays(given)
            times[name].append((time.process_time() - begin) * len(rows) / len(given))
    medians = {name: 1000 * statistics.median(x) for name, x in times.items()}
    return {f"ms a list, {name}": rounded(x) for name, x in medians.items()}


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description="ltr serve under load")
    parser.add_argument("--requests", type=int, default=1000, help="of a run")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--many", type=int, default=100_000, help="requests for the memory")
    parser.add_argument("--port", type=int, default=8750)
    parser.add_argument("--note", default="", help="of the machine, for the result")
    parser.add_argument("--output", type=Path, default=RESULTS / "serve.json")
    given = parser.parse_args()
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(2000, 136))).add_prefix("f")
    y = (X["f0"] + X["f1"] > 1).astype(int)
    rankers = [
        NeuralRanker(max_epochs=1, validation=0, verbose=0),
        LGBMRanker(n_estimators=100, verbose=-1),
    ]
    blend = Blend(rankers, validation=0, verbose=0).fit(X, y, qid=np.arange(len(X)) // 100)
    with tempfile.TemporaryDirectory() as folder:
        print("fitted", flush=True)
        model = blend.export(Path(folder, "model.onnx")).model
        found: dict[str, Any] = {
            "scoring": together(OnnxRanker(model), X[:100].to_numpy(), 200),
            "load": {},
        }
        bodies = {}
        for name, documents in (("list", 100), ("one", 1)):
            bodies[name] = Path(folder, f"{name}.json")
            rows = X[:documents].to_dict("records")
            bodies[name].write_text(json.dumps({"documents": rows}))
        found["bytes of a request"] = bodies["list"].stat().st_size
        code = "import sys; from ltr.cli import main; sys.exit(main(sys.argv[1:]))"
        ports = {"empty endpoint": given.port, "ltr serve": given.port + 1}
        commands = {
            "empty endpoint": [sys.executable, "-c", EMPTY, str(given.port)],
            "ltr serve": [sys.executable, "-c", code, "serve", str(model)],
        }
        commands["ltr serve"] += ["--port", str(given.port + 1)]
        servers = {name: start(commands[name], port) for name, port in ports.items()}
        try:
            for connections in (1, 4):
                runs: dict[str, list[dict[str, float]]] = {name: [] for name in ports}
                for _ in range(given.runs):
                    for name, port in ports.items():
                        before = processor(servers[name])
                        found_now = load(port, bodies["list"], given.requests, connections)
                        spent = processor(servers[name]) - before
                        found_now["CPU ms a request"] = rounded(spent / given.requests)
                        runs[name].append(found_now)
                        print(connections, name, found_now, flush=True)
                for name, several in runs.items():
                    key = f"{name}, {connections} connection{'s' if connections > 1 else ''}"
                    medians = {
                        x: rounded(statistics.median(one[x] for one in several)) for x in several[0]
                    }
                    found["load"][key] = medians
            process = servers["ltr serve"]
            found["MiB"] = [memory(process)]
            for _ in range(4):
                load(ports["ltr serve"], bodies["one"], given.many // 4, 2)
                found["MiB"].append(memory(process))
                print(found["MiB"], flush=True)
        finally:
            for process in servers.values():
                process.terminate()
                process.wait()
    found |= {"requests of a run": given.requests, "runs": given.runs, "many": given.many}
    found |= {"note": given.note, "load average": rounded(os.getloadavg()[1])}
    write(given.output, {"environment": environment(), **found})


if __name__ == "__main__":
    main()
