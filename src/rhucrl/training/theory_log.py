"""The theory's log of a run with a Gaussian process: what each episode adds to it, and what the bounds then say."""

from __future__ import annotations

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from rhucrl.config import TrainConfig
from rhucrl.envs.game import chosen, join
from rhucrl.models.gaussian_process.model import GaussianProcessModel, PosteriorMemory, anywhere, doubled, scale
from rhucrl.replay import Replay, draw
from rhucrl.runtime.compilation import compiled
from rhucrl.theory import bounds as theory
from rhucrl.theory.bounds import Lipschitz

PLACES = 192  # at which the information could have been gained
NEIGHBOURS = 128  # pairs of states that Lipschitz constants are estimated from
APART = 0.05  # of the observation's scale: the distance in such a pair


def write(config: TrainConfig, state: Any, earned: Array | None) -> tuple[Any, dict[str, Any]]:
    """The regret and the bounds after an episode, and the next one's beta_t; `earned` is None of random actions."""
    model, memory, metrics = state.model, state.model_optimiser, {}
    width = config.solver.beta if isinstance(config.solver.beta, float | int) else float(model.temperature)
    if config.solver.beta == "theory":
        model = calibrated(config, model, memory.model)
    if earned is not None and config.model.oracle is not None:
        missed = memory.regret + config.model.oracle - earned
        memory = memory._replace(regret=missed, episodes=memory.episodes + 1)
        metrics = {"regret": float(missed), "regret_average": float(missed / memory.episodes)}
    state = state._replace(model=model, model_optimiser=memory)
    return state, metrics | {"beta": width} | balance(config, state, width)


def calibrated(config: TrainConfig, model: GaussianProcessModel, memory: PosteriorMemory) -> GaussianProcessModel:
    """The model with beta_t of the next episode as its temperature; the sequence does not decrease."""
    ridge, gained, outputs = float(memory.ridge), float(memory.information), model.game.predicted_size
    beta = theory.beta_t(config.model.norm, float(model.noise), ridge, config.model.delta, gained, outputs)
    return eqx.tree_at(lambda g: g.temperature, model, jnp.maximum(model.temperature, jnp.float32(beta)))


def balance(config: TrainConfig, state: Any, width: float) -> dict[str, float]:
    """The bounds after this episode, each with the constants that it was computed with."""
    model, memory = state.model, state.model_optimiser
    game, ridge, n = model.game, float(memory.model.ridge), int(memory.model.seen)
    horizon, episodes, gained = game.horizon, math.ceil(n / game.horizon), float(memory.model.information)
    z = np.asarray(places(game), np.float64)
    most = max(theory.information_bound(doubled(model.kernel)(z, z), n, ridge), gained)
    complexity = theory.log_complexity_bound(most, ridge, horizon, float(jnp.square(model.signal).sum()))
    given = Lipschitz(*map(float, config.model.lipschitz or steepest(state.last, model, state.replay)))
    metrics = {f"lipschitz_{name}": value for name, value in given._asdict().items()}
    return metrics | {
        "information_gain": gained, "information_bound": most,
        "log10_Gamma": math.log10(max(float(memory.uncertainty), 1e-30)), "log10_Gamma_bound": complexity,
        "log10_regret_bound": theory.log_regret_bound(given, width, horizon, episodes, complexity),
        "log10_episodes_needed": theory.log_episodes(given, width, horizon, complexity, config.model.epsilon),
    }  # fmt: skip


places = jax.jit(lambda game: anywhere(game, PLACES, 2.0, jax.random.key(0)))


@compiled(often=False)
def steepest(pair: Any, model: GaussianProcessModel, replay: Replay) -> tuple[Array, ...]:
    """The steepest of mu, sigma, policies and reward, between neighbouring states that were met and others near them.

    The largest of many difference quotients is not above the constant of a continuous function. Policies that choose
    among candidates jump, and no constant holds for them; the quotient at this distance is what is reported.
    """
    game, keys = model.game, jax.random.split(jax.random.key(0), 4)
    obs = replay.data.obs[draw(replay, NEIGHBOURS, keys[0])]

    def beside(x: Array, size: Array, key: PRNGKeyArray) -> Array:
        return x + APART * size * jax.random.normal(key, x.shape)

    near = game.project(beside(obs, scale(game), keys[1]))
    action, others = pair.policy(obs), pair.policy(near)
    answers, replies = pair.response(obs, action), pair.response(near, others)
    half = [(box.high - box.low) / 2 for box in (game.agent, game.adversary)]
    moved = beside(action, half[0], keys[2]), beside(answers, half[1], keys[3])
    here, there = (obs, action, answers), (near, *moved)

    def quotient(one: Array, other: Array, apart: Array) -> Array:
        change = jnp.linalg.norm((one - other).reshape(NEIGHBOURS, -1), axis=-1)
        return (change / jnp.maximum(apart, 1e-9)).max()

    def of(place: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        o, action, adversary = place
        executed = chosen(game.execute(action, adversary), jnp.zeros(NEIGHBOURS))
        mean, deviation, _ = model.predict(o, executed, adversary)
        return mean, deviation / model.temperature, game.reward(o, executed, adversary, mean)

    step, between = jnp.linalg.norm(obs - near, axis=-1), jnp.linalg.norm(join(*here) - join(*there), axis=-1)
    mean, deviation, reward = (quotient(a, b, between) for a, b in zip(of(here), of(there), strict=True))
    return mean, deviation, quotient(action, others, step), quotient(answers, replies, step), reward
