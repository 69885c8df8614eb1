"""The Bradley-Terry model: the strengths that explain best who beats whom."""

import numpy as np
from scipy.special import expit

ROUNDING = 1e-12
"""The cost may grow by this fraction in a step: near the minimum, it changes by rounding alone."""


def bradley_terry_strengths(wins: np.ndarray, ridge: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """Return strengths b (n,) with mean 0, and the information (n, n) about them.

    Item i beats item j with probability sigmoid(b_i - b_j). The strengths minimize

        sum_ij wins_ij log(1 + exp(b_j - b_i)) + ridge / 2 sum_i b_i^2

    and the information is the matrix of second derivatives. Without a ridge there is a minimum if a
    chain of wins leads from each item to each other item (Ford, 1957). Newton's method finds it, in
    O(n^3) time a step.

    >>> strengths, _ = bradley_terry_strengths(np.array([[0.0, 3.0], [1.0, 0.0]]))
    >>> round(float(np.exp(strengths[0] - strengths[1])), 6)
    3.0
    """

    def cost(strengths: np.ndarray) -> float:
        losing = np.logaddexp(0, strengths - strengths[:, None])
        return (wins * losing).sum() + ridge / 2 * strengths @ strengths

    n = len(wins)
    strengths = np.zeros(n)
    while True:
        # This is the probability that row i loses to column j.
        lost = expit(strengths - strengths[:, None])
        surprise = wins * lost
        gradient = surprise.sum(0) - surprise.sum(1) + ridge * strengths
        information = -(wins + wins.T) * lost * (1 - lost)
        information[np.diag_indices(n)] = ridge - information.sum(1)
        # A constant on all elements makes the matrix invertible, and changes the mean step alone.
        step = np.linalg.solve(information + information.trace() / n**2, gradient)
        step -= step.mean()  # the mean strength is 0 at the minimum
        most = (1 + ROUNDING) * cost(strengths)
        while cost(strengths - step) > most:  # this ends, since the step becomes 0
            step = step / 2
        strengths = strengths - step
        if not np.abs(step).max() > 1e-10 * (1 + np.abs(strengths).max()):
            return strengths, information
