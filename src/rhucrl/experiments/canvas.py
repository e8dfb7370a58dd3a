"""What a film's frame is drawn with: Pillow in the page's look.

Everything is drawn twice as large and reduced in the end, which makes its edges smooth. Lengths are in the frame's
pixels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from PIL import Image, ImageColor, ImageDraw

from rhucrl.experiments.style import COLOURS, font

WIDTH, HEIGHT = 640, 480
SHARP = 2  # how much larger everything is drawn
MARGIN = 16
DIAL = 34  # the height of a row of dials
ACROSS = 3  # dials in a row
LEGEND = 18

Point = tuple[float, float]


class Dial(NamedTuple):
    """A value beside its name, with bars from the centre of its range; all places are in [-1, 1]."""

    name: str
    text: str
    bars: tuple[tuple[float, str], ...]
    """Where each bar ends, and its colour."""
    tick: float | None = None


def blend(colour: str, ground: str, share: float) -> tuple[int, ...]:
    """`share` of a colour over another one."""
    one, other = (np.array(ImageColor.getrgb(name), float) for name in (colour, ground))
    return tuple(int(x) for x in (other + share * (one - other)).round())


class Canvas:
    """A frame that is being drawn, on a picture of `SHARP` times its size where `mask` lets it through."""

    def __init__(self, picture: Image.Image | None = None, mask: Image.Image | None = None):
        self.image = Image.new("RGB", (WIDTH * SHARP, HEIGHT * SHARP), COLOURS["page"])
        if picture is not None:
            self.image.paste(picture, mask=mask)
        self._draw = ImageDraw.Draw(self.image)

    def pixels(self) -> np.ndarray:
        return np.asarray(self.image.reduce(SHARP))

    def text(self, at: Point, words: str, size: int, colour: Any, bold: bool = False, anchor: str = "la",
             halo: bool = False, width: float = math.inf) -> float:  # fmt: skip
        """Write words, smaller if they are wider than `width`; returns how wide they are."""
        type_ = font(size * SHARP, bold)
        while size > 8 and type_.getlength(words) > width * SHARP:
            size -= 1
            type_ = font(size * SHARP, bold)
        around = {"stroke_width": 2 * SHARP, "stroke_fill": COLOURS["page"]} if halo else {}
        self._draw.text(_large(at), words, colour, type_, anchor, **around)
        return type_.getlength(words) / SHARP

    def line(self, points: Sequence[Point], colour: Any, width: float, round_ends: bool = True) -> None:
        large = [_large(point) for point in points]
        self._draw.line(large, colour, max(1, round(width * SHARP)), "curve")
        for end in (points[0], points[-1]) if round_ends else ():
            self.disc(end, width / 2, colour)

    def dashes(self, begin: Point, end: Point, colour: Any, width: float, on: float = 3, off: float = 5) -> None:
        length = math.dist(begin, end)
        for at in np.arange(0, length, on + off):
            ends = [(begin[0] + (end[0] - begin[0]) * s / length, begin[1] + (end[1] - begin[1]) * s / length)
                    for s in (at, min(at + on, length))]  # fmt: skip
            self.line(ends, colour, width, round_ends=False)

    def disc(self, centre: Point, radius: float, colour: Any) -> None:
        self._draw.ellipse(_around(centre, radius), fill=colour)

    def arc(self, centre: Point, radius: float, start: float, end: float, colour: Any, width: float) -> None:
        """Part of a circle; angles in radians, clockwise from the right."""
        first, last = sorted((math.degrees(start), math.degrees(end)))
        self._draw.arc(_around(centre, radius + width / 2), first, last, colour, round(width * SHARP))

    def head(self, at: Point, angle: float, size: float, colour: Any) -> None:
        """The head of an arrow."""
        cos, sin = math.cos(angle), math.sin(angle)
        corners = (0.9, 0.0), (-0.4, -0.65), (-0.4, 0.65)
        self._draw.polygon(
            [_large((at[0] + size * (x * cos - y * sin), at[1] + size * (x * sin + y * cos))) for x, y in corners],
            colour,
        )

    def arrow(self, begin: Point, end: Point, colour: Any, width: float, halo: Any) -> None:
        """An arrow with a halo, to be seen on everything."""
        angle, length = math.atan2(end[1] - begin[1], end[0] - begin[0]), math.dist(begin, end)
        size = min(6 + 2 * width, 0.9 * length)
        tip = end[0] - 0.9 * size * math.cos(angle), end[1] - 0.9 * size * math.sin(angle)
        for shade, more in ((halo, 2.0), (colour, 0.0)):
            self.line([begin, tip], shade, width + 2 * more)
            self.head(tip, angle, size + 2 * more, shade)

    def card(self, dials: Sequence[Dial], legend: Sequence[tuple[str, str]], bottom: float) -> None:
        """The dials in a card that ends at `bottom`, with the names of their bars' colours above them."""
        if not dials:
            return
        top = bottom - card_height(dials, legend)
        box = [round(x * SHARP) for x in (MARGIN - 4, top, WIDTH - MARGIN + 4, bottom)]
        self._draw.rounded_rectangle(box, 9 * SHARP, COLOURS["card"], COLOURS["rule"], SHARP)
        at = MARGIN + 10.0
        for name, shade in legend:
            self._bar(at, at + 12, top + 13, 4, shade)
            at += 32 + self.text((at + 18, top + 13), name, 11, COLOURS["soft"], anchor="lm")
        top += 6 + (LEGEND if legend else 0)
        across = min(ACROSS, len(dials))
        column = (WIDTH - 2 * MARGIN - 20 + 26) / across
        for i, dial in enumerate(dials):
            self._dial(dial, MARGIN + 10 + (i % across) * column, top + (i // across) * DIAL, column - 26)

    def _dial(self, dial: Dial, left: float, top: float, width: float) -> None:
        taken = self.text((left + width, top + 3), dial.text, 12, COLOURS["ink"], bold=True, anchor="ra")
        self.text((left, top + 3), dial.name, 12, COLOURS["soft"], width=width - taken - 8)
        middle, half, y = left + width / 2, width / 2, top + 24
        height = 5 if len(dial.bars) < 2 else 6
        self._bar(left, left + width, y, height, COLOURS["grid"])
        for i, (end, shade) in enumerate(dial.bars):
            share = height / len(dial.bars)
            at = middle + half * min(1.0, max(-1.0, end))
            self._bar(min(middle, at), max(middle, at), y - height / 2 + (i + 0.5) * share, share, shade)
        self._bar(middle - 0.5, middle + 0.5, y, height + 6, COLOURS["faint"])
        if dial.tick is not None:
            at = middle + half * min(1.0, max(-1.0, dial.tick))
            self._bar(at - 1.25, at + 1.25, y, height + 6, COLOURS["ink"])

    def _bar(self, left: float, right: float, y: float, height: float, colour: Any) -> None:
        self._draw.rectangle([round(x * SHARP) for x in (left, y - height / 2, right, y + height / 2)], fill=colour)


def card_height(dials: Sequence[Dial], legend: Sequence[Any]) -> float:
    rows = -(-len(dials) // ACROSS)
    return 8 + rows * DIAL + (LEGEND if legend else 0) if dials else 0


def _large(at: Point) -> Point:
    return at[0] * SHARP, at[1] * SHARP


def _around(centre: Point, radius: float) -> list[float]:
    (x, y), r = _large(centre), radius * SHARP
    return [x - r, y - r, x + r, y + r]
