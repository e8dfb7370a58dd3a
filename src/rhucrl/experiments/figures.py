"""The pictures of a page as data: which series, in which colours, with which words.

An algorithm is a series and always has the same colour; its seeds are its interval.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rhucrl.statistics import Estimate, curve

LABELS = {"rh-ucrl": "RH-UCRL", "h-ucrl": "H-UCRL", "best-response": "BestResponse", "maximin-mb": "MaxiMin-MB",
          "greedy": "Greedy"}  # fmt: skip

Json = dict[str, Any]


@dataclass(frozen=True)
class PendulumEpisode:
    """An episode of the pendulum, one entry per step; theta = 0 is upright and goes on beyond a turn."""

    seconds: float
    """Duration of a step."""
    theta: list[float]
    torque: list[float]
    gravity: list[float]
    mass: list[float]
    reward: list[float]


@dataclass(frozen=True)
class RunSummary:
    """What a page tells of one run."""

    algorithm: str
    seed: int
    metrics: list[Json]
    """The rows of metrics.jsonl."""
    nominal: float
    average: float
    """The return against the adversary of training."""
    worst: float
    attack: str = ""
    """The attack that found the worst case."""
    sweep: list[tuple[float, float]] = field(default_factory=list)
    """Strengths of the adversary, and the worst case at each."""
    episode: PendulumEpisode | None = None
    """The policy under its worst adversary."""

    @classmethod
    def from_json(cls, values: Json) -> RunSummary:
        sweep, episode = map(tuple, values.get("sweep", [])), values.get("episode")
        return cls(**values | {"sweep": [*sweep], "episode": episode and PendulumEpisode(**episode)})


@dataclass(frozen=True)
class Figure:
    """A section of the page: plots side by side and what they say."""

    title: str
    note: str
    panels: list[Json]
    legend: list[tuple[str, str, str]]
    """Name, colour and style of each kind of mark."""
    columns: int = 1


def label(algorithm: str) -> str:
    """An algorithm's name as the paper writes it."""
    return LABELS.get(algorithm, algorithm)


def colour(algorithm: str) -> str:
    """The name of the page's colour for an algorithm, the same in every picture."""
    return algorithm if algorithm in LABELS else "other"


def by_algorithm(runs: Iterable[RunSummary]) -> dict[str, list[RunSummary]]:
    """The runs of each algorithm, in the order in which they came."""
    groups: dict[str, list[RunSummary]] = {}
    for run in runs:
        groups.setdefault(run.algorithm, []).append(run)
    return groups


def series(
    algorithm: str, x: Sequence[float], points: Sequence[Estimate], style: str = "line", name: str | None = None
) -> Json:
    spread = any(point.low != point.high for point in points)
    return {
        "name": name or label(algorithm),
        "color": colour(algorithm),
        "style": style,
        "x": list(x),
        "y": [_short(point.value) for point in points],
        "low": [_short(point.low) for point in points] if spread else None,
        "high": [_short(point.high) for point in points] if spread else None,
    }


def exact(value: float) -> Estimate:
    return Estimate(value, value, value)


def _short(value: float) -> float:
    return float(f"{value:.7g}")


def panel(x: str, y: str, lines: Sequence[Json], digits: int = 0, xdigits: int = 0, **more: Any) -> Json:
    return {"x": x, "y": y, "series": list(lines), "digits": digits, "xdigits": xdigits, **more}


def metric(group: Sequence[RunSummary], name: str) -> tuple[list[int], list[Estimate]]:
    """A metric of each episode over the seeds, where all of them have it."""
    rows = [{row["episode"]: row[name] for row in run.metrics if row.get(name) is not None} for run in group]
    episodes = sorted(set.intersection(*map(set, rows)))
    return episodes, curve([[row[episode] for episode in episodes] for row in rows])


def per_episode(groups: Mapping[str, Sequence[RunSummary]], name: str) -> list[Json]:
    found = {algorithm: metric(group, name) for algorithm, group in groups.items()}
    return [series(algorithm, *columns) for algorithm, columns in found.items() if columns[0]]


def names(groups: Iterable[str], style: str = "line") -> list[tuple[str, str, str]]:
    return [(label(algorithm), colour(algorithm), style) for algorithm in groups]


def sweep_figure(
    groups: Mapping[str, Sequence[RunSummary]], oracle: Mapping[float, float] | None, strength: float | None
) -> Figure:
    lines, legend = [], names(groups)
    if oracle:
        values = [exact(oracle[x]) for x in sorted(oracle)]
        best = series("optimum", sorted(oracle), values, "dashed", "Optimum")
        lines.append(best | {"color": "optimum", "limit": "out of reach"})
        legend.append(("Optimum", "optimum", "dashed"))
    for algorithm, group in groups.items():
        shared = sorted(set.intersection(*({x for x, _ in run.sweep} for run in group)))
        if shared:
            lines.append(series(algorithm, shared, curve([[dict(run.sweep)[x] for x in shared] for run in group])))
    mark = None if strength is None else {"x": strength, "label": "strength of training"}
    ticks = sorted({x for line in lines for x in line["x"]})
    digits = max((len(f"{x:g}".partition(".")[2]) for x in ticks), default=0)
    view = panel("strength of the adversary", "worst return", lines, xdigits=digits, xticks=ticks, mark=mark, tall=0.42)
    return Figure(
        "The stronger the adversary, the worse the worst case",
        "Each policy was frozen and attacked again at every strength; the worst return that any attack found is drawn. "
        "The dashed line is the true optimum, from dynamic programming: no policy can be above it.",
        [view] if any(line["color"] != "optimum" for line in lines) else [],
        legend,
    )


def learning_figure(groups: Mapping[str, Sequence[RunSummary]]) -> Figure:
    lines = per_episode(groups, "return")
    return Figure(
        "Learning",
        "The real return of every training episode, against the adversary that the algorithm trains with. "
        "The first episode plays random torques. A harder opponent costs return while learning; that is the price of "
        "the worst case above.",
        [panel("episode", "return", lines, tall=0.42)] if lines else [],
        names(groups),
    )


def bounds_figure(groups: Mapping[str, Sequence[RunSummary]]) -> Figure:
    panels = [bounds_panel(algorithm, group) for algorithm, group in groups.items()]
    panels = [view for view in panels if view]
    drawn = [y for view in panels for line in view["series"] for c in ("low", "high", "y") for y in line[c] or []]
    if ends := [y for y in drawn if math.isfinite(y)]:
        margin = 0.05 * (max(ends) - min(ends))
        panels = [view | {"range": [min(ends) - margin, max(ends) + margin]} for view in panels]
    return Figure(
        "What the learner promised, and what came",
        "Before each episode the learner bounds the coming return from its own model: optimistic on top, pessimistic "
        "below. The dots are the returns that then came. The band closes as the model learns. The policy with the best "
        "pessimistic bound is the one that is kept.",
        panels,
        [
            ("from J⁽ᵖ⁾ to J⁽ᵒ⁾", "other", "band"),
            ("expected, J⁽ᵉ⁾", "other", "dashed"),
            ("real return", "other", "dots"),
        ],
        columns=2,
    )


def bounds_panel(algorithm: str, group: Sequence[RunSummary]) -> Json | None:
    """J^(p) <= J <= J^(o) of every episode; of several seeds the means."""
    episodes, low = metric(group, "J_pessimistic")
    if not episodes:
        return None
    (_, high), (_, middle), (_, real) = (metric(group, name) for name in ("J_optimistic", "J_expected", "return"))
    real = real[-len(episodes) :]
    band = series(algorithm, episodes, middle, "band", "bounds")
    band |= {"low": [_short(e.value) for e in low], "high": [_short(e.value) for e in high]}
    lines = [band, series(algorithm, episodes, [exact(point.value) for point in middle], "dashed", "expected"),
             series(algorithm, episodes, [exact(point.value) for point in real], "dots", "real return")]  # fmt: skip
    rows = [row for run in group for row in run.metrics if row.get("J_pessimistic") is not None]
    inside = sum(row["J_pessimistic"] <= row["return"] <= row["J_optimistic"] for row in rows)
    title = f"{label(algorithm)}: {inside} of {len(rows)} returns inside"
    return panel("episode", "return", lines, title=title, tall=0.72)


def model_figure(groups: Mapping[str, Sequence[RunSummary]]) -> Figure:
    kinds = {
        "coverage_confidence": ("Inside the confidence interval β·σ", "share of outcomes", {"range": [0, 1.04]}),
        "coverage_predictive": ("Inside the 90 % prediction interval", "share of outcomes", {"range": [0, 1.04]}),
        "temperature": ("Temperature of the recalibration", "factor on σ", {}),
    }
    found = {name: per_episode(groups, name) for name in kinds}
    panels = [panel("episode", axis, found[name], digits=2, title=title, tall=0.85, **more)
              for name, (title, axis, more) in kinds.items() if found[name]]  # fmt: skip
    return Figure(
        "How far the model may be trusted",
        "Coverage is counted on each new episode before the model has learned from it. The confidence interval is what "
        "optimism and pessimism choose from; the prediction interval adds the noise and should hold 90 % of the "
        "outcomes. A temperature above 1 says that the model was too sure of itself and had to be widened, below 1 "
        "that it was too cautious.",
        panels,
        names(groups),
        columns=3,
    )


def running_return(shown: Sequence[RunSummary]) -> Json:
    lines = []
    for run in shown:
        assert run.episode
        sums = itertools.accumulate(run.episode.reward)
        time = [round(i * run.episode.seconds, 4) for i in range(len(run.episode.reward))]
        lines.append(series(run.algorithm, time, [*map(exact, sums)], "plain"))
    return panel("seconds", "return so far", lines, xdigits=2, title="Return so far", tall=0.26)


def animated(run: RunSummary) -> Json:
    assert run.episode
    return {"name": label(run.algorithm), "color": colour(run.algorithm), **vars(run.episode)}
