"""The README's first command, at the sizes of `test_protocol`: the same programs, which are then compiled once."""

from __future__ import annotations

import functools
import json
import re

import jax
import pytest

from probes import enable_cache
from rhucrl.attacks.oracle import solve
from rhucrl.cli import main as cli
from rhucrl.experiments import demo as demonstration
from rhucrl.storage.runs import Run
from rhucrl.training import loop as training
from test_protocol import TINY

enable_cache()

SMALL = {"seed": 0, "only": ("constant",), "grid": 20, **TINY}
PLAN = demonstration.DemoPlan({"seed": 0, **TINY}, SMALL["only"], SMALL["grid"])
NAMES = {"rh-ucrl": "RH-UCRL", "h-ucrl": "H-UCRL"}
SEEN = {"seen before": 1.0}  # in the metrics of what is resumed; what begins anew does not have it


def begin(folder, monkeypatch):
    """RH-UCRL's part of a demonstration that was stopped after an episode, with a mark in its metrics."""
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        episode = training.ModelBased.episode

        def stopped(learner, env, state, index):
            if index:
                raise KeyboardInterrupt
            return episode(learner, env, state, index)

        patch.setattr(training.ModelBased, "episode", stopped)
        training.train(PLAN.config(demonstration.STRENGTH), folder / "runs" / "rh-ucrl")
    metrics = folder / "runs" / "rh-ucrl" / "metrics.jsonl"
    metrics.write_text(json.dumps(json.loads(metrics.read_text()) | SEEN) + "\n")


@pytest.mark.slow
def test_the_demonstration_goes_on_where_it_was_and_shows_what_it_finds(tmp_path, monkeypatch, capsys):
    """One test: its processes learn once."""
    begin(tmp_path, monkeypatch)
    if (cache := jax.config.jax_compilation_cache_dir) is not None:  # one for all, though each has one core
        monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", cache)
        monkeypatch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
        monkeypatch.setenv("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "0")
    monkeypatch.setattr(demonstration, "demo", functools.partial(demonstration.demo, **SMALL))
    assert cli.main(["demo", "--output", str(tmp_path)]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["index.html", "results.json", "runs"]
    results = json.loads((tmp_path / "results.json").read_text())
    check_runs(tmp_path, results)
    check_numbers(results)
    check_table(capsys.readouterr().out, results)
    check_page((tmp_path / "index.html").read_text(), results)


def check_runs(folder, results):
    """Both algorithms have learned, the one that was stopped from where it was."""
    assert [run["algorithm"] for run in results["runs"]] == list(NAMES)
    for run in results["runs"]:
        rows = (folder / "runs" / run["algorithm"] / "metrics.jsonl").read_text().splitlines()
        assert run["metrics"] == [json.loads(row) for row in rows]
        assert [row["episode"] for row in run["metrics"]] == [*range(TINY["episodes"])]
        assert [SEEN.items() <= row.items() for row in run["metrics"]] == [run["algorithm"] == "rh-ucrl", *[False] * 3]


def check_numbers(results):
    """They are those of the policies and of the game."""
    strength, oracle = demonstration.STRENGTH, dict(results["oracle"])
    assert [*oracle] == [*demonstration.STRENGTHS] and results["optimum"] == oracle[strength]
    assert results["optimum"] == pytest.approx(solve(PLAN.game(strength), PLAN.grid).value, rel=1e-5)
    for run in results["runs"]:
        sweep, metrics = dict(run["sweep"]), run["metrics"]
        assert [*sweep] == [*demonstration.STRENGTHS]
        assert (sweep[0.0], sweep[strength]) == (run["nominal"], run["worst"])
        assert sum(run["episode"]["reward"]) == pytest.approx(run["worst"], abs=0.01)  # the film is of the worst case
        played = metrics[metrics[-1]["output_episode"]]["return"]  # against the adversary of training
        assert run["average"] == pytest.approx(played, rel=1e-4)
        assert run["attack"] == "constant"


def check_table(output, results):
    """What is printed."""
    for run in results["runs"]:
        numbers = [run["nominal"], run["average"], run["worst"], results["optimum"]]
        assert [NAMES[run["algorithm"]], *(f"{number:.1f}" for number in numbers)] in [
            line.strip("│ ").replace("│", "").split() for line in output.splitlines()
        ]


def check_page(page, results):
    """Its table, its curves and its film are those of the results."""
    optimum, rows = results["optimum"], re.findall(r"<tr><td>(.*?)</tr>", page)
    assert len(rows) == len(results["runs"])
    for row, run in zip(rows, results["runs"], strict=True):
        name, *cells = re.sub(r"<[^>]*>", " ", row).split()
        numbers = [f"{number:.0f}" for number in (run["nominal"], run["average"], run["worst"], optimum)]
        gap = f"{(optimum - run['worst']) / abs(optimum):.0%}"
        assert (name, *cells) == (NAMES[run["algorithm"]], *(text.replace("-", "−") for text in (*numbers, gap)))
    data = json.loads(re.search(r'id="data">(.*?)</script>', page)[1])
    panel = next(panel for panel in data["panels"] if panel["x"] == "strength of the adversary")
    drawn = {line["name"]: [*zip(line["x"], line["y"], strict=True)] for line in panel["series"]}
    swept = {NAMES[run["algorithm"]]: run["sweep"] for run in results["runs"]} | {"Optimum": results["oracle"]}
    assert {*drawn} == {*swept}
    for name, points in swept.items():
        assert drawn[name] == [pytest.approx(point, rel=1e-6) for point in points]
    assert [episode["theta"] for episode in data["episodes"]] == [run["episode"]["theta"] for run in results["runs"]]
    assert all(f"<dd>{fact}</dd>" in page for fact in results["facts"].values())


def test_runs_of_other_settings_are_refused_and_stay_as_they_are(tmp_path, monkeypatch, capsys):
    """Two processes of three fail: so does the command."""
    for algorithm in NAMES:
        with Run.create(tmp_path / "runs" / algorithm, PLAN.config(demonstration.STRENGTH, algorithm)):
            pass
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    def here(commands):
        return {part: demonstration.main(*command[3:]) for part, command in commands.items()}

    monkeypatch.setattr(demonstration, "run_side_by_side", here)
    monkeypatch.setattr(demonstration, "solve_oracle", lambda plan: [])
    monkeypatch.setattr(demonstration, "demo", functools.partial(demonstration.demo, **SMALL | {"seed": 1}))
    with pytest.raises(SystemExit) as stop:
        cli.main(["demo", "--output", str(tmp_path)])
    told = capsys.readouterr().err
    assert stop.value.code == 2 and "rh-ucrl and h-ucrl failed" in told
    for algorithm in NAMES:
        assert f"{tmp_path / 'runs' / algorithm} holds a run with other settings: remove it or choose another" in told
    assert {path: path.read_bytes() for path in before} == before
    assert not (tmp_path / "index.html").exists()
