"""The probabilistic ensemble (`ssec:model_learning`): heads that share nothing, so that they may disagree.

Each head predicts the normalised change of state as a Gaussian. The spread of the heads' means is the
epistemic uncertainty; the mean of their variances the aleatoric one.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from rhucrl import replay as store
from rhucrl.config import TrainConfig
from rhucrl.envs.game import Game
from rhucrl.models import calibration
from rhucrl.models.base import AbstractModel, Prediction
from rhucrl.networks.layers import affine, centred, smooth_gate, towards
from rhucrl.options import Ensemble
from rhucrl.replay import Replay, statistics
from rhucrl.runtime.compilation import compiled

SAME = 1e-6  # heads that agree are so far apart, in units of a change: at 0 a standard deviation has no gradient
FLOOR, CEILING = 1e-3, 1.0  # of the aleatoric standard deviation, in units of the change's own


class Heads(eqx.Module):
    """The weights of all heads, one matrix per head and layer."""

    first: Float[Array, "h d w"]
    first_bias: Float[Array, "h w"]
    hidden: Float[Array, "h w w"]
    hidden_bias: Float[Array, "h w"]
    deeper: tuple[tuple[Float[Array, "h w w"], Float[Array, "h w"]], ...]
    """The hidden layers behind the second."""
    last: Float[Array, "h w o"]
    last_bias: Float[Array, "h o"]
    log_std: Float[Array, "h 1 o"] | None
    """The same noise at every state, where means are learned with it."""
    normalised: bool = eqx.field(static=True)

    def __init__(self, inputs: int, outputs: int, options: Ensemble, key: PRNGKeyArray):
        heads, width, more = options.heads, options.width, options.layers - 2
        keys = jax.random.split(key, 3 + more)
        square = lambda key: jax.random.normal(key, (heads, width, width)) * jnp.sqrt(2 / width)  # noqa: E731
        last = outputs if options.noise == "constant" else 2 * outputs
        self.first = jax.random.normal(keys[0], (heads, inputs, width)) * jnp.sqrt(2 / inputs)
        self.first_bias = jnp.zeros((heads, width))
        self.hidden, self.hidden_bias = square(keys[1]), jnp.zeros((heads, width))
        self.deeper = tuple((square(key), jnp.zeros((heads, width))) for key in keys[3:])
        self.last = jax.random.normal(keys[2], (heads, width, last)) * jnp.sqrt(0.5 / width)
        self.last_bias = jnp.zeros((heads, last))
        self.log_std = None if options.noise == "state" else jnp.zeros((heads, 1, outputs))
        self.normalised = options.layer_norm

    def __call__(self, x: Float[Array, "h b d"]) -> tuple[Float[Array, "h b p"], Float[Array, "h b p"]]:
        """Mean and standard deviation of the normalised change: each head sees rows of its own."""
        for weight, bias in ((self.first, self.first_bias), (self.hidden, self.hidden_bias), *self.deeper):
            x = affine(x, weight, bias)
            x = smooth_gate(centred(x) if self.normalised else x)
        x = affine(x, self.last, self.last_bias)
        p, one = self.outputs, self.log_std
        raw = x[..., p:] if one is None or x.shape[-1] > p else jnp.broadcast_to(one, x.shape)
        return x[..., :p], deviation(raw)

    @property
    def outputs(self) -> int:
        return self.last.shape[-1] // 2 if self.log_std is None else self.log_std.shape[-1]

    def loss(self, x: Float[Array, "h b d"], y: Float[Array, "h b p"]) -> Float[Array, ""]:
        """Negative log-likelihood. Where a noise for all states and each state's own are learned, means follow their
        geometric mean (the beta-NLL of Seitzer et al. 2022, beta = 1/2): under each state's own, one that is hard to
        foresee excuses a mean that is wrong; under one for all, the calm states count for nothing."""
        mean, std = self(x)
        error, fixed = y - mean, jax.lax.stop_gradient
        if self.log_std is None or self.last.shape[-1] == self.outputs:
            return surprise(error, std).mean((-2, -1)).sum()
        usual = deviation(self.log_std)
        own = fixed(std / usual) * surprise(error, std)
        return (own + surprise(fixed(error), usual)).mean((-2, -1)).sum()


def surprise(error: Float[Array, "h b p"], std: Float[Array, "h _ p"]) -> Float[Array, "h b p"]:
    """Negative log-likelihood of errors under a Gaussian, but for a constant."""
    return jnp.square(error / std) / 2 + jnp.log(std)


def deviation(raw: Float[Array, "*b p"]) -> Float[Array, "*b p"]:
    return jnp.exp(soft_range(raw, jnp.log(FLOOR), jnp.log(CEILING)))


def soft_range(x: Array, low: Array, high: Array) -> Array:
    """x held in [low, high], with a gradient everywhere."""
    return low + (high - low) * (0.5 + 0.5 * jnp.tanh(x / 3))


class EnsembleModel(AbstractModel):
    """Heads with the statistics that normalise them and the temperature that calibrates them."""

    game: Game
    heads: Heads
    inputs: tuple[Array, Array]
    changes: tuple[Array, Array]
    temperature: Float[Array, ""]
    skip: Float[Array, "d p"] | None

    @property
    def members(self) -> int:
        return self.heads.hidden.shape[0]

    def each(self, obs: Array, executed: Array, adversary: Array) -> tuple[Array, Array]:
        """Mean and aleatoric standard deviation of the next observation, per head."""
        x = (self.game.model_input(obs, executed, adversary) - self.inputs[0]) / self.inputs[1]
        rows = x.reshape(-1, x.shape[-1])
        mean, std = self.change(jnp.broadcast_to(rows, (self.members, *rows.shape)))
        shape = (self.members, *x.shape[:-1], mean.shape[-1])
        return self.game.forget(obs) + mean.reshape(shape), std.reshape(shape)

    def divided(self, obs: Array, executed: Array, adversary: Array, shift: Array) -> tuple[Array, Array]:
        x = (self.game.model_input(obs, executed, adversary) - self.inputs[0]) / self.inputs[1]
        *batch, n, d = x.shape
        parts = jnp.moveaxis(x.reshape(*batch, self.members, n // self.members, d), -3, 0)
        change = self.change(jnp.roll(parts, -shift, 0).reshape(self.members, -1, d))
        mean, std = (jnp.roll(y.reshape(*parts.shape[:-1], -1), shift, 0) for y in change)
        mean, std = (jnp.moveaxis(y, 0, -3).reshape(*batch, n, -1) for y in (mean, std))
        return self.game.forget(obs) + mean, self.temperature * std

    def change(self, x: Float[Array, "h b d"]) -> tuple[Float[Array, "h b p"], Float[Array, "h b p"]]:
        """Mean and aleatoric standard deviation of the change of state, by each head of its own normalised inputs."""
        mean, std = self.heads(x)
        mean = mean if self.skip is None else mean + x @ self.skip
        return self.changes[0] + self.changes[1] * mean, self.changes[1] * std

    def predict(self, obs: Array, executed: Array, adversary: Array) -> Prediction:
        mean, std = self.each(obs, executed, adversary)
        apart = jnp.sqrt(mean.var(0) + jnp.square(SAME * self.changes[1]))
        return Prediction(mean.mean(0), self.temperature * apart, self.temperature * jnp.sqrt(jnp.square(std).mean(0)))

    def member(self, obs: Array, executed: Array, adversary: Array, index: Array) -> tuple[Array, Array]:
        mean, std = self.each(obs, executed, adversary)
        take = lambda x: jnp.take_along_axis(x, index[None, ..., None], 0)[0]  # noqa: E731
        return take(mean), self.temperature * take(std)

    def update(self, config: TrainConfig, memory: Any, replay: Replay, key: Array) -> tuple[EnsembleModel, Any, dict]:
        return learn(config, self, memory, replay, key)


def optimiser(options: Ensemble) -> optax.GradientTransformation:
    return optax.adamw(options.learning_rate, weight_decay=options.decay)


def create(config: TrainConfig, game: Game, key: PRNGKeyArray) -> tuple[EnsembleModel, optax.OptState]:
    """The model before any data and its optimiser; `linear`: its heads learn what a fitted linear map leaves over."""
    p, q, qbar = game.predicted_size, game.agent.size, game.adversary.size
    inputs = game.model_input(jnp.zeros(p), jnp.zeros(q), jnp.zeros(qbar)).shape[-1]
    unit = lambda n: (jnp.zeros(n), jnp.ones(n))  # noqa: E731
    skip = jnp.zeros((inputs, p)) if config.model.linear else None
    heads = Heads(inputs, p, config.model, key)
    model = EnsembleModel(game, jnp.float32(1.0), heads, unit(inputs), unit(p), skip)
    return model, optimiser(config.model).init(eqx.filter(heads, eqx.is_array))


@compiled("config")
def learn(
    config: TrainConfig, model: EnsembleModel, state: optax.OptState, replay: Replay, key: PRNGKeyArray
) -> tuple[EnsembleModel, optax.OptState, dict[str, Array]]:
    """Fit, and recalibrate on the data that were held out."""
    model, state, metrics = fit(
        eqx.tree_at(lambda m: m.temperature, model, jnp.float32(1)), state, replay, config.model, key
    )
    index, weight = store.validation(replay)
    data = jax.tree.map(lambda x: x[index], replay.data)
    temperature = calibration.temperature(model.predict(*data[:3]), data.following, weight)
    model = eqx.tree_at(lambda m: m.temperature, model, jnp.maximum(temperature, config.model.minimum_temperature))
    return model, state, metrics | {"temperature": temperature}


def fit(
    model: EnsembleModel, state: optax.OptState, replay: Replay, options: Ensemble, key: PRNGKeyArray
) -> tuple[EnsembleModel, optax.OptState, dict[str, Array]]:
    """Gaussian maximum likelihood, every head on a bootstrap sample of its own.

    At most so many `rounds` of gradient `steps`, or `epochs`; stops when the validation error passes 1.1 times its
    minimum, and restores the weights of the minimum (`ssec:model_learning`).
    """
    data, filled = replay.data, replay.filled
    raw = model.game.model_input(data.obs, data.executed, data.adversary)
    change = data.following - model.game.forget(data.obs)
    inputs, changes = statistics(raw, filled), statistics(change, filled)
    x, y = (raw - inputs[0]) / inputs[1], (change - changes[0]) / changes[1]
    skip = None if model.skip is None else ridge(x, y, filled * (1 - replay.held_out))
    y = y if skip is None else y - x @ skip
    adam, members, steps = optimiser(options), model.members, options.steps
    samples, sizes = store.bootstrap(replay)
    rounds = options.rounds if options.epochs is None else options.epochs * sizes.max() // (steps * options.batch) + 1

    judges, present = store.validation(replay)

    def validation(heads: Heads) -> Array:
        rows = jnp.broadcast_to(x[judges], (members, *judges.shape, x.shape[-1]))
        error = jnp.square(heads(rows)[0].mean(0) - y[judges]).mean(-1)
        return present @ error / jnp.maximum(present.sum(), 1)

    def step(carry, key):
        heads, averaged, state = carry
        index = jnp.take_along_axis(samples, jax.random.randint(key, (members, options.batch), 0, sizes[:, None]), 1)
        change, state = adam.update(jax.grad(Heads.loss)(heads, x[index], y[index]), state, heads)
        heads = jax.tree.map(jnp.add, heads, change)
        return (heads, towards(averaged, heads, options.average_rate), state), None

    def one_round(carry):
        i, learning, best, error, least = carry
        learning, _ = jax.lax.scan(step, learning, jax.random.split(jax.random.fold_in(key, i), steps))
        error = validation(averaged := learning[1])
        best = jax.tree.map(lambda new, old: jnp.where(error <= least, new, old), averaged, best)
        return i + 1, learning, best, error, jnp.minimum(least, error)

    def going_on(carry):
        i, *_, error, least = carry
        return (i < rounds) & ((i == 0) | (error <= 1.1 * least))

    learning = model.heads, model.heads, state
    carry = (jnp.int32(0), learning, model.heads, validation(model.heads), jnp.float32(jnp.inf))
    done, (*_, state), best, _, least = jax.lax.while_loop(going_on, one_round, carry)
    fitted = dataclasses.replace(model, heads=best, inputs=inputs, changes=changes, skip=skip)
    return fitted, state, {"fit_steps": done * steps, "validation_error": jnp.sqrt(least)}


def ridge(x: Float[Array, "n d"], y: Float[Array, "n p"], weight: Float[Array, " n"]) -> Float[Array, "d p"]:
    """The linear map with the least weighted squared error and a small prior on zero."""
    weighted = x.T * weight
    return jnp.linalg.solve(weighted @ x + jnp.eye(x.shape[1]), weighted @ y)
