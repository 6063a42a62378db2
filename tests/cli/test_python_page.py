"""docs/python.md and the examples in the docstrings of the Python API."""

from __future__ import annotations

import argparse
import doctest
import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import async_hfl
from async_hfl.cli.main import _parser

PAGE = (Path(__file__).parents[2] / "docs" / "python.md").read_text()
TABLE = [row.split("|")[1:3] for row in PAGE.partition("## Every command")[2].splitlines() if row.startswith("| `")]


@pytest.mark.long
def test_the_code_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for needed in ("pandas", "matplotlib"):
        pytest.importorskip(needed)
    monkeypatch.chdir(tmp_path)
    space: dict[str, Any] = {"__name__": "page"}
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(blocks) >= 7
    for block in blocks:
        exec(compile(block, "python.md", "exec"), space)
    assert space["run"].complete
    assert [len(rows) for rows in (space["compared"].frame(), space["compared"].runs_frame())] == [2, 4]
    for file in ("curves.png", "map.png", "page.html", "table.csv", "model.safetensors", "records/jobs.csv"):
        assert (tmp_path / file).stat().st_size > 0


@pytest.mark.parametrize("module", sorted({f"async_hfl.{home}" for home in async_hfl._HOME}))
def test_the_examples_in_docstrings(module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pandas")
    monkeypatch.chdir(tmp_path)
    found = doctest.testmod(import_module(module), extraglobs={"async_hfl": async_hfl})
    assert found.failed == 0


def test_most_functions_have_an_example() -> None:
    with_example = {name for name in async_hfl.__all__ if ">>>" in (getattr(async_hfl, name).__doc__ or "")}
    assert with_example >= {"run", "compare", "sweep", "report", "show_network", "show_data", "settings", "init"}


def commands(parser: argparse.ArgumentParser, prefix: str = "") -> Iterator[str]:
    """Yield the commands of the command line; those of a group with its name before them."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, inner in action.choices.items():
                below = list(commands(inner, f"{prefix}{name} "))
                yield from below or [f"{prefix}{name}"]


def told() -> set[str]:
    """The commands in the table. A group that is named alone stands for all of its commands."""
    found = {name for left, _ in TABLE for name in re.findall(r"`([^`]+)`", left)}
    return found | {name for name in ALL if name.partition(" ")[0] in found}


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Yield the parsers of all commands."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                yield from parsers(inner)
    yield parser


ALL = set(commands(_parser()))
OTHERWISE = {
    "resume": {"run"},
    "settings": {"markdown"},
    "init": {"all"},
    "data show": {"out"},
    "network show": {"out"},
    "collect": {"states", "cloud", "gateways", "certificates", "insecure"},
    "status": {"watch"},
}
"""Options that Python has in another form, as the page says below its table."""


def test_functions_take_the_options_of_their_commands() -> None:
    found = {parser.prog.removeprefix("async-hfl "): parser for parser in parsers(_parser())}
    compared = 0
    for left, right in TABLE:
        names, functions = (re.findall(r"`([^`]+)`", cell) for cell in (left, right))
        if "command line only" in right or "load_run(RUN)" in functions:
            continue
        for command, function in zip(names, functions, strict=False):
            options = {action.dest for action in found[command]._actions} - {"help", "json"}
            taken = set(inspect.signature(getattr(async_hfl, function)).parameters)
            assert options - taken == OTHERWISE.get(command, set()), command
            compared += 1
    assert compared >= 25


def test_the_table_has_every_command() -> None:
    assert ALL - told() == set()


def test_the_table_names_functions_that_exist() -> None:
    public = set(async_hfl.__all__)
    for _, right in TABLE:
        if "command line only" in right:
            continue
        names = [name.partition("(")[0] for name in re.findall(r"`([^`]+)`", right)]
        assert names
        assert set(names) <= public, right
