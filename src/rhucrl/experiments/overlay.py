"""The words on a film: who plays against whom, the time, the return so far, and what the adversary does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from rhucrl.envs.zero_sum_env import ZeroSumEnv
from rhucrl.experiments.cameras import Moment, forces_of
from rhucrl.experiments.canvas import HEIGHT, MARGIN, WIDTH, Canvas, Dial, card_height
from rhucrl.experiments.style import COLOURS, number

BELOW = 12  # the card's distance from the frame's lower edge
MOST = 6  # dials of an action that has more entries


class Caption(NamedTuple):
    """Who plays against whom, and the policy's colour."""

    policy: str
    against: str
    colour: str


class Overlay:
    """The words of one film."""

    def __init__(self, env: ZeroSumEnv, caption: Caption):
        self.env, self.caption = env, caption
        self.options: dict[str, Any] = {"env": "pendulum", "setting": "none", "strength": 0.0, **env.game.options()}
        mixed = bool(self.options.get("mixture")) and self.options["strength"] > 0
        shades = {"agent": caption.colour, "adversary": COLOURS["adversary"], "executed": COLOURS["ink"]}
        self.legend = list(shades.items()) if mixed else []
        idle = np.zeros(env.boxes["agent"].shape)
        still = self.dials(Moment(0, 0.0, 0.0, idle, env.neutral, idle))
        self.floor = HEIGHT - BELOW - card_height(still, self.legend)

    def draw(self, canvas: Canvas, moment: Moment) -> None:
        caption, right = self.caption, WIDTH - MARGIN
        earned = canvas.text((right, 8), number(moment.gain), 24, COLOURS["ink"], True, "ra", halo=True)
        canvas.text((right - earned - 8, 17), "return", 12, COLOURS["soft"], anchor="ra", halo=True)
        clock = f"{moment.seconds:.2f} s, step {moment.step}" + (", ended" if moment.terminated else "")
        canvas.text((right, 40), clock, 12, COLOURS["soft"], anchor="ra", halo=True)
        at, room = float(MARGIN), WIDTH - 2 * MARGIN - 170
        if caption.policy:
            at += canvas.text((at, 10), caption.policy, 18, caption.colour, True, halo=True, width=room * 0.6)
        place = f" on {self.options['env']}" if caption.policy else self.options["env"]
        canvas.text((at, 10), place, 18, COLOURS["ink"], True, halo=True, width=room + MARGIN - at)
        canvas.text((MARGIN, 40), self._against(), 12, COLOURS["soft"], halo=True, width=room + 40)
        canvas.card(self.dials(moment), self.legend, HEIGHT - BELOW)

    def _against(self) -> str:
        """The adversary, and what it may do."""
        strength, setting, mixture = (self.options.get(name) for name in ("strength", "setting", "mixture"))
        if not strength:
            return self.caption.against
        if mixture:
            means = f"{'share' if mixture == 'noisy' else 'probability'} α = {strength:g} of its action"
        elif newtons := forces_of(self.env):
            means = f"up to {newtons:g} N along an axis"
        elif setting == "parameter":
            (low, *others), (high, *_) = self.env.boxes["adversary"].low, self.env.boxes["adversary"].high
            names = self._names(1 + len(others))
            means = f"{len(names)} values per episode" if others else f"{names[0]} from {low:.3g} to {high:.3g}"
        else:
            means = f"gravity and mass ± {strength:.0%}" if self._is_pendulum() else f"strength {strength:g}"
        return f"{self.caption.against}: {means}"

    def _is_pendulum(self) -> bool:
        from rhucrl.envs.pendulum import Pendulum

        return isinstance(self.env.game, Pendulum)

    def dials(self, moment: Moment) -> list[Dial]:
        rows = self._values(moment)
        if self.legend:
            return rows + self._mixed(moment)
        torque = float(moment.executed[0])
        bars = ((-torque / 2, COLOURS["torque"]),)  # the sign's side, as the arc
        return rows + ([Dial("torque", number(torque, 2), bars)] if self._is_pendulum() else [])

    def _values(self, moment: Moment) -> list[Dial]:
        """The values that the adversary has chosen, where arrows do not show them."""
        chooses = self.options["setting"] in ("adversarial", "parameter") and self.options["strength"]
        if not chooses or forces_of(self.env):
            return []
        names = self._names(len(moment.adversary))
        box, neutral = self.env.boxes["adversary"], self.env.neutral
        reach = np.maximum(np.maximum(box.high - neutral, neutral - box.low), 1e-6)
        rows = zip(names, moment.adversary, (moment.adversary - neutral) / reach, strict=True)
        shade = COLOURS["adversary"]
        return [Dial(name, number(value, 2), ((float(share), shade),)) for name, value, share in rows][:MOST]

    def _names(self, count: int) -> Sequence[str]:
        from rhucrl.envs.disturbances import Masses
        from rhucrl.envs.parameters import Parameters

        if self._is_pendulum():
            return ("relative gravity", "relative mass")[-count:]
        disturbance: Any = getattr(self.env.system, "disturbance", None)
        if isinstance(disturbance, Masses):
            return [f"relative mass of {body}" for body in disturbance.bodies]
        if isinstance(disturbance, Parameters):
            return [name.replace("_", " ") for name in disturbance.names]
        return [f"adversary {i + 1}" for i in range(count)]

    def _mixed(self, moment: Moment) -> list[Dial]:
        """Each entry of the action: what both players want, and what is executed."""
        box, (_, own), (_, other), _ = self.env.boxes["agent"], *self.legend
        units = [2 * (np.asarray(x) - box.low) / (box.high - box.low) - 1 for x in
                 (moment.action, moment.adversary, moment.executed)]  # fmt: skip
        names = ["torque"] if self._is_pendulum() else [f"action {i + 1}" for i in range(len(units[0]))]
        rows = zip(names, moment.executed, *units, strict=True)
        return [Dial(name, number(float(x), 2), ((float(a), own), (float(abar), other)), float(done))
                for name, x, a, abar, done in rows][:MOST]  # fmt: skip
