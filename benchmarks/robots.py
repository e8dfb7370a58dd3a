"""Learning on the robots: which runs, how they are judged, and the tables and curves made of them.

    python benchmarks/robots.py                       # the runs that are not there yet
    python benchmarks/robots.py hopper --seeds 100    # some of them
    python benchmarks/robots.py contested --where env=half-cheetah setting=action
    python benchmarks/robots.py --tables              # docs/robots.md and its curves from what is there

Settings are each robot's defaults except for what a row says. A run lives in benchmarks/runs/ until it is judged, so
that whatever interrupts it costs one episode of the protocol. Every few episodes the policy of the moment plays five
episodes without noise and without an adversary, on starts that it does not learn from; the last policy and the output
are judged like that and, where an adversary plays, attacked with the budget `standard`. Results are appended to
benchmarks/results/EXPERIMENT.jsonl, one line per run; its output policy stays in benchmarks/runs/policies, for
`rhucrl video` and `rhucrl attack`. Seeds below 10 have decided settings; these runs begin at 100.
"""

from __future__ import annotations

import hashlib
import json
import resource
import shutil
from pathlib import Path
from typing import Any

import rows

RUNS = Path(__file__).parent / "runs"
EVERY, LOOKS = 4, 5  # episodes of the protocol between two looks at a policy, and the episodes of a look
FORCES, SHARE = {"setting": "adversarial"}, {"setting": "action"}
ALONE = {"hopper": 60, "walker": 80, "half-cheetah": 60, "swimmer": 100, "reacher": 100, "inverted-pendulum": 10}
CONTESTED = (
    ("hopper", FORCES), ("half-cheetah", FORCES), ("hopper", SHARE), ("half-cheetah", SHARE), ("walker", FORCES),
    ("inverted-pendulum", FORCES | {"strength": 3.0, "episodes": 30}),
    ("inverted-pendulum", FORCES | {"strength": 5.0, "episodes": 30}),
)  # fmt: skip
ABLATIONS: dict[str, list[dict[str, Any]]] = {
    "starts": [{"start_steps": 1}],
    "depth": [{"model_steps": n} for n in (1, 3, 8)],
    "opponents": [{"held": 0}, {"rules": 1}, {"nobody": False}, {"held": 0, "nobody": False}],
    "optimism": [{"beta": beta} for beta in (0.0, 0.2, 1.0)],
    "width": [{"width": 64}, {"model_width": 100}, {"width": 256}],
}


def experiments() -> dict[str, list[dict]]:
    """The rows of each experiment: an environment, and options of a TrainConfig."""
    nobody = {"setting": "none", "algo": "h-ucrl"}
    alone = {
        env: [{"env": env, **nobody, "episodes": episodes, "seed": seed} for seed in range(100, 105)]
        for env, episodes in ALONE.items()
    }
    further = [{"env": "half-cheetah", **nobody, "episodes": 125, "seed": seed} for seed in (100, 101)]
    contested = [
        {"env": env, "algo": "rh-ucrl", "episodes": 50, **more, "seed": seed}
        for env, more in CONTESTED
        for seed in range(100, 103)
    ]
    usual = {"env": "hopper", "algo": "rh-ucrl", "setting": "adversarial", "episodes": 40}
    ablations = [
        usual | option | {"seed": seed}
        for option in ({}, *(option for options in ABLATIONS.values() for option in options))
        for seed in (100, 101)
    ]
    return {**alone, "further": further, "contested": contested, "ablations": ablations}


def one(options: dict) -> dict:
    """Train with a look at the policy now and then; then judge the output policy and the last one."""
    from rhucrl.attacks.arena import HostArena, gains
    from rhucrl.attacks.worst_case import worst_case
    from rhucrl.config import TrainConfig
    from rhucrl.runtime.compilation import enable_cache
    from rhucrl.training import loop

    enable_cache()
    config = TrainConfig.preset(**options)
    env = loop.env_of(config)
    folder = RUNS / hashlib.sha256(json.dumps([options, rows.source()], sort_keys=True).encode()).hexdigest()[:12]
    looks = folder.with_suffix(".jsonl")

    def judge(policy: Any) -> list[float]:
        return gains(HostArena(policy, env), None, range(1001, 1001 + LOOKS))

    def look(state: Any, metrics: dict) -> None:
        done = metrics["episode"] + 1
        if done % EVERY == 0 or done == config.episodes:
            with open(looks, "a") as file:
                file.write(json.dumps([done, int(state.replay.size), judge(state.last.policy)]) + "\n")

    RUNS.mkdir(exist_ok=True)
    if (folder / "config.json").exists():
        state = loop.resume(folder, env=env, after=look)
    else:
        state = loop.train(config, folder, env=env, after=look)
    episodes = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    timing = [json.loads(line) for line in (folder / "timing.jsonl").read_text().splitlines()]
    curve = {done: (done, steps, returns) for done, steps, returns in map(json.loads, looks.read_text().splitlines())}
    output, chosen = loop.learner_of(config).policies(state)["policy"]
    result = {
        "options": options, "train_cpu": sum(lap["cpu"] for lap in timing), "steps": int(state.replay.size),
        "timing": {name: sum(lap.get(name, 0.0) for lap in timing) for name in timing[-1] if name != "episode"},
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, "curve": sorted(curve.values()),
        "output_episode": int(chosen), "episodes": episodes,
    }  # fmt: skip
    for name, policy in (("output", output.policy), ("last", state.last.policy)):
        if name == "last" and chosen == len(episodes) - 1:
            result[name] = result["output"]
            break
        result[name] = {"nominal": judge(policy)}
        if config.setting != "none":
            case = worst_case(policy, env, "standard")
            result[name] |= {"worst": case.worst, "attack": case.attack, "attacks": case.attacks}
    name = "-".join(str(options[key]) for key in ("env", "setting", "strength", "algo", "seed") if key in options)
    shutil.copytree(folder / "policy", RUNS / "policies" / f"{name}-{folder.name}")
    shutil.rmtree(folder)
    looks.unlink()
    return result


def tell(r: dict) -> str:
    parts = []
    for name in ("last", "output"):
        worst = f", worst {r[name]['worst']:.0f} ({r[name]['attack']})" if "worst" in r[name] else ""
        parts.append(f"{name} {' '.join(f'{x:.0f}' for x in r[name]['nominal'])}{worst}")
    return f"{'; '.join(parts)}; {r['steps']} steps, {r['train_cpu']:.0f} s, {r['peak_mb']:.0f} MB"


def write() -> None:
    import robot_tables

    robot_tables.write()


if __name__ == "__main__":
    rows.main(__file__, str(__doc__), experiments(), one, tell, write)
