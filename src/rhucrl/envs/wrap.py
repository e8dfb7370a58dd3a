"""Games on the host: the robots, and `wrap`, which makes one of any continuous-control Gymnasium environment."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import equinox as eqx
import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from rhucrl.envs import (
    ENVIRONMENTS,
    MIXED,
    Mixture,
    Scope,
    Setting,
    demand_choices,
    demand_means,
    demand_strength,
    implied,
)
from rhucrl.envs.disturbances import Disturbance, Forces, Masses
from rhucrl.envs.game import Box, Execution, Game, execution, join, unwound
from rhucrl.envs.parameters import Parameters
from rhucrl.envs.physics import body_names, is_mujoco, mujoco_of, quiet
from rhucrl.envs.robots import ROBOTS, turned
from rhucrl.envs.simulators import MeanVelocity, OwnDirections, Simulator, time_limit
from rhucrl.envs.systems import HostSystem
from rhucrl.envs.zero_sum_env import ZeroSumEnv
from rhucrl.errors import UsageError

Known = Callable[..., Any]
Learned = Literal["learned"]

STARTS = 64  # recorded observations at reset
SURVEY = 256  # random steps that scale a wrapped environment's numbers


class Facts(NamedTuple):
    """A host game's numbers. `reach` is the adversary's box at strength 1."""

    agent: Box
    reach: Box
    neutral: Float[Array, " qbar"]
    observation: Box
    scale: Float[Array, " p"]
    rewards: Box
    starts: Float[Array, "n p"]


@dataclasses.dataclass(frozen=True)
class Reported:
    """The reward or the end, where it is learned: an entry of what the model predicts."""

    name: str
    index: int

    def __call__(self, *known: Any) -> Any:
        value = known[-1][..., self.index]
        return value if self.name == "reward" else value > 0.5


class HostGame(Game):
    """A game whose real system is a simulator on the host."""

    strength: Float[Array, ""] = eqx.field(converter=jnp.float32)
    facts: Facts
    scope: Scope = eqx.field(static=True)
    horizon: int = eqx.field(static=True)
    name: str = eqx.field(static=True)
    setting: Setting = eqx.field(static=True)
    mixture: Mixture | None = eqx.field(static=True)
    known_reward: Known = eqx.field(static=True)
    known_end: Known | None = eqx.field(static=True)
    lost: Known | None = eqx.field(static=True)
    angles: tuple[int, ...] = eqx.field(static=True)
    parameters: str | None = eqx.field(static=True, default=None)
    forces: str | None = eqx.field(static=True, default=None)
    heading: int | None = eqx.field(static=True, default=None)

    @property
    def agent(self) -> Box:
        return self.facts.agent

    @property
    def adversary(self) -> Box:
        if self.mixture:
            return self.facts.agent
        kept = (1 - self.strength) * self.facts.neutral  # so that at strength 1 the ends are those of the range
        return Box(*(kept + self.strength * end for end in self.facts.reach))

    @property
    def neutral(self) -> Array:
        return self.facts.neutral

    @property
    def observation(self) -> Box:
        return self.facts.observation

    @property
    def scale(self) -> Array:
        return self.facts.scale

    @property
    def reward_range(self) -> tuple[Array, Array]:
        return self.facts.rewards.low[0], self.facts.rewards.high[0]

    @property
    def learned(self) -> tuple[str, ...]:
        return tuple(known.name for known in (self.known_reward, self.known_end) if isinstance(known, Reported))

    @property
    def winding(self) -> tuple[int, ...]:
        return self.angles

    def options(self) -> dict[str, Any]:
        strength = round(float(self.strength), 6)
        names = ("setting", "mixture", "scope", "horizon", "parameters", "forces")
        return {"env": self.name, "strength": strength, **{name: getattr(self, name) for name in names}}

    def execute(self, action: Array, adversary: Array) -> Execution:
        return execution(self.mixture, self.strength, action, adversary)

    def model_input(self, obs: Array, executed: Array, adversary: Array) -> Array:
        disturbed = self.setting in ("adversarial", "parameter")
        state = obs[..., : self.observation.size]
        if self.heading is None:
            state = unwound(state, self.winding)
        elif self.setting == "adversarial":
            adversary = turned(adversary, -state[..., self.heading])
        state = state if self.heading is None else state[..., self.heading + 1 :]
        return join(state, executed, adversary) if disturbed else join(state, executed)

    def reward(self, obs: Array, executed: Array, adversary: Array, next_obs: Array) -> Array:
        return self.known_reward(obs, executed, adversary, next_obs)

    def terminated(self, next_obs: Array) -> Array:
        if self.known_end is None:
            return jnp.zeros(next_obs.shape[:-1], bool)
        return self.known_end(next_obs)

    def over(self, next_obs: Array) -> Array:
        ended = self.terminated(next_obs)
        return ended if self.lost is None else ended | self.lost(next_obs)

    def sample(self, key: PRNGKeyArray, n: int) -> Array:
        return self.starts(key, n)  # no simulator can be put into any state

    def starts(self, key: PRNGKeyArray, n: int) -> Array:
        seen = self.facts.starts[jax.random.randint(key, (n,), 0, self.facts.starts.shape[0])]
        return join(seen, jnp.zeros(len(self.learned)))


def make_robot(
    name: str, setting: Setting, strength: float, scope: Scope, mixture: Mixture | None, horizon: int,
    parameters: str | None = None, forces: str | None = None,
) -> ZeroSumEnv:  # fmt: skip
    """A row of the table of robots as a game."""
    row = ROBOTS[name]
    quiet()
    env = gym.make(row.gymnasium, max_episode_steps=-1, disable_env_checker=True).unwrapped
    seen = MeanVelocity(env, row.hidden) if row.hidden else env
    simulator = Simulator(OwnDirections(env, row.chain) if row.chain else seen)
    masses = Masses(row.bodies[0], *row.masses) if parameters is None else Parameters(parameters, env)
    pushes = Forces(row.bodies, row.axes) if forces is None else Forces(forces)
    pushes.apply(env, pushes.neutral)  # a mistake in it shows now
    disturbance = {"adversarial": pushes, "parameter": masses}
    starts = np.stack([simulator.reset(seed) for seed in range(STARTS)])
    edge = np.asarray(row.edge)
    return _assemble(
        simulator, disturbance.get(setting), name, setting, strength, scope, mixture, horizon,
        reward=row.reward, terminated=row.terminated if row.health else None, lost=row.lost,
        observation=(-edge, edge), scale=np.asarray(row.scale), rewards=row.rewards, starts=starts,
        winding=row.winding, heading=row.heading if forces is None else None, forces=forces and pushes.text,
    )  # fmt: skip


def wrap(
    env: gym.Env, setting: Setting | None = None, strength: float | None = None, *,
    reward: Known | Learned = "learned", terminated: Known | Learned | None = "learned",
    disturbance: Disturbance | None = None, scope: Scope | None = None, mixture: Mixture | None = None,
    horizon: int | None = None, reward_range: tuple[float, float] | None = None, name: str = "own",
) -> ZeroSumEnv:  # fmt: skip
    """Any continuous-control Gymnasium environment as a game; `rhucrl.check_env` tells whether it is a sound one.

    The settings are those of `make`. `action` (the default) works on every environment; `adversarial` and `parameter`
    use `disturbance`, or on MuJoCo environments forces on and the mass of the first body. With a disturbance the
    default is `adversarial`. `reward(obs, executed, adversary, next_obs)` and `terminated(next_obs)` are batched JAX
    functions of what is known; "learned" ones are predicted by the model, as entries after those of the observation.
    terminated=None says that episodes never end before the horizon. Some random steps are taken, to learn the sizes of
    the numbers.
    """
    if name in ENVIRONMENTS:
        raise UsageError(f"{name!r} is the name of another environment: choose a name of your own")
    forces = disturbance.text if isinstance(disturbance, Forces) else None
    if isinstance(disturbance, Parameters):
        demand_means(setting := setting or "parameter", disturbance, None)
        disturbance.meet(env)
    setting = setting or ("adversarial" if disturbance is not None else "action")
    demand_choices(setting, scope, mixture)
    if problems := space_problems(env):
        raise UsageError(problems[0])
    for what, function in (("reward", reward), ("terminated", terminated)):
        if not (function == "learned" or callable(function) or (what == "terminated" and function is None)):
            raise UsageError(f'{what}={function!r} is neither a function nor "learned": give one of them')
    if setting in ("adversarial", "parameter"):
        disturbance = disturbance or _first_body(env, setting)
    elif disturbance is not None:
        raise UsageError(f"setting {setting!r} has no disturbance: leave it out, or choose setting='adversarial'")
    usual = {"none": 0.0, "action": 0.3}.get(setting, getattr(disturbance, "strength", 1.0))
    strength = demand_strength("own", setting, usual if strength is None else strength)
    known: dict[str, Any] = {"reward": reward, "terminated": terminated}
    learned = tuple(name for name, function in known.items() if function == "learned")
    size = env.observation_space.shape[0]  # type: ignore[index]
    known |= {name: Reported(name, size + place) for place, name in enumerate(learned)}
    simulator = Simulator(env)
    starts, seen, rewards = _survey(simulator)
    if disturbance is not None:
        disturbance.apply(env, np.asarray(disturbance.neutral))  # a mistake in it shows now
    low, high, spread = rewards.min(), rewards.max(), seen.std(0)
    generous = max(high - low, abs(high), abs(low), 1e-3)
    space: Any = env.observation_space
    return _assemble(
        simulator, disturbance, name, setting, strength, scope or ("episode" if setting == "parameter" else "step"),
        (mixture or "noisy") if setting == "action" else None, _horizon(env, horizon),
        **known, observation=(space.low, space.high), scale=np.where(spread > 1e-6, spread, 1.0),
        rewards=reward_range or (low - 5 * generous, high + 5 * generous), starts=starts, forces=forces,
    )  # fmt: skip


def adopt(
    name: str, env: Any, setting: Setting | None, strength: float | None, scope: Scope | None, mixture: Mixture | None,
    horizon: int | None, parameters: str | None = None, forces: str | None = None, plain: Setting = "none",
) -> ZeroSumEnv:  # fmt: skip
    """A user's environment under the name by which it can be made again.

    One that is not wrapped yet is wrapped in the setting (by default: `plain`). One that is has chosen already, all but
    its strength, which can be another one.
    """
    if not isinstance(env, gym.Env):
        raise UsageError(f"{name} gave a {type(env).__name__}, not a Gymnasium environment: return one")
    if not isinstance(env, ZeroSumEnv):
        setting = setting or implied(parameters, forces) or plain
        demand_means(setting, parameters, forces)
        disturbance = Forces(forces) if forces is not None else None if parameters is None else Parameters(parameters)
        place: Any = {"scope": scope, "mixture": mixture, "horizon": horizon, "name": name}
        return wrap(env, setting, strength, disturbance=disturbance, **place)
    chosen = env.game.options()
    asked = {
        "setting": setting, "scope": scope, "mixture": mixture, "horizon": horizon, "parameters": parameters,
        "forces": forces,
    }  # fmt: skip
    for option, value in asked.items():
        if value is not None and value != chosen.get(option, value):
            mistake = f"{name} gives an environment that was wrapped with {option} {chosen[option]!r}, not {value!r}"
            raise UsageError(f"{mistake}: leave {option} out, or have it return the plain environment")
    if strength is not None and strength != chosen.get("strength", strength):
        env = env.at(demand_strength("own", chosen["setting"], strength))
    if isinstance(env.game, HostGame):
        env.game = dataclasses.replace(env.game, name=name)
    return env


def _assemble(
    simulator: Simulator, disturbance: Disturbance | None, name: str, setting: Setting, strength: float, scope: Scope,
    mixture: Mixture | None, horizon: int, *, reward: Any, terminated: Any, observation: tuple[Any, Any], scale: Any,
    rewards: tuple[float, float], starts: Any, lost: Any = None, winding: tuple[int, ...] = (),
    heading: int | None = None, forces: str | None = None,
) -> ZeroSumEnv:  # fmt: skip
    space: Any = simulator.env.action_space
    agent = _box(space.low, space.high)
    neutral = np.zeros(agent.size if setting in MIXED else 1)
    reach = (neutral, neutral)
    if disturbance is not None:
        reach, neutral = disturbance.box, disturbance.neutral
    facts = Facts(
        agent, _box(*reach), jnp.asarray(neutral, jnp.float32), _box(*observation), jnp.asarray(scale, jnp.float32),
        _box(*([edge] for edge in rewards)), jnp.asarray(starts, jnp.float32),
    )  # fmt: skip
    game = HostGame(
        strength=jnp.float32(strength), facts=facts, scope=scope, horizon=horizon, name=name, setting=setting,
        mixture=mixture, known_reward=reward, known_end=terminated, lost=lost, angles=winding, heading=heading,
        parameters=disturbance.text if isinstance(disturbance, Parameters) else None, forces=forces,
    )  # fmt: skip
    return ZeroSumEnv(game, HostSystem(game, simulator, disturbance, mixture))


def space_problems(env: gym.Env) -> list[str]:
    """What keeps an environment from being a game, in plain words."""
    problems = []
    seen, acts = env.observation_space, env.action_space
    if not isinstance(seen, gym.spaces.Box):
        problems.append(
            f"the observations are a {type(seen).__name__} space, not a Box: "
            "gymnasium.wrappers.FlattenObservation helps"
        )
    elif len(seen.shape) != 1 or seen.dtype is None or seen.dtype.kind != "f":
        problems.append(
            f"the observations have shape {seen.shape} and type {seen.dtype}, not one axis of floats: "
            "gymnasium.wrappers.FlattenObservation and DtypeObservation help"
        )
    if not isinstance(acts, gym.spaces.Box):
        problems.append(f"the actions are a {type(acts).__name__} space, not a Box: only continuous control is a game")
    elif len(acts.shape) != 1 or acts.dtype is None or acts.dtype.kind != "f":
        problems.append(f"the actions have shape {acts.shape} and type {acts.dtype}, not one axis of floats")
    elif not acts.is_bounded():
        problems.append("the actions are unbounded: give the Box finite limits (gymnasium.wrappers.RescaleAction)")
    return problems


def _box(low: Any, high: Any) -> Box:
    return Box(jnp.asarray(np.asarray(low), jnp.float32), jnp.asarray(np.asarray(high), jnp.float32))


def _first_body(env: gym.Env, setting: Setting) -> Disturbance:
    if not is_mujoco(env):
        raise UsageError(
            f"setting {setting!r} needs a MuJoCo environment or a disturbance of your own: give disturbance=..., "
            "or choose setting='action'"
        )
    name = body_names(mujoco_of(env)[0])[0]
    return Forces(name) if setting == "adversarial" else Masses(name)


def _horizon(env: gym.Env, horizon: int | None) -> int:
    limit = getattr(time_limit(env), "_max_episode_steps", None)
    if horizon is None and limit is None:
        raise UsageError("nobody says how long an episode is: wrap with horizon=..., the number of its steps")
    if horizon is not None and (horizon < 1 or (limit is not None and horizon > limit)):
        raise UsageError(f"horizon {horizon} is outside [1, {limit or math.inf}], the environment's own limit")
    return int(horizon if horizon is not None else limit or 0)


def _survey(simulator: Simulator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Observations at resets; observations and rewards of random steps."""
    starts = np.stack([simulator.reset(seed) for seed in range(STARTS)])
    space: Any = simulator.env.action_space
    generator, rows = np.random.default_rng(0), []
    for _ in range(SURVEY):
        seen = simulator.step(generator.uniform(space.low, space.high).astype(space.dtype))
        rows.append((seen.obs, seen.reward))
        if seen.terminated or seen.truncated:
            simulator.reset(None)
    obs, rewards = zip(*rows, strict=True)
    return starts, np.stack(obs), np.asarray(rewards)
