"""Models: hallucination, the ensemble and its fit, calibration, and the replay that feeds them."""

from __future__ import annotations

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rhucrl
from probes import Probe
from rhucrl import replay as store
from rhucrl.config import TrainConfig
from rhucrl.hallucination import hallucinate
from rhucrl.models import calibration, ensemble
from rhucrl.models.base import Prediction
from rhucrl.models.ensemble import EnsembleModel
from rhucrl.replay import Transitions

HEADS, WIDTH = 5, 16


def transitions(n: int, seed: int = 0, span: float = 1.0, noise: float = 0.0) -> Transitions:
    """What the probe does in |s| < span; its adversary is constant."""
    rng = np.random.default_rng(seed)
    obs, executed = (rng.uniform(-x, x, (n, 1)).astype(np.float32) for x in (span, 1.0))
    adversary = np.full((n, 1), 0.5, np.float32)
    following = obs + 0.3 * executed + 0.2 * adversary + noise * rng.standard_normal((n, 1), np.float32)
    return Transitions(*map(jnp.asarray, (obs, executed, adversary, following)))


def filled(data: Transitions, capacity: int = 512) -> store.Replay:
    return store.add(store.empty(capacity, (1, 1, 1), HEADS), data, jnp.int32(len(data.obs)), jax.random.key(0))


def fresh(seed: int = 0, linear: bool = False, noise: str = "state", layers: int = 2) -> EnsembleModel:
    options = {"heads": HEADS, "model_width": WIDTH, "linear": linear, "noise": noise, "model_layers": layers}
    return ensemble.create(TrainConfig.preset(**options), Probe(), jax.random.key(seed))[0]


@functools.partial(jax.jit, static_argnums=(2, 3, 4))
def fit(model, replay, rounds=20, learning_rate=3e-3, decay=1e-4):
    options = rhucrl.Ensemble(rounds=rounds, learning_rate=learning_rate, decay=decay, steps=25, batch=64)
    state = ensemble.optimiser(options).init(eqx.filter(model.heads, eqx.is_array))
    return ensemble.fit(model, state, replay, options, jax.random.key(1))


def test_epochs_say_how_many_gradient_steps_a_fit_has(data):
    options = rhucrl.Ensemble(epochs=2, rounds=1, learning_rate=1e-6, steps=5, batch=8)
    model = fresh()
    state = ensemble.optimiser(options).init(eqx.filter(model.heads, eqx.is_array))
    drawn = int(store.bootstrap(data)[1].max())
    _, _, report = jax.jit(lambda m, s: ensemble.fit(m, s, data, options, jax.random.key(1)))(model, state)
    assert 0 <= float(report["fit_steps"]) - 2 * drawn / 8 <= 5


@pytest.fixture(scope="module")
def data():
    return filled(transitions(400, noise=0.02))


@pytest.fixture(scope="module")
def fitted(data):
    return fit(fresh(), data)[0]


def held_out_error(model: EnsembleModel, replay: store.Replay) -> float:
    """The mean squared error on the validation rows, in units of the change's variance."""
    mean = model.predict(*replay.data[:3]).mean
    rows = np.asarray(replay.held_out * replay.filled, bool)
    return float(np.square((mean - replay.data.following) / model.changes[1])[rows].mean())


def test_eta_moves_along_the_epistemic_std_and_the_noise_stays():
    prediction = Prediction(jnp.array([1.0, 2.0]), jnp.array([0.1, 0.0]), jnp.array([0.0, 0.5]))
    eta, noise, beta = jnp.array([1.0, -1.0]), jnp.array([3.0, -1.0]), jnp.float32(2)
    np.testing.assert_allclose(hallucinate(prediction, eta, beta, noise), [1.2, 1.5], rtol=1e-6)
    np.testing.assert_allclose(hallucinate(prediction, 0 * eta, beta, noise), [1.0, 1.5], rtol=1e-6)


def test_the_ensemble_learns_a_known_map(fitted):
    test = transitions(200, seed=7)
    prediction = fitted.predict(*test[:3])
    np.testing.assert_allclose(prediction.mean, test.following, atol=0.05)
    assert np.sqrt(np.square(prediction.mean - test.following).mean()) < 0.015
    assert 0.012 < prediction.aleatoric.mean() < 0.035  # the noise is .02


def test_a_linear_part_learns_a_linear_map_from_few_data():
    replay, test, wrong = filled(transitions(20)), transitions(100, seed=7), {}
    for linear in (False, True):
        model = fit(fresh(linear=linear), replay)[0]
        wrong[linear] = float(jnp.abs(model.predict(*test[:3]).mean - test.following).mean())
    assert wrong[True] < 0.5 * wrong[False]


def test_only_held_out_rows_validate(data):
    index, there = store.validation(data)
    held_out = np.flatnonzero(data.held_out * data.filled)
    assert 0 < there.sum() == len(held_out)
    np.testing.assert_array_equal(index[: len(held_out)], held_out)


def test_a_fit_is_judged_by_a_bounded_number_of_rows_from_all_times(data, monkeypatch):
    monkeypatch.setattr(store, "JUDGES", 5)
    index, there = store.validation(data)
    held_out = np.flatnonzero(data.held_out * data.filled)
    assert there.sum() == len(index) == len(set(index.tolist())) == 5
    assert set(index.tolist()) <= set(held_out.tolist())
    assert index[0] == held_out[0] and index[-1] >= held_out[3 * len(held_out) // 4]


def test_heads_disagree_away_from_the_data(fitted):
    seen, unseen = transitions(100, seed=8), transitions(100, seed=8)
    unseen = unseen._replace(obs=unseen.obs + 6)
    near, far = (fitted.predict(*x[:3]).epistemic.mean() for x in (seen, unseen))
    assert far > 10 * near > 0


def test_spread_of_means_is_epistemic_and_mean_of_variances_aleatoric(fitted):
    test = transitions(6)
    mean, std = fitted.each(*test[:3])
    prediction = fitted.predict(*test[:3])
    np.testing.assert_allclose(prediction.mean, np.mean(mean, 0), rtol=1e-6)
    np.testing.assert_allclose(prediction.epistemic, np.std(mean, 0), rtol=1e-4)
    np.testing.assert_allclose(prediction.aleatoric, np.sqrt(np.square(std).mean(0)), rtol=1e-5)
    hot = eqx.tree_at(lambda m: m.temperature, fitted, jnp.float32(3))
    np.testing.assert_allclose(hot.predict(*test[:3]).epistemic, 3 * prediction.epistemic, rtol=1e-5)
    index = jnp.array([0, 1, 2, 3, 4, 0])
    one, its_std = fitted.member(*test[:3], index)
    np.testing.assert_array_equal(one, mean[index, jnp.arange(6)])
    np.testing.assert_array_equal(its_std, std[index, jnp.arange(6)])


def test_heads_that_agree_exactly_still_have_a_gradient(fitted):
    alike = jax.tree.map(lambda x: jnp.broadcast_to(x[:1], x.shape), fitted.heads)
    model, test = eqx.tree_at(lambda m: m.heads, fitted, alike), transitions(6)
    slope = jax.grad(lambda obs: model.predict(obs, *test[1:3]).epistemic.sum())(test.obs)
    assert np.isfinite(slope).all()


def test_a_refit_changes_the_predictions(data, fitted):
    moved = transitions(100, seed=3)
    moved = moved._replace(following=moved.following + 0.5)
    again = fit(fitted, store.add(data, moved, jnp.int32(100), jax.random.key(2)))[0]
    before, after = (model.predict(*moved[:3]).mean.mean() for model in (fitted, again))
    assert after > before + 0.05


def test_a_constant_input_does_no_harm(fitted):
    """The adversary never moved while the data were collected; its column is centred and left in its own units."""
    np.testing.assert_allclose(fitted.inputs[0][2], 0.5)
    assert fitted.inputs[1][2] == 1
    test = transitions(20)
    nudged = test._replace(adversary=test.adversary + 0.2)
    assert np.abs(fitted.predict(*nudged[:3]).mean - fitted.predict(*test[:3]).mean).max() < 0.5


def test_fitting_never_looks_at_validation_rows(data, fitted):
    """Their targets choose when to stop, so the rounds are fixed to one here."""
    spoiled = data.data.following + 0.1 * data.held_out[:, None] * jnp.sign(data.data.obs)
    other = data._replace(data=data.data._replace(following=spoiled))
    changes = lambda model: model.changes  # noqa: E731 (the statistics are of all rows)
    one, two = (eqx.tree_at(changes, fit(fresh(), x, 1)[0], fitted.changes) for x in (data, other))
    rows = tuple(x[:8] for x in data.data[:3])
    assert np.abs(one.predict(*rows).mean - two.predict(*rows).mean).max() < 0.02
    weights = np.asarray(data.weight)
    assert (weights[np.asarray(data.held_out) == 1] == 0).all()


def test_fits_end_with_their_best_weights(data, fitted):
    """A step size that is far too large ruins the weights round by round: the least bad round is returned."""
    model, _, report = fit(fitted, data, 20, 0.1)
    assert report["fit_steps"] < 20 * 25  # stopped
    np.testing.assert_allclose(held_out_error(model, data), report["validation_error"] ** 2, rtol=1e-2)
    after = [held_out_error(fit(fitted, data, rounds, 0.1)[0], data) for rounds in (1, 2, 3)]
    assert held_out_error(model, data) <= min(after) * 1.001


def test_every_heads_sample_has_each_transition_as_often_as_its_weight_says(data):
    samples, sizes = map(np.asarray, store.bootstrap(data))
    for head in range(HEADS):
        times = np.bincount(samples[head, : sizes[head]], minlength=data.capacity)
        np.testing.assert_array_equal(times, np.asarray(data.weight[:, head] * data.filled))


@pytest.mark.parametrize("noise", ["state", "beside"])
def test_each_state_has_its_own_noise(noise):
    """A hundred times as much on the one side as on the other."""
    rows = transitions(2000)
    spread = jnp.where(rows.obs > 0, 0.2, 0.002) * jax.random.normal(jax.random.key(7), rows.obs.shape)
    noisy = filled(rows._replace(following=rows.following + spread), 2048)
    model = fresh(noise=noise)
    for _ in range(4):  # each fit ends with the least error of the mean, which noise may not have had time for
        model = fit(model, noisy)[0]
    found = model.predict(*rows[:3]).aleatoric[:, 0]
    loud, quiet = (float(jnp.median(found[where])) for where in (rows.obs[:, 0] > 0.2, rows.obs[:, 0] < -0.2))
    assert loud == pytest.approx(0.2, rel=0.3)
    assert quiet < 0.02


def test_a_state_that_is_called_noisy_excuses_half_of_what_likelihood_would(data):
    """Beside a constant noise the pull on a mean falls with a state's own noise, by likelihood with its square."""

    def pull(noise: str, louder: float) -> np.ndarray:
        heads = fresh(noise=noise).heads
        heads = eqx.tree_at(lambda its: its.last, heads, heads.last.at[..., 1:].set(0.0))  # the same in every state
        heads = eqx.tree_at(lambda its: its.last_bias, heads, heads.last_bias.at[:, 1:].add(louder))
        x = jax.random.normal(jax.random.key(0), (HEADS, 32, heads.first.shape[1]))
        return np.asarray(jax.grad(ensemble.Heads.loss)(heads, x, x[..., :1]).last_bias[:, 0])

    softened, excused = (pull(noise, 2.0) / pull(noise, 0.0) for noise in ("beside", "state"))
    assert ((excused > 0) & (excused < 0.1)).all()
    np.testing.assert_allclose(softened**2, excused, rtol=1e-3)


def test_a_member_has_as_many_hidden_layers_as_are_asked_for(data):
    deep, flat = fresh(layers=4), fresh()
    assert (len(deep.heads.deeper), len(flat.heads.deeper)) == (2, 0)
    better = fit(deep, data)[0]
    assert held_out_error(better, data) < 0.05  # of the changes' variance
    moved = [np.abs(new[0] - old[0]).max() for new, old in zip(better.heads.deeper, deep.heads.deeper, strict=True)]
    assert min(moved) > 1e-3


def test_decay_makes_weights_small(data):
    size = [np.abs(fit(fresh(), data, 20, 3e-3, decay)[0].heads.hidden).mean() for decay in (1e-4, 1.0)]
    assert size[1] < 0.9 * size[0]


@pytest.mark.parametrize("factor", [0.2, 1.0, 3.0])
def test_the_temperature_is_the_factor_by_which_a_model_errs(factor):
    noise = jax.random.normal(jax.random.key(0), (4000, 2))
    zeros = jnp.zeros_like(noise)
    prediction = Prediction(zeros, zeros + 0.6, zeros + 0.8)  # a total standard deviation of 1
    spoiled = jnp.where(jnp.arange(4000) < 2000, 1.0, 100.0)  # rows of no weight do not count
    found = calibration.temperature(prediction, factor * spoiled[:, None] * noise, (spoiled == 1).astype(float))
    assert float(found) == pytest.approx(factor, rel=0.08)


def test_coverage_of_a_perfect_gaussian():
    noise = jax.random.normal(jax.random.key(0), (20_000, 2))
    zeros, real = jnp.zeros_like(noise), jnp.arange(20_000) < 15_000
    seen = jnp.where(real[:, None], noise, 100.0)  # rows of no weight do not count
    covered = calibration.coverage(
        Prediction(zeros, zeros + 0.6, zeros + 0.8), seen, jnp.float32(2), real.astype(float)
    )
    assert float(covered.predictive) == pytest.approx(0.9, abs=0.01)
    assert float(covered.confidence) == pytest.approx(0.7699, abs=0.01)  # P(|N| < 1.2)


def test_replay_keeps_what_it_is_given_and_decides_once():
    first, second = transitions(30, 1), transitions(20, 2)
    one = filled(first, 60)
    two = store.add(one, second, jnp.int32(20), jax.random.key(5))
    for stored, a, b in zip(two.data, first, second, strict=True):
        np.testing.assert_array_equal(stored[:50], np.concatenate([a, b]))
        assert not stored[50:].any()
    assert (int(two.size), two.capacity, two.filled.sum()) == (50, 60, 50)
    np.testing.assert_array_equal(two.held_out[:30], one.held_out[:30])
    np.testing.assert_array_equal(two.weight[:30], one.weight[:30])


def test_rows_beyond_the_count_are_overwritten_by_the_next():
    first, second = transitions(30, 1), transitions(20, 2)
    one = store.add(store.empty(60, (1, 1, 1), HEADS), first, jnp.int32(7), jax.random.key(0))
    two = store.add(one, second, jnp.int32(20), jax.random.key(5))
    assert (int(one.size), int(two.size)) == (7, 27)
    np.testing.assert_array_equal(two.data.obs[:27], np.concatenate([first.obs[:7], second.obs]))


def test_the_split_is_a_tenth_and_weights_are_poisson():
    replay = filled(transitions(5000), 5000)
    held, weight = np.asarray(replay.held_out, bool), np.asarray(replay.weight)
    assert held.mean() == pytest.approx(0.1, abs=0.015)
    assert not weight[held].any()
    assert weight[~held].mean() == pytest.approx(1, abs=0.03)
    assert weight[~held].var() == pytest.approx(1, abs=0.05)
    assert np.abs(np.corrcoef(weight[~held].T) - np.eye(HEADS)).max() < 0.06  # every head has its own


def test_draw_is_uniform_over_what_is_stored():
    index = np.asarray(store.draw(filled(transitions(50), 500), 20_000, jax.random.key(0)))
    counts = np.bincount(index, minlength=50)
    assert counts.size == 50
    np.testing.assert_allclose(counts, 400, rtol=0.25)


def test_statistics_are_numpys_over_what_is_stored():
    rows = np.random.default_rng(0).normal(3, [2.0, 1e-3, 0.0], (40, 3)).astype(np.float32)
    padded = jnp.concatenate([jnp.asarray(rows), jnp.full((10, 3), 99.0)])
    mean, std = store.statistics(padded, (jnp.arange(50) < 40).astype(jnp.float32))
    np.testing.assert_allclose(mean, rows.mean(0), rtol=1e-5)
    np.testing.assert_allclose(std, [rows[:, 0].std(), rows[:, 1].std(), 1], rtol=1e-2)
