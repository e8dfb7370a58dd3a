"""The paper's six robots as rows of one table; importable without JAX.

`health` and `gain` are batched functions of NumPy's and of JAX's arrays. The reward is gain - cost |executed action|^2.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Function = Callable[[Any], Any]


@dataclass(frozen=True)
class Robot:
    """A row: the task, its adversary, and the constants that a learner scales its numbers with."""

    gymnasium: str
    horizon: int
    hidden: int
    """Leading coordinates that are seen as their mean velocity only; 0: the native observation."""
    bodies: tuple[str, ...]
    """The bodies that forces act on; the first one's mass is the parameter."""
    axes: str
    masses: tuple[float, float]
    cost: float
    gain: Callable[[Any, Any], Any]
    """Of the observation before the step and the one behind it."""
    health: Function | None
    """Whether the episode goes on; None: it always does."""
    rewards: tuple[float, float]
    """A generous range of the reward of one step."""
    scale: tuple[float, ...]
    """Standard deviations of the observations under random actions."""
    edge: tuple[float, ...]
    """Generous bounds of the observations' absolute values."""
    winding: tuple[int, ...] = ()
    """Angles among the observations that may wind up."""
    chain: Chain | None = None
    """What is seen in its own directions, by its centre."""
    lost: Function | None = None
    """States that nobody gets out of again, though the episode goes on for a moment."""

    @property
    def heading(self) -> int | None:
        """The angle in whose direction velocities are seen: physics depends neither on it nor on what is before it."""
        return self.hidden if self.chain else None

    def reward(self, obs: Any, executed: Any, adversary: Any, next_obs: Any) -> Any:
        return self.gain(obs, next_obs) - self.cost * squares(executed)

    def terminated(self, next_obs: Any) -> Any:
        """Of the robots that can fall."""
        return ~self.health(next_obs) if self.health else None


def squares(x: Any) -> Any:
    """|x|^2, added from the left as NumPy does it for Gymnasium: in XLA's order the last bit is another."""
    return sum(x[..., i] * x[..., i] for i in range(x.shape[-1]))


def velocity(obs: Any, next_obs: Any) -> Any:
    return next_obs[..., 0]


def turned(vector: Any, angle: Any) -> Any:
    """A vector of the plane, or many, turned to the left."""
    xp, (x, y) = vector.__array_namespace__(), (vector[..., 0], vector[..., 1])
    sine, cosine = xp.sin(angle), xp.cos(angle)
    return xp.stack([cosine * x - sine * y, sine * x + cosine * y], -1)


@dataclass(frozen=True)
class Chain:
    """Links in a plane, the first of which floats: `links` is how far each leads from there to the chain's centre.

    Angles are the first link's heading and those of the joints.
    """

    links: tuple[float, ...]

    def centre(self, angles: Any) -> Any:
        """Where the centre lies, seen from the first link."""
        xp, total = angles.__array_namespace__(), angles.cumsum(-1)
        links = xp.asarray(self.links, dtype=total.dtype)
        return xp.stack([(links * xp.cos(total)).sum(-1), (links * xp.sin(total)).sum(-1)], -1)

    def drift(self, angles: Any, rates: Any) -> Any:
        """How fast the centre moves, seen from the first link."""
        xp, total, turning = angles.__array_namespace__(), angles.cumsum(-1), rates.cumsum(-1)
        links = xp.asarray(self.links, dtype=total.dtype)
        return xp.stack([-(links * turning * xp.sin(total)).sum(-1), (links * turning * xp.cos(total)).sum(-1)], -1)


SWIMMER = Chain((2 / 3, -1.5 / 3, -0.5 / 3))  # three links of the same weight and of length 1


def progress(obs: Any, next_obs: Any) -> Any:
    """The first link's velocity along x: that of the centre, less that of the centre seen from the link."""
    reach, before = (SWIMMER.centre(x[..., 2:5])[..., 0] for x in (next_obs, obs))
    return turned(next_obs[..., :2], next_obs[..., 2])[..., 0] - (reach - before) / 0.04


def hopper_stands(obs: Any) -> Any:
    return (obs[..., 1] > 0.7) & (abs(obs[..., 2]) < 0.2) & (abs(obs[..., 2:]) < 100).all(-1)


def walker_stands(obs: Any) -> Any:
    return (obs[..., 1] > 0.8) & (obs[..., 1] < 2) & (abs(obs[..., 2]) < 1)


def pole_stands(obs: Any) -> Any:
    return (abs(obs[..., 1]) <= 0.2) & (abs(obs) < float("inf")).all(-1)


def at_the_rail(obs: Any) -> Any:
    return abs(obs[..., 0]) > 0.98


def nearness(obs: Any, next_obs: Any) -> Any:
    gap = next_obs[..., 8:10]
    return -((gap[..., None, :] @ gap[..., :, None])[..., 0, 0] ** 0.5)  # a product as in NumPy's norm, to the last bit


TURNS, FAST = 1000.0, 500.0  # an angle may wind up over an episode

ROBOTS: dict[str, Robot] = {
    "half-cheetah": Robot(
        "HalfCheetah-v5", 1000, hidden=1, bodies=("torso", "bfoot", "ffoot"), axes="xz", masses=(0.001, 2),
        cost=0.1, gain=velocity, health=None, rewards=(-11, 20),
        scale=(0.5, 0.2, 1.3, 0.3, 0.3, 0.3, 0.4, 0.3, 0.3, 0.6, 0.6, 1.3, 4.3, 5.1, 5.3, 4.9, 5.1, 4.6),
        edge=(50, 50, TURNS, *[10] * 6, 50, 50, *[FAST] * 7), winding=(2,),
    ),
    "hopper": Robot(
        "Hopper-v5", 1000, hidden=1, bodies=("torso",), axes="xz", masses=(0.001, 2),
        cost=0.001, gain=lambda obs, after: velocity(obs, after) + hopper_stands(after), health=hopper_stands,
        rewards=(-10, 11),
        scale=(0.5, 0.04, 0.07, 0.1, 0.1, 0.2, 0.5, 0.5, 2.1, 1.9, 2.2, 3.3),
        edge=(50, 50, TURNS, *[10] * 3, 50, 50, *[FAST] * 4),
    ),
    "inverted-pendulum": Robot(
        "InvertedPendulum-v5", 1000, hidden=0, bodies=("pole",), axes="xz", masses=(0.001, 2),
        cost=0.0, gain=lambda obs, after: pole_stands(after) * 1.0, health=pole_stands, rewards=(0, 1),
        scale=(0.06, 0.14, 1.0, 2.2),
        edge=(2, 4, 50, 100), lost=at_the_rail,
    ),
    "reacher": Robot(
        "Reacher-v5", 50, hidden=0, bodies=("body0",), axes="xy", masses=(0.001, 2),
        cost=1.0, gain=nearness, health=None, rewards=(-2.7, 0),
        scale=(0.7, 0.8, 0.7, 0.5, 0.1, 0.06, 14.0, 9.0, 0.15, 0.1),
        edge=(1, 1, 1, 1, 0.5, 0.5, FAST, FAST, 1, 1),
    ),
    "swimmer": Robot(
        "Swimmer-v5", 1000, hidden=2, bodies=("torso",), axes="xy", masses=(0.5, 1.5),
        cost=1e-4, gain=progress, health=None, rewards=(-4, 4),
        scale=(0.05, 0.05, 0.8, 1.2, 1.1, 0.05, 0.05, 1.2, 2.1, 2.1),
        edge=(50, 50, TURNS, 10, 10, 50, 50, *[FAST] * 3), winding=(2,), chain=SWIMMER,
    ),
    "walker": Robot(
        "Walker2d-v5", 1000, hidden=1, bodies=("torso",), axes="xz", masses=(0.001, 2),
        cost=0.001, gain=lambda obs, after: velocity(obs, after) + walker_stands(after), health=walker_stands,
        rewards=(-10, 11),
        scale=(0.8, 0.07, 0.3, 0.3, 0.4, 0.5, 0.3, 0.5, 0.5, 0.8, 1.4, 7.8, 9.7, 7.7, 12.3, 9.8, 8.0, 14.2),
        edge=(50, 50, TURNS, *[10] * 6, 50, 50, *[FAST] * 7),
    ),
}  # fmt: skip
