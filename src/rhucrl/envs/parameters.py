"""Physical parameters of MuJoCo models that an adversary may choose: one or several at once, each in a range.

`torso_mass=0.1:3, floor_friction=0.1:3` says which and how far, in MuJoCo's units; `torso_mass=0.5x:2x` in multiples
of the model's own value. Sets that others have published have names.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from rhucrl.envs.physics import body_of, joint_of, mujoco, mujoco_of, number_of
from rhucrl.errors import UsageError, unknown

NAMED: Mapping[str, Mapping[str, str]] = {
    "Hopper": {
        "rrls-2": "floor_friction=0.1:3, torso_mass=0.1:3",
        "rrls-3": "floor_friction=0.1:3, torso_mass=0.1:3, thigh_mass=0.1:4",
    },
    "Walker2d": {
        "rrls-2": "floor_friction=0.1:4, torso_mass=0.1:5",
        "rrls-3": "floor_friction=0.1:4, torso_mass=0.1:5, thigh_mass=0.1:6",
    },
    "HalfCheetah": {
        "rrls-2": "floor_friction=0.1:4, torso_mass=0.1:7",
        "rrls-3": "floor_friction=0.1:4, torso_mass=0.1:7, bthigh_mass=0.1:3",
    },
    "InvertedPendulum": {"rrls-2": "pole_mass=1:31, cart_mass=1:11"},
    "Ant": {
        "rrls-2": "torso_mass=0.1:3, front_left_leg_mass=0.01:3",
        "rrls-3": "torso_mass=0.1:3, front_left_leg_mass=0.01:3, front_right_leg_mass=0.01:3",
    },
    "HumanoidStandup": {
        "rrls-2": "torso_mass=0.1:16, right_foot_mass=0.1:8",
        "rrls-3": "torso_mass=0.1:16, right_foot_mass=0.1:5, right_thigh_mass=0.1:8",
    },
}
"""The boxes of RRLS, which are those of M2TD3 (Tanabe et al. 2022), by Gymnasium's name of the robot."""

FORM = re.compile(r"\s*([A-Za-z]\w*)\s*=\s*([^:x\s]+)(x?)\s*:\s*([^:x\s]+)(x?)\s*")


class Parameter(NamedTuple):
    """One parameter and its range: in MuJoCo's units, or as a multiple of the model's own value."""

    name: str
    low: float
    high: float
    relative: bool


class Place(NamedTuple):
    """Where a value is written: rows of an array of the model."""

    array: np.ndarray
    rows: Any
    sign: float = 1.0


def parsed(text: str) -> tuple[Parameter, ...]:
    """The parameters of `NAME=LOW:HIGH, ...`."""
    found = []
    for part in filter(str.strip, text.split(",")):
        match = FORM.fullmatch(part)
        try:
            if match is None:
                raise ValueError
            name, low, low_unit, high, high_unit = match.groups()
            least, most = float(low), float(high)
        except ValueError:
            raise UsageError(
                f"{part.strip()!r} is no parameter: write NAME=LOW:HIGH, such as torso_mass=0.1:3"
            ) from None
        if low_unit != high_unit:
            raise UsageError(f"{part.strip()!r} mixes a value and a multiple: write both ends with x, or none")
        if not 0 <= least < most < math.inf:
            raise UsageError(f"{part.strip()!r} is no range: both ends are finite, and 0 <= LOW < HIGH")
        found.append(Parameter(name, least, most, bool(low_unit)))
    if weightless := [p.name for p in found if p.name.endswith(("_mass", "_density")) and not p.low]:
        raise UsageError(f"{weightless[0]} begins at 0, and no body moves without a mass: choose a LOW above 0")
    names = [re.sub("_density$", "_mass", parameter.name) for parameter in found]  # which would both set the mass
    if twice := {name for name in names if names.count(name) > 1}:
        raise UsageError(f"{sorted(twice)[0]} is given twice: give it one range (a density sets the mass, too)")
    if not found:
        raise UsageError("no parameter is given: write NAME=LOW:HIGH, such as torso_mass=0.1:3")
    return tuple(found)


class Parameters:
    """Parameters of a model, chosen by the adversary in a box; the model's own values change nothing.

    `BODY_mass` (its inertia unchanged), `BODY_density` (mass and inertia, always a multiple), `GEOM_friction`
    (sliding), `JOINT_damping`, `JOINT_gain` (of the motors that drive it), and `gravity`. Where the model's own value
    lies outside of a range, the nearest one in it stands for it.
    """

    def __init__(self, text: str, env: gym.Env | None = None):
        self.text = text
        self._model: Any = None
        if env is not None:
            self.meet(env)

    def meet(self, env: gym.Env) -> None:
        """Find the parameters in an environment's model, which also says what a set's name means."""
        model, _ = mujoco_of(env)
        self.parameters = parsed(spelled(self.text, env))
        self._places = [places(model, parameter) for parameter in self.parameters]
        self._own = [[place.array[place.rows].copy() for place in group] for group in self._places]
        self._model, self._scratch = model, mujoco.MjData(model)
        low, high = (np.array([getattr(p, end) for p in self.parameters]) for end in ("low", "high"))
        nominal = np.array([nominal_of(*row) for row in zip(self.parameters, self._places, strict=True)])
        self.box, self.neutral = (low, high), np.clip(nominal, low, high)
        self._same = np.where(nominal == self.neutral, np.float32(nominal), np.nan)  # as an adversary's action says it
        self._current: np.ndarray | None = None

    @property
    def names(self) -> list[str]:
        return [parameter.name for parameter in self.parameters]

    def apply(self, env: gym.Env, value: np.ndarray) -> None:
        if mujoco_of(env)[0] is not self._model:
            self.meet(env)
        value = np.asarray(value, float)
        if self._current is not None and np.array_equal(value, self._current):
            return
        for parameter, group, own, wanted, same in zip(
            self.parameters, self._places, self._own, value, self._same, strict=True
        ):
            for place, before in zip(group, own, strict=True):
                new = before * wanted if parameter.relative else np.full_like(before, place.sign * wanted)
                place.array[place.rows] = before if np.float32(wanted) == same else new
        mujoco.mj_setConst(self._model, self._scratch)  # what contacts depend on; on the live data it would move qpos
        self._current = value.copy()


def spelled(text: str, env: gym.Env) -> str:
    """The ranges that a set's name stands for, or what was written."""
    if "=" in text:
        return text
    spec = env.unwrapped.spec
    robot = "" if spec is None else spec.id.split("-")[0]
    sets = NAMED.get(robot, {})
    if text.strip() not in sets:
        if not sets:
            raise UsageError(f"{robot or 'this environment'} has no named sets: write NAME=LOW:HIGH, ...")
        raise unknown("set of parameters", text.strip(), sets)
    return sets[text.strip()]


def places(model: Any, parameter: Parameter) -> list[Place]:
    """Where a parameter is in a model."""
    thing, _, kind = parameter.name.rpartition("_")
    if parameter.name == "gravity":
        return [Place(model.opt.gravity, slice(2, 3), -1.0)]
    if kind not in KINDS or not thing:
        forms = ", ".join(f"NAME_{kind}" for kind in KINDS)
        raise UsageError(f"{parameter.name!r} is no parameter: choose among {forms} and gravity")
    if kind == "density" and not parameter.relative:
        raise UsageError(
            f"{parameter.name} is a multiple: write {parameter.name}={parameter.low:g}x:{parameter.high:g}x"
        )
    return KINDS[kind](model, thing)


def nominal_of(parameter: Parameter, group: Sequence[Place]) -> float:
    """The value that changes nothing."""
    own = group[0].sign * np.asarray(group[0].array[group[0].rows]).ravel()
    if parameter.relative and not own.any():
        raise UsageError(f"{parameter.name} is 0 in this model, and so are its multiples: give the range without x")
    return 1.0 if parameter.relative else float(own[0])


def _gains(model: Any, joint: str) -> list[Place]:
    """The gears of the motors that drive a joint."""
    drives = (model.actuator_trntype == int(mujoco.mjtTrn.mjTRN_JOINT)) & (
        model.actuator_trnid[:, 0] == joint_of(model, joint)
    )
    if not drives.any():
        raise UsageError(f"no motor drives the joint {joint!r}: choose another joint for its gain")
    return [Place(model.actuator_gear, (np.flatnonzero(drives), 0))]


def _friction(model: Any, geom: str) -> list[Place]:
    return [Place(model.geom_friction, ([number_of(model, "geom", geom)], 0))]


def _mass(model: Any, body: str) -> list[Place]:
    return [Place(model.body_mass, [body_of(model, body)])]


KINDS: dict[str, Callable[[Any, str], list[Place]]] = {
    "mass": _mass,
    "density": lambda model, body: [*_mass(model, body), Place(model.body_inertia, [body_of(model, body)])],
    "friction": _friction,
    "damping": lambda model, joint: [Place(model.dof_damping, [model.jnt_dofadr[joint_of(model, joint)]])],
    "gain": _gains,
}
