"""Measures how a checkout is laid out: size, names, import cycles, and the functions that one update passes.

    python benchmarks/structure.py .                          # this checkout
    python benchmarks/structure.py ../before . --markdown     # two side by side, as in docs/results/structure.md
    python benchmarks/structure.py . --no-walks               # without running anything

A hop is a distinct async_hfl function that is entered between a selection and that update's job record; properties,
dunder methods and lambdas do not count. The simulated walk is a run of one device and one gateway, the deployed walk a
cluster of the same, counted over all of its processes; the re-association is counted from the request to solve until
its association record, with two gateways. Each figure is the median over the walks of the second half of a run.

Files touched by an addition are the files of src that name an existing thing of that kind.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TRACER = Path(__file__).with_name("structure_tracer")
QUESTION_WORDS = {"What", "How", "Who", "Where", "Whether", "Of", "Whose", "Whom", "Which", "When", "Why"}
ADDITIONS = {
    "a selection policy": r"\bShortLatency\b|[\"']short-latency[\"']",
    "an association policy": r"\bNearestGateway\b|[\"']nearest[\"']",
    "a gateway aggregation rule": r"\bPeriods\b|[\"']periods[\"']",
    "a network": r"\buniform_network\b|import uniform\b|[\"']uniform[\"']",
    "a message": r"\bNoted\b|\bSettledAck\b",
}
"""An existing thing of each kind, as the source names it: under its old and its present name."""
SMALL = ("--set", "task.partition=iid", "--set", "cloud.epochs=40", "--set", "task.target=1.0", "--seed", "1", "--json")


def modules(root: Path) -> list[Path]:
    return sorted((root / "src").rglob("*.py"))


def line_count(paths: list[Path]) -> int:
    return sum(len(path.read_text().splitlines()) for path in paths)


def prose_words(path: Path) -> int:
    """Words of a Markdown page outside tables and fenced code."""
    words, fenced = 0, False
    for line in path.read_text().splitlines():
        text = line.strip()
        if text.startswith("```"):
            fenced = not fenced
        elif not fenced and not text.startswith("|"):
            words += len(text.split())
    return words


def levels(root: Path) -> dict[str, int]:
    """Modules and packages directly inside each package."""
    return {
        str(folder.parent.relative_to(root / "src")): sum(
            (entry.suffix == ".py" and not entry.name.startswith("__")) or (entry / "__init__.py").exists()
            for entry in folder.parent.iterdir()
        )
        for folder in (root / "src").rglob("__init__.py")
    }


def imports(path: Path, names: set[str]) -> Iterator[str]:
    """Modules that a module imports at its top level, imports for type checkers included."""
    for node in ast.parse(path.read_text()).body:
        inner = node.body if isinstance(node, ast.If) else [node]
        for statement in inner:
            if isinstance(statement, ast.Import):
                yield from (alias.name for alias in statement.names if alias.name in names)
            elif isinstance(statement, ast.ImportFrom) and statement.module:
                for alias in statement.names:
                    whole = f"{statement.module}.{alias.name}"
                    yield from ([whole] if whole in names else [statement.module] if statement.module in names else [])


def import_cycles(root: Path) -> list[list[str]]:
    """Groups of modules that import each other, directly or not (strongly connected components)."""
    files = {".".join(path.relative_to(root / "src").with_suffix("").parts): path for path in modules(root)}
    files = {name.removesuffix(".__init__"): path for name, path in files.items()}
    graph = {name: set(imports(path, set(files))) - {name} for name, path in files.items()}

    def reached(start: str) -> set[str]:
        seen: set[str] = set()
        waiting = [start]
        while waiting:
            for name in graph[waiting.pop()] - seen:
                seen.add(name)
                waiting.append(name)
        return seen

    closure = {name: reached(name) for name in graph}
    groups = {frozenset(other for other in closure[name] if name in closure[other]) for name in graph}
    return sorted(sorted(group) for group in groups if len(group) > 1)


def question_docstrings(paths: list[Path]) -> int:
    first = (((ast.get_docstring(ast.parse(path.read_text())) or "").split() or [""])[0] for path in paths)
    return sum(word.strip("`,.:") in QUESTION_WORDS for word in first)


def duplicated_blocks(paths: list[Path], length: int = 10) -> list[tuple[str, str]]:
    """Pairs of places that share a block of at least so many equal lines; blank lines, comments and imports are left
    out, and a block counts once, at its first line."""
    first_seen: dict[tuple[str, ...], str] = {}
    found: list[tuple[str, str]] = []
    for path in paths:
        lines = [
            (number, text)
            for number, text in enumerate(map(str.strip, path.read_text().splitlines()), start=1)
            if text and not text.startswith(("#", "import ", "from "))
        ]
        inside = False
        for place in range(len(lines) - length + 1):
            block = tuple(text for _, text in lines[place : place + length])
            here = f"{path.name}:{lines[place][0]}"
            there = first_seen.setdefault(block, here)
            if there != here and not inside:
                found.append((there, here))
            inside = there != here
    return found


def laid_out(root: Path) -> dict[str, Any]:
    source, tests = modules(root), sorted((root / "tests").rglob("*.py"))
    sizes = [len(path.read_text().splitlines()) for path in source]
    crowded = levels(root)
    cycles = import_cycles(root)
    touched = {
        kind: sum(bool(re.search(pattern, path.read_text())) for path in source) for kind, pattern in ADDITIONS.items()
    }
    return {
        "src: lines": line_count(source),
        "src: files": len(source),
        "tests: lines": line_count(tests),
        "tests: files": len(tests),
        "docs: words of prose": sum(prose_words(page) for page in (root / "docs").rglob("*.md")),
        "module: median lines": statistics.median(size for size in sizes if size),
        "module: largest": max(sizes),
        "modules of more than 400 lines": sum(size > 400 for size in sizes),
        "duplicated blocks of ten lines": len(duplicated_blocks(source)),
        "names at one level: median": statistics.median(crowded.values()),
        "names at one level: most": max(crowded.values()),
        "module docstrings that begin with a question word": question_docstrings(source),
        "import cycles": len(cycles),
        "modules in import cycles": sum(map(len, cycles)),
        **{f"files that name {kind}": count for kind, count in touched.items()},
    }


def traced(root: Path, python: str, arguments: list[str]) -> list[dict[str, Any]]:
    """The walks that the tracer saw while a command of that checkout ran, in all of its processes."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(TRACER), str(root / "src")]),
            "ASYNC_HFL_TRACE": folder,
        }
        command = [python, "-m", "async_hfl.cli", *arguments, "--out", str(Path(folder) / "run")]
        subprocess.run(command, cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL)
        return [json.loads(path.read_text()) for path in sorted(Path(folder).glob("*.trace.json"))]


def walk(traces: list[dict[str, Any]], begin: str, end: str) -> list[str]:
    """Distinct functions, in the order of their first entry, of the median walk from a beginning to the next end."""
    marks = sorted(mark for trace in traces for mark in trace["marks"])
    spans: list[tuple[int, int]] = []
    began: int | None = None
    for at, what in marks:
        if what == begin:
            began = at if began is None else began
        elif what == end and began is not None:
            spans.append((began, at))
            began = None
    if not spans:
        raise SystemExit(f"no walk from {begin} to {end} was seen")
    calls = sorted((at, name) for trace in traces for at, name in trace["calls"])
    found = [
        list(dict.fromkeys(name for at, name in calls if first <= at <= last))
        for first, last in spans[len(spans) // 2 :]
    ]
    return sorted(found, key=len)[len(found) // 2]


def walks(root: Path, python: str) -> dict[str, list[str]]:
    digits = ["--task", "digits", "--method", "async-hfl"]
    simulated_run = ["run", *digits, "--network", "uniform"]
    one = ["--set", "network.gateways=1", "--set", "task.devices=1"]
    simulated = traced(root, python, [*simulated_run, *one, *SMALL])
    two = ["--set", "network.gateways=2", "--set", "task.devices=8"]
    moved = traced(root, python, [*simulated_run, *two, *SMALL])
    deployed = traced(root, python, ["cluster", *digits, "--gateways", "1", "--devices", "1", *SMALL])
    return {
        "hops: one device update, simulated": walk(simulated, "selection", "job"),
        "hops: one device update, deployed": walk(deployed, "selection", "job"),
        "hops: one re-association": walk(moved, "solve", "association"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure how a checkout is laid out.")
    parser.add_argument("checkouts", nargs="+", type=Path, help="folders with src/, tests/ and docs/")
    parser.add_argument("--python", default=sys.executable, help="an interpreter with the dependencies installed")
    parser.add_argument("--no-walks", action="store_true", help="count files only")
    parser.add_argument("--list", action="store_true", help="also the functions of each walk")
    parser.add_argument("--markdown", action="store_true", help="a Markdown table")
    options = parser.parse_args()
    columns = []
    for checkout in options.checkouts:
        root = checkout.resolve()
        seen = {} if options.no_walks else walks(root, options.python)
        columns.append(laid_out(root) | {name: len(functions) for name, functions in seen.items()})
        if options.list:
            for name, functions in seen.items():
                print(f"{name} ({checkout})", *functions, sep="\n  ")
    if options.markdown:
        print(
            "| measure | "
            + " | ".join(["before", "after"] if len(columns) == 2 else map(str, options.checkouts))
            + " |"
        )
        print("|---|" + "---|" * len(columns))
        for key in columns[0]:
            print(f"| {key} | " + " | ".join(f"{column[key]:,g}" for column in columns) + " |")
    else:
        print(json.dumps(dict(zip(map(str, options.checkouts), columns, strict=True)), indent=2))


if __name__ == "__main__":
    main()
