"""Adversaries of games on the host: families of NumPy functions, each member a vector of weights.

A member is data: its family's name and its numbers. It can be saved, and loading it runs nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rhucrl.envs.game import Game
from rhucrl.errors import UsageError, unknown
from rhucrl.trees import load_tree, read_meta, save_tree

HIDDEN = 8  # units of a network
ARRAYS = ("weights", "low", "high", "scale")

Size = Callable[[int, int], int]
Act = Callable[[np.ndarray, np.ndarray, float, int], np.ndarray]


class Family(NamedTuple):
    """How many weights there are for so many inputs and outputs, and what is done with them.

    `act(weights, obs, phase, outputs)` is a point of [-1, 1]^outputs; `obs` is in units of the game's scale, `phase`
    is the part of the episode that has passed.
    """

    size: Size
    act: Act


def _constant(weights: np.ndarray, obs: np.ndarray, phase: float, outputs: int) -> np.ndarray:
    return weights


def _sequence(weights: np.ndarray, obs: np.ndarray, phase: float, outputs: int) -> np.ndarray:
    """As many actions as there are weights for, each held equally long."""
    actions = weights.reshape(-1, outputs)
    return actions[min(int(phase * len(actions)), len(actions) - 1)]


def _bang_bang(weights: np.ndarray, obs: np.ndarray, phase: float, outputs: int) -> np.ndarray:
    """Every component at one of its bounds, by the sign of an affine function of the observation."""
    slopes = weights.reshape(outputs, -1)
    return np.where(slopes[:, :-1] @ obs + slopes[:, -1] >= 0, 1.0, -1.0)


def _network(weights: np.ndarray, obs: np.ndarray, phase: float, outputs: int) -> np.ndarray:
    inputs = obs.size
    cuts = list(itertools.accumulate((HIDDEN * inputs, HIDDEN, outputs * HIDDEN)))
    first, bias, second, offset = np.split(weights, cuts)
    hidden = np.tanh(first.reshape(HIDDEN, inputs) @ obs + bias)
    return np.tanh(second.reshape(outputs, HIDDEN) @ hidden + offset)


FAMILIES: dict[str, Family] = {
    "constant": Family(lambda inputs, outputs: outputs, _constant),
    "sequence": Family(lambda inputs, outputs: outputs, _sequence),  # or a multiple of it
    "bang-bang": Family(lambda inputs, outputs: (inputs + 1) * outputs, _bang_bang),
    "network": Family(lambda inputs, outputs: (inputs + 1) * HIDDEN + (HIDDEN + 1) * outputs, _network),
}

KNOWN: dict[tuple[str, int], tuple[tuple[float, ...], ...]] = {
    ("inverted-pendulum", 2): tuple(
        (0, 0, side, 0.4 * side, 0, 0, 0, 0, 0, lift) for side in (1, -1) for lift in (1, -1)
    ),
}
"""Strong bang-bang feedback by environment and number of components, of the observation in physical units:
F sign(v + .4 w) sideways, +-F upwards."""


@dataclass(frozen=True, eq=False)
class HostAdversary:
    """A member of a family in a game: a callable of (obs, time)."""

    family: str
    weights: np.ndarray
    low: np.ndarray
    high: np.ndarray
    scale: np.ndarray
    horizon: int

    def __call__(self, obs: Any, time: Any) -> np.ndarray:
        seen = np.asarray(obs, float) / self.scale
        unit = FAMILIES[self.family].act(self.weights, seen, int(time) / self.horizon, self.low.size)
        return self._centre + self._half * np.minimum(np.maximum(unit, -1.0), 1.0)

    @cached_property
    def _centre(self) -> np.ndarray:
        return (self.low + self.high) / 2

    @cached_property
    def _half(self) -> np.ndarray:
        return (self.high - self.low) / 2

    def save(self, folder: str | Path) -> None:
        """Write it: safetensors and JSON."""
        arrays = {name: np.asarray(getattr(self, name), float) for name in ARRAYS}
        shapes = {name: array.shape[0] for name, array in arrays.items()}
        save_tree(folder, arrays, {"adversary": self.family, "horizon": self.horizon, "sizes": shapes})


def load_adversary(folder: str | Path) -> HostAdversary:
    """The adversary that was saved in a folder."""
    meta = read_meta(folder)
    if "adversary" not in meta:
        raise UsageError(f"{folder} holds no adversary: name a folder that `rhucrl attack --save` wrote")
    if meta["adversary"] not in FAMILIES:
        raise unknown("family of adversaries", meta["adversary"], FAMILIES)
    arrays, _ = load_tree(folder, {name: np.zeros(meta["sizes"][name]) for name in ARRAYS})
    return HostAdversary(meta["adversary"], **arrays, horizon=meta["horizon"])


def member(game: Game, family: str, weights: Any) -> HostAdversary:
    """The member of a family with these weights."""
    numbers = (np.asarray(x, float) for x in (weights, *game.adversary, game.scale))
    return HostAdversary(family, *numbers, horizon=game.horizon)


def size(game: Game, family: str) -> int:
    """The number of weights of a family's members."""
    return FAMILIES[family].size(game.observation.size, game.adversary.size)


def vertices(outputs: int, most: int, generator: np.random.Generator) -> np.ndarray:
    """The vertices of [-1, 1]^outputs and its centre; where there are too many vertices, random ones."""
    if 2**outputs <= most:
        corners = np.array(list(itertools.product((-1.0, 1.0), repeat=outputs)))
    else:
        corners = generator.choice((-1.0, 1.0), (most, outputs))
    return np.concatenate([corners, np.zeros((1, outputs))])


def sequences(game: Game, count: int, hold: int, generator: np.random.Generator) -> np.ndarray:
    """Random actions, each held for some steps; a third of their components are at a bound."""
    rows = -(-game.horizon // hold)
    return np.clip(generator.uniform(-1.5, 1.5, (count, rows * game.adversary.size)), -1, 1)


def known(game: Game, name: str) -> np.ndarray:
    """The weights of the bang-bang feedback that is known to be strong in an environment."""
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
