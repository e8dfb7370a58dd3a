"""Numbers over seeds: mean, standard deviation and interquartile mean, with bootstrap intervals.

Every algorithm gets the same statistic with the same resampling, so that a comparison compares policies only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import numpy as np

from rhucrl.errors import UsageError, unknown

Name = Literal["mean", "std", "iqm"]
Statistic = Callable[[np.ndarray], np.ndarray]

RESAMPLES, CONFIDENCE = 2000, 0.95


class Estimate(NamedTuple):
    """A statistic over seeds and the interval that its bootstrap distribution leaves it."""

    value: float
    low: float
    high: float


def mean(samples: np.ndarray) -> np.ndarray:
    """The mean over the last axis."""
    return np.mean(samples, -1)


def std(samples: np.ndarray) -> np.ndarray:
    """The standard deviation of a seed, estimated without bias of the variance; 0 of a single seed."""
    return np.std(samples, -1, ddof=1) if samples.shape[-1] > 1 else np.zeros(samples.shape[:-1])


def iqm(samples: np.ndarray) -> np.ndarray:
    """The interquartile mean: of the middle half of the seeds, those at its edges counted in part.

    Each of n ordered seeds stands for the interval [i, i + 1]; its weight is how much of it lies in [n/4, 3n/4].
    With five seeds that is 3/4 of the second and fourth and the whole third.
    """
    n = samples.shape[-1]
    left = np.arange(n)
    weights = np.clip(np.minimum(left + 1, 0.75 * n) - np.maximum(left, 0.25 * n), 0, None)
    return np.sort(samples, -1) @ weights / weights.sum()


STATISTICS: dict[str, Statistic] = {"mean": mean, "std": std, "iqm": iqm}


def estimate(samples: Sequence[float] | np.ndarray, statistic: Name = "mean", seed: int = 0) -> Estimate:
    """The statistic of one number per seed, with its percentile bootstrap interval; the same for the same `seed`.

    A run that diverged (a number that is not finite) leaves nothing to estimate.
    """
    samples, measure = _checked(samples), _statistic(statistic)
    return _estimate(measure(samples), _resampled(samples, measure, np.random.default_rng(seed)))


def difference(
    first: Sequence[float] | np.ndarray, second: Sequence[float] | np.ndarray, statistic: Name = "mean", seed: int = 0
) -> Estimate:
    """The statistic of `first` minus that of `second`, their seeds resampled independently.

    An interval above 0 says that the first is better by more than the seeds' luck.
    """
    a, b, measure, generator = _checked(first), _checked(second), _statistic(statistic), np.random.default_rng(seed)
    return _estimate(measure(a) - measure(b), _resampled(a, measure, generator) - _resampled(b, measure, generator))


def curve(rows: Sequence[Sequence[float]], statistic: Name = "mean", seed: int = 0) -> list[Estimate]:
    """The statistic at every point of a curve; `rows` holds one curve per seed, cut to the shortest."""
    return [estimate(column, statistic, seed=seed) for column in zip(*rows, strict=False)]


def _statistic(name: str) -> Statistic:
    if name not in STATISTICS:
        raise unknown("statistic", str(name), STATISTICS)
    return STATISTICS[name]


def _checked(samples: Sequence[float] | np.ndarray) -> np.ndarray:
    array = np.asarray(samples, float)
    if array.ndim != 1 or not array.size:
        raise UsageError("a statistic over seeds needs one number per seed, and at least one seed")
    return array if np.isfinite(array).all() else np.full_like(array, math.nan)


def _resampled(samples: np.ndarray, measure: Statistic, generator: np.random.Generator) -> np.ndarray:
    """The statistic of many samples of the same size, drawn with replacement."""
    return measure(samples[generator.integers(samples.size, size=(RESAMPLES, samples.size))])


def _estimate(value: float | np.ndarray, resampled: np.ndarray) -> Estimate:
    low, high = np.quantile(resampled, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return Estimate(float(value), float(low), float(high))
