"""The protocol on the pendulum, very small: every algorithm, every setting, the right adversary, the right output."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from probes import enable_cache
from rhucrl.algorithms import ALGORITHMS
from rhucrl.config import TrainConfig
from rhucrl.envs.game import Game
from rhucrl.models.base import Prediction
from rhucrl.models.known import KnownModel
from rhucrl.solvers import bounds
from rhucrl.solvers.look_ahead import solver as look_ahead
from rhucrl.solvers.look_ahead.backup import unit
from rhucrl.solvers.look_ahead.policies import AdversaryPolicy
from rhucrl.training import protocol
from rhucrl.training.loop import env_of
from rhucrl.training.protocol import TrainingState

enable_cache()

HORIZON = 20
TINY = {
    "horizon": HORIZON, "episodes": 4, "pool": 16, "updates": 0.5, "batch": 8, "width": 8, "features": 8,
    "model_width": 8, "model_rounds": 2, "model_steps": 2, "acting_points": 3,
}  # fmt: skip
CASES = {
    "rh-ucrl": {"algo": "rh-ucrl"},
    "best-response": {"algo": "best-response", "setting": "action"},
    "maximin-mb": {"algo": "maximin-mb", "setting": "action", "mixture": "probabilistic"},
    "h-ucrl": {"algo": "h-ucrl"},
    "greedy": {"algo": "greedy", "heads": 3},
    "parameter": {"algo": "rh-ucrl", "setting": "parameter"},
}


class Told(NamedTuple):
    """A run: the state and the metrics after every episode."""

    config: TrainConfig
    game: Game
    states: list[TrainingState]
    metrics: list[dict]

    def rows(self, episode: int):
        """The transitions of one episode."""
        data = self.states[-1].replay.data
        return jax.tree.map(lambda x: np.asarray(x[episode * HORIZON : (episode + 1) * HORIZON]), data)


def play(config: TrainConfig, episodes: int) -> Told:
    env = env_of(config)
    state, states, metrics = protocol.ModelBased(config).initial(env), [], []
    for index in range(episodes):
        state, told = protocol.ModelBased(config).episode(env, state, index)
        states.append(state)
        metrics.append(told)
    return Told(config, env.game, states, metrics)


@functools.cache
def run(case: str) -> Told:
    return play(TrainConfig.preset(**TINY | CASES[case]), 4)


def same(one, other) -> bool:
    return all(jax.tree.leaves(jax.tree.map(lambda a, b: bool(jnp.array_equal(a, b)), one, other)))


def paths(tree) -> set[str]:
    """The names of a tree's arrays."""
    return {jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(tree)}


def changed(before, after) -> set[str]:
    """The names of the arrays that differ."""
    pairs = zip(jax.tree_util.tree_leaves_with_path(before), jax.tree.leaves(after), strict=True)
    return {jax.tree_util.keystr(path) for (path, one), other in pairs if not jnp.array_equal(one, other)}


def test_the_cases_are_all_algorithms():
    assert {case["algo"] for case in CASES.values()} == set(ALGORITHMS)


@pytest.mark.parametrize("case", CASES)
def test_an_episode_is_selected_played_and_learned(case):
    told = run(case)
    assert "J_optimistic" not in told.metrics[0]  # random actions
    for metrics in told.metrics:
        assert all(math.isfinite(x) for x in metrics.values()), metrics
    assert int(told.states[-1].replay.size) == 4 * HORIZON


@pytest.mark.parametrize("case", CASES)
def test_an_episode_changes_all_that_it_learns_and_nothing_else(case):
    """A fit changes the whole model, but not the game; a selection changes both critics, and the pair follows them."""
    told = run(case)
    before = protocol.ModelBased(told.config).initial(env_of(told.config))
    for episode, after in enumerate(told.states):
        fitted = {path for path in paths(before.model) if not path.startswith(".game")}
        assert changed(before.model, after.model) | {".temperature"} == fitted
        if episode == 0:  # random actions
            assert not changed((before.learner, before.last), (after.learner, after.last))
        else:
            assert changed(before.learner, after.learner) == paths(before.learner)
            players, problems = (after.last.policy.player, after.last.response.player), after.learner
            for player, problem in zip(players, problems, strict=True):
                assert same(player.critic, problem.average) and same(player.model, before.model)
            others = {path for path in changed(before.last, after.last) if ".critic" not in path}
            assert all(".player.model." in path or path.endswith(".learning_rate") for path in others)
        before = after


@pytest.mark.parametrize("case", ["rh-ucrl", "h-ucrl"])
def test_in_the_true_model_every_bound_is_the_real_return(case):
    """Without uncertainty eta chooses among nothing, and what is imagined is the episode that was played."""
    told = run(case)
    pair = told.states[3].last
    here = look_ahead.contest(told.config.algo, pair.policy, pair, KnownModel(told.game))
    lanes = [(who, bounds.DEPLOYED) for who in (bounds.OPTIMIST, bounds.NOBODY, bounds.MEMBER, bounds.PESSIMIST)]
    returns = jax.jit(lambda key: bounds.rollouts(here, lanes, 1, key))(jax.random.key(0))
    np.testing.assert_allclose(returns[:, 0], told.metrics[3]["return"], rtol=1e-4)


def test_the_optimist_follows_the_agents_critic_and_the_pessimist_flees_the_responses():
    """eta is the corner of its box to which the critic's gradient points, or the opposite one."""
    told = run("rh-ucrl")
    game, learner, pair = told.game, told.states[3].learner, told.states[3].last
    here, obs = look_ahead.contest(told.config.algo, pair.policy, pair, told.states[2].model), told.rows(3).obs
    for eta, problem, sign in ((here.optimist, learner.agent, 1), (here.pessimist, learner.response, -1)):

        def worth(obs, critic=problem.average):
            return look_ahead.value(game, critic, game.project(obs), game.neutral).sum()

        corner = jax.jit(lambda obs, eta=eta: eta(obs, obs, obs, obs, Prediction(obs, obs, obs)))(obs)
        slope = np.asarray(jax.jit(jax.grad(worth))(obs))
        steep = np.abs(slope) > 1e-3
        assert steep.mean() > 0.5
        np.testing.assert_array_equal(corner[steep], sign * np.sign(slope)[steep])


@pytest.mark.parametrize("case", ["h-ucrl", "greedy"])
def test_without_an_opponent_the_output_is_the_last_policy_that_earned_about_the_most(case):
    told = run(case)
    earned = [metrics["return"] for metrics in told.metrics]
    for end, state in enumerate(told.states[1:], 1):
        near = max(earned[1 : end + 1]) - 0.05 * float(unit(told.game))
        best = max(i for i in range(1, end + 1) if earned[i] >= near)
        assert int(state.robust.episode) == told.metrics[end]["output_episode"] == best
        assert same(state.robust.players, told.states[best].last)


@pytest.mark.parametrize(
    ("algo", "bound", "earned", "outcome"),
    [
        ("h-ucrl", 9.0, -1.1, False),  # whatever a model says of it
        ("h-ucrl", -9.0, -0.9, True),
        ("rh-ucrl", 1.1, -9.0, True),  # with an opponent J^(p) decides
        ("rh-ucrl", -1.1, 9.0, False),
        ("rh-ucrl", 0.9, -1.1, False),  # unless it cannot tell
        ("rh-ucrl", -0.9, -0.9, True),
    ],
)
def test_what_is_output_is_decided_by_pessimism_and_then_by_returns(algo, bound, earned, outcome):
    told = run(algo)
    state, tie = told.states[1], 0.05 * float(unit(told.game))
    j = {"J_pessimistic": state.robust.bound + bound * tie, "J_pessimistic_output": jnp.float32(1e6)}
    after = protocol.choose_outputs(told.config, told.game, state, 7, j, state.robust.earned + earned * tie)
    assert int(after.robust.episode) == (7 if outcome else 1)


@pytest.mark.parametrize("case", sorted(CASES))
def test_the_papers_output_is_the_policy_of_the_largest_pessimistic_bound(case):
    """Literally: whatever later episodes say of it, and whatever was earned."""
    told = run(case)
    j = [-math.inf, *(metrics["J_pessimistic"] for metrics in told.metrics[1:])]
    for end, state in enumerate(told.states[1:], 1):
        best = int(np.argmax(j[: end + 1]))
        assert int(state.literal.episode) == told.metrics[end]["output_episode_paper"] == best
        assert same(state.literal.players, told.states[best].last)
        assert told.metrics[end]["output_episode_robust"] == told.metrics[end]["output_episode"]


@pytest.mark.parametrize(("rule", "other"), [("robust", "paper"), ("paper", "robust")])
def test_a_run_gives_back_what_its_rule_has_chosen_and_keeps_the_other(rule, other):
    told = run("rh-ucrl")
    state = told.states[-1]._replace(robust=told.states[-1].literal._replace(episode=jnp.int32(-7)))
    learner = protocol.ModelBased(dataclasses.replace(told.config, output_rule=rule))
    kept = learner.policies(state)
    assert {*kept} == {"policy", f"policy-{other}"}
    episode = {"robust": -7, "paper": int(state.literal.episode)}
    assert (int(kept["policy"][1]), int(kept[f"policy-{other}"][1])) == (episode[rule], episode[other])


@pytest.mark.parametrize("case", sorted({*CASES} - {"h-ucrl", "greedy"}))
def test_the_output_is_the_policy_of_the_best_pessimistic_bound(case):
    told, tie = run(case), 0.05 * float(unit(run(case).game))
    best, bound, earned = None, -math.inf, -math.inf
    for end, state in enumerate(told.states[1:], 1):
        metrics = told.metrics[end]
        bound = min(bound, metrics["J_pessimistic_output"])
        clearly = abs(metrics["J_pessimistic"] - bound) > tie
        if metrics["J_pessimistic"] > bound if clearly else metrics["return"] >= earned - tie:
            earned = metrics["return"] if clearly else max(earned, metrics["return"])
            best, bound = end, metrics["J_pessimistic"]
        assert int(state.robust.episode) == metrics["output_episode"] == best
        assert metrics["output_bound"] == pytest.approx(bound, abs=1e-3)
        assert same(state.robust.players, told.states[best].last)


@pytest.mark.parametrize("case", ["h-ucrl", "greedy"])
def test_without_an_opponent_nobody_disturbs_the_data(case):
    told = run(case)
    for episode in range(4):
        np.testing.assert_array_equal(told.rows(episode).adversary, np.ones((HORIZON, 2)))


@pytest.mark.parametrize("case", ["rh-ucrl", "best-response", "maximin-mb", "parameter"])
def test_the_deployed_adversary_is_the_one_of_the_table(case):
    told = run(case)
    who = {"response": lambda pair: pair.response, "own": lambda pair: AdversaryPolicy(pair.policy.player)}
    adversary = who[ALGORITHMS[told.config.algo].deployed]

    @jax.jit
    def answers(pair, obs):
        return adversary(pair)(obs, pair.policy(obs))

    disturbed = False
    for episode in (1, 2, 3):
        rows = told.rows(episode)
        expected = answers(told.states[episode].last, rows.obs)
        assert np.isclose(rows.adversary, expected, atol=1e-5).all(-1).mean() > 0.9  # but for ties
        disturbed |= bool(np.abs(rows.adversary - told.game.neutral).max() > 0.1)
    assert disturbed


def test_actions_are_mixed_before_they_are_stored():
    noisy, probabilistic = run("best-response"), run("maximin-mb")
    policy = jax.jit(lambda pair, obs: pair.policy(obs))
    for told, alpha in ((noisy, 0.2), (probabilistic, None)):
        rows, pair = told.rows(2), told.states[2].last
        own = policy(pair, rows.obs)
        mixed = own if alpha is None else (1 - alpha) * own + alpha * rows.adversary
        matches = np.isclose(rows.executed, mixed, atol=1e-5)
        if alpha is None:
            matches |= rows.executed == rows.adversary
        assert matches.mean() > 0.9


def test_a_parameter_holds_for_the_episode():
    told = run("parameter")
    values = [told.rows(episode).adversary for episode in range(4)]
    for value in values:
        np.testing.assert_array_equal(value, np.broadcast_to(value[0], value.shape))
        assert 0.2 - 1e-6 <= value[0, 0] <= 1.8 + 1e-6
    assert np.ptp([value[0, 0] for value in values]) > 0.1


def test_transitions_follow_one_another():
    rows = run("rh-ucrl").rows(2)
    np.testing.assert_array_equal(rows.obs[1:], rows.following[:-1])
    game = run("rh-ucrl").game
    np.testing.assert_allclose(game.dynamics(*rows[:3]), rows.following, atol=1e-5)


def test_a_seed_decides_everything():
    told = run("rh-ucrl")
    assert play(told.config, 4).metrics == told.metrics
    other = play(TrainConfig.preset(**TINY | CASES["rh-ucrl"], seed=1), 1)
    assert other.metrics[0]["return"] != told.metrics[0]["return"]
