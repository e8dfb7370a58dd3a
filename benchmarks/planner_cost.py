"""What a step of the planner costs, and how well a time budget is kept.

    python benchmarks/planner_cost.py

CPU milliseconds of a step with the default size, both phases: on the pendulum with its known dynamics and with a model
of the size that training has, and on HalfCheetah with such a model (the cost does not depend on what it has learned).
Of a budget: the wall-clock time of 200 steps, as shares of it. Results go to results/planner_cost.json.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

import rhucrl
from rhucrl.config import TrainConfig
from rhucrl.models import ensemble

STEPS = 30
BUDGETS = {"pendulum, known": (5.0, 20.0, 100.0), "half-cheetah, learned": (100.0, 400.0)}


def model(name: str, env: Any) -> Any:
    return ensemble.create(TrainConfig.preset(name), env.game, jax.random.key(0))[0]


def cases() -> dict[str, tuple[Any, Any]]:
    pendulum, cheetah = rhucrl.make("pendulum", "adversarial"), rhucrl.make("half-cheetah", "adversarial")
    return {
        "pendulum, known": (pendulum, None),
        "pendulum, learned": (pendulum, model("pendulum", pendulum)),
        "half-cheetah, learned": (cheetah, model("half-cheetah", cheetah)),
    }


def seconds(planner: rhucrl.Planner, env: Any, steps: int, clock: Any) -> np.ndarray:
    obs, _ = env.reset(seed=0)
    spent = []
    for _ in range(steps + 3):
        begin = clock()
        planner.predict(obs)
        spent.append(clock() - begin)
    return np.array(spent[3:])


def main() -> None:
    told: dict[str, Any] = {"steps": {}, "budgets": {}}
    for name, (env, learned) in cases().items():
        cpu = 1000 * seconds(rhucrl.Planner(env, learned), env, STEPS, time.process_time)
        told["steps"][name] = {"median_ms": float(np.median(cpu)), "best_ms": float(cpu.min())}
        for budget in BUDGETS.get(name, ()):
            planner = rhucrl.Planner(env, learned, budget_ms=budget)
            share = 1000 * seconds(planner, env, 200 if budget < 50 else 50, time.perf_counter) / budget
            row = {
                "median": float(np.median(share)),
                "p95": float(np.quantile(share, 0.95)),
                "most": float(share.max()),
            }
            told["budgets"][f"{name}, {budget:g} ms"] = row | {"samples": planner.policy.size.samples}
        print(name, told["steps"][name], flush=True)
    print(json.dumps(told["budgets"], indent=1))
    (Path(__file__).parent / "results" / "planner_cost.json").write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
