"""One look for every picture: the page's colours and type, for Matplotlib and for films.

`page.css` is where the colours are chosen, and they are read from there, so that no picture drifts from the page.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from rhucrl.experiments.figures import colour, label
from rhucrl.storage.trees import explained

_CSS = resources.files("rhucrl.experiments").joinpath("page").joinpath("page.css").read_text()
COLOURS: dict[str, str] = dict(re.findall(r"--([\w-]+): (#[0-9a-f]+);", _CSS.partition("@media")[0]))
"""The light page's colours by name."""

SERIES = [COLOURS[name] for name in ("rh-ucrl", "h-ucrl", "best-response", "maximin-mb", "greedy", "other")]
"""Colours of lines that are no algorithms, in their order."""

HEAD = 0.72  # inches above the plots for the title and what it is about
MARGIN = 0.14


def algorithm_colour(algorithm: str) -> str:
    """An algorithm's colour, the same in every picture."""
    return COLOURS[colour(algorithm)]


def number(value: float, digits: int = 0) -> str:
    """A number with a true minus sign, and no minus before zero."""
    if not math.isfinite(value):
        return "–"
    text = f"{value:.{digits}f}"
    return text.lstrip("-") if float(text) == 0 else text.replace("-", "−")


def run_title(config: Mapping[str, Any]) -> str:
    return f"{label(config['algo'])} on {config['env']}"


def run_facts(config: Mapping[str, Any]) -> str:
    from rhucrl.envs import NAMES, STRENGTH

    env, setting, strength = config["env"], config["setting"], config.get("strength")
    if strength is None and env in NAMES:
        strength = STRENGTH["pendulum" if env == "pendulum" else "robot"][setting]
    kind = f"{setting} ({config['mixture']})" if config.get("mixture") else setting
    known = "" if strength is None else f"strength {strength:g}, "  # nobody knows the default of one's own
    return f"setting {kind}, {known}seed {config['seed']}"


# Matplotlib


def sheet(title: str, facts: str, rows: int = 1, columns: int = 1, size: tuple[float, float] = (6.4, 4.2)) -> Any:
    """A figure with its title, and its axes in one list."""
    from matplotlib.figure import Figure

    width, height = size
    figure = Figure(figsize=size, dpi=150, facecolor=COLOURS["card"])
    figure.set_layout_engine("constrained", rect=(0, 0, 1, 1 - HEAD / height), w_pad=MARGIN, h_pad=MARGIN)
    left, top = MARGIN / width, 1 - 0.16 / height
    figure.text(left, top, title, va="top", fontsize=14, fontweight="bold", color=COLOURS["ink"])
    figure.text(left, top - 0.28 / height, facts, va="top", fontsize=9.5, color=COLOURS["soft"])
    return figure, list(figure.subplots(rows, columns, squeeze=False).flat)


def dress(axes: Any, x: str, y: str, title: str = "", across: int = 3) -> None:
    """Axes in the page's look, with a legend above them.

    It is called when everything has been drawn. The legend has `across` entries in a row.
    """
    for side in ("top", "left", "right"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set(color=COLOURS["faint"], linewidth=0.8)
    axes.grid(axis="y", color=COLOURS["grid"], linewidth=0.9)
    axes.set_axisbelow(True)
    axes.tick_params(axis="y", length=0)
    axes.tick_params(axis="x", color=COLOURS["faint"], width=0.8)
    axes.tick_params(labelsize=9, labelcolor=COLOURS["soft"])
    axes.set_xlabel(x, fontsize=9.5, color=COLOURS["soft"])
    axes.set_ylabel(y, fontsize=9.5, color=COLOURS["soft"])
    handles, labels = axes.get_legend_handles_labels()
    rows = -(-len(handles) // across)
    if handles:
        axes.legend(
            handles, labels, loc="lower left", bbox_to_anchor=(0, 1.02), ncols=across, frameon=False, fontsize=9,
            labelcolor=COLOURS["soft"], borderaxespad=0.2, handlelength=1.4, columnspacing=1.2, borderpad=0,
        )  # fmt: skip
    if title:
        axes.set_title(title, loc="left", pad=8 + 15 * rows, fontsize=10.5, fontweight="bold", color=COLOURS["ink"])


def line_look(colour: str, dashed: bool = False) -> dict[str, Any]:
    """How a line with a dot at each point is drawn."""
    return {
        "color": colour, "linewidth": 1.4 if dashed else 2, "linestyle": (0, (4, 3)) if dashed else "-", "marker": "o",
        "markersize": 4 if dashed else 5.5, "markeredgecolor": COLOURS["card"], "markeredgewidth": 0.9,
        "solid_capstyle": "round",
    }  # fmt: skip


def save(figure: Any, path: Path) -> Path:
    with explained(path):
        figure.savefig(path)
    return path


# Pillow


@functools.cache
def font(size: int, bold: bool = False) -> Any:
    """The font that comes with Matplotlib: it is there on every machine."""
    import matplotlib
    from PIL import ImageFont

    name = "DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf"
    return ImageFont.truetype(str(Path(matplotlib.get_data_path(), "fonts", "ttf", name)), size)
