"""The contract: a zero-sum game as a value.

A game is the knowledge that the agent has before it learns: the spaces, the reward, the termination, how the two
actions are combined, where episodes start. The real system (`eq:stochastic_dynamic_system_additive`) is apart from
it, and only the episode loop may touch it: a `JaxGame` is its own system, every other game is played through
`rhucrl.envs.systems`.
"""

from __future__ import annotations

import abc
from typing import Any, Literal, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from rhucrl.errors import UsageError

Scope = Literal["step", "episode"]
Own = TypeVar("Own", bound="Game")


class Box(NamedTuple):
    """A box of actions in physical units."""

    low: Float[Array, " n"]
    high: Float[Array, " n"]

    @property
    def size(self) -> int:
        return self.low.shape[0]

    def clip(self, action: Float[Array, "*b n"]) -> Float[Array, "*b n"]:
        return jnp.clip(action, self.low, self.high)

    def place(self, unit: Float[Array, "*b n"]) -> Float[Array, "*b n"]:
        """The point of the box at `unit` in [-1, 1]^n."""
        return self.low + (unit + 1) / 2 * (self.high - self.low)

    def unit(self, action: Float[Array, "*b n"]) -> Float[Array, "*b n"]:
        """Where in [-1, 1]^n an action lies: what `place` undoes."""
        where = self.low.__array_namespace__().where
        return 2 * (action - self.low) / where(self.high > self.low, self.high - self.low, 1.0) - 1

    def on_host(self, dtype: Any = None) -> Any:
        """The same box, of NumPy's arrays: so are the points that it gives."""
        low, high = (np.asarray(x, dtype) for x in self)
        return self._replace(low=low, high=high)


class Execution(NamedTuple):
    """What reaches the system when both players have acted: outcomes and their probabilities.

    A deterministic mixture has one outcome; the probabilistic one has two (the agent's action or the
    adversary's). `action` has a leading axis over outcomes.
    """

    probability: Float[Array, " k"]
    action: Float[Array, "k *b q"]


class Game(eqx.Module):
    """A zero-sum game (agent maximises the reward, adversary minimises it)."""

    strength: eqx.AbstractVar[Float[Array, ""]]
    scope: eqx.AbstractVar[Scope]
    horizon: eqx.AbstractVar[int]

    @property
    @abc.abstractmethod
    def agent(self) -> Box: ...

    @property
    @abc.abstractmethod
    def adversary(self) -> Box: ...

    @property
    @abc.abstractmethod
    def neutral(self) -> Float[Array, " qbar"]:
        """The adversary's action that changes nothing where one exists (else its box's centre)."""

    @property
    @abc.abstractmethod
    def observation(self) -> Box:
        """The range of observations."""

    @property
    @abc.abstractmethod
    def scale(self) -> Float[Array, " p"]:
        """The size of a considerable change of each observation entry: the unit of the critics' inputs."""

    @property
    @abc.abstractmethod
    def reward_range(self) -> tuple[Float[Array, ""], Float[Array, ""]]: ...

    @abc.abstractmethod
    def execute(self, action: Array, adversary: Array) -> Execution: ...

    @abc.abstractmethod
    def model_input(self, obs: Array, executed: Array, adversary: Array) -> Array:
        """What the next observation depends on: the model's input."""

    @abc.abstractmethod
    def reward(self, obs: Array, executed: Array, adversary: Array, next_obs: Array) -> Array: ...

    def terminated(self, next_obs: Float[Array, "*b p"]) -> Array:
        return jnp.zeros(next_obs.shape[:-1], bool)

    def over(self, next_obs: Float[Array, "*b p"]) -> Array:
        """Whether there is nothing more to be had: inside a model, an end that cannot be averted is one already."""
        return self.terminated(next_obs)

    def project(self, obs: Float[Array, "*b p"]) -> Float[Array, "*b p"]:
        """The possible observation next to a predicted one."""
        return self.observation.clip(obs)

    @abc.abstractmethod
    def sample(self, key: PRNGKeyArray, n: int) -> Float[Array, "n p"]:
        """Observations over the whole range: the broad start states of model rollouts."""

    @abc.abstractmethod
    def starts(self, key: PRNGKeyArray, n: int) -> Float[Array, "n p"]:
        """Observations at the start of episodes."""

    @property
    def learned(self) -> tuple[str, ...]:
        """What of `reward` and `terminated` is not known. A model predicts it after the observation's entries."""
        return ()

    @property
    def predicted_size(self) -> int:
        """The entries of what a model predicts: an observation, and reports of what is not known of the task."""
        return self.observation.size + len(self.learned)

    @property
    def winding(self) -> tuple[int, ...]:
        """Entries of the observation that are angles and may wind up."""
        return ()

    def forget(self, obs: Float[Array, "*b p"]) -> Float[Array, "*b p"]:
        """Without the reports: they say nothing about what comes next."""
        return obs * (jnp.arange(self.predicted_size) < self.observation.size) if self.learned else obs

    def report(self, obs: Any, reward: float, terminated: bool) -> Any:
        """What a model should have predicted of a step."""
        reports = {"reward": reward, "terminated": terminated}
        return np.append(obs, [reports[name] for name in self.learned])

    def options(self) -> dict[str, Any]:
        """The options of `make` that give this game again."""
        return {"horizon": self.horizon}

    def dynamics(self, obs: Array, executed: Array, adversary: Array) -> Array:
        """f(s, a, abar) on observations, where it is known in closed form."""
        raise UsageError("this environment does not give its dynamics: learn them with --model ensemble")

    def nominal(self: Own) -> Own:
        """The same game with an adversary of no strength."""
        return eqx.tree_at(lambda game: game.strength, self, jnp.zeros_like(self.strength))


class JaxGame(Game):
    """A game whose real system is a pure JAX function too."""

    @abc.abstractmethod
    def reset(self, key: PRNGKeyArray) -> Array: ...

    @abc.abstractmethod
    def observe(self, state: Array) -> Float[Array, "*b p"]: ...

    @abc.abstractmethod
    def step(self, state: Array, executed: Array, adversary: Array) -> Array: ...

    def starts(self, key: PRNGKeyArray, n: int) -> Float[Array, "n p"]:
        return jax.vmap(lambda key: self.observe(self.reset(key)))(jax.random.split(key, n))


def demand_jax(game: Game) -> JaxGame:
    """The game, if its system can be compiled."""
    if not isinstance(game, JaxGame):
        raise UsageError("this game's system runs on the host and cannot be compiled: play it through its environment")
    return game


def mix(alpha: Any, action: Any, adversary: Any) -> Any:
    """The noisy mixture, of NumPy arrays as of JAX ones."""
    return (1 - alpha) * action + alpha * adversary


def execution(mixture: str | None, alpha: Array, action: Array, adversary: Array) -> Execution:
    """What is executed under a `noisy` or `probabilistic` mixture; under anything else the agent's action."""
    if mixture == "noisy":
        return Execution(jnp.ones(1), mix(alpha, action, adversary)[None])
    if mixture == "probabilistic":
        return Execution(jnp.stack([1 - alpha, alpha]), jnp.stack(jnp.broadcast_arrays(action, adversary)))
    return Execution(jnp.ones(1), action[None])


def unwound(obs: Any, winding: tuple[int, ...]) -> Any:
    """Angles that may wind up as their sines, with their cosines behind everything: what a network can compare."""
    xp = obs.__array_namespace__()
    columns, angles, begin = [], [], 0
    for i in winding:
        angle = obs[..., i : i + 1]
        columns += [obs[..., begin:i], xp.sin(angle)]
        angles, begin = [*angles, xp.cos(angle)], i + 1
    return xp.concatenate([*columns, obs[..., begin:], *angles], -1) if winding else obs


def join(*parts: Float[Array, "*#b _"]) -> Float[Array, "*b _"]:
    """Vectors side by side, their batches broadcast."""
    batch = jnp.broadcast_shapes(*(part.shape[:-1] for part in parts))
    return jnp.concatenate([jnp.broadcast_to(part, (*batch, part.shape[-1])) for part in parts], -1)


def chosen(execution: Execution, luck: Float[Array, "*b"]) -> Array:
    """The outcome of each row of the batch, by its number in [0, 1)."""
    if execution.action.shape[0] == 1:
        return execution.action[0]
    outcome = (luck[..., None] > jnp.cumsum(execution.probability)[:-1]).sum(-1)
    outcome = jnp.broadcast_to(outcome, execution.action.shape[1:-1])
    return jnp.take_along_axis(execution.action, outcome[None, ..., None], 0)[0]


def draw(execution: Execution, key: PRNGKeyArray) -> Array:
    """One outcome of an execution, shared by the whole batch."""
    if execution.action.shape[0] == 1:
        return execution.action[0]
    return execution.action[jax.random.choice(key, execution.action.shape[0], p=execution.probability)]


class StepResult(NamedTuple):
    """What one step of the real system leaves behind."""

    state: Array
    executed: Float[Array, "*b q"]
    reward: Float[Array, "*b"]


def play(game: JaxGame, state: Array, action: Array, adversary: Array, key: PRNGKeyArray) -> StepResult:
    """One step of the real system (`eq:stochastic_dynamic_system_additive`), both actions held in their boxes."""
    action, adversary = game.agent.clip(action), game.adversary.clip(adversary)
    executed = draw(game.execute(action, adversary), key)
    following = game.step(state, executed, adversary)
    reward = game.reward(game.observe(state), executed, adversary, game.observe(following))
    return StepResult(following, executed, reward)
