"""What films a system: the pendulum as the page draws it, and MuJoCo's robots with the applied forces as arrows."""

from __future__ import annotations

import contextlib
import copy
import itertools
import math
import os
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from PIL import Image, ImageColor

from rhucrl.envs.zero_sum_env import ZeroSumEnv
from rhucrl.errors import UsageError
from rhucrl.experiments.canvas import HEIGHT, MARGIN, SHARP, WIDTH, Canvas, Point, blend
from rhucrl.experiments.style import COLOURS, number

TOP = 64  # the height of the words above the picture
LONGEST = 0.18  # length of the arrow of a force of full strength, in units of the distance
FAINTEST = 0.005  # share of that force below which there is no arrow
LABEL = 16  # from an arrow's head to its newtons
FOG = 1.5, 6.0  # distances between which the floor fades away
TRAIL = 13  # steps that the pendulum's trail lasts
VEIL, FADE = 0.12, 14.0  # what is seen through the words' ground, and the height of its edge
FLOOR = "rule", "grid"  # colours of its dark and light parts
LIGHT = 0.3  # of the headlight, and of all lamps of the model; the rest comes from everywhere


class Moment(NamedTuple):
    """A moment of an episode: what has just been done, and what has been earned until now."""

    step: int
    seconds: float
    gain: float
    action: np.ndarray
    adversary: np.ndarray
    executed: np.ndarray
    terminated: bool = False


@contextlib.contextmanager
def camera_of(env: ZeroSumEnv, colour: str, floor: float) -> Iterator[PendulumCamera | MujocoCamera]:
    """What films an environment; the policy's colour is `colour`, and below `floor` there are words."""
    from rhucrl.envs.pendulum import Pendulum
    from rhucrl.envs.physics import is_mujoco

    inner = simulated(env)
    if isinstance(env.game, Pendulum):
        yield PendulumCamera(env, colour, floor)
    elif inner is not None and is_mujoco(inner):
        camera = MujocoCamera(inner, forces_of(env), floor)
        try:
            yield camera
        finally:
            camera.close()
    else:
        raise UsageError("only the pendulum and MuJoCo environments can be filmed: use gymnasium's RecordVideo")


def simulated(env: ZeroSumEnv) -> Any:
    """The Gymnasium environment inside, if there is one."""
    return getattr(getattr(env.system, "simulator", None), "env", None)


def forces_of(env: ZeroSumEnv) -> float:
    """The largest force of an adversary whose actions are newtons, else 0."""
    from rhucrl.envs.disturbances import Forces

    push = isinstance(getattr(env.system, "disturbance", None), Forces)
    return float(np.abs(env.boxes["adversary"].high).max()) if push else 0.0


class PendulumCamera:
    """The page's pendulum: gravity is an arrow, mass the thickness of the rod, the torque an arc at the pivot."""

    def __init__(self, env: ZeroSumEnv, colour: str, floor: float):
        self.env, self.colour, self.angles = env, colour, []
        self.centre, self.length = (WIDTH / 2, (TOP + floor) / 2), 0.4 * (floor - TOP)

    def picture(self, moment: Moment) -> Canvas:
        system: Any = self.env.system
        self.angles.append(float(system.state[0]))
        gravity, mass = (float(x) for x in system.game.physics(moment.adversary))
        (x, y), length, canvas = self.centre, self.length, Canvas()
        canvas.arc(self.centre, length, 0, 2 * math.pi, COLOURS["rule"], 1.5)
        canvas.dashes((x, y - 0.4 * length), (x, y - 1.14 * length), COLOURS["faint"], 1.2)
        self._trail(canvas)
        end = self._tip(self.angles[-1])
        canvas.line([self.centre, end], self.colour, max(6, 0.13 * length * mass))
        middle = (x + end[0]) / 2, (y + end[1]) / 2
        canvas.arrow(middle, (middle[0], middle[1] + 0.42 * length * gravity**2), COLOURS["ink"], 2.2, COLOURS["card"])
        self._torque(canvas, 0.27 * length, float(moment.executed[0]))
        canvas.disc(self.centre, max(3, 0.035 * length), COLOURS["ink"])
        return canvas

    def _tip(self, angle: float) -> Point:
        (x, y), length = self.centre, self.length
        return x - length * math.sin(angle), y - length * math.cos(angle)

    def _trail(self, canvas: Canvas) -> None:
        recent = self.angles[-TRAIL - 1 :]
        fine = np.interp(np.arange(0, len(recent) - 0.9, 0.2), np.arange(len(recent)), recent)
        for i, (one, other) in enumerate(itertools.pairwise(fine)):
            shade = blend(self.colour, COLOURS["page"], 0.35 * (1 - (len(fine) - i) / (5 * TRAIL + 2)))
            canvas.line([self._tip(one), self._tip(other)], shade, 5, round_ends=False)

    def _torque(self, canvas: Canvas, radius: float, torque: float) -> None:
        if abs(torque) < 0.02:
            return
        start, sweep = -math.pi / 2, -1.15 * torque
        end, shade = start + sweep, COLOURS["torque"]
        canvas.arc(self.centre, radius, start, end, shade, max(3, radius / 9))
        point = self.centre[0] + radius * math.cos(end), self.centre[1] + radius * math.sin(end)
        canvas.head(point, end + math.copysign(math.pi / 2, sweep), max(9, radius / 3), shade)


class MujocoCamera:
    """MuJoCo's offscreen renderer on a light ground; forces are drawn over the picture, in front of everything.

    Lights and colours are those of a copy: the user's model stays as it is.
    """

    def __init__(self, env: Any, full: float, floor: float):
        from rhucrl.envs.physics import mujoco, mujoco_of

        self.mujoco, (model, self.data) = mujoco, mujoco_of(env)
        self.model, self.full = copy.copy(model), full
        upright = model.jnt_axis[model.jnt_type == mujoco.mjtJoint.mjJNT_HINGE][:, 2]
        lies_flat = bool(upright.size) and np.abs(upright).mean() > 0.5
        tilt = np.radians(60 if lies_flat else 15)
        patterned = self._restyle(np.sin(tilt))
        self.screen = offscreen()
        self.screen.make_current()
        self.context = mujoco.MjrContext(self.model, mujoco.mjtFontScale.mjFONTSCALE_150.value)
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN.value, self.context)
        self.scene, self.view, self.options = mujoco.MjvScene(self.model, 1000), mujoco.MjvCamera(), mujoco.MjvOption()
        self.options.flags[mujoco.mjtVisFlag.mjVIS_PERTFORCE] = False
        for flag in ("SKYBOX", "HAZE", "REFLECTION", "SHADOW"):
            self.scene.flags[getattr(mujoco.mjtRndFlag, f"mjRND_{flag}")] = False
        mujoco.mjv_defaultFreeCamera(self.model, self.view)
        spread = np.linalg.norm(self.data.xipos[1:] - self.data.subtree_com[1], axis=-1).max()
        size = spread + min(0.45, self.model.geom_rbound.max())  # a plane's is 0
        self.view.distance = 3.3 * size * (HEIGHT - TOP) / (floor - TOP)
        self.view.elevation, self.view.azimuth = -np.degrees(tilt), 90
        low, lens = (TOP + floor - HEIGHT) / HEIGHT, np.tan(np.radians(self.model.vis.global_.fovy / 2))
        self.raised = low * lens * self.view.distance * np.array([0, np.sin(tilt), np.cos(tilt)])  # for the words' sake
        self.view.lookat[:] = self.data.subtree_com[1] + self.raised
        self.leash = 0.0 if patterned else 0.35 * self.view.distance  # without a pattern only a still camera tells
        self.area = mujoco.MjrRect(0, 0, WIDTH * SHARP, HEIGHT * SHARP)
        self.pixels = np.empty((HEIGHT * SHARP, WIDTH * SHARP, 3), np.uint8)
        self.depth = np.empty((HEIGHT * SHARP, WIDTH * SHARP), np.float32)
        above = np.arange(HEIGHT * SHARP, 0, -1, dtype=np.float32)[:, None] / SHARP
        self.shown = np.clip((above - TOP) / FADE, VEIL, 1)  # words stand on a veil

    def _restyle(self, steep: float) -> bool:
        """Soft light and a light floor, seen at an angle of this sine; whether the floor has a pattern."""
        model, mujoco = self.model, self.mujoco
        model.vis.global_.offwidth, model.vis.global_.offheight = WIDTH * SHARP, HEIGHT * SHARP
        model.vis.quality.offsamples = 0  # edges become smooth when the picture is reduced
        head = model.vis.headlight
        lamps = LIGHT if model.nlight else 0.0
        around = 0.85 - lamps
        head.ambient[:], head.diffuse[:], head.specular[:] = around, LIGHT, 0.1
        model.light_ambient[:], model.light_diffuse[:], model.light_specular[:] = 0, lamps / max(1, model.nlight), 0.1
        lit = min(1.0, around + lamps + LIGHT * steep)  # what the floor's colours will be multiplied with
        patterned, (dark, light) = False, (np.array(ImageColor.getrgb(COLOURS[name])) / lit for name in FLOOR)
        for floor in np.flatnonzero(model.geom_type == mujoco.mjtGeom.mjGEOM_PLANE):
            material = model.geom_matid[floor]
            textures = set(model.mat_texid[material].tolist()) - {-1} if material >= 0 else set()
            model.geom_rgba[floor, :3] = 1 if textures else light / 255
            model.mat_specular[material if material >= 0 else []] = 0
            for texture in textures:
                begin, channels = model.tex_adr[texture], model.tex_nchannel[texture]
                size = model.tex_height[texture] * model.tex_width[texture] * channels
                part = model.tex_data[begin : begin + size].reshape(-1, channels)
                bright = part[:, :3].mean(-1, keepdims=True)
                part[:, :3] = np.minimum(255, dark + (light - dark) * bright / max(1, bright.max()))
            patterned = patterned or bool(textures)
        return patterned

    def picture(self, moment: Moment) -> Canvas:
        mujoco, (near, far) = self.mujoco, FOG
        self._follow()
        everything = mujoco.mjtCatBit.mjCAT_ALL.value
        mujoco.mjv_updateScene(self.model, self.data, self.options, None, self.view, everything, self.scene)
        mujoco.mjr_render(self.area, self.scene, self.context)
        mujoco.mjr_readPixels(self.pixels, self.depth, self.area, self.context)
        eye = self.scene.camera[0]
        away = eye.frustum_near / (1 - self.depth * (1 - eye.frustum_near / eye.frustum_far)) / self.view.distance
        seen = (255 * self.shown * np.clip((far - away) / (far - near), 0, 1)).astype(np.uint8)
        canvas = Canvas(Image.fromarray(self.pixels[::-1]), Image.fromarray(seen[::-1]))
        forces = self.data.xfrc_applied[:, :3]
        sizes = np.linalg.norm(forces, axis=-1)
        self.full = max(self.full, float(sizes.max()))
        for body in np.flatnonzero(sizes > FAINTEST * self.full):
            self._arrow(canvas, self.data.xipos[body], forces[body], float(sizes[body]))
        return canvas

    def _follow(self) -> None:
        """Keep the robot within the leash."""
        drift = self.data.subtree_com[1] + self.raised - self.view.lookat
        if (length := float(np.linalg.norm(drift))) > self.leash:
            self.view.lookat[:] += drift * (1 - self.leash / length)

    def _arrow(self, canvas: Canvas, at: np.ndarray, force: np.ndarray, size: float) -> None:
        begin = self._projected(at)
        end = self._projected(at + force / self.full * LONGEST * self.view.distance)
        canvas.arrow(begin, end, COLOURS["adversary"], 5, COLOURS["card"])
        canvas.disc(begin, 4.5, COLOURS["adversary"])  # all that is seen of a force along the line of sight
        angle = math.atan2(end[1] - begin[1], end[0] - begin[0])
        words = f"{number(size, 1)} N"
        x, y = end[0] + (LABEL + 12) * math.cos(angle), end[1] + LABEL * math.sin(angle)
        inside = min(max(x, 30 + MARGIN), WIDTH - 30 - MARGIN), min(max(y, TOP + 10), HEIGHT - MARGIN)
        canvas.text(inside, words, 13, COLOURS["adversary"], bold=True, anchor="mm", halo=True)

    def _projected(self, at: np.ndarray) -> Point:
        """Where a point of the world is in the frame."""
        eye = self.scene.camera[0]
        forward, up = np.array(eye.forward), np.array(eye.up)
        x, y, z = np.stack([np.cross(forward, up), up, forward]) @ (at - np.array(eye.pos))
        scale = HEIGHT / 2 * eye.frustum_near / eye.frustum_top / max(z, eye.frustum_near)
        return WIDTH / 2 + float(x * scale), HEIGHT / 2 - float(y * scale)

    def close(self) -> None:
        self.context.free()
        self.screen.free()


def offscreen() -> Any:
    """A place to draw without a screen: EGL, else OSMesa."""
    import importlib

    asked = os.environ.get("MUJOCO_GL", "").lower()
    reasons = []
    for kind in (asked,) if asked in ("egl", "osmesa") else ("egl", "osmesa"):
        os.environ["MUJOCO_GL"] = kind  # read when the context is made, not when MuJoCo is imported
        try:
            return importlib.import_module(f"mujoco.{kind}").GLContext(WIDTH * SHARP, HEIGHT * SHARP)
        except Exception as error:
            reasons.append(f"{kind}: {type(error).__name__}")
    raise UsageError(
        f"nothing can draw without a screen here ({', '.join(reasons)}): install libegl1 and libegl-mesa0, or "
        "libosmesa6, and set MUJOCO_GL to egl or osmesa"
    )
