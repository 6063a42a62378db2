"""One HTML file out of its parts: style, scripts and data. It fetches nothing, and says so to the browser (CSP)."""

from __future__ import annotations

import math
import re
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec

from async_hfl.core.errors import UserError
from async_hfl.reports.tables.table import Cell, Spread, Table

_SHARED = ("base.js", "axes.js", "lines.js", "bars.js")


def write_html(path: Path, scripts: tuple[str, ...], data: dict[str, Any]) -> None:
    """`scripts` come after those that every page has."""
    scripts_text = "".join(part(name) for name in (*_SHARED, *scripts))
    write_parts(path, "report.html", {"STYLE": part("report.css"), "SCRIPT": scripts_text, "DATA": encoded(data)})


def write_parts(path: Path, template: str, parts: dict[str, str]) -> None:
    """Each @NAME@ of the template replaced once. What is filled in is never looked through again."""
    pieces = re.split(r"@([A-Z]+)@", part(template))
    text = "".join(parts[piece] if place % 2 else piece for place, piece in enumerate(pieces))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror or error}); give another --out") from error


def part(name: str) -> str:
    return (resources.files("async_hfl.reports.pages") / "assets" / name).read_text(encoding="utf-8")


def encoded(data: Any) -> str:
    """JSON for a script element: a name with "</script>" in it must not end the element it stands in."""
    return msgspec.json.encode(data).decode().replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def table_data(table: Table) -> dict[str, Any]:
    return {
        "title": table.title,
        "columns": [{"name": column.name, "kind": column.kind, "note": column.note} for column in table.columns],
        "rows": [[_cell(cell) for cell in row] for row in table.rows],
        "notes": list(table.notes),
        "emphasised": list(table.emphasised),
    }


def _cell(cell: Cell) -> Any:
    if isinstance(cell, Spread):
        return {name: _finite(getattr(cell, name)) for name in ("value", "low", "high", "text")}
    return _finite(cell)


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def significant(values: Any, digits: int = 5) -> list[float | None]:
    """Short numbers for a page; what is not a number becomes null."""
    return [float(f"{value:.{digits}g}") if math.isfinite(value) else None for value in map(float, values)]
