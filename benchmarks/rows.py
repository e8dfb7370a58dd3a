"""Benchmarks as rows: every row is a process of its own on a core of its own, and leaves one line of JSON.

An interrupted benchmark goes on where it was. A benchmark that is only half done has all its rows of some seeds.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any

RESULTS = Path(__file__).parent / "results"
Row = dict[str, Any]


def read(name: str) -> list[Row]:
    path = RESULTS / f"{name}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def rounded(x: Any) -> Any:
    """Six digits of every number: more say nothing and take room."""
    if isinstance(x, dict):
        return {key: rounded(value) for key, value in x.items()}
    if isinstance(x, list | tuple):
        return [rounded(value) for value in x]
    return float(f"{x:.6g}") if isinstance(x, float) else x


def source() -> str:
    """Which version of the package makes a row: git's name of its folder, with a + where that is not what is there."""

    def git(*words: str) -> str:
        answer = subprocess.run(["git", *words], cwd=RESULTS.parent, capture_output=True, text=True, check=False)
        return answer.stdout.strip()

    return git("rev-parse", "--short=10", "HEAD:src/rhucrl") + ("+" if git("status", "--porcelain", "../src") else "")


def run(script: str, experiments: dict[str, list[Row]], tell: Callable[[Row], str], cores: list[int]) -> None:
    """All rows that are not there yet."""
    RESULTS.mkdir(exist_ok=True)
    version = source()
    todo = [
        (name, row)
        for name, rows in experiments.items()
        for there in [[line["options"] for line in read(name)]]
        for row in rows
        if row not in there
    ]
    todo.sort(key=lambda item: item[1]["seed"])
    idle: SimpleQueue[int] = SimpleQueue()
    for core in cores:
        idle.put(core)

    def job(item: tuple[str, Row]) -> None:
        name, row = item
        core = idle.get()
        try:
            if row in [line["options"] for line in read(name)]:
                return  # another process has made it meanwhile
            command = ["taskset", "-c", str(core), sys.executable, script, "--one", json.dumps(row)]
            answer = subprocess.run(command, capture_output=True, text=True, check=False)
            if answer.returncode:
                print(name, row, "failed:", answer.stderr[-2000:], flush=True)
                return
            line = json.dumps({"source": version} | json.loads(answer.stdout.splitlines()[-1]))
            with open(RESULTS / f"{name}.jsonl", "a") as file:
                file.write(line + "\n")
            print(f"{name} {row}: {tell(json.loads(line))}", flush=True)
        finally:
            idle.put(core)

    with ThreadPoolExecutor(len(cores)) as pool:
        list(pool.map(job, todo))


def main(
    script: str, doc: str, experiments: dict[str, list[Row]], one: Callable[[Row], Row], tell: Callable[[Row], str],
    write: Callable[[], None],
) -> None:  # fmt: skip
    """The command line of a benchmark."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiments", nargs="*", choices=[*experiments, []], help="which runs to make; all by default")
    parser.add_argument("--cores", type=int, nargs="+", default=[0, 1], help="where to run, one process on each")
    parser.add_argument("--seeds", type=int, nargs="+", help="only the rows of these seeds")
    parser.add_argument("--where", nargs="+", default=[], help="only the rows with these options, as name=value")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--tables", action="store_true", help="write the tables in docs from the lines that are there")
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(rounded(one(json.loads(arguments.one)))))
    elif arguments.tables:
        write()
    else:
        names, seeds = arguments.experiments or list(experiments), arguments.seeds
        places = [word.split("=", 1) for word in arguments.where]

        def asked(row: Row) -> bool:
            return (not seeds or row["seed"] in seeds) and all(str(row.get(name)) == value for name, value in places)

        run(script, {name: list(filter(asked, experiments[name])) for name in names}, tell, arguments.cores)
