"""RH-UCRL with a Gaussian process on the pendulum: which runs, how they are judged, and the tables made of them.

    python benchmarks/provable.py provable [--cores 0]     # all runs that are not there yet
    python benchmarks/provable.py --tables                # the tables of docs/theory.md from what is there

Judged as in benchmarks/pendulum.py, by a quick attack. `oracle` is the value that `rhucrl oracle --strength .1` says.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import rows
from pendulum import one, tell

ORACLE = -342.6
DOCS = Path(__file__).parent.parent / "docs" / "theory.md"
THEORY = ({"beta": "theory"}, {"beta": "theory", "kernel_fit": False, "noise": 0.05, "norm": 3.0})


def experiments() -> dict[str, list[dict]]:
    common = {"strength": 0.1, "model": "gp", "episodes": 15, "oracle": ORACLE}
    return {
        "provable": [common | {"seed": seed} for seed in range(3)],
        "provable_beta": [common | options | {"seed": 0} for options in THEORY],
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


def theory_beta() -> str:
    lines = ["| options | β_t at the end | best return | worst case |", "|---|---|---|---|"]
    for row in rows.read("provable_beta"):
        options, best = row["options"], max(episode["return"] for episode in row["episodes"][1:])
        fixed = f" --no-kernel-fit --noise {options['noise']} --norm {options['norm']}" if "noise" in options else ""
        told = f"{row['episodes'][-1]['beta']:.1f} | {best:.1f} | {row['output']['worst']:.1f}"
        lines.append(f"| `--beta theory{fixed}` | {told} |")
    return "\n".join(lines)


def span(x: dict, form: str = ".3f") -> str:
    return f"{x.get('value', x.get('share')):{form}} [{x['low']:{form}}, {x['high']:{form}}]"


def verified(name: str) -> str:
    found = json.loads((rows.RESULTS / f"{name}.json").read_text())
    cover, regret = found["coverage"], found["regret"]
    lines = ["| what | tested | failed | least to spare |", "|---|---|---|---|"]
    for width in (cover, *cover["narrower"]):
        held, what = f"{cover['draws']} draws | {cover['draws'] - width['held']}", "\\|f − μ\\|"
        lines.append(f"| {what} ≤ {width['width']:g} β_t σ | {held} | held in {span(width)} |")
    for row in found["inequalities"]:
        name = f"{row['inequality'].replace('<=', '≤')} (`{row['label']}`)"
        lines.append(f"| {name} | {row['tested']} episodes | {row['failed']} | {row['to_spare']:.3g} |")
    told = (
        "Mean robust regret per episode, with 95 % intervals over draws: "
        f"{span(regret['first_quarter'], '.4f')} in the first quarter of the episodes, "
        f"{span(regret['last_quarter'], '.4f')} in the last. R_T grows as T to the power of {span(regret['slope'])} "
        "over the last half."
    )
    if saddle := found.get("saddle"):
        told += (
            f"\n\nThe closed form's value is {saddle['closed_form']['value']:.3f}, the lattice's "
            f"{saddle['lattice_value']:.3f}, the output policy's worst case {span(saddle['worst_case'])}. The first "
            f"actions are {saddle['closed_action']:.3f} and {saddle['closed_answer']:.3f} in closed form, "
            f"{span(saddle['action'])} and {span(saddle['answer'])} as played in the last episode, on a lattice of 0.2."
        )
    return "\n".join([*lines, "", told])


def cost() -> str:
    told = json.loads((rows.RESULTS / "gp.json").read_text())
    lines = ["| what | CPU |", "|---|---|", f"| a batch of 256 predictions | {told['predict_256_ms']:.1f} ms |"]
    lines += [f"| 200 data more | {told['add_200_s']:.2f} s |"]
    lines += [f"| the factor from scratch | {told['factor_from_scratch_s']:.2f} s |"]
    return "\n".join([*lines, f"| 400 points chosen of 2,000 | {told['greedy_400_of_2000_s']:.2f} s |"])


def write() -> None:
    tables = {
        "learning": learning(), "ledger": ledger(), "beta": theory_beta(), "verify": verified("theory"),
        "quadratic": verified("theory_lq"), "cost": cost(),
    }  # fmt: skip
    text = DOCS.read_text()
    for name, table in tables.items():
        text = re.sub(
            f"(<!-- {name} -->\n).*?(<!-- end -->)", lambda m, t=table: f"{m[1]}{t}\n{m[2]}", text, flags=re.S
        )
    DOCS.write_text(text)


if __name__ == "__main__":
    rows.main(__file__, str(__doc__), experiments(), one, tell, write)
