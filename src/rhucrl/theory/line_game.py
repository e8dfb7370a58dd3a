"""A game on the nodes of a line that is solved exactly, whatever interval its dynamics are known to lie in.

The noise is a coin's: omega = sigma or -sigma, which is sigma-sub-Gaussian. The next state f(s, a, abar) + omega is
held in the range and rounded at random to one of the nodes beside it, so that a value between nodes is its linear
interpolation: optimistic, pessimistic and true performance are dynamic programs without any error but that of floating
point. Between the kinks of a value that is linear in pieces, the extremes over an interval are at its ends.

Dynamics are drawn from a kernel's own space with a known norm. The linear-quadratic game is the same on a finer
lattice, with the dynamics s + a / 2 + abar / 4: its saddle point is known in closed form, but for what the lattice
rounds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from rhucrl.models.gaussian_process.kernels import Kernel

NODES, ACTIONS, ANSWERS = 21, 5, 3
CENTRES = 24  # kernel functions that f is made of
GOAL, EFFORT = 0.4, 0.1
LATTICE = 31, 11, 11  # nodes, actions and answers of the linear-quadratic game
FROM, LINEAR, QUADRATIC = 0.8, (1.0, 0.5, 0.25), (1.0, 0.5, -0.5)  # its start, dynamics, and cost of s, a and abar


class LineGame(NamedTuple):
    """The game: nodes, every (s, a, abar) as a row of z, and f and the reward at each, with axes (s, a, abar)."""

    nodes: Float[np.ndarray, " s"]
    actions: Float[np.ndarray, " a"]
    answers: Float[np.ndarray, " k"]
    z: Float[np.ndarray, "n 3"]
    f: Float[np.ndarray, "s a k"]
    reward: Float[np.ndarray, "s a k"]
    noise: float
    horizon: int
    start: int

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.f.shape  # type: ignore[return-value]


class Plan(NamedTuple):
    """Values at every node, and the indices of both players' actions at every step and node."""

    value: Float[np.ndarray, " s"]
    agent: Int[np.ndarray, "h s"]
    answer: Int[np.ndarray, "h s"]


Choose = Callable[[np.ndarray, int], tuple[np.ndarray, np.ndarray]]


def draw(kernel: Kernel, norm: float, noise: float, horizon: int, generator: np.random.Generator) -> LineGame:
    """A game whose dynamics have the norm that is asked for."""
    axes, grid = lattice(NODES, ACTIONS, ANSWERS)
    centres, heights = generator.uniform(-1, 1, (CENTRES, 3)), generator.standard_normal(CENTRES)
    heights *= norm / np.sqrt(heights @ kernel(centres, centres) @ heights)
    z = grid.reshape(-1, 3)
    f = (kernel(z, centres) @ heights).reshape(grid.shape[:3])
    reward = -np.abs(grid[..., 0] - GOAL) - EFFORT * np.abs(grid[..., 1])
    return LineGame(*axes, z, f, reward, noise, horizon, NODES // 2)


def lattice(s: int, a: int, k: int) -> tuple[tuple[np.ndarray, np.ndarray, np.ndarray], Float[np.ndarray, "s a k 3"]]:
    axes = np.linspace(-1, 1, s), np.linspace(-1, 1, a), np.linspace(-1, 1, k)
    return axes, np.stack(np.meshgrid(*axes, indexing="ij"), -1)


def linear_quadratic(noise: float, horizon: int) -> LineGame:
    axes, grid = lattice(*LATTICE)
    start = int(np.abs(axes[0] - FROM).argmin())
    z, reward = grid.reshape(-1, 3), -np.square(grid) @ np.array(QUADRATIC)
    return LineGame(*axes, z, grid @ np.array(LINEAR), reward, noise, horizon, start)


class Saddle(NamedTuple):
    """The value at the start and the gains a = -agent s, abar = adversary s of the first step."""

    value: float
    agent: float
    adversary: float


def saddle(noise: float, horizon: int, start: float = FROM) -> Saddle:
    """The linear-quadratic game in closed form: V_h(s) = -P_h s^2 - c_h, by Riccati's recursion."""
    (a, b, d), (q, r, rho) = LINEAR, QUADRATIC
    p = c = agent = adversary = 0.0
    for _ in range(horizon):
        m = 1 + p * (b**2 / r + d**2 / rho)  # rho < 0: the adversary pays
        agent, adversary, c = p * b * a / (r * m), -p * d * a / (rho * m), c + p * noise**2
        p = q + p * a**2 / m
    return Saddle(-p * start**2 - c, agent, adversary)


def ahead(
    game: LineGame, value: np.ndarray, low: np.ndarray, high: np.ndarray, sign: int
) -> Float[np.ndarray, "s a k"]:
    """r + the largest (sign 1) or least (-1) E V(x + omega) over x in [low, high]."""

    def expected(x: np.ndarray) -> np.ndarray:
        return sum(np.interp(x + omega, game.nodes, value) for omega in (-game.noise, game.noise)) / 2  # type: ignore

    kinks = np.concatenate([game.nodes - game.noise, game.nodes + game.noise])
    inside = (kinks > low[..., None]) & (kinks < high[..., None])
    within = np.where(inside, sign * expected(kinks), -np.inf).max(-1)
    ends = np.maximum(sign * expected(low), sign * expected(high))
    return game.reward + sign * np.maximum(ends, within)


def plan(game: LineGame, low: np.ndarray, high: np.ndarray, sign: int, choose: Choose) -> Plan:
    """The horizon backwards; `choose` names both players' actions, given the value of every pair and the step."""
    value, played = np.zeros(len(game.nodes)), []
    for h in reversed(range(game.horizon)):
        q = ahead(game, value, low, high, sign)
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


def play(
    game: LineGame, agent: np.ndarray, answer: np.ndarray, generator: np.random.Generator
) -> Float[np.ndarray, "h 2"]:
    """An episode: the index of each (s, a, abar) that was met, and y = f + omega there."""
    node, met = game.start, []
    for h in range(game.horizon):
        here = node, int(agent[h, node]), int(answer[h, node])
        y = game.f[here] + game.noise * generator.choice((-1.0, 1.0))
        place = (np.clip(y, -1, 1) + 1) / 2 * (len(game.nodes) - 1)
        node = min(int(place) + int(generator.random() < place % 1), len(game.nodes) - 1)
        met.append((np.ravel_multi_index(here, game.shape), y))
    return np.array(met)


def steepest(game: LineGame, x: np.ndarray) -> float:
    """The Lipschitz constant of a function on the lattice, from its steepest edge along each axis."""
    axes = zip((game.nodes, game.actions, game.answers), range(3), strict=True)
    slopes = [np.abs(np.diff(x, axis=i)).max() / (axis[1] - axis[0]) for axis, i in axes]
    return float(np.linalg.norm(slopes))


def wander(game: LineGame, choices: np.ndarray, values: np.ndarray) -> float:
    return float(np.abs(np.diff(values[choices], axis=-1)).max() / (game.nodes[1] - game.nodes[0]))
