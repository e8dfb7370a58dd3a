"""The Gaussian process: its posterior beside another library's, its growth, its budget, and its single precision."""

from __future__ import annotations

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tinygp

from probes import Probe
from rhucrl import replay as store
from rhucrl.config import TrainConfig
from rhucrl.errors import UsageError
from rhucrl.models.gaussian_process import likelihood, posterior
from rhucrl.models.gaussian_process import model as gaussian_process
from rhucrl.models.gaussian_process.kernels import Kernel
from rhucrl.replay import Transitions
from rhucrl.theory.bounds import Lipschitz
from rhucrl.training import theory_log

KINDS = ("linear", "squared-exponential", "sum", "product")
D, P, RIDGE = 3, 2, 0.01


def kernel(kind: str) -> Kernel:
    lengths, slopes = np.array([0.4, 0.8, 1.5]), np.array([1.0, 0.6, 0.3])
    return Kernel(np.array([0.1, 0.0, -0.2]), np.array([1.0, 2.0, 0.5]), lengths, slopes, np.float64(0.3), kind)


def data(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    z = rng.uniform(-1, 1, (n, D))
    return z, np.stack([np.sin(3 * z[:, 0]) + z[:, 1], z[:, 2] * z[:, 0]], -1) + 0.1 * rng.standard_normal((n, P))


def grown(k: Kernel, z: np.ndarray, blocks: list[int], ridge: float = RIDGE) -> np.ndarray:
    inverse, edges = np.zeros((0, 0)), np.cumsum([0, *blocks])
    for begin, end in itertools.pairwise(edges):
        new = z[begin:end]
        inverse = posterior.grow(inverse, k(z[:begin], new), k(new, new), ridge)
    return inverse


def asked(k: Kernel, after: posterior.Posterior, points: np.ndarray, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    at = k(z, points)
    return at @ after.weights, k.diagonal(z) - np.square(at @ after.factor.T).sum(-1)


def theirs(k: Kernel):
    """The same kernel in tinygp's words."""

    class Affine(tinygp.kernels.Kernel):
        def evaluate(self, x, y):
            return (1 + jnp.sum(k.slopes**2 * x * y)) / (1 + jnp.sum(k.slopes**2))

    curved = tinygp.transforms.Linear(1 / k.lengths, tinygp.kernels.ExpSquared())
    sums = {"linear": Affine(), "squared-exponential": curved, "sum": 0.3 * Affine() + 0.7 * curved}
    return sums[k.kind] if k.kind in sums else Affine() * curved


@pytest.mark.parametrize("kind", KINDS)
def test_the_posterior_is_that_of_another_library(kind):
    k, (z, y), (test, _) = kernel(kind), data(60), data(40, seed=1)
    mean, variance = asked(k, posterior.exact(grown(k, z, [20, 1, 39]), y, RIDGE), z, test)
    unit = lambda x: (x - k.centre) / k.half  # noqa: E731
    with jax.enable_x64(True):
        process = tinygp.GaussianProcess(theirs(k), jnp.asarray(unit(z)), diag=RIDGE)
        for i in range(P):
            there = process.condition(jnp.asarray(y[:, i]), jnp.asarray(unit(test))).gp
            np.testing.assert_allclose(mean[:, i], there.loc, atol=1e-8)
            np.testing.assert_allclose(variance, there.variance, atol=1e-7)  # theirs has 1.5e-8 added


@pytest.mark.parametrize("kind", KINDS)
def test_a_kernel_is_at_most_one_and_its_diagonal_is_its_diagonal(kind):
    k = kernel(kind)
    z = k.centre + k.half * data(50)[0]
    np.testing.assert_allclose(np.diag(k(z, z)), k.diagonal(z), rtol=1e-12)
    assert k.diagonal(z).max() <= 1 and np.linalg.eigvalsh(k(z, z)).min() > -1e-10


@pytest.mark.parametrize("kind", KINDS)
def test_a_kernel_is_at_most_one_after_a_fit(kind):
    """Steep data: a fit raises slopes above 1. In a corner of the range an affine part is 1, and nowhere more."""
    rng = np.random.default_rng(0)
    z = rng.uniform(-1, 1, (200, D))
    start = dataclasses.replace(kernel(kind), centre=np.zeros(D), half=np.ones(D), slopes=np.ones(D))
    steep = z @ np.array([[9.0], [3.0], [0.0]]) + 0.01 * rng.standard_normal((200, 1))
    k = likelihood.fit(start, 0.01, z, steep).kernel
    assert kind == "squared-exponential" or k.slopes.max() > 1
    corners = np.array(np.meshgrid(*[[-1.0, 1.0]] * D)).reshape(D, -1).T
    np.testing.assert_allclose(k.diagonal(corners), 1, rtol=1e-6)
    assert k.diagonal(z).max() <= 1 + 1e-9


def test_blocks_make_the_same_factor_as_all_data_at_once():
    k, (z, _) = kernel("squared-exponential"), data(50)
    once = np.linalg.inv(np.linalg.cholesky(k(z, z) + RIDGE * np.eye(50)))
    np.testing.assert_allclose(grown(k, z, [10] * 5), once, atol=1e-9)


def test_the_information_gain_is_the_sum_over_one_datum_after_the_other():
    from rhucrl.theory.bounds import information_gain

    k, (z, y) = kernel("sum"), data(30)
    variances = []
    for i in range(30):
        before = posterior.exact(grown(k, z[:i], [i] if i else []), y[:i], RIDGE)
        variances.append(asked(k, before, z[:i], z[i : i + 1])[1][0])
    whole = posterior.exact(grown(k, z, [30]), y, RIDGE).information
    assert whole == pytest.approx(information_gain(np.array(variances), RIDGE), rel=1e-9)


def test_points_that_are_all_data_give_the_posterior_itself():
    k, (z, y), (test, _) = kernel("squared-exponential"), data(40), data(30, seed=1)
    through, itself = posterior.project(k, z, z, y, RIDGE), posterior.exact(grown(k, z, [40]), y, RIDGE)
    for one, other in zip(asked(k, through, z, test), asked(k, itself, z, test), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)
    assert through.information == pytest.approx(itself.information, rel=1e-6)


def test_points_are_chosen_where_least_is_known_and_do_not_make_it_too_sure():
    k, (z, y), (test, _) = kernel("squared-exponential"), data(300), data(200, seed=1)
    inverse = grown(k, z, [300])
    mean, variance = asked(k, posterior.exact(inverse, y, RIDGE), z, test)
    rows = posterior.greedy(k, z, 40, 0.0)
    for i in (1, 10, 39):  # each is the maximiser of the variance that those before it left
        low = np.linalg.solve(k(z[rows[:i]], z[rows[:i]]), k(z[rows[:i]], z))
        left = k.diagonal(z) - (k(z, z[rows[:i]]) * low.T).sum(-1)
        assert left[rows[i]] == pytest.approx(left.max(), abs=1e-8)
    after = posterior.project(k, z[rows], z, y, RIDGE)
    few, wide = asked(k, after, z[rows], test)
    assert (wide >= 0.5 * variance).all() and (np.abs(few - mean) <= 2 * np.sqrt(wide)[:, None]).all()
    assert after.information >= posterior.exact(inverse, y, RIDGE).information
    chance = posterior.project(k, z[:40], z, y, RIDGE)
    assert np.abs(few - mean).mean() < np.abs(asked(k, chance, z[:40], test)[0] - mean).mean()


def test_a_linear_kernel_needs_no_more_points_than_it_has_dimensions():
    k, (z, _) = kernel("linear"), data(100)
    assert len(posterior.greedy(k, z, 50, 1e-9)) == D + 1


def test_the_likelihood_finds_what_matters():
    rng = np.random.default_rng(0)
    z = rng.uniform(-1, 1, (200, D))
    y = np.stack([np.sin(4 * z[:, 0]), 3 * np.cos(4 * z[:, 0])], -1)
    y += 0.1 * np.array([1, 3]) * rng.standard_normal(y.shape)
    start = dataclasses.replace(kernel("squared-exponential"), lengths=np.ones(D), slopes=np.ones(D))
    found = likelihood.fit(start, 0.01, z, y)
    assert found.kernel.lengths[0] < 1 < found.kernel.lengths[1:].min()
    assert found.signal[1] / found.signal[0] == pytest.approx(3, rel=0.2)
    assert 0.05 < np.sqrt(found.ridge) * found.signal[0] < 0.2  # the noise is .1


# The model on a game.


def transitions(n: int, seed: int = 0, noise: float = 0.02) -> Transitions:
    rng = np.random.default_rng(seed)
    obs, executed, adversary = (rng.uniform(-x, x, (n, 1)).astype(np.float32) for x in (2, 1, 1))
    following = obs + 0.3 * executed + 0.2 * adversary + noise * rng.standard_normal((n, 1), np.float32)
    return Transitions(*map(jnp.asarray, (obs, executed, adversary, following)))


def config(**options) -> TrainConfig:
    return TrainConfig.preset(**{"model": "gp", "points": 64, **options})


def learned(config: TrainConfig, *batches: Transitions):
    """The model and its memory after each batch has been added in turn."""
    model, memory = gaussian_process.create(config, Probe(), jax.random.key(0))
    replay = store.empty(1024, (1, 1, 1), 2)
    for batch in batches:
        replay = store.add(replay, batch, jnp.int32(len(batch.obs)), jax.random.key(1))
        model, memory, _ = model.update(config, memory, replay, jax.random.key(2))
    return model, memory


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sizes", [(30, 30), (60, 140)])
def test_the_model_learns_the_probe_and_knows_how_well(kind, sizes):
    model, _ = learned(config(kernel=kind), *(transitions(n, i) for i, n in enumerate(sizes)))
    test = transitions(200, seed=9, noise=0.0)
    prediction = model.predict(*test[:3])
    assert np.abs(prediction.mean - test.following).max() < 0.08
    assert 0.01 < float(prediction.aleatoric.mean()) < 0.04  # the noise is .02
    inside = np.abs(prediction.mean - test.following) <= 3 * prediction.epistemic
    assert inside.mean() > 0.9


def test_single_precision_is_within_a_thousandth_of_double():
    """Of the signal, where the noise is as low as it may be and points lie close together."""
    rng = np.random.default_rng(0)
    z = np.float32(rng.uniform(-1, 1, (256, D)) * [1, 2, 0.5]).astype(np.float64)
    y = np.stack([np.sin(z[:, 0] + z[:, 1]), z[:, 2]], -1) + np.sqrt(likelihood.LOWEST) * rng.standard_normal((256, P))
    k, ridge = dataclasses.replace(kernel("squared-exponential"), lengths=np.full(D, 2.0)), likelihood.LOWEST
    after = posterior.exact(grown(k, z, [256], ridge), y, ridge)
    mean, variance = asked(k, after, z, z)
    single = jax.tree.map(np.float32, k)
    at = single(z.astype(np.float32), z.astype(np.float32))
    shadow = at @ after.weights.astype(np.float32)
    left = single.diagonal(z.astype(np.float32)) - np.square(at @ after.factor.astype(np.float32).T).sum(-1)
    np.testing.assert_allclose(shadow, mean, atol=1e-3)
    error = np.sqrt(np.maximum(left, gaussian_process.FINEST)) - np.sqrt(variance)
    assert np.abs(error).max() < 1e-3


def test_data_in_batches_give_the_model_of_all_data_at_once():
    fixed = config(kernel_fit=False)
    apart, _ = learned(fixed, transitions(20), transitions(20, 1))
    both = jax.tree.map(lambda a, b: jnp.concatenate([a, b]), transitions(20), transitions(20, 1))
    together, _ = learned(fixed, both)
    np.testing.assert_allclose(apart.factor, together.factor, atol=1e-4)
    np.testing.assert_allclose(apart.weights, together.weights, atol=1e-4)


def test_members_are_spread_as_sigma_says():
    model, _ = learned(config(), transitions(10))
    test = transitions(400, seed=3)
    prediction = model.predict(*test[:3])
    index = jnp.arange(400) % model.members
    mean, std = model.member(*test[:3], index)
    scores = (mean - prediction.mean) / prediction.epistemic
    assert 0.6 < float(scores.std()) < 1.6 and np.array_equal(std, prediction.aleatoric)
    again, _ = model.member(*test[:3], index)
    assert np.array_equal(mean, again)


def test_the_words_of_a_memory_are_its_doubles():
    x = np.random.default_rng(0).standard_normal((5, 5))
    assert np.array_equal(gaussian_process.doubles(gaussian_process.words(x)), x)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"kernel": "cubic"}, "unknown kernel"),
        ({"model": "ensemble", "beta": "theory"}, "--model gp"),
        ({"lipschitz": (1.0, 2.0)}, "L_f, L_sigma"),
        ({"lengthscale": (1.0, -1.0)}, "positive"),
        ({"points": 2}, "at least 8"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(options, told):
    with pytest.raises(UsageError, match=told):
        config(**options)


def test_a_system_that_is_too_large_is_refused():
    from rhucrl.envs import make

    with pytest.raises(UsageError, match="--model ensemble"):
        gaussian_process.create(config(env="half-cheetah"), make("half-cheetah").game, jax.random.key(0))
    with pytest.raises(UsageError, match="--lengthscale has 2 numbers"):
        gaussian_process.create(config(lengthscale=(1.0, 1.0)), Probe(), jax.random.key(0))


def test_lipschitz_constants_are_estimated_from_below_and_near():
    from rhucrl.training.protocol import ModelBased

    small = config(width=8, features=8)
    state = ModelBased(small).fresh(Probe(certain=True), 64, jax.random.key(0))
    batch = transitions(60, noise=0.0)
    replay = store.add(state.replay, batch, jnp.int32(60), jax.random.key(1))
    model, _ = learned(small, batch)
    found = Lipschitz(*theory_log.steepest(state.last, model, replay))
    true = np.sqrt(1 + 0.3**2 + 0.2**2)
    assert 0.9 * true < found.dynamics < 1.05 * true
    assert found.deviation >= 0 and found.reward > 0
