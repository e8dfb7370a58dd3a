"""The theory held against a game that satisfies its assumptions, all of whose quantities can be computed.

A point lives on the nodes of a line. Its dynamics f are drawn from the kernel's own space with a known norm, and the
noise is a coin's: omega = sigma or -sigma, which is sigma-sub-Gaussian. The next state f(s, a, abar) + omega is held in
the range and rounded at random to one of the nodes beside it, so that a value between nodes is its linear interpolation:
optimistic, pessimistic and true performance are dynamic programs without any error but that of floating point. Between
the kinks of a value that is linear in pieces, the extremes over an interval are at its ends.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.stats import binomtest

from rhucrl import theory
from rhucrl.evaluation.statistics import estimate
from rhucrl.models import posterior
from rhucrl.models.kernels import Kernel, Kind
from rhucrl.theory import Lipschitz

NODES, ACTIONS, ANSWERS = 21, 5, 3
CENTRES = 24  # kernel functions that f is made of
GOAL, EFFORT = 0.4, 0.1
SLACK = 1e-9  # of an inequality, for floating point


@dataclass(frozen=True)
class Setup:
    """What is drawn again and again."""

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

    @property
    def ridge(self) -> float:
        """lambda = p H, with one output."""
        return float(self.horizon)


class Line(NamedTuple):
    """The game: nodes, every (s, a, abar) as a row of z, and f and the reward at each, with axes (s, a, abar)."""

    nodes: Float[np.ndarray, " s"]
    actions: Float[np.ndarray, " a"]
    answers: Float[np.ndarray, " k"]
    z: Float[np.ndarray, "n 3"]
    f: Float[np.ndarray, "s a k"]
    reward: Float[np.ndarray, "s a k"]
    noise: float
    horizon: int

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.f.shape  # type: ignore[return-value]

    @property
    def start(self) -> int:
        return len(self.nodes) // 2


class Plan(NamedTuple):
    """Values at every node, and the indices of both players' actions at every step and node."""

    value: Float[np.ndarray, " s"]
    agent: Int[np.ndarray, "h s"]
    answer: Int[np.ndarray, "h s"]


Choose = Callable[[np.ndarray, int], tuple[np.ndarray, np.ndarray]]


def draw(setup: Setup, generator: np.random.Generator) -> Line:
    """A game whose dynamics have the norm that is asked for."""
    nodes, actions, answers = (np.linspace(-1, 1, n) for n in (NODES, ACTIONS, ANSWERS))
    grid = np.stack(np.meshgrid(nodes, actions, answers, indexing="ij"), -1)
    centres, heights = generator.uniform(-1, 1, (CENTRES, 3)), generator.standard_normal(CENTRES)
    kernel = setup.kernels()
    heights *= setup.norm / np.sqrt(heights @ kernel(centres, centres) @ heights)
    z = grid.reshape(-1, 3)
    f = (kernel(z, centres) @ heights).reshape(grid.shape[:3])
    reward = -np.abs(grid[..., 0] - GOAL) - EFFORT * np.abs(grid[..., 1])
    return Line(nodes, actions, answers, z, f, reward, setup.noise, setup.horizon)


def ahead(line: Line, value: np.ndarray, low: np.ndarray, high: np.ndarray, sign: int) -> Float[np.ndarray, "s a k"]:
    """r + the largest (sign 1) or least (-1) E V(x + omega) over x in [low, high]."""

    def expected(x: np.ndarray) -> np.ndarray:
        return sum(np.interp(x + omega, line.nodes, value) for omega in (-line.noise, line.noise)) / 2  # type: ignore

    kinks = np.concatenate([line.nodes - line.noise, line.nodes + line.noise])
    inside = (kinks > low[..., None]) & (kinks < high[..., None])
    within = np.where(inside, sign * expected(kinks), -np.inf).max(-1)
    ends = np.maximum(sign * expected(low), sign * expected(high))
    return line.reward + sign * np.maximum(ends, within)


def plan(line: Line, low: np.ndarray, high: np.ndarray, sign: int, choose: Choose) -> Plan:
    """The horizon backwards; `choose` names both players' actions, given the value of every pair and the step."""
    value, played = np.zeros(len(line.nodes)), []
    for h in reversed(range(line.horizon)):
        q = ahead(line, value, low, high, sign)
        agent, answer = choose(q, h)
        value = q[np.arange(len(q)), agent, answer]
        played.append((agent, answer))
    agents, answers = zip(*reversed(played), strict=True)
    return Plan(value, np.stack(agents), np.stack(answers))


def maximin(q: np.ndarray, h: int) -> tuple[np.ndarray, np.ndarray]:
    """`eq:rhucrl:learner`: the adversary answers to the agent."""
    agent = q.min(-1).argmax(-1)
    return agent, q[np.arange(len(q)), agent].argmin(-1)


def against(agent: np.ndarray) -> Choose:
    """`eq:rhucrl:adversary`: the worst answer to a policy."""
    return lambda q, h: (agent[h], q[np.arange(len(q)), agent[h]].argmin(-1))


def fixed(agent: np.ndarray, answer: np.ndarray) -> Choose:
    return lambda q, h: (agent[h], answer[h])


def play(line: Line, agent: np.ndarray, answer: np.ndarray, generator: np.random.Generator) -> Int[np.ndarray, "h 3"]:
    """An episode: the indices of what was met, and y = f + omega at each."""
    node, met = line.start, []
    for h in range(line.horizon):
        here = node, int(agent[h, node]), int(answer[h, node])
        y = line.f[here] + line.noise * generator.choice((-1.0, 1.0))
        place = (np.clip(y, -1, 1) + 1) / 2 * (len(line.nodes) - 1)
        node = min(int(place) + int(generator.random() < place % 1), len(line.nodes) - 1)
        met.append((np.ravel_multi_index(here, line.shape), y))
    return np.array(met)


def steepest(line: Line, x: np.ndarray) -> float:
    """The Lipschitz constant of a function on the lattice, from its steepest edge along each axis."""
    axes = zip((line.nodes, line.actions, line.answers), range(3), strict=True)
    slopes = [np.abs(np.diff(x, axis=i)).max() / (axis[1] - axis[0]) for axis, i in axes]
    return float(np.linalg.norm(slopes))


def wander(line: Line, choices: np.ndarray, values: np.ndarray) -> float:
    return float(np.abs(np.diff(values[choices], axis=-1)).max() / (line.nodes[1] - line.nodes[0]))


def gammas(setup: Setup) -> Float[np.ndarray, " T"]:
    """A bound on gamma after every episode: that of the next power of two, since gamma grows."""
    line, kernel = draw(setup, np.random.default_rng(0)), setup.kernels()
    matrix, powers = kernel(line.z, line.z), 2 ** np.arange(int(np.ceil(np.log2(setup.episodes))) + 1)
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


def believe(setup: Setup, line: Line, rows: np.ndarray, y: np.ndarray, inverse: np.ndarray) -> Belief:
    kernel, after = setup.kernels(), posterior.exact(inverse, y, setup.ridge)
    at = kernel(line.z, line.z[rows])
    variance = np.maximum(kernel.diagonal(line.z) - np.square(at @ after.factor.T).sum(-1), 0)
    beta = theory.beta_t(setup.norm, setup.noise, setup.ridge, setup.delta, after.information)
    mean, sigma = ((at @ after.weights)[:, 0]).reshape(line.shape), np.sqrt(variance).reshape(line.shape)
    return Belief(mean, sigma, beta, rows, y, inverse, after.information)


def more(setup: Setup, line: Line, belief: Belief, new: np.ndarray, y: np.ndarray) -> Belief:
    """The belief after an episode: its data are a block of the factor."""
    kernel, old, z = setup.kernels(), line.z[belief.rows], line.z[new]
    inverse = posterior.grow(belief.inverse, kernel(old, z), kernel(z, z), setup.ridge)
    return believe(setup, line, np.concatenate([belief.rows, new]), np.concatenate([belief.y, y]), inverse)


def trial(setup: Setup, gammas: np.ndarray, generator: np.random.Generator) -> dict[str, np.ndarray]:
    """RH-UCRL on one drawn game: what every episode was, and what the theory said about it."""
    line, horizon = draw(setup, generator), setup.horizon
    truth = line.f, line.f, 1
    best = plan(line, *truth, maximin).value[line.start]
    belief = believe(setup, line, np.zeros(0, int), np.zeros((0, 1)), np.zeros((0, 0)))
    told, sharpest = [], np.zeros(3)
    for episode, gamma in enumerate(gammas):
        low, high = belief.interval
        agent = plan(line, low, high, 1, maximin).agent
        answer = plan(line, low, high, -1, against(agent)).answer
        models = (low, high, 1), truth, (low, high, -1)
        j = [plan(line, *model, fixed(agent, answer)).value[line.start] for model in models]
        worst = plan(line, *truth, against(agent)).value[line.start]
        met = play(line, agent, answer, generator)
        new = met[:, 0].astype(int)
        slopes = steepest(line, belief.sigma), wander(line, agent, line.actions), wander(line, answer, line.answers)
        sharpest = np.maximum(sharpest, slopes)
        after = more(setup, line, belief, new, met[:, 1:])
        complexity = theory.log_complexity_bound(gamma, setup.ridge, horizon, 1.0)
        steep = Lipschitz(steepest(line, line.f), *sharpest, steepest(line, line.reward))
        bound = theory.log_regret_bound(steep, belief.beta, horizon, episode + 1, complexity)
        reach = np.max(np.abs(line.f - belief.mean) / (belief.beta * belief.sigma))
        spread = np.square(belief.sigma.ravel()[new]).sum()
        told.append((belief.beta, reach, *j, best - worst, spread, complexity, after.information, gamma, bound))
        belief = after
    return dict(zip(NAMES, np.array(told, float).T, strict=True))


NAMES = (
    "beta", "reach", "J_optimistic", "J_true", "J_pessimistic", "regret", "uncertainty", "log10_Gamma_bound",
    "information_gain", "information_bound", "log10_regret_bound",
)  # fmt: skip


def verify(setup: Setup, progress: Any) -> dict[str, Any]:
    """All draws, and which inequalities held how often."""
    bounds, trials = gammas(setup), []
    for i, generator in enumerate(map(np.random.default_rng, np.random.SeedSequence(setup.seed).spawn(setup.draws))):
        trials.append(trial(setup, bounds, generator))
        progress.update(i + 1, f"worst error of an interval so far {max(t['reach'].max() for t in trials):.2f} of it")
    t = {name: np.stack([trial[name] for trial in trials]) for name in NAMES}
    return {
        "setup": dataclasses.asdict(setup), "coverage": coverage(setup, t["reach"]), "inequalities": inequalities(t),
        "regret": sublinearity(t["regret"]), "curves": {name: x.mean(0).tolist() for name, x in t.items()},
        "reach_per_draw": t["reach"].max(1).tolist(), "regret_per_draw": t["regret"].sum(1).tolist(),
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
