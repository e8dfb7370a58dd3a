"""Tiny runs of every solver, model and learner, to hold one version of the code against another, byte by byte.

    python benchmarks/golden.py FOLDER          makes them: FOLDER/NAME.jsonl
    python benchmarks/golden.py FOLDER OTHER    makes them in FOLDER and compares: exit code 1 where a byte differs

Bytes are the same on one machine with one version of jax. A change that is meant to leave behaviour alone is held
against the version before it, in the same environment, by running the script of both.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

SMALL = {
    "horizon": 20, "pool": 16, "updates": 0.5, "batch": 8, "width": 8, "features": 8, "model_width": 8,
    "model_rounds": 2, "round": 3, "model_batch": 16, "model_steps": 2, "acting_points": 3,
}  # fmt: skip
NETS = {"horizon": 20, "updates": 0.5, "batch": 10, "width": 8, "critics": 2, "heads": 2, "model_width": 8,
        "model_rounds": 2, "round": 3, "model_batch": 16, "model_steps": 3, "start_steps": 2}  # fmt: skip
PLANS = {"solver": "planner", "plan_steps": 3, "plan_samples": 100, "plan_rounds": 1}
FREE = {"horizon": 20, "width": 8, "batch": 8}
ON = {"horizon": 20, "width": 8, "rollouts": 2, "passes": 3}
PENDULUM, POLE = {"env": "pendulum"}, {"env": "inverted-pendulum", "strength": 3.0}

RUNS: dict[str, dict[str, Any]] = {
    **{f"look-ahead-{algo}": {**PENDULUM, **SMALL, "algo": algo}
       for algo in ("rh-ucrl", "best-response", "maximin-mb", "h-ucrl", "greedy")},
    "look-ahead-action": {**PENDULUM, **SMALL, "setting": "action", "mixture": "probabilistic"},
    "look-ahead-parameter": {**PENDULUM, **SMALL, "setting": "parameter"},
    "look-ahead-sparse": {**PENDULUM, **SMALL, "setting": "none", "reward": "sparse", "algo": "h-ucrl"},
    "look-ahead-known": {**PENDULUM, **SMALL, "model": "known"},
    "look-ahead-gp": {**PENDULUM, **SMALL, "model": "gp", "beta": "theory", "points": 32},
    "planner-pendulum": {**PENDULUM, **SMALL, **PLANS},
    "planner-parameter": {**PENDULUM, **SMALL, **PLANS, "setting": "parameter"},
    **{f"actor-critic-{algo}": {**POLE, **NETS, "algo": algo}
       for algo in ("rh-ucrl", "best-response", "maximin-mb", "h-ucrl", "greedy")},
    "actor-critic-action": {**POLE, **NETS, "setting": "action", "strength": 0.3},
    "actor-critic-parameter": {**POLE, **NETS, "setting": "parameter", "strength": 1.0},
    "actor-critic-none": {**POLE, **NETS, "setting": "none"},
    "actor-critic-network": {**POLE, **NETS, "held": 0, "nobody": False},
    "actor-critic-worst": {**POLE, **NETS, "worst": 0.5, "worst_after": 3},
    "actor-critic-linear": {**POLE, **NETS, "linear": True, "layer_norm": False, "noise": "state"},
    "actor-critic-pendulum": {**PENDULUM, **NETS, "solver": "actor-critic", "beta": 1.0, "discount": 0.998,
                              "learning_rate": 2e-3, "slowing": 0.125},
    "planner-pole": {**POLE, **NETS, **PLANS},
    "sac": {**POLE, **FREE, "algo": "sac"}, "maximin-mf": {**POLE, **FREE, "algo": "maximin-mf"},
    "ar-ddpg": {**POLE, **FREE, "algo": "ar-ddpg", "setting": "action", "strength": 0.3},
    "rarl": {**POLE, **ON, "algo": "rarl"}, "rap": {**POLE, **ON, "algo": "rap", "population": 2},
    "ppo": {**PENDULUM, **ON, "algo": "ppo"},
    "ep-opt": {**POLE, **ON, "algo": "ep-opt", "setting": "parameter", "strength": 1.0},
    "domain-randomization": {**PENDULUM, **ON, "algo": "domain-randomization", "setting": "parameter"},
}  # fmt: skip


def having(env: str, algo: str, options: dict[str, Any]) -> dict[str, Any]:
    """The options that a run of this algorithm, model and solver has."""
    from rhucrl.config import TrainConfig, options_with
    from rhucrl.options import PARTS

    choice = {name: options[name] for name in PARTS if name in options}
    setting = {"ep-opt": "parameter", "domain-randomization": "parameter", "ar-ddpg": "action"}.get(algo, "adversarial")
    config = TrainConfig.preset(env, algo=algo, setting=setting, **choice)
    owned = [options_with(type(its), algo) for its in (config.model, config.solver) if its]
    return {name: options[name] for name in options if name in choice or any(name in flags for flags in owned)}


def metrics(options: dict[str, Any], episodes: int = 4) -> bytes:
    """The metrics of a run, as they are written."""
    import rhucrl

    options = dict(options)
    place = {
        name: options.pop(name) for name in ("setting", "strength", "mixture", "horizon", "reward") if name in options
    }
    name, algo = options.pop("env"), options.pop("algo", "rh-ucrl")
    env, options = rhucrl.make(name, **{"setting": "adversarial", **place}), having(name, algo, options)
    with tempfile.TemporaryDirectory() as folder:
        rhucrl.Agent(env, algo, 1, **options).learn(episodes, run_dir=Path(folder) / "run")
        return (Path(folder) / "run" / "metrics.jsonl").read_bytes()


def main(folder: str, other: str | None = None) -> int:
    Path(folder).mkdir(parents=True, exist_ok=True)
    different = []
    for name, options in RUNS.items():
        rows = metrics(options)
        (Path(folder) / f"{name}.jsonl").write_bytes(rows)
        same = other is None or (Path(other) / f"{name}.jsonl").read_bytes() == rows
        different += [] if same else [name]
        print(
            f"{name}: {len(rows)} bytes" + ("" if other is None else ", the same" if same else ", DIFFERENT"),
            flush=True,
        )
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
