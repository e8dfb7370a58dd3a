"""Plots in the page's look: its colours, titles that name the run, and a worst value inside the range asked for."""

import re
from pathlib import Path

import numpy as np
import pytest

import rhucrl.experiments
from rhucrl.cli.sweep import Axis, swept
from rhucrl.envs import make
from rhucrl.experiments import plots, style
from rhucrl.experiments.figures import LABELS

CONFIG = {"env": "pendulum", "setting": "parameter", "strength": None, "algo": "maximin-mb", "seed": 3}


@pytest.fixture
def drawn(monkeypatch):
    """The figures that were saved."""
    figures = []

    def save(figure, path):
        figures.append(figure)
        return style.save(figure, path)

    monkeypatch.setattr(plots, "save", save)
    return figures


def test_the_colours_are_the_light_page_s():
    css = (Path(rhucrl.experiments.__path__[0]) / "page" / "page.css").read_text()
    light, _, dark = css.partition("@media")
    names = {"page", "card", "ink", "soft", "faint", "rule", "grid", "torque", "adversary", "other", "optimum", *LABELS}
    assert names <= set(style.COLOURS)
    for name, colour in style.COLOURS.items():
        assert f"--{name}: {colour};" in light and f"--{name}:" in dark
    assert len({style.algorithm_colour(name) for name in (*LABELS, "sac")}) == len(LABELS) + 1
    used = {name for path in Path(style.__file__).parent.glob("*.py") for name in
            re.findall(r'COLOURS\["([\w-]+)"\]', path.read_text())}  # fmt: skip
    assert used <= set(style.COLOURS)


def test_the_sweep_s_picture(tmp_path, drawn):
    values, samples = np.linspace(0.5, 1.5, 5), np.arange(15.0).reshape(5, 3)
    path = plots.plot_sweep(tmp_path / "sweep.png", "mass", values, samples, (0.6, -1.25), CONFIG)
    assert path.stat().st_size > 5000
    (figure,) = drawn
    title, facts = (text.get_text() for text in figure.texts)
    assert title == "MaxiMin-MB on pendulum: return over the mass"
    assert facts == "setting parameter, strength 0.8, seed 3"
    (axes,) = figure.axes
    assert axes.lines[0].get_color() == style.COLOURS["maximin-mb"]
    assert "worst found: −1.2 at 0.6" in [text.get_text() for text in axes.get_legend().get_texts()]
    assert axes.lines[1].get_xydata().tolist() == [[0.6, -1.25]]
    assert axes.get_xlabel() == "relative mass"
    assert not axes.spines["top"].get_visible()


def test_the_map_s_picture(tmp_path, drawn):
    axes = [("torso_mass", np.linspace(1.0, 3.0, 3)), ("floor_friction", np.linspace(0.5, 2.0, 4))]
    returns = np.arange(12.0).reshape(3, 4)
    worst = ((1.25, 0.6), -1.25)
    path = plots.plot_map(tmp_path / "sweep.png", axes, returns, worst, [2.0, 1.0], CONFIG)
    assert path.stat().st_size > 5000
    (figure,) = drawn
    assert figure.texts[0].get_text() == "MaxiMin-MB on pendulum: return over torso mass and floor friction"
    plot = figure.axes[0]
    np.testing.assert_array_equal(plot.collections[0].get_array(), returns.T)  # rows are the second parameter
    assert [line.get_xydata().tolist() for line in plot.lines] == [[[1.25, 0.6]], [[2.0, 1.0]]]
    assert (plot.get_xlabel(), plot.get_ylabel()) == ("torso mass", "floor friction")
    outside = plots.plot_map(tmp_path / "sweep.png", axes, returns, worst, [9.0, 1.0], CONFIG)
    assert outside == path and len(drawn[-1].axes[0].lines) == 1


@pytest.mark.parametrize("oracle", [False, True])
def test_the_theory_s_picture(tmp_path, drawn, oracle):
    metrics = ["return", "coverage_confidence", "beta", "information_gain", "information_bound", "log10_Gamma",
               "log10_Gamma_bound", "log10_regret_bound", "log10_episodes_needed"]  # fmt: skip
    metrics += ["regret", "regret_average"] if oracle else []
    rows = [{"episode": i, **dict.fromkeys(metrics, float(i))} for i in range(4)]
    for row in rows[1:]:
        row |= {"J_pessimistic": 0.0, "J_optimistic": 2.0}
    plots.plot_theory(tmp_path / "theory.png", rows, {**CONFIG, "setting": "adversarial", "algo": "rh-ucrl"})
    (figure,) = drawn
    title, facts = (text.get_text() for text in figure.texts)
    assert title.startswith("RH-UCRL on pendulum") and facts.startswith("setting adversarial, strength 0.2, seed 3")
    assert ("--oracle" in facts) == (not oracle)
    shown = {axes.get_title("left"): axes for axes in figure.axes if axes.get_visible()}
    assert len(shown) == 6 + oracle and ("Regret" in shown) == oracle
    gain, bound = shown["Information"].lines
    assert gain.get_color() == style.COLOURS["rh-ucrl"] and not gain.is_dashed()
    assert bound.get_color() == style.COLOURS["soft"] and bound.is_dashed()
    (band,) = shown["Performance"].collections
    assert band.get_paths()[0].get_extents().get_points().tolist() == [[1, 0], [3, 2]]


def push(obs):
    return obs[..., :1] * 0 + 1.0


def test_the_worst_value_lies_in_the_range_that_was_asked_for():
    """Under a constant torque the pendulum's return falls with its mass, up to the end of the whole range."""
    env = make("pendulum", "parameter", horizon=15)
    _, (anywhere,), _ = swept(push, env, [Axis("mass", np.linspace(0.2, 1.8, 3))], [0], 0, "all")
    assert anywhere > 1.7
    samples, (worst,), returns = swept(push, env, [Axis("mass", np.linspace(0.5, 1.5, 3))], [0], 0, "some")
    assert 1.4 < worst < 1.5 + 1e-6
    assert samples.shape[0] == 3 and np.mean(returns) <= samples.mean(1).min()
