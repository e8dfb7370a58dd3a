"""The two-player actor-critic on games with known answers: its values, and its play."""

from __future__ import annotations

import dataclasses
import functools

import jax.numpy as jnp
import numpy as np
import pytest

from line_problem import (
    AGENT,
    DISCOUNT,
    GAME,
    INNER,
    NUMBERS,
    OPTIONS,
    STATES,
    improved,
    start,
    world,
)
from probes import GRID, PUSH, SHOVE, Probe, Unsure, solution
from rhucrl.solvers.actor_critic.problem import Problem, Role, World


@functools.cache
def solved(sign: int = 0, reach: float = 0.0, frozen: bool = False) -> tuple[World, Problem]:
    here = world(GAME, Unsure(GAME, epistemic=reach))
    problem = start()
    if frozen:  # the response to an agent that is already good
        problem = problem._replace(networks=problem.networks._replace(agent=solved()[1].averaged))
    return here, improved(here, problem, Role(sign, True, frozen), OPTIONS, NUMBERS)


def agent_of(here: World, problem: Problem) -> np.ndarray:
    return np.asarray(here.agent(problem.averaged)(STATES))[:, 0]


def adversary_of(here: World, problem: Problem) -> np.ndarray:
    return np.asarray(here.adversary(problem.networks.adversary)(STATES))[:, 0]


def value(here: World, problem: Problem, contested: bool = True) -> np.ndarray:
    """Of both players' own actions."""
    players = here.agent(problem.networks.agent)(STATES), contested * here.adversary(problem.networks.adversary)(STATES)
    return np.asarray(here.values(problem.networks.critics, STATES, *players, jnp.float32(not contested)).mean(0))


def test_the_value_is_that_of_the_game():
    exact = solution(GAME, DISCOUNT)
    error = (value(*solved()) - exact.value)[INNER] / np.ptp(exact.value)
    assert np.abs(error).max() < 0.15


@pytest.mark.parametrize("shove", [-1.0, 0.0, 1.0])
def test_a_critic_knows_what_it_costs_when_a_shove_goes_on_to_the_end(shove):
    """Held extremes and nobody: after the steps that are imagined nobody else takes over."""
    here, problem = solved()
    actions = agent_of(here, problem)[:, None]
    exact = solution(GAME, DISCOUNT, actions, shoves=shove).value
    played = here.agent(problem.networks.agent)(STATES), jnp.full_like(STATES, shove)
    found = np.asarray(here.values(problem.networks.critics, STATES, *played, jnp.float32(1)).mean(0))
    assert np.abs(found - exact)[INNER].max() < 0.15 * np.ptp(exact)
    handed_over = np.asarray(here.values(problem.networks.critics, STATES, *played, jnp.float32(0)).mean(0))
    kind = (GRID * shove < -0.5) & INNER  # where this shove helps, the network's would not
    assert (found > handed_over + 0.01 * np.ptp(exact))[kind].all()


def test_a_critic_knows_what_it_costs_when_a_rule_is_followed_to_the_end():
    """Away from 0 at every step is the worst that there is; towards it is kind. Neither is held, nor the network's."""
    costs = {}
    for direction in (1.0, -1.0):
        here = world(GAME, Unsure(GAME), rules=jnp.array([[[direction, 0.0]]]))
        problem = improved(here, start(), AGENT, dataclasses.replace(OPTIONS, held=1, rules=1), NUMBERS)
        shoves = direction * np.where(GRID >= 0, 1.0, -1.0)
        exact = solution(GAME, DISCOUNT, agent_of(here, problem)[:, None], shoves=shoves[:, None]).value
        played = here.agent(problem.networks.agent)(STATES), jnp.asarray(shoves, jnp.float32)[:, None]
        found = np.asarray(here.values(problem.networks.critics, STATES, *played, jnp.float32(-1)).mean(0))
        assert np.abs(found - exact)[INNER].max() < 0.15 * np.ptp(exact)
        costs[direction] = found[INNER].mean(), np.ptp(exact)
    assert costs[1.0][0] < costs[-1.0][0] - 0.1 * costs[1.0][1]


def test_the_agents_worst_case_is_nearly_the_value_of_the_game():
    exact, got = solution(GAME, DISCOUNT), solution(GAME, DISCOUNT, agent_of(*solved())[:, None])
    idle = solution(GAME, DISCOUNT, 0 * GRID[:, None])
    lost = (exact.value - got.value)[INNER].mean()
    assert lost < 0.05 * (exact.value - idle.value)[INNER].mean()


@pytest.mark.parametrize("sign", [1, -1])
def test_optimism_and_pessimism_are_worth_what_they_should(sign):
    """The value of the game in which eta moves every next state by up to .05, beside that without."""
    plain, exact = (solution(GAME, DISCOUNT, reach=reach, sign=sign).value for reach in (0.0, 0.05))
    gained, all_of_it = (value(*solved(sign, 0.05)) - value(*solved()))[INNER].mean(), (exact - plain)[INNER].mean()
    assert 0.6 < gained / all_of_it < 1.5


def test_the_response_is_the_best_one():
    here, problem = solved(frozen=True)
    exact = solution(GAME, DISCOUNT, agent_of(*solved())[:, None])
    shove, matters = adversary_of(here, problem), INNER & (np.abs(GRID) > 0.3)
    assert (np.sign(shove) == np.sign(exact.shove))[matters].mean() > 0.9
    assert np.abs(shove)[matters].mean() > 0.6


COST, PRICE = 0.5, 1.0  # of the agent's action squared, and of the adversary's


class Quadratic(Probe):
    """Both players pay for their actions: linear-quadratic, with a saddle point inside both boxes."""

    def reward(self, obs, executed, adversary, next_obs):
        paid = COST * jnp.square(executed[..., 0]) - PRICE * jnp.square(adversary[..., 0])
        return -jnp.square(obs[..., 0]) - paid


def saddle_point() -> tuple[float, float]:
    """Gains of a = K s and abar = L s, by iterating V = -P s^2 (both first-order conditions are linear)."""
    p = 0.0
    for _ in range(500):
        c = DISCOUNT * p  # minimise over a, maximise over abar: COST a^2 - PRICE abar^2 + c (s + PUSH a + SHOVE abar)^2
        left = np.array([[COST + c * PUSH**2, c * PUSH * SHOVE], [c * PUSH * SHOVE, c * SHOVE**2 - PRICE]])
        k, ell = np.linalg.solve(left, -c * np.array([PUSH, SHOVE]))
        p = 1 + COST * k**2 - PRICE * ell**2 + c * (1 + PUSH * k + SHOVE * ell) ** 2
    return k, ell


def test_both_players_of_a_linear_quadratic_game_find_its_saddle_point():
    game = Quadratic(horizon=1000, certain=True)
    here = world(game, Unsure(game))
    options = dataclasses.replace(OPTIONS, held=0, nobody=False)
    problem = improved(here, start(game), AGENT, options, NUMBERS)
    near = np.abs(GRID) < 0.6  # where no action is held in its box
    assert 0.5 < -saddle_point()[0] < 1.2 and 0.1 < saddle_point()[1] < 1.2
    for found, gain in zip((agent_of, adversary_of), saddle_point(), strict=True):
        slope = np.polyfit(GRID[near], found(here, problem)[near], 1)[0]
        assert slope == pytest.approx(gain, rel=0.4)  # it learns with noise on both actions


class Behind(Unsure):
    """Nobody has been beyond s = .5: there the model says that nothing moves, and knows that it does not know."""

    def mean(self, obs, executed, adversary):
        return jnp.where(obs > 0.5, obs, super().mean(obs, executed, adversary))

    def doubt(self, obs, executed, adversary):
        return jnp.where(obs > 0.5, 0.04, 0.0)


@pytest.mark.parametrize(("sign", "goes"), [(1, True), (0, False)])
def test_only_an_optimist_goes_where_nobody_has_been(sign, goes):
    """The goal is at s = 2, and to go on costs: in the mean model nothing beyond .5 is worth it."""
    game = Probe(goal=jnp.float32(2.0), horizon=500, certain=True, strength=0.0)
    here, numbers = world(game, Behind(game)), NUMBERS._replace(beta=jnp.float32(5))
    problem = improved(here, start(game), Role(sign, False, False), OPTIONS, numbers)
    worth = value(here, problem, False)[np.abs(GRID - 1.0).argmin()]
    stuck = -1.0 / (1 - DISCOUNT)  # who stays at s = 1 pays 1 for ever
    assert (worth > 0.8 * stuck) == goes


class Unshown(Unsure):
    """No data show what the adversary's action does: the mean says nothing, and the doubt grows with it."""

    def mean(self, obs, executed, adversary):
        return super().mean(obs, executed, 0 * adversary)

    def doubt(self, obs, executed, adversary):
        return 0.1 * (1 + adversary)


def test_only_a_pessimist_finds_an_adversary_that_data_have_not_shown():
    game = Probe(horizon=500, certain=True)
    here = world(game, Unshown(game))
    begun = start(game)
    begun = begun._replace(networks=begun.networks._replace(agent=solved()[1].networks.agent))
    worth, shove = {}, {}
    for sign in (0, -1):
        problem = improved(here, begun, Role(sign, True, True), OPTIONS, NUMBERS)
        worth[sign], shove[sign] = value(here, problem)[INNER].mean(), adversary_of(here, problem)[INNER].mean()
    assert shove[-1] > 0.7
    assert worth[-1] < worth[0] - 0.1
