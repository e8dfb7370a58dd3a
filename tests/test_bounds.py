"""J^(o), J^(e) and J^(p) against sums by hand, in a game whose uncertainty and adversaries are known."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from probes import EDGE, SHOVE, Probe, Unsure
from rhucrl.solvers.bounds import (
    CONFIDENCE,
    DEPLOYED,
    MEMBER,
    NOBODY,
    OPTIMIST,
    OWN,
    PESSIMIST,
    STRAY,
    Contest,
    attackers,
    bounds,
    pessimistic,
    rollouts,
)
from rhucrl.solvers.look_ahead.solver import held

GAME, SIGMA, KEY = Probe(goal=EDGE, horizon=5, certain=True), 0.1, jax.random.key(0)


class Above(Unsure):
    """All members lie one sigma above the mean."""

    def member(self, obs, executed, adversary, index):
        return super().member(obs, executed, adversary, jnp.ones_like(index))


def contest(
    sigma=SIGMA, beta=1.0, up=1.0, down=-1.0, deployed=0.0, own=0.0, constants=(0.0,), noise=0.0
) -> Contest:  # fmt: skip
    """An agent that does nothing, from 1; `up` and `down` are both players' eta, the others what adversaries do."""

    def always(value):
        return lambda obs, *_: jnp.full((*obs.shape[:-1], 1), value)

    players = always(0.0), always(deployed), always(own), *held(jnp.array(constants)[:, None])
    etas = always(up), always(down)
    return Contest(
        GAME, Above(GAME, epistemic=sigma, aleatoric=noise), *players, *etas, GAME.project, jnp.float32(beta)
    )


def moving(drift: float) -> float:
    """The return of moving from 1 by `drift` at each of five steps."""
    return -float(np.square(np.clip(1 + drift * np.arange(5), -EDGE, EDGE) - EDGE).sum())


def from_one_start(here: Contest) -> tuple[float, ...]:
    """J^(o), J^(e) and J^(p) of a single rollout, which has no standard error."""
    found = bounds(here, 1, KEY)
    assert {*found} == {"J_optimistic", "J_expected", "J_pessimistic"}
    return tuple(float(found[f"J_{name}"]) for name in ("optimistic", "expected", "pessimistic"))


@pytest.mark.parametrize("beta", [0.5, 1.0, 2.0])
def test_eta_widens_the_bounds_by_beta_sigma_and_pessimism_stays_inside_the_confidence(beta):
    lanes = [(who, DEPLOYED) for who in (OPTIMIST, NOBODY, MEMBER, PESSIMIST)]
    drifts = beta * SIGMA, 0.0, SIGMA, -min(beta, CONFIDENCE) * SIGMA
    expected = [moving(drift) for drift in drifts]
    here = contest(beta=beta)
    np.testing.assert_allclose(rollouts(here, lanes, 1, KEY)[:, 0], expected, rtol=1e-5)
    optimist, _, member, pessimist = expected
    np.testing.assert_allclose(from_one_start(here), (optimist, member, pessimist), rtol=1e-5)
    assert float(pessimistic(here, 1, KEY)) == pytest.approx(pessimist)


def test_no_eta_is_among_what_both_bounds_choose_from():
    """An eta that leads the wrong way makes raw rollouts worse and better than the mean; the bounds are the mean."""
    here = contest(up=-1.0, down=1.0)
    raw = rollouts(here, [(OPTIMIST, DEPLOYED), (PESSIMIST, DEPLOYED)], 1, KEY)[:, 0]
    np.testing.assert_allclose(raw, (moving(-SIGMA), moving(SIGMA)), rtol=1e-5)
    optimistic, _, pessimistic = from_one_start(here)
    assert (optimistic, pessimistic) == pytest.approx((moving(0), moving(0)))


@pytest.mark.parametrize(("deployed", "own", "constant"), [(-1, -0.5, -0.5), (-0.5, -1, -0.5), (-0.5, -0.5, -1)])
def test_pessimism_is_the_minimum_over_adversaries_and_the_others_meet_the_deployed_one(deployed, own, constant):
    found = from_one_start(contest(sigma=0.0, deployed=deployed, own=own, constants=(0.0, constant)))
    alone = moving(SHOVE * deployed)
    np.testing.assert_allclose(found, (alone, alone, moving(-SHOVE)), rtol=1e-5)


def test_each_lane_has_its_own_adversary():
    here = contest(sigma=0.0, deployed=0.0, own=-0.5, constants=(-1.0, 1.0))
    lanes = [(NOBODY, who) for who in (DEPLOYED, OWN, 0, 1)]
    pushes = 0.0, -0.5, -1.0, 1.0
    expected = [moving(SHOVE * push) for push in pushes]
    np.testing.assert_allclose(rollouts(here, lanes, 1, KEY)[:, 0], expected, rtol=1e-5)
    strays = np.asarray(rollouts(here, [(NOBODY, STRAY)] * 20, 1, KEY))
    assert moving(-SHOVE) < strays.min() < moving(0.0) < strays.max() < moving(SHOVE)


def test_lanes_share_their_luck_and_starts_do_not():
    returns = np.asarray(rollouts(contest(sigma=0.0, noise=0.1), [(NOBODY, DEPLOYED), (NOBODY, OWN)], 6, KEY))
    np.testing.assert_allclose(returns[0], returns[1], rtol=1e-5)
    assert len(np.unique(returns[0].round(4))) == 6


@pytest.mark.parametrize("n", [4, 400])
def test_each_j_is_a_mean_over_starts_and_has_a_standard_error_that_shrinks(n):
    here = contest(noise=0.1, deployed=0.0, constants=(0.0, -1.0))
    found = {name: float(x) for name, x in bounds(here, n, KEY).items()}
    others = [(OPTIMIST, DEPLOYED), (NOBODY, DEPLOYED), (MEMBER, DEPLOYED), (MEMBER, DEPLOYED)]
    optimist, _, one, other, *against = np.asarray(rollouts(here, [*others, *attackers(here)], n, KEY))
    worst = min(against, key=np.mean)  # the minimum of means, not the mean of minima
    for name, returns in (("optimistic", optimist), ("expected", (one + other) / 2), ("pessimistic", worst)):
        assert found[f"J_{name}"] == pytest.approx(returns.mean(), rel=1e-4)
        assert found[f"J_{name}_error"] == pytest.approx(returns.std(ddof=1) / n**0.5, rel=1e-3)
        assert 0.1 / n**0.5 < found[f"J_{name}_error"] < 5 / n**0.5
