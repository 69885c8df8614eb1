"""The table of exponential sums: every stated error measured again, on another grid."""

import importlib.util
import json
import math

import fit_table as fit
import mpmath
import numpy as np
import pytest
from fit_minimax import line_nodes
from fit_sums import fit_rows, fit_sums

from ltr.kernels.table import PATH, Nodes, exponential_sum

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
    for name, levels in STORED.items():
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


def test_unknown_levels_and_names():
    with pytest.raises(ValueError, match=r"level.*'float16'"):
        exponential_sum("logistic", "float16")
    with pytest.raises(ValueError, match=r"name.*'cauchy'"):
        exponential_sum("cauchy", "float32")


def test_an_entry_fitted_again():
    nodes = np.arange(1, 13) + 0j
    for name in ("logistic", "softplus"):
        errors = fit_rows(name, nodes)[1]
        stored = STORED[name]["float32"]["errors"]
        assert errors[0] == pytest.approx(stored[0], rel=0.1)
    line = STORED["gaussian"]["float32"]
    nodes = line_nodes(line["count"], line["first"][0], line["step"][1])
    assert fit_rows("gaussian", nodes)[1] == pytest.approx(line["errors"], rel=0.1)


def test_fewer_nodes_would_not_do():
    assert max(fit_rows("logistic", np.arange(1, 12) + 0j)[1]) > 2e-8
    assert max(fit_rows("logistic", np.arange(1, 18) + 0j)[1]) > 1e-12


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
    for name, levels in fit_sums().items():
        for level, entry in levels.items():
            stored = STORED[name][level]
            assert entry["count"] == stored["count"]
            assert max(entry["errors"]) == pytest.approx(max(stored["errors"]), rel=0.5)
