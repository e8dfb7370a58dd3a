"""The best hand-made controllers of the inverted pendulum under attack: what a learned policy is to be held against.

    python benchmarks/inverted_pendulum.py [--budget standard]     # attacks that are not there yet, one after another
    python benchmarks/inverted_pendulum.py --tune                  # gains of the cascade, for evaluation/reference.py

Results go to results/inverted_pendulum_reference.json after every attack; an interrupted benchmark goes on there.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np

from rhucrl.envs import make
from rhucrl.evaluation import adversaries, host
from rhucrl.evaluation.attack import rounds, worst_case
from rhucrl.evaluation.reference import ENVIRONMENT, REFERENCES, Cascade, cascade
from rhucrl.progress import Progress

RESULTS = Path(__file__).parent / "results" / "inverted_pendulum_reference.json"
STRENGTHS = (1.0, 3.0, 5.0, 7.0, 10.0)
TUNED_AT, HORIZON = 7.0, 250
ROUNDS, GENERATIONS, POPULATION, ELITE = 5, 6, 16, 4


def attacked(name: str, strength: float, budget: str) -> dict:
    env = make(ENVIRONMENT, "adversarial", strength)
    began = time.process_time()
    with Progress(rounds(env, budget), f"{name} at {strength:g} N") as progress:  # type: ignore[arg-type]
        case = worst_case(REFERENCES[name](), env, budget, 0, progress)  # type: ignore[arg-type]
    seeds = host.seeds(0, 2, 20)
    falls = [row.gain for row in host.Arena(REFERENCES[name](), env).play(case.adversary, seeds)]
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


def tune(seed: int = 0) -> Cascade:
    """Cross-entropy over the logarithms of the gains against a growing set of adversaries of the last one."""
    env = make(ENVIRONMENT, "adversarial", TUNED_AT, horizon=HORIZON)
    generator, game = np.random.default_rng(seed), env.game
    opponents = [adversaries.member(game, "bang-bang", row) for row in adversaries.known(game, ENVIRONMENT)]
    opponents += [adversaries.member(game, "constant", row) for row in adversaries.vertices(2, 4, generator)[:4]]
    episode = host.seeds(seed, 0, 1)

    def score(logs: np.ndarray) -> tuple[float, float]:
        """The lowest return, and where nobody makes it fall the largest excursion."""
        arena = host.Arena(Cascade(*np.exp(logs)), env)
        scores = [arena.score(opponent, episode) for opponent in opponents]
        return min(scores)[0] + 0.1 * float(np.mean([gain for gain, _ in scores])), min(bad for _, bad in scores)

    mean, spread = np.log(cascade()), np.full(len(Cascade._fields), 0.5)
    for turn in range(ROUNDS):
        champion, record = mean, score(mean)
        for _ in range(GENERATIONS):
            drawn = mean + spread * generator.normal(size=(POPULATION, mean.size))
            scores = [score(row) for row in drawn]
            best = sorted(range(POPULATION), key=scores.__getitem__)[::-1][:ELITE]
            mean, spread = drawn[best].mean(0), drawn[best].std(0) + 0.02
            if scores[best[0]] > record:
                champion, record = drawn[best[0]], scores[best[0]]
        gains = Cascade(*(float(f"{gain:.3g}") for gain in np.exp(champion)))
        case = worst_case(gains, env, "quick", seed + turn)
        print(turn, gains, f"opponents {record[0]:.0f}, attacked {case.worst:.0f} by {case.attack}", flush=True)
        opponents += [found for name, found in case.adversaries.items() if case.attacks[name] < HORIZON]
        mean, spread = champion, np.full(mean.size, 0.2)
    return gains


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget", default="quick", choices=host.HOST_EFFORTS)
    parser.add_argument("--tune", action="store_true")
    options = parser.parse_args()
    if options.tune:
        print(tune())
    else:
        benchmark(options.budget)


if __name__ == "__main__":
    main()
