"""The rooms of the house: who may import whom, one meaning for every class name, and the map from paper to code."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

import rhucrl

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "rhucrl"
LABELS = set((ROOT / "tests" / "paper_labels.txt").read_text().split())
KINDS = "eq|alg|ssec|sseq|section|sec|as|lem|lemma|thm|cor|fig|ineq|seq"

# From the ground up: a room imports from those above it in this list, and from itself.
ROOMS = (
    "errors", "algorithms", "options", "presets", "config", "runtime",
    "statistics", "storage", "envs", "networks", "replay", "play",
    "models", "hallucination", "solvers", "learner", "model_free", "theory", "training", "attacks",
    "experiments", "cli",
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


def test_public_names_are_the_same_for_tools_and_at_run_time():
    tree = ast.parse((SOURCE / "__init__.py").read_text())
    (checked,) = [node for node in tree.body if isinstance(node, ast.If)]
    typed = defaultdict(set)
    for node in checked.body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("rhucrl"):
            typed[node.module] |= {alias.name for alias in node.names}
    assert typed == {home: set(names) for home, names in rhucrl._HOME.items()}
    assert all(hasattr(rhucrl, name) for name in rhucrl.__all__)
    assert (SOURCE / "py.typed").exists()


def test_labels_are_the_papers():
    """What a docstring cites is in the paper."""
    for path in SOURCE.rglob("*.py"):
        for label in re.findall(rf"`((?:{KINDS}):[^`]+)`", path.read_text()):
            assert label in LABELS, f"{path.name} cites {label}"


def test_the_map_leads_from_the_paper_to_the_code():
    text = (ROOT / "docs" / "architecture.md").read_text()
    rows = re.findall(r"^\| `([^`]+:[^`]+)` \| [^|]+ \| `([^`]+)` \| `([^`]+)` \|$", text, re.M)
    assert len(rows) > 20
    for label, file, name in rows:
        assert label in LABELS, label
        source = (SOURCE / file).read_text()
        defined = {node.name for node in ast.parse(source).body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
        assert name in defined, f"{file} has no {name}"
        assert label in source, f"{file} does not cite {label}"


def test_every_room_is_in_the_drawing():
    text = (ROOT / "docs" / "architecture.md").read_text().split("## From the paper")[0]
    assert [room for room in ROOMS if f"`{room}`" not in text and f"`{room}/`" not in text] == []
