"""The attacks on games whose worst case is known in closed form, and on the pendulum."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rhucrl.attacks.folder import Folder
from rhucrl.attacks.forward import worst_sequence
from rhucrl.attacks.rollouts import episode_return
from rhucrl.attacks.worst_case import load_adversary, sweep, sweep_parameter, worst_case
from rhucrl.envs.game import Box, Execution, JaxGame
from rhucrl.envs.pendulum import Pendulum
from rhucrl.errors import UsageError


class Alternating(JaxGame):
    """The sign s of the state flips each step; the reward is 1 + s abar, abar in [-strength, strength].

    Any constant earns the horizon, the adversary -sign(s) earns horizon (1 - strength).
    """

    strength: jax.Array = eqx.field(converter=jnp.float32)
    scope: str = eqx.field(static=True, default="step")
    horizon: int = eqx.field(static=True, default=20)

    agent = property(lambda self: Box(-jnp.ones(1), jnp.ones(1)))
    adversary = property(lambda self: Box(-self.strength * jnp.ones(1), self.strength * jnp.ones(1)))
    neutral = property(lambda self: jnp.zeros(1))
    observation = property(lambda self: Box(-jnp.ones(1), jnp.ones(1)))
    scale = property(lambda self: jnp.ones(1))
    reward_range = property(lambda self: (jnp.float32(0), jnp.float32(2)))

    def execute(self, action, adversary):
        return Execution(jnp.ones(1), action[None])

    def model_input(self, obs, executed, adversary):
        return obs

    def reward(self, obs, executed, adversary, next_obs):
        return 1 + obs[..., 0] * adversary[..., 0]

    def sample(self, key, n):
        return jnp.ones((n, 1))

    def reset(self, key):
        return jnp.ones(1)

    def observe(self, state):
        return state

    def step(self, state, executed, adversary):
        return -state


class Target(Alternating):
    """The reward is the squared distance of the adversary's action from 0.37: its worst value is inside the box."""

    def reward(self, obs, executed, adversary, next_obs):
        return jnp.square(adversary[..., 0] - 0.37)


class MovingTarget(Alternating):
    """As `Target`, but each sign of the state has its own worst value: 0.37 and -0.61."""

    def reward(self, obs, executed, adversary, next_obs):
        return jnp.square(adversary[..., 0] - jnp.where(obs[..., 0] > 0, 0.37, -0.61))


class Fragile(Alternating):
    """Terminates as soon as it has begun; the reward is 1 a step."""

    def reward(self, obs, executed, adversary, next_obs):
        return jnp.ones(obs.shape[:-1])

    def terminated(self, next_obs):
        return jnp.ones(next_obs.shape[:-1], bool)


def still(obs):
    return jnp.zeros((*obs.shape[:-1], 1))


def lean(obs):
    """Swings up by energy, so that its return depends on the physics."""
    theta, omega = jnp.arctan2(obs[..., 1], obs[..., 0]), obs[..., 2]
    lack = 15 - (omega**2 / 2 + 15 * obs[..., 0])
    swing = 2 * jnp.sign(lack) * jnp.where(omega >= 0, 1.0, -1.0)
    return jnp.clip(jnp.where(jnp.abs(theta) < 0.25, -12 * theta - 3 * omega, swing), -2, 2)[..., None]


def test_state_feedback_is_found():
    found = worst_case(still, Alternating(0.8), "standard")
    assert found.nominal == 20
    assert found.attacks["constant"] == pytest.approx(20)
    assert found.attacks["cross-entropy"] == pytest.approx(20 * 0.2, abs=1)
    for exact in ("bang-bang", "planning-1", "forward-30"):
        assert found.attacks[exact] == pytest.approx(20 * 0.2)
    assert found.attacks["sac"] < 10


def test_the_cross_entropy_search_refines():
    """Sampling alone comes within about 0.05 of the known 0; refitting to the worst comes ten times nearer."""
    found = [worst_case(still, MovingTarget(0.8), "standard", seed, only=["cross-entropy"]) for seed in range(10, 16)]
    assert np.mean([case.worst for case in found]) < 0.01


def test_the_inner_worst_value_of_an_episode_is_found():
    found = worst_case(still, Target(0.8, scope="episode"))
    assert found.attack.startswith("search")
    assert found.worst == pytest.approx(0, abs=1e-4)
    assert float(found.adversary(jnp.ones(1), jnp.array(0))[0]) == pytest.approx(0.37, abs=1e-3)


class Helpful(Alternating):
    """Whatever the adversary does pays: its worst choice is to do nothing."""

    def reward(self, obs, executed, adversary, next_obs):
        return 1 + jnp.abs(adversary[..., 0])


def test_nobody_is_among_the_adversaries():
    game = Helpful(0.8)
    case = worst_case(still, game, only=["bang-bang"])
    assert case.attacks["bang-bang"] == pytest.approx(20 * 1.8)
    assert (case.attack, case.worst, case.returns, case.adversary) == ("none", 20, case.calm, None)
    assert float(episode_return(game, still, case.adversary, jax.random.key(0))) == 20
    assert sweep(still, game, (0.0, 0.8)).worst == (20, 20)
    hurt = worst_case(still, Alternating(0.8), only=["bang-bang"])
    assert (hurt.attack, hurt.returns) == ("bang-bang", hurt.findings["bang-bang"].returns)


def test_an_adversary_of_an_episode_is_asked_once():
    """At every step, -sign(s) would take 0.8 away; held for the episode, it takes as much as it gives."""
    game = Alternating(0.8, scope="episode")
    assert float(episode_return(game, still, lambda obs, time: -obs, jax.random.key(0))) == pytest.approx(20)
    assert float(episode_return(Alternating(0.8), still, lambda obs, time: -obs, jax.random.key(0))) == pytest.approx(4)


def test_nothing_is_earned_after_termination():
    assert worst_case(still, Fragile(0.5)).worst == 1
    assert float(worst_sequence(Fragile(0.5), still, 2)[0]) == 1


def test_sweep_of_the_pendulum():
    game = Pendulum(0.2)
    swept = sweep(lean, game, (0.0, 0.2, 0.2))
    none, case, again = swept.cases
    assert none.worst == pytest.approx(none.nominal, rel=1e-3)
    assert case.worst < 1.05 * case.nominal
    assert case.worst == min(case.attacks.values()) == case.attacks[case.attack] == swept.worst[1]
    assert case.attacks["best-response-200"] <= case.attacks["random"]
    assert (again.worst, again.attacks) == (case.worst, case.attacks)
    replayed = float(episode_return(game, lean, case.adversary, jax.random.key(7)))
    assert replayed == pytest.approx(case.worst, rel=1e-3)


def test_parameter_sweep_covers_the_closed_range():
    game = Pendulum(0.8, kind="parameter", scope="episode")
    swept = sweep_parameter(still, game, points=5)
    np.testing.assert_allclose(swept.values[:, 0], [0.2, 0.6, 1.0, 1.4, 1.8], rtol=1e-5)
    np.testing.assert_allclose(swept.returns, -200 * np.pi**2, rtol=1e-3)  # mass needs a torque to matter
    moved = sweep_parameter(lean, game, points=5).returns
    assert worst_case(lean, game).worst <= float(moved.min()) + 1


def test_mistakes():
    with pytest.raises(UsageError, match="'quick'"):
        worst_case(still, Alternating(0.5), "quik")
    with pytest.raises(UsageError, match="not finite"):
        worst_case(lambda obs: still(obs) + jnp.nan, Pendulum(0.8, kind="parameter", scope="episode"))


def test_policies_that_jax_cannot_trace_are_attacked_too():
    """A policy in NumPy plays the same pendulum step by step, and the same adversaries hurt it as much."""
    swing = lambda obs: np.asarray(lean(jnp.asarray(obs)))  # noqa: E731
    pure, plain = (worst_case(policy, Pendulum(0.2), only=["constant"]) for policy in (lean, swing))
    assert plain.nominal == pytest.approx(pure.nominal, rel=1e-3)
    assert plain.worst == pytest.approx(pure.worst, rel=1e-2)


def test_adversaries_of_the_pendulum_are_data(tmp_path):
    game = Pendulum(0.2)
    case = worst_case(lean, game, shelf=Folder(tmp_path, {}))
    for name, found in case.findings.items():
        again = float(episode_return(game, lean, load_adversary(tmp_path / name), jax.random.key(3)))
        assert again == pytest.approx(np.mean(found.returns), rel=1e-3)
