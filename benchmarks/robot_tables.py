"""docs/robots.md and its curves, made of the lines in benchmarks/results: no number in them is typed by hand."""

from __future__ import annotations

import itertools

import numpy as np
from robots import ABLATIONS, ALONE
from rows import read
from tables import DOCS, grouped, interval, table

from rhucrl.experiments.style import SERIES, dress, line_look, save, sheet

HEAD = """# Results on the robots

Every table is written by `python benchmarks/robots.py --tables` from the lines in `benchmarks/results/`, which
`python benchmarks/robots.py` makes. Settings are each robot's defaults (`rhucrl train ROBOT --help`). They were chosen
on seeds below 10; the runs below have seeds from 100 on, and are shown whatever came out. Most rows are missing: their
runs have not been made yet, and a mean over one seed is that seed. Each line in `benchmarks/results/` names its
`source`, git's name of the package's folder.

A policy plays its mean action. *Nominal* is the mean return of five episodes without an adversary, on starts that it
did not learn from; in brackets is the least of the five. *Worst case* is the lowest mean return that any attack of the
budget `standard` found. *Last* is the policy of the last episode. *Output* is the policy that a run gives back: where
an adversary plays, chosen by J^(p); else the last one whose episode earned about as much as the best. Intervals are
95 % bootstrap intervals of the mean over seeds. CPU seconds are those of training, on a core of a shared machine.
*Published* is the best result that we know of for as many steps: DHMBPO (Kubo et al. 2025), the mean of eight seeds.
Films are strips of six frames within a second (`python benchmarks/film_strip.py POLICY PICTURE`), of seed 100's output.
"""
USUAL = {"adversarial": 10.0, "action": 0.3}  # newtons; a share of the action
PUBLISHED = {("hopper", 60): 3243, ("walker", 80): 5406, ("half-cheetah", 60): 8301, ("half-cheetah", 125): 10236}
"""DHMBPO (Kubo et al. 2025), means of eight seeds after so many thousand steps: the best that we know of."""


def short(x: float) -> str:
    return f"{x:.1f}" if abs(x) < 100 else f"{x:.0f}"


def nominal(row: dict, policy: str = "last") -> float:
    return float(np.mean(row[policy]["nominal"]))


def shown(row: dict, policy: str) -> str:
    return f"{short(nominal(row, policy))} ({short(min(row[policy]['nominal']))})"


def learning(rows: list[dict]) -> str:
    """One line per seed of runs without an adversary, and one for all of them."""
    lines = []
    for (env, episodes), group in grouped(rows, "env", "episodes").items():
        group = sorted(group, key=lambda row: row["options"]["seed"])
        for row in group:
            cost = f"{1000 * row['train_cpu'] / row['steps']:.0f}"
            lines.append([
                env, str(row["steps"]), str(row["options"]["seed"]), shown(row, "last"), shown(row, "output"), cost, ""
            ])  # fmt: skip
        means = [interval([nominal(row, policy) for row in group]) for policy in ("last", "output")]
        total = [env, group[0]["steps"], "mean", *means]
        lines.append([*(f"**{x}**" for x in total), "", str(PUBLISHED.get((env, episodes), ""))])
    return table("robot | steps | seed | last (least) | output (least) | CPU ms per step | published", lines)


def contested(rows: list[dict]) -> str:
    """Runs against an adversary, alone and attacked: one line per seed, and one for all of them."""
    lines = []
    for (env, setting, strength, algo), group in grouped(rows, "env", "setting", "strength", "algo").items():
        group = sorted(group, key=lambda row: row["options"]["seed"])
        place = [env, setting, f"{strength or USUAL[setting]:g}", algo]
        for row in group:
            cells = [x for policy in ("last", "output") for x in (
                shown(row, policy), f"{short(row[policy]['worst'])} ({row[policy]['attack']})"
            )]  # fmt: skip
            cost = f"{1000 * row['train_cpu'] / row['steps']:.0f}"
            lines.append([*place, str(row["options"]["seed"]), *cells, cost])
        means = [
            interval(values)
            for policy in ("last", "output")
            for values in ([nominal(row, policy) for row in group], [row[policy]["worst"] for row in group])
        ]
        lines.append([*place, "**mean**", *(f"**{x}**" for x in means), ""])
    head = "robot | setting | strength | algorithm | seed | last: nominal | last: worst case"
    return table(f"{head} | output: nominal | output: worst case | CPU ms per step", lines)


def ablations(rows: list[dict]) -> str:
    """What each part is for: the hopper against forces, 40 episodes, with one option changed."""
    names = sorted({name for options in ABLATIONS.values() for option in options for name in option})
    lines = []
    for changed, group in grouped(rows, *names).items():
        what = ", ".join(f"`--{n.replace('_', '-')} {v}`" for n, v in zip(names, changed, strict=True) if v != "")
        means = [interval([nominal(row) for row in group]), interval([row["last"]["worst"] for row in group])]
        seeds = " ".join(short(nominal(row)) for row in group), " ".join(short(row["last"]["worst"]) for row in group)
        cost = np.mean([1000 * row["train_cpu"] / row["steps"] for row in group])
        lines.append([what or "the defaults", *means, *seeds, f"{cost:.0f}"])
    return table("option | nominal (last) | worst case (last) | nominal, seeds | worst case, seeds | CPU ms", lines)


def curves(rows: list[dict], title: str, name: str) -> str:
    """Return against steps, one line per seed."""
    figure, (axes,) = sheet(title, "return of the learned policy, without noise")
    for row, colour in zip(sorted(rows, key=lambda row: row["options"]["seed"]), itertools.cycle(SERIES), strict=False):
        points = [(steps, float(np.mean(returns))) for _, steps, returns in row["curve"]]
        axes.plot(*zip(*points, strict=True), label=f"seed {row['options']['seed']}", **line_look(colour))
    dress(axes, "environment steps", "return")
    (DOCS / "img").mkdir(parents=True, exist_ok=True)
    save(figure, DOCS / "img" / f"{name}.png")
    return f"![{title}](img/{name}.png)\n"


def film(name: str, title: str) -> str:
    """The strip of frames, if somebody has made one."""
    picture = DOCS / "img" / f"{name}-film.png"
    return f"![{title}](img/{picture.name})\n" if picture.exists() else ""


def write() -> None:
    parts = [
        HEAD
        if any(map(read, (*ALONE, "contested")))
        else HEAD + "\nNone of these runs has been made with the present solver yet.\n"
    ]
    alone = [row for name in (*ALONE, "further") for row in read(name)]
    if alone:
        parts += ["## Without an adversary (H-UCRL)\n", learning(alone)]
    for name in ALONE:
        if found := read(name):
            parts.append(curves(found, f"{name}, no adversary", name))
        parts.append(film(name, f"{name}, six frames"))
    if found := read("contested"):
        parts += ["## Against an adversary, 50 episodes (the inverted pendulum: 30)\n", contested(found)]
    for (env, setting, _), group in grouped(read("contested"), "env", "setting", "strength").items():
        parts.append(curves(group, f"{env}, {setting}", f"{env}-{setting}"))
        parts.append(film(f"{env}-{setting}", f"{env}, trained in the setting {setting}, nobody against it"))
    if found := read("ablations"):
        parts += ["## What each part is for: the hopper under 10 N, 40 episodes\n", ablations(found)]
    (DOCS / "robots.md").write_text("\n".join(filter(None, parts)))
