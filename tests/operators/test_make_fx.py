"""A trace of an operator's gradient, by `make_fx`, computes the gradient of other scores."""

import torch
from operator_table import OPERATORS, draw
from pairwise import named, split, together
from torch.fx.experimental.proxy_tensor import make_fx

from ltr.kernels import use

FORMS = named("dense", "sums")
ONE_OF_EACH = {type(operator): name for name, operator in reversed(OPERATORS.items())}.values()
FAST, MORE = split({name: OPERATORS[name] for name in ONE_OF_EACH}, FORMS)


@together("operator, form", FAST, {**MORE, **split(OPERATORS, FORMS)[1]})
def test_a_trace_of_the_gradient_is_no_record_of_numbers(operator, form):
    def gradient(x):
        return torch.func.grad(lambda x: operator(x).square().sum())(x)

    with use(form):
        trace = make_fx(gradient)(draw(2, 6))
        other = draw(2, 6, seed=1)
        torch.testing.assert_close(trace(other), gradient(other))
