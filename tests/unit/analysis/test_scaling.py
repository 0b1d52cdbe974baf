from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from microshard.analysis.bootstrap import Estimate, Interval
from microshard.analysis.scaling import Refused, UslFit, fit_usl
from microshard.model.result import Better

SIZES = [1, 2, 4, 8, 16]


def law(n: float, rate: float = 2.0, sigma: float = 0.05, kappa: float = 0.01) -> float:
    return rate * n / (1 + sigma * (n - 1) + kappa * n * (n - 1))


def noisy(values: Sequence[float], spread: float = 0.01, repetitions: int = 5) -> list[list[float]]:
    rng = np.random.default_rng(5)
    return [(value * rng.normal(1, spread, repetitions)).tolist() for value in values]


def fitted(sizes: Sequence[float], values: Sequence[Sequence[float]], better: Better = "lower") -> UslFit:
    fit = fit_usl(sizes, values, better)
    assert isinstance(fit, UslFit)
    return fit


def knee(fit: UslFit) -> Estimate:
    assert fit.knee is not None
    return fit.knee


def span(estimate: Estimate) -> Interval:
    assert estimate.interval is not None
    return estimate.interval


def test_known_coefficients_are_found_from_rates_and_from_times() -> None:
    cases: list[tuple[Better, list[float]]] = [
        ("higher", [law(n) for n in SIZES]),
        ("lower", [1 / law(n) for n in SIZES]),
    ]
    for better, values in cases:
        fit = fitted(SIZES, [[value] * 3 for value in values], better)
        assert isinstance(fit, UslFit)
        assert (fit.rate, fit.sigma.value, fit.kappa.value) == pytest.approx((2.0, 0.05, 0.01))
        assert knee(fit).value == pytest.approx(np.sqrt(0.95 / 0.01))
        assert fit.misfit < 1e-9
        assert fit.throughput(8) == pytest.approx(law(8))


def test_an_independent_non_linear_fit_finds_the_same_coefficients() -> None:
    from scipy.optimize import curve_fit

    rates = [median for (median,) in noisy([law(n) for n in SIZES], 0.02, 1)]
    fit = fitted(SIZES, [[rate] for rate in rates], "higher")
    found, _ = curve_fit(law, SIZES, rates, p0=(1, 0.1, 0.1), sigma=rates)
    assert isinstance(fit, UslFit)
    # the linear form weighs errors of the prediction, the other errors of the measurement: equal to first order
    assert (fit.rate, fit.sigma.value, fit.kappa.value) == pytest.approx(tuple(found), rel=0.03)


def test_uncertainty_covers_the_truth_and_shrinks_with_the_noise() -> None:
    wide = fitted(SIZES, noisy([1 / law(n) for n in SIZES], 0.03))
    narrow = fitted(SIZES, noisy([1 / law(n) for n in SIZES], 0.003))
    assert span(knee(wide)).low <= 9.75 <= span(knee(wide)).high
    widths = [span(fit.kappa).high - span(fit.kappa).low for fit in (wide, narrow)]
    assert widths[1] < widths[0] / 3


def test_one_repetition_gives_coefficients_without_interval() -> None:
    fit = fitted(SIZES, [[1 / law(n)] for n in SIZES])
    assert fit.sigma.interval is None
    assert knee(fit).interval is None


def test_linear_scaling_has_no_knee() -> None:
    fit = fitted(SIZES, [[1 / n] * 3 for n in SIZES])
    assert fit.sigma.value == pytest.approx(0, abs=1e-9)
    assert fit.knee is None
    assert "no knee" in fit.knee_note


def test_knee_is_not_claimed_when_the_repetitions_do_not_tell_kappa_from_nothing() -> None:
    fit = fitted(SIZES, noisy([1 / law(n, kappa=0.0002) for n in SIZES], 0.1))
    assert fit.knee is None
    assert "kappa" in fit.knee_note


def test_knee_far_beyond_the_measured_sizes_is_not_claimed() -> None:
    fit = fitted(SIZES, [[1 / law(n, kappa=0.0001)] * 3 for n in SIZES])
    assert fit.knee is None
    assert "beyond" in fit.knee_note


def test_too_few_sizes_are_refused() -> None:
    assert fit_usl([1, 2, 4], [[1.0]] * 3) == Refused("needs 4 sizes, has 3")


def test_a_curve_of_another_shape_is_refused_with_the_size_it_fails_at() -> None:
    refused = fit_usl(SIZES, [[1.0], [0.9], [0.1], [0.9], [0.5]])
    assert isinstance(refused, Refused)
    assert "off at" in refused.reason


def test_contention_of_one_or_more_puts_the_knee_at_one_shard() -> None:
    fit = fitted([1, 2, 3, 4], [[1.0], [1.2], [1.4], [1.6]])
    assert isinstance(fit, UslFit)
    assert knee(fit).value == 1.0


@pytest.mark.parametrize("slower", [0.0, 1e-16, 1e-12, 0.05, 0.2, 0.9])
def test_the_knee_is_never_below_one_shard(slower: float) -> None:
    # A fixed amount of work that takes as long with any number of shards, or longer: sigma is 1, give or take an ulp.
    fit = fitted([1, 2, 3, 4], [[1.0 + slower * n] for n in range(4)])
    assert knee(fit).value == 1.0
    assert "slower" in fit.knee_note


@pytest.mark.parametrize(
    ("sizes", "values"), [([1, 2], [[1.0]]), ([0, 1, 2, 3], [[1.0]] * 4), ([1, 2, 3, 4], [[-1.0]] * 4)]
)
def test_arguments_that_do_not_fit_are_refused(sizes: list[float], values: list[list[float]]) -> None:
    with pytest.raises(ValueError, match=r"sizes|law"):
        fit_usl(sizes, values)


@settings(max_examples=40)
@given(st.floats(0.01, 100), st.floats(0, 0.9), st.floats(0.0005, 0.2), st.floats(0.1, 10))
def test_fit_finds_any_law_whatever_the_unit(rate: float, sigma: float, kappa: float, unit: float) -> None:
    fit = fitted(SIZES, [[unit / law(n, rate, sigma, kappa)] for n in SIZES])
    assert isinstance(fit, UslFit)
    assert fit.sigma.value == pytest.approx(sigma, abs=1e-5)
    assert fit.kappa.value == pytest.approx(kappa, rel=1e-4, abs=1e-6)
