"""Bytes of a deployment: those that journals count, and those that cross the network, with headers, gRPC and TLS.

    unshare -n python benchmarks/wire_bytes.py [--encodings float32,float16,int8,int4] [--task digits]

Each encoding is one local cluster with real processes, until the target. In a network namespace of its own (`unshare
-n`, as root), the loopback interface carries nothing else, so its counter includes everything that crossed the network,
also heartbeats, the probes of joining nodes and the handshakes. All sizes are in kB per device update.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--encodings", default="float32,float16,int8,int4")
    parser.add_argument("--task", default="digits")
    parser.add_argument("--gateways", type=int, default=2)
    parser.add_argument("--devices", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    print("| encoding | device updates | final metric | models | gradients | control | network | replay |")
    print("|---|---|---|---|---|---|---|---|")
    for encoding in options.encodings.split(","):
        with tempfile.TemporaryDirectory(prefix="async-hfl-wire-") as folder:
            print(_row(encoding, Path(folder) / "run", options), flush=True)


def _row(encoding: str, run: Path, options: argparse.Namespace) -> str:
    before = _loopback_bytes()
    cluster = ["cluster", "--task", options.task, "--seed", str(options.seed), "--out", str(run)]
    size = ["--gateways", str(options.gateways), "--devices", str(options.devices)]
    _command(*cluster, *size, "--set", f"transfer.encoding={encoding}", "--json")
    network = _loopback_bytes() - before
    replayed = _command("replay", str(run)).strip().splitlines()[-1]
    summary: dict[str, Any] = json.loads((run / "summary.json").read_text())
    updates, ways = summary["device_updates"], [way for tier in summary["bytes"].values() for way in tier.values()]
    kinds = (sum(way[kind] for way in ways) for kind in ("model", "gradient", "control"))
    per_update = " | ".join(f"{count / updates / 1e3:.1f}" for count in (*kinds, network))
    return f"| {encoding} | {updates} | {summary['final_metric']:.3f} | {per_update} | {replayed} |"


def _command(*arguments: str) -> str:
    done = subprocess.run([sys.executable, "-m", "async_hfl.cli", *arguments], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    return done.stdout


def _loopback_bytes() -> int:
    (line,) = (line for line in Path("/proc/net/dev").read_text().splitlines() if line.strip().startswith("lo:"))
    return int(line.split(":")[1].split()[0])


if __name__ == "__main__":
    main()
