"""The random numbers of each training step.

A step depends only on the weights before it and on its position in the training run:

- The order of the lists depends only on the seed and the epoch (`ltr.datasets.ListSampler`).
- The random numbers of a batch depend only on the seed, the epoch and the batch (`seed_batch`).

So a run that is killed and resumed gives the same weights as an uninterrupted one, bit for bit on a
CPU.
"""

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import numpy as np
import torch

GENERATORS = threading.RLock()
"""Held by the thread that seeds the global generators, which all threads of a process share.

Without it, another thread would draw from the same numbers, or seed them again. The lock is
reentrant, so a callback of a fit may fit another ranker.
"""


def seed_batch(
    seed: int,
    stage: Literal["train", "validate"],
    epoch: int,
    batch: int,
    *,
    loader: int = 0,
    process: int = 0,
) -> None:
    """Seed the global generators of torch, numpy and random for one batch.

    Args:
        seed: the seed of the training run.
        stage: "train" or "validate"; the two stages draw different random numbers, so validation
            does not change training.
        epoch: the index of the epoch, from 0.
        batch: the index of the batch within the epoch, from 0.
        loader: the index of the validation loader, from 0.
        process: the index of the process, from 0.

    >>> with own_random_numbers():
    ...     seed_batch(3, "train", epoch=2, batch=7)
    ...     first = torch.rand(())
    ...     seed_batch(3, "train", epoch=2, batch=7)
    ...     bool(torch.rand(()) == first)
    True
    """
    position = [seed, ("train", "validate").index(stage), epoch, batch, loader, process]
    words = np.random.SeedSequence(position).generate_state(3, np.uint32).tolist()
    if torch.accelerator.is_available():
        torch.manual_seed(words[0])
    else:  # torch.manual_seed would take 0.7 ms to record a stack trace for each absent device
        torch.default_generator.manual_seed(words[0])
    # The generators of numpy and `random` are seeded too: a user's scorer or loss may use them.
    np.random.seed(words[1])  # noqa: NPY002
    random.seed(words[2])


@contextmanager
def own_random_numbers() -> Iterator[None]:
    """Restore the global generators of torch, numpy and random when the context ends.

    Only one thread at a time is in such a context; any other thread waits.
    """
    with GENERATORS:
        plain, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
        cpu = torch.get_rng_state()
        cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
        mps = torch.mps.get_rng_state() if torch.mps.is_available() else None
        try:
            yield
        finally:
            random.setstate(plain)
            np.random.set_state(numpy)  # noqa: NPY002
            torch.set_rng_state(cpu)
            if cuda:
                torch.cuda.set_rng_state_all(cuda)
            if mps is not None:
                torch.mps.set_rng_state(mps)
