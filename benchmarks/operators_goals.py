"""The goals of `operators.py`, with the measured numbers."""

from collections.abc import Mapping
from typing import Any

from measure import rounded

Result = Mapping[str, Any]


def goals(result: Result) -> list[dict[str, Any]]:
    """Return each goal with its number and the measured one, None if it was not measured.

    Times are CPU seconds in one thread on random scores, forward and backward (of sorts forward).
    """
    found = [
        _goal("SoftSort, power 1, n = 1e6: time / torch.sort", "at most", 1.0, _over_sort(
            result, "SoftSort, power 1", 1, 1_000_000
        )),
        *_against_peer(result),
        _goal("SigmoidRank, n = 1e6: time / torch.sort", "at most", 2.0, _over_sort(
            result, "SigmoidRank", 1, 1_000_000
        )),
        _goal("SigmoidRank, n = 1e6: error / n (rounding of float32)", "at most", 2.0**-24, _error(
            result, "SigmoidRank", 1_000_000
        )),
        _goal("SigmoidRank, 64 x 128: naive time / time", "at least", 3.0, _over_naive(
            result, "SigmoidRank", 64, 128
        )),
        _goal("SigmoidRank, 64 x 128, lists side by side: naive time / time", "at least", 5.0,
            _over_naive(result, "SigmoidRank", 64, 128)),
        _goal("SigmoidRank, 20 x 4000: naive time / time", "at least", 100.0, _over_naive(
            result, "SigmoidRank", 20, 4000
        )),
    ]  # fmt: skip
    found += _against_naive(result)
    for name in ("NeuralSort", "SoftSort, power 2"):
        peak = _memory(result, name, 20, 4000)
        megabytes = None if peak is None else peak["bytes"] / 2**20
        found.append(_goal(f"{name}, 20 x 4000: peak in MiB", "at most", 100.0, megabytes))
    for name in dict.fromkeys(row["name"] for row in result["memory"]):
        peak = _memory(result, name, 1, 1_000_000)
        if peak is not None:
            tensors = "peak in tensors of n floats"
            found.append(_goal(f"{name}, n = 1e6: {tensors}", "at most", 20.0, peak["tensors"]))
    return found


def _goal(text: str, how: str, asked: float, measured: float | None) -> dict[str, Any]:
    met = None
    if measured is not None:
        met = {
            "at most": lambda x, limit: x <= limit,
            "below": lambda x, limit: x < limit,
            "at least": lambda x, limit: x >= limit,
        }[how](measured, asked)
    return {
        "goal": text,
        "asked": f"{how} {asked:.3g}",
        "measured": None if measured is None else rounded(measured),
        "met": met,
    }


def _cpu(result: Result, name: str, group: str, lists: int, n: int) -> float | None:
    for point in result["points"]:
        position = point["lists"], point["n"], point["threads"], point["scores"]
        if position == (lists, n, 1, "random"):
            for row in point["rows"]:
                if (row["name"], row["group"]) == (name, group):
                    return row["cpu"]
    return None


def _over(first: float | None, second: float | None) -> float | None:
    return None if first is None or second is None else first / second


def _over_sort(result: Result, name: str, lists: int, n: int) -> float | None:
    ours = _cpu(result, name, "compiled", lists, n)
    return _over(ours, _cpu(result, "torch.sort", "sort", lists, n))


def _over_naive(result: Result, name: str, lists: int, n: int) -> float | None:
    ours = _cpu(result, name, "compiled", lists, n)
    return _over(_cpu(result, name, "naive", lists, n), ours)


def _against_peer(result: Result) -> list[dict[str, Any]]:
    # one goal for each point where both were measured
    ours, peer = ("SoftSort, power 1", "compiled"), ("torchsort.soft_rank, l2", "peer")
    found = []
    for point in result["points"]:
        rows = {(row["name"], row["group"]): row["cpu"] for row in point["rows"]}
        here = point["threads"] == 1 and point["scores"] == "random"
        if here and peer in rows and ours in rows:
            text = f"SoftSort, power 1, {point['lists']} x {point['n']}: time / torchsort's l2 rank"
            found.append(_goal(text, "below", 1.0, rows[ours] / rows[peer]))
    return found or [_goal("SoftSort, power 1: time / torchsort's l2 rank", "below", 1.0, None)]


def _against_naive(result: Result) -> list[dict[str, Any]]:
    # one goal for each operator and each way to compute it: its worst point
    worst: dict[tuple[str, str, float], float] = {}
    for point in result["points"]:
        rows = {(row["name"], row["group"]): row["cpu"] for row in point["rows"]}
        if point["threads"] != 1 or point["scores"] != "random":
            continue
        limit = 1.5 if point["lists"] == 1 and point["n"] <= 30 else 1.2
        for (name, group), cpu in rows.items():
            naive = rows.get((name, "naive"))
            if naive and group in ("compiled", "plain"):
                key = name, group, limit
                worst[key] = max(worst.get(key, 0.0), cpu / naive)
    where = {1.5: "one list of up to 30", 1.2: "other sizes"}
    return [
        _goal(f"{name}, {group}, {where[limit]}: time / naive time", "at most", limit, ratio)
        for (name, group, limit), ratio in sorted(worst.items())
    ]


def _error(result: Result, name: str, n: int) -> float | None:
    for row in result["accuracy"]:
        if (row["name"], row["group"], row["n"]) == (name, "compiled", n):
            return row["relative"]
    return None


def _memory(result: Result, name: str, lists: int, n: int) -> Mapping[str, Any] | None:
    for row in result["memory"]:
        if (row["name"], row["lists"], row["n"]) == (name, lists, n):
            return row
    return None
