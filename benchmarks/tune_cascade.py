"""The gains of the cascade in rhucrl/evaluation/reference.py, found by attacking what was found before.

    python benchmarks/tune_cascade.py [--strength 6.5]     # about a minute

Gains and adversaries take turns. The gains are searched by cross-entropy against all adversaries found so far; then
bang-bang feedback and held random forces are searched against the new gains. Both play on the cart-pole's equations,
many episodes at once; the constants are the simulator's. In the end all turns' gains meet all adversaries. What the
best withstand in the simulator itself is for `benchmarks/inverted_pendulum.py` to say.
"""

from __future__ import annotations

import argparse
from typing import Any, NamedTuple

import numpy as np

from rhucrl.attacks.reference import ENVIRONMENT, Cascade
from rhucrl.envs import make

STEPS, SUBSTEPS, GRAVITY = 500, 2, 9.81
FALL, RAIL = 0.2, 1.0
TURNS, GENERATIONS, GAINS, ELITE = 12, 6, 64, 8
FEEDBACKS, REFINEMENTS, SEQUENCES, SWITCHES = 300, 4, 300, (10, 25, 50)
PIECES = 50  # of a sequence; a multiple of the numbers of switches
FIRST = Cascade(position=0.3, velocity=0.5, lean=0.18, angle=20.0, rate=3.0)
SCALE = np.array([0.06, 0.14, 1.0, 2.2])


class Cart(NamedTuple):
    """The simulator's constants; `bend` is the angle by which the pole's centre of mass is off its axis."""

    cart: float
    pole: float
    length: float
    inertia: float
    damping: tuple[float, float]
    gear: float
    bend: float
    dt: float

    def derivative(self, state: np.ndarray, action: np.ndarray, fx: np.ndarray, fz: np.ndarray) -> np.ndarray:
        _, angle, v, w = state
        cosine, sine = np.cos(angle + self.bend), np.sin(angle + self.bend)
        coupling = self.pole * self.length * cosine
        total, swing = self.cart + self.pole, self.inertia + self.pole * self.length**2
        push = self.gear * action - self.damping[0] * v + fx + self.pole * self.length * w**2 * sine
        turn = ((self.pole * GRAVITY - fz) * sine + fx * cosine) * self.length - self.damping[1] * w
        determinant = total * swing - coupling**2
        return np.stack(
            [v, w, (swing * push - coupling * turn) / determinant, (total * turn - coupling * push) / determinant]
        )

    def step(self, state: np.ndarray, *forces: np.ndarray) -> np.ndarray:
        for _ in range(SUBSTEPS):  # Runge and Kutta's, as in the simulator
            first = self.derivative(state, *forces)
            second = self.derivative(state + self.dt / 2 * first, *forces)
            third = self.derivative(state + self.dt / 2 * second, *forces)
            fourth = self.derivative(state + self.dt * third, *forces)
            state = state + self.dt / 6 * (first + 2 * second + 2 * third + fourth)
        return state


class Pool(NamedTuple):
    """Adversaries: bang-bang feedback (n, 2, 5) of scaled observations, and sequences (m, PIECES, 2) of signs."""

    feedback: np.ndarray
    sequences: np.ndarray

    def act(self, state: np.ndarray, time: int) -> np.ndarray:
        """Signs (2, gains, n + m)."""
        n = len(self.feedback)
        scaled = state[:, :, :n] / SCALE[:, None, None]
        decided = np.einsum("nki,icn->kcn", self.feedback[:, :, :4], scaled) + self.feedback[:, :, 4].T[:, None]
        planned = self.sequences[:, time * PIECES // STEPS].T[:, None].repeat(state.shape[1], 1)
        return np.concatenate([np.where(decided >= 0, 1.0, -1.0), planned], -1)


def cart() -> Cart:
    env: Any = make(ENVIRONMENT)
    model = env.system.simulator.env.unwrapped.model
    x, _, length = model.body_ipos[2]
    mass, inertia = model.body_mass, model.body_inertia[2][1]
    return Cart(
        mass[1], mass[2], length, inertia, tuple(model.dof_damping), model.actuator_gear[0, 0], x / length,
        model.opt.timestep,
    )  # fmt: skip


def survive(cart: Cart, gains: np.ndarray, pool: Pool, strength: float, start: float) -> tuple[np.ndarray, np.ndarray]:
    """The part of the episode that each row of gains survives each adversary, and how near it came to the fall."""
    state = np.full((4, len(gains), len(pool.feedback) + len(pool.sequences)), start)
    policy = Cascade(*gains.T[:, :, None])
    alive, share, nearest = np.ones(state.shape[1:], bool), np.zeros(state.shape[1:]), np.zeros(state.shape[1:])
    for time in range(STEPS):
        action = np.clip(policy(np.moveaxis(state, 0, -1))[..., 0], -3, 3)
        state = np.where(alive, cart.step(state, action, *(strength * pool.act(state, time))), 0.0)
        near = np.maximum(np.abs(state[1]) / FALL, np.abs(state[0]) / RAIL)
        alive &= near <= 1
        share += alive / STEPS
        nearest = np.where(alive, np.maximum(nearest, near), 1.2)
    return share, nearest


def first_pool() -> Pool:
    """Constant forces at their bounds, and the known strong feedback F sign(v + .4 w)."""
    rows = []
    for side in (-1, 1):
        for lift in (-1, 1):
            up = (0, 0, 0, 0, lift)
            rows += [((0, 0, 0, 0, side), up), (tuple(np.append(side * SCALE * (0, 0, 1, 0.4), 0)), up)]
    return Pool(np.array(rows, float), np.zeros((0, PIECES, 2)))


def worth(share: np.ndarray, nearest: np.ndarray) -> np.ndarray:
    """What gains are worth against a pool: first to survive, then to stay away from the fall."""
    return share.min(1) + 0.2 * share.mean(1) - 0.1 * nearest.max(1) - 0.05 * nearest.mean(1)


def improve(
    cart: Cart, mean: np.ndarray, spread: np.ndarray, pool: Pool, strength: float, random: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, float]:
    """The logarithms of the best gains against the pool, the spread around them, and what they survive at least."""
    record, champion = -np.inf, mean
    for _ in range(GENERATIONS):
        logs = mean + spread * random.normal(size=(GAINS, mean.size))
        logs[0], logs[:, 2] = mean, np.minimum(logs[:, 2], np.log(FALL))
        share, nearest = survive(cart, np.exp(logs), pool, strength, 0.01)
        worths = worth(share, nearest)
        best = np.argsort(-worths)[:ELITE]
        mean, spread = logs[best].mean(0), logs[best].std(0) + 0.02
        if worths[best[0]] > record:
            record, champion, least = worths[best[0]], logs[best[0]], share[best[0]].min()
    return champion, spread, least


def attack(
    cart: Cart, gains: np.ndarray, pool: Pool, strength: float, random: np.random.Generator
) -> tuple[Pool, float]:
    """The worst three of each kind of adversary for the gains, and what they leave of the episode."""

    def harm(tried: Pool) -> np.ndarray:
        share, nearest = survive(cart, gains[None], tried, strength, -0.01)
        return share[0] - 0.1 * nearest[0]

    drawn = random.normal(size=(FEEDBACKS, 2, 5))
    drawn[:, :, :4] *= random.random((FEEDBACKS, 2, 4)) < 0.5
    drawn[:, :, :4] *= random.random((FEEDBACKS, 2, 1)) < 0.7
    tried, none = np.concatenate([pool.feedback, drawn]), np.zeros((0, PIECES, 2))
    for _ in range(REFINEMENTS):
        worst = tried[np.argsort(harm(Pool(tried, none)))[:12]]
        around = worst[random.integers(len(worst), size=FEEDBACKS)]
        tried = np.concatenate([worst, around + 0.4 * random.normal(size=around.shape)])
    signs = [random.choice((-1.0, 1.0), (SEQUENCES // 3, n, 2)).repeat(PIECES // n, 1) for n in SWITCHES]
    sequences = np.concatenate(signs)
    sequences[: len(sequences) // 2, :, 1] = 1.0
    harms = harm(Pool(tried, none)), harm(Pool(tried[:0], sequences))
    found = Pool(tried[np.argsort(harms[0])[:3]], sequences[np.argsort(harms[1])[:3]])
    return found, float(survive(cart, gains[None], found, strength, -0.01)[0].min())


def tune(strength: float) -> None:
    carted, random, pool = cart(), np.random.default_rng(0), first_pool()
    mean, spread = np.log(FIRST), np.array([0.6, 0.6, 0.05, 0.4, 0.4])
    turns: list[Cascade] = []
    for turn in range(TURNS):
        mean, spread, least = improve(carted, mean, spread, pool, strength, random)
        gains = Cascade(*(float(f"{gain:.3g}") for gain in np.exp(mean)))
        found, left = attack(carted, np.array(gains), pool, strength, random)
        print(f"turn {turn}: {gains} survive {least:.0%} against the pool, {left:.0%} attacked", flush=True)
        pool = Pool(*(np.concatenate(pair) for pair in zip(pool, found, strict=True)))
        spread = np.maximum(spread, [0.2, 0.2, 0.03, 0.2, 0.2])
        turns.append(gains)
    met = worth(*survive(carted, np.array(turns), pool, strength, -0.01))
    print(f"the best of these against all adversaries: {turns[int(met.argmax())]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strength", type=float, default=6.5)
    tune(parser.parse_args().strength)


if __name__ == "__main__":
    main()
