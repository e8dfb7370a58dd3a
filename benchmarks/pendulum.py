"""The published results on the pendulum: which runs, how they are judged, and the tables made of them.

    python benchmarks/pendulum.py robust solver sparse parameter nominal     # all runs that are not there yet
    python benchmarks/pendulum.py --tables                                   # docs/results.md from what is there

Settings are the defaults except for what a row says. Results are appended to benchmarks/results/EXPERIMENT.jsonl, one
line per run; an interrupted benchmark goes on where it was.
"""

from __future__ import annotations

import resource
import time
from itertools import product

import rows

SEEDS = range(5)
STRENGTHS = (0.2, 0.1, 0.3)


def experiments() -> dict[str, list[dict]]:
    """The rows of each experiment: the options of a TrainConfig."""
    robust = [
        {"setting": setting, "strength": strength, "algo": algo, "seed": seed}
        for strength, setting, algo, seed in product(STRENGTHS, ("adversarial", "action"), ("rh-ucrl", "h-ucrl"), SEEDS)
    ]
    solver = [
        {"setting": setting, "strength": strength, "algo": "rh-ucrl", "model": "known", "seed": seed}
        for strength, setting, seed in product(STRENGTHS, ("adversarial", "action"), SEEDS)
    ]
    sparse = [
        {"setting": "none", "reward": "sparse", "algo": algo, "beta": 5.0, "seed": seed}
        for algo, seed in product(("h-ucrl", "greedy"), SEEDS)
    ] + [
        {"setting": "adversarial", "strength": 0.1, "reward": "sparse", "algo": algo, "beta": 5.0, "seed": seed}
        for algo, seed in product(("rh-ucrl", "maximin-mb"), SEEDS)
    ]
    parameter = [
        {"setting": "parameter", "strength": 0.8, "algo": algo, "seed": seed}
        for algo, seed in product(("rh-ucrl", "h-ucrl"), SEEDS)
    ]
    nominal = [{"setting": "none", "algo": "h-ucrl", "episodes": 10, "seed": seed} for seed in SEEDS]
    ablations = [
        {"setting": "adversarial", "strength": 0.2, "algo": algo, "seed": seed}
        for algo, seed in product(("best-response", "maximin-mb", "greedy"), SEEDS)
    ]
    return {
        "robust": robust, "solver": solver, "sparse": sparse, "parameter": parameter, "nominal": nominal,
        "ablations": ablations,
    }  # fmt: skip


def one(options: dict) -> dict:
    """Train, then judge the output policy and the last one."""
    from rhucrl.attacks.worst_case import sweep_parameter, worst_case
    from rhucrl.config import TrainConfig
    from rhucrl.runtime.compilation import compile_seconds, enable_cache
    from rhucrl.training import protocol
    from rhucrl.training.loop import env_of

    enable_cache()
    began = time.process_time()
    config = TrainConfig.preset(**options)
    env = env_of(config)
    game, state, episodes = env.game, protocol.ModelBased(config).initial(env), []
    for index in range(config.episodes):
        state, metrics = protocol.ModelBased(config).episode(env, state, index)
        episodes.append(metrics)
    output, chosen = protocol.ModelBased(config).policies(state)["policy"]
    result = {
        "options": options, "train_cpu": time.process_time() - began, "compile": compile_seconds(),
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "output_episode": int(chosen), "episodes": episodes,
    }  # fmt: skip
    for name, policy in (("output", output.policy), ("last", state.last.policy)):
        if name == "last" and result["output_episode"] == config.episodes - 1:
            result["last"] = result["output"]  # the same policy
            continue
        case = worst_case(policy, game, "quick")
        result[name] = {"nominal": case.nominal, "worst": case.worst, "attacks": case.attacks}
        if config.setting == "parameter":
            sweep = sweep_parameter(policy, game, 17)
            result[name]["sweep"] = [sweep.values[:, 0].tolist(), sweep.returns.tolist()]
    result["attack_cpu"] = time.process_time() - began - result["train_cpu"]
    return result


def tell(r: dict) -> str:
    return (
        f"nominal {r['output']['nominal']:.0f} worst {r['output']['worst']:.0f} (last {r['last']['worst']:.0f}) "
        f"train {r['train_cpu']:.0f} s attack {r['attack_cpu']:.0f} s {r['peak_mb']:.0f} MB"
    )


def write() -> None:
    import tables

    tables.write(rows.RESULTS)


if __name__ == "__main__":
    rows.main(__file__, str(__doc__), experiments(), one, tell, write)
