"""docs/attack-results.md and docs/peers.md, made of the lines in benchmarks/results: no number is typed by hand."""

from __future__ import annotations

from rows import read
from tables import DOCS, grouped, interval, table

HEAD = """# How far the attacks can be trusted

Written by `python benchmarks/attacks.py --tables` from the lines in `benchmarks/results/`, which
`python benchmarks/attacks.py` makes.
"""
PENDULUM = """## Against the truth

Fixed policies of the pendulum in the adversarial setting. The *bound* is what dynamic programming promises for the best
response, on a grid of 400 by 400 with nine actions; interpolation makes it wrong by a little, in both directions. The
*suite* is the worst case of the budget `standard`, a return that the policy really got, and its *gap* how far it stays
above the bound. *Blind* is the same without the attacks that know the game (`best-response` and `forward`): what the
suite can do on a robot. *SAC* is the paper's attack alone (50 episodes, the worse of its last and its best adversary).
Of these rows `forward-30` was run once more by itself when its search had changed, and the bounds are those of an
earlier run; attacks do not depend on each other.
"""
KNOWING = ("best-response", "forward")
PEERS = """# SAC and PPO beside other libraries

Written by `python benchmarks/peers.py --tables` from the lines in `benchmarks/results/`, which
`python benchmarks/peers.py` makes. All have the same numbers: SAC two layers of 256, batches of 256, one update a step
(ours makes eight updates at once every eight steps); PPO the paper's, at most 80 steps over a full batch of 800 rows,
ended by the divergence from the old policy. Ours keeps episodes whole: where one is longer, so is a batch; and the
divergence ends the policy's steps alone, where Stable-Baselines3 ends the critic's with them. Its own defaults are
others, small batches without such a stop: the rows compare implementations, not what each library would choose.
Policies are judged without noise on ten fresh starts after training, intervals are over seeds, CPU seconds include
compilation.
"""


def against_truth(rows: list[dict]) -> str:
    lines = []
    for row in sorted(rows, key=lambda row: (row["options"]["alpha"], row["options"]["policy"])):
        attacks = row["attacks"]
        blind = {name: value for name, value in attacks.items() if not name.startswith(KNOWING)}
        suite, best = (min(found, key=found.__getitem__) for found in (attacks, blind))
        told = [
            f"{found[name]:.0f} ({name}), {max(0.0, 100 * (found[name] - row['bound']) / abs(row['bound'])):.1f} %"
            for found, name in ((attacks, suite), (blind, best))
        ]
        numbers = [f"{x:.0f}" for x in (row["nominal"], row["bound"])]
        lines.append([
            f"{row['options']['alpha']:g}", row["options"]["policy"], *numbers, *told, f"{attacks['sac']:.0f}",
        ])  # fmt: skip
    return table("alpha | policy | nominal | bound | suite, gap | blind, gap | SAC", lines)


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
