"""docs/results.md, made of the lines in benchmarks/results: no number in it is typed by hand."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import numpy as np
from rows import read

from rhucrl.statistics import estimate

DOCS = Path(__file__).parent.parent / "docs"
HEAD = """# Results on the pendulum

Horizon 200, torque limit 2, start hanging down, default settings, 30 episodes unless it says otherwise. Every table
is written by `python benchmarks/pendulum.py --tables` from the lines in `benchmarks/results/`, which
`python benchmarks/pendulum.py` makes. Intervals are 95 % bootstrap intervals of the mean over seeds.

*Worst case* is the lowest return that any attack of the budget `quick` found: constant extremes, random adversaries,
cross-entropy search over networks, the best response by dynamic programming to the frozen policy, and 16 adversaries
that stray from it. *Optimum* is the value of the game by dynamic programming (grid 400): no policy can have a better
worst case. The *output* policy is chosen by J^(p) (`algorithm.md`); the *last* one is that of the last episode.

Read the tables with this in mind. The price on optimism and most other settings were chosen while looking at seeds 0
and 1 of the adversarial setting at alpha .2, under this same attack; seeds 1 and 3 decided the acting points; savings
of time, the weights of the look-ahead's holds and the rule for the output policy were tried on seeds 5 to 8, which are
not shown. Seeds 2 and 4 were not used to choose anything.

Since these runs were made, the budget `quick` has gained bang-bang feedback and held sequences, and code for robots
has changed the last bit of some sums in the model's fit; the output of H-UCRL and greedy is chosen by real returns, and
so is that of the others where J^(p) cannot tell. A run of today with the same seed therefore takes another course; that
it is a run of the same kind was checked on single seeds only. The attack `forward` of the larger budgets, which finds
much worse on policies that jump (`attacks.md`), was tried on one such run
(`rhucrl train pendulum --strength 0.2 --seed 4`, then `rhucrl attack RUN --budget standard`): it found -504, the best
response by dynamic programming -527.
"""


def grouped(rows: list[dict], *names: str) -> dict[tuple, list[dict]]:
    groups = defaultdict(list)
    for row in rows:
        groups[tuple(row["options"].get(name, "") for name in names)].append(row)
    return dict(sorted(groups.items(), key=lambda item: [str(part) for part in item[0]]))


def optimum(setting: str, strength: float) -> float:
    from rhucrl.attacks.oracle import solve
    from rhucrl.envs import make

    return solve(make("pendulum", setting=setting, strength=strength).game).value


def interval(values: list[float]) -> str:
    if len(values) < 2:
        return f"{values[0]:.0f}"
    e = estimate(values)
    return f"{e.value:.0f} [{e.low:.0f}, {e.high:.0f}]"


def table(head: str, rows: list[list[str]]) -> str:
    """Markdown; the columns' names are separated by bars."""
    names = head.split(" | ")
    lines = [names, ["---"] * len(names), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def each(rows: list[dict], policy: str, key: str) -> list[float]:
    return [row[policy][key] for row in sorted(rows, key=lambda row: row["options"]["seed"])]


def against_optimum(rows: list[dict], optima: dict[tuple, float]) -> str:
    """Worst cases per setting, strength and algorithm, beside the optimum."""
    lines = []
    for (setting, strength, algo), group in grouped(rows, "setting", "strength", "algo").items():
        best = optima[setting, strength]
        worst, last = each(group, "output", "worst"), each(group, "last", "worst")
        gaps = " ".join(f"{100 * (best - w) / abs(best):.0f}" for w in worst)
        lines.append([
            setting, f"{strength:g}", algo, interval(each(group, "output", "nominal")), interval(worst), interval(last),
            f"{best:.0f}", gaps,
        ])  # fmt: skip
    head = (
        "setting | alpha | algorithm | nominal | worst case (output) | worst case (last) | optimum | gap %, each seed"
    )
    return table(head, lines)


def coverage(rows: list[dict]) -> str:
    lines = []
    for (setting, strength, algo), group in grouped(rows, "setting", "strength", "algo").items():
        played = [e for row in group for e in row["episodes"] if "J_optimistic" in e]
        inside = [e["J_pessimistic"] <= e["return"] <= e["J_optimistic"] for e in played]
        shares = (np.mean([e[name] for e in played]) for name in ("coverage_confidence", "coverage_predictive"))
        temperature = np.median([e["temperature"] for e in played])
        numbers = (np.mean(inside), *shares, temperature)
        lines.append([setting, f"{strength:g}", algo, *(f"{x:.2f}" for x in numbers)])
    head = "setting | alpha | algorithm | returns in [J^(p), J^(o)] | inside beta sigma | inside 90 % predictive"
    return table(f"{head} | temperature (median)", lines)


def sparse(rows: list[dict]) -> str:
    lines = []
    for (setting, algo), group in grouped(rows, "setting", "algo").items():
        runs = sorted(group, key=lambda row: row["options"]["seed"])
        returns = [[e["return"] for e in row["episodes"]] for row in runs]
        first = [next((i + 1 for i, r in enumerate(run) if r > 50), None) for run in returns]
        solved = sum(f is not None for f in first)
        shown = " ".join("-" if f is None else str(f) for f in first)
        policies = (interval(each(group, policy, "nominal")) for policy in ("output", "last"))
        lines.append([setting, algo, f"{solved} of {len(group)}", shown, *policies])
    head = "setting | algorithm | seeds with a return above 50 | first such episode, each seed"
    return table(f"{head} | output policy, nominal | last policy, nominal", lines)


def parameter(rows: list[dict]) -> str:
    lines = []
    for (algo,), group in grouped(rows, "algo").items():
        curves = np.array([row["output"]["sweep"][1] for row in group])
        spread, worst = curves.max(1) - curves.min(1), curves.min(1)
        masses = group[0]["output"]["sweep"][0]
        picks = [f"{curves[:, i].mean():.0f}" for i in quarters(masses)]
        lines.append([algo, *picks, interval(worst.tolist()), interval(spread.tolist())])
    masses = rows[0]["output"]["sweep"][0]
    shown = " | ".join(f"mass {masses[i]:.1f}" for i in quarters(masses))
    return table(f"algorithm | {shown} | worst mass | best minus worst", lines)


def quarters(values: list) -> list[int]:
    """The places of the first value, of those at each quarter, and of the last."""
    return [round(part * (len(values) - 1) / 4) for part in range(5)]


def nominal(rows: list[dict]) -> str:
    rows = sorted(rows, key=lambda row: row["options"]["seed"])
    lines = []
    for row in rows:
        returns = [e["return"] for e in row["episodes"]]
        first = next((str(i + 1) for i, r in enumerate(returns) if r >= -400), "-")
        lines.append([str(row["options"]["seed"]), first, f"{max(returns):.0f}", f"{row['output']['nominal']:.0f}"])
    return table("seed | episodes to a return of -400 | best of 10 episodes | output policy", lines)


def cost(rows: list[dict]) -> str:
    lines = []
    for (algo,), group in grouped(rows, "algo").items():
        seconds = [row["train_cpu"] for row in group]
        compile_time = [row["compile"] for row in group]
        memory = [row["peak_mb"] for row in group]
        cpu, peak = (f"{np.median(x):.0f} ({min(x):.0f} to {max(x):.0f})" for x in (seconds, memory))
        lines.append([algo, str(len(group)), cpu, f"{np.median(compile_time):.0f}", peak])
    head = "algorithm | runs | CPU seconds of training | compiling, median wall seconds | peak MB, attack included"
    return table(head, lines)


def one_run(results: Path) -> str:
    """What `benchmarks/cost.py` measured."""
    found = json.loads((results / "cost.json").read_text())
    lines = [[name, f"{found[name]['cpu_seconds']:.0f}", f"{found[name]['peak_mb']:.0f}"] for name in ("cold", "warm")]
    return table("one RH-UCRL run, compilation cache | CPU seconds | peak MB", lines)


def several_seeds(results: Path) -> str:
    """What `benchmarks/seeds.py` measured."""
    path = results / "seeds.json"
    if not path.exists():
        return ""
    found = json.loads(path.read_text())
    return (
        f"{found['seeds']} seeds in one program take {found['ratio']:.2f} times the CPU seconds that they take in turn "
        "(`benchmarks/seeds.py`, the agent's problem of one episode), so seeds run as processes of their own.\n"
    )


def write(results: Path) -> None:
    parts = [HEAD]
    robust, solver = read("robust") + read("ablations"), read("solver")
    pairs = {(row["options"]["setting"], row["options"]["strength"]) for row in robust + solver}
    optima = {pair: optimum(*pair) for pair in sorted(pairs)}
    if solver:
        parts += ["## The solver alone, known model\n", against_optimum(solver, optima)]
    if robust:
        parts += ["## Learned model\n", against_optimum(robust, optima)]
        parts += [
            "## Calibration and bounds\n",
            coverage(robust),
            "## Cost\n",
            cost(read("robust")),
            one_run(results),
            several_seeds(results),
        ]
    sections = {
        "nominal": ("Nominal swing-up, learned model, 10 episodes, H-UCRL", nominal),
        "sparse": ("Exploration: sparse reward, action cost .05, beta 5", sparse),
        "parameter": ("Parameter setting: relative mass within 80 % of 1, fixed for an episode", parameter),
    }
    for name, (title, make) in sections.items():
        if rows := read(name):
            parts += [f"## {title}\n", make(rows)]
    DOCS.mkdir(exist_ok=True)
    (DOCS / "results.md").write_text("\n".join(parts))
