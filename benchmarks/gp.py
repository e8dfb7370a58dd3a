"""What a Gaussian process costs: predictions and additions at 2,000 points, in CPU seconds on one core.

    python benchmarks/gp.py [--points 2000] [--rounds 7]

Inputs are those of a system of four outputs and seven inputs. Medians go to results/gp.json.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

BATCH, ADDED, INPUTS, OUTPUTS, RIDGE = 256, 200, 7, 4, 1e-3


def cpu_seconds(run: Callable[[], Any], rounds: int) -> float:
    """The median; the first time does not count."""
    times = []
    for _ in range(rounds + 1):
        began = time.process_time()
        run()
        times.append(time.process_time() - began)
    return statistics.median(times[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=7)
    asked = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

    import jax
    import jax.numpy as jnp
    import numpy as np

    from rhucrl.models.gaussian_process import posterior
    from rhucrl.models.gaussian_process.kernels import Kernel
    from rhucrl.models.gaussian_process.model import GaussianProcessModel

    n, rng = asked.points, np.random.default_rng(0)
    one = np.ones(INPUTS)
    kernel = Kernel(0 * one, one, one, one, np.float64(0.5), "squared-exponential")
    z, new = rng.uniform(-1, 1, (n, INPUTS)), rng.uniform(-1, 1, (ADDED, INPUTS))
    y, more = (np.sin(x @ rng.standard_normal((INPUTS, OUTPUTS))) for x in (z, new))
    inverse = posterior.grow(np.zeros((0, 0)), np.zeros((0, n)), kernel(z, z), RIDGE)
    after = posterior.exact(inverse, y, RIDGE)

    def add() -> posterior.Posterior:
        grown = posterior.grow(inverse, kernel(z, new), kernel(new, new), RIDGE)
        return posterior.exact(grown, np.concatenate([y, more]), RIDGE)

    single = lambda tree: jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), tree)  # noqa: E731
    waves = jnp.zeros((INPUTS, 1)), jnp.zeros(1), jnp.zeros((1, 1, OUTPUTS))
    game: Any = None
    model = GaussianProcessModel(
        game, single(kernel), *single((z, after.weights, after.factor, np.ones(OUTPUTS), 0.03, 1.0)), waves
    )
    batch = jnp.asarray(rng.uniform(-1, 1, (BATCH, INPUTS)), jnp.float32)
    predict = jax.jit(lambda model, z: model.at(z))
    answered = cpu_seconds(lambda: jax.block_until_ready(predict(model, batch)), 3 * asked.rounds)
    result = {
        "points": n, "outputs": OUTPUTS, "inputs": INPUTS,
        f"predict_{BATCH}_ms": 1e3 * answered,
        f"add_{ADDED}_s": cpu_seconds(add, asked.rounds),
        "factor_from_scratch_s": cpu_seconds(
            lambda: posterior.grow(np.zeros((0, 0)), np.zeros((0, n)), kernel(z, z), RIDGE), 2
        ),
        "greedy_400_of_2000_s": cpu_seconds(lambda: posterior.greedy(kernel, z, 400, 0.0), 2),
    }  # fmt: skip
    result = {name: float(f"{x:.4g}") if isinstance(x, float) else x for name, x in result.items()}
    print(result)
    (Path(__file__).parent / "results" / "gp.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
