"""The table of exponential sums: every stated error measured again, on another grid."""

import importlib.util
import json
import math
import subprocess
import sys

import fit_table as fit
import mpmath
import numpy as np
import pytest
import torch
from fit_minimax import line_nodes
from fit_softrank import fit_powers
from fit_sums import fit_rows
from scipy.special import ndtr

from ltr.kernels.table import (
    PATH,
    Nodes,
    discount_powers,
    exponential_sum,
    power_sum,
    softrank_nodes,
    softrank_weights,
)
from ltr.operators import SoftRank

NAMES = ["logistic", "softplus", "gaussian", "normal"]
LEVELS = ["float32", "float64"]
STORED = json.loads(PATH.read_text())
EPS = 2.0**-53

sums = pytest.mark.parametrize("level", LEVELS)
names = pytest.mark.parametrize("name", NAMES)


def exact(name, order, x):
    """Return f, f' and f'' by mpmath, from separate formulas."""
    x = mpmath.mpf(float(x))
    if name == "logistic":
        t = mpmath.tanh(x / 2)
        return [(1 - t) / 2, (t * t - 1) / 4, t * (1 - t * t) / 4][order]
    if name == "softplus":
        t = mpmath.tanh(x / 2)
        return [mpmath.log1p(mpmath.exp(-x)), (t - 1) / 2, (1 - t * t) / 4][order]
    g = mpmath.exp(-x * x)
    if name == "gaussian":
        return [g, -2 * x * g, (4 * x * x - 2) * g][order]
    density = mpmath.npdf(x)
    return [mpmath.erfc(x / mpmath.sqrt(2)) / 2, -density, x * density][order]


def plain(total, order, x):
    """The sum in doubles."""
    decays = np.exp(-np.outer(x, total.nodes.values()))
    return (decays @ np.array(total.weights[order])).real


@sums
@names
def test_the_stated_errors(name, level):
    total = exponential_sum(name, level)
    x = np.concatenate([np.linspace(0, 3, 180), np.linspace(3.02, 9, 120), [12, 20, 60, 1e3]])
    with mpmath.workdps(30):
        nodes = [mpmath.mpc(node) for node in total.nodes.values()]
        decays = [[mpmath.exp(-node * float(v)) for node in nodes] for v in x]
        for order, (row, stated) in enumerate(zip(total.weights, total.errors, strict=True)):
            weights = [mpmath.mpc(w) for w in row]
            errors = [
                abs(sum((w * e).real for w, e in zip(weights, line, strict=True)) - target)
                for line, target in zip(decays, (exact(name, order, v) for v in x), strict=True)
            ]
            assert 0.7 * stated < max(errors) < stated * (1 + 1e-6)


@sums
@names
def test_in_doubles_and_far_out(name, level):
    total = exponential_sum(name, level)
    x = np.concatenate([np.linspace(0, 60, 2001), [99.0, 744.0, 1e5, 1e300]])
    for order in range(3):
        with np.errstate(invalid="ignore"):  # the phase of an infinite decay
            found = np.nan_to_num(plain(total, order, x))
        target = np.array([float(exact(name, order, v)) for v in x[::20]])
        rounding = 4 * EPS * np.abs(total.weights[order]).sum()
        assert np.abs(found[::20] - target).max() <= total.errors[order] + rounding
        assert np.abs(found[x > 12]).max() <= total.errors[order] + rounding + 1e-5


@sums
def test_the_levels(level):
    """f, f' and f'' below what float32 and doubles resolve; weights that lose few digits."""
    for name in NAMES:
        total = exponential_sum(name, level)
        assert max(total.errors) <= {"float32": 2e-8, "float64": 1e-12}[level]
        largest = [np.abs(row).sum() for row in total.weights]
        assert (np.array(largest) < [100, 500, 2000]).all()


@sums
@names
def test_the_values_at_zero_are_exact(name, level):
    total = exponential_sum(name, level)
    with mpmath.workdps(30):
        at_zero = [float(exact(name, order, 0)) for order in range(3)]
    rng = np.random.default_rng(0)
    for row, value in zip(total.weights, at_zero, strict=True):
        real = [w.real for w in row]
        assert math.fsum(real) == value
        if value * 4 == round(value * 4):  # 1/2, 1, -2: exact in any order of summation
            assert {sum(rng.permutation(real).tolist()) for _ in range(20)} == {value}


@sums
def test_the_gaussian_has_no_kink(level):
    total = exponential_sum("gaussian", level)
    slope = -(np.array(total.nodes.values()) * total.weights[0]).real.sum()
    assert abs(slope) < 1e-11
    assert sum(w.real for w in total.weights[1]) == 0


@sums
def test_the_gradient_of_softplus_is_minus_the_logistic(level):
    softplus, logistic = exponential_sum("softplus", level), exponential_sum("logistic", level)
    assert softplus.nodes == logistic.nodes
    for order in (1, 2):
        assert softplus.weights[order] == tuple(-w for w in logistic.weights[order - 1])
        assert softplus.errors[order] == logistic.errors[order - 1]


@sums
def test_laplace_is_exact(level):
    total = exponential_sum("laplace", level)
    assert total.nodes == Nodes(1, 0, 1)
    x = np.linspace(0, 5, 11)
    for order in range(3):
        # versions of numpy differ in the last digit of exp
        np.testing.assert_allclose(plain(total, order, x), (-1) ** order * np.exp(-x), rtol=1e-15)
    assert total.errors == (0, 0, 0)


def test_the_reader_reads_what_is_written():
    assert set(STORED) == {"sums", "discounts", "softrank"}
    for name, levels in STORED["sums"].items():
        for level, entry in levels.items():
            total = exponential_sum(name, level)
            assert total.nodes.first == complex(*entry["first"])
            assert total.nodes.step == complex(*entry["step"])
            assert total.nodes.count == entry["count"] == len(total.weights[0])
            assert [[[w.real, w.imag] for w in row] for row in total.weights] == entry["weights"]
            assert list(total.errors) == entry["errors"]
            assert exponential_sum(name, level) is total
    assert PATH.read_text() == fit.text(STORED) + "\n"


def test_nodes_are_an_arithmetic_progression():
    for name in NAMES:
        nodes = exponential_sum(name, "float64").nodes
        assert np.ptp(np.abs(np.diff(nodes.values()) - nodes.step)) < 1e-14
        assert min(node.real for node in nodes.values()) > 0


@pytest.mark.parametrize("call", [exponential_sum, lambda n, level: softrank_nodes(level)])
def test_unknown_levels(call):
    with pytest.raises(ValueError, match=r"level.*'float16'"):
        call("logistic", "float16")


def test_unknown_names():
    with pytest.raises(ValueError, match=r"name.*'cauchy'"):
        exponential_sum("cauchy", "float32")


def test_an_entry_fitted_again():
    nodes = np.arange(1, 13) + 0j
    for name in ("logistic", "softplus"):
        errors = fit_rows(name, nodes)[1]
        stored = STORED["sums"][name]["float32"]["errors"]
        assert errors[0] == pytest.approx(stored[0], rel=0.1)
    line = STORED["sums"]["gaussian"]["float32"]
    nodes = line_nodes(line["count"], line["first"][0], line["step"][1])
    assert fit_rows("gaussian", nodes)[1] == pytest.approx(line["errors"], rel=0.1)


def test_fewer_nodes_would_not_do():
    assert max(fit_rows("logistic", np.arange(1, 12) + 0j)[1]) > 2e-8
    assert max(fit_rows("logistic", np.arange(1, 18) + 0j)[1]) > 1e-12


def test_discount_powers_fitted_again():
    stored = STORED["discounts"]["log2"][0]
    found = fit_powers("log2", 100, 1e-6)
    assert found["n"] == stored["n"]
    assert len(found["z"]) == len(stored["z"])
    assert found["error"] == pytest.approx(stored["error"], rel=0.1)


def ranks_up_to(n):
    rng = np.random.default_rng(0)
    return np.unique(np.r_[np.arange(min(n, 5000)), rng.integers(0, n, 5000), n - 1])


@pytest.mark.parametrize("error", [1e-6, 1e-9])
@pytest.mark.parametrize("n", [100, 1000, 10_000, 100_000, 1_000_000])
def test_discount_powers(n, error):
    z, c, stated = discount_powers(n, error)
    r = ranks_up_to(n)
    found = np.abs(z ** r[:, None] @ c - 1 / np.log2(2 + r)).max()
    assert 0.5 * stated < found <= stated + 1e-14
    assert stated <= error
    assert (c > 0).all()
    assert ((z > 0.026) & (z < 1)).all()
    assert (np.diff(z) > 0).all()


def test_discount_powers_pick_the_fewest_that_do():
    assert len(discount_powers(100, 1e-6)[0]) < len(discount_powers(101, 1e-6)[0])
    assert len(discount_powers(100, 1e-6)[0]) < len(discount_powers(100, 1e-7)[0])
    assert discount_powers(0, 1e-6)[2] <= 1e-6


def test_discounts_missing_from_the_table():
    z, c, error = discount_powers(50, 1e-11)
    r = np.arange(50)
    assert np.abs(z ** r[:, None] @ c - 1 / np.log2(2 + r)).max() <= error + 1e-14
    with pytest.raises(ValueError, match=r"n.*-1"):
        discount_powers(-1, 1e-6)
    with pytest.raises(ValueError, match=r"error.*0"):
        discount_powers(10, 0)


SMOOTH = {
    "log2": lambda r, n: 1 / np.log2(2 + r),
    "reciprocal": lambda r, n: 1 / (1 + r),
    "root": lambda r, n: (1 + r) ** -0.5,
    "geometric": lambda r, n: 0.8**r,
    "linear": lambda r, n: 1 - r / n,
    "constant": lambda r, n: 1.0 + 0 * r,
    "zero": lambda r, n: 0.0 * r,
}


@pytest.mark.parametrize("n", [1, 2, 3, 5, 6, 10, 33, 1000, 10_000])
@pytest.mark.parametrize("name", SMOOTH)
def test_power_sums_of_smooth_discounts(name, n):
    r = np.arange(n)
    values = SMOOTH[name](r, n)
    z, c, error = power_sum(values, 1e-6)
    assert np.abs(z ** r[:, None] @ c - values).max() <= error + 1e-13
    assert error <= 1e-6
    assert len(z) <= 20
    assert np.abs(c).sum() < 50
    assert ((z >= 0.0269) & (z < 1)).all()


@pytest.mark.parametrize("name", SMOOTH)
def test_power_sums_to_nine_digits(name):
    values = SMOOTH[name](np.arange(10_000), 10_000)
    z, c, error = power_sum(values, 1e-9)
    assert np.abs(z ** np.arange(10_000)[:, None] @ c - values).max() <= error + 1e-13
    assert error <= 3e-8
    assert len(z) <= 32


def test_power_sums_keep_to_the_scale():
    values = 1 / np.log2(2 + np.arange(300))
    z, _, error = power_sum(values, 1e-6)
    larger = power_sum(1024 * values, 1024e-6)
    np.testing.assert_allclose(larger[0], z, rtol=1e-6)
    assert larger[2] == pytest.approx(1024 * error, rel=1e-3)


def test_a_geometric_discount_is_one_power():
    z, c, _ = power_sum(0.95 ** np.arange(1000), 1e-9)
    assert z == pytest.approx([0.95])
    assert c == pytest.approx([1.0])


def test_a_cut_off_is_not_a_power_sum():
    values = np.where(np.arange(1000) < 10, 1.0, 0.0)
    z, c, error = power_sum(values, 1e-6)
    assert np.abs(z ** np.arange(1000)[:, None] @ c - values).max() == pytest.approx(
        error, rel=1e-3
    )
    assert error > 0.05


@pytest.mark.parametrize("values", [[], [[1.0]], [1.0, float("nan")], 1.0])
def test_power_sums_refuse(values):
    with pytest.raises(ValueError, match="values must"):
        power_sum(values, 1e-6)
    with pytest.raises(ValueError, match=r"tolerance.*-1"):
        power_sum([1.0], -1)


def softrank_sums(z, level, order, x):
    decays = np.exp(-np.outer(softrank_nodes(level).values(), x))
    return (softrank_weights(z, level, order) @ decays).real


def softrank_profiles(z, x):
    z, x = z[:, None], x[None]
    return np.stack(
        [np.log((z + (1 - z) * ndtr(-x)) / z), np.log(ndtr(x) + z * ndtr(-x))]
    )  # log(1 + (1-z)/z Phi(-x)), log(1 - (1-z) Phi(-x))


def softrank_errors(level):
    """Powers (k,) and the stated errors (3, k) of the orders 0, 1 and 2."""
    entry = STORED["softrank"][level]
    return np.array(entry["z"]), np.array(entry["errors"])


@sums
def test_softrank_profiles(level):
    z, stated = softrank_errors(level)
    x = np.concatenate([np.linspace(0, 9, 1200), np.linspace(9, 60, 100)])
    error = np.abs(softrank_sums(z, level, 0, x) - softrank_profiles(z, x)).max((0, 2))
    rounding = 4 * EPS * np.abs(softrank_weights(z, level)).sum(-1).max(0) + 1e-15
    assert (error <= stated[0] + rounding).all()
    assert (error >= 0.7 * stated[0] - rounding).all()


@sums
@pytest.mark.parametrize("order", [1, 2])
def test_softrank_derivatives(level, order):
    z, stated = softrank_errors(level)
    x = np.linspace(0.01, 7, 160)
    z, stated = z[:9:2], stated[order][:9:2]
    with mpmath.workdps(40):  # central differences of the plain formula
        points = [mpmath.mpf(float(v)) for v in x]
        expected = [
            [[difference(side, mpmath.mpf(float(t)), v, order) for v in points] for t in z]
            for side in (0, 1)
        ]
    error = np.abs(softrank_sums(z, level, order, x) - expected).max((0, 2))
    assert (error <= stated + 1e-11).all()
    assert (error >= 0.5 * stated - 1e-11).all()


def difference(side, z, x, order, h=1e-9):
    rise = (1 - z) / z if side == 0 else z - 1
    values = [mpmath.log1p(rise * mpmath.ncdf(-v)) for v in (x - h, x, x + h)]
    if order == 1:
        return float((values[2] - values[0]) / (2 * h))
    return float((values[2] - 2 * values[1] + values[0]) / mpmath.mpf(h) ** 2)


@sums
def test_softrank_errors_in_between(level):
    smallest = {"float32": 0.054, "float64": 0.027}[level]
    z, stated = softrank_errors(level)
    between = np.geomspace(smallest, 1, 40)
    x = np.linspace(0, 12, 1500)
    error = np.abs(softrank_sums(between, level, 0, x) - softrank_profiles(between, x)).max((0, 2))
    assert (error < 1.2 * stated[0][z == smallest]).all()


@sums
def test_softrank_at_zero_is_exact(level):
    z = np.array([1e-4, 0.03, 0.5, 0.9, 1 - 1e-6, 1.0])
    weights = softrank_weights(z, level)
    for side, value in enumerate([np.log1p((1 - z) / z * 0.5), np.log1p((z - 1) * 0.5)]):
        for row, expected in zip(weights[side].real, value, strict=True):
            assert math.fsum(row) == pytest.approx(expected, rel=1e-15, abs=1e-22)
    assert not weights[:, -1].any()  # z = 1: both profiles are 0


@pytest.mark.parametrize("z", [[0.0], [1.1], [float("nan")], 0.5, [-0.1]])
def test_softrank_refuses_powers(z):
    with pytest.raises(ValueError, match=r"z must"):
        softrank_weights(z, "float32")


def test_softrank_refuses_orders():
    with pytest.raises(ValueError, match=r"order.*3"):
        softrank_weights([0.5], "float32", 3)


@pytest.mark.parametrize(
    ("level", "error", "bound"), [("float32", 1e-6, 2e-6), ("float64", 1e-9, 2e-9)]
)
@pytest.mark.parametrize("sigma", [0.01, 0.3, 10.0])
def test_expected_discounts_of_softrank(level, error, bound, sigma):
    """All of it together, as dense sums, against the O(n^3) recursion."""
    scores = torch.randn(60, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    scores[10:14] = scores[10]
    law = SoftRank(sigma).rank_distribution(scores).numpy()
    expected = law @ (1 / np.log2(2 + np.arange(60)))
    z, c, _ = discount_powers(60, error)
    t = -np.sort(-scores.numpy())
    gaps = np.abs(t[:, None] - t) / (math.sqrt(2) * sigma)
    above, below = softrank_sums(z, level, 0, gaps.ravel()).reshape(2, len(z), 60, 60)
    first = np.tril(np.ones((60, 60)), -1)  # j is above i
    logs = np.arange(60) * np.log(z)[:, None]
    logs = logs + (above * first).sum(-1) + (below * first.T).sum(-1)
    order = np.argsort(-scores.numpy(), kind="stable")
    assert np.abs(c @ np.exp(logs) - expected[order]).max() < bound


def test_the_reader_is_light():
    code = "import sys, ltr.kernels.table; print('scipy' in sys.modules, 'numba' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["False", "False"]


def test_the_page_shows_the_table():
    path = PATH.parents[2] / "docs" / "kernel_table.py"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    page = module.PAGE.read_text()
    assert module.filled(page) == page
    assert all(f"<!-- table {name} -->" in page for name in module.KINDS)


@pytest.mark.slow  # fits the whole table, for minutes
def test_the_whole_table_fitted_again():
    found = fit.fit()
    for name, levels in found["sums"].items():
        for level, entry in levels.items():
            stored = STORED["sums"][name][level]
            assert entry["count"] == stored["count"]
            assert max(entry["errors"]) == pytest.approx(max(stored["errors"]), rel=0.5)
    for name, entries in found["discounts"].items():
        for entry, stored in zip(entries, STORED["discounts"][name], strict=True):
            assert abs(len(entry["z"]) - len(stored["z"])) <= 1
    for level, entry in found["softrank"].items():
        assert entry["count"] == STORED["softrank"][level]["count"]
