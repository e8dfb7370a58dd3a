"""The solver of the paper: a two-player actor-critic in the model, for actions of any dimension.

Both problems (`eq:rhucrl`) are one update over short rollouts of the model. The agent's has a policy, an adversary that
minimises, and an optimistic eta; the response's has the frozen policy, its own adversary and a pessimistic eta. State
values are enough, since the model supplies the next state: pathwise gradients flow through them, the model, the reward
and the policies, and one backward pass gives every player's gradient.

A single adversary network is easily outwitted for a while, so that every start state is rolled out against several
adversaries, the network and some extremes that are held over the rollout. The agent improves its worst rollout; the
critics learn from all of them, more from those that disappoint.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from rhucrl.envs.game import Box, Game, chosen, unwound
from rhucrl.hallucination import choose_eta, hallucinate, sampled
from rhucrl.models.base import AbstractModel
from rhucrl.networks.layers import Perceptron, twice, twins
from rhucrl.networks.policies import Gaussian, Normaliser
from rhucrl.replay import Replay, statistics
from rhucrl.solvers.base import SolverNumbers
from rhucrl.solvers.bounds import Slope
from rhucrl.solvers.look_ahead.value_iteration import pick, towards

SOFTNESS = 0.04  # of an end, for gradients, in units of a game's margin; a softer one pays for staying far from it
LENIENCE = 0.3  # weight of the returns against the kinder adversaries of a start state; the harsher ones weigh 1
STEEPEST = 1.0  # norm of a player's gradient: rollouts of an unstable system multiply it by thousands
PERTURBATION = 1.2  # largest standard deviation of perturbed start states, in units of what has been seen
CHUNK = 1000  # transitions whose innovations are computed at once
MARGIN = 0.1  # predicted states stay within the range of the data and so much more


class ProblemNetworks(NamedTuple):
    """What the gradient steps change."""

    agent: Perceptron
    adversary: Perceptron
    critics: Perceptron
    log_temperature: Float[Array, ""]


class Problem(NamedTuple):
    networks: ProblemNetworks
    targets: Perceptron
    optimiser: optax.OptState


class World(NamedTuple):
    """What a problem is solved in: it does not change during an episode's updates."""

    game: Game
    model: AbstractModel
    normaliser: Normaliser
    limits: Box
    spread: Float[Array, " p"]
    sign: int  # of eta
    contested: bool  # else nobody plays against the agent
    innovations: Float[Array, "capacity p"] | None = None  # instead of the model's noise


adam: Any = optax.flatten(optax.scale_by_adam())  # one vector: fewer and larger steps, which compile faster


def unit(game: Game, discount: Array) -> Array:
    """The reward that a critic's output of 1 stands for."""
    low, high = game.reward_range
    return (high - low) / (1 - discount) / 32


def begin(game: Game, width: int, key: PRNGKeyArray) -> Problem:
    keys = jax.random.split(key, 4)
    p = game.observation.size + len(game.winding)
    critics = twins((p, width, width, 1), keys[:2], normalised=True)
    boxes = zip((game.agent, game.adversary), keys[2:], strict=True)
    agent, adversary = (Perceptron((p, width, width, 2 * box.size), k) for box, k in boxes)
    networks = ProblemNetworks(agent, adversary, critics, jnp.log(jnp.float32(0.1)))
    return Problem(networks, critics, adam.init(networks))


def world(game: Game, model: AbstractModel, replay: Replay, sign: int = 0, contested: bool = True) -> World:
    seen = replay.filled[:, None] > 0
    low = jnp.where(seen, replay.data.following, jnp.inf).min(0)
    high = jnp.where(seen, replay.data.following, -jnp.inf).max(0)
    if game.margin(low) is not None and not game.learned:
        # A known end has to be in reach before it has been seen. The units only grow: they must not shrink with every
        # step upright, or networks change their meaning and cannot tell the states near the end from each other.
        spread = jnp.maximum((high - low) / 4, 1e-6)
        return World(game, model, Normaliser((low + high) / 2, spread, ()), game.observation, spread, sign, contested)
    margin = (MARGIN * (high - low)).at[jnp.array(game.winding, int)].set(jnp.inf)
    obs = replay.data.obs[:, : game.observation.size]
    normaliser = Normaliser(*statistics(unwound(obs, game.winding), replay.filled), game.winding)
    _, spread = statistics(replay.data.obs, replay.filled)
    return World(game, model, normaliser, Box(low - margin, high + margin), spread, sign, contested)


def innovations(model: AbstractModel, replay: Replay) -> Float[Array, "capacity p"]:
    """What the model's mean missed of each stored transition.

    Added to imagined steps in the order in which they happened, they make the model exact where the policy does what
    was done, so that a bias of the model cannot be lived on (Fröhlich et al. 2022, on-policy model errors).
    """
    rows = min(CHUNK, replay.capacity)

    def missed(i: Array, found: Array) -> Array:
        first = jnp.minimum(i * rows, replay.capacity - rows)
        *here, following = (jax.lax.dynamic_slice_in_dim(x, first, rows) for x in replay.data)
        return jax.lax.dynamic_update_slice_in_dim(found, following - model.predict(*here).mean, first, 0)

    return jax.lax.fori_loop(0, -(-replay.size // rows), missed, jnp.zeros_like(replay.data.following))


def values(world: World, critics: Perceptron, obs: Float[Array, "*b p"], scale: Array) -> Array:
    """Both critics' values in reward units, on a leading axis."""
    return scale * critics(twice(world.normaliser(obs)))[..., 0]


def judged(world: World, critics: Perceptron, obs: Float[Array, "t k n p"], scale: Array) -> Array:
    """The same along rollouts, whose first states are one for all lanes."""
    steps, lanes, n, p = obs.shape
    first, later = jnp.split(
        values(world, critics, jnp.concatenate([obs[0, 0], obs[1:].reshape(-1, p)]), scale), [n], -1
    )
    first = jnp.broadcast_to(first[:, None, None], (2, 1, lanes, n))
    return jnp.concatenate([first, later.reshape(2, steps - 1, lanes, n)], 1)


class ValueAndSlope(NamedTuple):
    """The value of a state, the lesser of two critics', and where it grows, on their mean."""

    value: Float[Array, "*b"]
    slope: Float[Array, "*b p"]


def worth_of(world: World, critics: Perceptron, obs: Float[Array, "*b p"], scale: Array) -> ValueAndSlope:
    """Both from one pass forward and one backward, which also is all that a gradient through the value needs."""
    here = twice(jax.lax.stop_gradient(obs))
    value, back = jax.vjp(lambda o: scale * critics(world.normaliser(o))[..., 0], here)
    value, (slope,) = jax.lax.stop_gradient((value, back(jnp.ones_like(value))))
    return ValueAndSlope(jnp.minimum(*(value + (slope * (obs - here)).sum(-1))), slope.mean(0))


def ahead(game: Game, obs: Array, executed: Array, adversary: Array, mean: Array) -> Float[Array, "*b p"]:
    """Where a larger next state earns more at once."""
    return jax.grad(lambda following: game.reward(obs, executed, adversary, following).sum())(
        jax.lax.stop_gradient(mean)
    )


def slope(world: World, critics: Perceptron, scale: Array, numbers: SolverNumbers) -> Slope:
    """Where a larger next state is worth more: the gradient of r + gamma V at the predicted one."""

    def gradient(obs: Array, executed: Array, adversary: Array, mean: Array) -> Array:
        def worth(following: Array) -> Array:
            later = numbers.discount * values(world, critics, following, scale).mean(0)
            return (world.game.reward(obs, executed, adversary, following) + later).sum()

        return jax.grad(worth)(jax.lax.stop_gradient(mean))

    return gradient


def going_on(game: Game, following: Float[Array, "*b p"]) -> Float[Array, "*b"]:
    """1 while the game goes on, else 0; its gradient, where the end is near, leads away from it."""
    alive = 1.0 - game.over(following)
    if (margin := game.margin(following)) is None:
        return alive
    soft = jax.nn.sigmoid(margin / SOFTNESS)
    return alive + soft - jax.lax.stop_gradient(soft)


class ModelRollouts(NamedTuple):
    """Model rollouts of every start state against every adversary: axes are (step, lane, start)."""

    obs: Float[Array, "t k n p"]
    reward: Float[Array, "t k n"]
    alive: Float[Array, "t k n"]
    density: Float[Array, "t k n"]
    later: Float[Array, "t k n"]


def rollouts(
    world: World, networks: ProblemNetworks, targets: Perceptron, starts: Float[Array, "n p"],
    held: Float[Array, "k n qbar"], missed: Float[Array, "t n p"] | None, scale: Array, numbers: SolverNumbers,
    length: int, key: PRNGKeyArray,
) -> ModelRollouts:  # fmt: skip
    """Lane 0 is the adversary network's; the others hold one of `held` from the first step to the last.

    Where the adversary acts once per episode, the network too holds its first answer. `missed` are the innovations of
    the steps that followed the start states; without them noise is drawn from the model.
    """
    game, model = world.game, world.model
    lanes, n = held.shape[0] + 1, starts.shape[0]
    p, q, qbar = game.predicted_size, game.agent.size, game.adversary.size
    agent = Gaussian(networks.agent, world.normaliser, game.agent)
    opponent = Gaussian(networks.adversary, world.normaliser, game.adversary)
    keys = jax.random.split(key)
    noises = jnp.split(jax.random.normal(keys[0], (length, 1, n, q + qbar + p)), (q, q + qbar), -1)
    unit_noise = jnp.ones_like if missed is not None else lambda std: std
    noises[2] = noises[2] if missed is None else missed[:, None]
    luck, whose = jax.random.uniform(keys[1], (2, length, 1, n))
    drawn = (*noises, pick(whose, model.members), luck)
    nobody = jnp.broadcast_to(game.neutral, (1, n, qbar))
    lasting = game.scope == "episode"
    first = opponent.sample(starts[None], drawn[1][0])[0] if world.contested and lasting else nobody

    def imagine(
        obs: Array, executed: Array, adversary: Array, worth: ValueAndSlope, omega: Array, member: Array
    ) -> Array:
        if world.sign == 0:
            mean, std = model.member(obs, executed, adversary, member)
            return sampled((mean, unit_noise(std)), omega)
        prediction = model.predict(obs, executed, adversary)
        uphill = ahead(game, obs, executed, adversary, prediction.mean) + numbers.discount * worth.slope
        eta = jax.lax.stop_gradient(choose_eta(scale, prediction, uphill, world.sign, numbers.beta))
        noisy = prediction._replace(aleatoric=unit_noise(prediction.aleatoric))
        return hallucinate(noisy, eta, numbers.beta, omega)

    def step(here: tuple[Array, ValueAndSlope], drawn: tuple[Array, ...]):
        (obs, worth), (mine, theirs, omega, member, luck) = here, drawn
        action, density = agent.sample(obs, mine)
        answer = opponent.sample(obs[:1], theirs)[0] if world.contested and not lasting else first
        adversary = jnp.concatenate([answer, held])
        executed = chosen(game.execute(action, adversary), luck)
        member = jnp.broadcast_to(member, (lanes, n))
        following = world.limits.clip(imagine(obs, executed, adversary, worth, omega, member))
        reward = game.reward(obs, executed, adversary, following)
        alive = going_on(game, following)
        later = worth_of(world, targets, following, scale)
        return (following, later), ModelRollouts(obs, reward, alive, density, later.value)

    here = starts[None], worth_of(world, targets, starts[None], scale)  # the first state is one for all lanes
    here = jax.tree.map(lambda x: jnp.broadcast_to(x, (lanes, *x.shape[1:])), here)
    return jax.lax.scan(step, here, drawn)[1]


def returns(reward: Array, alive: Array, later: Array, numbers: SolverNumbers) -> Float[Array, "t k n"]:
    """lambda-returns; `later` are the values of the following states."""

    def back(following: Array, x: tuple[Array, Array, Array]):
        reward, alive, later = x
        value = reward + numbers.discount * alive * ((1 - numbers.trace) * later + numbers.trace * following)
        return value, value

    return jax.lax.scan(back, later[-1], (reward, alive, later), reverse=True)[1]


def loss(
    networks: ProblemNetworks, targets: Perceptron, world: World, starts: Array, held: Array, missed: Array | None,
    numbers: SolverNumbers, length: int, key: PRNGKeyArray,
) -> tuple[Array, dict[str, Array]]:  # fmt: skip
    """One number whose gradient moves every network, the adversary's with the opposite sign."""
    scale = unit(world.game, numbers.discount)
    frozen = jax.lax.stop_gradient
    paths = rollouts(world, networks, targets, starts, held, missed, scale, numbers, length, key)
    temperature = jnp.exp(frozen(networks.log_temperature))
    wanted = numbers.entropy * world.game.agent.size  # entropy is worth what exceeds it: to live must not cost or pay
    reward = paths.reward - temperature * (paths.density + wanted)
    g = returns(reward, paths.alive, paths.later, numbers)
    reached = frozen(jnp.concatenate([jnp.ones_like(g[:1]), jnp.cumprod(paths.alive[:-1], 0)]))
    error = (judged(world, networks.critics, frozen(paths.obs), scale) - frozen(g)) / scale
    if held.shape[0]:
        # A value is that of the worst adversary, and each imagined state has met one: those that disappoint more than
        # the start state's others weigh more. Bad luck is shared by all of them, and is nobody's doing.
        weight = jnp.where(error > error.mean(-2, keepdims=True), 1.0, LENIENCE)
        gain = (g[0].min(0).mean() + g[0, 0].mean()) / 2
    else:
        weight = jnp.ones_like(error)
        gain = (reached * g).sum() / reached.sum()
    critic_loss = (reached * weight * jnp.square(error)).sum() / reached.sum()
    entropy = -paths.density.mean()
    calm = networks.log_temperature * frozen(entropy - wanted)
    told = {"critic_loss": critic_loss, "gain": gain, "entropy": entropy, "temperature_entropy": temperature}
    return critic_loss - gain / scale + calm, told


def bounded(gradient: Perceptron, sign: float = 1.0) -> Perceptron:
    squares = sum(jnp.vdot(g, g) for g in jax.tree.leaves(gradient))
    shrink = sign * jnp.minimum(1.0, STEEPEST * jax.lax.rsqrt(jnp.maximum(squares, 1e-12)))
    return jax.tree.map(lambda g: shrink * g, gradient)


def improve(
    world: World, problem: Problem, replay: Replay, corners: Float[Array, "c qbar"], numbers: SolverNumbers,
    frozen: bool, lanes: int, batch: int, length: int, updates: int, broad: float, key: PRNGKeyArray,
) -> tuple[Problem, dict[str, Array]]:  # fmt: skip
    """All gradient steps of an episode. `frozen`: the agent stays as it is, and the adversary responds to it.

    Rollouts start where the system has been; of each batch a share of `broad` starts somewhere near that.
    """
    keys = jax.random.split(key, 3)
    draws = jax.random.uniform(keys[0], (updates, lanes + 2, batch))
    where, astray, far = draws[:, 0], draws[:, 1], draws[:, 2]
    index, corner = pick(where, jnp.maximum(replay.size, 1)), pick(draws[:, 3:], corners.shape[0])
    still = jax.lax.stop_gradient if frozen else lambda agent: agent
    spread = PERTURBATION * jnp.where(astray < broad, far, 0.0)[..., None]
    direction = jax.random.normal(keys[1], (updates, batch, *world.spread.shape)) * world.spread

    def update(problem: Problem, drawn: tuple[Array, Array, Array, Array, PRNGKeyArray]):
        index, corner, spread, direction, key = drawn
        starts = world.limits.clip(replay.data.obs[index] + spread * direction)
        steps = (index + jnp.arange(length)[:, None]) % jnp.maximum(replay.size, 1)
        missed = None if world.innovations is None else world.innovations[steps]

        def objective(networks: ProblemNetworks) -> tuple[Array, dict[str, Array]]:
            players = networks._replace(agent=still(networks.agent), log_temperature=still(networks.log_temperature))
            return loss(players, problem.targets, world, starts, corners[corner], missed, numbers, length, key)

        gradient, told = jax.grad(objective, has_aux=True)(problem.networks)
        gradient = gradient._replace(agent=bounded(gradient.agent), adversary=bounded(gradient.adversary, -1.0))
        descent, state = adam.update(gradient, problem.optimiser)
        networks = jax.tree.map(lambda w, d: w - numbers.learning_rate * d, problem.networks, descent)
        targets = towards(problem.targets, networks.critics, numbers.target_rate)
        return Problem(networks, targets, state), told

    problem, told = jax.lax.scan(
        update, problem, (index, corner, spread, direction, jax.random.split(keys[2], updates))
    )
    return problem, jax.tree.map(lambda x: x[-updates // 4 :].mean(), told)
