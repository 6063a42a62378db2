"""Recorded runs: their files agree with each other, and a resumed run equals an uninterrupted one."""

from __future__ import annotations

import gc
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from async_hfl import api
from async_hfl.assembly.settings.loading import available
from async_hfl.core.identifiers import Address
from async_hfl.nodes.cloud.node import CloudNode
from async_hfl.simulation.recorded_run import EPOCHS, UPDATES_PER_DEVICE, Progress

DEVICES = 6
SETTINGS = [
    f"task.devices={DEVICES}",
    "network.gateways=2",
    "gateway.epochs=5",
    "cloud.epochs=30",
    "simulation.checkpoint_epochs=3",
]


class PowerCut(Exception):
    pass


def run(out: Path, method: str = "async-hfl", *more: str, **options: Any) -> api.Run:
    settings = [*SETTINGS, *more]
    return api.run(task="null", network="uniform", method=method, seed=1, overrides=settings, out=out, **options)


def cut_at(epoch: int) -> Any:
    """Return a callback that raises when this epoch is reported."""

    def on_epoch(progress: Progress) -> None:
        if progress.epoch >= epoch:
            raise PowerCut

    return on_epoch


def without(result: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in result.items() if key not in ("run", "wall_s")}


@pytest.mark.parametrize("grid", ["auto", "aggregations", "700"])
@pytest.mark.parametrize(
    ("method", "epochs", "made"),
    [("async-hfl", 6, 6), ("sync-random", 3, 3), ("two-tier", 2, 10)],  # a relay's epochs are Z = 5 device updates
)
def test_the_number_of_cloud_epochs_does_not_depend_on_when_they_are_evaluated(
    method: str, epochs: int, made: int, grid: str, tmp_path: Path
) -> None:
    done = run(tmp_path / "run", method, f"cloud.epochs={epochs}", f"evaluation.grid={grid}")
    assert (done.summary["cloud_epochs"], done.epochs[-1]["epoch"]) == (made, made)
    if grid == "aggregations":
        assert [row["epoch"] for row in done.epochs] == list(range(made // epochs, made + 1, made // epochs))


def test_all_methods_are_evaluated_at_the_same_times(tmp_path: Path) -> None:
    clocks, points = [], []
    for method in ("async-hfl-plus", "semi-async", "two-tier"):
        done = run(tmp_path / method, method)
        clock = done.directory.read_manifest()["evaluation"]
        clocks.append(clock)
        points += [row["at"] / clock["grid_s"] for row in done.epochs[:-1]]
    assert clocks[0] == clocks[1] == clocks[2]
    assert clocks[0]["window_s"] == 10 * clocks[0]["grid_s"] > 0
    assert points == pytest.approx([round(point) for point in points])


def test_a_time_limit_ends_every_method_at_the_same_time(tmp_path: Path) -> None:
    for method in ("async-hfl", "sync-random", "two-tier"):
        made = run(tmp_path / method, method, "cloud.epochs=100000", "cloud.time_limit=3000")
        assert made.epochs[-1]["epoch"] == made.summary["cloud_epochs"]
        assert 3000.0 <= made.summary["virtual_s"] < 3100.0  # gateways stop when they have heard of it


OF_EACH_KIND = {"async-hfl", "async-hfl-plus", "two-tier", "fedbuff", "rfl-ha", "sync-tifl", "sync-oort"}
"""Methods that together have every aggregation rule, and every policy with a memory."""


@pytest.mark.parametrize(
    "method",
    [name if name in OF_EACH_KIND else pytest.param(name, marks=pytest.mark.long) for name in available("method")],
)
def test_a_run_that_is_killed_repeatedly_ends_as_an_uninterrupted_one(method: str, tmp_path: Path) -> None:
    wanted = run(tmp_path / "whole", method)
    broken = tmp_path / "broken"
    rows = [int(row["epoch"]) for row in wanted.epochs]
    with pytest.raises(PowerCut):
        run(broken, method, on_epoch=cut_at(rows[1]))
    for place in (4, 10, 11, 17, 23):
        with pytest.raises(PowerCut):
            api.resume(broken, on_epoch=cut_at(rows[place]))
    found = api.resume(broken)
    assert without(found.summary) == without(wanted.summary)
    for name in ("events.jsonl", "epochs.csv", "model.safetensors"):
        assert (broken / name).read_bytes() == (wanted.path / name).read_bytes()


@pytest.mark.parametrize(
    "setting",
    [
        "simulation.batching=off",
        "simulation.solver_seconds=7.5",
        "cloud.delivery=broadcast",
        "gateway.in_flight=discard",
        "warmup.quorum=1.0",
        "association.period=1",
        "gateway.bandwidth=5%",
        "gateway.bandwidth=500%",
        "utility.compression=pca",
        "selection.min_participation=0.3",
    ],
)
def test_a_run_that_is_killed_ends_alike_under_other_settings(setting: str, tmp_path: Path) -> None:
    settings = ("cloud.epochs=12", setting)
    wanted = run(tmp_path / "whole", "async-hfl", *settings)
    with pytest.raises(PowerCut):
        run(tmp_path / "broken", "async-hfl", *settings, on_epoch=cut_at(5))
    with pytest.raises(PowerCut):
        api.resume(tmp_path / "broken", on_epoch=cut_at(10))
    assert without(api.resume(tmp_path / "broken").summary) == without(wanted.summary)


def test_a_checkpoint_after_the_cloud_has_stopped_holds_its_time(tmp_path: Path) -> None:
    """Here every epoch has a checkpoint; the last one is saved while gateways are still running."""
    settings = ("task.devices=2", "gateway.epochs=20", "cloud.epochs=6", "simulation.checkpoint_epochs=1")
    whole = run(tmp_path / "run", "async-hfl", *settings)
    wanted = whole.summary
    whole.directory.summary.unlink()
    assert api.resume(tmp_path / "run").summary["virtual_s"] == wanted["virtual_s"]


@pytest.mark.parametrize("every", [3, None])
def test_the_distance_between_checkpoints(every: int | None, tmp_path: Path) -> None:
    """Epochs as set; by default also updates, so that a large network does not spend its time on checkpoints."""
    path = tmp_path / "run" / "checkpoint.msgpack"
    seen: list[tuple[Progress, int | None]] = []

    def on_epoch(progress: Progress) -> None:
        seen.append((progress, path.stat().st_mtime_ns if path.exists() else None))

    setting = "auto" if every is None else str(every)
    settings = ("cloud.epochs=60", "evaluation.grid=aggregations", f"simulation.checkpoint_epochs={setting}")
    run(tmp_path / "run", "async-hfl", *settings, on_epoch=on_epoch)
    # A checkpoint follows the epoch after whose report the file is found changed.
    saved = [before for (before, was), (_, now) in pairwise(seen) if now != was]
    assert len(saved) >= 3
    for earlier, later in pairwise([(0, 0), *((progress.epoch, progress.updates) for progress in saved)]):
        if every is None:
            assert later[0] - earlier[0] >= EPOCHS
            assert later[1] - earlier[1] >= UPDATES_PER_DEVICE * DEVICES
        else:
            assert later[0] - earlier[0] == every


def test_the_bytes_in_the_summary_are_the_sum_of_the_events(tmp_path: Path) -> None:
    made = run(tmp_path / "run")
    counted: Counter[tuple[str, str, str]] = Counter()
    for _, sent in made.events("sent"):
        sender, receiver = Address(*sent["sender"]), Address(*sent["receiver"])
        tier = "device-gateway" if 2 in (sender.tier, receiver.tier) else "gateway-cloud"
        direction = "up" if sender.tier > receiver.tier else "down"
        for kind in ("model", "gradient", "basis", "control"):
            counted[tier, direction, kind] += sent[kind]
    told = {
        (tier, direction, kind): count
        for tier, directions in made.summary["bytes"].items()
        for direction, kinds in directions.items()
        for kind, count in kinds.items()
    }
    assert told == dict(counted)
    assert sum(told.values()) == made.summary["bytes_total"]
    assert counted["device-gateway", "up", "model"] > 0
    models_up = sum(count for (_, direction, kind), count in told.items() if (direction, kind) == ("up", "model"))
    assert models_up >= made.epochs[-1]["bytes_models_up"]


def test_the_summary_agrees_with_the_events(tmp_path: Path) -> None:
    made = run(tmp_path / "run")
    result = made.summary
    assert result["job_ends"] == dict(sorted(Counter(job["reason"] for _, job in made.events("job")).items()))
    selections = [fields for _, fields in made.events("selection")]
    assert result["bandwidth_bound_share"] == sum(fields["bound"] for fields in selections) / len(selections)
    assert result["lone_selections"] == sum(fields["lone"] for fields in selections)
    assert result["device_updates"] == sum(job["reason"] == "aggregated" for _, job in made.events("job"))
    (ended,) = [fields for _, fields in made.events("lifecycle") if fields["what"] == "warmup_ended"]
    assert result["warmup_s"] == ended["at"]
    times = [fields["at"] for _, fields in made.events("epoch")]
    assert times == sorted(times)
    assert [row["at"] for row in made.epochs] == times


def test_a_policy_that_declines_devices_is_not_counted_as_bound_by_the_bandwidth(tmp_path: Path) -> None:
    """TiFL selects from one tier only; with enough bandwidth for all, the limit excludes no device."""
    free = run(tmp_path / "free", "sync-tifl", "gateway.bandwidth=1e9").summary
    assert free["bandwidth_bound_share"] == 0.0
    tight = run(tmp_path / "tight", "sync-tifl", "gateway.bandwidth='10%'").summary
    assert tight["bandwidth_bound_share"] > 0.5


def test_batches_are_larger_than_one_and_little_is_wasted(tmp_path: Path) -> None:
    lazy = run(tmp_path / "on").summary
    eager = run(tmp_path / "off", "async-hfl", "simulation.batching=off").summary
    assert lazy["digest"] == eager["digest"]
    assert eager["training"]["largest_batch"] == 1
    assert eager["training"]["calls"] == eager["training"]["trained"]
    assert eager["training"]["wasted"] == 0
    assert lazy["training"]["largest_batch"] > 1
    assert lazy["training"]["calls"] < eager["training"]["calls"]


def test_solving_takes_the_virtual_time_that_is_set(tmp_path: Path) -> None:
    """The first association follows the warm-up, until which both runs are the same."""
    free, charged = run(tmp_path / "a"), run(tmp_path / "b", "async-hfl", "simulation.solver_seconds=100")
    first = [next(iter(made.events("association")))[1]["at"] for made in (free, charged)]
    assert first[0] == free.summary["warmup_s"] == charged.summary["warmup_s"]
    assert first[1] == first[0] + 100


def test_a_run_frees_the_former_runs_of_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker of a sweep makes hundreds; the nodes of each refer to each other, with their models."""
    monkeypatch.setattr("async_hfl.simulation.recorded_run._GarbageCollection._WORTH_S", 0.0)
    for name in ("one", "two", "three"):
        run(tmp_path / name)
    assert sum(isinstance(thing, CloudNode) for thing in gc.get_objects()) <= 1
