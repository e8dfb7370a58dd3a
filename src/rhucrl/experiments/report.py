"""A page about runs: one HTML file that needs nothing else, neither the network nor a server.

`figures` turns runs into series and words, `page/` holds the style and the code that draws them in the browser; here
they become one text.
"""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any

from rhucrl.experiments import figures
from rhucrl.experiments.figures import Figure, Json, RunSummary, colour, label
from rhucrl.statistics import Estimate, estimate
from rhucrl.storage.trees import absolute, explained, write_file

PAGE = "index.html"
NON_BREAKING_HYPHEN = "\u2011"


def write_page(folder: str | Path, page: str) -> Path:
    """Write a page as `folder/index.html` and return its path."""
    path = absolute(folder) / PAGE
    with explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, page.encode())
    return path


def render(
    title: str, runs: Sequence[RunSummary], oracle: Mapping[float, float] | None = None, lead: str = "",
    strength: float | None = None, facts: Mapping[str, str] | None = None,
) -> str:  # fmt: skip
    """The text of a page about some runs.

    `oracle` holds the optimum at each strength of the adversary, `strength` is the one of training; `lead` opens
    the page, `facts` close it.
    """
    groups = figures.by_algorithm(runs)
    optimum = (oracle or {}).get(strength) if strength is not None else None
    shown = [group[0] for group in groups.values() if group[0].episode]
    sections = [figures.sweep_figure(groups, oracle, strength), figures.learning_figure(groups)]
    sections += [figures.bounds_figure(groups), figures.model_figure(groups)]
    drawn = [figure for figure in sections if figure.panels]
    panels = ([figures.running_return(shown)] if shown else []) + [panel for figure in drawn for panel in figure.panels]
    numbers = itertools.count(1 if shown else 0)
    parts = [theatre(shown)] if shown else []
    parts += [table(groups, optimum), *(section(figure, numbers) for figure in drawn)]
    rows = (f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in (facts or {}).items())
    page = resources.files("rhucrl.experiments").joinpath("page")
    return Template(page.joinpath("page.html").read_text()).substitute(
        title=escape(title),
        lead=escape(re.sub(r"(?<=\w)-(?=\w)", NON_BREAKING_HYPHEN, lead)),
        style=page.joinpath("page.css").read_text(),
        sections="\n".join(parts),
        facts=f"<dl>{''.join(rows)}</dl>",
        data=embed({"title": title, "panels": panels, "episodes": [figures.animated(run) for run in shown]}),
        script=page.joinpath("charts.js").read_text() + page.joinpath("pendulum.js").read_text(),
    )


def embed(data: Json) -> str:
    """JSON that may stand inside a script element: no `<` can end it, and what is not finite is null."""
    return json.dumps(_finite(data), separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


# HTML: all words are in it, so that the page reads without its code too.


def section(figure: Figure, numbers: Iterable[int]) -> str:
    plots = ""
    for view, number in zip(figure.panels, numbers, strict=False):
        heading = f"<h3>{escape(view['title'])}</h3>" if view.get("title") else ""
        plots += f"<div>{heading}<div class='plot' data-panel='{number}'></div></div>"
    keys = "".join(
        f"<li><span class='key {style}' style='--colour:var(--{shade})'></span>{escape(name)}</li>"
        for name, shade, style in figure.legend
    )
    columns = min(figure.columns, len(figure.panels))
    return (
        f"<section><h2>{escape(figure.title)}</h2><ul class='legend'>{keys}</ul>"
        f"<div class='panels' style='--columns:{columns}'>{plots}</div>"
        f"<p class='note'>{escape(figure.note)}</p></section>"
    )


def theatre(shown: Sequence[RunSummary]) -> str:
    shades = {"gravity": "var(--ink)", "mass": "var(--colour)", "torque": "var(--torque)"}
    dials = "".join(
        f"<span>{name}</span><span class='dial' data-dial='{name}' style='--shade:{shade}'><i></i></span>"
        f"<output data-out='{name}'></output>"
        for name, shade in shades.items()
    )
    stages = "".join(
        f"<figure class='stage' data-episode='{i}' style='--colour:var(--{colour(run.algorithm)})'>"
        f"<h3>{escape(label(run.algorithm))}<output data-out='return'></output></h3>"
        f"<canvas aria-label='{escape(label(run.algorithm))} under its worst adversary'></canvas>"
        f"<div class='dials'>{dials}</div></figure>"
        for i, run in enumerate(shown)
    )
    return (
        "<section class='theatre'><h2>Each policy under its own worst adversary</h2>"
        f"<div class='stages'>{stages}</div>"
        "<div class='controls'><button type='button'>Play</button>"
        "<input type='range' min='0' value='0' step='any' aria-label='Time'><output></output></div>"
        "<div class='plot' data-panel='0'></div>"
        "<p class='note'>The arc at the pivot is the agent's torque. The adversary changes gravity (the arrow) "
        "and mass (the thickness of the rod) at every step to do the most harm. Upright and still earns 0, anything "
        "else costs; drag the slider or the curve to look at a moment.</p></section>"
    )


def table(groups: Mapping[str, Sequence[RunSummary]], optimum: float | None) -> str:
    head = ["Algorithm", "Nominal", "Average", "Worst case", "Optimum", "Gap"]
    rows = []
    for algorithm, group in groups.items():
        worst = estimate([run.worst for run in group])
        cells = [estimate([getattr(run, name) for run in group]) for name in ("nominal", "average")]
        short = "–" if not optimum else f"{(optimum - worst.value) / abs(optimum):.0%}"
        swatch = f"<span class='swatch' style='--colour:var(--{colour(algorithm)})'></span>"
        rows.append(
            f"<tr><td>{swatch}{escape(label(algorithm))}</td>"
            + "".join(f"<td>{number(cell)}</td>" for cell in cells)
            + f"<td class='strong'>{number(worst)}</td><td>{'–' if optimum is None else signed(optimum)}</td>"
            f"<td>{short.replace('-', '−')}</td></tr>"
        )
    titles = "".join(f"<th scope='col'>{name}</th>" for name in head)
    seeds = max((len(group) for group in groups.values()), default=0)
    over = f" Means over {seeds} seeds, below them their 95 % bootstrap intervals." if seeds > 1 else ""
    return (
        "<section><h2>The result</h2><div class='scroll'>"
        f"<table><thead><tr>{titles}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
        "<p class='note'>Return of one episode; higher is better. Nominal: without an adversary. Average: against the "
        "adversary of training (nobody, for an algorithm that trains without one). Worst case: the lowest return that "
        f"any attack found. Optimum: the best worst case that exists.{over}</p></section>"
    )


def number(found: Estimate) -> str:
    if not found.low < found.high:
        return signed(found.value)
    return f"{signed(found.value)}<small>{signed(found.low)} to {signed(found.high)}</small>"


def signed(value: float) -> str:
    return f"{value:.0f}".replace("-", "−") if math.isfinite(value) else "–"
