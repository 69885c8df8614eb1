"""The commands on a Ray cluster of two nodes, against those in one process.

It has a file of its own, since the cluster of `test_on_ray.py` runs as long as the tests there.
"""

from pathlib import Path

import pytest

from .test_on_ray import fit_both, options, running

__all__ = ["options"]  # a fixture

WITNESS = """
from pathlib import Path

import ray
from lightning.pytorch import Callback


class Witness(Callback):
    def on_fit_start(self, trainer, pl_module):
        node = ray.get_runtime_context().get_node_id()
        Path("nodes", node).mkdir(parents=True, exist_ok=True)
"""


@pytest.mark.slow  # a cluster of two nodes
@pytest.mark.filterwarnings("ignore")
def test_two_nodes(ltr, options):
    """One CPU a node: each of the two workers has a node of its own."""
    Path("witness.py").write_text(WITNESS)
    with running(2):
        fit_both(ltr, options, "--trainer.callbacks", "witness.Witness")
        assert len([*Path("nodes").iterdir()]) == 2
        predict = ["predict", "runs/one", "letor/test.txt"]
        assert ltr(*predict, "--output", "p.csv").code == 0
        answer = ltr(*predict, "--output", "ray.csv", "--ray-workers", 2)
        assert answer.code == 0, answer.err
        assert Path("ray.csv").read_text() == Path("p.csv").read_text()
