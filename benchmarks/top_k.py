"""Top-k sparsification with error feedback beside int4, at equal bytes.

    python benchmarks/top_k.py run ROWS.jsonl --task digits --seeds 5 --workers 2
    python benchmarks/top_k.py table ROWS.jsonl INT4_ROWS.jsonl

A sparse change names the values of largest magnitude by a bitmap, and gives them as halves or as int8 with a scale for
every 64 of them, as many as fit into the bytes of an int4 change. What is left out goes into the sender's memory, and
so does the rounding. Only changes upwards are sparse, as whole models cannot be; models travel downwards as float32.

The encoding is not part of the package: here it takes the place of int4 in the codec. `table` compares with the rows
that benchmarks/light_updates.py made with `up` = int4 and `down` = float32, paired by seed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import light_updates
from async_hfl.core.compression import codec
from async_hfl.core.compression.encodings import (
    BLOCK_FORMS,
    HEADER_BYTES,
    Encoded,
    EncodingKind,
    encoded_bytes,
    header,
    is_finite,
    split,
)
from async_hfl.core.compression.rounding_blocks import decode_blocks
from async_hfl.core.compression.scratch import Scratch
from async_hfl.core.vectors import HostVector
from async_hfl.core.weights import frozen

KINDS = ("top-k-halves", "top-k-int8")
DENSE = {"encode_change": codec.encode_change, "decode_change": codec.decode_change}


def sparse_size(kind: str, trained: int) -> int:
    """Return the number of values that fit, beside the bitmap, into the bytes of an int4 change."""
    left = encoded_bytes("int4", trained, 0) - HEADER_BYTES - -(-trained // 8)
    return min(trained, left // 2 if kind == "top-k-halves" else left * 64 // 65)


class TopK:
    """The codec's functions for changes, with sparse changes in place of int4."""

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def encode_change(
        self,
        weights: HostVector,
        base: HostVector,
        memory: HostVector | None,
        kind: EncodingKind,
        trained: int,
        key: int,
        scratch: Scratch | None = None,
        decoded: HostVector | None = None,
    ) -> tuple[Encoded, HostVector | None]:
        if kind != "int4":
            return DENSE["encode_change"](weights, base, memory, kind, trained, key, scratch, decoded)
        meant = weights[:trained] - base[:trained]
        if memory is not None:
            meant = meant + memory
        if not np.isfinite(meant).all():
            raise FloatingPointError("the benchmark's encoding has no mark for values that are not finite")
        kept_values = sparse_size(self._kind, trained)
        kept = np.sort(np.argpartition(np.abs(meant), trained - kept_values)[trained - kept_values :])
        mask = np.zeros(trained, bool)
        mask[kept] = True
        encoded = np.zeros(encoded_bytes("int4", trained, len(weights) - trained), np.uint8)
        start = header("int4", trained)
        encoded[: len(start)] = np.frombuffer(start, np.uint8)
        bitmap, values, rest = self._parts(encoded, trained, len(weights))
        bitmap[:] = np.packbits(mask)
        rest[:] = weights[trained:]
        self._write(values, np.ascontiguousarray(meant[kept]), key)
        left = meant.copy()
        left[kept] -= self._read(values, kept_values)
        if decoded is not None:
            decoded[:] = self.decode_change(encoded, base, kind, trained)
        return encoded, frozen(left)

    def decode_change(self, encoded: Encoded, base: HostVector, kind: EncodingKind, trained: int) -> HostVector:
        if kind != "int4":
            return DENSE["decode_change"](encoded, base, kind, trained)
        bitmap, values, rest = self._parts(encoded, trained, len(base))
        vector = np.array(base)
        vector[:trained][np.unpackbits(bitmap, count=trained).astype(bool)] += self._read(
            values, sparse_size(self._kind, trained)
        )
        vector[trained:] = rest
        return frozen(vector)

    @staticmethod
    def _parts(encoded: Encoded, trained: int, size: int) -> tuple[Encoded, Encoded, HostVector]:
        first = HEADER_BYTES + 4 * (size - trained)
        middle = first + -(-trained // 8)
        return encoded[first:middle], encoded[middle:], encoded[HEADER_BYTES:first].view(np.float32)

    def _write(self, place: Encoded, values: HostVector, key: int) -> None:
        if self._kind == "top-k-halves":
            place[: 2 * len(values)] = values.astype(np.float16).view(np.uint8)
            return
        light = codec.encode(values, "int8", len(values), key)
        assert is_finite(light, "int8", len(values), len(values))
        place[: len(light) - HEADER_BYTES] = light[HEADER_BYTES:]

    def _read(self, place: Encoded, count: int) -> HostVector:
        if self._kind == "top-k-halves":
            return place[: 2 * count].view(np.float16).astype(np.float32)
        light = np.concatenate([np.frombuffer(header("int8", count), np.uint8), place])
        light = light[: encoded_bytes("int8", count, 0)]
        values = np.empty(count, np.float32)
        decode_blocks(split(light, "int8", count, count), BLOCK_FORMS["int8"], None, values)
        return values


def simulate(run: light_updates.Run) -> dict[str, Any]:
    """Simulate a run with sparse changes upwards, and return its row."""
    sparse = TopK(run.up)
    codec.encode_change, codec.decode_change = sparse.encode_change, sparse.decode_change  # type: ignore[assignment]
    return {**light_updates.simulate(run._replace(up="int4")), "up": run.up}


def run_all(options: argparse.Namespace) -> None:
    wanted = [
        light_updates.Run(options.task, method, kind, "float32", seed)
        for seed in range(1, options.seeds + 1)
        for kind in KINDS
        for method in options.methods.split(",")
    ]
    light_updates.append_rows(options.rows, wanted, simulate, options.workers)


def table(options: argparse.Namespace) -> None:
    rows = light_updates.read_rows(options.rows)
    print("| task | to | method | changes | seeds | time over int4 | bytes over int4 |\n|---|---|---|---|---|---|---|")
    for task in light_updates.LEVELS:
        for method in light_updates.METHODS:
            of_kind = {
                kind: {run.seed: row for run, row in rows.items() if run[:4] == (task, method, kind, "float32")}
                for kind in ("int4", *KINDS)
            }
            if any(of_kind[kind] for kind in KINDS) and of_kind["int4"]:
                compared = [row for found in of_kind.values() for row in found.values()]
                level = light_updates.highest_common_level(task, compared)
                for kind in KINDS:
                    cells = light_updates.time_and_bytes(of_kind[kind], of_kind["int4"], level)
                    print(" | ".join((f"| {task}", level, method, kind, str(len(of_kind[kind])), *cells)) + " |")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    running = commands.add_parser("run", help="simulate the runs that have no row yet")
    running.add_argument("rows", type=Path)
    running.add_argument("--task", choices=tuple(light_updates.LEVELS), default="digits")
    running.add_argument("--methods", default="semi-async")
    running.add_argument("--seeds", type=int, default=5)
    running.add_argument("--workers", type=int, default=2)
    running.set_defaults(command=run_all)
    tabling = commands.add_parser("table", help="compare all rows with those of int4")
    tabling.add_argument("rows", type=Path, nargs="+")
    tabling.set_defaults(command=table)
    options = parser.parse_args(arguments)
    options.command(options)


if __name__ == "__main__":
    sys.exit(main())
