"""Evaluation: one row per run and the mean over seeds, the paper's protocol, and where an interrupted one goes on."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import rhucrl
from rhucrl.attacks import paper
from rhucrl.attacks.arena import HostArena, arena, gains
from rhucrl.attacks.battery import Effort
from rhucrl.attacks.learned import learn_adversary
from rhucrl.attacks.paper import average, paper_worst_case
from rhucrl.attacks.worst_case import EFFORTS
from rhucrl.cli import main as cli
from rhucrl.config import TrainConfig
from rhucrl.envs import make
from rhucrl.envs.game import JaxGame
from rhucrl.statistics import estimate
from rhucrl.training import loop as training
from test_attack import Target, still

PLACE = {"env": "half-cheetah", "horizon": 20}


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """Two seeds of SAC, and one of another horizon; one random episode each, so that nothing is compiled."""
    folder = tmp_path_factory.mktemp("runs")
    for seed, horizon, name in [(0, 20, "sac/seed-0"), (1, 20, "sac/seed-1"), (0, 10, "short")]:
        options = {**PLACE, "horizon": horizon}
        training.train(TrainConfig.preset(**options, algo="sac", episodes=1, seed=seed), folder / name)
    return folder


@pytest.fixture
def runs(trained, tmp_path, monkeypatch) -> Path:
    monkeypatch.setitem(EFFORTS["host"], "quick", Effort(8, 2, 1, 4, 1, (9,), 1, 1, 2))
    monkeypatch.setenv("COLUMNS", "160")
    return Path(shutil.copytree(trained, tmp_path / "runs"))


def evaluated(*given: str | Path) -> dict:
    """What `evaluate` writes to its file."""
    file = Path(given[0]).parent / "numbers" / "evaluation.json"
    assert cli.main(["evaluate", *map(str, given), "--json", str(file)]) == 0
    return json.loads(file.read_bytes())


def test_every_seed_and_their_mean_are_told(runs, capsys):
    found = evaluated(runs / "sac", "--episodes", "3")
    told = capsys.readouterr().out
    assert [Path(row["run"]).name for row in found["runs"]] == ["seed-0", "seed-1"]
    for row in found["runs"]:
        assert len(row["nominal"]) == len(row["average"]) == 3
        assert row["average"] == row["nominal"]  # SAC learned with nobody
        assert row["worst"] == pytest.approx(min(map(np.mean, [row["nominal"], *row["attacks"].values()])))
    (mean,) = found["means"]
    worst = estimate([row["worst"] for row in found["runs"]])
    assert mean["worst case"] == pytest.approx(worst._asdict())
    assert worst.low < worst.high
    lines = {line.split("│")[1].strip(): line for line in told.splitlines() if "│" in line}
    assert list(lines) == ["seed-0", "seed-1", "mean of 2", "95 % interval"]
    assert f"{worst.value:.1f}" in lines["mean of 2"]
    assert f"[{worst.low:.1f}, {worst.high:.1f}]" in lines["95 % interval"]
    assert found["runs"][0]["attack"] in lines["seed-0"]
    assert not (runs / "sac" / "seed-0" / "attacks").exists()  # a quick look leaves no traces


def test_other_settings_have_a_mean_of_their_own(runs, capsys):
    (runs / "sac" / "seed-1" / "checkpoints" / "000000").rename(runs / "gone")
    found = evaluated(runs)
    assert [(group["label"], len(group["runs"])) for group in found["means"]] == [("horizon 20", 2), ("horizon 10", 1)]
    told = capsys.readouterr().out
    assert "horizon 20" in told
    assert "sac/seed-1 (0 of 1 episodes)" in told
    shutil.rmtree(runs / "short" / "policy")
    named = evaluated(runs / "sac" / "seed-0", runs / "sac", runs / "short")
    assert [row["run"] for row in named["runs"]] == [str(runs / "sac" / f"seed-{seed}") for seed in (0, 1)]  # each once
    assert "short has no policy yet" in capsys.readouterr().err


def test_a_single_run_and_a_saved_policy_look_alike(runs, capsys):
    tables = []
    for folder in (runs / "short", runs / "short" / "policy"):
        assert cli.main(["evaluate", str(folder)]) == 0
        tables.append([line.split("│")[2:] for line in capsys.readouterr().out.splitlines() if "│" in line])
    assert tables[0] == tables[1]
    assert len(tables[0]) == 1


def test_mistakes(runs, capsys):
    for given, told in [
        ([], "needs a RUN"),
        ([runs / "sac" / "seed-0" / "checkpoints"], "holds no run"),
        ([runs, "--sweep", "mass=0.5:1:3"], "name it"),
        ([runs / "short", runs / "sac", "--sweep", "mass=0.5:1:3"], "--sweep is for one run, here are 2"),
        ([runs, "--attack-episodes", "3"], "belongs to --protocol paper"),
        ([runs, "--budget", "quick", "--protocol", "paper"], "belongs to --protocol battery"),
        ([runs, "--episodes", "0"], "--episodes is 0"),
        ([runs, "--protocol", "paper", "--attack-episodes", "0"], "--attack-episodes is 0"),
        ([runs, "--json", runs], "is a folder"),
    ]:
        assert cli.main(["evaluate", *map(str, given)]) == 2
        err = capsys.readouterr().err
        assert told in err
        assert err.count("\n") == 1


def test_the_paper_s_protocol_goes_on_where_it_was(runs, capsys, monkeypatch):
    learn, learned = paper.learn_adversary, []

    def learn_once(place, episodes, *given):
        learned.append(episodes)
        if len(learned) == 2:
            raise KeyboardInterrupt
        return learn(place, episodes, *given)

    monkeypatch.setattr(paper, "learn_adversary", learn_once)
    asked = ["--protocol", "paper", "--attack-episodes", "2"]
    assert cli.main(["evaluate", str(runs / "sac"), *asked]) == 130
    found = evaluated(runs / "sac", *asked)
    assert learned == [2, 2, 2]  # the first seed, the second one interrupted, the second one
    assert evaluated(runs / "sac", *asked) == found
    assert len(learned) == 3
    for row in found["runs"]:
        last, best = (np.mean(row["attacks"][name]) for name in ("sac-last", "sac-best"))
        assert row["worst"] == pytest.approx(min(last, best, np.mean(row["nominal"])))
    told = capsys.readouterr().out
    assert all(
        name in told for name in ("nominal", "average", "worst case", "last", "best", "of 2 episodes of soft")
    ), told
    folder = next((runs / "sac" / "seed-0" / "attacks").iterdir())
    agent = rhucrl.load(runs / "sac" / "seed-0")
    again = gains(HostArena(agent, training.env_of(agent.config)), rhucrl.load_adversary(folder / "sac-last"),
                  paper.fresh_seeds(agent.game, 0, 10))  # fmt: skip
    assert again == pytest.approx(found["runs"][0]["attacks"]["sac-last"])
    evaluated(runs / "sac", "--protocol", "paper", "--attack-episodes", "1")  # another task, kept elsewhere
    assert learned[3:] == [1, 1]
    shutil.copytree(runs / "sac" / "seed-1" / "policy", runs / "sac" / "seed-0" / "policy", dirs_exist_ok=True)
    evaluated(runs / "sac", *asked)  # a run that has gone on has another policy, which is judged anew
    assert learned[5:] == [2]


def test_an_adversary_that_acts_once_learns_the_worst_value():
    place = arena(still, rhucrl.ZeroSumEnv(Target(0.8, scope="episode")))
    shown = []
    learned = learn_adversary(place, 80, 0, lambda done, earned: shown.append(done))
    assert shown == list(range(1, 81))
    for adversary in learned:
        assert adversary(np.ones(1), 0)[0] == pytest.approx(0.37, abs=0.15)
    assert gains(place, learned.last, [1])[0] < 0.3 < gains(place, None, [1])[0]


def test_where_nobody_can_do_anything_nobody_learns():
    env = make("inverted-pendulum", "none", horizon=10)
    case = paper_worst_case(lambda obs: np.zeros(1), env, episodes=2)
    assert (case.findings, case.attack, case.returns) == ({}, "none", case.calm)


def test_the_average_is_against_the_adversary_of_training():
    def agent_of(kind, setting, **options):
        env = make("half-cheetah", setting, horizon=20)
        agent = kind(env, setting=setting, horizon=20, **options)
        agent._pair = training.learner_of(agent.config).initial(env).last
        return agent, env

    agent, env = agent_of(rhucrl.DomainRandomization, "parameter", scope="episode")
    assert not isinstance(env.game, JaxGame)
    masses, nominal = average(agent, env, 4), gains(HostArena(agent, env), None, paper.fresh_seeds(env.game, 0, 4))
    assert len(masses) == 4
    assert masses != pytest.approx(nominal)
    agent, env = agent_of(rhucrl.RHUCRL, "adversarial")
    nominal = gains(HostArena(agent, env), None, paper.fresh_seeds(env.game, 0, 4))
    assert average(agent, env, 4) != pytest.approx(nominal)
    agent, env = agent_of(rhucrl.SAC, "action")
    nominal = gains(HostArena(agent, env), None, paper.fresh_seeds(env.game, 0, 4))
    assert average(agent, env, 4) == pytest.approx(nominal)
