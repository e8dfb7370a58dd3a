"""Plots as files, for those who would rather look than read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from rhucrl.evaluation.statistics import estimate
from rhucrl.trees import explained


def plot_sweep(path: Path, name: str, values: np.ndarray, samples: np.ndarray, worst: tuple[float, float]) -> Path:
    """The returns over a parameter's range, with intervals over seeds, and the worst value that was found."""
    from matplotlib.figure import Figure

    estimates = [estimate(row) for row in samples]
    figure = Figure(figsize=(6, 3.5), layout="constrained")
    axes = figure.subplots()
    axes.fill_between(values, [e.low for e in estimates], [e.high for e in estimates], alpha=0.25, linewidth=0)
    axes.plot(values, [e.value for e in estimates], marker="o", markersize=4, label="mean, 95 % interval over starts")
    axes.plot(
        *worst, marker="v", color="tab:red", linestyle="none", label=f"worst found: {worst[1]:.0f} at {worst[0]:.4g}"
    )
    axes.set(xlabel=f"relative {name}", ylabel="return")
    axes.legend(frameon=False)
    with explained(path):
        figure.savefig(path, dpi=150)
    return path


THEORY: dict[str, dict[str, str]] = {
    "confidence": {"beta": "β_t", "coverage_confidence": "residuals inside β_t σ (share)"},
    "information": {"information_gain": "realised information gain", "information_bound": "bound on γ_T"},
    "log₁₀ of complexity": {"log10_Gamma": "Σ ‖σ‖² met", "log10_Gamma_bound": "bound on Γ_T"},
    "performance": {"J_optimistic": "J^(o)", "return": "return", "J_pessimistic": "J^(p)"},
    "regret": {"regret": "regret against the oracle", "regret_average": "per episode"},
    "log₁₀ of bounds": {"log10_regret_bound": "bound on R_T", "log10_episodes_needed": "episodes asked for"},
}


def plot_theory(path: Path, rows: list[dict[str, Any]]) -> Path:
    """What the theory says about a run's episodes, beside what happened."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(11, 6), layout="constrained")
    for axes, (title, lines) in zip(figure.subplots(2, 3).flat, THEORY.items(), strict=True):
        for name, label in lines.items():
            told = [(row["episode"], row[name]) for row in rows if name in row]
            if told:
                axes.plot(*zip(*told, strict=True), marker="o", markersize=3, label=label)
        if not axes.lines:
            axes.text(0.5, 0.5, "--oracle was not given", ha="center", transform=axes.transAxes)
        else:
            axes.legend(frameon=False, fontsize="small")
        axes.set(title=title, xlabel="episode")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    with explained(path):
        figure.savefig(path, dpi=150)
    return path
