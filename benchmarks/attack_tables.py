"""docs/attack-results.md and docs/peers.md, made of the lines in benchmarks/results: no number is typed by hand."""

from __future__ import annotations

from rows import read
from tables import DOCS, grouped, interval, table

HEAD = """# How far the attacks can be trusted

Written by `python benchmarks/attacks.py --tables` from the lines in `benchmarks/results/`, which
`python benchmarks/attacks.py` makes.
"""
PENDULUM = """## Against the truth

Fixed policies of the pendulum in the adversarial setting. The *best response* is dynamic programming on the true game
with the policy fixed (the lowest of its grids, replayed: a return that the policy really got); *bound* is what the
finest grid promises before it is replayed. The *suite* is every other attack of the budget `standard`: none of them
knows the game. Its *gap* is how much of the best response's damage is missing, as a share of the best response. *SAC*
is the paper's attack alone (50 episodes, the worse of its last and its best adversary). These rows were made when
sequences were searched by refitting a Gaussian; since then they evolve by mutation, which finds a little more.
"""
PEERS = """# SAC and PPO beside other libraries

Written by `python benchmarks/peers.py --tables` from the lines in `benchmarks/results/`, which
`python benchmarks/peers.py` makes. All have the same numbers: SAC two layers of 256, batches of 256, one update a step
(ours makes eight updates at once every eight steps); PPO the paper's, at most 80 steps over a full batch of 800 rows,
ended by the divergence from the old policy. Ours keeps episodes whole: where one is longer, so is a batch. Policies are
judged without noise on ten fresh starts after training, intervals are over seeds, CPU seconds include compilation. Rows
and seeds are missing where runs have not been made yet.
"""


def against_truth(rows: list[dict]) -> str:
    lines = []
    for row in sorted(rows, key=lambda row: (row["options"]["alpha"], row["options"]["policy"])):
        known = {name: value for name, value in row["attacks"].items() if name.startswith("best-response")}
        others = {name: value for name, value in row["attacks"].items() if name not in known}
        best, name = min(known.values()), min(others, key=others.__getitem__)
        gap = (others[name] - best) / abs(best)
        lines.append([
            f"{row['options']['alpha']:g}", row["options"]["policy"], f"{row['nominal']:.0f}", f"{best:.0f}",
            f"{row['bound']:.0f}", f"{others[name]:.0f} ({name})", f"{100 * gap:.1f} %", f"{others['sac']:.0f}",
        ])  # fmt: skip
    return table("alpha | policy | nominal | best response | bound | suite | gap | SAC", lines)


def beside(rows: list[dict]) -> str:
    lines = []
    for (algo, task, library, steps), group in grouped(rows, "algo", "task", "library", "steps").items():
        means = [sum(row["returns"]) / len(row["returns"]) for row in group]
        rates = [row["options"]["steps"] / row["cpu"] for row in group]
        each = " ".join(f"{x:.0f}" for x in means)
        lines.append([algo, task, str(steps), library, interval(means), each, f"{sum(rates) / len(rates):.0f}"])
    return table("algorithm | task | steps | library | return | each seed | steps per CPU second", lines)


def write() -> None:
    (DOCS / "attack-results.md").write_text("\n".join([HEAD, PENDULUM, against_truth(read("attack_pendulum"))]))


def write_peers() -> None:
    (DOCS / "peers.md").write_text("\n".join([PEERS, beside(read("peers"))]))
