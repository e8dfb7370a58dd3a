"""The theory's quantities as pure functions: beta_t, information gain, Gamma_T, regret, and the bounds on them.

docs/theory.md says where the paper's constants differ from each other and which of them these are. Bounds are common
logarithms: over a horizon of 200 they do not fit into a double.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.linalg import cho_factor, cho_solve

DESIGN_STEPS = 40


class Lipschitz(NamedTuple):
    """The constants of `as:dynamics_f_lipschitz` and `as:model_predictions_lipschitz`."""

    dynamics: float
    deviation: float
    agent: float
    adversary: float
    reward: float

    @property
    def c(self) -> float:
        """C = (1 + L_f + 2 L_sigma) (1 + L_pi^2 + L_pibar^2)^(1/2) (`thm:exploration:regret:general_regret_bound`)."""
        return (1 + self.dynamics + 2 * self.deviation) * math.sqrt(1 + self.agent**2 + self.adversary**2)


def beta_t(norm: float, noise: float, ridge: float, delta: float, information: float, outputs: int = 1) -> float:
    """B_f + sigma / lambda^(1/2) (2 ln(p / delta) + 2 I)^(1/2): `lemma:concentration` for all outputs at once."""
    return norm + noise / math.sqrt(ridge) * math.sqrt(2 * math.log(outputs / delta) + 2 * information)


def information_gain(variances: Float[np.ndarray, " n"], ridge: float) -> float:
    """sum of ln(1 + sigma^2_{k-1}(z_k) / lambda) / 2 (`eq:info_gain_gp`); each variance given the data before it."""
    return float(np.log1p(np.asarray(variances) / ridge).sum() / 2)


def information_bound(kernel: Float[np.ndarray, "c c"], count: int, ridge: float) -> float:
    """At least gamma_n over the places whose kernel matrix is given: the most that `count` observations there can tell.

    How often each place is observed may be any share of `count`: that problem is concave and its optimum not below
    the one in whole numbers. Multiplicative steps climb towards it, and the gradient bounds what is left.
    """

    def gathered(share: np.ndarray) -> tuple[float, np.ndarray]:
        """The information of a design, and every place's variance given it."""
        root = np.sqrt(count * share / ridge)
        factor = cho_factor(np.eye(len(kernel)) + root[:, None] * kernel * root, lower=True)
        seen = root[:, None] * kernel
        return np.log(np.diag(factor[0])).sum(), np.diag(kernel) - (seen * cho_solve(factor, seen)).sum(0)

    share = np.full(len(kernel), 1 / len(kernel))
    for _ in range(DESIGN_STEPS):
        _, variance = gathered(share)
        share = share * variance / (share @ variance)
    information, variance = gathered(share)
    return float(information + count / (2 * ridge) * (variance.max() - share @ variance))


def linear_information_bound(rank: int, count: int, ridge: float) -> float:
    """gamma_n <= rank / 2 ln(1 + n / (rank lambda)), of a kernel of finite rank: the determinant is largest where all
    eigenvalues are the same."""
    return rank / 2 * math.log1p(count / (rank * ridge))


def log_complexity_bound(information: float, ridge: float, horizon: int, prior: float) -> float:
    """Gamma_T <= (1 + 1 / lambda)^(H - 1) (1 + 2 lambda) gamma per output (`eq:apply_sum_posterior_variance_bound`).

    `prior` is the sum of the outputs' variances before any data: p where all are 1. For lambda = p H this is at most
    the 2 e p H gamma of `eq:complexity_measure_bounded_MIG`, whose gamma is that of all p outputs together.
    """
    steps = (horizon - 1) * math.log10(1 + 1 / ridge)
    return steps + math.log10(prior * (1 + 2 * ridge) * max(information, 1e-300))


def log_regret_bound(lipschitz: Lipschitz, beta: float, horizon: int, episodes: float, log_complexity: float) -> float:
    """R_T <= 4 L_r beta^H C^H H^(3/2) (T Gamma_T)^(1/2) (`thm:exploration:regret:general_regret_bound`)."""
    powers = horizon * (math.log10(max(beta, 1.0)) + math.log10(lipschitz.c))
    roots = 1.5 * math.log10(horizon) + (math.log10(episodes) + log_complexity) / 2
    return math.log10(4 * max(lipschitz.reward, 1e-300)) + powers + roots


def log_episodes(lipschitz: Lipschitz, beta: float, horizon: int, log_complexity: float, epsilon: float) -> float:
    """T = 16 L_r^2 H^3 (beta C)^(2 H) Gamma_T / epsilon^2 (`cor:simple_regret:general_regret_bound`).

    With beta and Gamma of today: both grow with T, so that it asks for at least as many.
    """
    powers = 2 * horizon * (math.log10(max(beta, 1.0)) + math.log10(lipschitz.c))
    return (
        2 * math.log10(4 * max(lipschitz.reward, 1e-300) / epsilon) + 3 * math.log10(horizon) + powers + log_complexity
    )


def regret(value: float, worst: Sequence[float] | np.ndarray) -> Float[np.ndarray, " T"]:
    """R_T for every T: the game's value minus the worst case of each episode's policy, summed up."""
    return np.cumsum(value - np.asarray(worst, float))


def growth(regrets: Float[np.ndarray, " T"]) -> float:
    """The slope of ln R_T against ln T over the last half of the episodes: below 1 where the regret is sublinear."""
    episodes = np.arange(1, len(regrets) + 1)
    late = episodes > len(regrets) // 2
    return float(np.polyfit(np.log(episodes[late]), np.log(np.maximum(regrets[late], 1e-12)), 1)[0])
