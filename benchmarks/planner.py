"""The planner on the pendulum: robust against nominal as in the paper's figure 1, over masses, with a learned model.

    python benchmarks/planner.py                 # the rows that are not there yet
    python benchmarks/planner.py plans --cores 0
    python benchmarks/planner.py --tables        # docs/planner.md and its figure

plans: 500 steps with the known dynamics. The agent reckons with the adversary (robust) or with none (nominal); the
adversary is the second phase of a planner that knows the true strength and the agent's best plans. In the adversarial
setting also against `drain`, who takes energy away. With a critic, plans of three steps end with the value that the
default solver has learned for the same game, the nominal planner's for the game without an adversary.
masses: one mass for the episode; an agent that hedges over [.5, 3] beside agents that are sure of one mass.
learned: RH-UCRL that plans in the model that it learns.
"""

from __future__ import annotations

import functools
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import rows
from jaxtyping import Array

import rhucrl
from rhucrl.attacks.oracle import solve
from rhucrl.attacks.rollouts import Constant, rollout
from rhucrl.envs.game import Box, JaxGame
from rhucrl.envs.pendulum import Pendulum
from rhucrl.envs.zero_sum_env import ZeroSumEnv
from rhucrl.runtime.compilation import enable_cache
from rhucrl.solvers.planner.search import Answering, Planning, rebut
from rhucrl.training.loop import env_of

STRENGTHS = [0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4]
LIGHT, HEAVY = 0.5, 3.0
MASSES = [0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0]
SURE = [0.5, 1.0, 2.0, 3.0]
SEEDS = range(3)
EPISODES = 30  # that a critic is learned in


def experiments() -> dict[str, list[dict]]:
    return {
        "plans": [
            {"setting": setting, "seed": seed, "horizon": 500, "critic": critic}
            for seed in SEEDS
            for critic in (False, True)
            for setting in ("adversarial", "action")
        ],
        "masses": [{"horizon": 200, "seed": seed} for seed in SEEDS],
        "learned": [{"strength": 0.1, "seed": seed, "episodes": 10} for seed in SEEDS],
    }


class Weighed(Pendulum):
    """The pendulum with a mass between two given ones."""

    masses: tuple[float, float] = eqx.field(static=True, default=(LIGHT, HEAVY))

    @property
    def adversary(self) -> Box:
        low, high = self.masses
        return Box(jnp.full(1, low), jnp.full(1, high))


def planning(game: JaxGame, seed: int, value: Any = None, opponent: bool = True) -> Planning:
    algo = "rh-ucrl" if opponent else "h-ucrl"
    return rhucrl.Planner(ZeroSumEnv(game), algo=algo, value=value, seed=seed).policy


def drain(game: JaxGame, obs: Array, action: Array) -> Array:
    """Gravity that is large on the way up and small on the way down, and mass that makes every push weak."""
    rising, pushing = obs[1] * obs[2] < 0, action[0] * obs[2] > 0
    return jnp.where(jnp.stack([rising, pushing]), game.adversary.high, game.adversary.low)


@functools.partial(jax.jit, static_argnames="rebuts")
def duel(game: JaxGame, mine: Planning, theirs: Planning, rebuts: bool = True) -> Array:
    """The return of an agent that plans, against the answers to its plans (else: against `drain`)."""

    def step(carry: Any, _: None) -> Any:
        state, memory, other = carry
        obs = game.observe(state)
        memory, action = mine.act(memory, obs)
        other = rebut(theirs, other, memory.plans, obs) if rebuts else other
        worst = Answering(theirs).read(other) if rebuts else drain(game, obs, action)
        executed = game.execute(action, worst).action[0]
        following = game.step(state, executed, worst)
        return (following, memory, other), game.reward(obs, executed, worst, game.observe(following))

    start = game.reset(jax.random.key(0)), mine.fresh(), theirs.fresh()
    return jax.lax.scan(step, start, length=game.horizon)[1].sum()


def critic_of(setting: str, strength: float | None, seed: int) -> Any:
    """What the default solver says of a state, after it has learned in the known dynamics."""
    with tempfile.TemporaryDirectory() as folder:
        env = rhucrl.make("pendulum", setting, strength)
        return rhucrl.RHUCRL(env, seed=seed, model="known").learn(EPISODES, run_dir=f"{folder}/run").value


def plans(setting: str, seed: int, horizon: int, critic: bool) -> dict:
    told: dict[str, list[float]] = {"robust": [], "nominal": [], "oracle": [], "drained": [], "nominal_drained": []}
    calm = critic_of("none", None, seed) if critic else None
    for strength in STRENGTHS:
        game: Any = rhucrl.make("pendulum", setting, strength, horizon=horizon).game
        robust = planning(game, seed, critic_of(setting, strength, seed) if critic else None)
        nominal = planning(game.nominal(), seed, calm, opponent=False)
        for name, its in (("robust", robust), ("nominal", nominal)):
            told[name].append(float(duel(game, its, robust)))
        if setting == "adversarial":
            for name, its in (("drained", robust), ("nominal_drained", nominal)):
                told[name].append(float(duel(game, its, robust, rebuts=False)))
        told["oracle"].append(solve(game).value)
    return told


def masses(seed: int, horizon: int) -> dict:
    def returns(policy: Planning) -> list[float]:
        world = Weighed(0.0, "episode", horizon, "parameter")
        play = lambda mass: rollout(world, policy, Constant(jnp.full(1, mass)), jax.random.key(0)).reward.sum()  # noqa: E731
        return [float(play(mass)) for mass in MASSES]

    hedging = Weighed(0.0, "episode", horizon, "parameter")
    sure = {str(mass): Weighed(0.0, "episode", horizon, "parameter", masses=(mass, mass)) for mass in SURE}
    return {
        "hedging": returns(planning(hedging, seed)),
        "sure": {mass: returns(planning(game, seed)) for mass, game in sure.items()},
    }


def learned(strength: float, seed: int, episodes: int) -> dict:
    env = rhucrl.make("pendulum", "adversarial", strength)
    with tempfile.TemporaryDirectory() as folder:
        agent = rhucrl.RHUCRL(env, seed=seed, solver="planner").learn(episodes, run_dir=f"{folder}/run")
        curve = [json.loads(line) for line in Path(f"{folder}/run/metrics.jsonl").read_text().splitlines()]
    game: Any = env_of(agent.config).game
    calm = float(rollout(game.nominal(), agent.policy, Constant(game.neutral), jax.random.key(0)).reward.sum())
    return {
        "returns": [row["return"] for row in curve], "pessimistic": [row.get("J_pessimistic") for row in curve],
        "nominal": calm, "cpu": time.process_time(),
    }  # fmt: skip


def one(options: dict) -> dict:
    enable_cache()
    make = plans if "setting" in options else learned if "strength" in options else masses
    return {"options": options, **make(**options)}


def tell(row: dict) -> str:
    if "robust" in row:
        return "robust " + " ".join(f"{x:.0f}" for x in row["robust"])
    return f"hedging {min(row['hedging']):.0f}" if "hedging" in row else f"last returns {row['returns'][-3:]}"


def write() -> None:
    import planner_tables

    planner_tables.write()


if __name__ == "__main__":
    rows.main(__file__, str(__doc__), experiments(), one, tell, write)
