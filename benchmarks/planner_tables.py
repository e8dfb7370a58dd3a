"""docs/planner.md's tables and figure, made of the lines in benchmarks/results."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
from planner import MASSES, STRENGTHS, SURE
from rows import RESULTS, read
from tables import interval, table

from rhucrl.experiments.style import COLOURS, SERIES, dress, save, sheet

DOCS = Path(__file__).parent.parent / "docs"


KINDS = (("robust", False), ("nominal", False), ("robust", True), ("nominal", True))
NAMES = "robust planner | nominal planner | robust, with a critic | nominal, with a critic"
DRAINED = {"robust": "drained", "nominal": "nominal_drained"}


def of(setting: str, critic: bool = False) -> list[dict]:
    kind = {"setting": setting, "critic": critic}
    return [row for row in read("plans") if kind.items() <= ({"critic": False} | row["options"]).items()]


def columns(setting: str, i: int, part: dict[str, str]) -> list[str]:
    """What each kind of planner got at the i-th strength."""
    kinds = [(part.get(name, name), of(setting, critic)) for name, critic in KINDS]
    gains = [[row[name][i] for row in rows if name in row] for name, rows in kinds]
    return [interval(gain) if gain else "" for gain in gains]


def optimum(setting: str) -> list[float]:
    rows = of(setting) or of(setting, True)
    return rows[0]["oracle"] if rows else []


def plans() -> str:
    lines = [
        [setting, f"{STRENGTHS[i]:g}", f"{best:.0f}", *columns(setting, i, {})]
        for setting in ("adversarial", "action")
        for i, best in enumerate(optimum(setting))
    ]
    return table(f"setting | α | optimum | {NAMES}", lines)


def drained() -> str:
    lines = [
        [f"{STRENGTHS[i]:g}", f"{best:.0f}", *columns("adversarial", i, DRAINED)]
        for i, best in enumerate(optimum("adversarial"))
    ]
    return table(f"α | optimum | {NAMES}", lines)


def masses() -> str:
    rows = read("masses")
    names = ["hedging over [.5, 3]", *(f"sure of {mass:g}" for mass in SURE)]
    returns = [[row["hedging"] for row in rows], *([row["sure"][str(mass)] for row in rows] for mass in SURE)]
    lines = [
        [name, *(f"{x:.0f}" for x in np.mean(gains, 0)), f"{np.mean(np.min(gains, 1)):.0f}"]
        for name, gains in zip(names, returns, strict=True)
        if gains
    ]
    return table(f"planner | {' | '.join(f'mass {mass:g}' for mass in MASSES)} | worst", lines)


def learned() -> str:
    lines = [
        [
            str(row["options"]["seed"]), " ".join(f"{x:.0f}" for x in row["returns"]), f"{row['nominal']:.0f}",
            f"{row['cpu'] / 60:.0f}",
        ]
        for row in read("learned")
    ]  # fmt: skip
    return table("seed | returns of the episodes, against its adversary | output policy, nominal | CPU minutes", lines)


def cost() -> str:
    told = json.loads((RESULTS / "planner_cost.json").read_text())
    return table("model | CPU ms per step", [[name, f"{row['median_ms']:.1f}"] for name, row in told["steps"].items()])


def budgets() -> str:
    told = json.loads((RESULTS / "planner_cost.json").read_text())
    lines = [
        [name, str(row["samples"]), *(f"{row[part]:.2f}" for part in ("median", "p95", "most"))]
        for name, row in told["budgets"].items()
    ]
    return table("budget | samples | median share used | 95 % of the steps below | most", lines)


def figure() -> None:
    title, facts = "Planning against an adversary on the pendulum", "dotted: without a critic; dots: single seeds"
    canvas, axes = sheet(title, facts, 1, 3, (11.1, 4.2))
    for ax, setting in zip(axes, ("adversarial", "action"), strict=False):
        for name, critic in KINDS:
            gains = np.array([row[name] for row in of(setting, critic)])
            if gains.size:
                colour, style = SERIES[name != "robust"], "-" if critic else ":"
                label = f"{name}, critic" if critic else name
                ax.plot(STRENGTHS, gains.mean(0), style, color=colour, label=label)
                ax.plot(STRENGTHS, gains.T, ".", color=colour, alpha=0.4)
        ax.plot(STRENGTHS, optimum(setting), "--", color=COLOURS["optimum"], label="optimum")
        dress(ax, "strength α", "return over 500 steps", setting, across=2)
    rows = read("masses")
    axes[2].plot(MASSES, np.mean([row["hedging"] for row in rows], 0), color=SERIES[0], label="hedging")
    for i, mass in enumerate(SURE):
        axes[2].plot(MASSES, np.mean([row["sure"][str(mass)] for row in rows], 0), color=SERIES[i + 1], label=f"sure of {mass:g}", lw=1)  # fmt: skip  # noqa: E501
    dress(axes[2], "relative mass", "return over 200 steps", "parameter", across=2)
    save(canvas, DOCS / "img" / "planner.png")


def write() -> None:
    path = DOCS / "planner.md"
    text = path.read_text()
    makers = (plans, drained, masses, learned, cost, budgets)
    tables = {make.__name__: make() for make in makers}
    for name, made in tables.items():
        text = re.sub(f"(<!-- {name} -->\n).*?(<!-- end -->)", rf"\g<1>{made}\n\2", text, flags=re.S)
    path.write_text(text)
    figure()
