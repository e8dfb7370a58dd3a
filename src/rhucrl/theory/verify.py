"""The theory held against games that satisfy its assumptions, all of whose quantities can be computed."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.stats import binomtest

from rhucrl.models.gaussian_process import posterior
from rhucrl.models.gaussian_process.kernels import Kernel, Kind
from rhucrl.statistics import estimate
from rhucrl.theory import bounds as theory
from rhucrl.theory import line_game as lines
from rhucrl.theory.bounds import Lipschitz
from rhucrl.theory.line_game import LineGame, against, fixed, maximin, plan, play, saddle, steepest, wander

SLACK = 1e-9  # of an inequality, for floating point
SHOWN = 50  # points of a curve in the results


@dataclass(frozen=True)
class Setup:
    """What is drawn again and again."""

    game: Literal["drawn", "linear-quadratic"] = "drawn"
    kernel: Kind = "squared-exponential"
    lengthscale: float = 3.0
    norm: float = 1.0
    noise: float = 0.1
    delta: float = 0.1
    horizon: int = 3
    episodes: int = 300
    draws: int = 50
    seed: int = 0

    def kernels(self) -> Kernel:
        return Kernel(np.zeros(3), np.ones(3), np.full(3, self.lengthscale), np.ones(3), np.float64(0.5), self.kernel)

    @classmethod
    def linear_quadratic(cls, **given: Any) -> Setup:
        """The norm of w . x in the linear kernel (1 + x . x') / 4 is 2 |w|."""
        norm = 2 * float(np.linalg.norm(lines.LINEAR))
        return cls(**{**given, "game": "linear-quadratic", "kernel": "linear", "norm": norm})

    @property
    def ridge(self) -> float:
        """lambda = p H, with one output."""
        return float(self.horizon)

    def draw(self, generator: np.random.Generator) -> LineGame:
        if self.game == "linear-quadratic":
            return lines.linear_quadratic(self.noise, self.horizon)
        return lines.draw(self.kernels(), self.norm, self.noise, self.horizon, generator)


def gammas(setup: Setup) -> Float[np.ndarray, " T"]:
    """A bound on gamma after every episode: in closed form, or that of the next power of two, since gamma grows."""
    if setup.kernel == "linear":
        counts = [setup.horizon * t for t in range(1, setup.episodes + 1)]
        return np.array([theory.linear_information_bound(4, n, setup.ridge) for n in counts])
    game, kernel = setup.draw(np.random.default_rng(0)), setup.kernels()
    matrix, powers = kernel(game.z, game.z), 2 ** np.arange(int(np.ceil(np.log2(setup.episodes))) + 1)
    bounds = [theory.information_bound(matrix, int(n) * setup.horizon, setup.ridge) for n in powers]
    return np.array(bounds)[np.searchsorted(powers, np.arange(1, setup.episodes + 1))]


class Belief(NamedTuple):
    """What the model says at every (s, a, abar), and the data it says so by."""

    mean: Float[np.ndarray, "s a k"]
    sigma: Float[np.ndarray, "s a k"]
    beta: float
    rows: Int[np.ndarray, " n"]
    y: Float[np.ndarray, "n 1"]
    inverse: Float[np.ndarray, "n n"]
    information: float

    @property
    def interval(self) -> tuple[np.ndarray, np.ndarray]:
        return self.mean - self.beta * self.sigma, self.mean + self.beta * self.sigma


def believe(setup: Setup, game: LineGame, rows: np.ndarray, y: np.ndarray, inverse: np.ndarray) -> Belief:
    kernel, points = setup.kernels(), game.z[rows]
    if setup.kernel == "linear" and len(rows):  # four points say all that there is to say
        points = game.z[rows[posterior.greedy(kernel, game.z[rows], len(rows), posterior.NEGLIGIBLE)]]
        after = posterior.project(kernel, points, game.z[rows], y, setup.ridge)
    else:
        after = posterior.exact(inverse, y, setup.ridge)
    at = kernel(game.z, points)
    variance = np.maximum(kernel.diagonal(game.z) - np.square(at @ after.factor.T).sum(-1), 0)
    beta = theory.beta_t(setup.norm, setup.noise, setup.ridge, setup.delta, after.information)
    mean, sigma = ((at @ after.weights)[:, 0]).reshape(game.shape), np.sqrt(variance).reshape(game.shape)
    return Belief(mean, sigma, beta, rows, y, inverse, after.information)


def more(setup: Setup, game: LineGame, belief: Belief, new: np.ndarray, y: np.ndarray) -> Belief:
    """The belief after an episode: its data are a block of the factor."""
    kernel, old, z = setup.kernels(), game.z[belief.rows], game.z[new]
    inverse = belief.inverse
    if setup.kernel != "linear":
        inverse = posterior.grow(inverse, kernel(old, z), kernel(z, z), setup.ridge)
    return believe(setup, game, np.concatenate([belief.rows, new]), np.concatenate([belief.y, y]), inverse)


def trial(setup: Setup, gammas: np.ndarray, generator: np.random.Generator) -> dict[str, np.ndarray]:
    """RH-UCRL on one drawn game: what every episode was, and what the theory said about it."""
    game, horizon = setup.draw(generator), setup.horizon
    truth = game.f, game.f, 1
    best = plan(game, *truth, maximin).value[game.start]
    belief = believe(setup, game, np.zeros(0, int), np.zeros((0, 1)), np.zeros((0, 0)))
    rows, sharpest = [], np.zeros(3)
    for episode, gamma in enumerate(gammas):
        low, high = belief.interval
        agent = plan(game, low, high, 1, maximin).agent
        answer = plan(game, low, high, -1, against(agent)).answer
        models = (low, high, 1), truth, (low, high, -1)
        j = [plan(game, *model, fixed(agent, answer)).value[game.start] for model in models]
        worst = plan(game, *truth, against(agent)).value[game.start]
        met = play(game, agent, answer, generator)
        new = met[:, 0].astype(int)
        slopes = steepest(game, belief.sigma), wander(game, agent, game.actions), wander(game, answer, game.answers)
        sharpest = np.maximum(sharpest, slopes)
        after = more(setup, game, belief, new, met[:, 1:])
        complexity = theory.log_complexity_bound(gamma, setup.ridge, horizon, 1.0)
        steep = Lipschitz(*map(float, (steepest(game, game.f), *sharpest, steepest(game, game.reward))))
        bound = theory.log_regret_bound(steep, belief.beta, horizon, episode + 1, complexity)
        reach = np.max(np.abs(game.f - belief.mean) / (belief.beta * belief.sigma))
        spread = np.square(belief.sigma.ravel()[new]).sum()
        moves = game.actions[agent[0, game.start]], game.answers[answer[0, game.start]]
        rows.append((belief.beta, reach, *j, best - worst, spread, complexity, after.information, gamma, bound, *moves))
        belief = after
    return dict(zip(NAMES, np.array(rows, float).T, strict=True))


NAMES = (
    "beta", "reach", "J_optimistic", "J_true", "J_pessimistic", "regret", "uncertainty", "log10_Gamma_bound",
    "information_gain", "information_bound", "log10_regret_bound", "first_action", "first_answer",
)  # fmt: skip


def verify(setup: Setup, progress: Any) -> dict[str, Any]:
    """All draws, and which inequalities held how often."""
    bounds, trials = gammas(setup), []
    for i, generator in enumerate(map(np.random.default_rng, np.random.SeedSequence(setup.seed).spawn(setup.draws))):
        trials.append(trial(setup, bounds, generator))
        progress.update(i + 1, f"worst error of an interval so far {max(t['reach'].max() for t in trials):.2f} of it")
    t = {name: np.stack([trial[name] for trial in trials]) for name in NAMES}
    step = max(setup.episodes // SHOWN, 1)
    known = {"saddle": beside_saddle(setup, t)} if setup.game == "linear-quadratic" else {}
    return known | {
        "setup": dataclasses.asdict(setup), "coverage": coverage(setup, t["reach"]), "inequalities": inequalities(t),
        "regret": sublinearity(t["regret"]), "every": step,
        "curves": {name: x.mean(0)[::step].tolist() for name, x in t.items()},
        "reach_per_draw": t["reach"].max(1).tolist(), "regret_per_draw": t["regret"].sum(1).tolist(),
    }  # fmt: skip


def beside_saddle(setup: Setup, t: dict[str, np.ndarray]) -> dict[str, Any]:
    """The closed form, the lattice's value, and what was learned: the output policy's worst case, the last actions."""
    exact, game = saddle(setup.noise, setup.horizon), lines.linear_quadratic(setup.noise, setup.horizon)
    here, value = game.nodes[game.start], plan(game, game.f, game.f, 1, maximin).value[game.start]
    moves = {name: estimate(t[f"first_{name}"][:, -1])._asdict() for name in ("action", "answer")}
    return moves | {
        "closed_form": exact._asdict(), "closed_action": -exact.agent * here, "closed_answer": exact.adversary * here,
        "lattice_value": float(value), "worst_case": estimate(value - simple(t)[:, -1])._asdict(),
    }  # fmt: skip


def coverage(setup: Setup, reach: Float[np.ndarray, "d T"]) -> dict[str, Any]:
    """In how many draws the interval held everywhere and always, and how many narrower ones would have."""

    def share(width: float) -> dict[str, float]:
        held = int((reach.max(1) <= width).sum())
        low, high = binomtest(held, len(reach)).proportion_ci(0.95, "exact")
        return {"width": width, "held": held, "share": held / len(reach), "low": float(low), "high": float(high)}

    return {"asked": 1 - setup.delta, "draws": len(reach), **share(1.0), "narrower": [share(w) for w in (0.75, 0.5)]}


def inequalities(t: dict[str, np.ndarray]) -> list[dict[str, Any]]:
    """Each with the number of times that it was tested and that it failed, and the least that was to spare."""
    held = t["reach"] <= 1
    always, anyway = np.logical_and.accumulate(held, 1), np.ones_like(held)
    regret, gap = np.cumsum(t["regret"], 1), t["J_optimistic"] - t["J_pessimistic"]
    bound, episodes = 10 ** t["log10_regret_bound"], np.arange(1, regret.shape[1] + 1)
    rows = [
        ("J^(p) <= J(f)", "eq:pessimistic_performance", held, t["J_pessimistic"], t["J_true"]),
        ("J(f) <= J^(o)", "eq:optimistic_performance", held, t["J_true"], t["J_optimistic"]),
        ("r_t <= J^(o) - J^(p)", "lem:instantaneous_regret_bound", held, t["regret"], gap),
        ("I <= bound on gamma_T", "eq:info_gain_gp", anyway, t["information_gain"], t["information_bound"]),
        (
            "sum of sigma^2 <= bound on Gamma_T", "eq:complexity_measure_bounded_MIG", anyway,
            np.cumsum(t["uncertainty"], 1), 10 ** t["log10_Gamma_bound"],
        ),
        ("R_T <= its bound", "thm:exploration:regret:general_regret_bound", always, regret, bound),
        ("r(output) <= bound / T", "cor:simple_regret:general_regret_bound", always, simple(t), bound / episodes),
    ]  # fmt: skip
    return [
        {
            "inequality": name, "label": label, "tested": int(where.sum()),
            "failed": int((where & (less > more + SLACK)).sum()), "to_spare": float((more - less)[where].min()),
        }
        for name, label, where, less, more in rows
    ]  # fmt: skip


def simple(t: dict[str, np.ndarray]) -> Float[np.ndarray, "d T"]:
    """The regret of the output policy (`eq:rhucrl:output`) after every episode."""
    low, best = t["J_pessimistic"], np.zeros(t["regret"].shape, int)
    for i in range(1, low.shape[1]):
        before = np.take_along_axis(low, best[:, i - 1 : i], 1)[:, 0]
        best[:, i] = np.where(low[:, i] > before, i, best[:, i - 1])
    return np.take_along_axis(t["regret"], best, 1)


def sublinearity(regret: Float[np.ndarray, "d T"], resamples: int = 1000) -> dict[str, Any]:
    """The growth of the mean R_T with its bootstrap interval over draws, and the average regret early and late."""
    total = np.cumsum(regret, 1)
    generator = np.random.default_rng(0)
    index = generator.integers(len(total), size=(resamples, len(total)))
    slopes = [theory.growth(total[i].mean(0)) for i in index]
    quarter = max(regret.shape[1] // 4, 1)
    low, high = np.quantile(slopes, [0.025, 0.975])
    early, late = (estimate(part.mean(1))._asdict() for part in (regret[:, :quarter], regret[:, -quarter:]))
    fall = estimate((regret[:, -quarter:] - regret[:, :quarter]).mean(1))._asdict()
    slope = {"value": theory.growth(total.mean(0)), "low": float(low), "high": float(high)}
    return {"slope": slope, "first_quarter": early, "last_quarter": late, "difference": fall}
