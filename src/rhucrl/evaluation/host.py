"""The worst case of a policy in a game on the host: episodes step by step, in NumPy.

What makes an adversary the worse one is the return; among equal returns, how far it drove the system from where the
episode began. A reward that is the same until the fall says nothing about how near the fall was.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import equinox as eqx
import numpy as np

from rhucrl.envs.face import AgentView, ZeroSumEnv
from rhucrl.errors import UsageError
from rhucrl.evaluation import adversaries
from rhucrl.evaluation.adversaries import HostAdversary, member

if TYPE_CHECKING:  # MuJoCo takes its time to import
    from rhucrl.envs.own import HostGame

Adversary = Callable[[Any, Any], Any]
Acting = Callable[[np.ndarray], np.ndarray]
Score = tuple[float, float]

HELD = 25  # steps for which a random action is held
START, SPREAD = 2.0, 0.5  # standard deviations of the first networks, and of a search around a chosen member


class HostEffort(NamedTuple):
    """How hard to search; the number of episodes grows with every entry."""

    vertices: int  # constant adversaries at most
    random: int  # random adversaries of each kind
    restarts: int  # cross-entropy searches of each family
    population: int
    generations: int
    lattices: tuple[int, ...]  # values of an episode's parameter, over all of its dimensions
    zooms: int
    seen: int  # episodes that a search judges an adversary by
    unseen: int  # episodes of a replay


HOST_EFFORTS: dict[str, HostEffort] = {
    "quick": HostEffort(16, 4, 1, 12, 4, (9,), 2, 1, 5),
    "standard": HostEffort(64, 16, 2, 32, 8, (9, 25), 3, 2, 10),
    "thorough": HostEffort(128, 64, 4, 64, 16, (9, 25, 81), 4, 3, 20),
}


class Played(NamedTuple):
    """An episode's return, its steps, and the largest distance from its start in units of the game's scale."""

    gain: float
    steps: int
    excursion: float


def acting(policy: Any, env: ZeroSumEnv) -> Acting:
    """The policy as a function of one observation: a callable, or what has Stable-Baselines3's `predict`."""
    predict: Any = getattr(policy, "predict", None)
    if predict is None and not callable(policy):
        raise UsageError(f"a {type(policy).__name__} is no policy: give a function of observations, or with .predict")
    network = getattr(policy, "policy", policy)
    if hasattr(network, "on_host"):
        plays, predict = network.on_host(), None
    else:
        plays = eqx.filter_jit(policy) if isinstance(policy, eqx.Module) else policy  # type: ignore[arg-type]
    shape = env.boxes["agent"].shape

    def act(obs: np.ndarray) -> np.ndarray:
        action = np.asarray(predict(obs, deterministic=True)[0] if predict else plays(obs))
        if action.shape != shape:
            raise UsageError(f"the policy's action has shape {action.shape}, not {shape}: return one action")
        if not np.isfinite(action).all():
            raise UsageError(f"the policy's action {action.tolist()} is not finite at the observation {obs.tolist()}")
        return action

    return act


def play(env: ZeroSumEnv, act: Acting, adversary: Adversary | None, seed: int) -> Played:
    """One episode; it ends where the environment ends it, or at the game's horizon."""
    view, gain, done = AgentView(env, adversary), 0.0, False
    obs, _ = view.reset(seed=seed)
    path = [obs]
    while not done:
        obs, reward, terminated, truncated, _ = view.step(act(obs))
        gain, done = gain + reward, terminated or truncated
        path.append(obs)
    moved = (np.asarray(path) - path[0]) / np.asarray(env.game.scale)
    return Played(gain, len(path) - 1, float(np.sqrt(np.square(moved).sum(-1).max())))


class Arena:
    """A policy in its environment, episodes on given seeds, and how many have been played."""

    def __init__(self, policy: Any, env: ZeroSumEnv, progress: Any = None):
        if not isinstance(env, ZeroSumEnv):
            raise UsageError("this game's system runs on the host: give the environment that rhucrl.make or wrap made")
        self.env, self.act, self.progress = env, acting(policy, env), progress
        self.episodes, self.steps, self.doing = 0, 0, ""

    def play(self, adversary: Adversary | None, seeds: Sequence[int], env: ZeroSumEnv | None = None) -> list[Played]:
        return [self._one(env or self.env, adversary, seed) for seed in seeds]

    def _one(self, env: ZeroSumEnv, adversary: Adversary | None, seed: int) -> Played:
        played = play(env, self.act, adversary, seed)
        self.episodes, self.steps = self.episodes + 1, self.steps + played.steps
        if self.progress is not None:
            self.progress.update(self.episodes, self.doing)
        return played

    def mean_return(self, adversary: Adversary, seeds: Sequence[int]) -> float:
        return float(np.mean([played.gain for played in self.play(adversary, seeds)]))

    def nominal_return(self, seeds: Sequence[int]) -> float:
        """The mean return where the adversary has no strength."""
        return float(np.mean([played.gain for played in self.play(None, seeds, self.env.at(0.0))]))

    def score(self, adversary: Adversary, seeds: Sequence[int]) -> Score:
        """The lower, the worse for the policy."""
        played = self.play(adversary, seeds)
        return float(np.mean([row.gain for row in played])), -float(np.mean([row.excursion for row in played]))


class Search(NamedTuple):
    """What an attack works with."""

    arena: Arena
    game: HostGame
    effort: HostEffort
    seeds: list[int]

    def ranked(self, family: str, weights: np.ndarray) -> tuple[np.ndarray, list[Score]]:
        """The members' weights, the worst adversary first, and their scores."""
        scores = [self.arena.score(member(self.game, family, row), self.seeds) for row in weights]
        order = sorted(range(len(weights)), key=scores.__getitem__)
        return weights[order], [scores[i] for i in order]

    def worst(self, family: str, weights: np.ndarray) -> HostAdversary:
        return member(self.game, family, self.ranked(family, weights)[0][0])

    def cross_entropy(self, family: str, start: np.ndarray, generator: np.random.Generator) -> HostAdversary:
        """From each of the worst members of `start`: refit a Gaussian to the worst ever drawn, repeatedly.

        Whether keeping the former worst finds worse adversaries than drawing anew is not established.
        """
        begun, scores = self.ranked(family, start)
        champions, elite = [(scores[0], begun[0])], max(2, self.effort.population // 4)
        for centre, score in zip(begun[: self.effort.restarts], scores, strict=False):
            mean, spread, best = centre, np.full(centre.size, SPREAD), [(score, centre)]
            for _ in range(self.effort.generations):
                drawn = mean + spread * generator.normal(size=(self.effort.population, mean.size))
                drawn, found = self.ranked(family, drawn)
                best = sorted([*best, *zip(found, drawn, strict=True)], key=lambda pair: pair[0])[:elite]
                chosen = np.stack([weights for _, weights in best])
                mean, spread = chosen.mean(0), chosen.std(0) + 0.05
            champions.append(best[0])
        return member(self.game, family, min(champions, key=lambda pair: pair[0])[1])

    def zoom(self, points: int) -> Iterator[HostAdversary]:
        """The worst values of an episode's parameter: of a lattice, then of ever finer ones around the last."""
        units = lattice(self.game.adversary.size, points)
        value, shrink = np.zeros(units.shape[1]), 1.0
        side = round(len(units) ** (1 / units.shape[1]))
        for level in range(self.effort.zooms + 1):
            tried = np.clip(value + shrink * units, -1, 1)
            tried = tried if level == 0 else np.concatenate([value[None], tried])
            value, shrink = self.ranked("constant", tried)[0][0], shrink * 2 / (side - 1)
            yield member(self.game, "constant", value)


def lattice(size: int, points: int) -> np.ndarray:
    """About `points` evenly spaced points of [-1, 1]^size, the vertices among them; at least 3 along a side."""
    side = np.linspace(-1, 1, max(3, round(points ** (1 / size))))
    return np.stack(np.meshgrid(*[side] * size), -1).reshape(-1, size)


def _vertices(search: Search, generator: np.random.Generator) -> HostAdversary:
    outputs = search.game.adversary.size
    return search.worst("constant", adversaries.vertices(outputs, search.effort.vertices, generator))


def _random(search: Search, generator: np.random.Generator, hold: int = 1) -> HostAdversary:
    return search.worst("sequence", adversaries.sequences(search.game, search.effort.random, hold, generator))


def _held(search: Search, generator: np.random.Generator) -> HostAdversary:
    return _random(search, generator, HELD)


def _bang_bang(search: Search, generator: np.random.Generator) -> HostAdversary:
    drawn = adversaries.feedbacks(search.game, search.effort.population, generator)
    return search.cross_entropy("bang-bang", np.concatenate([_known(search.game), drawn]), generator)


def _networks(search: Search, generator: np.random.Generator) -> HostAdversary:
    shape = search.effort.population, adversaries.size(search.game, "network")
    return search.cross_entropy("network", START * generator.normal(size=shape), generator)


def _known(game: HostGame) -> np.ndarray:
    return adversaries.known(game, game.name if game.setting == "adversarial" else "")


ATTACKS: dict[str, Callable[[Search, np.random.Generator], HostAdversary]] = {
    "constant": _vertices,
    "random": _random,
    "random-held": _held,
    "bang-bang": _bang_bang,
    "cross-entropy": _networks,
}


def seeds(seed: int, purpose: int, count: int) -> list[int]:
    """Seeds of episodes: of searches (purpose 0) and of replays (purpose 1)."""
    return [int(x) for x in np.random.SeedSequence([seed, purpose]).generate_state(count)]


def attacks(arena: Arena, game: HostGame, effort: HostEffort, seed: int) -> Iterator[tuple[str, HostAdversary]]:
    """The battery: each attack's name and the adversary it found. The attacks share nothing but the seeds."""
    search = Search(arena, game, effort, seeds(seed, 0, effort.seen))
    for name, attack in ATTACKS.items():
        arena.doing = name
        yield name, attack(search, np.random.default_rng([seed, zlib.crc32(name.encode())]))
        if game.scope == "episode":
            break
    if game.scope == "episode":
        for points in effort.lattices:
            arena.doing = f"search-{points}"
            for level, adversary in enumerate(search.zoom(points)):
                yield f"search-{points}-{level}", adversary


def planned(game: HostGame, effort: HostEffort) -> int:
    """How many episodes an attack plays."""
    outputs = game.adversary.size
    constants = min(2**outputs, effort.vertices) + 1
    searched, found = constants, 1
    if game.scope == "episode":
        for points in effort.lattices:
            searched += (effort.zooms + 1) * len(lattice(outputs, points)) + effort.zooms
            found += effort.zooms + 1
    else:
        starts = 2 * effort.population + len(_known(game))
        searched += 2 * effort.random + starts + 2 * effort.restarts * effort.generations * effort.population
        found = len(ATTACKS)
    return searched * effort.seen + (found + 1) * effort.unseen
