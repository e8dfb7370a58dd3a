"""What `rhucrl evaluate --sweep` does: returns over the range of one parameter, or of two."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rhucrl.attacks.arena import arena
from rhucrl.attacks.battery import AttackSearch, zoom
from rhucrl.attacks.families import members
from rhucrl.attacks.worst_case import carried_out, effort_of, seeds
from rhucrl.cli.attack import Evaluate, mean_of
from rhucrl.errors import UsageError, unknown
from rhucrl.experiments.plots import plot_map, plot_sweep
from rhucrl.runtime.progress import Progress
from rhucrl.runtime.tables import print_table

if TYPE_CHECKING:
    from rhucrl.envs.zero_sum_env import ZeroSumEnv

WIDE = 12  # columns of a table of a map; of a larger one the picture tells more


class Axis(NamedTuple):
    """A parameter, and the values at which it is asked."""

    name: str
    values: np.ndarray


class Swept(NamedTuple):
    """The returns at every combination of values, the worst one that a search found between them, and those there."""

    samples: np.ndarray
    worst: tuple[float, ...]
    returns: Sequence[float]


def sweep(command: Evaluate, agent: Any, env: ZeroSumEnv) -> int:
    (run,), axes = command.runs, parsed(str(command.sweep))
    box, names = env.boxes["adversary"], parameters_of(env)
    if env.game.scope != "episode" or box.shape != (len(names),):
        raise UsageError("only what is fixed for an episode can be swept: the run has to be in --setting parameter")
    for axis in axes:
        if axis.name not in names:
            raise unknown("parameter", axis.name, names)
        least, most = (float(end[names.index(axis.name)]) for end in (box.low, box.high))
        low, high = axis.values[0], axis.values[-1]
        if not least - 1e-6 <= low < high <= most + 1e-6:
            raise UsageError(
                f"--sweep goes from {low:g} to {high:g} ({axis.name}); the run's range is {least:.4g} to {most:.4g}"
            )
    columns = [names.index(axis.name) for axis in axes]
    found = swept(agent, env, axes, columns, command.seed, f"sweep {run}")
    show(run, axes, found)
    where = " and ".join(f"{value:.4g}" for value in found.worst)
    spans = " and ".join(f"{axis.name} from {axis.values[0]:g} to {axis.values[-1]:g}" for axis in axes)
    print(f"the worst {spans} that a search found is {where}: {mean_of(found.returns)}")
    known = vars(agent.config) if hasattr(agent, "config") else {"algo": run.name, "seed": command.seed}
    config = {"env": "pendulum", **known, **env.game.options()}
    path, least = run / "sweep.png", float(np.mean(found.returns))
    if len(axes) == 1:
        print(plot_sweep(path, *axes[0], found.samples, (found.worst[0], least), config))
    else:
        nominal = env.neutral[columns].tolist()
        print(plot_map(path, axes, found.samples.mean(-1), (found.worst, least), nominal, config))
    return 0


def show(run: Path, axes: Sequence[Axis], found: Swept) -> None:
    (name, values), *others = axes
    if not others:
        shown = [(f"{value:.4g}", mean_of(row)) for value, row in zip(values, found.samples, strict=True)]
        print_table(str(run), (name, "return"), shown)
        return
    (other, across), means = others[0], found.samples.mean(-1)
    if len(across) < WIDE:
        rows = [(f"{value:.4g}", *(f"{x:.1f}" for x in row)) for value, row in zip(values, means, strict=True)]
        print_table(f"{run}, {other} across", (name, *(f"{x:.4g}" for x in across)), rows)


def parameters_of(env: ZeroSumEnv) -> list[str]:
    """The names of what the adversary chooses for an episode."""
    return getattr(getattr(env.system, "disturbance", None), "names", ["mass"])


def swept(agent: Any, env: ZeroSumEnv, axes: Sequence[Axis], columns: Sequence[int], seed: int, label: str) -> Swept:
    """The returns at all values of some parameters, the others neutral, and the worst between them.

    It is searched on other episodes than those of the returns.
    """
    game, effort = env.game, effort_of(env.game, "standard")
    points, fresh = effort.lattices[-1], seeds(seed, 1, effort_of(game, "quick").unseen)
    grid = np.stack(np.meshgrid(*(axis.values for axis in axes), indexing="ij"), -1)
    rows = np.tile(env.neutral.astype(float), (*grid.shape[:-1], 1))
    rows[..., columns] = grid
    rows = rows.reshape(-1, rows.shape[-1])
    episodes = len(rows) * len(fresh) + (points + 1) * (effort.zooms + 1) * effort.seen
    with Progress(episodes * game.horizon, label) as progress:
        place = arena(agent, env, watch=lambda: progress.update(place.steps, "steps"))
        units = game.adversary.on_host(float).unit(rows)
        played = place.play(members(game, "constant", units), fresh)
        samples = np.array([[episode.gain for episode in row] for row in played])
        search = AttackSearch(place, effort, agent, seeds(seed, 0, effort.seen), seed)
        within = partial(zoom, points=points, low=units[0], high=units[-1])
        found = carried_out(search, within, fresh, np.random.default_rng(seed))
    chosen = np.asarray(found.adversary(np.zeros(game.observation.size), 0))[columns]
    tried = [*zip(rows[:, columns].tolist(), samples, strict=True), (chosen.tolist(), np.asarray(found.returns))]
    worst, returns = min(tried, key=lambda one: one[1].sum())
    return Swept(samples.reshape(*grid.shape[:-1], -1), tuple(worst), returns.tolist())


def parsed(text: str) -> list[Axis]:
    """One NAME=LOW:HIGH:COUNT, or two."""
    axes, parts = [], [part.strip() for part in text.split(",")]
    for part in parts:
        name, _, span = part.partition("=")
        try:
            low, high, count = span.split(":")
            axes.append((name, float(low), float(high), int(count)))
        except ValueError:
            raise UsageError(
                f"--sweep is {text!r}; write it as mass=LOW:HIGH:COUNT, for example mass=0.5:1.5:11"
            ) from None
        if axes[-1][3] < 3:
            raise UsageError(f"--sweep asks for {axes[-1][3]} values; it must be at least 3")
    if len(axes) > 2 or len({name for name, *_ in axes}) < len(axes):
        raise UsageError(f"--sweep is {text!r}; name one parameter or two different ones: `rhucrl attack` searches all")
    return [Axis(name, np.linspace(low, high, count)) for name, low, high, count in axes]
