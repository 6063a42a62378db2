"""benchmarks/structure.py counts what it says it counts; numbers worked out by hand on a small tree."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


@pytest.fixture
def structure(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    sys.modules.pop("structure", None)
    import structure

    return structure


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    package = tmp_path / "src" / "p"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "a.py").write_text('"""What a is."""\n\nfrom p import b\n')
    (package / "b.py").write_text('"""B."""\n\nif TYPE_CHECKING:\n    from p.c import thing\n')
    (package / "c.py").write_text('"""C."""\n\nimport p.a\n\nthing = 1\n')
    (package / "d.py").write_text('"""D, outside the cycle."""\n\nfrom p import a\n')
    return tmp_path


def test_a_cycle_through_an_import_for_type_checkers_is_found(structure: Any, tree: Path) -> None:
    assert structure.import_cycles(tree) == [["p.a", "p.b", "p.c"]]


def test_a_docstring_that_begins_with_a_question_word_is_counted(structure: Any, tree: Path) -> None:
    assert structure.question_docstrings(structure.modules(tree)) == 1


def test_names_at_one_level_are_modules_and_packages(structure: Any, tree: Path) -> None:
    assert structure.levels(tree) == {"p": 4}


def test_tables_and_code_are_no_prose(structure: Any, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Two words\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n```sh\nmake test\n```\n\nFour words of prose.\n")
    assert structure.prose_words(page) == 7


def test_a_walk_is_the_median_over_the_second_half(structure: Any) -> None:
    device = {"marks": [], "calls": [(12, "device.train"), (32, "device.train"), (52, "device.train")]}
    gateway = {
        "marks": [(10, "selection"), (20, "job"), (30, "selection"), (40, "job"), (50, "selection"), (60, "job")],
        "calls": [(11, "gateway.send"), (31, "gateway.send"), (33, "gateway.mix"), (35, "gateway.send"), (51, "x")],
    }
    found = structure.walk([device, gateway], "selection", "job")
    assert found == ["gateway.send", "device.train", "gateway.mix"]


def test_a_duplicated_block_counts_once_whatever_its_length(structure: Any, tmp_path: Path) -> None:
    lines = [f"x{number} = {number}" for number in range(14)]
    (tmp_path / "a.py").write_text("\n".join(lines))
    (tmp_path / "b.py").write_text("import a\n\n# a comment\n" + "\n\n".join(lines[:12]) + "\ny = 1\n")
    (tmp_path / "c.py").write_text("\n".join(lines[:9]))
    assert structure.duplicated_blocks(sorted(tmp_path.glob("*.py"))) == [("a.py:1", "b.py:4")]
