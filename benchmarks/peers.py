"""SAC and PPO beside those of SBX and Stable-Baselines3: the same tasks, steps and sizes, three seeds.

    PEER=/path/to/python python benchmarks/peers.py     # the rows that are not there yet
    python benchmarks/peers.py --tables                 # docs/peers.md

PEER is the Python of an environment that has stable-baselines3, sbx-rl and gymnasium[mujoco]. Results are appended to
benchmarks/results/peers.jsonl, one line per row.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import Any

import rows

TRIALS = 10


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
    if options["library"] == "rhucrl":
        return {"options": options, **ours(options)}
    peer = os.environ.get("PEER")
    if not peer:
        sys.exit("name the Python of an environment that has stable-baselines3 and sbx-rl in PEER")
    command = [peer, str(rows.RESULTS.parent / "peer.py"), *map(str, list(options.values())[:-2])]
    answer = subprocess.run(
        [*command, str(options["steps"]), str(options["seed"])], capture_output=True, text=True, check=True
    )
    cpu, *returns = map(float, answer.stdout.split()[-TRIALS - 1 :])
    return {"options": options, "cpu": cpu, "returns": returns}


def ours(options: dict) -> dict[str, Any]:
    import gymnasium as gym

    import rhucrl
    from rhucrl import training
    from rhucrl.compilation import enable_cache
    from rhucrl.config import TrainConfig
    from rhucrl.evaluation.arena import HostArena, gains

    enable_cache()
    env = rhucrl.wrap(gym.make(options["task"]), "none", reward="learned", terminated="learned")
    most, algo = options["steps"], options["algo"]
    numbers = {"setting": "none", "seed": options["seed"], "episodes": max(1, most // env.game.horizon)}
    config = TrainConfig.preset(options["task"], algo=algo, **numbers)
    its, steps, index = training.protocol_of(config), 0, 0
    state, clock = its.initial(config, env), time.process_time()
    while steps < most:
        state, metrics = its.episode(config, env, state, index)
        steps, index = steps + metrics["steps"], index + 1
    cpu = time.process_time() - clock
    return {"cpu": cpu, "returns": gains(HostArena(state.last.policy, env), None, range(1000, 1000 + TRIALS))}


def tell(r: dict) -> str:
    return f"mean return {sum(r['returns']) / len(r['returns']):.0f} in {r['cpu']:.0f} s"


def write() -> None:
    import attack_tables

    attack_tables.write_peers()


if __name__ == "__main__":
    rows.main(__file__, str(__doc__), experiments(), one, tell, write)
