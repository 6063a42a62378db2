"""The engine benchmarks run, print their results, and compare equal work."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
HANG_GUARD_S = 300
FIELDS = {"task", "engine", "updates_per_s", "ratio_to_loop", "share_of_peak", "peak_bytes"}


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))


def told(script: str, *arguments: str) -> Any:
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / script), *arguments, "--json"],
        capture_output=True,
        text=True,
        timeout=HANG_GUARD_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    [line] = done.stdout.splitlines()
    return json.loads(line)


SMALL = ("--quick", "--tasks", "digits", "--clients", "digits=4", "--rounds", "1", "--seconds", "0.02")


def test_only_async_hfl_is_measured_if_nothing_else_is_installed() -> None:
    [row] = told("engine.py", *SMALL, "--engines", "ours")
    assert set(row) == FIELDS
    assert (row["task"], row["engine"], row["ratio_to_loop"]) == ("digits", "ours", None)
    assert row["updates_per_s"] > 0
    assert row["share_of_peak"] > 0


@pytest.mark.long
@pytest.mark.skipif(find_spec("torch") is None, reason="needs PyTorch")
def test_pytorch_ends_at_the_same_weights() -> None:
    """The benchmark itself raises an error if the weights differ."""
    rows = told("engine.py", *SMALL, "--engines", "ours,torch-loop,torch-tuned")
    assert [row["engine"] for row in rows] == ["ours", "torch-loop", "torch-tuned"]
    assert rows[1]["ratio_to_loop"] == 1
    assert all(set(row) == FIELDS for row in rows)


def test_a_missing_library_is_left_out_with_a_reason() -> None:
    script = [sys.executable, str(BENCHMARKS / "engine.py"), *SMALL, "--engines", "flower"]
    nowhere = ["--peer-python", "flower=/nowhere/python"]
    done = subprocess.run([*script, *nowhere], capture_output=True, text=True, timeout=HANG_GUARD_S, check=False)
    assert done.returncode == 0, done.stderr
    assert "flower: left out: /nowhere/python" in done.stderr


def test_share_of_a_whole_run() -> None:
    found = told("run_share.py", "--task", "digits", "--epochs", "3", "--rounds", "1")
    assert found["trained"] >= found["used"] > 0
    assert 0 < found["share_used"] <= found["share"]
    assert found["engine_cpu_ms"] > 0
    assert found["run_cpu_ms"] > 0


def test_counted_operations() -> None:
    """By hand: HAR multiplies 561 x 128 and 128 x 6 per sample; the number of the CNN is published."""
    from engine_peers.flops import update_flops
    from engine_peers.sizes import SIZES

    sizes = {size.task: size for size in SIZES}
    assert update_flops(sizes["har"]) == 300 * 5 * (4 * 561 * 128 + 6 * 128 * 6)
    assert update_flops(replace(sizes["mnist"], samples=1)) == 4 * 288_000 + 6 * (1_600_000 + 400_000 + 5_000)
    # 0.556 billion multiplications in the forward pass, as published for this network.
    assert update_flops(replace(sizes["cifar10"], samples=1)) / 6 == pytest.approx(0.556e9, rel=0.005)


def test_batch_orders_are_those_of_the_engine(tmp_path: Path) -> None:
    from async_hfl.learning.engine.batches import BatchOrders
    from async_hfl.learning.engine.recipe import StaticHyperparameters
    from engine_peers.prepare import prepare
    from engine_peers.sizes import SIZES
    from engine_peers.work import load_work

    size = replace(SIZES[0], samples=10, batch_size=4, epochs=2, clients=3)
    prepare(size, "synthetic", tmp_path / "work")
    work = load_work(tmp_path / "work")
    rows, orders = work.array("rows"), work.array("orders")
    expected = BatchOrders(
        list(rows), np.array(work.seeds, dtype=np.uint64), StaticHyperparameters(2, 4, gradient=False)
    ).draw()
    visited = np.stack([own[order] for own, order in zip(rows, orders, strict=True)])
    assert np.array_equal(visited, expected.reshape(3, 2, -1)[:, :, :10])
    assert all(sorted(epoch) == sorted(own) for own, order in zip(rows, visited, strict=True) for epoch in order)
    assert np.array_equal(work.layout.flat(work.layout.arrays(work.array("start"))), work.array("start"))
