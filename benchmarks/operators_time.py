"""Best times of calls that take turns, and series of calls over growing lists."""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from measure import rounded
from operators_contestants import Contestant, scores_of

TURN = 0.005
"""The seconds of a turn, which is at least one call."""

AGAIN = 4
"""A first call of up to this many budgets is followed by a second one, and does not count."""

Call = Callable[[int], Any]
"""A function that does the same thing so many times."""


@dataclass(frozen=True)
class Effort:
    """The limits of a measurement.

    Args:
        rounds: turns of each contestant, at most.
        budget: seconds that the turns of one contestant may take at one point.
        limit: seconds; a call expected to take longer is left out.
    """

    rounds: int = 15
    budget: float = 1.2
    limit: float = 10.0


def best_times(calls: Mapping[str, Call], effort: Effort) -> dict[str, dict[str, Any]]:
    """Return the least CPU and wall-clock seconds of a call of each, over rounds of turns.

    CPU seconds are those of all threads of this process. A first call does not count if there is
    time for a second one.
    """
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in calls}
    repeats, spent = dict.fromkeys(calls, 1), dict.fromkeys(calls, 0.0)
    for name, call in calls.items():
        first = _seconds(call, 1)
        if first[1] > AGAIN * effort.budget:
            found[name].append(first)
            spent[name] = first[1]
        else:  # the first call may wait for what the others need no more, such as gigabytes
            first = min(first, _seconds(call, 1), key=lambda seconds: seconds[1])
        repeats[name] = max(1, min(1000, int(TURN / max(first[1], 1e-7))))
    for _ in range(effort.rounds):
        for name, call in calls.items():
            if spent[name] > effort.budget:
                continue
            turn = _seconds(call, repeats[name])
            found[name].append(turn)
            spent[name] += turn[1] * repeats[name]
    return {
        name: {
            "cpu": rounded(min(cpu for cpu, _ in turns)),
            "wall": rounded(min(wall for _, wall in turns)),
            "turns": len(turns),
        }
        for name, turns in found.items()
    }


def _seconds(call: Call, repeats: int) -> tuple[float, float]:
    cpu, wall = time.process_time(), time.perf_counter()
    call(repeats)
    return (time.process_time() - cpu) / repeats, (time.perf_counter() - wall) / repeats


@dataclass
class Forecast:
    """A forecast of a call's time, from shorter lists in the same series."""

    past: dict[str, list[tuple[int, float]]] = field(default_factory=dict)

    def seconds(self, contestant: Contestant, n: int) -> float:
        """Return the expected wall-clock seconds at n, 0 if nothing is known."""
        seen = self.past.get(contestant.key, [])
        if not seen:
            return 0.0
        (size, seconds), power = seen[-1], contestant.growth
        if len(seen) > 1:
            before, quicker = seen[-2]
            power = max(power, math.log(seconds / quicker) / math.log(size / before))
        return seconds * (n / size) ** min(power, 3.0)

    def saw(self, contestant: Contestant, n: int, seconds: float) -> None:
        """Store a measured time."""
        self.past.setdefault(contestant.key, []).append((n, seconds))


def series(
    lists: int,
    sizes: Sequence[int],
    kind: str,
    threads: int,
    taking_part: Sequence[Contestant],
    effort: Effort,
) -> Iterator[dict[str, Any]]:
    """Return one point for each length, with the rows of all contestants that can run there."""
    torch.set_num_threads(threads)
    forecast = Forecast()
    for n in sizes:
        scores = scores_of(lists, n, kind)
        chosen, left_out = {}, {}
        for contestant in taking_part:
            expected = forecast.seconds(contestant, n)
            if not contestant.fits(lists, n):
                left_out[contestant.key] = "its matrix takes more than 2 GiB"
            elif expected > effort.limit and contestant.name != "torch.sort":  # all others' measure
                left_out[contestant.key] = f"about {expected:.0f} s a call"
            else:
                chosen[contestant.key] = contestant
        calls = {key: contestant.call(scores) for key, contestant in chosen.items()}
        rows = []
        for key, best in best_times(calls, effort).items():
            contestant = chosen[key]
            forecast.saw(contestant, n, best["wall"])
            rows.append({"name": contestant.name, "group": contestant.group, **best})
        base = next(row["cpu"] for row in rows if row["name"] == "torch.sort")
        for row in rows:
            row["ratio"] = rounded(row["cpu"] / base)  # to torch.sort, in CPU time
        point = {"lists": lists, "n": n, "scores": kind, "threads": threads}
        yield {**point, "rows": rows, "left_out": left_out}
