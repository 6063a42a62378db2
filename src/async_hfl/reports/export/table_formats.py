"""A run's tables as CSV files, as Parquet files (needs pyarrow) or as pandas data frames (needs pandas)."""

from __future__ import annotations

import csv
from itertools import islice
from pathlib import Path
from typing import Any

from async_hfl.core.errors import UserError
from async_hfl.journal.run_directory import RunDirectory
from async_hfl.reports.data.flat_tables import FlatTable, flat_table, flat_tables
from async_hfl.reports.export.optional_imports import needed

_BATCH = 20_000
_PANDAS_TYPES = {"int": "int64", "float": "float64", "bool": "bool", "text": "object"}


def export_csv(directory: RunDirectory, out: Path) -> dict[str, int]:
    """Write one file per table and return the number of rows of each."""
    return {table.name: _csv(table, out / f"{table.name}.csv") for table in _tables(directory, out)}


def export_parquet(directory: RunDirectory, out: Path) -> dict[str, int]:
    arrow, parquet = (needed(name, "parquet", "Parquet") for name in ("pyarrow", "pyarrow.parquet"))
    kinds = {"int": arrow.int64(), "float": arrow.float64(), "text": arrow.string(), "bool": arrow.bool_()}
    counts = {}
    for table in _tables(directory, out):
        schema = arrow.schema([(name, kinds[kind]) for name, kind in table.columns])
        counts[table.name] = _parquet(arrow, parquet, schema, table, out / f"{table.name}.parquet")
    return counts


def data_frame(directory: RunDirectory, name: str) -> Any:
    pandas = needed("pandas", "frames", "a data frame")
    table = flat_table(directory, name)
    rows = list(table.rows())
    columns = list(zip(*rows, strict=True)) if rows else [() for _ in table.columns]
    return pandas.DataFrame(
        {
            column: pandas.Series(list(values), dtype=_PANDAS_TYPES[kind])
            for (column, kind), values in zip(table.columns, columns, strict=True)
        }
    )


def _tables(directory: RunDirectory, out: Path) -> list[FlatTable]:
    directory.check_journal()  # before anything is written
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{out}: cannot be created ({error.strerror}); give another --out") from error
    return list(flat_tables(directory).values())


def _csv(table: FlatTable, path: Path) -> int:
    count = 0
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([name for name, _ in table.columns])
        for row in table.rows():
            writer.writerow(["" if value is None else value for value in row])
            count += 1
    return count


def _parquet(arrow: Any, parquet: Any, schema: Any, table: FlatTable, path: Path) -> int:
    count, rows = 0, table.rows()
    with parquet.ParquetWriter(path, schema, compression="zstd") as writer:
        while batch := list(islice(rows, _BATCH)):
            columns = [arrow.array(column, type=field.type) for column, field in zip(zip(*batch), schema)]  # noqa: B905
            writer.write_table(arrow.Table.from_arrays(columns, schema=schema))
            count += len(batch)
    return count
