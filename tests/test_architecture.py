"""The rooms of the house: who may import whom, and one meaning for every class name."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "rhucrl"

# From the ground up: a room imports from those above it in this list, and from itself.
ROOMS = (
    "errors", "algorithms", "config", "runtime", "statistics", "storage", "envs", "networks", "replay", "play",
    "models", "hallucination", "solvers", "model_free", "theory", "training", "attacks", "experiments", "cli",
)  # fmt: skip


def modules() -> dict[str, ast.Module]:
    """Every module by its dotted name below `rhucrl`."""
    paths = sorted(SOURCE.rglob("*.py"))
    names = [".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__") for path in paths]
    return {name: ast.parse(path.read_text()) for name, path in zip(names, paths, strict=True)}


def imported(tree: ast.Module, known: set[str], everywhere: bool) -> set[str]:
    """The modules that a module imports: when it is imported itself, or `everywhere` in it."""
    found = set()
    for node in ast.walk(tree) if everywhere else module_level(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "rhucrl":
            home = (node.module or "").removeprefix("rhucrl").removeprefix(".")
            for alias in node.names:
                inner = f"{home}.{alias.name}".lstrip(".")
                found.add(inner if inner in known else home)
    return found - {""}


def module_level(tree: ast.Module) -> list[ast.stmt]:
    """Statements that run on import; what is for type checkers does not."""
    return [node for node in tree.body if not isinstance(node, ast.If)]


def test_rooms_import_from_rooms_above_them():
    trees = modules()
    wrong = []
    for name, tree in trees.items():
        room = name.split(".")[0]
        if room in ("__init__", "__main__"):
            continue
        assert room in ROOMS, f"{name} is in no room"
        for other in imported(tree, set(trees), everywhere=True):
            above = other.split(".")[0]
            if above in ROOMS and ROOMS.index(above) > ROOMS.index(room):
                wrong.append(f"{name} imports {other}")
    assert wrong == []


def test_no_module_needs_itself():
    trees = modules()
    edges = {name: imported(tree, set(trees), everywhere=False) - {name} for name, tree in trees.items()}
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, " -> ".join((*path[path.index(name) :], name))
        if name not in done:
            for other in edges.get(name, ()):
                visit(other, (*path, name))
            done.add(name)

    for name in edges:
        visit(name, ())


def test_a_class_name_has_one_meaning():
    homes = defaultdict(list)
    for name, tree in modules().items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                homes[node.name].append(name)
    assert {name: where for name, where in homes.items() if len(where) > 1} == {}
