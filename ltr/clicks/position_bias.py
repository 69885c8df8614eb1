"""Position bias: the propensities of positions, and the weights that correct for them."""

from collections.abc import Sequence
from typing import Any, Literal, Self

import torch
from torch import Tensor, nn

from ltr.shapes import check_floats, check_number


class PositionBias(nn.Module):
    """Model of position bias in clicks: the probability that a user looks at each position.

    The model maps positions (..., n) to probabilities in (0, 1], the propensities.

    The probability is 1 / position^power, or comes from a table. `estimate` computes a table from a
    log of clicks.

    Args:
        power: the exponent, >= 0 (eta in the paper). With 0 there is no bias. Default: 1.
        examination: the table: probabilities in (0, 1] at positions 1, 2, and so on. Positions
            after the end of the table have its last probability. Default: None, for 1 /
            position^power.

    Attributes:
        interval: the 95 % interval of the probability at each position, as (low, high), if
            `estimate` computed the table with resamples, otherwise None. The interval is not saved
            with a model.
        draws: (resamples, positions), the tables of the resamples of `estimate`; None if there are
            no resamples. A table has NaN for positions whose probability its resample does not
            determine. `ltr.clicks.evaluate_log` needs these tables.

    Raises:
        ValueError: power is < 0, a probability is outside (0, 1], or the table is empty.

    Reference: Joachims, Swaminathan and Schnabel, "Unbiased learning-to-rank with biased
    feedback", WSDM 2017.

    >>> PositionBias()(torch.tensor([1, 2, 4]))
    tensor([1.0000, 0.5000, 0.2500])
    >>> PositionBias(examination=[1.0, 0.6])(torch.tensor([1, 2, 4]))
    tensor([1.0000, 0.6000, 0.6000])
    """

    propensities: Tensor | None
    interval: list[tuple[float, float]] | None = None
    draws: Any = None

    def __init__(self, power: float = 1.0, examination: Sequence[float] | None = None):
        super().__init__()
        self.power = check_number("power", power, minimum=0.0)
        table = None
        self.examination = None if examination is None else check_floats("examination", examination)
        if self.examination is not None:
            table = torch.tensor(self.examination)
            if not len(table) or not ((table > 0) & (table <= 1)).all():
                raise ValueError(f"examination must lie in (0, 1], got {self.examination}")
        self.register_buffer("propensities", table, persistent=False)

    @classmethod
    def estimate(
        cls,
        clicks: Any,
        position: Any,
        qid: Any,
        doc_id: Any = None,
        *,
        method: Literal["harvesting", "em", "swaps"] = "harvesting",
        impressions: Any = None,
        swap: Any = None,
        features: Any = None,
        classifier: Any = None,
        top_k: int | None = None,
        resamples: int = 200,
        seed: int = 0,
    ) -> Self:
        r"""Estimate the propensities from a log of clicks, relative to the largest propensity.

        If a document is clicked more often at position 1 than at position 5, the ratio of the two
        click rates tells how much more often users look at position 1, since the document is
        equally relevant at both positions.
        A later position counts as the largest only if it exceeds position 1 by more than chance
        explains; otherwise its value is at most 1, the value of position 1.
        The result `bias` goes into a loss as `Unbiased(loss, bias)`. `bias.interval` holds a 95 %
        interval for each position, from a bootstrap over queries. In each resample, the propensity
        of position 1 is held at its value in `bias.examination`. An interval is wide if some
        resamples do not determine the propensity of its position. With only one query,
        `bias.interval` is None.

        How many of the intervals contained the true value, k^-0.3, was measured in 40 simulated
        logs for each method, of 200 queries with 5 to 40 documents and 4,000 sessions: 94 % by
        harvesting, for all positions of the 35 logs that determine all of them; 94 % by em, for 20
        positions; and 95 % by swaps, for 10 positions. Of 30 queries and 600 sessions, 95 % by
        harvesting did, for 10 positions.

        | method | needs | assumes |
        | --- | --- | --- |
        | "harvesting" | `doc_id`; documents that were shown at several positions | A |
        | "swaps" | `swap`; random exchanges of positions 1 and k | nothing about relevance |
        | "em" | as harvesting | A |
        | "em" with features | `features` and `classifier` | B |

        A: a document of a query is equally relevant at all positions at which it was shown, as in
        an A/B test, or before and after a change of the model. B: the classifier can express
        relevance, and its features contain all that the production ranker knew about relevance.

        In all methods, the probability of a click is theta_k gamma: theta_k is the probability that
        the user looks at position k, and gamma the probability that the document is relevant. So
        the methods assume that users do not trust a document more because it is at the top, and
        that the documents above a document have no effect. Trust bias is not estimated.

        - **Harvesting** compares all pairs of positions, by the documents that were shown at both
          positions for the same query. The clicks of a document at the two positions are weighted
          as if the numbers of impressions were equal (Mantel and Haenszel). Maximum likelihood
          combines the pairs of positions: the mean relevance of each pair is a separate parameter,
          and clicks are Poisson counts.
        - **Swaps** compares positions 1 and k in the same way. It uses all sessions of a query in
          which the two positions could be exchanged, whether or not they were.
        - **EM** maximizes the likelihood of all clicks over theta and gamma. Without features, each
          document of a query has its own gamma, clicks are Poisson counts, and the estimate is
          close to that by harvesting. With features, the classifier predicts gamma. The interval
          does not include errors of the classifier.

        Args:
            clicks: (rows,), 1 for a click and 0 for no click, or the number of clicks if
                `impressions` are given.
            position: (rows,), the position at which the document was shown, from 1.
            qid: (rows,), the query, not the session: all sessions of a query have the same qid. The
                interval needs a few dozen queries, since it comes from resampled queries.
            doc_id: (rows,), the document. The same name in two queries means two documents.
            method: see above. Default: "harvesting".
            impressions: (rows,), how often the document was shown, if a row is the sum of several
                sessions. Default: 1.
            swap: (rows,), the position k >= 2 that could be exchanged with position 1 in the
                session of the row, or 0 outside the experiment. Only the rows at positions 1 and k
                are used.
            features: (rows, columns), numeric values; all rows of a document must have the same
                values. Without `doc_id`, each row is a separate document.
            classifier: a scikit-learn classifier that has `predict_proba` and takes
                `sample_weight`.
            top_k: the last position that is used. Later positions get the propensity of position
                `top_k`, as always in `PositionBias`. Default: the last position in the log.
            resamples: the number of resamples of the bootstrap, >= 0; 0 for no interval. Default:
                200.
            seed: the seed of the resamples, >= 0.

        Raises:
            ValueError: the log does not determine the propensity of a position up to `top_k` or the
                log's last position: nothing was shown at the position, it has no clicks, or no
                chain of clicked documents, each shown at two positions, connects it with position
                1. The message says which reason holds, and which `top_k` to use. The error is also
                raised if no document was shown at two positions, a position is below 1, a row has
                more clicks than impressions, or an argument is invalid or missing for the method.

        Warns:
            RuntimeWarning: em has not converged.

        Rows, sessions and queries without clicks are allowed, and their rows count as impressions.
        A propensity may be higher at a later position.

        Cost: for 200,000 sessions of ten documents each, from 1,000 queries, one second by
        harvesting or swaps, and five by em. With features, a classifier is fitted up to 100 times
        for the estimate and up to 100 times for each resample, on two rows for each document.

        Reference: Agarwal, Zaitsev, Wang, Li, Najork and Joachims, "Estimating position bias
        without intrusive interventions", WSDM 2019, for harvesting by all pairs; Joachims,
        Swaminathan and Schnabel, WSDM 2017, for swaps; Wang, Golbandi, Bendersky, Metzler and
        Najork, "Position bias estimation for unbiased learning to rank in personal search", WSDM
        2018, for regression-EM.

        >>> clicks = [1, 0, 1, 1, 0, 0, 1, 0]  # of one document at position 1, then at position 2
        >>> position = [1, 1, 1, 1, 2, 2, 2, 2]
        >>> bias = PositionBias.estimate(clicks, position, qid=["q"] * 8, doc_id=["d"] * 8)
        >>> [round(x, 3) for x in bias.examination]
        [1.0, 0.333]
        """
        from ltr.clicks.propensities import estimate

        examination, interval, draws = estimate(
            clicks,
            position,
            qid,
            doc_id,
            method=method,
            impressions=impressions,
            swap=swap,
            features=features,
            classifier=classifier,
            top_k=top_k,
            resamples=resamples,
            seed=seed,
        )
        bias = cls(examination=examination)
        bias.interval, bias.draws = interval, draws
        return bias

    def forward(self, position: Tensor) -> Tensor:
        """Return the propensities (..., n) of positions (..., n), counted from 1."""
        position = position if position.is_floating_point() else position.float()
        position = position.clamp(min=1)
        if self.propensities is None:
            return position ** (-self.power)
        entry = position.clamp(max=len(self.propensities)).long() - 1
        return self.propensities.to(position.dtype)[entry]

    def extra_repr(self) -> str:
        """Return the power, or a note that there is a table, for `print`."""
        return f"power={self.power:g}" if self.examination is None else "examination=..."


def inverse_propensity_weights(
    position: Tensor, bias: PositionBias | None = None, *, clip: float | None = None
) -> Tensor:
    """Return the weights 1 / propensity of positions (..., n), limited to `clip`.

    Args:
        position: (..., n), the positions at which the items were shown, counted from 1.
        bias: the propensities of positions. Default: `PositionBias()`.
        clip: the largest weight. A limit lowers the variance and adds some bias. Default: no limit.

    Raises:
        ValueError: clip is not > 0.

    >>> inverse_propensity_weights(torch.tensor([1, 2, 9]), clip=5.0)
    tensor([1., 2., 5.])
    """
    weights = 1 / (PositionBias() if bias is None else bias)(position)
    limit = check_clip(clip)
    return weights if limit is None else weights.clamp(max=limit)


def check_clip(clip: float | None) -> float | None:
    """Return the largest weight, or raise a ValueError unless it is None or > 0."""
    return None if clip is None else check_number("clip", clip, minimum=0.0, strict=True)
