"""The fault table, rows that need a network or a disk of their own: each runs in a namespace that an ordinary user may
create, and is skipped with the reason where that is refused."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fault_rows import write_row
from fault_scene import HANG_GUARD_S, MODEL_BYTES, assert_nothing_lost, scene

from async_hfl.deployment.cluster.local_cluster import LocalCluster
from async_hfl.deployment.cluster.proxy import Shape

pytestmark = pytest.mark.long
INSIDE = "ASYNC_HFL_INSIDE_A_NAMESPACE"
LOSS = 10
DISK_BYTES = 12_000_000


def play_inside(kind: str, script: str, name: str, folder: Path) -> None:
    """Run a test again inside a namespace, which the script prepares."""
    for tool in ("unshare", *(("nft", "ip") if kind == "-rn" else ("mount",))):
        if shutil.which(tool, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin") is None:
            pytest.skip(f"needs {tool}")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--basetemp={folder / 'inside'}"]
    inner = [*command, f"{__file__}::{name}"]
    environment = {**os.environ, INSIDE: str(folder), "PATH": os.environ.get("PATH", "") + ":/usr/sbin:/sbin"}
    done = subprocess.run(
        ["unshare", kind, "bash", "-c", f'{script} || exit 99; exec "$@"', "bash", *inner],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    if done.returncode == 99 or "unshare failed" in done.stderr or "Operation not permitted" in done.stderr:
        pytest.skip(f"no namespace of our own: {done.stderr.strip()[:200]}")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]


def test_one_packet_in_ten_is_lost(tmp_path: Path) -> None:
    """The kernel drops packets to and from the gateways."""
    if INSIDE not in os.environ:
        play_inside("-rn", "ip link set lo up", test_one_packet_in_ten_is_lost.__name__, tmp_path)
        return

    def drop(cluster: LocalCluster) -> None:
        # In both directions between proxies and gateways: TCP retransmits, as on a bad radio link.
        ports = ", ".join(cluster.addresses[name].rpartition(":")[2] for name in cluster.gateway_names)
        rules = "\n".join(
            f"add rule inet faults drops tcp {end} {{ {ports} }} numgen random mod {LOSS} == 0 counter drop"
            for end in ("dport", "sport")
        )
        head = "add table inet faults\nadd chain inet faults drops { type filter hook input priority 0; }\n"
        subprocess.run(["nft", "-f", "-"], input=head + rules, text=True, check=True)

    def dropped() -> int:
        text = subprocess.run(["nft", "list", "ruleset"], capture_output=True, text=True, check=True).stdout
        return sum(int(line.split("packets ")[1].split()[0]) for line in text.splitlines() if "packets " in line)

    async def play() -> None:
        async with scene(tmp_path, shape=Shape(), prepared=drop) as stage:
            begin = time.monotonic()
            uploads = len(stage.since(0.0, "cloud", "upload"))
            await asyncio.sleep(20)
            stage.look()
            mixed = len(stage.since(0.0, "cloud", "upload")) - uploads
            jobs = sum(
                len(stage.since(begin, name, "job", reason="aggregated")) for name in stage.cluster.gateway_names
            )
            back = await stage.aggregated(time.monotonic() - 1.0)
            await stage.drain()
        found = stage.audit()
        assert_nothing_lost(found)
        assert dropped() > 20
        assert mixed > 1
        write_row(
            "packet_loss",
            f"1 packet in {LOSS} between devices and gateways dropped by the kernel, all the time",
            found,
            (None, "TCP"),
            (None, "it goes on"),
            f"{dropped():,} packets dropped; {jobs / (back - begin):.1f} updates of {MODEL_BYTES // 1000} kB a second",
        )

    asyncio.run(play())


def test_a_disk_is_full(tmp_path: Path) -> None:
    """The disk of a gateway fills up: it exits with an error that says so, and continues when there is room."""
    if INSIDE not in os.environ:
        disk = tmp_path / "disk"
        disk.mkdir()
        script = f"mount -t tmpfs -o size={DISK_BYTES} none {disk}"
        play_inside("-rm", script, test_a_disk_is_full.__name__, tmp_path)
        return
    disk = Path(os.environ[INSIDE]) / "disk"

    def small_disk(cluster: LocalCluster) -> None:
        node = cluster.nodes["gateway-1"]
        node.arguments[node.arguments.index("--state") + 1] = str(disk / "gateway-1")
        cluster.state_of("gateway-1").parent.mkdir(parents=True, exist_ok=True)
        cluster.state_of("gateway-1").symlink_to(disk / "gateway-1")

    async def play() -> None:
        (disk / "ballast").write_bytes(bytes(DISK_BYTES // 2))
        async with scene(tmp_path, prepared=small_disk, shape=Shape(rate=600_000)) as stage:
            gateway = stage.node("gateway-1")
            begin = time.monotonic()
            code = await asyncio.wait_for(gateway.wait(), HANG_GUARD_S)
            ended = time.monotonic()
            stage.dead("gateway-1", ended)
            assert code == 2, gateway.log_tail()
            assert "the disk is full" in gateway.log_tail()
            noticed = await stage.until_seen(begin, "cloud", "PeerLost")
            (disk / "ballast").unlink()
            await gateway.start()
            back = await stage.aggregated(ended, gateway="gateway-1")
            await stage.drain()
        found = stage.audit()
        assert_nothing_lost(found)
        write_row(
            "disk_full",
            "a gateway's disk fills up; it is started again when there is room",
            found,
            (max(noticed - ended, 0.0), "itself at once (exit code 2, says what to do); the cloud"),
            (back - ended, "it mixes an update"),
        )

    asyncio.run(play())
