"""Films of an episode: mp4 and gif, MuJoCo's robots with the adversary's forces as arrows, or the pendulum."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from rhucrl.envs.zero_sum_env import ZeroSumEnv
from rhucrl.errors import UsageError
from rhucrl.experiments.cameras import Moment, camera_of, simulated
from rhucrl.experiments.figures import label
from rhucrl.experiments.overlay import Caption, Overlay
from rhucrl.experiments.style import algorithm_colour, number
from rhucrl.play import steps
from rhucrl.runtime.progress import SILENT, Progress, ShowsProgress
from rhucrl.storage.trees import absolute, explained

FRAMES_PER_SECOND = 25
PAUSE = 1.0  # seconds that the last frame is held

Policy = Callable[[Any], Any]
Adversary = Callable[[Any, Any], Any]
OPPONENTS = {
    "none": "without an adversary",
    "learned": "against the adversary it learned with",
    "worst": "against the worst adversary of a quick attack",
}


def record(
    env: ZeroSumEnv, policy: Policy, adversary: Adversary | None, path: str | Path, seed: int = 0,
    seconds: float = math.inf, *, name: str = "", against: str | None = None, algorithm: str = "",
    progress: ShowsProgress = SILENT,
) -> tuple[Path, Path]:  # fmt: skip
    """Film one episode of `policy(obs)` against `adversary(obs, time)` (None: nobody) into an mp4 and a gif.

    `name` and `against` are words on the film, `algorithm` chooses its colour; `progress.update(n, text)` is told how
    many steps are done.
    """
    imageio = demand_imageio()
    against = against or (OPPONENTS["none"] if adversary is None else "against an adversary")
    env = env.at(0.0) if adversary is None else env  # nobody takes no share of the action either
    caption = Caption(name, against, algorithm_colour(algorithm))
    dt = _seconds_per_step(env)
    stride = max(1, round(1 / (FRAMES_PER_SECOND * dt)))
    path = absolute(path)
    files = path.with_suffix(".mp4"), path.with_suffix(".gif")
    speed = 1 / (stride * dt)
    pause = round(PAUSE * speed)
    gif: list[Any] = []
    with explained(path.parent), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "os.fork", RuntimeWarning)  # JAX warns about the encoder, a process
        path.parent.mkdir(parents=True, exist_ok=True)
        with imageio.get_writer(files[0], fps=speed, quality=8, macro_block_size=1) as mp4:
            frame = np.zeros(0)
            for frame in _frames(env, policy, adversary, caption, seed, seconds, dt, stride, progress):
                mp4.append_data(frame)
                gif.append(Image.fromarray(frame).quantize(256, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE))
            for _ in range(pause):
                mp4.append_data(frame)
        each = round(1000 / speed)
        durations = [each] * (len(gif) - 1) + [each * (1 + pause)]
        gif[0].save(files[1], save_all=True, append_images=gif[1:], duration=durations, loop=0)
    return files


def film(
    policy: Any, env: ZeroSumEnv, against: str, output: Path, seed: int, seconds: float, name: str = ""
) -> tuple[Path, Path]:
    """Film a policy against nobody, the adversary that it learned with, its worst one, or one that was saved."""
    from rhucrl.attacks.arena import Actor, bound

    algorithm = getattr(getattr(policy, "config", None), "algo", "")
    opponent = _opponent(policy, env, against, seed)
    act = Actor(policy, env)
    act.reset()
    steps = min(env.game.horizon, math.ceil(seconds / _seconds_per_step(env)))
    with Progress(steps, f"film {output.name}") as progress:
        return record(
            env, act, bound(opponent, env, act), output, seed, seconds,
            name=label(algorithm) or name, against=OPPONENTS.get(against) or f"against {Path(against).name}",
            algorithm=algorithm, progress=progress,
        )  # fmt: skip


def _opponent(policy: Any, env: ZeroSumEnv, against: str, seed: int) -> Any:
    import jax

    from rhucrl.attacks.battery import learned_with_somebody
    from rhucrl.attacks.worst_case import load_adversary, rounds, worst_case

    if against == "none":
        return None
    if against == "learned":
        if not learned_with_somebody(policy):
            raise UsageError("this policy has learned with nobody: choose --against none or --against worst")
        return jax.jit(policy.adversary)
    if against == "worst":
        with Progress(rounds(policy, env, "quick"), "search for the worst adversary") as progress:
            return worst_case(policy, env, "quick", seed, progress).adversary
    return load_adversary(against)


def _frames(
    env: ZeroSumEnv, policy: Policy, adversary: Adversary | None, caption: Caption, seed: int, seconds: float,
    dt: float, stride: int, progress: ShowsProgress,
) -> Iterator[np.ndarray]:  # fmt: skip
    """Every `stride`-th moment of an episode, and its end."""
    overlay = Overlay(env, caption)
    episode = _episode(env, policy, adversary, seed, dt)
    first = next(episode)  # the camera looks at the start
    with camera_of(env, caption.colour, overlay.floor) as camera:
        for moment in itertools.chain([first], episode):
            if moment.seconds > seconds:
                break
            if moment.step % stride == 0 or moment.terminated:
                canvas = camera.picture(moment)
                overlay.draw(canvas, moment)
                yield canvas.pixels()
            progress.update(moment.step, f"return {number(moment.gain)}")


def _episode(env: ZeroSumEnv, policy: Policy, adversary: Adversary | None, seed: int, dt: float) -> Iterator[Moment]:
    """Play: the start, and the moment after every step."""
    box, idle = env.boxes["adversary"], np.zeros(env.boxes["agent"].shape)

    def answer(obs: np.ndarray) -> np.ndarray:
        return env.neutral if adversary is None else np.asarray(adversary(obs, np.int32(env.time or 0)))

    start, _ = env.reset(seed=seed)
    moment = Moment(0, 0.0, 0.0, idle, answer(start) if env.once else env.neutral, idle)
    yield moment
    for time, step in enumerate(steps(env, lambda obs: np.asarray(policy(obs)), answer, seed), 1):
        against, executed = np.clip(step.adversary, box.low, box.high), np.asarray(step.executed)
        moment = Moment(time, time * dt, moment.gain + step.reward, step.action, against, executed, step.terminated)
        yield moment


def _seconds_per_step(env: ZeroSumEnv) -> float:
    from rhucrl.envs.pendulum import DT

    inner = simulated(env)
    return DT if inner is None else float(getattr(inner.unwrapped, "dt", 1 / FRAMES_PER_SECOND))


def demand_imageio() -> Any:
    try:
        import imageio.v2
        import imageio_ffmpeg  # noqa: F401
    except ImportError as error:
        raise UsageError("films need imageio: pip install 'rhucrl[video]'") from error
    return imageio.v2
