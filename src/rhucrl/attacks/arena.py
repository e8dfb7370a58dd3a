"""Where a policy meets its adversaries: episodes of the true game, side by side in JAX or step by step on the host.

What makes an adversary the worse one is the return; among equal returns, how far it drove the system from where the
episode began. A reward that is the same until the fall says nothing about how near the fall was.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from rhucrl.attacks.families import FAMILIES, AbstractFound, Member, member, respond, size
from rhucrl.attacks.planning import PlanningAdversary
from rhucrl.attacks.rollouts import Keys, Policy, rollout
from rhucrl.envs.game import Game, JaxGame
from rhucrl.envs.zero_sum_env import ZeroSumEnv
from rhucrl.errors import UsageError
from rhucrl.networks.policies import AbstractPolicy, Gaussian
from rhucrl.play import Trajectory, steps
from rhucrl.play import predict as predict_step

if TYPE_CHECKING:
    from rhucrl.attacks.workers import Workers

Adversary = Callable[[Any, Any], Any]  # of the observation and the step
Candidate = Adversary | AbstractFound
Score = tuple[float, float]

TOGETHER = 16  # episodes that one program plays side by side
SLACK = 1e-3  # an action may leave its box by so much of its width: rounding


class EpisodeResult(NamedTuple):
    """An episode's return, its steps, and the largest distance from its start in units of the game's scale."""

    gain: float
    steps: int
    excursion: float


def gains(arena: Arena, adversary: Candidate | None, seeds: Sequence[int]) -> list[float]:
    return [played.gain for played in arena.play([adversary], seeds)[0]]


def score(played: Sequence[EpisodeResult]) -> Score:
    """The lower, the worse for the policy."""
    return float(np.mean([row.gain for row in played])), -float(np.mean([row.excursion for row in played]))


class Actor:
    """A policy as a function of one observation after the other, with what it remembers of the episode."""

    def __init__(self, policy: Any, env: ZeroSumEnv, clip: bool = False):
        predict: Any = getattr(policy, "predict", None)
        if predict is None and not callable(policy):
            wrong = f"a {type(policy).__name__} is no policy"
            raise UsageError(f"{wrong}: give a function of observations, or with .predict")
        network: Any = getattr(policy, "policy", policy)
        plays: Any = policy
        if isinstance(network, Gaussian):
            plays, predict = network.on_host(), None
        elif isinstance(policy, AbstractPolicy):
            predict = lambda obs, state=None, deterministic=True: predict_step(policy, obs, state)  # noqa: E731
        elif isinstance(policy, eqx.Module):
            plays = eqx.filter_jit(plays)
        self._plays, self._predict, self._box, self._clip = plays, predict, env.boxes["agent"], clip
        self._forget: Any = getattr(policy, "reset", None)  # of a policy that also keeps a memory of its own
        self.memory: Any = None

    def reset(self) -> None:
        """An episode begins."""
        self.memory = None
        if self._forget is not None:
            self._forget()

    def __call__(self, obs: np.ndarray) -> np.ndarray:
        if self._predict is None:
            action = np.asarray(self._plays(obs))
        else:
            memory = {} if self.memory is None else {"state": self.memory}
            action, self.memory = self._predict(obs, deterministic=True, **memory)
            action = np.asarray(action)
        demand_action(action, obs, self._box, self._clip)
        return action


def demand_action(action: np.ndarray, obs: np.ndarray, box: Any, clip: bool) -> None:
    if action.shape != box.shape:
        raise UsageError(f"the policy's action has shape {action.shape}, not {box.shape}: return one action")
    if not np.isfinite(action).all():
        raise UsageError(f"the policy's action {action.tolist()} is not finite at the observation {obs.tolist()}")
    slack = SLACK * (box.high - box.low)
    if not clip and ((action < box.low - slack) | (action > box.high + slack)).any():
        wrong = f"the policy's action {action.tolist()} is outside {box.low.tolist()} to {box.high.tolist()}"
        raise UsageError(f"{wrong}: keep the policy inside, or let its actions be clipped (--clip, clip=True)")


def bound(adversary: Candidate | None, env: ZeroSumEnv, act: Actor) -> Adversary | None:
    """An adversary that plans has to meet the environment and the policy first."""
    return adversary.bind(env, act) if isinstance(adversary, AbstractFound) else adversary


class HostArena:
    """Episodes step by step, here or by other processes. `watch()` is called now and then."""

    def __init__(
        self, policy: Any, env: ZeroSumEnv, clip: bool = False, watch: Callable[[], None] = lambda: None,
        workers: Workers | None = None,
    ):  # fmt: skip
        if not isinstance(env, ZeroSumEnv):
            raise UsageError("this game's system runs on the host: give the environment that rhucrl.make or wrap made")
        self.env, self.act, self.watch, self._workers = env, Actor(policy, env, clip), watch, workers
        self._calm = env.at(0.0)

    @property
    def steps(self) -> int:
        return self.env.taken + self._calm.taken + (self._workers.steps if self._workers else 0)

    @property
    def cpu(self) -> float:
        """Seconds of all processes."""
        return time.process_time() + (self._workers.cpu if self._workers else 0.0)

    def play(self, adversaries: Sequence[Candidate | None], seeds: Sequence[int]) -> list[list[EpisodeResult]]:
        """Episodes against each adversary on each seed; None is nobody, on the system without its strength."""
        if self._workers:
            described = [one.described() if isinstance(one, AbstractFound) else None for one in adversaries]
            if all(described):
                return self._workers.play([row for row in described if row], seeds, self.watch)
        return [[self._one(adversary, seed) for seed in seeds] for adversary in adversaries]

    def _one(self, adversary: Candidate | None, seed: int) -> EpisodeResult:
        env = self._calm if adversary is None else self.env
        played = play(env, self.act, bound(adversary, env, self.act), seed)
        self.watch()
        return played


def play(env: ZeroSumEnv, act: Actor, adversary: Adversary | None, seed: int) -> EpisodeResult:
    """One episode; it ends where the environment ends it, or at the game's horizon."""

    def answer(obs: np.ndarray) -> np.ndarray:
        return env.neutral if adversary is None else adversary(obs, np.int32(env.time or 0))

    act.reset()
    path, gain = [], 0.0
    for step in steps(env, act, answer, seed):
        path += [step.following] if path else [step.obs, step.following]
        gain += step.reward
    moved = (np.asarray(path) - path[0]) / np.asarray(env.game.scale)
    return EpisodeResult(gain, len(path) - 1, float(np.sqrt(np.square(moved).sum(-1).max())))


class JaxArena:
    """Episodes side by side, in one compiled program; the policy is a pure batched JAX function."""

    def __init__(self, policy: Policy, env: ZeroSumEnv, clip: bool = False, watch: Callable[[], None] = lambda: None):
        self.env, self.act, self.watch = env, Actor(policy, env, clip), watch
        self.policy, self._clip, self._steps, self._sizes = policy, clip, 0, sizes_of(env.game)

    @property
    def steps(self) -> int:
        return self.env.taken + self._steps

    @property
    def cpu(self) -> float:
        return time.process_time()

    def play(self, adversaries: Sequence[Candidate | None], seeds: Sequence[int]) -> list[list[EpisodeResult]]:
        keys = jax.vmap(jax.random.key)(jnp.asarray(seeds, jnp.uint32))
        rows: list[list[EpisodeResult]] = []
        while len(rows) < len(adversaries):
            rows += self._some(adversaries[len(rows) :], keys)
            self.watch()
        self._steps += sum(played.steps for row in rows for played in row)
        return rows

    def _some(self, adversaries: Sequence[Candidate | None], keys: Keys) -> list[list[EpisodeResult]]:
        """Of the adversaries, the first ones that fit into one program."""
        first: Any = adversaries[0]
        game: Any = self.env.game
        if isinstance(first, PlanningAdversary):  # step by step
            seeds = np.asarray(jax.random.key_data(keys))[:, -1].tolist()
            return [[play(self.env, self.act, first.bind(self.env, self.act), seed) for seed in seeds]]
        if first is None:
            game, adversaries = game.nominal(), [member(game, "constant", np.zeros(game.adversary.size))]
        elif not isinstance(first, Member):
            return [self._checked(jax.device_get(episodes(game, self.policy, first, keys)))]
        few: Any = list(itertools.takewhile(lambda a: isinstance(a, Member), adversaries[:TOGETHER]))
        found = jax.device_get(against(game, self.policy, *encoded(few, self._sizes), keys))
        return [self._checked(jax.tree.map(lambda x, i=i: x[i], found)) for i in range(len(few))]

    def _checked(self, found: EpisodeDigest) -> list[EpisodeResult]:
        box = self.env.boxes["agent"]
        for action, obs in zip(found.odd, found.odd_at, strict=True):
            demand_action(action, obs, box, self._clip)
        columns = (x.tolist() for x in (found.gain, found.steps, found.excursion))
        return [EpisodeResult(*row) for row in zip(*columns, strict=True)]


class EpisodeDigest(NamedTuple):
    """What is to be known of episodes; `odd` is the action furthest from its box's centre, and where it was taken."""

    gain: Float[Array, " k"]
    steps: Array
    excursion: Float[Array, " k"]
    odd: Float[Array, "k q"]
    odd_at: Float[Array, "k p"]


@eqx.filter_jit
def episodes(game: JaxGame, policy: Policy, adversary: Adversary, keys: Keys) -> EpisodeDigest:
    return jax.vmap(lambda key: digest(game, rollout(game, policy, adversary, key)))(keys)


def sizes_of(game: Game) -> dict[str, int]:
    """The number of weights of each family's members; sequences have an action for every step."""
    return {name: size(game, name) for name in FAMILIES} | {"sequence": game.horizon * game.adversary.size}


def encoded(some: Sequence[Member], sizes: dict[str, int]) -> tuple[np.ndarray, np.ndarray]:
    """Members' families as numbers, and their weights, filled up to the same length."""
    codes, rows = np.zeros(TOGETHER, np.int32), np.zeros((TOGETHER, max(sizes.values())), np.float32)
    for i, one in enumerate(some):
        weights, wanted = one.weights, sizes[one.family]
        if weights.size < wanted:
            actions = weights.reshape(-1, one.low.size)
            weights = actions[np.arange(one.horizon) * len(actions) // one.horizon].ravel()
        codes[i], rows[i, :wanted] = list(FAMILIES).index(one.family), weights
    return codes, rows


@eqx.filter_jit
def against(game: JaxGame, policy: Policy, codes: Any, weights: Any, keys: Keys) -> EpisodeDigest:
    """Episodes against each of some members of families: one program for all, as policies take long to compile."""
    sizes, (low, high), codes, weights = sizes_of(game), game.adversary, jnp.asarray(codes), jnp.asarray(weights)

    def one(code: Array, weights: Array) -> EpisodeDigest:
        def adversary(obs: Array, time: Array) -> Array:
            seen, phase = obs / game.scale, time / game.horizon
            acts = [lambda w, n=name: respond(n, w[: sizes[n]], low, high, seen, phase) for name in FAMILIES]
            return jax.lax.switch(code, acts, weights)

        return episodes(game, policy, adversary, keys)

    return jax.vmap(one)(codes, weights)


def digest(game: JaxGame, path: Trajectory) -> EpisodeDigest:
    moved = jnp.square((path.obs - path.obs[0]) / game.scale).sum(-1)
    strange = jnp.abs(path.asked - (game.agent.low + game.agent.high) / 2).max(-1)
    odd = jnp.nan_to_num(strange, nan=jnp.inf).argmax()
    steps = game.horizon - game.terminated(path.obs).sum()
    return EpisodeDigest(path.reward.sum(), steps, jnp.sqrt(moved.max()), path.asked[odd], path.obs[odd])


Arena = HostArena | JaxArena


def arena(
    policy: Any, env: ZeroSumEnv, clip: bool = False, watch: Callable[[], None] = lambda: None,
    workers: Workers | None = None,
) -> Arena:  # fmt: skip
    """In JAX where the game and the policy are JAX's, otherwise on the host."""
    pure, in_time = getattr(policy, "policy", policy), getattr(policy, "budget_ms", None) is not None
    if isinstance(getattr(env, "game", None), JaxGame) and not in_time and is_pure(pure, env):
        return JaxArena(pure, env, clip, watch)
    return HostArena(policy, env, clip, watch, workers)


def is_pure(policy: Any, env: ZeroSumEnv) -> bool:
    """Whether a policy can be traced: it is a batched function of JAX arrays."""
    if not callable(policy):
        return False
    obs = jax.ShapeDtypeStruct((3, env.game.observation.size), jnp.float32)
    try:
        action = eqx.filter_eval_shape(policy, obs)
    except Exception:
        return False
    return getattr(action, "shape", None) == (3, env.game.agent.size)
