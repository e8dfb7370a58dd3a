"""A game as a file tells it: plain words and sizes, from which a policy is rebuilt without running anybody's code.

The arrays of a game are saved beside it. What is a function of its owner's (a reward, an end, a whole class of games)
is no data: a game that is read from a file has a function in its place that says so when it is asked.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from rhucrl.envs import ENVIRONMENTS, make
from rhucrl.envs.game import Box, Game
from rhucrl.envs.pendulum import Pendulum
from rhucrl.envs.robots import ROBOTS
from rhucrl.envs.wrap import Facts, HostGame, Reported
from rhucrl.errors import UsageError

OWN = "own"  # the name of an environment that was made in Python
LARGEST = 100_000  # entries of an observation or an action, and steps of an episode: a file that says more is not ours


def name_of(game: Game) -> str:
    """The name by which an environment is made again, or `own`."""
    return "pendulum" if isinstance(game, Pendulum) else getattr(game, "name", OWN)


def is_own(name: str) -> bool:
    """Whether somebody's code makes the environment: `module:function`, or one that was made in Python."""
    return name not in ENVIRONMENTS


def record_of(game: Game) -> dict[str, Any]:
    """What a file says of a game, beside its arrays."""
    if isinstance(game, Pendulum):
        return {"kind": "pendulum", **game.options()}
    if not isinstance(game, HostGame):
        return {"kind": "class", "name": type(game).__name__}
    facts = game.facts
    chosen = {name: value for name in ("parameters", "forces", "heading") if (value := getattr(game, name)) is not None}
    return chosen | {
        "kind": "host", "name": game.name, "setting": game.setting, "scope": game.scope, "horizon": game.horizon,
        "mixture": game.mixture, "angles": list(game.angles), "learned": list(game.learned),
        "ends": game.known_end is not None,
        "observation": facts.observation.size, "agent": facts.agent.size, "adversary": facts.reach.size,
        "starts": facts.starts.shape[0],
    }  # fmt: skip


def is_game_of(record: Any, game: Game) -> bool:
    """Whether a game is of the same kind, whatever it is called and however long and hard it is played."""
    free = ("name", "horizon", "starts", "strength", "forces")
    strict, found = ({k: v for k, v in r.items() if k not in free} for r in (record, record_of(game)))
    return strict == found


def game_of(record: Any) -> Game:
    """The game of such a record; its arrays are still to be read."""
    try:
        kind = record["kind"]
        if kind == "pendulum":
            return make("pendulum", **{name: value for name, value in record.items() if name != "kind"}).game
        if kind == "host":
            return _host_game(record)
        name = str(record["name"])
    except UsageError:
        raise
    except (KeyError, TypeError, ValueError):
        raise UsageError("the file describes no game: it is damaged, or of another version") from None
    raise UsageError(f"this policy thinks in a game of its owner's class {name!r}: give it with env=...")


def _host_game(record: Any) -> HostGame:
    sizes = [record[name] for name in ("observation", "agent", "adversary", "starts", "horizon")]
    if not all(type(size) is int and 1 <= size <= LARGEST for size in sizes):
        raise ValueError
    p, q, qbar, n, horizon = sizes
    angles, learned = (tuple(record[name]) for name in ("angles", "learned"))
    if not all(type(i) is int and 0 <= i < p for i in angles) or not set(learned) <= {"reward", "terminated"}:
        raise ValueError
    words = {name: record[name] for name in ("name", "setting", "scope", "mixture")}
    words |= {name: record.get(name) for name in ("parameters", "forces")}
    if not all(value is None or isinstance(value, str) for value in words.values()):
        raise ValueError
    box = {size: Box(jnp.zeros(size), jnp.zeros(size)) for size in (p, q, qbar, 1)}
    facts = Facts(box[q], box[qbar], jnp.zeros(qbar), box[p], jnp.zeros(p), box[1], jnp.zeros((n, p)))
    known: dict[str, Any] = {name: Reported(name, p + place) for place, name in enumerate(learned)}
    robot, heading = ROBOTS.get(words["name"]), record.get("heading")
    if robot and heading != (None if words["forces"] else robot.heading):
        raise UsageError(f"this {words['name']} was seen in another way: use the version of rhucrl that wrote the file")
    ends = (robot.terminated if robot else _unknown_end) if record["ends"] else None
    return HostGame(
        strength=jnp.float32(0), facts=facts, horizon=horizon, angles=angles,
        known_reward=known.get("reward", robot.reward if robot else _unknown_reward),
        known_end=known.get("terminated", ends),
        lost=robot.lost if robot else None, heading=heading, **words,
    )  # fmt: skip


def _unknown_reward(*_: Any) -> Any:
    raise UsageError("this policy looks ahead and needs the reward of its owner's environment: give it with env=...")


def _unknown_end(*_: Any) -> Any:
    raise UsageError("this policy looks ahead and needs the ends of its owner's environment: give it with env=...")
