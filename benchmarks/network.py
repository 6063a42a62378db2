"""A large random-geometric network: seconds and memory to build it, and the time to compute one transfer.

    python benchmarks/network.py [--devices 100000 --gateways 1000]

Each size runs in a separate process, to measure its memory.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time

CALLS = 200_000


def measure(devices: int, gateways: int) -> str:
    from async_hfl.assembly.build.networks import build_network
    from async_hfl.assembly.settings.loading import compose
    from async_hfl.core.randomness import stream

    began = time.perf_counter()
    overrides = [f"task.devices={devices}", f"network.gateways={gateways}"]
    settings = compose(task="null", network="random-geometric", seed=1, overrides=overrides).settings
    network = build_network(settings, 600_000, 1)
    seconds = time.perf_counter() - began
    links, delays = network.links, network.delays
    chosen = stream(1, "benchmark").integers(0, len(links.link_device), CALLS)
    pairs = list(zip(links.link_device[chosen].tolist(), links.link_gateway[chosen].tolist(), strict=True))
    began = time.perf_counter()
    for device, gateway in pairs:
        delays.to_gateway(device, gateway, 600_000)
    each = (time.perf_counter() - began) / CALLS
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    made = f"| {devices:,} | {gateways:,} | {len(links.link_device):,} |"
    return f"{made} {seconds:.1f} | {memory:,.0f} | {each * 1e6:.2f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--devices", type=int)
    parser.add_argument("--gateways", type=int)
    options = parser.parse_args()
    if options.devices and options.gateways:
        print(measure(options.devices, options.gateways))
        return
    print("| devices | gateways | links | ready, s | peak memory, MB | a transfer, us |\n|---|---|---|---|---|---|")
    for devices, gateways in ((1_000, 10), (10_000, 100), (100_000, 1_000)):
        size = ["--devices", str(devices), "--gateways", str(gateways)]
        subprocess.run([sys.executable, __file__, *size], check=True)


if __name__ == "__main__":
    main()
