"""The policies that critics stand for: max-min look-ahead in the model.

A network that imitated them would round off what the critics' edges say; asking the model at execution keeps it.

A policy is a batched function of observations. One with a memory also has `fresh()`, the memory at the start of an
episode, and `act(memory, obs)`, the next memory and an action; an opponent that can `read` such a memory does.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from rhucrl.envs.game import Game
from rhucrl.errors import UsageError
from rhucrl.hallucination import hallucinate
from rhucrl.models.prediction import Model
from rhucrl.solvers.backup import Numbers, choose_eta, settle, slope, stateless, unit, value
from rhucrl.solvers.critic import Critic

HOLDS = (0.5, 0.25, 0.25)  # weights of holding a pair of candidates for 1, 2, 3 steps: a lambda-return, lambda = .5


class Player(eqx.Module):
    """What both players share: a critic of a hallucinated problem, and the means to look one step ahead in it."""

    game: Game
    model: Model
    critic: Critic
    sign: Array
    numbers: Numbers
    adversary: Float[Array, "k qbar"]

    def origin(self) -> Float[Array, " p"]:
        return self.game.starts(jax.random.key(0), 1)[0]

    def judge(self, obs: Float[Array, "*b p"], agent: Float[Array, "*b a q"]) -> Float[Array, "*b a k"]:
        """The value of every pair of candidates, averaged over how long it is held.

        Held, differences between pairs grow and the critic's noise does not; played once, nothing is lost of what a
        quick change of mind can win. Either alone loses games that the mean wins.
        """
        game, numbers = self.game, self.numbers
        gradient = slope(game, self.critic, obs, self.adversary)
        pairs = (*agent.shape[:-1], self.adversary.shape[0])
        agent = jnp.broadcast_to(agent[..., :, None, :], (*pairs, agent.shape[-1]))
        adversary = jnp.broadcast_to(self.adversary, (*pairs, self.adversary.shape[-1]))
        probability, executed = game.execute(agent, adversary)
        s = jnp.broadcast_to(obs[..., None, None, :], (*executed.shape[:-1], obs.shape[-1]))

        def step(carry: tuple[Array, Array, Array, Array], share: Array):
            s, total, weight, judged = carry
            prediction = self.model.predict(s, executed, adversary)
            eta = choose_eta(unit(game), prediction, gradient[..., None, :, :], self.sign, numbers.beta)
            following = game.project(hallucinate(prediction, eta, numbers.beta, None))
            total = total + weight * game.reward(s, executed, adversary, following)
            weight = weight * numbers.discount * (1 - game.over(following))
            judged = judged + share * (total + weight * value(game, self.critic, following, self.adversary))
            return (following, total, weight, judged), None

        zero = jnp.zeros(executed.shape[:-1])
        shares = jnp.array(HOLDS if executed.shape[0] == 1 else (1.0,))
        (*_, judged), _ = jax.lax.scan(step, (s, zero, zero + 1, zero), shares)
        return jnp.tensordot(probability, judged, 1)


class AgentPolicy(eqx.Module):
    """pi(s): the candidate with the best worst case."""

    player: Player
    candidates: Float[Array, "a q"]

    def __call__(self, obs: Float[Array, "*b p"]) -> Float[Array, "*b q"]:
        player = self.player
        q = player.judge(obs, jnp.broadcast_to(self.candidates, (*obs.shape[:-1], *self.candidates.shape)))
        weights = stateless(player.game, player.critic, player.origin(), player.adversary)
        return self.candidates[settle(player.game, q, weights)[0]]


class AdversaryPolicy(eqx.Module):
    """pibar(s): the candidate that is worst for the agent's action; of episode scope, one value for all states."""

    player: Player

    def __call__(self, obs: Float[Array, "*b p"], action: Float[Array, "*b q"]) -> Float[Array, "*b qbar"]:
        player = self.player
        if player.game.scope == "episode":
            worst = value(player.game, player.critic, player.origin(), player.adversary).argmin()
            return jnp.broadcast_to(player.adversary[worst], (*obs.shape[:-1], player.adversary.shape[-1]))
        return player.adversary[player.judge(obs, action[..., None, :])[..., 0, :].argmin(-1)]


def fresh(policy: Any) -> Any:
    """The memory of a policy at the start of an episode: nothing, for most."""
    return policy.fresh() if hasattr(policy, "fresh") else ()


def act(policy: Any, memory: Any, obs: Float[Array, " p"]) -> tuple[Any, Float[Array, " q"]]:
    return policy.act(memory, obs) if hasattr(policy, "act") else (memory, policy(obs))


def reply(opponent: Any, memory: Any, obs: Float[Array, " p"], action: Float[Array, " q"]) -> Float[Array, " qbar"]:
    """The opponent's answer to an agent that has acted, and has this memory of it."""
    return opponent.read(memory) if hasattr(opponent, "read") else opponent(obs, action)


def predict(
    policy: Any, obs: np.ndarray, memory: Any = None, episode_start: Any = None, noise: Any = None
) -> tuple[np.ndarray, Any]:
    """The action at one observation or a batch of them, and the memory after it; None begins an episode.

    `episode_start` says at which observations an episode begins: their memory is a fresh one. With `noise` a policy
    that is a distribution draws its action from it; every other action is the mode.
    """
    if not hasattr(policy, "fresh"):
        drawn = noise is not None and hasattr(policy, "sample")
        return np.asarray(_draw(policy, obs, noise) if drawn else _play(policy, obs)), memory
    begun = jax.tree.map(lambda x: jnp.broadcast_to(x, (*obs.shape[:-1], *x.shape)), fresh(policy))
    if memory is None:
        memory = begun
    elif episode_start is not None:
        starts = np.asarray(episode_start, bool).reshape(obs.shape[:-1])

        def renewed(new: Array, old: Array) -> Array:
            return jnp.where(starts.reshape(*starts.shape, *[1] * (new.ndim - starts.ndim)), new, old)

        memory = jax.tree.map(renewed, begun, memory)
    memory, action = _recall(policy, memory, obs)
    return np.asarray(action), memory


def checked(observation: Any, size: int) -> Float[np.ndarray, "*b p"]:
    """One observation or a batch of them, if it is one: a network would use what fits of any other, or pass NaN on."""
    try:
        obs = np.asarray(observation, np.float32)
    except (TypeError, ValueError):
        raise UsageError(f"a {type(observation).__name__} is no observation: give an array of {size} numbers") from None
    if obs.ndim not in (1, 2) or obs.shape[-1] != size:
        raise UsageError(f"the observation has shape {obs.shape}; this policy sees ({size},), or a batch of such")
    if not np.isfinite(obs).all():
        raise UsageError(f"the observation is not finite: {obs[~np.isfinite(obs).all(-1)].tolist() or obs.tolist()}")
    return obs


@jax.jit
def _play(policy: Any, obs: Array) -> Array:
    return policy(obs)


@jax.jit
def _draw(policy: Any, obs: Array, noise: Array) -> Array:
    return policy.sample(obs, noise)[0]


@jax.jit
def _recall(policy: Any, memory: Any, obs: Float[Array, "*b p"]) -> tuple[Any, Float[Array, "*b q"]]:
    step = policy.act
    for _ in obs.shape[:-1]:
        step = jax.vmap(step)
    return step(memory, obs)


class Nobody(eqx.Module):
    """The adversary that changes nothing."""

    neutral: Float[Array, " qbar"]

    def __call__(self, obs: Float[Array, "*b p"], action: Float[Array, "*b q"]) -> Float[Array, "*b qbar"]:
        return jnp.broadcast_to(self.neutral, (*obs.shape[:-1], self.neutral.shape[0]))
