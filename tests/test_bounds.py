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
    bounds,
    pessimistic,
    rollouts,
)

GAME, SIGMA, KEY = Probe(goal=EDGE, horizon=5, certain=True), 0.1, jax.random.key(0)


def contest(sigma=SIGMA, beta=1.0, up=1.0, down=1.0, deployed=0.0, own=0.0, constants=(0.0,)) -> Contest:
    """An agent that does nothing, from 1; `up` and `down` are the slopes of V, the others are what adversaries do."""

    def always(value):
        return lambda obs, *_: jnp.full((*obs.shape[:-1], 1), value)

    players = always(0.0), always(deployed), always(own), jnp.array(constants)[:, None]
    return Contest(GAME, Unsure(GAME, sigma), *players, always(up), always(down), GAME.project, jnp.float32(beta))


def moving(drift: float) -> float:
    """The return of moving from 1 by `drift` at each of five steps."""
    return -float(np.square(np.clip(1 + drift * np.arange(5), -EDGE, EDGE) - EDGE).sum())


@pytest.mark.parametrize("beta", [0.5, 1.0, 2.0])
def test_eta_widens_the_bounds_by_beta_sigma_and_pessimism_stays_inside_the_confidence(beta):
    lanes = [(who, DEPLOYED) for who in (OPTIMIST, NOBODY, MEMBER, PESSIMIST)]
    drifts = beta * SIGMA, 0.0, SIGMA, -min(beta, CONFIDENCE) * SIGMA  # the probe's member is one sigma off
    expected = [moving(drift) for drift in drifts]
    here = contest(beta=beta)
    np.testing.assert_allclose(rollouts(here, lanes, KEY), expected, rtol=1e-5)
    optimist, _, member, pessimist = expected
    np.testing.assert_allclose(bounds(here, KEY), (optimist, member, pessimist), rtol=1e-5)
    assert float(pessimistic(here, KEY)) == pytest.approx(pessimist)


def test_no_eta_is_among_what_both_bounds_choose_from():
    """Slopes that lead the wrong way make the raw rollouts worse and better than the mean; the bounds are the mean."""
    here = contest(up=-1.0, down=-1.0)
    raw = rollouts(here, [(OPTIMIST, DEPLOYED), (PESSIMIST, DEPLOYED)], KEY)
    np.testing.assert_allclose(raw, (moving(-SIGMA), moving(SIGMA)), rtol=1e-5)
    found = bounds(here, KEY)
    assert (float(found.optimistic), float(found.pessimistic)) == pytest.approx((moving(0), moving(0)))


@pytest.mark.parametrize(("deployed", "own", "constant"), [(-1, -0.5, -0.5), (-0.5, -1, -0.5), (-0.5, -0.5, -1)])
def test_pessimism_is_the_minimum_over_adversaries_and_the_others_meet_the_deployed_one(deployed, own, constant):
    found = bounds(contest(sigma=0.0, deployed=deployed, own=own, constants=(0.0, constant)), KEY)
    alone = moving(SHOVE * deployed)
    np.testing.assert_allclose(found, (alone, alone, moving(-SHOVE)), rtol=1e-5)


def test_each_lane_has_its_own_adversary():
    here = contest(sigma=0.0, deployed=0.0, own=-0.5, constants=(-1.0, 1.0))
    lanes = [(NOBODY, who) for who in (DEPLOYED, OWN, 0, 1)]
    pushes = 0.0, -0.5, -1.0, 1.0
    np.testing.assert_allclose(rollouts(here, lanes, KEY), [moving(SHOVE * push) for push in pushes], rtol=1e-5)
    strays = np.asarray(rollouts(here, [(NOBODY, STRAY)] * 20, KEY))
    assert moving(-SHOVE) < strays.min() < moving(0.0) < strays.max() < moving(SHOVE)
