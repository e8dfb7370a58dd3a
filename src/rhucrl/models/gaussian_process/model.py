"""The Gaussian process (`section:gp_models`) behind the same face as the ensemble.

One kernel matrix serves all outputs; each output has its own signal, the standard deviation of its changes before any
data. The posterior is computed on the host in double precision (`posterior.py`); what predicts is its
single-precision shadow of fixed size: points, weights and factor, with zeros where there is no point yet.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, UInt32

from rhucrl.config import TrainConfig
from rhucrl.envs.game import Game, JaxGame
from rhucrl.errors import UsageError
from rhucrl.models.base import AbstractModel, Prediction
from rhucrl.models.gaussian_process import posterior
from rhucrl.models.gaussian_process.kernels import Kernel
from rhucrl.models.gaussian_process.likelihood import LOWEST, fit
from rhucrl.replay import Replay
from rhucrl.runtime.compilation import compiled

INPUTS = 12  # a kernel of more inputs needs more data than a Gaussian process can hold
MEMBERS, WAVES = 5, 64
BLOCKS = 4  # of rows of the triangular factor; what lies above a block is not multiplied
FINEST = 1e-6  # the least variance in units of the signal's: differences of single-precision numbers below it are noise
SPAN = 1024  # draws of inputs that show their range


class GaussianProcessModel(AbstractModel):
    """mu and sigma of the next observation; the temperature of sigma is beta_t where the theory gives it, else 1."""

    game: Game
    kernel: Kernel
    points: Float[Array, "m d"]
    weights: Float[Array, "m p"]
    factor: Float[Array, "m m"]
    signal: Float[Array, " p"]
    noise: Float[Array, ""]
    """Standard deviation of the noise, in units of the signal."""
    temperature: Float[Array, ""]
    waves: tuple[Float[Array, "d w"], Float[Array, " w"], Float[Array, "h w p"]]

    @property
    def members(self) -> int:
        return self.waves[2].shape[0]

    def at(self, z: Float[Array, "n d"]) -> tuple[Float[Array, "n p"], Float[Array, " n"]]:
        """Posterior mean and standard deviation of the change, both in units of the signal."""
        k, m = self.kernel(z, self.points), self.points.shape[0]
        edges = [m * i // BLOCKS for i in range(BLOCKS + 1)]
        seen = sum(
            jnp.square(k[:, :end] @ self.factor[begin:end, :end].T).sum(-1) for begin, end in itertools.pairwise(edges)
        )
        return k @ self.weights, jnp.sqrt(jnp.maximum(self.kernel.diagonal(z) - seen, FINEST))

    def inputs(self, obs: Array, executed: Array, adversary: Array) -> tuple[Float[Array, "n d"], tuple[int, ...]]:
        z = self.game.model_input(obs, executed, adversary)
        return z.reshape(-1, z.shape[-1]), z.shape[:-1]

    def predict(self, obs: Array, executed: Array, adversary: Array) -> Prediction:
        z, batch = self.inputs(obs, executed, adversary)
        mean, std = self.at(z)
        change = self.signal * mean.reshape(*batch, -1)
        epistemic = self.temperature * std.reshape(*batch, 1) * self.signal
        aleatoric = jnp.full_like(change, 1) * self.noise * self.signal
        return Prediction(self.game.forget(obs) + change, epistemic, aleatoric)

    def member(self, obs: Array, executed: Array, adversary: Array, index: Array) -> tuple[Array, Array]:
        """mu + sigma eps_i: eps_i is one of a few fixed smooth random functions of mean 0 and variance 1.

        At every input a member is a draw of the posterior there; between inputs it varies as the waves do.
        """
        (z, batch), (frequency, phase, height) = self.inputs(obs, executed, adversary), self.waves
        mean, std = self.at(z)
        wave = jnp.cos((z - self.kernel.centre) / self.kernel.half @ frequency + phase)
        which = jnp.broadcast_to(index, batch).reshape(-1)
        eps = jnp.take_along_axis(jnp.einsum("nw,hwp->hnp", wave, height), which[None, :, None], 0)[0]
        change = self.signal * (mean + std[:, None] * eps).reshape(*batch, -1)
        return self.game.forget(obs) + change, jnp.full_like(change, 1) * self.noise * self.signal

    def divided(self, obs: Array, executed: Array, adversary: Array, shift: Array) -> tuple[Array, Array]:
        n = obs.shape[-2]
        index = (jnp.arange(n) * self.members // n - shift) % self.members
        return self.member(obs, executed, adversary, jnp.broadcast_to(index, obs.shape[:-1]))

    def update(
        self, config: TrainConfig, memory: GaussianProcessMemory, replay: Replay, key: PRNGKeyArray
    ) -> tuple[GaussianProcessModel, GaussianProcessMemory, dict[str, Any]]:
        """The posterior of all data in the replay; the hyper-parameters are fitted whenever the data have doubled."""
        old, n, capacity = memory.model, int(replay.size), config.model.points
        met = memory.uncertainty + uncertainty(self, replay, old.seen)
        z, change = (np.asarray(x, np.float64)[:n] for x in observed(self.game, replay))
        count, rows, inverse = int(old.count), np.asarray(old.rows), doubles(old.inverse)
        kernel, ridge, signal = doubled(self.kernel), float(old.ridge), np.asarray(self.signal, np.float64)
        if due := config.model.kernel_fit and n >= 2 * int(old.fitted):
            kernel, ridge, signal = fitted(config, self.game, kernel, ridge, z, change)
            count = 0
        y = change / signal
        if n <= capacity:
            fresh = np.arange(count, n)
            across, corner = kernel(z[:count], z[fresh]), kernel(z[fresh], z[fresh])
            small = posterior.grow(inverse[:count, :count], across, corner, ridge)
            rows, after = np.arange(n), posterior.exact(small, y, ridge)
        else:
            candidates = np.arange(n) if due or not count else np.union1d(rows[:count], np.arange(int(old.seen), n))
            least = posterior.NEGLIGIBLE * ridge
            rows, small = candidates[posterior.greedy(kernel, z[candidates], capacity, least)], np.zeros((0, 0))
            after = posterior.project(kernel, z[rows], z, y, ridge)
        m = len(rows)
        noise = np.sqrt(ridge) if config.model.ridge == "noise" else config.model.noise
        model = shadow(self, kernel, signal, z[rows], after, noise)
        new = old._replace(
            inverse=words(padded(small, (capacity, capacity))), rows=jnp.asarray(padded(rows, (capacity,)), jnp.int32),
            count=jnp.int32(m), seen=jnp.int32(n), fitted=jnp.int32(n) if due else old.fitted, ridge=jnp.float32(ridge),
            information=jnp.float32(after.information),
        )  # fmt: skip
        return model, memory._replace(model=new, uncertainty=met), {"points": m, "ridge": ridge}


class PosteriorMemory(NamedTuple):
    """What the next update needs beyond the model, bit for bit."""

    inverse: UInt32[Array, "m 2*m"]
    """L^-1 in double precision, as pairs of words: JAX's own doubles are off."""
    rows: Int[Array, " m"]
    """Where the points are in the replay, one after the other."""
    count: Int[Array, ""]
    """How many points there are."""
    seen: Int[Array, ""]
    """How many data have been used."""
    fitted: Int[Array, ""]
    """How many there were when the hyper-parameters were fitted."""
    ridge: Float[Array, ""]
    """lambda, in units of the signal's variance."""
    information: Float[Array, ""]
    """The realised information gain of one output (`eq:info_gain_gp`)."""


class GaussianProcessMemory(NamedTuple):
    """The posterior's own memory, and the theory's sums over the episodes so far."""

    model: PosteriorMemory
    uncertainty: Float[Array, ""]
    """Sum of |sigma_{t-1}|^2 over all data: `eq:complexity_measure` of what was met."""
    regret: Float[Array, ""]
    episodes: Float[Array, ""]
    """Episodes that the regret counts: those with a selected policy."""


def create(config: TrainConfig, game: Game, key: Array) -> tuple[GaussianProcessModel, GaussianProcessMemory]:
    """The prior, and a memory without data."""
    demand(config, game)
    p, m = game.predicted_size, config.model.points
    low, high = span(game, key)
    d = low.shape[0]
    lengths = jnp.broadcast_to(jnp.array(config.model.lengthscale, jnp.float32), d)
    kernel = Kernel((low + high) / 2, (high - low) / 2, lengths, jnp.ones(d), jnp.float32(0.5), config.model.kernel)
    keys = jax.random.split(key, 3)
    heights = jax.random.normal(keys[2], (MEMBERS, WAVES, p)) * np.sqrt(2 / WAVES)
    waves = jax.random.normal(keys[0], (d, WAVES)) / lengths[:, None], jax.random.uniform(keys[1], (WAVES,)) * 2 * np.pi
    signal = config.model.signal * jnp.broadcast_to(scale(game), p)
    blank = jnp.zeros((m, d)) + kernel.centre, jnp.zeros((m, p)), jnp.zeros((m, m))
    noise = jnp.float32(config.model.noise)
    model = GaussianProcessModel(game, jnp.float32(1), kernel, *blank, signal, noise, (*waves, heights))
    given = p * game.horizon if config.model.ridge == "theory" else max(config.model.noise**2, LOWEST)
    empty = jnp.zeros((m, 2 * m), jnp.uint32), jnp.zeros(m, jnp.int32)
    zero = jnp.int32(0)
    memory = PosteriorMemory(*empty, zero, zero, zero, jnp.float32(given), jnp.float32(0))  # lambda until one is fitted
    return model, GaussianProcessMemory(memory, *jnp.zeros(3))


def scale(game: Game) -> Float[Array, " p"]:
    return jnp.concatenate([game.scale, jnp.ones(len(game.learned))])


def anywhere(game: Game, n: int, reach: float, key: Array) -> Float[Array, "n d"]:
    """Inputs all over their range; with a reach of more than 1 the players' extremes are among them."""
    keys = jax.random.split(key, 3)
    units = [jax.random.uniform(k, (n, box.size), minval=-reach, maxval=reach).clip(-1, 1)
             for k, box in zip(keys[1:], (game.agent, game.adversary), strict=True)]  # fmt: skip
    return game.model_input(game.sample(keys[0], n), game.agent.place(units[0]), game.adversary.place(units[1]))


def span(game: Game, key: Array) -> tuple[Float[Array, " d"], Float[Array, " d"]]:
    """The range of the model's inputs: of a game on the host, whose states are not known, that of its starts."""
    z = anywhere(game, SPAN, 1.0, key)
    low, high = z.min(0), z.max(0)
    return jnp.where(high - low > 1e-6, low, low - 1), jnp.where(high - low > 1e-6, high, high + 1)


def demand(config: TrainConfig, game: Game) -> None:
    """Refuse what a Gaussian process cannot learn."""
    p, q, qbar = (jnp.zeros(n) for n in (game.predicted_size, game.agent.size, game.adversary.size))
    inputs = game.model_input(p, q, qbar).shape[-1]
    if inputs > INPUTS:
        many = f"--model gp is for systems of at most {INPUTS} inputs, {config.env} has {inputs}"
        raise UsageError(f"{many}: use --model ensemble")
    if len(config.model.lengthscale) not in (1, inputs):
        given = len(config.model.lengthscale)
        raise UsageError(f"--lengthscale has {given} numbers; give one, or {inputs}, one per input")
    if not config.model.kernel_fit and not isinstance(game, JaxGame):
        raise UsageError("--no-kernel-fit needs a system whose range of states is known: leave the fit on")


@compiled()
def uncertainty(model: GaussianProcessModel, replay: Replay, seen: Int[Array, ""]) -> Float[Array, ""]:
    """Sum of |sigma|^2 over an episode that the model has not seen yet."""
    rows = jnp.arange(model.game.horizon)
    obs, executed, adversary, _ = jax.tree.map(lambda x: x[seen + rows], replay.data)
    epistemic = model.predict(obs, executed, adversary).epistemic / model.temperature
    return (seen + rows < replay.size) @ jnp.square(epistemic).sum(-1)


@jax.jit
def observed(game: Game, replay: Replay) -> tuple[Float[Array, "n d"], Float[Array, "n p"]]:
    """Inputs and changes."""
    data = replay.data
    return game.model_input(data.obs, data.executed, data.adversary), data.following - game.forget(data.obs)


def fitted(config: TrainConfig, game: Game, kernel: Kernel, ridge: float, z: np.ndarray, change: np.ndarray) -> Any:
    """Hyper-parameters of the data; a system whose range is not known is measured by what has been seen of it."""
    if not isinstance(game, JaxGame):
        low, high = z.min(0), z.max(0)
        half = np.where(high - low > 1e-6, (high - low) / 2, 1.0)
        kernel = eqx.tree_at(lambda k: (k.centre, k.half), kernel, ((low + high) / 2, half))
    hypers = fit(kernel, min(ridge, 1.0), z, change)
    single = doubled(jax.tree.map(np.float32, hypers.kernel))  # as it is kept
    ridge = ridge if config.model.ridge == "theory" else float(np.float32(hypers.ridge))
    return single, ridge, hypers.signal.astype(np.float32).astype(np.float64)


def shadow(
    model: GaussianProcessModel, kernel: Kernel, signal: np.ndarray, points: np.ndarray,
    after: posterior.Posterior, noise: Any,
) -> GaussianProcessModel:  # fmt: skip
    """The model that predicts by a posterior."""
    m, d = model.points.shape
    centre = np.broadcast_to(np.asarray(kernel.centre), (m, d)).copy()
    centre[: len(points)] = points
    arrays = kernel, centre, padded(after.weights, model.weights.shape), padded(after.factor, (m, m)), signal, noise
    arrays = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), arrays)
    return eqx.tree_at(lambda g: (g.kernel, g.points, g.weights, g.factor, g.signal, g.noise), model, arrays)


def padded(x: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    return np.pad(x, [(0, room - size) for room, size in zip(shape, x.shape, strict=True)])


def doubled(tree: Any) -> Any:
    return jax.tree.map(lambda x: np.asarray(x, np.float64), tree)


def doubles(pairs: UInt32[Array, "m 2*m"]) -> Float[np.ndarray, "m m"]:
    return np.ascontiguousarray(np.asarray(pairs)).view(np.float64)


def words(x: Float[np.ndarray, "m m"]) -> UInt32[Array, "m 2*m"]:
    return jnp.asarray(np.ascontiguousarray(x).view(np.uint32))
