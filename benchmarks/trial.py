"""One run of a robot with a look at its policy now and then: what settings are chosen with, on seeds below 10.

    python benchmarks/trial.py hopper setting=none algo=h-ucrl episodes=30
    python benchmarks/trial.py half-cheetah setting=adversarial algo=rh-ucrl seed=1 held=0 --attack quick

Settings are the robot's defaults except for the options given. Every look is the returns of three episodes of the
policy's mode without an adversary. Each line is printed as JSON; `docs/attempts.md` tells what was learned from such
lines.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

LOOKS = range(1001, 1004)  # starts of the episodes of a look
SHOWN = (
    "return", "steps", "J_optimistic", "J_expected", "J_pessimistic", "J_network", "J_held", "validation_error",
    "one_step_error", "fit_steps", "coverage_confidence", "temperature", "agent_critic_loss", "agent_gain",
    "agent_entropy", "agent_temperature_entropy", "agent_value", "response_gain", "response_critic_loss",
)  # fmt: skip


def value(text: str) -> Any:
    for read in (json.loads, float):
        with contextlib.suppress(ValueError):
            return read(text)
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("env")
    parser.add_argument("options", nargs="*", help="of a TrainConfig, as name=value")
    parser.add_argument("--every", type=int, default=2, help="episodes between two looks")
    parser.add_argument("--attack", help="budget of the attack on the last policy")
    parser.add_argument("--policy", type=Path, help="where to keep the last policy")
    given = parser.parse_args()

    from rhucrl.attacks.arena import HostArena, gains
    from rhucrl.attacks.worst_case import worst_case
    from rhucrl.config import TrainConfig
    from rhucrl.runtime.compilation import enable_cache
    from rhucrl.training import loop

    enable_cache()
    options = {"seed": 0, "setting": "none", "algo": "h-ucrl"} | {
        name: value(text) for name, text in (word.split("=", 1) for word in given.options)
    }
    config = TrainConfig.preset(env=given.env, **options)
    env = loop.env_of(config)
    print(json.dumps({"env": given.env} | options), flush=True)

    def look(state: Any, metrics: dict) -> None:
        done = metrics["episode"] + 1
        if done % given.every and done != config.episodes:
            return
        returns = [round(r) for r in gains(HostArena(state.last.policy, env), None, LOOKS)]
        seen = {name: float(f"{metrics[name]:.4g}") for name in SHOWN if name in metrics}
        print(json.dumps({"episode": done, "look": returns, "cpu": round(time.process_time())} | seen), flush=True)

    with tempfile.TemporaryDirectory() as folder:
        state: Any = loop.train(config, Path(folder) / "run", env=env, after=look)
        if given.policy:
            import shutil

            shutil.copytree(Path(folder) / "run" / "policy", given.policy)
    if given.attack:
        case = worst_case(state.last.policy, env, given.attack)
        attacks = {name: round(r) for name, r in case.attacks.items()}
        print(json.dumps({"nominal": case.nominal, "worst": case.worst, "attack": case.attack, "attacks": attacks}))


if __name__ == "__main__":
    sys.exit(main())
