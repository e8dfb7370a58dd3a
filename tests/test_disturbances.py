"""What the adversary does to a robot: forces and masses that do what they say, and blow-ups that are told."""

import mujoco
import numpy as np
import pytest

from probes import simulator
from rhucrl.envs import make
from rhucrl.envs.disturbances import Forces, Masses
from rhucrl.envs.robots import ROBOTS
from rhucrl.errors import SimulationError, UsageError

FLYING = ("half-cheetah", "hopper", "walker")


def centre_velocity(model, data):
    mujoco.mj_subtreeVel(model, data)
    return data.subtree_linvel[0].copy()


@pytest.mark.parametrize("axis", (0, 1), ids="xz")
@pytest.mark.parametrize("name", FLYING)
def test_a_force_moves_the_centre_of_mass_by_f_dt_over_m(name, axis):
    env = make(name, "adversarial")
    change = {}
    for force in (0.0, 10.0):
        env.reset(seed=0)
        inner = simulator(env)
        position = inner.data.qpos.copy()
        position[1] += 50  # far above the ground
        inner.set_state(position, np.zeros(inner.model.nv))
        against = np.zeros(env.boxes["adversary"].shape)
        against[axis] = force
        before = centre_velocity(inner.model, inner.data)
        env.step({"agent": np.zeros(env.boxes["agent"].shape), "adversary": against})
        mujoco.mj_forward(inner.model, inner.data)
        change[force] = (centre_velocity(inner.model, inner.data) - before)[(0, 2)[axis]]
    expected = 10 * inner.dt / inner.model.body_mass.sum()
    assert change[10.0] - change[0.0] == pytest.approx(expected, rel=5e-3)


@pytest.mark.parametrize("name", ROBOTS)
def test_forces_have_no_effect_out_of_the_plane(name):
    env, row = make(name, "adversarial"), ROBOTS[name]
    out = Forces(row.bodies[0], "y" if "z" in row.axes else "z")
    ends = []
    for force in (0.0, 10.0):
        env.reset(seed=0)
        for _ in range(20):
            out.apply(simulator(env), np.array([force]))
            simulator(env).step(np.full(env.boxes["agent"].shape, 0.3))
        ends.append(simulator(env).state_vector())
    np.testing.assert_allclose(*ends, rtol=0, atol=1e-9)


def test_forces_are_overwritten_and_cleared():
    env = make("half-cheetah", "adversarial")
    env.reset(seed=0)
    push = np.arange(6.0)
    env.step({"agent": np.zeros(6), "adversary": push})
    torso, back, front = (simulator(env).data.body(name).xfrc_applied for name in ("torso", "bfoot", "ffoot"))
    np.testing.assert_array_equal([torso[[0, 2]], back[[0, 2]], front[[0, 2]]], push.reshape(3, 2))
    env.step({"agent": np.zeros(6), "adversary": env.neutral})
    assert not simulator(env).data.xfrc_applied.any()
    env.step({"agent": np.zeros(6), "adversary": push})
    env.reset()
    assert not simulator(env).data.xfrc_applied.any()


def test_every_body_has_forces_along_its_own_axes():
    env = make("hopper", forces=" foot=x, torso=zx")
    assert (env.game.setting, env.game.options()["forces"]) == ("adversarial", "foot=x,torso=zx")
    env.reset(seed=0)
    env.step({"agent": np.zeros(3), "adversary": np.array([1.0, 2.0, 3.0])})
    torso, foot = (simulator(env).data.body(name).xfrc_applied for name in ("torso", "foot"))
    np.testing.assert_array_equal([*foot[:3], *torso[:3]], [1, 0, 0, 3, 0, 2])
    options = env.game.options()
    assert make(options.pop("env"), **options).game.options() == env.game.options()


def test_a_swimmer_that_is_pushed_elsewhere_tells_its_model_where_it_heads():
    """Forces that are not both of the plane cannot be turned with it."""
    sizes = [make("swimmer", forces=forces).game.model_input(*map(np.zeros, (10, 2, n))).size for forces, n in (
        (None, 1), ("torso=x", 1), ("torso=xy", 2)
    )]  # fmt: skip
    assert sizes == [7 + 2, 11 + 2 + 1, 11 + 2 + 2]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"forces": "tors=x"}, "'torso'"),
        ({"forces": "torso=xq"}, "axes"),
        ({"forces": "torso=xx"}, "each once"),
        ({"forces": "torso=x,torso=x"}, "each once"),
        ({"forces": ""}, "unknown body"),
        ({"forces": "torso=x", "setting": "action"}, "choose setting='adversarial'"),
        ({"forces": "torso=x", "parameters": "torso_mass=1:2"}, "has no forces"),
    ],
)
def test_forces_that_cannot_be_are_refused_in_one_line(options, told):
    with pytest.raises(UsageError, match=told) as refused:
        make("hopper", **options)
    assert "\n" not in str(refused.value)
    with pytest.raises(UsageError, match="pendulum"):
        make("pendulum", "adversarial", forces="torso=x")


def test_a_force_beyond_the_strength_is_clipped():
    env = make("hopper", "adversarial", strength=3.0)
    np.testing.assert_array_equal(env.boxes["adversary"].high, [3, 3])
    env.reset(seed=0)
    env.step({"agent": np.zeros(3), "adversary": np.array([50.0, -50.0])})
    np.testing.assert_array_equal(simulator(env).data.body("torso").xfrc_applied[[0, 2]], [3, -3])


def model_arrays(model):
    names = [name for name in dir(model) if not name.startswith("_")]
    arrays = {name: getattr(model, name) for name in names if isinstance(getattr(model, name, None), np.ndarray)}
    return {name: array.copy() for name, array in arrays.items()}


@pytest.mark.parametrize("name", ROBOTS)
def test_masses_scale_from_the_nominal_and_restore_bit_for_bit(name):
    env, row = make(name, "parameter"), ROBOTS[name]
    env.reset(seed=0)
    inner, masses = simulator(env), Masses(row.bodies[0], *row.masses)
    before, state = model_arrays(inner.model), inner.state_vector()
    nominal = inner.model.body(row.bodies[0]).mass[0]
    for value in (0.7, 0.7, 1.3):
        masses.apply(inner, np.array([value]))
        assert inner.model.body(row.bodies[0]).mass[0] == nominal * value
        np.testing.assert_array_equal(inner.state_vector(), state)  # the live state is not touched
        assert not np.array_equal(inner.model.dof_invweight0, before["dof_invweight0"])  # contacts know of it
    masses.apply(inner, np.ones(1))
    for field, array in model_arrays(inner.model).items():
        np.testing.assert_array_equal(array, before[field], err_msg=field)


def test_an_episodes_mass_does_not_reach_the_next_reset():
    def first(mass):
        env = make("half-cheetah", "parameter")
        env.reset(seed=0, options={"adversary": np.array([mass])})
        for _ in range(5):
            env.step({"agent": np.ones(6), "adversary": env.neutral})
        env.reset(seed=4)
        return env.get_state()["simulator"]["physics"]

    np.testing.assert_array_equal(first(0.3), first(1.0))


def test_mass_changes_the_motion_but_hardly_reachers():
    def end(name, mass):
        env = make(name, "parameter")
        env.reset(seed=0, options={"adversary": np.array([mass])})
        for _ in range(20):
            obs = env.step({"agent": np.full(env.boxes["agent"].shape, 0.5), "adversary": env.neutral})[0]
        return obs

    assert np.abs(end("swimmer", 0.5) - end("swimmer", 1.0)).max() > 0.1
    assert np.abs(end("reacher", 0.01) - end("reacher", 1.0)).max() < 0.01


@pytest.mark.parametrize("name", ROBOTS)
def test_the_range_of_masses_is_the_documented_one(name):
    box = make(name, "parameter").boxes["adversary"]
    assert (box.low[0], box.high[0]) == pytest.approx((0.5, 1.5) if name == "swimmer" else (0.001, 2), abs=1e-7)
    half = make(name, "parameter", strength=0.5).boxes["adversary"]
    assert half.high[0] == pytest.approx(1 + (box.high[0] - 1) / 2)


@pytest.mark.parametrize("where", ("qpos", "qvel"))
def test_a_blow_up_is_an_error_and_no_reset(where, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    env = make("hopper", "adversarial")
    env.reset(seed=0)
    getattr(simulator(env).data, where)[:] = 1e12
    with pytest.raises(SimulationError, match="weaker adversary"):
        env.step({"agent": np.zeros(3), "adversary": env.neutral})
    assert not list(tmp_path.iterdir())  # MuJoCo would leave a log
    env.reset(seed=0)
    env.step({"agent": np.zeros(3), "adversary": env.neutral})
