"""How near the attacks come to the truth: fixed policies of the pendulum, whose best response is known by dynamic
programming on the true game.

    python benchmarks/attacks.py                      # the rows that are not there yet
    python benchmarks/attacks.py --tables             # docs/attack-results.md

Results are appended to benchmarks/results/EXPERIMENT.jsonl, one line per row.
"""

from __future__ import annotations

from typing import Any

import rows

POLICIES = ("swing", "cautious", "oracle", "lazy")


def experiments() -> dict[str, list[dict]]:
    pendulum = [{"policy": name, "alpha": alpha, "seed": 0} for alpha in (0.1, 0.2, 0.3) for name in POLICIES]
    return {"attack_pendulum": pendulum}


def policy_of(name: str, game: Any) -> Any:
    """Hand-made swing-ups, careful and bold, one that only balances, and the max-min policy of the game itself."""
    import jax.numpy as jnp

    from rhucrl.attacks.oracle import solve

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
    """The suite of the budget `standard` on a fixed policy, and the best response by dynamic programming."""
    from rhucrl.attacks.oracle import best_response
    from rhucrl.attacks.worst_case import worst_case
    from rhucrl.envs.pendulum import Pendulum
    from rhucrl.runtime.compilation import enable_cache

    enable_cache()
    game = Pendulum(options["alpha"])
    policy = policy_of(options["policy"], game)
    case = worst_case(policy, game, "standard")
    costs = {name: [found.steps, found.cpu] for name, found in case.findings.items()}
    bound = best_response(game, policy, 400)[0]
    return {"options": options, "nominal": case.nominal, "attacks": case.attacks, "costs": costs, "bound": bound}


def tell(r: dict) -> str:
    return " ".join(f"{name} {value:.0f}" for name, value in r["attacks"].items()) + f" bound {r['bound']:.0f}"


def write() -> None:
    import attack_tables

    attack_tables.write()


if __name__ == "__main__":
    rows.main(__file__, str(__doc__), experiments(), one, tell, write)
