"""Clicks and purchases: weight the labels in several ways, choose a trade-off, and serve the model.

python examples/trade_off.py --output runs/trade_off
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
from starlette.testclient import TestClient

from ltr.estimators import NeuralRanker, TradeOffs, trade_offs
from ltr.losses import XENDCG, SeveralLabels
from ltr.serve import make_app
from ltr.serving import OnnxRanker


def draw(rows: int, seed: int) -> pd.DataFrame:
    """Return searches with ten offers: cheap ones are clicked, good ones are bought."""
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(rng.normal(size=(rows, 3)), columns=["price", "rating", "stock"])
    table["search"] = np.arange(rows) // 10
    table["click"] = (rng.normal(0, 0.7, rows) - table["price"] > 1) * 1.0
    table["purchase"] = (rng.normal(0, 0.7, rows) + table["rating"] > 1.8) * 1.0
    table.loc[rng.random(rows) < 0.2, "purchase"] = np.nan  # not known
    return table


def make_ranker(weights: dict[str, float]) -> NeuralRanker:
    """Return a small ranker for some weights of the labels."""
    loss = SeveralLabels({name: (XENDCG(), weight) for name, weight in weights.items()})
    return NeuralRanker(loss=loss, members=2, random_state=0, verbose=0)


def main(argv: list[str] | None = None) -> TradeOffs:
    """Run all steps, and return the trade-offs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--output", type=Path, default=Path("runs/trade_off"))
    parser.add_argument("--rows", type=int, default=6000)
    given = parser.parse_args(argv)
    given.output.mkdir(parents=True, exist_ok=True)
    table, columns = draw(given.rows, 0), ["price", "rating", "stock"]
    X, Y = table[columns], table[["click", "purchase"]]
    found = trade_offs(make_ranker, X, Y, qid=table["search"])
    print(found)
    found.plot().figure.savefig(given.output / "trade_offs.png")  # pyright: ignore
    affordable = [x for x in found if x.means[0] > found[0].means[0] - 0.05]  # of the clicks' NDCG
    chosen = max(affordable, key=lambda point: point.means[1])
    print(f"chosen: {chosen.weights}")
    chosen.ranker.export(given.output / "model.onnx")
    client = TestClient(make_app(OnnxRanker(given.output / "model.onnx")))
    offers = [dict(zip(columns, x, strict=True)) for x in X.to_numpy()[:3].tolist()]
    answer = client.post("/rank", json={"lists": [offers]}).json()
    print("served scores:", *(f"{score:.2f}" for score in answer["results"][0]["scores"]))
    return found


if __name__ == "__main__":
    main()
