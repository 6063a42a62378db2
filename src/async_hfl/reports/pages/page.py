"""A self-contained HTML file made of a template, style, scripts and data. Its CSP lets the browser fetch nothing."""

from __future__ import annotations

import math
import re
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec

from async_hfl.reports.output import writing
from async_hfl.reports.tables.table import Cell, Spread, Table

_SHARED = ("base.js", "axes.js", "lines.js", "bars.js")


def write_html(path: Path, scripts: tuple[str, ...], data: dict[str, Any]) -> None:
    """Write a report page; `scripts` follow those that every page has."""
    text = "".join(asset(name) for name in (*_SHARED, *scripts))
    write_template(path, "report.html", {"STYLE": asset("report.css"), "SCRIPT": text, "DATA": encoded(data)})


def write_template(path: Path, template: str, parts: dict[str, str]) -> None:
    """Replace each @NAME@ of the template once; the inserted texts are not searched again."""
    pieces = re.split(r"@([A-Z]+)@", asset(template))
    text = "".join(parts[piece] if place % 2 else piece for place, piece in enumerate(pieces))
    with writing(path):
        path.write_text(text, encoding="utf-8")


def asset(name: str) -> str:
    return (resources.files("async_hfl.reports.pages") / "assets" / name).read_text(encoding="utf-8")


def encoded(data: Any) -> str:
    """Encode as JSON for a script element; a name that contains "</script>" must not end the element."""
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
        return {name: _finite(getattr(cell, name)) for name in ("value", "low", "high", "text", "bound")}
    return _finite(cell)


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
