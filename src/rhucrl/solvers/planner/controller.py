"""A controller today, without training networks: plans in a model that is known or has been learned."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from rhucrl.algorithms import ALGORITHMS
from rhucrl.envs.game import Game
from rhucrl.envs.zero_sum_env import ZeroSumEnv
from rhucrl.errors import UsageError, unknown
from rhucrl.models.base import AbstractModel
from rhucrl.models.known import KnownModel
from rhucrl.options import LookAhead, RecedingHorizon
from rhucrl.play import checked, predict
from rhucrl.runtime.compilation import enable_cache
from rhucrl.solvers.planner import search as planning
from rhucrl.solvers.planner.search import Planning, Size, Thought

VALUED = 3  # steps of a plan with a value at its end: what follows a step is a value's business, which can react
BETA: Any = RecedingHorizon.beta
LEARNED = Size(RecedingHorizon.steps, RecedingHorizon.samples)
FEWEST = 10 * planning.RIVALS  # samples: ten plans of the agent
WARMING = 5  # steps until everything is compiled and timed
SLACK = 0.9  # of what would just fit is taken: another measurement may be slower
SHARE = 0.95  # of the budget that the search may take: copying and the call itself take the rest


class Planner:
    """A receding-horizon robust controller: `predict(observation)` plans, and plays the first action of the plan.

    `model` is a learned one (an agent's `model`, or the agent), or None: then the game's own dynamics, where it gives
    them. `algo` names the row of the algorithm table that it plans as: "h-ucrl" plans without an adversary. `value` is
    a batched function of observations that is added at the end of a plan, such as an agent's `value`; plans are then
    of three steps by default. With `budget_ms` a step searches as long as that allows, instead of `rounds` rounds:
    results then depend on the machine's speed. In a learned model, where a step costs more, plans are shorter and
    fewer by default. `discount` is by default .99, with a value that of the pendulum's critics.
    """

    def __init__(
        self, env: Any, model: AbstractModel | Any | None = None, algo: str = "rh-ucrl", *, value: Any = None,
        horizon: int | None = None, samples: int | None = None, elite: float | None = None, rounds: int | None = None,
        budget_ms: float | None = None, discount: float | None = None, beta: float = BETA, seed: int = 0,
    ):  # fmt: skip
        if algo not in ALGORITHMS:
            raise unknown("algorithm that plans", algo, ALGORITHMS)
        self.env: ZeroSumEnv = env if hasattr(env, "game") else ZeroSumEnv(env)
        enable_cache()
        limits = getattr(model, "limits", None)
        world: Any = getattr(model, "model", model) or KnownModel(self.game)
        row, known = ALGORITHMS[algo], isinstance(world, KnownModel)
        signs = (0, 0) if known else (row.agent_eta, row.response_eta)
        if discount is None:
            discount = RecedingHorizon.discount if value is None else LookAhead.discount
        numbers = jnp.float32(beta), jnp.float32(discount), jnp.int32(seed)
        given = {"horizon": horizon, "samples": samples, "elite": elite, "rounds": rounds}
        usual = Size() if known else LEARNED
        usual = usual if value is None else usual._replace(horizon=VALUED)
        size = demanded(self.game, known, usual._replace(**{k: v for k, v in given.items() if v is not None}))
        self.policy = Planning(self.game, world, *numbers, limits, value, size, *signs, row.opponent)
        self._start(budget_ms)

    @classmethod
    def of(cls, env: ZeroSumEnv, policy: Planning, budget_ms: float | None = None) -> Planner:
        """The controller of a policy that plans, such as that of a run with `--solver planner`."""
        its = object.__new__(cls)
        its.env, its.policy = env, policy
        its._start(budget_ms)
        return its

    def _start(self, budget_ms: float | None) -> None:
        self.budget_ms = budget_ms
        self._thought: Any = None
        self._pace, self._after = [0.0, 0.0], 0.0
        if budget_ms is not None:
            self._make_room(budget_ms)

    @property
    def game(self) -> Game:
        return self.env.game

    def __call__(self, obs: Array) -> Array:
        return self.policy(obs)

    def reset(self) -> None:
        """An episode begins: forget the plan."""
        self._thought = None

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = False
    ) -> tuple[np.ndarray, Any]:
        """The action at one observation or a batch of them, and the thought behind it.

        Give the thought to the next call; without it the planner goes on from its last one, until `reset()`. Where
        `episode_start` is true it begins anew. A plan has no noise: `deterministic` changes nothing.
        """
        obs = checked(observation, self.game.observation.size)
        same = self._thought is not None and self._thought.time.shape == obs.shape[:-1]
        thought = state if state is not None else self._thought if same else None
        if self.budget_ms is None:
            action, self._thought = predict(self.policy, obs, thought, episode_start)
        else:
            begins = episode_start is not None and bool(np.any(episode_start))
            action, self._thought = self._in_time(obs, None if begins else thought, self.budget_ms)
        return action, self._thought

    def _in_time(self, obs: np.ndarray, thought: Any, budget_ms: float) -> tuple[np.ndarray, Thought]:
        """Half of the time for each phase, in calls of as many rounds as are sure to fit."""
        if obs.ndim > 1:
            raise UsageError("budget_ms is for one observation at a time: leave it out to plan for a batch")
        start, thought = time.perf_counter(), self.policy.fresh() if thought is None else thought
        search = jax.block_until_ready(_begin(self.policy, thought, obs))
        for phase, program in enumerate((_pursue, _respond)):
            end, done = start + (SHARE * budget_ms / 1000 - self._after) * (phase + 1) / 2, 0
            while (fitting := self._rounds(phase, end)) or not done:
                rounds, before = max(1, (fitting + 1) // 2), time.perf_counter()
                search = jax.block_until_ready(program(self.policy, search, done, rounds))
                took, done = (time.perf_counter() - before) / rounds, done + rounds
                self._pace[phase] = max(took, 0.9 * self._pace[phase])
        begun = time.perf_counter()
        thought, action = jax.block_until_ready(_conclude(self.policy, thought, search))
        self._after = max(time.perf_counter() - begun, 0.9 * self._after)
        return np.asarray(action), thought

    def _rounds(self, phase: int, end: float) -> int:
        """How many rounds are sure to fit; 0 before one has been timed."""
        pace = self._pace[phase]
        return max(0, int((end - time.perf_counter()) / pace)) if pace else 0

    def _make_room(self, budget_ms: float) -> None:
        """Compile, measure a round of each phase, and take fewer samples where two rounds of each do not fit."""
        while (needed := 2 * sum(self._paces(budget_ms))) > SHARE * budget_ms / 1000:
            size = self.policy.size
            least = 1000 * needed / SHARE / SLACK * FEWEST / size.samples
            fewer = int(FEWEST * budget_ms / least) // planning.RIVALS * planning.RIVALS
            if fewer < FEWEST:
                raise UsageError(f"budget_ms is {budget_ms:g}; with this model a step takes at least {least:.1f} ms")
            self.policy = dataclasses.replace(self.policy, size=size._replace(samples=fewer))

    def _paces(self, budget_ms: float) -> list[float]:
        """Seconds that a round of each phase takes once everything is compiled."""
        obs, thought = np.asarray(self.game.starts(jax.random.key(0), 1)[0]), self.policy.fresh()
        paces = []
        for _ in range(WARMING):
            self._pace, self._after = [0.0, 0.0], 0.0
            _, thought = self._in_time(obs, thought, budget_ms)
            paces.append(self._pace)
        self._pace = np.min(paces, 0).tolist()
        return self._pace


def demanded(game: Game, known: bool, size: Size) -> Size:
    """The size, if a search of that size makes sense and the game can be planned in."""
    if known:
        game.dynamics(game.starts(jax.random.key(0), 1)[0], game.agent.low, game.neutral)
    least = Size(2, FEWEST, 0.0, 1)
    for name, given, low in zip(Size._fields, size, least, strict=True):
        if given < low or (name == "elite" and not 0 < given <= 1):
            raise UsageError(f"{name} is {given}; it must be {'in (0, 1]' if name == 'elite' else f'at least {low}'}")
    return size


@jax.jit
def _conclude(policy: Planning, thought: Thought, search: planning.Search) -> tuple[Thought, Array]:
    after = planning.conclude(policy, thought, search)
    return after, policy.action(after)


_begin, _pursue, _respond = jax.jit(planning.begin), jax.jit(planning.pursue), jax.jit(planning.respond)
