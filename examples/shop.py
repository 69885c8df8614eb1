"""A shop's table from Parquet to HTTP: train, score, export, and answer a request.

python examples/shop.py --output runs/shop
"""

import argparse
import json
from pathlib import Path

import numpy as np
import pandas as pd
from starlette.testclient import TestClient

from ltr.estimators import NeuralRanker
from ltr.serve import make_app
from ltr.serving import OnnxRanker


def draw(rows: int, seed: int) -> pd.DataFrame:
    """Return searches with ten offers each; a grade of 2 is a purchase, of 1 a click."""
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(
        {
            "search": [f"s{seed}-{i // 10}" for i in range(rows)],
            "price": rng.lognormal(3, 0.5, rows).round(2),
            "rating": np.where(rng.random(rows) < 0.2, np.nan, rng.integers(1, 6, rows)),
            "brand": rng.choice(["acme", "bolt", "crane"], rows),
        }
    )
    liked = table["rating"].fillna(3) - table["price"] / 15 + 2 * (table["brand"] == "bolt")
    table["grade"] = np.digitize(liked + rng.normal(0, 1, rows), [2.5, 4.5])
    return table


def main(argv: list[str] | None = None) -> dict[str, list[dict[str, list[float]]]]:
    """Run all steps, and return what the service answers."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--output", type=Path, default=Path("runs/shop"))
    parser.add_argument("--rows", type=int, default=5000)
    given = parser.parse_args(argv)
    given.output.mkdir(parents=True, exist_ok=True)
    draw(given.rows, 0).to_parquet(given.output / "shop.parquet")
    table, test = pd.read_parquet(given.output / "shop.parquet"), draw(1000, 1)
    columns = ["price", "rating", "brand"]
    ranker = NeuralRanker(monotone={"price": -1}, members=2, random_state=0, verbose=0)
    ranker.fit(table[columns], table["grade"], qid=table["search"])
    ndcg = ranker.score(test[columns], test["grade"], qid=test["search"])
    print(f"NDCG@10 on {test['search'].nunique()} new searches: {ndcg:.3f}")

    ranker.export(given.output / "model.onnx")  # `ltr serve runs/shop/model.onnx` is the next line
    client = TestClient(make_app(OnnxRanker(given.output / "model.onnx")))
    offers = test[columns].head(4)
    records = json.loads(offers.to_json(orient="records") or "")  # null for a missing value
    answer = client.post("/rank", json={"lists": [records]}).json()
    print(offers.assign(score=answer["results"][0]["scores"]).round(2).to_string(index=False))
    return answer


if __name__ == "__main__":
    main()
