"""Options belong to what uses them: trees, presets, and the records of earlier versions."""

from __future__ import annotations

import json

import pytest

import rhucrl
from rhucrl.algorithms import EVERY
from rhucrl.config import TrainConfig, flat
from rhucrl.errors import UsageError
from rhucrl.options import LEARNERS, MODELS, SOLVERS, options_of
from rhucrl.presets import ENVIRONMENTS

HOME = {"ep-opt": "parameter", "domain-randomization": "parameter", "ar-ddpg": "action"}
PARTS = (*MODELS.values(), *SOLVERS.values(), *LEARNERS.values())


@pytest.mark.parametrize("algo", EVERY)
@pytest.mark.parametrize("env", [*ENVIRONMENTS, "own:make"])
def test_a_tree_becomes_json_and_the_same_configuration_again(env, algo):
    config = TrainConfig.preset(env, algo=algo, setting=HOME.get(algo, "adversarial"))
    assert TrainConfig.of_tree(json.loads(json.dumps(config.tree()))) == config


def test_every_preset_names_options_that_its_model_or_its_solver_has():
    for numbers in ENVIRONMENTS.values():
        parts = (TrainConfig, rhucrl.Ensemble, SOLVERS[numbers["solver"]])
        assert {*numbers} <= {"solver", *(flag for part in parts for flag in options_of(part))}


def test_a_part_and_a_keyword_say_the_same_and_the_rest_is_the_preset():
    by_part = TrainConfig.preset("hopper", model=rhucrl.Ensemble(heads=7), solver=rhucrl.ActorCritic(batch=128))
    assert by_part == TrainConfig.preset("hopper", heads=7, batch=128)
    assert (by_part.solver.batch, by_part.solver.width, by_part.model.width) == (128, 200, 160)
    assert TrainConfig.preset("hopper").solver.batch == 256
    env = rhucrl.make("pendulum", horizon=20)
    assert rhucrl.RHUCRL(env, model=rhucrl.Ensemble(heads=7)).config == rhucrl.RHUCRL(env, heads=7).config
    with pytest.raises(UsageError, match="--population is an option of --algo rap"):
        rhucrl.RHUCRL(env, population=7)


def test_another_solver_does_not_take_the_numbers_of_the_environments_own():
    assert TrainConfig.preset("swimmer").solver.discount == 0.9995
    assert TrainConfig.preset("swimmer", solver="look-ahead").solver == rhucrl.LookAhead()
    assert TrainConfig.preset("swimmer", solver="planner").solver == rhucrl.RecedingHorizon()
    assert TrainConfig.preset("pendulum", solver="actor-critic").solver == rhucrl.ActorCritic()


@pytest.mark.parametrize("env", ["pendulum", "hopper"])
def test_the_papers_preset_is_what_the_paper_states(env):
    """`sec:extra_experiments`; what is typed comes before it."""
    config = TrainConfig.preset(env, "paper", updates=0.5)
    solver, model = config.solver, config.model
    assert (config.episodes, config.output_rule, solver.kind, model.heads, model.epochs) == (
        200, "paper", "actor-critic", 5, 20,
    )  # fmt: skip
    assert (solver.beta, solver.model_steps, solver.trace, solver.temperature) == (1.0, 3, 0.1, 0.2)
    assert (solver.learning_rate, solver.updates, solver.held, solver.nobody) == (3e-4, 0.5, 0, False)
    assert TrainConfig.preset(env, "paper").solver.updates == 2
    assert model.minimum_temperature <= 0.01  # the least that recalibration searches
    with pytest.raises(UsageError, match="--preset paper has --solver actor-critic"):
        TrainConfig.preset(env, "paper", solver="look-ahead")
    assert TrainConfig.preset(env, "paper", algo="rarl").episodes == 1000


@pytest.mark.parametrize("part", PARTS)
def test_no_number_is_infinite_or_none(part):
    for its in options_of(part).values():
        for wrong in (float("nan"), float("inf"), -float("inf"), "many", [float("nan")], {}):
            if its.hint is not bool and not isinstance(its.default, str):
                with pytest.raises(UsageError, match="--" + its.flag.replace("_", "-")):
                    part(**{its.field: wrong})


def test_the_flat_record_of_an_earlier_version_is_read():
    """Earlier versions stored the options of everything; those that a run does not use say nothing."""
    config = TrainConfig.preset("hopper", heads=7, width=99)
    earlier = flat(config.tree()) | {"solver": None, "kernel": "linear", "population": 7, "plan_steps": 3}
    assert TrainConfig.of_tree(earlier) == config
    sac = TrainConfig.preset("hopper", algo="sac", width=99)
    assert TrainConfig.of_tree(flat(sac.tree()) | {"model": "ensemble", "solver": None, "heads": 3}) == sac
    with pytest.raises(UsageError, match="unknown option 'fancy'"):
        TrainConfig.of_tree(earlier | {"fancy": 1})
