"""Rules about the source text that no linter checks."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "async_hfl"
SOURCES = sorted(PACKAGE.rglob("*.py"))
PYTHON = [
    *SOURCES,
    *(path for part in ("tests", "examples", "benchmarks") for path in sorted((ROOT / part).rglob("*.py"))),
]
OTHER = [path for kind in ("toml", "html", "css", "js", "proto", "pyi") for path in sorted(PACKAGE.rglob(f"*.{kind}"))]
TEXT = [*PYTHON, *OTHER, ROOT / "pyproject.toml", ROOT / "Makefile"]
UNSAFE = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def imported(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.partition(".")[0])
    return found


def test_the_sources_are_found() -> None:
    assert len(SOURCES) > 50


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_nothing_is_pickled(path: Path) -> None:
    """A run directory or a message must never be able to execute code."""
    text = path.read_text()
    assert not imported(path) & UNSAFE
    assert "allow_pickle=True" not in text
    # Like dataclasses, core.serialization makes constructors from the field names of classes, never from data.
    assert not re.search(r"\b(eval|exec)\(", text) or name_of(path).endswith("core/serialization.py")


@pytest.mark.parametrize("path", TEXT, ids=name_of)
def test_no_path_of_one_machine(path: Path) -> None:
    """Other checkouts are in other directories."""
    homes = "|".join(("home", "root", "Users", "work"))
    assert not re.search(rf"""["'\s=(]/({homes})/""", path.read_text())


def test_test_files_have_different_names() -> None:
    """The tests are not packages, so that of two files of one name only one would be imported."""
    names = [path.name for path in (ROOT / "tests").rglob("*.py") if path.name != "conftest.py"]
    assert len(names) == len(set(names)), sorted(name for name in names if names.count(name) > 1)
    assert "__init__.py" not in names


def test_the_global_random_state_is_never_used() -> None:
    """All random numbers come from named streams, so that a change in one method does not change another's delays."""
    seeding = "src/async_hfl/adapters/generators.py"  # it seeds what client code draws from, in its own processes
    for path in [path for path in SOURCES if path.relative_to(ROOT).as_posix() != seeding]:
        assert "random" not in imported(path), name_of(path)
        assert not re.search(r"np\.random\.(seed|rand|randn|randint|choice|shuffle|permutation)\(", path.read_text())
