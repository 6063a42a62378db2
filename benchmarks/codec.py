"""Light vectors: numpy and XLA compared to the bit, and the speed of the numpy codec on one core.

    python benchmarks/codec.py              1,000 random cases on JAX's first device, then the speeds
    python benchmarks/codec.py --quick      45 cases, and the speeds of short vectors only
    python benchmarks/codec.py --json       one line of JSON, last on stdout

A case is a kind of encoding, a length, and values of a random sort: ordinary, tiny, huge, any bits at all, or at the
edge of a scale. It is encoded as a vector and as a change. The script ends with an error if any bit differs.

Speeds are gigabytes of float32 per second of CPU time, best of several repeats.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from async_hfl.core.compression.codec import decode, decode_change, encode, encode_change
from async_hfl.core.compression.encodings import EncodingKind, encoded_bytes, is_finite
from async_hfl.core.compression.scratch import Scratch
from async_hfl.core.vectors import HostVector, to_host
from async_hfl.core.weights import frozen
from async_hfl.core.weights import is_finite as vector_is_finite
from async_hfl.learning.engine.backend import jax
from async_hfl.learning.engine.on_device.jax_vectors import DeviceOps

Row = dict[str, Any]
Triple = tuple[HostVector, HostVector, HostVector | None]
"""Weights, base and memory."""
KINDS: tuple[EncodingKind, ...] = ("float16", "int8", "int4")
SHAPES = ((1, 1), (63, 63), (64, 60), (65, 65), (5, 0), (1000, 937), (1001, 1001), (40_000, 39_990), (72_710, 72_710))
"""Lengths of vectors, and of their parts that are encoded. Every shape needs programs of its own."""
SPEED_SIZES = (72_710, 431_080, 11_000_000)
LARGEST_CODES = (7, 127)


def compare(kind: EncodingKind, vectors: Triple, trained: int, key: int, ops: DeviceOps) -> list[str]:
    """Return what differs between numpy and the device; nothing should."""
    weights, base, memory = vectors
    size = len(weights)
    placed = [None if vector is None else ops.place(vector) for vector in vectors]
    assert placed[0] is not None
    assert placed[1] is not None
    encoded = encode(weights, kind, trained, key)
    changed, left = encode_change(weights, base, memory, kind, trained, key)
    if left is None:
        left = frozen(np.zeros(trained, np.float32))
    there = placed[0].encode(kind, trained, key)
    changed_there, left_there = placed[0].encode_change(placed[1], placed[2], kind, trained, key)
    differences = [] if same(left, to_host(left_there)) else ["memory"]
    pairs = (
        ("vector", there, encoded, decode(encoded, kind, size, trained)),
        ("change", changed_there, changed, decode_change(changed, base, kind, trained)),
    )
    for name, found, expected, decoded in pairs:
        agreements = {
            "bytes": np.array_equal(found.to_host(), expected),
            "number of bytes": found.nbytes == len(expected) == encoded_bytes(kind, trained, size - trained),
            "finite": found.finite == is_finite(expected, kind, size, trained),
            "decoded": same(decoded, to_host(found.decoded)),
            "decoded finite": found.decoded.finite == vector_is_finite(decoded),
        }
        differences += [f"{name}: {what}" for what, agree in agreements.items() if not agree]
    return differences


def same(one: HostVector, other: HostVector) -> bool:
    """True if the bits are the same; NaN has several forms, which count as one."""
    equal = (one.view(np.uint32) == other.view(np.uint32)) | (np.isnan(one) & np.isnan(other))
    return one.shape == other.shape and bool(equal.all())


def random_values(random: np.random.Generator, size: int) -> HostVector:
    """Return values of one random sort."""
    values = random.standard_normal(size)
    with np.errstate(over="ignore"):
        match random.integers(6):
            case 0:
                found = values
            case 1:  # anything from subnormal to too large
                found = values * 10.0 ** random.uniform(-45, 39)
            case 2:  # the same within one vector
                found = values * 10.0 ** random.uniform(-45, 38, size)
            case 3:  # any bits: also NaN, infinity and subnormal numbers
                return frozen(random.integers(0, 1 << 32, size, np.uint32).view(np.float32))
            case 4:  # at the edges of scales
                edges = random.choice(LARGEST_CODES, size) * 2.0 ** random.integers(-149, 122, size)
                steps = random.integers(-1, 2, size).astype(np.int32)
                return frozen((edges.astype(np.float32).view(np.int32) + steps).view(np.float32))
            case _:  # mostly zeros
                found = values * (random.random(size) < 0.1)
        return frozen(found.astype(np.float32))


def random_triple(random: np.random.Generator, size: int, trained: int) -> Triple:
    """Return vectors that have to do with each other, or not."""
    weights = random_values(random, size)
    base = random_values(random, size)
    if random.random() < 0.6:  # a few units in the last place away, so that differences of tiny values are subnormal
        steps = random.integers(-3, 4, size).astype(np.int32)
        base = frozen((weights.view(np.int32) ^ steps).view(np.float32))
    memory = random_values(random, trained) if random.random() < 0.7 else None
    return weights, base, memory


def check(cases: int, seed: int, ops: DeviceOps) -> Row:
    """Compare random cases; exit with a message if one differs."""
    random, finite = np.random.default_rng(seed), 0
    for number in range(cases):
        kind = KINDS[number % len(KINDS)]
        size, trained = SHAPES[number // len(KINDS) % len(SHAPES)]
        vectors = random_triple(random, size, trained)
        key = int(random.integers(1 << 64, dtype=np.uint64))
        if differences := compare(kind, vectors, trained, key, ops):
            sys.exit(f"case {number} of seed {seed}, {kind}, {trained} of {size} values: {', '.join(differences)}")
        finite += vector_is_finite(vectors[0])
    return {"cases": cases, "finite": finite, "seed": seed}


def fastest(work: Callable[[], object], seconds: float) -> float:
    """Return the shortest time of a call, in seconds of CPU time."""
    work()
    best, until = float("inf"), time.thread_time() + seconds
    while time.thread_time() < until:
        started = time.thread_time()
        work()
        best = min(best, time.thread_time() - started)
    return best


def speed(kind: EncodingKind, size: int, seconds: float) -> Row:
    """Return the speeds of the numpy codec for a change of ordinary size."""
    random = np.random.default_rng(size)
    base, memory, change = (random.standard_normal(size, np.float32) for _ in range(3))
    memory *= np.float32(1e-4)
    weights: npt.NDArray[np.float32] = base + change * np.float32(0.01)
    encoded, scratch = encode(weights, kind, size, 1), Scratch()
    work = {
        "encode": lambda: encode(weights, kind, size, 1, scratch),
        "encode_change": lambda: encode_change(weights, base, memory, kind, size, 1, scratch),
        "decode": lambda: decode(encoded, kind, size, size),
    }
    return {"kind": kind, "size": size} | {name: 4e-9 * size / fastest(one, seconds) for name, one in work.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description="numpy and XLA codecs compared, and speed of the numpy codec")
    parser.add_argument("--quick", action="store_true", help="45 cases, and the speeds of short vectors only")
    parser.add_argument("--json", action="store_true", help="print one line of JSON, last on stdout")
    parser.add_argument("--cases", type=int, help="number of random cases (1,000; with --quick 45)")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    cases = options.cases if options.cases is not None else 45 if options.quick else 1000
    device = jax.local_devices()[0]
    checked = check(cases, options.seed, DeviceOps(device))
    if not options.json:
        print(f"{cases} cases ({checked['finite']} of them finite): numpy and {device.device_kind} agree to the bit")
        print("\n| kind | values | encode GB/s | encode_change GB/s | decode GB/s |\n|---|---|---|---|---|")
    rows = []
    for kind in KINDS:
        for size in SPEED_SIZES[:1] if options.quick else SPEED_SIZES:
            row = speed(kind, size, 0.1 if options.quick else 2.0)
            rows.append(row)
            if not options.json:
                speeds = [f"{row[name]:.2f}" for name in ("encode", "encode_change", "decode")]
                print("|", " | ".join([kind, f"{size:,}", *speeds]), "|", flush=True)
    if options.json:
        versions = {"jax": jax.__version__, "numpy": np.__version__, "python": platform.python_version()}
        print(json.dumps({"device": device.device_kind, "versions": versions, "compared": checked, "speeds": rows}))


if __name__ == "__main__":
    main()
