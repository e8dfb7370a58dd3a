"""The statistics over seeds have the values that pencil and paper give them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rhucrl.errors import UsageError
from rhucrl.statistics import Estimate, curve, difference, estimate, iqm, mean, std


def test_known_values():
    seeds = np.array([5.0, 1.0, 4.0, 2.0, 3.0])
    assert mean(seeds) == 3
    assert std(seeds) == pytest.approx(math.sqrt(2.5))
    assert std(np.array([7.0])) == 0
    assert iqm(np.arange(8.0)) == pytest.approx(3.5)  # of 2, 3, 4, 5
    assert iqm(np.array([0.0, 1.0, 10.0, 100.0, 1000.0])) == pytest.approx((0.75 * 1 + 10 + 0.75 * 100) / 2.5)
    assert iqm(np.array([4.0])) == 4


def test_the_interquartile_mean_ignores_an_outlier_that_moves_the_mean():
    seeds = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])
    spoiled = np.append(seeds[1:], -1e6)
    assert iqm(spoiled) == pytest.approx(4.5)
    assert mean(spoiled) < -1e5


def test_statistics_work_along_the_last_axis():
    seeds = np.random.default_rng(0).normal(size=(3, 6))
    for statistic in (mean, std, iqm):
        np.testing.assert_allclose(statistic(seeds), [statistic(row) for row in seeds])


@pytest.mark.parametrize("statistic", ["mean", "std", "iqm"])
def test_interval_holds_the_estimate_and_repeats(statistic):
    seeds = np.random.default_rng(1).normal(size=20)
    found = estimate(seeds, statistic)
    assert found.low <= found.value <= found.high
    assert found == estimate(seeds, statistic) != estimate(seeds, statistic, seed=1)


def test_interval_of_the_mean_has_the_width_of_the_standard_error():
    seeds = np.random.default_rng(2).normal(size=400)
    found = estimate(seeds, "mean")
    assert found.high - found.low == pytest.approx(2 * 1.96 * seeds.std() / math.sqrt(400), rel=0.05)


def test_interval_covers_the_truth_about_as_often_as_it_says():
    generator = np.random.default_rng(3)
    found = [estimate(generator.normal(size=30), "mean", seed=i) for i in range(200)]
    assert 0.88 <= np.mean([each.low <= 0 <= each.high for each in found]) <= 0.99


def test_one_seed_and_equal_seeds_have_no_width():
    assert estimate([-3.0]) == Estimate(-3, -3, -3)
    assert estimate([2.0, 2.0, 2.0], "iqm") == Estimate(2, 2, 2)


def test_difference_separates_what_is_apart_and_not_what_is_not():
    generator = np.random.default_rng(4)
    apart = difference(generator.normal(5, 1, 10), generator.normal(0, 1, 10))
    assert apart.low > 0
    same = difference(generator.normal(0, 1, 10), generator.normal(0, 1, 10))
    assert same.low < 0 < same.high


def test_curve_is_pointwise_and_cut_to_the_shortest():
    points = curve([[0.0, 2.0, 9.0], [2.0, 2.0]])
    assert [point.value for point in points] == [1, 2]
    assert points[0].low < 1 < points[0].high and points[1] == Estimate(2, 2, 2)


def test_a_diverged_seed_is_not_hidden():
    assert all(math.isnan(part) for part in estimate([1.0, math.nan]))
    assert all(math.isnan(part) for part in difference([1.0, math.inf], [1.0]))


def test_bad_input_is_refused():
    with pytest.raises(UsageError, match="did you mean 'iqm'"):
        estimate([1.0], "iq")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="at least one seed"):
        estimate([])
