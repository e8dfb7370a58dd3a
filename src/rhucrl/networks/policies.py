"""What acts: the contracts of policies and adversaries, a squashed Gaussian, an adversary network, and nobody."""

from __future__ import annotations

import abc
import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from rhucrl.envs.game import Box, unwound
from rhucrl.networks.layers import Perceptron

LOG_STD_MIN, LOG_STD_MAX = -5.0, 1.0  # logarithms of a policy's standard deviation, before it is squashed


class AbstractPolicy(eqx.Module):
    """An agent's policy: a batched function of observations, or one step after the other of what has a memory."""

    @abc.abstractmethod
    def __call__(self, obs: Float[Array, "*b p"]) -> Float[Array, "*b q"]:
        """The actions without a memory."""

    @abc.abstractmethod
    def fresh(self) -> Any:
        """The memory at the start of an episode; None, if it is a function of the state alone."""

    @abc.abstractmethod
    def act(self, memory: Any, obs: Float[Array, " p"]) -> tuple[Any, Float[Array, " q"]]:
        """The next memory, and the action."""


class AbstractAdversary(eqx.Module):
    """An adversary as an answer to what the agent does."""

    @abc.abstractmethod
    def __call__(self, obs: Float[Array, "*b p"], action: Float[Array, "*b q"]) -> Float[Array, "*b qbar"]:
        """To states and actions alone."""

    @abc.abstractmethod
    def reply(self, memory: Any, obs: Float[Array, " p"], action: Float[Array, " q"]) -> Float[Array, " qbar"]:
        """To an agent that has acted, and has this memory of it."""


class PlainPolicy(AbstractPolicy):
    """Anybody's pure batched function of observations."""

    function: Callable[[Array], Array]

    def __call__(self, obs: Float[Array, "*b p"]) -> Float[Array, "*b q"]:
        return self.function(obs)

    def fresh(self) -> None:
        return None

    def act(self, memory: None, obs: Float[Array, " p"]) -> tuple[None, Float[Array, " q"]]:
        return memory, self.function(obs)


def policy_of(function: Callable[[Array], Array]) -> AbstractPolicy:
    """A policy, or the policy that a function is."""
    return function if isinstance(function, AbstractPolicy) else PlainPolicy(function)


class Normaliser(eqx.Module):
    """States in units of what has been seen, held within five standard deviations; reported entries are left out."""

    mean: Float[Array, " f"]
    std: Float[Array, " f"]
    winding: tuple[int, ...] = eqx.field(static=True)

    def __call__(self, obs: Float[Array, "*b p"]) -> Float[Array, "*b f"]:
        seen = unwound(obs[..., : self.mean.shape[0] - len(self.winding)], self.winding)
        return ((seen - self.mean) / self.std).clip(-5, 5)

    def on_host(self) -> Callable[[np.ndarray], np.ndarray]:
        mean, std, winding = np.asarray(self.mean), np.asarray(self.std), self.winding
        size = len(mean) - len(winding)
        return lambda obs: ((unwound(obs[:size].astype(np.float32), winding) - mean) / std).clip(-5, 5)


def heads(net: Perceptron, normaliser: Normaliser, obs: Float[Array, "*b p"]) -> tuple[Array, Array]:
    """Mean and logarithm of the standard deviation of a policy's action, before it is squashed."""
    mean, log_std = jnp.split(net(normaliser(obs)), 2, -1)
    return mean, jnp.clip(log_std, LOG_STD_MIN, LOG_STD_MAX)


class Gaussian(AbstractPolicy):
    """A diagonal Gaussian, squashed into the box; called with observations alone, its mode."""

    net: Perceptron
    normaliser: Normaliser
    box: Box

    def __call__(self, obs: Float[Array, "*b p"]) -> Float[Array, "*b q"]:
        return self.box.place(jnp.tanh(heads(self.net, self.normaliser, obs)[0]))

    def fresh(self) -> None:
        return None

    def act(self, memory: None, obs: Float[Array, " p"]) -> tuple[None, Float[Array, " q"]]:
        return memory, self(obs)

    def sample(self, obs: Float[Array, "*#b p"], noise: Float[Array, "*#b q"]) -> tuple[Array, Float[Array, "*b"]]:
        """An action, and the logarithm of its density in the unit box; the noise may be shared by a batch."""
        mean, log_std = heads(self.net, self.normaliser, obs)
        raw = mean + jnp.exp(log_std) * noise
        squash = 2 * (math.log(2) - raw - jax.nn.softplus(-2 * raw))
        density = -jnp.square(noise) / 2 - log_std - math.log(2 * math.pi) / 2 - squash
        return self.box.place(jnp.tanh(raw)), density.sum(-1)

    def on_host(self) -> Callable[[np.ndarray, np.ndarray | None], np.ndarray]:
        """The same policy in NumPy, for one observation at a time: cheaper than a step of any simulator."""
        layers = [(np.asarray(layer.weight), np.asarray(layer.bias)) for layer in self.net.layers]
        seen, actions, box = self.normaliser.on_host(), self.box.size, self.box.on_host()

        def act(obs: np.ndarray, noise: np.ndarray | None = None) -> np.ndarray:
            x = seen(obs)
            for weight, bias in layers[:-1]:
                x = x @ weight + bias
                x = x * (x / 6 + 0.5).clip(0, 1)
            x = x @ layers[-1][0] + layers[-1][1]
            centre, log_std = x[:actions], x[actions:]
            raw = centre if noise is None else centre + np.exp(log_std.clip(LOG_STD_MIN, LOG_STD_MAX)) * noise
            return box.place(np.tanh(raw))

        return act


class Answer(AbstractAdversary):
    """An adversary network as an answer to state and action."""

    policy: Gaussian

    def __call__(self, obs: Float[Array, "*b p"], action: Float[Array, "*b q"]) -> Float[Array, "*b qbar"]:
        return self.policy(obs)

    def reply(self, memory: Any, obs: Float[Array, " p"], action: Float[Array, " q"]) -> Float[Array, " qbar"]:
        return self(obs, action)

    def on_host(self) -> Callable[[np.ndarray], np.ndarray]:
        play = self.policy.on_host()
        return lambda obs: play(obs, None)


def bang_bang(
    rule: Float[Array, "*#b qbar f"], normaliser: Normaliser, box: Box, obs: Float[Array, "*#b p"]
) -> Float[Array, "*b qbar"]:
    """The end of its box that each component goes to, by the sign of an affine function of the state."""
    slopes, shift = rule[..., :-1], rule[..., -1]
    return box.place(jnp.where((slopes * normaliser(obs)[..., None, :]).sum(-1) + shift >= 0, 1.0, -1.0))


def held_by(box: Box, extreme: Float[Array, "*b qbar"], features: int) -> Float[Array, "*b qbar f"]:
    """The rules that hold ends of the box whatever the state is."""
    unit = box.unit(extreme)[..., None]
    return jnp.concatenate([jnp.zeros((*unit.shape[:-1], features)), unit], -1)


class NetworkOrRule(AbstractAdversary):
    """An adversary network, or a rule (one may hold an extreme all the time) where that is worse for the agent."""

    network: Gaussian
    rule: Float[Array, "qbar f"]
    rules: Bool[Array, ""]

    def __call__(self, obs: Float[Array, "*b p"], action: Float[Array, "*b q"]) -> Float[Array, "*b qbar"]:
        ruled = bang_bang(self.rule, self.network.normaliser, self.network.box, obs)
        return jnp.where(self.rules, ruled, self.network(obs))

    def reply(self, memory: Any, obs: Float[Array, " p"], action: Float[Array, " q"]) -> Float[Array, " qbar"]:
        return self(obs, action)

    def on_host(self) -> Callable[[np.ndarray], np.ndarray]:
        play = self.network.on_host()
        slopes, shift = np.asarray(self.rule[:, :-1]), np.asarray(self.rule[:, -1])
        seen, box = self.network.normaliser.on_host(), self.network.box.on_host()
        ruled = lambda obs: box.place(np.where(slopes @ seen(obs) + shift >= 0, 1.0, -1.0))  # noqa: E731
        return ruled if self.rules else (lambda obs: play(obs, None))


class Nobody(AbstractAdversary):
    """The adversary that changes nothing."""

    neutral: Float[Array, " qbar"]

    def __call__(self, obs: Float[Array, "*b p"], action: Float[Array, "*b q"]) -> Float[Array, "*b qbar"]:
        return jnp.broadcast_to(self.neutral, (*obs.shape[:-1], self.neutral.shape[0]))

    def reply(self, memory: Any, obs: Float[Array, " p"], action: Float[Array, " q"]) -> Float[Array, " qbar"]:
        return self(obs, action)

    def on_host(self) -> Callable[[np.ndarray], np.ndarray]:
        neutral = np.asarray(self.neutral)
        return lambda obs: neutral
