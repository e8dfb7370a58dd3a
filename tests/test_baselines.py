"""The algorithms without a model, on games whose saddle points are known; and their runs, resumed and attacked."""

import dataclasses
import json

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rhucrl
from probes import having
from rhucrl import play as episodes
from rhucrl.algorithms import MODEL_FREE
from rhucrl.attacks import worst_case as attack
from rhucrl.cli import main as cli
from rhucrl.config import TrainConfig
from rhucrl.envs.game import Box, JaxGame, execution
from rhucrl.envs.zero_sum_env import ZeroSumEnv
from rhucrl.errors import UsageError
from rhucrl.model_free import on_policy, ppo
from rhucrl.model_free.ppo import EpisodeBatch, PPONumbers, advantages
from rhucrl.networks.policies import Normaliser
from rhucrl.training import loop as training

A, B, D, COST, PRICE, DISCOUNT = 0.9, 0.5, 0.3, 0.3, 1.0, 0.9


class LinearQuadratic(JaxGame):
    """s' = .9 s + .5 a + .3 abar and r = -s^2 - .3 a^2 + abar^2, from random starts."""

    strength: jax.Array = eqx.field(converter=jnp.float32, default=1.0)
    scope: str = eqx.field(static=True, default="step")
    horizon: int = eqx.field(static=True, default=25)
    mixture: str | None = eqx.field(static=True, default=None)

    agent = property(lambda self: Box(-2 * jnp.ones(1), 2 * jnp.ones(1)))
    adversary = property(lambda self: Box(-2 * jnp.ones(1), 2 * jnp.ones(1)))
    neutral = property(lambda self: jnp.zeros(1))
    observation = property(lambda self: Box(-4 * jnp.ones(1), 4 * jnp.ones(1)))
    scale = property(lambda self: jnp.ones(1))
    reward_range = property(lambda self: (jnp.float32(-4), jnp.float32(4)))

    def execute(self, action, adversary):
        return execution(self.mixture, self.strength, action, adversary)

    def model_input(self, obs, executed, adversary):
        return jnp.concatenate([obs, executed, adversary], -1)

    def reward(self, obs, executed, adversary, next_obs):
        theirs = 0.0 if self.mixture else PRICE * jnp.square(adversary[..., 0])
        return -jnp.square(obs[..., 0]) - COST * jnp.square(executed[..., 0]) + theirs

    def sample(self, key, n):
        return jax.random.uniform(key, (n, 1), minval=-1.5, maxval=1.5)

    def reset(self, key):
        return jax.random.uniform(key, (1,), minval=-1.5, maxval=1.5)

    def observe(self, state):
        return state

    def step(self, state, executed, adversary):
        push = 0.0 if self.mixture else D * adversary
        return (A * state + B * executed + push).clip(-4, 4)


def saddle():
    """Slopes of both players' answers to s at the fixed point of V = -P s^2."""
    p = 1.0
    for _ in range(500):
        g = DISCOUNT * p
        # -(COST + g B^2) a - g B D abar = g A B s  and  (PRICE - g D^2) abar - g B D a = g A D s
        system = np.array([[-(COST + g * B * B), -g * B * D], [-g * B * D, PRICE - g * D * D]])
        mine, theirs = np.linalg.solve(system, [g * A * B, g * A * D])
        p = 1 + COST * mine**2 - PRICE * theirs**2 + g * (A + B * mine + D * theirs) ** 2
    return mine, theirs


def learned(algo, game, episodes, **options):
    numbers = {"discount": DISCOUNT, "width": 32, "horizon": game.horizon, **options}
    numbers |= {"random_episodes": 2} if MODEL_FREE[algo].learner == "off-policy" else {}
    config = TrainConfig.preset("pendulum", algo=algo, episodes=episodes, **numbers)
    env, learner = ZeroSumEnv(game), training.learner_of(config)
    state = learner.initial(env)
    for index in range(episodes):
        state, _ = learner.episode(env, state, index)
    return state


def slope(policy):
    """How a player's mean action answers to s, around 0; squashed noise makes it less than the mode's."""
    points = jnp.repeat(jnp.array([[-0.8], [0.8]]), 4000, 0)
    action = policy.sample(points, jax.random.normal(jax.random.key(0), points.shape))[0].reshape(2, -1).mean(1)
    return float(action[1] - action[0]) / 1.6


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algo", "episodes", "options"),
    [
        ("maximin-mf", 150, {"batch": 64, "learning_rate": 2e-3}),
        ("rarl", 1600, {"rollouts": 16}),
        ("rap", 2400, {"rollouts": 16, "population": 2}),
    ],
)
def test_both_players_find_the_saddle(algo, episodes, options):
    game = LinearQuadratic()
    pair = learned(algo, game, episodes, **options).output
    assert (slope(pair.policy), slope(pair.response.policy)) == pytest.approx(saddle(), abs=0.15)


class Lasting(LinearQuadratic):
    """r = -a^2 + (abar - .5)^2, where the adversary acts once per episode: its best answer is .5."""

    def reward(self, obs, executed, adversary, next_obs):
        return -jnp.square(executed[..., 0]) + jnp.square(adversary[..., 0] - 0.5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algo", "episodes", "options"),
    [
        ("maximin-mf", 150, {"batch": 64, "learning_rate": 2e-3}),
        ("rarl", 1600, {"rollouts": 16}),
        ("rap", 1600, {"rollouts": 16, "population": 2}),
    ],
)
def test_an_adversary_of_an_episode_finds_what_it_should_hold(algo, episodes, options):
    game = Lasting(scope="episode", horizon=6)
    response = learned(algo, game, episodes, **options).output.response
    answers = np.asarray(response.policy(jnp.linspace(-1.5, 1.5, 7)[:, None]))
    assert answers.mean() == pytest.approx(0.5, abs=0.2)  # 0 at first; at .5 what it gains is flat


def test_an_adversary_of_an_episode_plays_one_action_in_it():
    for algo in ("rarl", "maximin-mf"):
        game = Lasting(scope="episode", horizon=6)
        state = learned(algo, game, 3, rollouts=8) if algo == "rarl" else learned(algo, game, 3, batch=8)
        if algo == "rarl":
            policy = state.last.policy
            first = on_policy.in_jax(game, policy, state.last.response.policy, game.neutral, jax.random.key(5))
            held = state.last.response.policy.sample(first.obs[0], first.adversary[0])[0]
            np.testing.assert_allclose(
                first.reward, -jnp.square(acted(policy, first)) + jnp.square(held - 0.5), atol=1e-5
            )
        else:
            theirs = np.asarray(state.replay.rows.action)[:18, 1].reshape(3, 6)
            np.testing.assert_array_equal(theirs, theirs[:, :1].repeat(6, 1))


def acted(policy, played):
    return policy.sample(played.obs[:-1], played.agent)[0][:, 0]


def test_a_decision_is_rewarded_by_all_that_follows():
    """Rewards 1, 2, 4 at a discount of .5, the second episode over after two steps: one step each, then an end."""
    obs, flat = jnp.zeros((2, 4, 1)), jnp.zeros((2, 3))
    alive = jnp.array([[1.0, 1, 1], [1, 1, 0]])
    batch = EpisodeBatch(obs, flat[..., None], jnp.array([[1.0, 2, 4]] * 2) * alive, alive, flat)
    one = on_policy.one_decision(batch, 0.5)
    np.testing.assert_allclose(one.reward, [[3, 0, 0], [2, 0, 0]])
    np.testing.assert_array_equal(one.alive, [[1, 0, 0]] * 2)
    np.testing.assert_array_equal(one.ended, one.alive)


@pytest.mark.parametrize(("turn", "index", "agent", "adversary"), [
    (0, 0, True, True), (1, 0, True, False), (1, 1, False, True), (2, 1, True, False), (2, 2, False, True),
])  # fmt: skip
def test_the_players_of_rarl_learn_in_turn(turn, index, agent, adversary):
    game = LinearQuadratic(horizon=5)
    config = TrainConfig.preset("pendulum", algo="rarl", horizon=5, width=8, rollouts=2, passes=2, turn=turn)
    learner, env = training.learner_of(config), ZeroSumEnv(game)
    state = learner.episode(env, learner.initial(env), 0)[0]
    after, _ = on_policy.learn(config, game, state, index)
    moved = [
        any((a != b).any() for a, b in zip(*map(jax.tree.leaves, pair), strict=True))
        for pair in ((state.agent.actor, after.agent.actor), (state.adversaries[0].actor, after.adversaries[0].actor))
    ]
    assert moved == [agent, adversary]


@pytest.mark.slow
@pytest.mark.parametrize(("algo", "episodes"), [("sac", 100), ("ppo", 1600)])
def test_one_player_finds_the_regulator(algo, episodes):
    """Without an adversary the slope is that of the discounted linear-quadratic regulator."""
    p = 1.0
    for _ in range(500):
        g = DISCOUNT * p
        gain = -g * A * B / (COST + g * B * B)
        p = 1 + COST * gain**2 + g * (A + B * gain) ** 2
    options = {"batch": 64, "learning_rate": 2e-3} if algo == "sac" else {"rollouts": 16, "divergence": 0.02}
    state = learned(algo, LinearQuadratic(), episodes, setting="none", **options)
    assert slope(state.output.policy) == pytest.approx(gain, abs=0.12)


class Tug(LinearQuadratic):
    """The reward x - x^2 / 4 grows with what is executed: each player pulls to its end of the box."""

    def reward(self, obs, executed, adversary, next_obs):
        return executed[..., 0] - jnp.square(executed[..., 0]) / 4


@pytest.mark.slow
@pytest.mark.parametrize("mixture", ["noisy", "probabilistic"])
def test_deterministic_players_of_a_mixture(mixture):
    options = {"setting": "action", "mixture": mixture, "batch": 64, "learning_rate": 2e-3, "strength": 0.2}
    pair = learned("ar-ddpg", Tug(0.2, mixture=mixture), 120, **options).output
    here = jnp.zeros((1, 1))
    assert float(pair.policy(here)[0, 0]) > 1.7
    assert float(pair.response(here, here)[0, 0]) < -1.7


class Gamble(LinearQuadratic):
    """r = a (1 - 3 m), the parameter m in [0, 1] held over the episode.

    On average that is -a / 2, and a = -2 is best; of the worst fifth either sign of a loses, and a = 0 is best.
    """

    adversary = property(lambda self: Box(jnp.zeros(1), jnp.ones(1)))

    def reward(self, obs, executed, adversary, next_obs):
        return executed[..., 0] * (1 - 3 * adversary[..., 0])


@pytest.mark.slow
def test_the_mean_and_the_worst_fifth_want_different_things():
    # Batches of many parameters: of a few, their mean says little (seeds 0 to 2 give -1.7 to -1.3, and 0.2 at most).
    options = {"setting": "parameter", "learning_rate": 1e-3, "divergence": 0.02, "rollouts": 40}
    game = Gamble(scope="episode", horizon=5)
    bold, careful = (
        float(learned(algo, game, 3000, **options).output.policy(jnp.zeros((1, 1)))[0, 0])
        for algo in ("domain-randomization", "ep-opt")
    )
    assert bold < -1.2
    assert abs(careful) < 0.4


def test_the_worst_episodes_have_the_tail_as_their_mean():
    """CVaR of a uniform return at 20 % is a tenth of its range."""
    returns = jax.random.uniform(jax.random.key(0), (10_000,))
    kept = on_policy.worst(returns, 0.2)
    assert float(kept.sum()) == 2000
    assert float((kept * returns).sum() / kept.sum()) == pytest.approx(0.1, abs=0.005)


def test_advantages_know_an_end_from_a_cut():
    """Reward 1 a step, V = 10: at an end the rest is worth 0, at a cut the critic's 10 is what follows."""
    numbers = PPONumbers(*(jnp.float32(x) for x in (0.9, 0.5, 0.0, 0.2, 1.0)))
    alive = jnp.array([[1.0, 1, 0], [1, 1, 1]])
    ended = jnp.array([[0.0, 1, 0], [0, 0, 0]])
    zero = jnp.zeros((2, 3, 1))
    played = EpisodeBatch(jnp.zeros((2, 4, 1)), zero, alive, alive, ended)
    found = advantages(jnp.full((2, 4), 10.0), played, numbers)
    going_on = 1 + 0.9 * 10 - 10
    np.testing.assert_allclose(found[0], [going_on + 0.45 * (1 - 10), 1 - 10, 0], atol=1e-5)
    np.testing.assert_allclose(found[1], [going_on * (1 + 0.45 + 0.45**2), going_on * 1.45, going_on], atol=1e-5)


@pytest.mark.parametrize(("clip", "least", "most"), [(0.05, 0.02, 0.1), (10.0, 0.2, 9.0)])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_policy_moves_towards_its_reward_as_far_as_the_clip_allows(sign, clip, least, most):
    """Actions are worth what their noise is, to the adversary the opposite: ratios to before leave 1 by the clip."""
    player, units = ppo.begin(1, 1, 8, jax.random.key(0)), Normaliser(jnp.zeros(1), jnp.ones(1), ())
    noise = jnp.repeat(jnp.array([-1.0, 1.0]), 4)[:, None, None]
    every = jnp.ones((8, 1))
    played = EpisodeBatch(jnp.zeros((8, 2, 1)), noise, sign * noise[..., 0], every, every)
    numbers = PPONumbers(*(jnp.float32(x) for x in (0.9, 0.9, 1e-3, clip, jnp.inf)))
    after, told = ppo.improve(player, units, played, jnp.ones(8), numbers, 60)
    assert int(told["policy_steps"]) == 60
    before, now = (ppo.heads(actor, units, played.obs[:, :1]) for actor in (player.actor, after.actor))
    raw = before[0] + jnp.exp(before[1]) * noise
    ratio = np.exp(ppo.density(*now, raw) - ppo.density(*before, raw))[:, 0]
    gained = (ratio - 1) * sign * noise[:, 0, 0]
    assert least < gained.min() and gained.max() < most


TINY = {"horizon": 12, "width": 8, "batch": 8, "passes": 3, "rollouts": 3}
HOME = {"ep-opt": "parameter", "domain-randomization": "parameter", "ar-ddpg": "action"}


@pytest.mark.parametrize("algo", MODEL_FREE)
@pytest.mark.parametrize("env", ["pendulum", "inverted-pendulum"])
def test_a_run_goes_on_to_the_same_numbers_and_can_be_attacked(algo, env, tmp_path):
    config = TrainConfig.preset(env, episodes=7, **having(TINY, algo=algo, setting=HOME.get(algo, "adversarial")))
    training.train(config, tmp_path / "whole")
    training.train(dataclasses.replace(config, episodes=4), tmp_path / "part")
    training.resume(tmp_path / "part", 7)
    whole, part = ((tmp_path / name / "metrics.jsonl").read_text() for name in ("whole", "part"))
    assert whole == part
    assert [json.loads(line)["episode"] for line in whole.splitlines()] == [*range(7)]
    for name in ("policy", "policy-last"):
        assert (tmp_path / "whole" / name / "arrays.safetensors").read_bytes() == (
            tmp_path / "part" / name / "arrays.safetensors"
        ).read_bytes()
    agent, world = rhucrl.load(tmp_path / "whole"), training.env_of(config)
    case = rhucrl.worst_case(agent, world, only=["constant"])

    def replayed(env, adversary):
        """The returns of the agent's own actions, step by step, on the episodes that an attack is judged by."""
        fresh = attack.seeds(0, 1, len(case.calm))
        players = lambda obs: agent.predict(obs, deterministic=True)[0], lambda obs: np.asarray(adversary(obs, 0))
        return [sum(step.reward for step in episodes.steps(env, *players, seed)) for seed in fresh]

    assert case.calm == pytest.approx(replayed(world.at(0.0), lambda obs, time: world.neutral), rel=1e-3)
    assert case.findings["constant"].returns == pytest.approx(replayed(world, case.adversary), rel=1e-3)


def test_a_run_that_diverges_ends_and_keeps_what_was_good(tmp_path, monkeypatch, capsys):
    arguments = ["train", "pendulum", "--algo", "ppo", "--episodes", "4", "--run-dir", str(tmp_path / "run")]
    options = [word for name, value in TINY.items() if name != "batch" for word in (f"--{name}", str(value))]
    original = on_policy.OnPolicyLearner.episode

    def broken(learner, env, state, index):
        state, metrics = original(learner, env, state, index)
        return state, metrics | ({"critic_loss": float("nan")} if index == 2 else {})

    monkeypatch.setattr(on_policy.OnPolicyLearner, "episode", broken)
    assert cli.main([*arguments, *options]) == 1
    assert "diverged in episode 2: critic_loss is not a number" in capsys.readouterr().err
    assert len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()) == 2
    assert np.isfinite(rhucrl.load(tmp_path / "run").predict(np.zeros(3))[0]).all()


def test_unsuitable_pairings_are_told(capsys):
    for arguments, told in [
        (["--algo", "ep-opt"], "made for --setting parameter, not for adversarial"),
        (["--algo", "ar-ddpg", "--setting", "adversarial"], "made for --setting action"),
        (["--algo", "ar-ddpg", "--setting", "action", "--scope", "episode"], "acts at every step"),
        (["--algo", "sacc"], "did you mean 'sac'?"),
    ]:
        assert cli.main(["train", "pendulum", *arguments]) == 2
        assert told in capsys.readouterr().err
    with pytest.raises(UsageError, match="made for"):
        rhucrl.EPOpt(rhucrl.make("hopper", "adversarial"))
