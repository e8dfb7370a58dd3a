"""What is wrong with an environment, in plain words.

Every check is a function that yields findings. Those of the environment itself come first: where they fail, nothing
that a game says about it can be trusted. Those of a game play it against random adversaries.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np

from rhucrl.envs.simulators import time_limit
from rhucrl.envs.systems import HostSystem
from rhucrl.envs.wrap import space_problems, wrap
from rhucrl.envs.zero_sum_env import AgentView, ZeroSumEnv
from rhucrl.errors import SimulationError, UsageError

STEPS = 500
REPLAYED = 50  # steps that are played twice
LIMIT = 1000  # steps of an episode that has no other end
TOLERANCE = 1e-5  # of a known reward, relative to the size of rewards


class Finding(NamedTuple):
    """`wrong`: it has to be repaired. `note`: it is worth knowing."""

    kind: Literal["wrong", "note"]
    text: str


def wrong(text: str) -> Finding:
    return Finding("wrong", text)


class Row(NamedTuple):
    """One step of the environment itself."""

    obs: np.ndarray
    action: np.ndarray
    following: np.ndarray
    reward: Any
    terminated: Any
    truncated: Any
    time: int


def check_env(env: Any, steps: int = STEPS) -> list[Finding]:
    """What there is to say about a Gymnasium environment, or about a game made by `wrap` or `make`."""
    if not isinstance(env, gym.Env):
        return [wrong(f"this is a {type(env).__name__}, not a Gymnasium environment: inherit from gymnasium.Env")]
    base = _base(env)
    if problems := space_problems(base):
        return [*map(wrong, problems)]
    try:
        rows = _record(base, steps)
    except _BrokenError as broken:
        return [wrong(str(broken))]
    findings: list[Finding] = []
    for checks in ((_types,), (_values, _ends, _seeds)):
        findings += [finding for check in checks for finding in check(base, rows)]
        if any(finding.kind == "wrong" for finding in findings):
            return findings
    try:
        game = env if isinstance(env, ZeroSumEnv) else wrap(env, horizon=None if time_limit(env) else LIMIT)
        for check in (_known, _neutral):
            findings += check(game, base, steps)
    except (UsageError, SimulationError) as error:
        findings.append(wrong(str(error)))
    return findings


def _base(env: gym.Env) -> gym.Env:
    if not isinstance(env, ZeroSumEnv):
        return env
    return env.system.simulator.env if isinstance(env.system, HostSystem) else AgentView(env)


class _BrokenError(Exception):
    """The environment does not answer as Gymnasium's do."""


def _asked(what: str, count: int, function: Any, *arguments: Any, **options: Any) -> tuple:
    """What the environment answers, if it has as many parts as it should."""
    try:
        answer = function(*arguments, **options)
    except Exception as error:
        raise _BrokenError(f"{what} failed: {type(error).__name__}: {error}") from error
    if not isinstance(answer, tuple) or len(answer) != count:
        form = "(observation, info)" if count == 2 else "(observation, reward, terminated, truncated, info)"
        parts = f"{len(answer)} values" if isinstance(answer, tuple) else f"a {type(answer).__name__}"
        raise _BrokenError(f"{what} returned {parts}: it has to return {form}")
    return answer


def _action(env: gym.Env, generator: np.random.Generator) -> np.ndarray:
    space: Any = env.action_space
    return generator.uniform(space.low, space.high).astype(space.dtype)


def _record(env: gym.Env, steps: int) -> list[Row]:
    """Random steps, over several episodes."""
    generator, rows, longest = np.random.default_rng(0), [], min(LIMIT, max(steps // 4, 1))
    obs, time = _asked("reset(seed=0)", 2, env.reset, seed=0)[0], 0
    for _ in range(steps):
        kept = np.array(obs)
        action = _action(env, generator)
        following, reward, terminated, truncated, _ = _asked("step", 5, env.step, action)
        if not np.array_equal(kept, obs, equal_nan=True):
            raise _BrokenError(
                "an observation changes after it was returned: return a copy of it, not the state itself"
            )
        time += 1
        rows.append(Row(kept, action, np.array(following), reward, terminated, truncated, time))
        obs = following
        if terminated or truncated or (time >= longest and time_limit(env) is None):
            obs, time = _asked("reset()", 2, env.reset)[0], 0
    return rows


def _values(env: gym.Env, rows: list[Row]) -> Iterator[Finding]:
    space: Any = env.observation_space
    for row in rows:
        if row.following.shape != space.shape:
            yield wrong(f"an observation has shape {row.following.shape}, the space {space.shape}")
            return
    obs, rewards = np.stack([row.following for row in rows]), np.array([float(row.reward) for row in rows])
    for what, values in (("observation", obs), ("reward", rewards)):
        bad = ~np.isfinite(values).reshape(len(rows), -1).all(-1)
        if bad.any():
            row = rows[int(bad.argmax())]
            value = row.following.tolist() if what == "observation" else row.reward
            yield wrong(f"not every {what} is finite: step {row.time} of an episode gives {value}")
    beyond = np.maximum(np.maximum(space.low - obs, obs - space.high), 0)
    if np.isfinite(obs).all() and beyond.max() > 1e-6:
        step, entry = np.unravel_index(beyond.argmax(), beyond.shape)
        yield wrong(
            f"entry {entry} of an observation is {obs[step, entry]:.6g}, outside its space "
            f"[{space.low[entry]:.6g}, {space.high[entry]:.6g}]: widen the space, predictions are clipped to it",
        )
    dtype = np.asarray(rows[0].following).dtype
    if dtype != space.dtype:
        yield wrong(f"observations are {dtype}, their space is {space.dtype}: make them the same")


def _types(env: gym.Env, rows: list[Row]) -> Iterator[Finding]:
    row = rows[0]
    for name in ("terminated", "truncated"):
        if not isinstance(getattr(row, name), (bool, np.bool_)):
            yield wrong(f"{name} is a {type(getattr(row, name)).__name__}, not a bool")
    if np.ndim(row.reward) != 0:
        yield wrong(f"the reward has shape {np.shape(row.reward)}: it has to be a number")


def _ends(env: gym.Env, rows: list[Row]) -> Iterator[Finding]:
    ended, cut = ([row.time for row in rows if getattr(row, name)] for name in ("terminated", "truncated"))
    if len(ended) >= 3 and len(set(ended)) == 1 and ended[0] > 1:
        yield wrong(
            f"all {len(ended)} episodes ended with terminated=True after exactly {ended[0]} steps: a time limit is "
            "truncated=True, because the value of the last state is not zero",
        )
    if not ended and not cut and time_limit(env) is None and not isinstance(env, AgentView):
        yield Finding("note", "no episode ended by itself and there is no time limit: wrap with horizon=...")


def _seeds(env: gym.Env, rows: list[Row]) -> Iterator[Finding]:
    def play(seed: int) -> list[tuple]:
        generator = np.random.default_rng(1)
        rows = [(np.array(env.reset(seed=seed)[0]), 0.0)]
        for _ in range(REPLAYED):
            obs, reward, terminated, truncated, _ = env.step(_action(env, generator))
            rows.append((np.array(obs), float(reward)))
            if terminated or truncated:
                break
        return rows

    first, second = play(3), play(3)
    if not np.array_equal(first[0][0], second[0][0], equal_nan=True):
        yield wrong("reset(seed=3) gives different starts: call super().reset(seed=seed), draw from self.np_random")
        return
    for step, (one, other) in enumerate(zip(first, second, strict=False)):
        if not np.array_equal(np.append(*one), np.append(*other), equal_nan=True):
            yield wrong(
                f"after the same reset(seed=3) and the same actions step {step} differs by "
                f"{np.abs(one[0] - other[0]).max():.3g}: draw from self.np_random, and let reset clear the whole state",
            )
            return


def _known(env: ZeroSumEnv, base: gym.Env, steps: int) -> Iterator[Finding]:
    """The known reward and termination against the environment's own."""
    game: Any = env.game
    for name in game.learned:
        yield Finding("note", f"{name} is not known: the model will learn to predict it")
    transitions, rewards, ends = _played(env, steps)
    with jax.enable_x64(True):
        arrays = [jnp.asarray(x) for x in transitions]
        asked = {"reward": (rewards, game.reward, arrays), "terminated": (ends, game.terminated, arrays[3:])}
        answers = {name: (truth, _answer(name, function, inputs, len(rewards)))
                   for name, (truth, function, inputs) in asked.items() if name not in game.learned}  # fmt: skip
    for name, (truth, answer) in answers.items():
        if isinstance(answer, str):
            yield wrong(answer)
            continue
        error = np.abs(np.asarray(answer, float) - truth)
        error = np.where(np.isfinite(error), error, np.inf)
        worst = int(error.argmax())
        if error[worst] > TOLERANCE * max(1.0, float(np.abs(truth).max())):
            example = ", ".join(
                f"{label}={np.round(np.asarray(x[worst], float), 4).tolist()}"
                for label, x in zip(("obs", "executed", "adversary", "next_obs"), transitions, strict=True)
            )
            yield wrong(
                f"the {name} function disagrees with the environment on {int((error > TOLERANCE).sum())} of "
                f"{len(truth)} steps, by up to {error[worst]:.3g}: it says {float(answer[worst]):.6g}, the environment "
                f"{float(truth[worst]):.6g} at {example}",
            )
    low, high = (float(edge) for edge in game.reward_range)
    if rewards.min() < low - 1e-5 or rewards.max() > high + 1e-5:
        yield wrong(
            f"rewards from {rewards.min():.3g} to {rewards.max():.3g} leave the range ({low:.3g}, {high:.3g}): "
            "widen reward_range",
        )


def _played(env: ZeroSumEnv, steps: int) -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
    generator, rows = np.random.default_rng(2), []
    boxes, acts_once = env.boxes, env.game.scope == "episode"
    obs, against = None, env.neutral
    for _ in range(steps):
        if obs is None or not acts_once:
            against = generator.uniform(boxes["adversary"].low, boxes["adversary"].high).astype(np.float32)
        if obs is None:
            obs, _ = env.reset(seed=len(rows), options={"adversary": against} if acts_once else None)
        action = generator.uniform(boxes["agent"].low, boxes["agent"].high).astype(np.float32)
        following, reward, terminated, truncated, info = env.step({"agent": action, "adversary": against})
        rows.append((obs, info["executed_action"], against, following, reward, terminated))
        obs = None if terminated or truncated else following
    *transitions, rewards, ends = (np.stack(column) for column in zip(*rows, strict=True))
    return transitions, rewards, ends


def _answer(name: str, function: Any, inputs: list[jax.Array], n: int) -> np.ndarray | str:
    """What a known function says about a batch, or what is wrong with it."""
    try:
        answer = np.asarray(function(*inputs))
    except Exception as error:
        reason = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        return f"the {name} function fails on a batch of {n} steps ({reason}): index entries with x[..., i]"
    if answer.shape != (n,):
        shape = f"gives shape {answer.shape} for a batch of {n} steps, not ({n},)"
        return f"the {name} function {shape}: index with x[..., i]"
    return answer


def _neutral(env: ZeroSumEnv, base: gym.Env, steps: int) -> Iterator[Finding]:
    """A neutral adversary changes nothing, and another one something."""
    game, box = env.game, env.boxes["adversary"]
    if getattr(game, "mixture", None) or getattr(game, "kind", "") in ("noisy", "probabilistic"):
        return

    def play(value: np.ndarray) -> np.ndarray:
        generator, once = np.random.default_rng(3), game.scope == "episode"
        obs, rows = env.reset(seed=5, options={"adversary": value} if once else None)[0], []
        for _ in range(min(steps, REPLAYED)):
            obs, *_, terminated, truncated, _ = env.step({"agent": _action(base, generator), "adversary": value})
            rows.append(obs)
            if terminated or truncated:
                break
        return np.stack(rows)

    still = play(env.neutral)
    generator = np.random.default_rng(3)
    base.reset(seed=5)
    for step, obs in enumerate(still):
        expected = base.step(_action(base, generator))[0]
        if not np.array_equal(obs, expected):
            yield wrong(
                f"the neutral value {env.neutral.tolist()} changes step {step + 1} by "
                f"{np.abs(obs - expected).max():.3g}: apply(env, neutral) has to leave the environment as it was",
            )
            return
    extremes = [play(value) for value in (box.low, box.high) if not np.array_equal(value, env.neutral)]
    if extremes and all(len(x) == len(still) and np.array_equal(x, still) for x in extremes):
        yield Finding("note", f"the adversary has no effect within {len(still)} steps, even at the edges of its box")
