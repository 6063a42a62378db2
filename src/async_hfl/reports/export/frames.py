"""Tables of a run as pandas data frames."""

from __future__ import annotations

from typing import Any

from async_hfl.journal.run_directory import RunDirectory
from async_hfl.reports.data.flat_tables import flat_table
from async_hfl.reports.export.optional_imports import needed

_TYPES = {"int": "int64", "float": "float64", "bool": "bool", "text": "object"}


def frame(directory: RunDirectory, name: str) -> Any:
    pandas = needed("pandas", "frames", "a data frame")
    table = flat_table(directory, name)
    rows = list(table.rows())
    columns = list(zip(*rows, strict=True)) if rows else [() for _ in table.columns]
    return pandas.DataFrame(
        {
            column: pandas.Series(list(values), dtype=_TYPES[kind])
            for (column, kind), values in zip(table.columns, columns, strict=True)
        }
    )
