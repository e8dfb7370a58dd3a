"""RH-UCRL with a Gaussian process on the pendulum: which runs, how they are judged, and the tables made of them.

    python benchmarks/provable.py provable [--jobs 1]     # all runs that are not there yet
    python benchmarks/provable.py --tables                # the tables of docs/theory.md from what is there

Judged as in benchmarks/pendulum.py, by a quick attack. `oracle` is the value that `rhucrl oracle --strength .1` says.
"""

from __future__ import annotations

import re
from pathlib import Path

import rows
from pendulum import one, tell

ORACLE = -342.6
DOCS = Path(__file__).parent.parent / "docs" / "theory.md"
THEORY = {"kernel_fit": False, "signal": 0.25, "norm": 3.0, "noise": 0.05, "beta": "theory"}


def experiments() -> dict[str, list[dict]]:
    common = {"strength": 0.1, "model": "gp", "episodes": 15, "oracle": ORACLE}
    return {
        "provable": [common | {"seed": seed} for seed in range(3)],
        "provable_beta": [common | THEORY | {"seed": seed} for seed in range(1)],
    }


def share(worst: float) -> float:
    """How much worse than the oracle, as a share of its value."""
    return worst / ORACLE - 1


def learning() -> str:
    lines = [
        "| seed | first episode within 15 % | nominal | worst case | beyond the oracle | last policy's | CPU s |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows.read("provable"):
        returns = [episode["return"] for episode in row["episodes"]]
        solved = next((i for i, gain in enumerate(returns) if share(gain) < 0.15), None)
        lines.append(
            f"| {row['options']['seed']} | {solved} | {row['output']['nominal']:.1f} | {row['output']['worst']:.1f} | "
            f"{share(row['output']['worst']):.1%} | {row['last']['worst']:.1f} | {row['train_cpu']:.0f} |"
        )
    return "\n".join(lines)


def ledger() -> str:
    names = {
        "beta": "β_t", "information_gain": "I", "information_bound": "bound on γ", "log10_Gamma": "log₁₀ Γ met",
        "log10_Gamma_bound": "log₁₀ of its bound", "regret": "regret", "log10_regret_bound": "log₁₀ of its bound",
        "log10_episodes_needed": "log₁₀ episodes asked for",
    }  # fmt: skip
    lines = [f"| episode | {' | '.join(names.values())} |", "|---" * (len(names) + 1) + "|"]
    for row in (rows.read("provable") or [{"episodes": []}])[0]["episodes"][1::3]:
        lines.append(f"| {row['episode']} | " + " | ".join(f"{row[name]:.4g}" for name in names) + " |")
    return "\n".join(lines)


def write() -> None:
    text = DOCS.read_text()
    for name, table in (("learning", learning()), ("ledger", ledger())):
        text = re.sub(f"(<!-- {name} -->\n).*?(\n<!-- end -->)", lambda m, t=table: m[1] + t + m[2], text, flags=re.S)
    DOCS.write_text(text)


if __name__ == "__main__":
    rows.main(__file__, str(__doc__), experiments(), one, tell, write)
