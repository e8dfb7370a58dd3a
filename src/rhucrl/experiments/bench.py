"""What the pieces of a run cost on this machine (`rhucrl bench`): all in one run, interleaved, in CPU seconds."""

from __future__ import annotations

import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp

from rhucrl import replay as store
from rhucrl.algorithms import ALGORITHMS
from rhucrl.attacks.worst_case import worst_case
from rhucrl.config import TrainConfig
from rhucrl.envs.game import Game
from rhucrl.errors import DiskError
from rhucrl.experiments.flops import gflop
from rhucrl.replay import Replay, Transitions
from rhucrl.runtime.compilation import cache_folder
from rhucrl.runtime.processes import processors
from rhucrl.runtime.progress import SILENT, ShowsProgress
from rhucrl.solvers.actor_critic import solver as pathwise
from rhucrl.solvers.actor_critic.problem import Role
from rhucrl.solvers.base import AbstractSolver
from rhucrl.solvers.look_ahead import value_iteration
from rhucrl.solvers.look_ahead.candidates import adversary_candidates, agent_candidates
from rhucrl.storage.trees import save_tree
from rhucrl.training import protocol
from rhucrl.training.loop import env_of

ROUNDS = 5
UPDATES = 60  # of a timed solution: start states are made anew three times
SIDE = 1024  # of the matrices whose product is the machine's peak
LONG = 200  # episodes of the run whose checkpoint is timed
PEERS = ("torch==2.13.0", "stable-baselines3==2.9.2", "sbx-rl==0.28.0", "gymnasium[mujoco]==1.4.0", "mujoco<4")
LIBRARIES = ("rhucrl", "sbx", "sb3")


class Piece(NamedTuple):
    """Something to time: its name, the work, how many units of it that is, and the GFLOP of one."""

    name: str
    work: Callable[[], Any]
    per: float = 1.0
    gflop: float | None = None


def robot_sized(**given: Any) -> TrainConfig:
    """HalfCheetah with its own numbers, and only so many gradient steps as are timed."""
    return TrainConfig.preset("half-cheetah", **{"episodes": 10, "updates": UPDATES / 1000, **given})


def filled(replay: Replay, game: Game, rows: int, key: Any) -> Replay:
    """A replay with so many random transitions."""
    sizes = game.predicted_size, game.agent.size, game.adversary.size, game.predicted_size
    keys = jax.random.split(key, 4)
    new = Transitions(*(jax.random.normal(k, (rows, n)) for k, n in zip(keys, sizes, strict=True)))
    return store.add(replay, new, jnp.int32(rows), key)


class BenchSetup(NamedTuple):
    """A run that has seen some transitions, and what its solver is called with."""

    config: TrainConfig
    env: Any
    state: Any
    solver: AbstractSolver
    here: tuple[Any, Replay]
    numbers: Any


def setup(config: TrainConfig, rows: int) -> BenchSetup:
    env, key = env_of(config), jax.random.key(0)
    state = protocol.ModelBased(config).initial(env)
    state = state._replace(replay=filled(state.replay, env.game, rows, key))
    config, numbers = protocol.programs(config), protocol.numbers(config, 1)
    return BenchSetup(config, env, state, protocol.solver_of(config, env.game), (state.model, state.replay), numbers)


def problems(its: BenchSetup) -> list[tuple]:
    """What the actor-critic's two problems are solved with, the agent's and the response."""
    row, learner, one = ALGORITHMS[its.config.algo], its.state.learner, jnp.int32(1)
    roles = (learner.agent, Role(row.agent_eta, True, False)), (learner.response, Role(row.response_eta, True, True))
    rest = one, its.numbers, jax.random.key(0)
    return [(its.solver, *its.here, learner, problem, role, *rest) for problem, role in roles]


def robot_update(config: TrainConfig) -> tuple[Callable[[], Any], Callable[[], float]]:
    """Both problems of the actor-critic, and the GFLOP of one update of both."""
    its, solve = setup(config, 1000), cast(Any, pathwise.solve)
    calls = problems(its)
    work = lambda: sum(gflop(solve.trace(*call).jaxpr) for call in calls) / UPDATES  # noqa: E731
    return lambda: [solve(*call) for call in calls], work


def pendulum_update(config: TrainConfig) -> tuple[Callable[[], Any], Callable[[], float]]:
    """Both problems of the look-ahead solver with their pools, and the GFLOP of one update of both alone."""
    its, key = setup(config, 200), jax.random.key(0)
    game, learner, sign = its.env.game, its.state.learner, jnp.float32(1)
    adversary = adversary_candidates(game, True)

    def one(values: Any, points: Any) -> float:
        pool = value_iteration.rollouts(
            game, its.state.model, values.target, game.starts(key, config.solver.batch),
            lambda obs: jnp.broadcast_to(points, (*obs.shape[:-1], *points.shape)), adversary, sign, its.numbers,
            config.solver.model_steps, key,
        )  # fmt: skip
        rest = adversary, sign, its.numbers, config.solver.batch, 1, key
        step = jax.jit(lambda values, pool: value_iteration.improve(game, values, pool, *rest))
        return gflop(step.trace(values, pool).jaxpr)

    work = lambda: its.solver.improve(*its.here, learner, its.numbers, jax.random.split(key))  # noqa: E731
    points = agent_candidates(game.agent, config.solver.agent_points)
    return work, lambda: one(learner.agent, points) + one(learner.response, points[:1]) / 2  # it makes half as many


def pieces(folder: Path) -> list[Piece]:
    """What there is to time; all programs are compiled at their first call."""
    side = jax.random.normal(jax.random.key(0), (SIDE, SIDE))
    product = jax.jit(lambda a: a @ a)
    robot, robot_work = robot_update(robot_sized())
    plain, plain_work = robot_update(robot_sized(held=0, nobody=False))
    pendulum = TrainConfig.preset("pendulum", episodes=2)
    small, small_work = pendulum_update(pendulum)
    preset = setup(TrainConfig.preset("half-cheetah", episodes=12), 10_000)
    before = preset.config, preset.env, preset.state
    played = protocol.play(*before, False, jax.random.key(1))
    fit = lambda: protocol.learn(preset.config, preset.state, played, preset.numbers.beta, jax.random.key(2))  # noqa: E731
    long = protocol.ModelBased(TrainConfig.preset("half-cheetah", episodes=LONG)).initial(preset.env)
    lazy = lambda obs: jnp.zeros((*obs.shape[:-1], 1))  # noqa: E731
    arena = env_of(pendulum)
    return [
        Piece("matrix product, 1024 x 1024", lambda: product(side), gflop=2 * SIDE**3 / 1e9),
        Piece("update, half-cheetah", robot, UPDATES, robot_work()),
        Piece("update, half-cheetah, 1 lane", plain, UPDATES, plain_work()),
        Piece("update, pendulum", small, round(pendulum.solver.updates * arena.game.horizon), small_work()),
        Piece("fit, 1,000 of 11,000 transitions", fit, 11),
        Piece("episode, half-cheetah", lambda: protocol.play(*before, False, jax.random.key(1))),
        Piece(f"checkpoint of {LONG} episodes", lambda: save_tree(folder / "state", long)),
        Piece("attack by feedback, pendulum", lambda: worst_case(lazy, arena, only=("bang-bang",))),
    ]


def bench(rounds: int = ROUNDS, peers: bool = False, progress: ShowsProgress = SILENT) -> dict[str, Any]:
    """Every piece once to compile it, then all of them in turn, `rounds` times; medians."""
    with tempfile.TemporaryDirectory() as folder:
        progress.update(0, "compiling")
        work = pieces(Path(folder))
        spent: dict[str, list[float]] = {piece.name: [] for piece in work}
        for i in range(rounds + 1):
            for piece in work:
                progress.update(i, piece.name)
                clock = time.process_time()
                jax.block_until_ready(piece.work())
                if i:
                    spent[piece.name].append(time.process_time() - clock)
        rows = [{"piece": p.name, "cpu_ms": 1e3 * median(spent[p.name]) / p.per, "gflop": p.gflop} for p in work]
        peak = rows[0]["gflop"] / rows[0]["cpu_ms"] * 1e3
        for row in rows:
            if row["gflop"]:
                row["share_of_peak"] = row["gflop"] / row["cpu_ms"] * 1e3 / peak
        result: dict[str, Any] = {
            "machine": machine(), "rounds": rounds, "peak_gflops": peak, "pieces": rows,
            "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        }  # fmt: skip
        progress.update(rounds + 1, "starting up and compiling")
        result["starting"] = {name: cpu_of(command) for name, command in STARTS.items()}
        for name in ("cold", "warm"):
            result[f"compile_{name}"] = compile_times(Path(folder))
        if peers:
            result["peers"] = against_peers(rounds, progress)
    return result


STARTS = {
    "python": [sys.executable, "-c", "pass"],
    "import rhucrl": [sys.executable, "-c", "import rhucrl"],
    "rhucrl --help": [sys.executable, "-m", "rhucrl", "--help"],
}


def cpu_of(command: list[str]) -> float:
    """The CPU seconds of a process of its own, by the operating system's account."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise DiskError(f"{' '.join(command)} failed")
    return usage.ru_utime + usage.ru_stime


def compile_times(folder: Path) -> dict[str, float]:
    """CPU seconds that the first call of each of HalfCheetah's programs takes more than the second.

    In a process of its own, with its cache in `folder`.
    """
    command = [sys.executable, "-m", "rhucrl.experiments.bench"]
    environment = os.environ | {"XDG_CACHE_HOME": str(folder)}
    answer = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return json.loads(answer.stdout.splitlines()[-1])


def compile_here() -> dict[str, float]:
    from rhucrl.runtime.compilation import enable_cache

    enable_cache()
    its, key, seconds = setup(robot_sized(), 1000), jax.random.key(0), {}
    solve, (agent, response), learner = cast(Any, pathwise.solve), problems(its), its.state.learner
    played = protocol.play(its.config, its.env, its.state, True, key)
    programs: dict[str, Callable[[], Any]] = {
        "agent's problem": lambda: solve(*agent),
        "response": lambda: solve(*response),
        "bounds": lambda: its.solver.judge(*its.here, learner, its.state.last.policy, its.numbers, key),
        "fit": lambda: protocol.learn(its.config, its.state, played, its.numbers.beta, key),
    }
    for name, program in programs.items():
        clock = [time.process_time()]
        for _ in range(2):
            jax.block_until_ready(program())
            clock.append(time.process_time())
        seconds[name] = max(2 * clock[1] - clock[0] - clock[2], 0.0)
    return seconds


def against_peers(rounds: int, progress: ShowsProgress) -> list[dict[str, Any]]:
    """Environment steps per CPU second of SAC and PPO, each library in turn, with equal numbers and sizes."""
    python, script = peer_python(progress), str(Path(__file__).parent / "peer.py")
    kinds = [("sac", "Pendulum-v1", 1000, 1000), ("ppo", "Pendulum-v1", 1600, 8000)]
    speeds: dict[tuple[str, str, str], list[float]] = {}
    for i in range((rounds + 1) // 2):
        for algo, task, warm, steps in kinds:
            for library in LIBRARIES:
                progress.update(rounds + 1, f"{library} {algo}")
                options = {"algo": algo, "task": task, "library": library, "steps": steps, "warm": warm, "seed": i}
                who = sys.executable if library == "rhucrl" else str(python)
                command = [who, script, json.dumps(options | {"timing": True})]
                answer = subprocess.run(command, capture_output=True, text=True, check=False)
                if answer.returncode:
                    raise DiskError(f"{library}'s {algo} failed: {answer.stderr.splitlines()[-1]}")
                spent = json.loads(answer.stdout.splitlines()[-1])
                speeds.setdefault((algo, task, library), []).append(spent["steps"] / spent["cpu"])
    return [
        {"algo": algo, "task": task, "library": library, "steps_per_cpu_second": median(speed)}
        for (algo, task, library), speed in speeds.items()
    ]


def peer_python(progress: ShowsProgress) -> Path:
    """The Python of an environment that has the other libraries: RHUCRL_PEERS, or one made at the first call."""
    if chosen := os.environ.get("RHUCRL_PEERS"):
        return Path(chosen)
    folder = cache_folder().parent.parent / "peers"
    python = folder / "bin" / "python"
    if not (folder / "whole").exists():
        progress.update(0, f"installing {' '.join(PEERS)} in {folder}")
        for command in (
            [sys.executable, "-m", "venv", str(folder)],
            [str(python), "-m", "pip", "install", "-q", *PEERS],
        ):
            answer = subprocess.run(command, capture_output=True, text=True, check=False)
            if answer.returncode:
                raise DiskError(f"{' '.join(command)} failed: {answer.stderr.splitlines()[-1]}")
        (folder / "whole").touch()
    return python


def machine() -> dict[str, Any]:
    names = [line.split(":")[1].strip() for line in processors() if line.startswith("model name")]
    return {"processor": names[0] if names else platform.machine(), "cores": len(names) or os.cpu_count(),
            "python": platform.python_version(), "jax": jax.__version__}  # fmt: skip


if __name__ == "__main__":
    print(json.dumps(compile_here()))
