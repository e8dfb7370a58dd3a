"""Films of an episode: mp4 and gif, MuJoCo's robots with the adversary's forces as arrows, or the pendulum."""

from __future__ import annotations

import contextlib
import math
import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from rhucrl.envs.face import ZeroSumEnv
from rhucrl.errors import UsageError
from rhucrl.trees import absolute, explained

SIZE = 480
FRAMES_PER_SECOND = 25
ARROW = 0.025, 0.35, 0.008  # length per newton, largest length, width; in units of the distance
RED = (0.85, 0.15, 0.1, 1.0)

Policy = Callable[[Any], Any]
Adversary = Callable[[Any, Any], Any]


class Camera(Protocol):
    """What films a system, under the adversary's value."""

    def frame(self, adversary: np.ndarray) -> np.ndarray: ...


def record(
    env: ZeroSumEnv,
    policy: Policy,
    adversary: Adversary | None,
    path: str | Path,
    seed: int = 0,
    seconds: float = math.inf,
) -> tuple[Path, Path]:
    """Film one episode of `policy(obs)` against `adversary(obs, time)` (None: nobody) into an mp4 and a gif."""
    imageio = demand_imageio()
    frames: list[np.ndarray] = []
    dt = _seconds_per_step(env)
    stride = max(1, round(1 / (FRAMES_PER_SECOND * dt)))
    with _camera(env) as camera:
        for step, against in enumerate(_episode(env, policy, adversary, seed)):
            if step * dt > seconds:
                break
            if step % stride == 0:
                frames.append(camera.frame(against))
    path = absolute(path)
    files = path.with_suffix(".mp4"), path.with_suffix(".gif")
    speed = 1 / (stride * dt)
    with explained(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        with warnings.catch_warnings():  # the encoder is a process of its own, which JAX warns about
            warnings.filterwarnings("ignore", "os.fork", RuntimeWarning)
            imageio.mimwrite(files[0], frames, fps=speed, macro_block_size=1)
        imageio.mimwrite(files[1], frames, duration=1000 / speed, loop=0)
    return files


def film(policy: Any, env: ZeroSumEnv, against: str, output: Path, seed: int, seconds: float) -> tuple[Path, Path]:
    """Film a policy against nobody, the adversary that it learned with, its worst one, or one that was saved."""
    from rhucrl.evaluation.arena import Actor, bound

    act = Actor(policy, env)
    return record(env, act, bound(_opponent(policy, env, against, seed), env, act), output, seed, seconds)


def _opponent(policy: Any, env: ZeroSumEnv, against: str, seed: int) -> Any:
    import jax

    if against == "none":
        return None
    if against == "learned":
        if not hasattr(policy, "adversary"):
            raise UsageError("this policy has learned with nobody: choose --against none or --against worst")
        return jax.jit(policy.adversary)
    if against == "worst":
        from rhucrl.evaluation.attack import worst_case

        return worst_case(policy, env, "quick", seed).adversary
    from rhucrl.evaluation.attack import load_adversary

    return load_adversary(against)


def _episode(env: ZeroSumEnv, policy: Policy, adversary: Adversary | None, seed: int) -> Iterator[np.ndarray]:
    """Play; before the first step and after each, give what the adversary has done."""
    obs, _ = env.reset(seed=seed)
    if adversary is not None and env.game.scope == "episode":
        env.hold(adversary(obs, np.int32(0)))
    step, done = 0, False
    yield env.held
    while not done:
        against = env.neutral if adversary is None else np.asarray(adversary(obs, np.int32(step)))
        obs, _, terminated, truncated, _ = env.step({"agent": np.asarray(policy(obs)), "adversary": against})
        step, done = step + 1, terminated or truncated
        yield env.held if env.game.scope == "episode" else against


def _seconds_per_step(env: ZeroSumEnv) -> float:
    from rhucrl.envs.pendulum import DT

    inner = getattr(getattr(env.system, "simulator", None), "env", None)
    return DT if inner is None else float(getattr(inner.unwrapped, "dt", 1 / FRAMES_PER_SECOND))


@contextlib.contextmanager
def _camera(env: ZeroSumEnv) -> Iterator[Camera]:
    from rhucrl.envs.pendulum import Pendulum
    from rhucrl.envs.physics import is_mujoco

    inner = getattr(getattr(env.system, "simulator", None), "env", None)
    if isinstance(env.game, Pendulum):
        yield PendulumCamera(env)
    elif inner is not None and is_mujoco(inner):
        camera = MujocoCamera(inner)
        try:
            yield camera
        finally:
            camera.close()
    else:
        raise UsageError("only the pendulum and MuJoCo environments can be filmed: use gymnasium's RecordVideo")


class PendulumCamera:
    """The rod as a line; gravity as an arrow, mass as the thickness of the rod."""

    def __init__(self, env: ZeroSumEnv):
        self.env = env

    def frame(self, adversary: np.ndarray) -> np.ndarray:
        from PIL import Image, ImageDraw

        system: Any = self.env.system
        theta = float(system.state[0])
        gravity, mass = (float(x) for x in system.game.physics(adversary))
        image = Image.new("RGB", (SIZE, SIZE), "white")
        draw = ImageDraw.Draw(image)
        centre, length = SIZE / 2, SIZE * 0.4
        tip = (centre + length * math.sin(theta), centre - length * math.cos(theta))
        draw.line([(centre, centre), tip], fill=(60, 90, 160), width=round(14 * mass))
        draw.ellipse([centre - 8, centre - 8, centre + 8, centre + 8], fill=(30, 30, 30))
        foot = 40 + 80 * gravity
        draw.line([(40, 40), (40, foot)], fill=(215, 40, 25), width=4)
        draw.polygon([(32, foot), (48, foot), (40, foot + 14)], fill=(215, 40, 25))
        draw.text((56, 40), f"gravity {gravity:.2f}  mass {mass:.2f}", fill=(30, 30, 30))
        return np.asarray(image)


class MujocoCamera:
    """MuJoCo's offscreen renderer, the applied forces drawn as arrows."""

    def __init__(self, env: Any):
        from rhucrl.envs.physics import mujoco, mujoco_of

        self.mujoco, (self.model, self.data) = mujoco, mujoco_of(env)
        self.screen = _offscreen()
        self.screen.make_current()
        self.model.vis.global_.offwidth = max(self.model.vis.global_.offwidth, SIZE)
        self.model.vis.global_.offheight = max(self.model.vis.global_.offheight, SIZE)
        self.context = mujoco.MjrContext(self.model, mujoco.mjtFontScale.mjFONTSCALE_150.value)
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN.value, self.context)
        self.scene, self.view, self.options = mujoco.MjvScene(self.model, 1000), mujoco.MjvCamera(), mujoco.MjvOption()
        self.options.flags[mujoco.mjtVisFlag.mjVIS_PERTFORCE] = False
        mujoco.mjv_defaultFreeCamera(self.model, self.view)
        spread = np.linalg.norm(self.data.xipos[1:] - self.data.subtree_com[1], axis=-1).max()
        self.view.distance = 3 * (spread + 0.45)
        upright = self.model.jnt_axis[self.model.jnt_type == mujoco.mjtJoint.mjJNT_HINGE][:, 2]
        lies_flat = bool(upright.size) and np.abs(upright).mean() > 0.5
        self.view.elevation, self.view.azimuth = (-60 if lies_flat else -15), 90
        self.area, self.pixels = mujoco.MjrRect(0, 0, SIZE, SIZE), np.empty((SIZE, SIZE, 3), np.uint8)

    def frame(self, adversary: np.ndarray) -> np.ndarray:
        mujoco = self.mujoco
        self.view.lookat[:] = self.data.subtree_com[1]
        everything = mujoco.mjtCatBit.mjCAT_ALL.value
        mujoco.mjv_updateScene(self.model, self.data, self.options, None, self.view, everything, self.scene)
        for body in np.flatnonzero(np.abs(self.data.xfrc_applied[:, :3]).max(-1)):
            self._arrow(self.data.xipos[body], self.data.xfrc_applied[body, :3])
        mujoco.mjr_render(self.area, self.scene, self.context)
        mujoco.mjr_readPixels(self.pixels, None, self.area, self.context)
        return self.pixels[::-1].copy()

    def _arrow(self, at: np.ndarray, force: np.ndarray) -> None:
        mujoco, size = self.mujoco, float(np.linalg.norm(force))
        length, longest, width = (self.view.distance * part for part in ARROW)
        to = at + force / size * min(length * size, longest)
        geom = self.scene.geoms[self.scene.ngeom]
        kind, none = mujoco.mjtGeom.mjGEOM_ARROW, np.zeros(3)
        mujoco.mjv_initGeom(geom, kind, none, none, np.zeros(9), np.array(RED, np.float32))
        mujoco.mjv_connector(geom, kind, width, at, to)
        self.scene.ngeom += 1

    def close(self) -> None:
        self.context.free()
        self.screen.free()


def _offscreen() -> Any:
    """A place to draw without a screen: EGL, else OSMesa."""
    import importlib

    asked = os.environ.get("MUJOCO_GL", "").lower()
    reasons = []
    for kind in (asked,) if asked in ("egl", "osmesa") else ("egl", "osmesa"):
        os.environ["MUJOCO_GL"] = kind  # read when the context is made, not when MuJoCo is imported
        try:
            return importlib.import_module(f"mujoco.{kind}").GLContext(SIZE, SIZE)
        except Exception as error:
            reasons.append(f"{kind}: {type(error).__name__}")
    raise UsageError(
        f"nothing can draw without a screen here ({', '.join(reasons)}): install libegl1 and libegl-mesa0, or "
        "libosmesa6, and set MUJOCO_GL to egl or osmesa"
    )


def demand_imageio() -> Any:
    try:
        import imageio.v2
        import imageio_ffmpeg  # noqa: F401
    except ImportError as error:
        raise UsageError("films need imageio: pip install 'rhucrl[video]'") from error
    return imageio.v2
