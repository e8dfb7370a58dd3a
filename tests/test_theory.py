"""The theory's formulas, the exact game that they are held against, and the command that does it."""

from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import pytest

from rhucrl.cli.main import main
from rhucrl.runtime.progress import SILENT
from rhucrl.theory import bounds as theory
from rhucrl.theory import line_game as lines
from rhucrl.theory import verify
from rhucrl.theory.bounds import Lipschitz
from rhucrl.theory.line_game import against, ahead, fixed, maximin, plan

SMALL = verify.Setup(episodes=24, draws=4)
STEEP = Lipschitz(1.0, 0.5, 1.0, 1.0, 2.0)


def test_beta_is_the_norm_without_noise_and_grows_with_all_that_makes_it_unsure():
    assert theory.beta_t(2.0, 0.0, 4.0, 0.1, 3.0) == 2.0
    plain = theory.beta_t(1.0, 0.5, 4.0, 0.1, 3.0)
    assert plain == pytest.approx(1 + 0.25 * math.sqrt(2 * math.log(10) + 6))
    wider = [
        (1.0, 0.6, 4.0, 0.1, 3.0),
        (1.0, 0.5, 3.0, 0.1, 3.0),
        (1.0, 0.5, 4.0, 0.05, 3.0),
        (1.0, 0.5, 4.0, 0.1, 4.0),
    ]
    assert all(theory.beta_t(*numbers) > plain for numbers in wider)
    assert theory.beta_t(1.0, 0.5, 4.0, 0.1, 3.0, outputs=3) > plain


def best_design(matrix: np.ndarray, count: int, ridge: float) -> float:
    """gamma over few places, by trying every way to spread the observations."""

    def gain(times: list[int]) -> float:
        rows = np.repeat(np.arange(len(matrix)), times)
        return np.linalg.slogdet(np.eye(count) + matrix[np.ix_(rows, rows)] / ridge)[1] / 2

    return max(gain([i, j, count - i - j]) for i in range(count + 1) for j in range(count + 1 - i))


def test_the_bound_on_the_information_gain_is_a_bound_and_a_close_one():
    z = np.array([[0.0], [0.5], [2.0]])
    matrix = np.exp(-np.square(z - z.T) / 2)
    for count in (1, 4, 9):
        best, bound = best_design(matrix, count, 0.5), theory.information_bound(matrix, count, 0.5)
        assert best <= bound + 1e-9 and bound < best + 0.35
    assert theory.information_bound(matrix, 9, 0.5) - best_design(matrix, 9, 0.5) < 0.05


def test_the_linear_kernels_bound_is_one_too():
    x = np.random.default_rng(0).uniform(-1, 1, (40, 3))
    matrix = (1 + x @ x.T) / 4
    for count in (3, 30, 300):
        assert theory.information_bound(matrix, count, 2.0) <= theory.linear_information_bound(4, count, 2.0) + 1e-6


def test_the_complexity_bound_is_not_above_the_papers_where_the_paper_has_one():
    for p, horizon in ((1, 3), (4, 50), (3, 200)):
        ours = 10 ** theory.log_complexity_bound(7.0, p * horizon, horizon, p)
        assert ours <= 2 * math.e * p * horizon * (p * 7.0)  # all outputs' information


def test_the_regret_bound_is_the_theorems():
    bound = 10 ** theory.log_regret_bound(STEEP, 1.5, 3, 20, math.log10(7.0))
    assert STEEP.c == pytest.approx(3 * math.sqrt(3))
    assert bound == pytest.approx(4 * 2 * (1.5 * STEEP.c) ** 3 * 3**1.5 * math.sqrt(20 * 7.0))
    needed = 10 ** theory.log_episodes(STEEP, 1.5, 3, math.log10(7.0), 0.5)
    bound = 10 ** theory.log_regret_bound(STEEP, 1.5, 3, needed, math.log10(7.0))
    assert bound / needed == pytest.approx(0.5)  # so many make the average regret epsilon
    assert theory.log_regret_bound(STEEP, 0.2, 3, 20, 0.0) == theory.log_regret_bound(STEEP, 1.0, 3, 20, 0.0)


def test_growth_is_the_power_of_the_regret():
    assert theory.growth(np.sqrt(np.arange(1.0, 101))) == pytest.approx(0.5)
    assert theory.growth(theory.regret(0.0, -np.ones(50))) == pytest.approx(1.0)


# The game on a line.


@pytest.fixture(scope="module")
def line():
    return SMALL.draw(np.random.default_rng(3))


def test_dynamics_have_the_norm_that_was_asked_for(line):
    kernel = SMALL.kernels()
    rows = np.random.default_rng(0).permutation(len(line.z))[:60]
    matrix = kernel(line.z[rows], line.z[rows]) + 1e-10 * np.eye(60)
    f = line.f.ravel()[rows]
    least = np.sqrt(f @ np.linalg.solve(matrix, f))  # of all functions through these values
    assert 0.95 < least <= 1 + 1e-3


def test_an_intervals_extremes_are_those_of_all_its_points(line):
    value, width = np.sin(7 * line.nodes), 0.3
    low, high = line.f - width, line.f + width
    for sign in (1, -1):
        extreme = ahead(line, value, low, high, sign)
        inside = [ahead(line, value, x, x, 1) for x in np.linspace(low, high, 41)]
        best = np.max(inside, 0) if sign > 0 else np.min(inside, 0)
        assert (sign * (extreme - best) >= -1e-12).all() and np.abs(extreme - best).max() < 0.05


def test_a_plans_value_is_the_mean_return_of_its_episodes(line):
    truth = line.f, line.f, 1
    best = plan(line, *truth, maximin)
    generator, total = np.random.default_rng(0), []
    for _ in range(2000):
        met = lines.play(line, best.agent, best.answer, generator)
        total.append(line.reward.ravel()[met[:, 0].astype(int)].sum())
    assert np.mean(total) == pytest.approx(best.value[line.start], abs=4 * np.std(total) / np.sqrt(2000))


def test_the_max_min_policy_is_worst_off_against_its_own_adversary(line):
    truth = line.f, line.f, 1
    best = plan(line, *truth, maximin)
    worst = plan(line, *truth, against(best.agent))
    np.testing.assert_allclose(worst.value, best.value, atol=1e-12)
    for answer in range(lines.ANSWERS):
        other = plan(line, *truth, fixed(best.agent, np.full_like(best.answer, answer)))
        assert (other.value >= best.value - 1e-12).all()


def test_the_lattice_has_the_saddle_point_of_the_closed_form():
    line, exact = lines.linear_quadratic(0.05, 3), lines.saddle(0.05, 3)
    found = plan(line, line.f, line.f, 1, maximin)
    here, step = line.nodes[line.start], line.actions[1] - line.actions[0]
    assert found.value[line.start] == pytest.approx(exact.value, abs=0.01)
    assert line.actions[found.agent[0, line.start]] == pytest.approx(-exact.agent * here, abs=step)
    assert line.answers[found.answer[0, line.start]] == pytest.approx(exact.adversary * here, abs=step)


def test_intervals_that_are_too_narrow_are_seen_to_fail():
    """The test could fail: with a third of the true norm the intervals miss, and the report says so."""
    narrow = dataclasses.replace(SMALL, episodes=6)
    line = narrow.draw(np.random.default_rng(0))
    stretched = line._replace(f=3 * line.f)
    empty = verify.believe(narrow, stretched, np.zeros(0, int), np.zeros((0, 1)), np.zeros((0, 0)))
    reach = np.max(np.abs(stretched.f - empty.mean) / (empty.beta * empty.sigma))
    assert reach > 1
    told = verify.coverage(narrow, np.full((20, 6), reach))
    assert told["held"] == 0 and told["high"] < told["asked"]


@pytest.mark.slow
def test_the_theory_holds_and_says_how_often_it_was_asked():
    found = verify.verify(SMALL, SILENT)
    assert found["coverage"]["held"] == SMALL.draws
    for row in found["inequalities"]:
        assert row["failed"] == 0 and row["tested"] == SMALL.draws * SMALL.episodes, row
    again = verify.verify(SMALL, SILENT)
    assert again == found


def test_the_command_writes_what_it_shows(tmp_path, capsys):
    path = tmp_path / "theory.json"
    assert main(["theory", "verify", "--draws", "2", "--episodes", "6", "--output", str(path)]) == 0
    told = capsys.readouterr().out
    found = json.loads(path.read_text())
    assert "no inequality failed" in told and found["setup"]["draws"] == 2
    assert main(["theory", "verify", "--game", "linear-quadratic", "--draws", "2", "--episodes", "4"]) == 0
    assert "closed form" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--draws", "1"], "--draws is 1"),
        (["--delta", "1.5"], "between 0 and 1"),
        (["--kernel", "cubic"], "unknown"),
        (["--output", "nowhere/theory.json"], "no folder"),
    ],
)
def test_mistakes_are_answered_in_one_line(words, told, capsys):
    assert main(["theory", "verify", *words]) == 2
    error = capsys.readouterr().err
    assert told in error and error.count("\n") == 1


def test_a_run_without_a_gaussian_process_has_no_theory(tmp_path, capsys):
    from rhucrl.storage.runs import Run

    Run.create(tmp_path / "run", {}).close()
    assert main(["theory", "plot", str(tmp_path / "run")]) == 2
    assert "--model gp" in capsys.readouterr().err
