"""Plots as files, for those who would rather look than read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rhucrl.experiments import style
from rhucrl.experiments.style import COLOURS, dress, line_look, save
from rhucrl.statistics import estimate


def plot_sweep(
    path: Path, name: str, values: np.ndarray, samples: np.ndarray, worst: tuple[float, float],
    config: Mapping[str, Any],
) -> Path:  # fmt: skip
    """The returns over a parameter's range, with intervals over seeds, and the worst value that was found."""
    estimates, colour = [estimate(row) for row in samples], style.algorithm_colour(config["algo"])
    figure, (axes,) = style.sheet(f"{style.run_title(config)}: return over the {name}", style.run_facts(config))
    low, high = [e.low for e in estimates], [e.high for e in estimates]
    spread = low != high
    if spread:
        axes.fill_between(values, low, high, color=colour, alpha=0.2, linewidth=0)
    mean = "mean, 95 % interval over starts" if spread else "return"
    axes.plot(values, [e.value for e in estimates], label=mean, **line_look(colour))
    found = f"worst found: {style.number(worst[1], 1)} at {worst[0]:.4g}"
    axes.plot(*worst, label=found, zorder=3, **line_look(COLOURS["adversary"]) | {"linestyle": "none", "markersize": 9})
    relative = name == "mass"
    if relative and values[0] < 1 < values[-1]:
        axes.axvline(1, color=COLOURS["faint"], linewidth=0.9, linestyle=(0, (3, 3)), zorder=0)
        above = axes.get_xaxis_transform()
        axes.text(1, 0.02, " nominal", transform=above, fontsize=9, color=COLOURS["soft"])
    dress(axes, f"relative {name}" if relative else name.replace("_", " "), "return of an episode")
    return save(figure, path)


def plot_map(
    path: Path, axes: Sequence[tuple[str, np.ndarray]], returns: np.ndarray, worst: tuple[Sequence[float], float],
    nominal: Sequence[float], config: Mapping[str, Any],
) -> Path:  # fmt: skip
    """The mean returns over the ranges of two parameters, the nominal values, and the worst ones that were found."""
    from matplotlib.colors import LinearSegmentedColormap

    (name, values), (other, across) = axes
    title = f"{style.run_title(config)}: return over {name} and {other}".replace("_", " ")
    figure, (plot,) = style.sheet(title, style.run_facts(config), size=(7.2, 5.2))
    shades = LinearSegmentedColormap.from_list("returns", [COLOURS["adversary"], COLOURS["card"], COLOURS["rh-ucrl"]])
    picture = plot.pcolormesh(values, across, returns.T, cmap=shades, shading="nearest")
    (low, high), found = worst[0], style.number(worst[1], 1)
    mark = {"linestyle": "none", "markeredgecolor": COLOURS["card"], "markersize": 11, "clip_on": False, "zorder": 3}
    plot.plot(
        low, high, marker="X", color=COLOURS["ink"], label=f"worst found: {found} at {low:.4g}, {high:.4g}", **mark
    )
    if all(x[0] <= at <= x[-1] for x, at in zip((values, across), nominal, strict=True)):
        plot.plot(*nominal, marker="o", color=COLOURS["soft"], label="nominal", **mark)
    dress(plot, name.replace("_", " "), other.replace("_", " "))
    plot.grid(visible=False)
    bar = figure.colorbar(picture, ax=plot, pad=0.02)
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=9, labelcolor=COLOURS["soft"], length=0)
    bar.set_label("mean return of an episode", fontsize=9.5, color=COLOURS["soft"])
    return save(figure, path)


class Line(NamedTuple):
    """A column of metrics.jsonl: its name on the plot, and whether it is a bound or what happened."""

    metric: str
    label: str
    bound: bool = False


THEORY: dict[tuple[str, str], tuple[Line, ...]] = {
    ("Performance", "return"): (Line("return", "real return"),),
    ("Confidence", "share of residuals"): (Line("coverage_confidence", "inside βₜ σ"),),
    ("Width of the intervals", "βₜ"): (Line("beta", "βₜ"),),
    ("Information", "nats"): (
        Line("information_gain", "realised gain"),
        Line("information_bound", "bound on $γ_T$", True),
    ),
    ("Complexity", "log₁₀"): (Line("log10_Gamma", "Σ ‖σ‖² met"), Line("log10_Gamma_bound", "bound on $Γ_T$", True)),
    ("What the theory promises", "log₁₀"): (
        Line("log10_regret_bound", "bound on $R_T$", True),
        Line("log10_episodes_needed", "episodes asked for"),
    ),
    ("Regret", "return"): (Line("regret", "against the oracle"), Line("regret_average", "per episode", True)),
}


BAND = "J_pessimistic", "J_optimistic"


def plot_theory(path: Path, rows: Sequence[Mapping[str, Any]], config: Mapping[str, Any]) -> Path:
    """What the theory says about a run's episodes, beside what happened."""
    from matplotlib.ticker import MaxNLocator

    known = {name for row in rows for name in row}
    panels = {names: lines for names, lines in THEORY.items() if known & {line.metric for line in lines}}
    facts = style.run_facts(config) + ("" if ("Regret", "return") in panels else "; the regret needs --oracle")
    columns = -(-len(panels) // 2)
    title = f"{style.run_title(config)}: theory and what happened"
    figure, every = style.sheet(title, facts, 2, columns, (3.7 * columns, 6.6))
    colour = style.algorithm_colour(config["algo"])
    band = [(row["episode"], *(row[name] for name in BAND)) for row in rows if all(name in row for name in BAND)]
    if band:
        look = {"color": COLOURS["other"], "alpha": 0.2, "linewidth": 0, "label": "J⁽ᵖ⁾ to J⁽ᵒ⁾"}
        every[0].fill_between(*zip(*band, strict=True), **look)
    for axes, ((title, y), lines) in zip(every, panels.items(), strict=False):
        for line in lines:
            points = [(row["episode"], row[line.metric]) for row in rows if line.metric in row]
            if points:
                shade = COLOURS["soft"] if line.bound else colour
                axes.plot(*zip(*points, strict=True), label=line.label, **line_look(shade, line.bound))
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        if title == "Confidence":
            axes.set_ylim(0, 1.04)
        dress(axes, "episode", y, title)
    for axes in every[len(panels) :]:
        axes.set_visible(False)
    return save(figure, path)
