"""Soft actor-critic (Haarnoja et al. 2018): the actor-critic without model steps, learning from real transitions alone.

The critics judge the joint action of all players that learn; each player has a policy and the sign that it gives the
reward: +1 the agent, -1 the adversary. One loss moves every network, so that one player or two are the same program.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from rhucrl.envs.game import Box, mix
from rhucrl.networks.layers import Perceptron, spread, stacked, towards
from rhucrl.networks.policies import Gaussian, Normaliser
from rhucrl.runtime.compilation import compiled


class SACOptions(NamedTuple):
    """The numbers of Stable-Baselines3, but that gradient steps come `every` few steps, as many at once."""

    width: int = 256
    batch: int = 256
    updates: float = 1.0  # per step of the environment
    every: int = 8
    capacity: int = 1_000_000
    discount: float = 0.99
    learning_rate: float = 3e-4
    target_rate: float = 0.005
    deterministic: bool = False
    patience: int = 1  # updates of the first player for each one of the second
    mixture: str | None = None  # the critics judge what is executed; None: what each player does


class SACPlayer(NamedTuple):
    """Who learns: the dimension of its action, and the sign of its interest in the reward."""

    size: int
    sign: int = 1


class SACNetworks(NamedTuple):
    actors: list[Perceptron]
    critics: Perceptron
    log_temperatures: Float[Array, " players"]


class SACLearner(NamedTuple):
    """`alpha` is the second player's share of a mixture."""

    networks: SACNetworks
    targets: Perceptron
    optimiser: Any
    normaliser: Normaliser
    alpha: Float[Array, ""]


class Batch(NamedTuple):
    """Transitions; actions lie in the unit box, all players' side by side."""

    obs: Float[Any, "*b p"]
    action: Float[Any, "*b q"]
    reward: Float[Any, "*b"]
    following: Float[Any, "*b p"]
    goes_on: Float[Any, "*b"]


adam: Any = optax.flatten(optax.scale_by_adam())


def begin(
    players: Sequence[SACPlayer], scale: Any, options: SACOptions, key: PRNGKeyArray, alpha: Any = 0.0
) -> SACLearner:
    keys, p, width = jax.random.split(key, 2 + len(players)), len(scale), options.width
    q = players[0].size if options.mixture else sum(player.size for player in players)
    critics = stacked((p + q, width, width, 1), keys[:2])
    actors = [Perceptron((p, width, width, 2 * player.size), k) for player, k in zip(players, keys[2:], strict=True)]
    networks = SACNetworks(actors, critics, jnp.zeros(len(players)))
    normaliser = Normaliser(jnp.zeros(p), jnp.asarray(scale, jnp.float32), ())
    return SACLearner(networks, critics, adam.init(networks), normaliser, jnp.float32(alpha))


def unit_policy(net: Perceptron, normaliser: Normaliser) -> Gaussian:
    """The policy of a network, acting in the unit box."""
    one: Any = np.ones(net.layers[-1].bias.shape[0] // 2, np.float32)
    return Gaussian(net, normaliser, Box(-one, one))


def executed(options: SACOptions, alpha: Array, actions: list[Array]) -> list[tuple[Array | float, Array]]:
    """What the critics judge: outcomes of the players' actions, with their probabilities."""
    if options.mixture is None:
        return [(1.0, jnp.concatenate(actions, -1))]
    if options.mixture == "noisy":
        return [(1.0, mix(alpha, *actions))]
    return [(1 - alpha, actions[0]), (alpha, actions[1])]


def loss(
    networks: SACNetworks, learner: SACLearner, batch: Batch, noise: Float[Array, "2 n outputs"],
    players: tuple[SACPlayer, ...], options: SACOptions, origin: Float[Array, "n p"] | None = None,
) -> tuple[Array, dict[str, Array]]:  # fmt: skip
    """The critics' regression to the soft value, each player's gain, and the temperatures that hold the entropies.

    With an `origin`, observations where episodes begin, the adversary acts there alone, and what it did holds on.
    """
    frozen, policies = jax.lax.stop_gradient, [unit_policy(net, learner.normaliser) for net in networks.actors]
    temperatures = 0.0 if options.deterministic else jnp.exp(frozen(networks.log_temperatures))
    temperatures = jnp.broadcast_to(jnp.asarray(temperatures), len(players))
    cuts = np.cumsum([player.size for player in players])[:-1].tolist()

    def drawn(obs: Array, noise: Array) -> tuple[list[Array], list[Array]]:
        if options.deterministic:
            return [policy(obs) for policy in policies], [jnp.zeros(obs.shape[0])] * len(players)
        seen = [obs if origin is None or player.sign > 0 else origin for player in players]
        parts = jnp.split(noise, cuts, -1)
        sampled = [policy.sample(x, part) for policy, x, part in zip(policies, seen, parts, strict=True)]
        return [action for action, _ in sampled], [density for _, density in sampled]

    def judged(critics: Perceptron, obs: Array, action: Array) -> Float[Array, "2 n"]:
        return critics(spread(jnp.concatenate([learner.normaliser(obs), action], -1), critics))[..., 0]

    def worth(critics: Perceptron, obs: Array, actions: list[Array], sign: int) -> Array:
        """The value that the player of this sign can be sure of."""
        outcomes = executed(options, learner.alpha, actions)
        values = sum(share * judged(critics, obs, x) for share, x in outcomes)
        return sign * (sign * jnp.asarray(values)).min(0)

    actions, densities = frozen(drawn(batch.following, noise[0]))
    if origin is not None:  # of two players
        actions, densities = [actions[0], jnp.split(batch.action, cuts, -1)[1]], [densities[0], 0.0 * densities[1]]
    later = worth(learner.targets, batch.following, actions, players[0].sign)
    for player, temperature, density in zip(players, temperatures, densities, strict=True):
        later = later - player.sign * temperature * density
    goal = frozen(batch.reward + options.discount * batch.goes_on * later)
    errors = judged(networks.critics, batch.obs, batch.action) - goal
    critic_loss = jnp.square(errors).mean(-1).sum() / 2

    actions, densities = drawn(batch.obs, noise[1])
    total, entropies = critic_loss, []
    for i, (player, density) in enumerate(zip(players, densities, strict=True)):
        joint = [action if i == j else frozen(action) for j, action in enumerate(actions)]
        gain = player.sign * worth(frozen(networks.critics), batch.obs, joint, player.sign)
        entropies.append(-frozen(density).mean())
        surplus = 0.0 if options.deterministic else entropies[-1] + player.size
        total = total + (temperatures[i] * density - gain).mean() + networks.log_temperatures[i] * surplus
    return total, {"critic_loss": critic_loss, "value": goal.mean(), "entropy": jnp.stack(entropies).mean()}


@compiled("players", "options")
def update(
    learner: SACLearner, batches: Batch, players: tuple[SACPlayer, ...], options: SACOptions, key: PRNGKeyArray,
    origin: Float[Array, "n p"] | None = None,
) -> tuple[SACLearner, dict[str, Array]]:  # fmt: skip
    """A gradient step on each of the batches; their noise comes of the key and of how many steps there were before."""

    def step(learner: SACLearner, drawn: tuple[Batch, Array]) -> tuple[SACLearner, dict[str, Array]]:
        gradient, metrics = jax.grad(loss, has_aux=True)(learner.networks, learner, *drawn, players, options, origin)
        descent, optimiser = adam.update(gradient, learner.optimiser)
        if options.patience > 1:
            moves = (optimiser.count % options.patience == 0).astype(jnp.float32)
            first, *others = descent.actors
            descent = descent._replace(actors=[first, *jax.tree.map(lambda d: moves * d, others)])
        networks = jax.tree.map(lambda w, d: w - options.learning_rate * d, learner.networks, descent)
        targets = towards(learner.targets, networks.critics, jnp.float32(options.target_rate))
        return learner._replace(networks=networks, targets=targets, optimiser=optimiser), metrics

    shape = (*batches.reward.shape, sum(player.size for player in players))
    noise = jax.random.normal(jax.random.fold_in(key, learner.optimiser.count), (shape[0], 2, *shape[1:]))
    learner, metrics = jax.lax.scan(step, learner, (batches, noise))
    return learner, jax.tree.map(lambda x: x.mean(0), metrics)


class ReplayMemory(NamedTuple):
    """The last transitions, in NumPy: batches are gathered faster there than a compiled program could."""

    rows: Batch
    count: int | np.ndarray

    @property
    def capacity(self) -> int:
        return self.rows.reward.shape[0]

    def add(self, *row: Any) -> ReplayMemory:
        """With one more transition, in the same place."""
        for column, value in zip(self.rows, row, strict=True):
            column[self.count % self.capacity] = value
        return self._replace(count=self.count + 1)

    def draw(self, generator: np.random.Generator, updates: int, batch: int) -> Batch:
        index = generator.integers(min(self.count, self.capacity), size=(updates, batch))
        return Batch(*(column[index] for column in self.rows))


def memory(capacity: int, inputs: int, outputs: int) -> ReplayMemory:
    shapes = ((inputs,), (outputs,), (), (inputs,), ())
    return ReplayMemory(Batch(*(np.zeros((capacity, *shape), np.float32) for shape in shapes)), 0)
