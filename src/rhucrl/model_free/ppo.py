"""Proximal policy optimisation (Schulman et al. 2017) on whole episodes, for a player of either sign.

Actions are stored as the noise that made them: under the policy that played, it gives the action again.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from rhucrl.networks.layers import Perceptron
from rhucrl.networks.policies import Normaliser, heads
from rhucrl.runtime.compilation import compiled

adam: Any = optax.scale_by_adam()
CALM = -0.7  # logarithm of a policy's first standard deviation
EAGER = 3.0  # a critic's step size, in those of the policy


class PPOPlayer(NamedTuple):
    """A policy, its critic, and their optimisers."""

    actor: Perceptron
    critic: Perceptron
    optimisers: tuple[Any, Any]


class EpisodeBatch(NamedTuple):
    """Episodes, filled up to the horizon; `alive` is 1 where a step was taken, `ended` where the episode terminated."""

    obs: Float[Array, "n t+1 p"]
    noise: Float[Array, "n t q"]
    reward: Float[Array, "n t"]
    alive: Float[Array, "n t"]
    ended: Float[Array, "n t"]


class PPONumbers(NamedTuple):
    discount: Array
    trace: Array
    learning_rate: Array
    clip: Array
    divergence: Array


def begin(inputs: int, outputs: int, width: int, key: PRNGKeyArray) -> PPOPlayer:
    keys = jax.random.split(key)
    actor = Perceptron((inputs, width, width, 2 * outputs), keys[0])
    actor = eqx.tree_at(lambda net: net.layers[-1].bias, actor, jnp.repeat(jnp.array([0.0, CALM]), outputs))
    critic = Perceptron((inputs, width, width, 1), keys[1])
    return PPOPlayer(actor, critic, (adam.init(actor), adam.init(critic)))


def advantages(values: Float[Array, "n t+1"], played: EpisodeBatch, numbers: PPONumbers) -> Float[Array, "n t"]:
    """Generalised advantage estimates; an end is worth nothing, and where the time ran out the critic goes on."""
    goes_on = numbers.discount * (1 - played.ended)
    errors = played.reward + goes_on * values[:, 1:] - values[:, :-1]

    def back(later: Array, x: tuple[Array, Array, Array, Array]) -> tuple[Array, Array]:
        error, goes_on, alive, last = x
        advantage = alive * (error + jnp.where(last, 0.0, numbers.trace * goes_on * later))
        return advantage, advantage

    following = jnp.concatenate([played.alive[:, 1:], jnp.zeros_like(played.alive[:, :1])], 1)
    columns = (errors.T, goes_on.T, played.alive.T, (following == 0).T)
    return jax.lax.scan(back, jnp.zeros(errors.shape[0]), columns, reverse=True)[1].T


@compiled("passes")
def improve(
    player: PPOPlayer, normaliser: Normaliser, played: EpisodeBatch, weight: Float[Array, " n"], numbers: PPONumbers,
    passes: int,
) -> tuple[PPOPlayer, dict[str, Array]]:  # fmt: skip
    """At most `passes` full-batch steps of the policy, and as many of the critic; `weight` leaves episodes out."""
    obs, mask = played.obs[:, :-1], played.alive * weight[:, None]
    total = jnp.maximum(mask.sum(), 1)
    mean, log_std = heads(player.actor, normaliser, obs)
    raw = mean + jnp.exp(log_std) * played.noise
    before = density(mean, log_std, raw)
    gains = advantages(player.critic(normaliser(played.obs))[..., 0], played, numbers)
    goals = gains + player.critic(normaliser(obs))[..., 0]
    centre = (mask * gains).sum() / total
    spread = jnp.sqrt((mask * jnp.square(gains - centre)).sum() / total)
    gains = (gains - centre) / (spread + 1e-8)

    def objective(actor: Perceptron) -> tuple[Array, Array]:
        logratio = density(*heads(actor, normaliser, obs), raw) - before
        ratio = jnp.exp(logratio)
        gain = jnp.minimum(ratio * gains, ratio.clip(1 - numbers.clip, 1 + numbers.clip) * gains)
        moved = ratio - 1 - logratio  # never negative, and its mean is the divergence
        return -(mask * gain).sum() / total, (mask * moved).sum() / total

    def policy_step(carry: tuple) -> tuple:
        i, actor, optimiser, _, _ = carry
        (_, moved), gradient = jax.value_and_grad(objective, has_aux=True)(actor)
        descent, after = adam.update(gradient, optimiser)
        near = moved <= numbers.divergence
        moves = lambda new, old: jnp.where(near, new, old)  # noqa: E731
        stepped = jax.tree.map(lambda w, d: w - numbers.learning_rate * d, actor, descent)
        return i + 1, jax.tree.map(moves, stepped, actor), jax.tree.map(moves, after, optimiser), moved, near

    start = (jnp.int32(0), player.actor, player.optimisers[0], jnp.float32(0), jnp.bool_(True))
    taken, actor, first, moved, _ = jax.lax.while_loop(lambda x: (x[0] < passes) & x[4], policy_step, start)

    def error(critic: Perceptron) -> Array:
        return (mask * jnp.square(critic(normaliser(obs))[..., 0] - goals)).sum() / total

    def value_step(carry: tuple, _: None) -> tuple:
        critic, optimiser = carry
        loss, gradient = jax.value_and_grad(error)(critic)
        descent, optimiser = adam.update(gradient, optimiser)
        return (jax.tree.map(lambda w, d: w - EAGER * numbers.learning_rate * d, critic, descent), optimiser), loss

    (critic, second), losses = jax.lax.scan(value_step, (player.critic, player.optimisers[1]), length=passes)
    entropy = (mask * log_std.sum(-1)).sum() / total
    metrics = {"policy_steps": taken, "divergence": moved, "critic_loss": losses[0], "log_std": entropy}
    return PPOPlayer(actor, critic, (first, second)), metrics


def density(mean: Array, log_std: Array, raw: Array) -> Float[Array, "n t"]:
    """Logarithm of the normal density, up to what cancels in ratios."""
    return (-jnp.square((raw - mean) * jnp.exp(-log_std)) / 2 - log_std).sum(-1)
