"""Physical parameters of MuJoCo's models: each is where it says, its own value changes nothing, and it acts."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

import rhucrl
from probes import SMALL_ROBOT, enable_cache
from rhucrl.cli import main as cli
from rhucrl.config import TrainConfig
from rhucrl.envs.parameters import NAMED, Parameters, parsed
from rhucrl.envs.physics import mujoco_of
from rhucrl.errors import UsageError
from rhucrl.training import loop

enable_cache()

EVERYTHING = (
    "torso_mass=0.5x:2x, leg_mass=1:5, thigh_density=0.5x:2x, floor_friction=0.1:3, thigh_joint_damping=0.1:5, "
    "foot_joint_gain=0.5x:1.5x, gravity=5:15"
)
ROBOTS = {"Hopper": "hopper", "Walker2d": "walker", "HalfCheetah": "half-cheetah"}


def numbers(model) -> dict[str, np.ndarray]:
    names = ("body_mass", "body_inertia", "geom_friction", "dof_damping", "actuator_gear", "opt.gravity")
    return {name: np.array(model.opt.gravity if "." in name else getattr(model, name)) for name in names}


def path(env, value, steps: int = 25, seed: int = 0) -> np.ndarray:
    """Observations under random actions, the adversary's value held."""
    generator = np.random.default_rng(seed)
    seen = [env.reset(seed=seed, options={"adversary": value})[0]]
    for _ in range(steps):
        action = generator.uniform(env.boxes["agent"].low, env.boxes["agent"].high)
        seen.append(env.step({"agent": 0.3 * action, "adversary": env.neutral})[0])
    return np.stack(seen)


def test_every_value_is_where_it_says_and_nowhere_else():
    env = gym.make("Hopper-v5")
    model, _ = mujoco_of(env)
    parameters, own = Parameters(EVERYTHING, env), numbers(model)
    parameters.apply(env, np.array([2, 3, 1.5, 0.5, 4, 0.5, 6]))
    expected = {name: value.copy() for name, value in own.items()}
    expected["body_mass"][[1, 3]] = 2 * own["body_mass"][1], 3
    for name in ("body_mass", "body_inertia"):
        expected[name][2] *= 1.5
    expected["geom_friction"][0, 0], expected["dof_damping"][3], expected["opt.gravity"][2] = 0.5, 4, -6
    expected["actuator_gear"][2, 0] *= 0.5
    for name, value in numbers(model).items():
        np.testing.assert_allclose(value, expected[name], err_msg=name)
    parameters.apply(env, np.asarray(parameters.neutral, np.float32))  # as an adversary's action says it
    for name, value in numbers(model).items():
        np.testing.assert_array_equal(value, own[name], err_msg=name)


def test_the_models_own_values_change_nothing():
    plain, env = rhucrl.make("hopper"), rhucrl.make("hopper", parameters=EVERYTHING)
    assert env.game.setting == "parameter"
    assert env.game.scope == "episode"
    path(env, env.boxes["adversary"].high)
    np.testing.assert_array_equal(path(env, env.neutral), path(plain.at(0.0), None))


@pytest.mark.parametrize("name", parsed(EVERYTHING), ids=lambda parameter: parameter.name)
def test_every_parameter_acts_over_its_range(name):
    unit = "x" if name.relative else ""
    env = rhucrl.make("hopper", parameters=f"{name.name}={name.low}{unit}:{name.high}{unit}")
    low, high = (path(env, [end]) for end in (name.low, name.high))
    assert np.abs(low - high).max() > 0.05


def test_the_ends_of_a_range_can_be_chosen():
    box = rhucrl.make("hopper", parameters=EVERYTHING).boxes["adversary"]
    np.testing.assert_array_equal(box.low, np.array([p.low for p in parsed(EVERYTHING)], np.float32))
    np.testing.assert_array_equal(box.high, np.array([p.high for p in parsed(EVERYTHING)], np.float32))


def test_the_floors_friction_is_that_of_the_foot_where_the_foot_has_more():
    """MuJoCo takes the larger one of both geoms': below the foot's own 2.0 the hopper's floor changes nothing."""
    env = rhucrl.make("hopper", parameters="floor_friction=0.1:3")
    own, less, more = (path(env, [value]) for value in (1.0, 0.1, 3.0))
    np.testing.assert_array_equal(own, less)
    assert np.abs(own - more).max() > 1e-3


@pytest.mark.parametrize("robot", NAMED)
def test_published_sets_fit_their_robots(robot):
    env = gym.make(f"{robot}-v5")
    for name, text in NAMED[robot].items():
        parameters = Parameters(name, env)
        assert [p.name for p in parsed(text)] == parameters.names
        assert len(parameters.names) == int(name[-1])
        low, high = parameters.box
        assert ((low <= parameters.neutral) & (parameters.neutral <= high)).all()
    if robot in ROBOTS:
        assert rhucrl.make(ROBOTS[robot], parameters="rrls-2").boxes["adversary"].shape == (2,)


def test_where_the_models_own_value_lies_outside_the_nearest_one_stands_for_it():
    parameters = Parameters("torso_mass=0.1:3", gym.make("Hopper-v5"))
    np.testing.assert_array_equal(parameters.neutral, [3.0])  # its torso weighs 3.67 kg


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("torso_mass", "rrls-2"),
        ("torso_mass=1", "write NAME=LOW:HIGH"),
        ("torso_mass=nan:3", "is no range"),
        ("torso_mass=3:1", "is no range"),
        ("torso_mass=-1:1", "is no range"),
        ("torso_mass=1:inf", "is no range"),
        ("torso_mass=1x:3", "mixes"),
        ("torso_mass=1:3, torso_mass=1:2", "given twice"),
        ("torso_mass=1:3, torso_density=1x:2x", "given twice"),
        ("torso_mass=0:3", "above 0"),
        ("torso_density=1:3", "torso_density=1x:3x"),
        ("torsoo_mass=1:3", "did you mean 'torso'"),
        ("torso_colour=1:3", "NAME_friction"),
        ("rootx_gain=0.5x:2x", "no motor drives"),
        ("rootx_damping=0.5x:2x", "is 0 in this model"),
        ("=", "write NAME=LOW:HIGH"),
    ],
)
def test_mistakes_are_told_with_a_remedy(text, says):
    with pytest.raises(UsageError, match=says):
        Parameters(text, gym.make("Hopper-v5"))


def test_they_belong_to_the_parameter_setting(capsys):
    for words in (["hopper", "--setting", "action"], ["pendulum", "--setting", "parameter"]):
        assert cli.main(["train", *words, "--parameters", "torso_mass=1:3", "--dry-run"]) == 2
    assert "parameters" in capsys.readouterr().err
    with pytest.raises(UsageError, match="setting='parameter'"):
        rhucrl.wrap(gym.make("Hopper-v5"), "adversarial", disturbance=rhucrl.Parameters("torso_mass=1:3"))


def test_an_environment_of_ones_own_has_them_too():
    env = rhucrl.wrap(gym.make("Ant-v5"), disturbance=rhucrl.Parameters("rrls-3"))
    assert (env.game.setting, env.boxes["adversary"].shape) == ("parameter", (3,))
    assert env.game.parameters == "rrls-3"


@pytest.mark.slow
def test_a_run_has_them_and_so_has_its_policy(tmp_path, capsys):
    options = {"setting": "parameter", "parameters": "torso_mass=0.5x:2x,floor_friction=0.5:3", "horizon": 20}
    config = TrainConfig.preset("hopper", **options, episodes=2, **SMALL_ROBOT)
    loop.train(config, tmp_path / "run")
    agent = rhucrl.load(tmp_path / "run")
    assert agent.env.game.parameters == options["parameters"]
    assert agent.env.boxes["adversary"].contains(np.asarray(agent.adversary(np.zeros(12), 0), np.float32))
    assert TrainConfig.of_tree(agent.config.tree()) == agent.config
    assert cli.main(["evaluate", str(tmp_path / "run"), "--sweep", "floor_friction=0.5:3:3"]) == 0
    assert "the worst floor_friction from 0.5 to 3" in capsys.readouterr().out
    both = "floor_friction=0.5:3:3,torso_mass=0.5:2:4"
    assert cli.main(["evaluate", str(tmp_path / "run"), "--sweep", both]) == 0
    told = capsys.readouterr().out
    assert "the worst floor_friction from 0.5 to 3 and torso_mass from 0.5 to 2 that a search found" in told
    rows = [line.split("│")[1:-1] for line in told.splitlines() if line.startswith("│")]
    assert [float(row[0]) for row in rows] == [0.5, 1.75, 3]
    assert all(len([float(cell) for cell in row]) == 5 for row in rows)  # four of the other parameter across
    assert cli.main(["evaluate", str(tmp_path / "run"), "--sweep", "mass=0.5:2:3"]) == 2
    assert "torso_mass" in capsys.readouterr().err
    loop.resume(tmp_path / "run", more=1)
    assert len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()) == 3
