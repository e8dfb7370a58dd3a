"""The best hand-made controllers of the inverted pendulum under attack: what a learned policy is to be held against.

    python benchmarks/inverted_pendulum.py [--budget standard]     # attacks that are not there yet, one after another

Results go to results/inverted_pendulum_reference.json after every attack; an interrupted benchmark goes on there.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from importlib.metadata import version
from pathlib import Path

from rhucrl.attacks.arena import HostArena, gains
from rhucrl.attacks.reference import ENVIRONMENT, REFERENCES
from rhucrl.attacks.worst_case import EFFORTS, rounds, seeds, worst_case
from rhucrl.envs import make
from rhucrl.runtime.progress import Progress

RESULTS = Path(__file__).parent / "results" / "inverted_pendulum_reference.json"
STRENGTHS = (1.0, 3.0, 5.0, 6.0, 7.0, 10.0)


def attacked(name: str, strength: float, budget: str) -> dict:
    env = make(ENVIRONMENT, "adversarial", strength)
    began = time.process_time()
    policy = REFERENCES[name]()
    with Progress(rounds(policy, env, budget), f"{name} at {strength:g} N") as progress:  # type: ignore[arg-type]
        case = worst_case(policy, env, budget, 0, progress)  # type: ignore[arg-type]
    falls = gains(HostArena(policy, env), case.adversary, seeds(0, 2, 20))
    return {
        "policy": name, "strength": strength, "budget": budget, "nominal": case.nominal, "worst": case.worst,
        "attack": case.attack, "attacks": case.attacks, "worst_replayed_20_seeds": falls,
        "cpu_seconds": round(time.process_time() - began, 1),
    }  # fmt: skip


def benchmark(budget: str) -> None:
    rows = json.loads(RESULTS.read_text())["rows"] if RESULTS.exists() else []
    done = {(row["policy"], row["strength"], row["budget"]) for row in rows}
    for strength in STRENGTHS:
        for name in REFERENCES:
            if (name, strength, budget) in done:
                continue
            rows.append(attacked(name, strength, budget))
            facts = {"mujoco": version("mujoco"), "gymnasium": version("gymnasium"), "machine": platform.machine()}
            RESULTS.write_text(json.dumps({**facts, "rows": rows}, indent=1) + "\n")
            row = rows[-1]
            told = f"{row['worst']:.0f} by {row['attack']}, {row['cpu_seconds']} s"
            print(f"{name} at {strength:g} N: {told}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget", default="quick", choices=EFFORTS["host"])
    benchmark(parser.parse_args().budget)


if __name__ == "__main__":
    main()
