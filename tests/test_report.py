"""A page is one file that holds all it needs, and what it holds is what was put in."""

from __future__ import annotations

import json
import math
import re
from html.parser import HTMLParser

import pytest

from rhucrl.errors import UsageError
from rhucrl.experiments.figures import PendulumEpisode, RunSummary, bounds_panel
from rhucrl.experiments.report import embed, render, write_page

ORACLE = {0.0: -310.0, 0.1: -370.0, 0.2: -450.0}
STEPS = 12


def summary(algorithm: str, seed: int = 0, worst: float = -500.0) -> RunSummary:
    rows = [
        {"episode": 0, "return": -1300.0, "coverage_confidence": 0.4, "coverage_predictive": 0.7, "temperature": 3.0}
    ]
    for episode in range(1, 6):
        middle = -400 - 900 / episode + seed
        rows.append({
            **rows[0], "episode": episode, "return": middle, "J_optimistic": middle + 200 / episode,
            "J_expected": middle + 1, "J_pessimistic": middle - 200 / episode,
        })  # fmt: skip
    angle = [math.pi - 0.2 * i for i in range(STEPS)]
    changes = [1 + 0.2 * (-1) ** i for i in range(STEPS)]
    played = PendulumEpisode(0.05, angle, [2.0] * STEPS, [10 * x for x in changes], changes, [-(x**2) for x in angle])
    sweep = [(0.0, -320.0), (0.1, worst / 2), (0.2, worst)]
    return RunSummary(algorithm, seed, rows, -320.0, -400.0, worst, "constant", sweep, played)


RUNS = [summary("rh-ucrl"), summary("h-ucrl", worst=-1400.0)]


class Reader(HTMLParser):
    """Counts elements, and fails on one that is closed twice or never."""

    def __init__(self, page: str):
        super().__init__()
        self.seen: list[tuple[str, dict]] = []
        self.open: list[str] = []
        self.texts: dict[str, list[str]] = {}
        self.feed(page)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))
        if tag not in ("meta", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open:
            self.texts.setdefault(self.open[-1], []).append(data)

    def embedded(self) -> dict:
        return json.loads(self.texts["script"][0])

    def count(self, tag: str, name: str) -> int:
        return sum(each == tag and name in (attrs.get("class") or "").split() for each, attrs in self.seen)


def page_of(runs=RUNS, oracle=ORACLE, **more) -> Reader:
    return Reader(render("Title", runs, oracle, **{"strength": 0.2, **more}))


def test_the_page_is_one_file_that_asks_for_nothing(tmp_path):
    path = write_page(tmp_path / "new" / "folder", render("Title", RUNS, ORACLE, lead="Hello", strength=0.2))
    assert [path] == list(path.parent.iterdir())
    page = path.read_text()
    assert not re.search(r"https?://|//\w+\.\w|\bsrc\s*=|<link|@import|url\(|\bfetch\b|XMLHttp|\bimport\b", page)
    assert not re.search(r"\$\w", re.sub(r"\$\{", "", page.split("<script")[0]))  # no placeholder is left


def test_every_picture_is_there():
    page = page_of()
    assert page.count("figure", "stage") == 2 and len(page.embedded()["episodes"]) == 2
    panels = page.embedded()["panels"]
    assert page.count("div", "plot") == len(panels) == 1 + 1 + 1 + 2 + 3
    placed = [int(attrs["data-panel"]) for _, attrs in page.seen if "data-panel" in attrs]
    assert placed == list(range(len(panels)))
    assert [panel["y"] for panel in panels[:3]] == ["return so far", "worst return", "return"]


def test_the_embedded_data_are_the_runs():
    data = page_of().embedded()
    assert json.loads(embed(data)) == data
    assert data["episodes"][0]["theta"] == RUNS[0].episode.theta
    sweep = {line["name"]: dict(zip(line["x"], line["y"], strict=True)) for line in data["panels"][1]["series"]}
    assert sweep == {"Optimum": ORACLE, "RH-UCRL": dict(RUNS[0].sweep), "H-UCRL": dict(RUNS[1].sweep)}
    learning = data["panels"][2]["series"][0]
    assert learning["x"] == list(range(6)) and learning["low"] is None
    assert learning["y"] == pytest.approx([row["return"] for row in RUNS[0].metrics], rel=1e-4)
    assert RUNS[0] == RunSummary.from_json(json.loads(json.dumps(vars(RUNS[0]), default=vars)))


def test_an_algorithm_has_one_colour_everywhere():
    lines = [line for panel in page_of().embedded()["panels"] for line in panel["series"]]
    shades = {name: {line["color"] for line in lines if line["name"] == name} for name in ("RH-UCRL", "H-UCRL")}
    assert shades == {"RH-UCRL": {"rh-ucrl"}, "H-UCRL": {"h-ucrl"}}
    style = page_of().texts["style"][0]
    assert style.count("--rh-ucrl:") == style.count("--h-ucrl:") == 2  # light and dark


def test_bounds_count_the_returns_inside():
    panel = bounds_panel("rh-ucrl", RUNS[:1])
    assert panel and panel["title"] == "RH-UCRL: 5 of 5 returns inside"
    band = panel["series"][0]
    assert band["x"] == [1, 2, 3, 4, 5]  # the random first episode promised nothing
    assert all(
        low <= y <= high for low, y, high in zip(band["low"], panel["series"][2]["y"], band["high"], strict=True)
    )


def test_several_seeds_are_an_interval():
    page = page_of([summary("rh-ucrl", seed, -500.0 - 50 * seed) for seed in range(4)])
    line = page.embedded()["panels"][2]["series"][0]
    assert all(low < y < high for low, y, high in zip(line["low"][1:], line["y"][1:], line["high"][1:], strict=True))
    assert any("4 seeds" in text for text in page.texts["p"])
    assert "−575" in page.texts["td"]


def test_the_table_says_how_far_from_the_optimum():
    cells = [text for text in page_of().texts["td"] if text.strip()]
    assert cells == [
        "RH-UCRL",
        "−320",
        "−400",
        "−500",
        "−450",
        "11%",
        "H-UCRL",
        "−320",
        "−400",
        "−1400",
        "−450",
        "211%",
    ]


def test_words_from_outside_cannot_become_code():
    nasty = "</script><script>alert(1)</script>"
    page = page_of([summary(nasty)], lead=nasty, facts={nasty: nasty})
    assert sum(tag == "script" for tag, _ in page.seen) == 2
    assert page.embedded()["episodes"][0]["name"] == nasty


def test_a_page_without_oracle_episode_or_sweep_leaves_those_pictures_out():
    bare = RunSummary("rh-ucrl", 0, [{"episode": 0, "return": -1.0}], -1.0, -1.0, math.nan)
    page = page_of([bare], None, strength=None)
    assert page.count("section", "theatre") == 0 and page.count("div", "plot") == 1
    assert "–" in page.texts["td"]


def test_what_is_not_finite_is_a_gap():
    assert embed({"y": [1.0, math.nan, -math.inf]}) == '{"y":[1.0,null,null]}'


def test_a_folder_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="choose another"):
        write_page(tmp_path / "file", "a page")
