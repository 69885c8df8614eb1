#!/usr/bin/env bash
# Install a wheel into fresh environments, and train, save, load and score with it:
# tools/smoke.sh WHEEL [PYTHON...], by default with all of Python 3.11 to 3.14 that are found.
set -euo pipefail
wheel=$(realpath "$1")
root=$(realpath "$(dirname "$0")/..")
shift
pythons=("$@")
if [ ${#pythons[@]} = 0 ]; then
  for version in 3.11 3.12 3.13 3.14; do
    "python$version" -c "" 2> /dev/null && pythons+=("python$version") # a name alone may be a shim
  done
fi
for python in "${pythons[@]}"; do
  folder=$(mktemp -d)
  "$python" -m venv "$folder/venv"
  "$folder/venv/bin/pip" install --quiet --disable-pip-version-check \
    --constraint "$root/constraints.txt" "$wheel"
  (
    cd "$folder"
    venv/bin/python - << 'END'
import numpy as np, pandas as pd, torch, ltr
from ltr.estimators import NeuralRanker
from ltr.losses import SoftNDCG

scores = torch.randn(2, 5, requires_grad=True)
SoftNDCG()(scores, torch.tensor([[2.0, 0, 0, 1, 0], [0, 1, 0, 0, 0]])).backward()
assert scores.grad.isfinite().all()
rng = np.random.default_rng(0)
shop = pd.DataFrame({"query": np.arange(400) // 8, "price": rng.normal(size=400)})
shop["grade"] = (shop["price"] < 0).astype(int)
shop.to_csv("shop.csv", index=False)
X, y, qid = shop[["price"]], shop["grade"], shop["query"]
ranker = NeuralRanker(members=1, max_epochs=5, random_state=0, verbose=0).fit(X, y, qid=qid)
assert ranker.score(X, y, qid=qid) > 0.95
ranker.save("model")
assert (NeuralRanker.load("model").predict(X) == ranker.predict(X)).all()
END
    venv/bin/ltr predict model shop.csv --output scores.csv
    venv/bin/ltr evaluate scores.csv --qid query --label grade > /dev/null
  )
  "$folder/venv/bin/python" -c 'import platform, ltr, torch
print(f"{ltr.__version__} on Python {platform.python_version()} with torch {torch.__version__}: fine")'
  rm -rf "$folder"
done
