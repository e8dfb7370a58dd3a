"""SAC and PPO beside those of SBX and Stable-Baselines3: the same tasks, steps and sizes, three seeds.

    python benchmarks/peers.py            # the rows that are not there yet
    python benchmarks/peers.py --tables   # docs/peers.md

The other libraries live in an environment of their own, which is made at first; RHUCRL_PEERS may name the Python of one
that has them. Results are appended to benchmarks/results/peers.jsonl, one line per row.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import rows

from rhucrl.experiments import bench
from rhucrl.runtime.progress import SILENT


def experiments() -> dict[str, list[dict]]:
    kinds = [
        ("sac", "Pendulum-v1", 50_000, ("rhucrl", "sbx", "sb3")),
        ("sac", "HalfCheetah-v5", 50_000, ("rhucrl", "sbx")),
        ("sac", "InvertedPendulum-v5", 20_000, ("rhucrl", "sb3")),
        ("ppo", "Pendulum-v1", 200_000, ("rhucrl", "sb3")),
        ("ppo", "InvertedPendulum-v5", 100_000, ("rhucrl", "sb3")),
    ]
    return {
        "peers": [
            {"algo": algo, "task": task, "library": library, "steps": steps, "seed": seed}
            for algo, task, steps, libraries in kinds
            for seed in range(3)
            for library in libraries
        ]
    }


def one(options: dict) -> dict:
    peer = sys.executable if options["library"] == "rhucrl" else bench.peer_python(SILENT)
    script = Path(bench.__file__).with_name("peer.py")
    answer = subprocess.run([str(peer), str(script), json.dumps(options)], capture_output=True, text=True, check=True)
    return {"options": options, **json.loads(answer.stdout.splitlines()[-1])}


def tell(r: dict) -> str:
    return f"mean return {sum(r['returns']) / len(r['returns']):.0f} in {r['cpu']:.0f} s"


def write() -> None:
    import attack_tables

    attack_tables.write_peers()


if __name__ == "__main__":
    rows.main(__file__, str(__doc__), experiments(), one, tell, write)
