"""Adversaries as data: families of functions, each member a vector of weights.

A member plays in NumPy and, traced, in JAX. It can be saved, and loading it runs nothing.
"""

from __future__ import annotations

import abc
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from rhucrl.envs.game import Game
from rhucrl.errors import unknown
from rhucrl.storage.trees import load_tree, read_meta, save_tree

HIDDEN = 8  # units of a small network
WIDTH = 64  # units of each layer of a deep one
ARRAYS = ("weights", "low", "high", "scale")


class Family(NamedTuple):
    """How many weights there are for so many inputs and outputs, and what is done with them.

    `act(weights, obs, phase, outputs)` is a point of [-1, 1]^outputs; `obs` is in units of the game's scale, `phase`
    is the part of the episode that has passed. Arrays are NumPy's or JAX's.
    """

    size: Callable[[int, int], int]
    act: Callable[[Any, Any, Any, int], Any]


def _sequence(weights: Any, obs: Any, phase: Any, outputs: int) -> Any:
    """As many actions as there are weights for, each held equally long."""
    xp, actions = obs.__array_namespace__(), weights.reshape(-1, outputs)
    step = xp.asarray(phase * len(actions) + 1e-4).astype(int)  # a hair, because a phase may be rounded down
    return xp.asarray(actions)[xp.minimum(step, len(actions) - 1)]


def _bang_bang(weights: Any, obs: Any, phase: Any, outputs: int) -> Any:
    """Every component at one of its bounds, by the sign of an affine function of the observation."""
    slopes = weights.reshape(outputs, -1)
    return obs.__array_namespace__().where(slopes[:, :-1] @ obs + slopes[:, -1] >= 0, 1.0, -1.0)


def layers(weights: Any, *sizes: int) -> Iterator[tuple[Any, Any]]:
    """The matrices and biases of a network whose layers have these sizes."""
    at = 0
    for inputs, outputs in itertools.pairwise(sizes):
        matrix, bias = weights[at : at + inputs * outputs], weights[at + inputs * outputs : at + (inputs + 1) * outputs]
        at += (inputs + 1) * outputs
        yield matrix.reshape(outputs, inputs), bias


def _network(weights: Any, obs: Any, phase: Any, outputs: int) -> Any:
    xp, x = obs.__array_namespace__(), obs
    for matrix, bias in layers(weights, obs.size, HIDDEN, outputs):
        x = xp.tanh(matrix @ x + bias)
    return x


def _deep(weights: Any, obs: Any, phase: Any, outputs: int) -> Any:
    """The mode of a policy that was learned by gradients."""
    xp, x = obs.__array_namespace__(), obs.clip(-5, 5)
    *hidden, (matrix, bias) = layers(weights, obs.size, WIDTH, WIDTH, outputs)
    for inner, shift in hidden:
        x = inner @ x + shift
        x = x * (x / 6 + 0.5).clip(0, 1)
    return xp.tanh(matrix @ x + bias)


FAMILIES: dict[str, Family] = {
    "constant": Family(lambda inputs, outputs: outputs, lambda weights, *_: weights),
    "sequence": Family(lambda inputs, outputs: outputs, _sequence),  # or a multiple of it
    "bang-bang": Family(lambda inputs, outputs: (inputs + 1) * outputs, _bang_bang),
    "network": Family(lambda inputs, outputs: (inputs + 1) * HIDDEN + (HIDDEN + 1) * outputs, _network),
    "deep": Family(lambda inputs, outputs: (inputs + 1 + WIDTH + 1) * WIDTH + (WIDTH + 1) * outputs, _deep),
}

KNOWN: dict[tuple[str, int], tuple[tuple[float, ...], ...]] = {
    ("inverted-pendulum", 2): tuple((0, 0, x, 0.4 * x, 0, 0, 0, 0, 0, lift) for x in (1, -1) for lift in (1, -1)),
}
"""Strong bang-bang feedback by environment and number of components, of the observation in physical units:
F sign(v + .4 w) sideways, +-F upwards."""


class AbstractFound(abc.ABC):
    """An adversary of an attack that can be kept; others are plain functions of the observation and the step."""

    @abc.abstractmethod
    def bind(self, env: Any, act: Any) -> Callable[[Any, Any], Any]:
        """The adversary of one episode of an environment, a function of (obs, time), against the agent that acts."""

    @abc.abstractmethod
    def save(self, folder: str | Path) -> None:
        """Write it: safetensors and JSON."""

    @abc.abstractmethod
    def described(self) -> dict[str, Any] | None:
        """As JSON, for other processes; None if it is no data."""


@dataclass(frozen=True, eq=False)
class Member(AbstractFound):
    """A member of a family in a game: a callable of (obs, time)."""

    family: str
    weights: np.ndarray
    low: np.ndarray
    high: np.ndarray
    scale: np.ndarray
    horizon: int

    def __call__(self, obs: Any, time: Any) -> Any:
        seen = (obs if isinstance(obs, np.ndarray | jax.Array) else np.asarray(obs, float)) / self.scale
        return respond(self.family, self.weights, self.low, self.high, seen, time / self.horizon)

    def bind(self, env: Any, act: Any) -> Member:
        return self

    def described(self) -> dict[str, Any]:
        return {"family": self.family, "weights": self.weights.tolist()}

    def save(self, folder: str | Path) -> None:
        arrays = {name: np.asarray(getattr(self, name), float) for name in ARRAYS}
        shapes = {name: array.shape[0] for name, array in arrays.items()}
        save_tree(folder, arrays, {"adversary": self.family, "horizon": self.horizon, "sizes": shapes})


def respond(family: str, weights: Any, low: Any, high: Any, seen: Any, phase: Any) -> Any:
    """What a member does at an observation in units of the game's scale."""
    unit = FAMILIES[family].act(weights, seen, phase, low.shape[0])
    return low + (unit.clip(-1.0, 1.0) + 1) / 2 * (high - low)


def load_member(folder: str | Path) -> Member:
    meta = read_meta(folder)
    if meta["adversary"] not in FAMILIES:
        raise unknown("family of adversaries", meta["adversary"], FAMILIES)
    arrays, _ = load_tree(folder, {name: np.zeros(meta["sizes"][name]) for name in ARRAYS})
    return Member(meta["adversary"], **arrays, horizon=meta["horizon"])


def members(game: Game, family: str, rows: Any) -> list[Member]:
    low, high, scale = (np.asarray(x, float) for x in (*game.adversary, game.scale))
    return [Member(family, np.asarray(weights, float), low, high, scale, game.horizon) for weights in rows]


def member(game: Game, family: str, weights: Any) -> Member:
    return members(game, family, [weights])[0]


def size(game: Game, family: str) -> int:
    """The number of weights of a family's members."""
    return FAMILIES[family].size(game.observation.size, game.adversary.size)


def extremes(outputs: int, most: int, generator: np.random.Generator) -> np.ndarray:
    """Vertices, mid-points and centre of [-1, 1]^outputs; of too many, all vertices if possible, and random ones."""
    if 3**outputs <= most:
        return np.array(list(itertools.product((-1.0, 0.0, 1.0), repeat=outputs)))
    if 2**outputs < most:
        corners = np.array(list(itertools.product((-1.0, 1.0), repeat=outputs)))
    else:
        corners = generator.choice((-1.0, 1.0), (most // 2, outputs))
    between = generator.choice((-1.0, 0.0, 1.0), (most - 1 - len(corners), outputs))
    return np.concatenate([corners, between, np.zeros((1, outputs))])


def sequences(game: Game, count: int, hold: int, generator: np.random.Generator) -> np.ndarray:
    """Random actions, each held for some steps; a third of their components are at a bound."""
    rows = -(-game.horizon // hold)
    return np.clip(generator.uniform(-1.5, 1.5, (count, rows * game.adversary.size)), -1, 1)


def known(game: Game) -> np.ndarray:
    """The weights of the bang-bang feedback that is known to be strong in a game."""
    name = getattr(game, "name", "") if getattr(game, "setting", "") == "adversarial" else ""
    inputs, outputs = game.observation.size, game.adversary.size
    table = np.array(KNOWN.get((name, outputs), ()), float).reshape(-1, outputs, inputs + 1)
    return (table * np.append(np.asarray(game.scale, float), 1.0)).reshape(-1, (inputs + 1) * outputs)


def feedbacks(game: Game, count: int, generator: np.random.Generator) -> np.ndarray:
    """Random bang-bang feedback: some entries of the observation decide some components, the others are held."""
    inputs, outputs = game.observation.size, game.adversary.size
    slopes = generator.normal(size=(count, outputs, inputs + 1))
    slopes[:, :, :-1] *= generator.random((count, outputs, inputs)) < max(0.5, 2 / inputs)
    slopes[:, :, :-1] *= generator.random((count, outputs, 1)) < 0.6
    return slopes.reshape(count, -1)
