"""The paper's evaluation: the policy is frozen, and an adversary learns against it by soft actor-critic.

Three numbers judge a policy: the *nominal* return without an adversary, the *average* return against the adversary that
it learned with, and the *worst case*, the lowest of the returns against the adversary that was learned last, the best
one on the way, and nobody.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rhucrl.algorithms import EVERY, MODEL_FREE
from rhucrl.attacks.arena import arena, gains
from rhucrl.attacks.battery import Trained, is_certain
from rhucrl.attacks.families import members
from rhucrl.attacks.learned import Learned, learn_adversary
from rhucrl.attacks.worst_case import AttackFinding, Shelf, WorstCase, demand_finite, seeds
from rhucrl.runtime.progress import SILENT, ShowsProgress

ATTACKS = {"last": "sac-last", "best": "sac-best"}  # by the names of `Learned`
EPISODES = 200  # of the paper


def paper_worst_case(
    policy: Any, env: Any, attack_episodes: int = EPISODES, episodes: int = 10, seed: int = 0,
    progress: ShowsProgress = SILENT, shelf: Shelf | None = None,
) -> WorstCase:  # fmt: skip
    """The worst case by the paper's protocol, its adversaries replayed on fresh `episodes`; the same for the same seed.

    `progress.update(n, text)` is called with how many of the `attack_episodes` are over.
    """
    place, fresh = arena(policy, env), fresh_seeds(env.game, seed, episodes)
    progress.update(0, "nominal")
    calm, findings = tuple(gains(place, None, fresh)), {}
    kept = {name: found for name in ATTACKS.values() if shelf and (found := shelf.get(name))}
    if len(kept) == len(ATTACKS) or not has_adversary(env.game):
        return WorstCase(calm, kept)

    def watch(done: int, earned: float) -> None:
        progress.update(done, f"an adversary learns, return {earned:.0f}")

    clock, before = place.cpu, place.steps
    learned: Learned = learn_adversary(place, attack_episodes, seed, watch)
    for name, attack in ATTACKS.items():
        adversary = getattr(learned, name)
        returns = demand_finite(tuple(gains(place, adversary, fresh)))
        findings[attack] = AttackFinding(adversary, returns, place.steps - before, place.cpu - clock)
        if shelf:
            shelf.put(attack, findings[attack])
    return WorstCase(calm, findings)


def average(agent: Any, env: Any, episodes: int = 10, seed: int = 0) -> tuple[float, ...]:
    """The returns against the adversary that an agent learned with: its network's, random values, or nobody."""
    place, fresh = arena(agent, env), fresh_seeds(env.game, seed, episodes)
    algo = getattr(getattr(agent, "config", None), "algo", None)
    if algo in MODEL_FREE and MODEL_FREE[algo].adversaries == "sampled":  # each episode has a value of its own
        units = np.random.default_rng([seed, 3]).uniform(-1, 1, (episodes, env.game.adversary.size))
        held = members(env.game, "constant", units)
        return tuple(gains(place, value, [fresh[i % len(fresh)]])[0] for i, value in enumerate(held))
    learned = algo is not None and EVERY[algo].deployed != "none"
    return tuple(gains(place, Trained(agent) if learned else None, fresh))


def fresh_seeds(game: Any, seed: int, episodes: int) -> list[int]:
    """Of the episodes that policies are judged on: one where all are the same."""
    return seeds(seed, 1, 1 if is_certain(game) else episodes)


def has_adversary(game: Any) -> bool:
    """Whether the adversary can do anything."""
    low, high = (np.asarray(x) for x in game.adversary)
    return bool((low < high).any()) and float(game.strength) > 0
