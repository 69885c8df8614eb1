"""The metrics against torchmetrics and pytrec_eval, and against one sort.

    python benchmarks/metrics.py

NDCG@10, MAP and MRR of ragged lists of 1 to 100 items, in one thread, at each number of `--lists`:
an update has a fixed cost even for few lists. torchmetrics drops relevant items with scores <= 0,
so all scores are above 0 here. pytrec_eval is timed with and without building its dictionaries.
The flat part compares NDCG@10 of unsorted items with one `torch.sort` of as many items. Extra
memory is the peak growth of a fresh process, beyond the inputs, while the metrics are updated, for
the most lists.
"""

import argparse
import gc
import json
import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from measure import RESULTS, environment, rounded, times, write
from torch import Tensor
from torchmetrics import MetricCollection

from ltr.metrics import MAP, MRR, NDCG, RankingMetrics
from ltr.metrics import functional as F

LONGEST = 100
Lists = tuple[Tensor, Tensor, Tensor]


def ragged(lists: int, seed: int = 0) -> Lists:
    """Return scores above 0, labels 0..4 (most 0) and ids of lists of 1 to 100 items, in order."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, LONGEST + 1, (lists,), generator=generator)
    ids = torch.repeat_interleave(torch.arange(lists), lengths)
    scores = torch.rand(len(ids), generator=generator) + 0.01
    labels = torch.randint(-4, 5, (len(ids),), generator=generator).clamp(min=0)
    return scores, labels, ids


def ours(data: Lists) -> dict[str, float]:
    """Return the three metrics of `ltr.metrics`, in one collection."""
    scores, labels, ids = data
    metrics = RankingMetrics({"NDCG": NDCG(top_k=10, gain="linear"), "MAP": MAP(), "MRR": MRR()})
    metrics.update(scores, labels, indexes=ids)
    return {name: value.item() for name, value in metrics.compute().items()}


def torchmetrics_values(data: Lists) -> dict[str, float]:
    """Return torchmetrics' retrieval metrics, in a collection."""
    from torchmetrics.retrieval import RetrievalMAP, RetrievalMRR, RetrievalNormalizedDCG

    scores, labels, ids = data
    ndcg = RetrievalNormalizedDCG(top_k=10)
    ndcg.update(scores, labels, indexes=ids)
    binary = MetricCollection({"MAP": RetrievalMAP(), "MRR": RetrievalMRR()})
    binary.update(scores, labels > 0, indexes=ids)  # these take only binary labels
    values = {"NDCG": ndcg.compute(), **binary.compute()}
    return {name: value.item() for name, value in values.items()}


def dictionaries(data: Lists) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the run and qrels that pytrec_eval takes."""
    scores, labels, ids = (x.tolist() for x in data)
    run: dict[str, dict[str, float]] = {}
    qrels: dict[str, dict[str, int]] = {}
    for item, (qid, score, label) in enumerate(zip(ids, scores, labels, strict=True)):
        name = str(item)
        run.setdefault(str(qid), {})[name] = score
        qrels.setdefault(str(qid), {})[name] = label
    return run, qrels


def trec_values(evaluator: Any, run: dict[str, Any]) -> dict[str, float]:
    """Return pytrec_eval's means."""
    found = list(evaluator.evaluate(run).values())
    keys = {"NDCG": "ndcg_cut_10", "MAP": "map", "MRR": "recip_rank"}
    return {name: sum(x[key] for x in found) / len(found) for name, key in keys.items()}


def against_others(lists: int, rounds: int) -> dict[str, Any]:
    """Return the times of all on the same lists, and the differences of their values."""
    import pytrec_eval

    measures = {"ndcg_cut.10", "map", "recip_rank"}
    data = ragged(lists)
    run, qrels = dictionaries(data)
    evaluator = pytrec_eval.RelevanceEvaluator(qrels, measures)
    gc.collect()
    gc.freeze()  # else every garbage collection, in torchmetrics' loop too, would visit these
    values: dict[str, dict[str, float]] = {}

    def with_dictionaries() -> dict[str, float]:
        run, qrels = dictionaries(data)
        return trec_values(pytrec_eval.RelevanceEvaluator(qrels, measures), run)

    calls: dict[str, Callable[[], dict[str, float]]] = {
        "ours": lambda: ours(data),
        "torchmetrics": lambda: torchmetrics_values(data),
        "pytrec_eval": lambda: trec_values(evaluator, run),
        "pytrec_eval_with_dictionaries": with_dictionaries,
    }

    def kept(name: str) -> Callable[[], None]:
        return lambda: values.update({name: calls[name]()})

    seconds = times({name: kept(name) for name in calls}, rounds)
    gc.unfreeze()
    result = {
        "lists": lists,
        "items": len(data[0]),
        "seconds": {name: rounded(s) for name, s in seconds.items()},
        "microseconds_a_list": {name: rounded(1e6 * s / lists) for name, s in seconds.items()},
        "ratios": {name: rounded(s / seconds["ours"]) for name, s in seconds.items()},
        "largest_difference": {
            name: rounded(max(abs(values["ours"][m] - found[m]) for m in found))
            for name, found in values.items()
        },
    }
    each = result["microseconds_a_list"]
    print(f"{lists} lists, microseconds a list: {each}; ratios: {result['ratios']}", flush=True)
    return result


def against_sort(items: int, rounds: int) -> dict[str, Any]:
    """Return seconds of NDCG@10 of flat items, of a sort of the scores, and of one of the ids."""
    generator = torch.Generator().manual_seed(1)
    scores = torch.randn(items, generator=generator)
    labels = torch.randint(0, 5, (items,), generator=generator)
    ids = torch.randint(0, max(1, items // 50), (items,), generator=generator)
    seconds = times(
        {
            "ndcg": lambda: F.ndcg(scores, labels, qid=ids, top_k=10),
            "sort": lambda: scores.sort(),
            "sort_ids": lambda: ids.sort(),
        },
        rounds,
    )
    ratios = {name: rounded(seconds["ndcg"] / seconds[name]) for name in ("sort", "sort_ids")}
    print(f"{items} flat items take {ratios} times one sort")
    return {
        "items": items,
        "seconds": {name: rounded(s) for name, s in seconds.items()},
        "ratios": ratios,
    }


def extra_memory(lists: int) -> int:
    """Return the bytes by which this process's peak grows while it computes the metrics."""
    ours(ragged(200))  # load everything in a first call
    data = ragged(lists)
    # the peak so far may be above what is held now: fill up to it, so that all growth shows
    status = Path("/proc/self/status").read_text()
    held = 1024 * int(status.partition("VmRSS:")[2].split()[0])
    peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    filler = torch.ones(max(0, peak - held), dtype=torch.uint8)
    before = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    ours(data)
    del filler
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before


def main() -> None:
    """Read the arguments, measure, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    sizes = [1_000, 20_000, 100_000]
    parser.add_argument("--lists", type=int, nargs="+", default=sizes, help="how many, each size")
    parser.add_argument("--items", type=int, default=10_000_000, help="flat unsorted items")
    parser.add_argument("--rounds", type=int, default=3, help="repeats")
    parser.add_argument("--memory", action="store_true", help="only print the extra bytes")
    parser.add_argument("--output", type=Path, default=RESULTS / "metrics.json")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", category=UserWarning)  # torchmetrics on its memory
    if arguments.memory:
        print(json.dumps(extra_memory(max(arguments.lists))))
        return
    start = time.perf_counter()
    most = str(max(arguments.lists))
    command = [sys.executable, __file__, "--memory", "--lists", most]
    grown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    result = {
        "environment": environment(),
        "rounds": arguments.rounds,
        "extra_bytes": json.loads(grown.splitlines()[-1]),
        "ragged": [against_others(lists, arguments.rounds) for lists in arguments.lists],
        "flat": against_sort(arguments.items, arguments.rounds),
    }
    print(f"{result['extra_bytes'] / 2**20:.0f} MiB more than the inputs")
    write(arguments.output, result)
    print(f"{time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
