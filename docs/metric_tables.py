"""Write the benchmark's numbers into docs/metrics/speed.md: `python docs/metric_tables.py`."""

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

HERE = Path(__file__).parent
PAGE = HERE / "metrics" / "speed.md"


def _shared() -> ModuleType:
    """docs/tables.py, which is no package's module."""
    spec = importlib.util.spec_from_file_location("tables", HERE / "tables.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def tables() -> dict[str, str]:
    """Every table by its name."""
    shared = _shared()
    result: dict[str, Any] = json.loads((shared.RESULTS / "metrics.json").read_text())
    ragged, flat = result["ragged"], result["flat"]
    names = {
        "ours": "`ltr.metrics`",
        "pytrec_eval": "pytrec_eval, its dictionaries made before",
        "pytrec_eval_with_dictionaries": "pytrec_eval, with its dictionaries",
        "torchmetrics": "torchmetrics",
    }
    rows = [
        [
            title,
            shared.number(ragged["microseconds_a_list"][name]),
            shared.number(ragged["ratios"][name]),
            shared.number(ragged["largest_difference"][name], 1),
        ]
        for name, title in names.items()
    ]
    head = (
        f"{ragged['share']:,} lists, {ragged['items_share']:,} items. `ltr.metrics` holds "
        f"{result['extra_bytes'] / 2**20:.0f} MiB at most beside the input of "
        f"{ragged['lists']:,} lists.\n\n"
    )
    seconds = [
        ["NDCG@10", shared.number(flat["seconds"]["ndcg"]), "1"],
        *(
            [title, shared.number(flat["seconds"][name]), shared.number(flat["ratios"][name])]
            for name, title in (("sort", "`scores.sort()`"), ("sort_ids", "`ids.sort()`"))
        ),
    ]
    header = ["", "microseconds a list", "times ours", "largest difference"]
    return {
        "setting": shared._setting(result),
        "ragged": head + shared.table(header, rows),
        "flat": f"{flat['items']:,} items:\n\n"
        + shared.table(["", "seconds", "NDCG@10 / this"], seconds),
    }


if __name__ == "__main__":
    PAGE.write_text(_shared().filled(PAGE.read_text(), tables()))
    print(f"wrote {PAGE}")  # noqa: T201
