"""How near the attacks come to the truth: fixed policies of the pendulum, whose best response is known by dynamic
programming on the true game, and soft actor-critic beside Stable-Baselines3's JAX sister SBX.

    python benchmarks/attacks.py pendulum             # the rows that are not there yet
    python benchmarks/attacks.py sac                  # with --peer PYTHON of an environment that has sbx-rl
    python benchmarks/attacks.py --tables             # docs/attacks.md

Results are appended to benchmarks/results/EXPERIMENT.jsonl, one line per row.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import Any

import rows

POLICIES = ("swing", "cautious", "oracle", "lazy")
TASKS = ("Pendulum-v1", "HalfCheetah-v5")
STEPS, TRIALS = 50_000, 10


def experiments() -> dict[str, list[dict]]:
    pendulum = [{"policy": name, "alpha": alpha, "seed": 0} for alpha in (0.1, 0.2, 0.3) for name in POLICIES]
    sac = [
        {"task": task, "library": library, "steps": STEPS, "seed": seed}
        for task in TASKS
        for seed in range(3)
        for library in ("rhucrl", "sbx")
    ]
    return {"attack_pendulum": pendulum, "attack_sac": sac}


def policy_of(name: str, game: Any) -> Any:
    """Hand-made swing-ups, careful and bold, one that only balances, and the max-min policy of the game itself."""
    import jax.numpy as jnp

    from rhucrl.evaluation.oracle import solve

    if name == "oracle":
        return solve(game, 200).policy
    reach, gain = {"swing": (0.25, 12.0), "cautious": (0.5, 8.0), "lazy": (0.9, 20.0)}[name]

    def policy(obs: Any) -> Any:
        theta, omega = jnp.arctan2(obs[..., 1], obs[..., 0]), obs[..., 2]
        lack = 15 - (omega**2 / 2 + 15 * obs[..., 0])
        swing = 2 * jnp.tanh(lack) * jnp.where(omega >= 0, 1.0, -1.0)
        held = -gain * theta - gain / 4 * omega
        return jnp.clip(jnp.where(jnp.abs(theta) < reach, held, swing), -2, 2)[..., None]

    return policy


def one(options: dict) -> dict:
    return attacked(options) if "policy" in options else learned(options)


def attacked(options: dict) -> dict:
    """The suite of the budget `standard` on a fixed policy, and the best response by dynamic programming."""
    from rhucrl.compilation import enable_cache
    from rhucrl.envs.pendulum import Pendulum
    from rhucrl.evaluation.attack import worst_case
    from rhucrl.evaluation.oracle import best_response

    enable_cache()
    game = Pendulum(options["alpha"])
    policy = policy_of(options["policy"], game)
    case = worst_case(policy, game, "standard")
    costs = {name: [found.steps, found.cpu] for name, found in case.findings.items()}
    bound = best_response(game, policy, 400)[0]
    return {"options": options, "nominal": case.nominal, "attacks": case.attacks, "costs": costs, "bound": bound}


def learned(options: dict) -> dict:
    if options["library"] != "rhucrl":
        peer = os.environ.get("PEER")
        if not peer:
            sys.exit("name the Python of an environment that has sbx-rl in PEER")
        command = [peer, str(rows.RESULTS.parent / "peer_sac.py"), options["task"], str(options["steps"])]
        answer = subprocess.run([*command, str(options["seed"])], capture_output=True, text=True, check=True)
        cpu, *returns = map(float, answer.stdout.split()[-TRIALS - 1 :])
        return {"options": options, "cpu": cpu, "returns": returns}
    import gymnasium as gym
    import numpy as np

    from rhucrl.compilation import enable_cache
    from rhucrl.solvers.model_free import Options, practise

    enable_cache()
    env, clock = gym.make(options["task"]), time.process_time()
    scale = np.ones(env.observation_space.shape[0])  # type: ignore[index]
    *_, last = practise(env, scale, Options(), options["seed"], options["steps"])
    cpu, act = time.process_time() - clock, last.policy.on_host()
    low, high = env.action_space.low, env.action_space.high  # type: ignore[attr-defined]
    returns = []
    for trial in range(TRIALS):
        (obs, _), gain, over = env.reset(seed=1000 + trial), 0.0, False
        while not over:
            obs, reward, terminated, truncated, _ = env.step(low + (act(obs, None) + 1) / 2 * (high - low))
            gain, over = gain + float(reward), terminated or truncated
        returns.append(gain)
    return {"options": options, "cpu": cpu, "returns": returns}


def tell(r: dict) -> str:
    if "attacks" in r:
        return " ".join(f"{name} {value:.0f}" for name, value in r["attacks"].items()) + f" bound {r['bound']:.0f}"
    return f"mean return {sum(r['returns']) / len(r['returns']):.0f} in {r['cpu']:.0f} s"


def write() -> None:
    import attack_tables

    attack_tables.write()


if __name__ == "__main__":
    rows.main(__file__, str(__doc__), experiments(), one, tell, write)
