"""The layout of the source: size of modules and packages, module docstrings, import cycles.

The measures are those of benchmarks/structure.py, which docs/results/structure.md reports.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
MOST_LINES = 400
MOST_NAMES = 16
"""Modules and packages in one package. About twelve is the goal."""
MOST_LAYERS = 17
"""Modules and packages at the top, which are the layers of the import contract."""


@pytest.fixture(scope="module")
def structure() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks"))
        sys.modules.pop("structure", None)
        import structure

        yield structure


def test_no_module_is_too_long(structure: Any) -> None:
    lines = {str(path.relative_to(ROOT)): structure.line_count([path]) for path in structure.modules(ROOT)}
    assert {name: count for name, count in lines.items() if count > MOST_LINES} == {}


def test_no_package_has_too_many_names(structure: Any) -> None:
    most = {"async_hfl": MOST_LAYERS}
    assert {n: count for n, count in structure.levels(ROOT).items() if count > most.get(n, MOST_NAMES)} == {}


def test_no_module_docstring_begins_with_a_question_word(structure: Any) -> None:
    modules = [path for path in structure.modules(ROOT) if structure.question_docstrings([path])]
    assert [str(path.relative_to(ROOT)) for path in modules] == []


def test_no_import_cycle(structure: Any) -> None:
    """Imports under TYPE_CHECKING count as well."""
    assert structure.import_cycles(ROOT) == []
