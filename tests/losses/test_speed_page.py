"""The page on the speed of losses shows the committed measurements."""

import copy
import importlib.util
import json
from pathlib import Path

ROOT = Path(__file__).parents[2]


def load():
    path = ROOT / "docs" / "loss_speed.py"
    spec = importlib.util.spec_from_file_location("loss_speed", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_shows_the_results():
    module = load()
    page = module.PAGE.read_text()
    results = [json.loads(p.read_text()) for p in (module.RESULT, module.KEPT)]
    tables = module.tables(*results)
    assert module.filled(page, tables) == page
    goals = module.GOALS.read_text()
    assert module.filled(goals, {"goals": module.goals(*results)}) == goals
    assert all(f"<!-- table {name} -->" in page for name in tables)


def test_goals_are_ratios_and_the_slowest_of_a_family_counts(tmp_path):
    module = load()
    batches = []
    for lists, n in ((64, 40), (64, 120), (16, 500)):
        taken = {
            "all-pairs RankNet": 2.0,
            "SoftNDCG dense": 3.0,
            "RankNet": 1.0,
            "SoftNDCG": 0.1,
            "LambdaRank": 2.0,
            "LambdaLoss(A())": 1.0,
            "LambdaLoss(B())": 5.0,
            "NeuralNDCG": 13.0,
        }
        rows = [{"loss": name, "seconds": s, "bytes": 10**6} for name, s in taken.items()]
        batches.append({"lists": lists, "n": n, "losses": rows})
    result = {"batches": batches}
    kept = copy.deepcopy(result)
    kept["batches"][0]["losses"][4]["seconds"] = 1.9  # LambdaRank at 64 x 40
    goals = [line.split(" | ") for line in module.goals(result, kept).splitlines()[2:]]
    found = {line[0].strip("| "): (line[2], line[3]) for line in goals}
    again = {line[0].strip("| "): (line[4], line[5].strip(" |")) for line in goals}
    assert again["LambdaRank, 64 × 40: time / all-pairs RankNet"] == ("0.95", "yes")
    assert found["RankNet, 64 × 120: time / all-pairs RankNet"] == ("0.5", "yes")
    assert found["RankNet, 16 × 500: time / all-pairs RankNet"] == ("0.5", "no")
    assert found["LambdaRank, 64 × 40: time / all-pairs RankNet"] == ("1", "no")
    assert found["LambdaLoss, its slowest, 64 × 40: time / all-pairs RankNet"] == ("2.5", "no")
    assert found["SoftNDCG, 64 × 120: time / SoftNDCG dense"] == ("0.0333", "yes")
    assert found["NeuralNDCG, 64 × 120: time / all-pairs RankNet"] == ("6.5", "yes")
    module.draw(result, tmp_path / "plot.svg")
    assert "64 × 40" in module.times(result)
    assert (tmp_path / "plot.svg").stat().st_size > 1000
