"""Plots as files, for those who would rather look than read."""

from __future__ import annotations

from pathlib import Path

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
