"""Learning on the robots: which runs, how they are judged, and the tables and curves made of them.

    python benchmarks/robots.py cheetah               # the runs that are not there yet
    python benchmarks/robots.py --tables              # docs/robots.md and its curves from what is there

Settings are each robot's defaults except for what a row says; a run with a limit of `steps` ends before the episode
that would pass it. Every few episodes the policy of the moment plays three
episodes (the reacher's: sixty) without noise and without an adversary, on starts that it does not learn from. Results
are appended to benchmarks/results/EXPERIMENT.jsonl, one line per run.
"""

from __future__ import annotations

import resource
import time
from typing import Any

import rows

BOTH = ("rh-ucrl", "h-ucrl")
EVERY, LOOK = 5, 3000  # episodes between two looks at a policy, and the steps of a look


def experiments() -> dict[str, list[dict]]:
    """The rows of each experiment: an environment, and options of a TrainConfig."""
    cheetah = [{"env": "half-cheetah", "setting": "none", "episodes": 40, "seed": seed} for seed in range(5)]
    balance = [
        {"env": "inverted-pendulum", "strength": strength, "algo": algo, "episodes": episodes, "seed": seed}
        for strength, episodes, algos in ((3.0, 15, BOTH), (5.0, 30, BOTH), (7.0, 30, BOTH[:1]), (10.0, 30, BOTH[:1]))
        for algo in algos
        for seed in range(3)
    ]
    narrow = [
        {"env": "inverted-pendulum", "strength": 3.0, "algo": "rh-ucrl", "episodes": 15, "broad": 0.0, "seed": seed}
        for seed in range(3)
    ]
    others = {
        env: [{"env": env, "setting": "none", "episodes": episodes, **more, "seed": seed} for seed in range(3)]
        for env, episodes, more in (
            ("swimmer", 50, {}), ("hopper", 150, {"steps": 60_000}), ("walker", 300, {"steps": 80_000}),
            ("reacher", 100, {}),
        )
    }  # fmt: skip
    contested = [
        {"env": env, "setting": setting, "algo": algo, "episodes": 50, "seed": seed}
        for env in ("half-cheetah", "hopper")
        for setting in ("adversarial", "action")
        for algo in ("rh-ucrl", "h-ucrl", "maximin-mb")
        for seed in range(3)
    ]
    pushed = {"env": "half-cheetah", "setting": "adversarial", "algo": "rh-ucrl", "episodes": 50}
    full = [{**pushed, "speed": "full", "seed": seed} for seed in range(3)]
    return {"cheetah": cheetah, "balance": balance, "narrow": narrow, **others, "contested": contested, "full": full}


def one(options: dict) -> dict:
    """Train with a look at the policy now and then; then attack the output policy and the last one."""
    from rhucrl.attacks.arena import HostArena, gains
    from rhucrl.attacks.worst_case import worst_case
    from rhucrl.config import TrainConfig
    from rhucrl.runtime.compilation import enable_cache
    from rhucrl.training import protocol
    from rhucrl.training.loop import env_of

    enable_cache()
    began = time.process_time()
    most = options.get("steps", float("inf"))
    config = TrainConfig.preset(**{name: option for name, option in options.items() if name != "steps"})
    env = env_of(config)
    state, episodes, curve, steps, judged = protocol.ModelBased(config).initial(env), [], [], 0, 0.0

    def judge(policy: Any) -> list[float]:
        starts = range(1001, 1001 + LOOK // env.game.horizon)
        return gains(HostArena(policy, env), None, starts)

    for index in range(config.episodes):
        before = state
        state, metrics = protocol.ModelBased(config).episode(env, state, index)
        if steps + metrics["steps"] > most:
            state = before
            break
        episodes.append(metrics)
        steps += metrics["steps"]
        if (index + 1) % EVERY == 0 or index + 1 == config.episodes:
            clock = time.process_time()
            curve.append([index + 1, steps, judge(state.last.policy)])
            judged += time.process_time() - clock
    result = {
        "options": options, "train_cpu": time.process_time() - began - judged, "steps": steps, "curve": curve,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "output_episode": int(state.output_episode), "episodes": episodes,
    }  # fmt: skip
    for name, policy in (("output", state.output.policy), ("last", state.last.policy)):
        if name == "last" and state.output_episode == len(episodes) - 1:
            result[name] = result["output"]
            break
        result[name] = {"nominal": judge(policy)}
        if config.setting != "none":
            case = worst_case(policy, env, "quick")
            result[name] |= {"worst": case.worst, "attack": case.attack, "attacks": case.attacks}
    return result


def tell(r: dict) -> str:
    last = r["last"]
    attacked = f" worst {r['output']['worst']:.0f} (last {last['worst']:.0f})" if "worst" in last else ""
    nominal = " ".join(f"{x:.0f}" for x in last["nominal"][:3])
    return f"last nominal {nominal}{attacked} {r['steps']} steps {r['train_cpu']:.0f} s {r['peak_mb']:.0f} MB"


def write() -> None:
    import robot_tables

    robot_tables.write()


if __name__ == "__main__":
    rows.main(__file__, str(__doc__), experiments(), one, tell, write)
