"""Association from a file.

A table is CSV with the columns device and gateway (`device,gateway` in its first line), or JSON: an object from device
to gateway (`{"0": 2, "1": 0}`) or a list with the gateway of each device. Devices and gateways are numbered from 0, and
-1 stands for none.

A device that is not in the table, or whose link to its gateway is down, has no gateway; with `every_device` it goes to
its nearest one, so that a run can continue.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from async_hfl.core.errors import DataError
from async_hfl.core.policies import Association, AssociationProblem, Need, association_objective
from async_hfl.decisions.association.nearest import NearestGateway


@dataclass(frozen=True, slots=True)
class FixedAssociation:
    needs: ClassVar[frozenset[Need]] = frozenset()
    revisits: ClassVar[bool] = False

    table: Mapping[int, int]
    name: str
    """The file, for error messages."""

    def check(self, devices: int, gateways: int) -> None:
        """Check that the table fits a network of this size, before a run starts."""
        for device, gateway in self.table.items():
            if device >= devices:
                raise DataError(f"{self.name}: device {device} is not one of 0..{devices - 1}")
            if gateway >= gateways:
                raise DataError(f"{self.name}: device {device}: gateway {gateway} is not one of 0..{gateways - 1}")

    def solve(self, problem: AssociationProblem) -> Association:
        count = len(problem.learning_utility)
        self.check(count, len(problem.bandwidth))
        wanted = np.full(count, -1, np.int64)
        wanted[list(self.table)] = list(self.table.values())
        works = np.zeros(count, bool)
        works[problem.link_device[wanted[problem.link_device] == problem.link_gateway]] = True
        gateway_of = np.where(works, wanted, -1)
        if problem.every_device:
            elsewhere = NearestGateway().solve(problem).gateway_of
            gateway_of = np.where(works, gateway_of, elsewhere)
        return Association(gateway_of, association_objective(problem, gateway_of))


def read_table(text: str, name: str) -> dict[int, int]:
    """Read device -> gateway from CSV or JSON; every error names its place."""
    start = text.lstrip()[:1]
    table = _from_json(text, name) if start in ("{", "[") else _from_csv(text, name)
    if not table:
        raise DataError(f"{name}: names no device; write device,gateway on the first line and a device a line below")
    return table


def _from_json(text: str, name: str) -> dict[int, int]:
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise DataError(f"{name}: not valid JSON: {error}") from error
    pairs = enumerate(data) if isinstance(data, list) else data.items()
    table = {}
    for key, gateway in pairs:
        device = _number(str(key), f"{name}: device {key!r}", 0)
        table[device] = _number(str(gateway), f"{name}: device {device}: gateway {gateway!r}", -1)
    return table


def _from_csv(text: str, name: str) -> dict[int, int]:
    rows = list(csv.reader(io.StringIO(text)))
    header = [cell.strip() for cell in rows[0]] if rows else []
    if sorted(header) != ["device", "gateway"]:
        raise DataError(f"{name}, line 1: {','.join(header)!r} is not a header; write device,gateway")
    device_at = header.index("device")
    table: dict[int, int] = {}
    for line, row in enumerate(rows[1:], 2):
        if not any(cell.strip() for cell in row):
            continue
        if len(row) != 2:
            raise DataError(f"{name}, line {line}: {len(row)} values where device and gateway are wanted")
        device = _number(row[device_at], f"{name}, line {line}: device {row[device_at]!r}", 0)
        if device in table:
            raise DataError(f"{name}, line {line}: device {device} is given twice")
        gateway = row[1 - device_at]
        table[device] = _number(gateway, f"{name}, line {line}: gateway {gateway!r}", -1)
    return table


def _number(text: str, what: str, least: int) -> int:
    try:
        number = int(text)
    except ValueError:
        number = least - 1
    if number < least:
        raise DataError(f"{what} is not a whole number of at least {least}")
    return number
