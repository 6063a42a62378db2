"""Whole simulated runs with encoded models: bandwidth, delays, bytes, and the same result after a checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from async_hfl import api
from async_hfl.assembly.build.simulation import BuiltSimulation, build
from async_hfl.assembly.settings.loading import compose
from async_hfl.core.compression.encodings import EncodingKind, encoded_bytes

KINDS: list[EncodingKind] = ["float32", "float16", "int8", "int4"]
SIZE = 5000
BYTES = {kind: encoded_bytes(kind, SIZE, 0) for kind in KINDS}


def built(kind: EncodingKind, network: str, *overrides: str) -> BuiltSimulation:
    chosen = ["task.devices=20", f"task.model_size={SIZE}", f"transfer.encoding={kind}", *overrides]
    composed = compose(task="null", network=network, method="async-hfl", preset="tight", overrides=chosen)
    return build(composed.settings, 1)


@pytest.mark.parametrize("network", ["uniform", "nycmesh", "nycmesh-paper"])
def test_tight_is_the_same_bandwidth_whatever_the_encoding(network: str) -> None:
    """Lighter updates then let more devices take part."""
    found = {kind: built(kind, network) for kind in KINDS}
    assert len({one.bandwidth for one in found.values()}) == 1
    assert {kind: one.world.model_bytes for kind, one in found.items()} == BYTES
    # A job takes the rate of its own, smaller model.
    assert {kind: one.world.gateways[0].config.model_bytes for kind, one in found.items()} == BYTES
    assert {kind: one.world.cloud.config.model_bytes for kind, one in found.items()} == BYTES


@pytest.mark.parametrize("network", ["uniform", "nycmesh"])
def test_delays_of_networks_with_rates_shrink_with_the_bytes(network: str) -> None:
    found = {kind: built(kind, network, "network.link_noise=0").network for kind in KINDS}
    links = found["float32"].links
    device, gateway = int(links.link_device[0]), int(links.link_gateway[0])

    def transfers(kind: EncodingKind) -> float:
        delays, size = found[kind].delays, BYTES[kind]
        return delays.to_device(gateway, device, size) + delays.to_gateway(device, gateway, size)

    whole = transfers("float32")
    assert [transfers(kind) for kind in KINDS] == sorted(map(transfers, KINDS), reverse=True)
    for kind in KINDS[1:]:
        share = (BYTES["float32"] - BYTES[kind]) / (BYTES["float32"] - BYTES["int4"])
        # What is saved is the time of the bytes that are saved, and nodes expect to save it.
        assert whole - transfers(kind) == pytest.approx(share * (whole - transfers("int4")), rel=1e-6)
        expected = links.expected_latency[0] - found[kind].links.expected_latency[0]
        assert expected == pytest.approx(whole - transfers(kind), rel=1e-6)
    assert transfers("int4") < whole


def run(out: Path, *overrides: str, method: str = "async-hfl", pause_after: int = 0) -> api.Run:
    chosen = ["task.devices=8", "task.model_size=300", "network.gateways=2", "cloud.epochs=30", "task.target=2"]
    epochs = 0

    def pause() -> bool:
        nonlocal epochs
        epochs += 1
        return epochs == pause_after

    return api.run(
        task="null",
        method=method,
        network="uniform",
        seed=3,
        overrides=[*chosen, "simulation.checkpoint_epochs=1", *overrides],
        out=out,
        pause=pause if pause_after else None,
    )


INT8, INT4_UP = "transfer.encoding=int8", "transfer.up=int4"


@pytest.mark.parametrize(
    ("method", "transfer"),
    [
        *(("async-hfl", INT8), ("semi-async", INT4_UP)),
        *(pytest.param(method, INT4_UP, marks=pytest.mark.long) for method in ("async-hfl", "two-tier", "sync-random")),
        *(pytest.param(method, INT8, marks=pytest.mark.long) for method in ("two-tier", "sync-random", "semi-async")),
    ],
)
def test_batching_and_a_checkpoint_change_nothing(method: str, transfer: str, tmp_path: Path) -> None:
    whole = run(tmp_path / "whole", transfer, method=method)
    one_by_one = run(tmp_path / "alone", transfer, "simulation.batching=off", method=method)
    parts = run(tmp_path / "parts", transfer, method=method, pause_after=11)
    assert not parts.complete
    resumed = api.resume(parts.path)
    plain = run(tmp_path / "plain", method=method)
    digests = [one.summary["digest"] for one in (whole, one_by_one, resumed, plain)]
    assert digests[0] == digests[1] == digests[2] != digests[3]
    events = [(one.path / "events.jsonl").read_bytes() for one in (whole, resumed)]
    assert events[0] == events[1]


@pytest.mark.parametrize("gradient", ["last", "update"])
def test_the_bytes_of_the_summary_are_those_of_the_messages(gradient: str, tmp_path: Path) -> None:
    done = run(tmp_path / "run", "transfer.up=int4", "transfer.down=int8", f"utility.gradient={gradient}")
    sent: list[dict[str, Any]] = [fields for kind, fields in done.events("sent")]
    up, down = encoded_bytes("int4", 300, 0), encoded_bytes("int8", 300, 0)
    for kind, size in (("Train", down), ("GlobalModel", down), ("Answer", down), ("Update", up), ("Upload", up)):
        assert {fields["model"] for fields in sent if fields["message"] == kind} == {size}
    updates = [fields["gradient"] for fields in sent if fields["message"] == "Update"]
    assert set(updates) == ({up} if gradient == "last" else {0})
    counted = done.summary["bytes"]
    for kind in ("model", "gradient", "control"):
        listed = sum(fields[kind] for fields in sent)
        assert listed == sum(
            counted[tier][direction][kind]
            for tier in ("device-gateway", "gateway-cloud")
            for direction in ("up", "down")
        )
