"""Path loss of a million pairs on one core, best of five: `python benchmarks/path_loss.py [--pairs 1000000]`.

Distances are spread evenly over 10 m to 4 km and heights over 2 to 100 m, so that every propagation model is used.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from async_hfl.network.radio.propagation.hybrid_buildings import path_loss
from async_hfl.network.radio.propagation.surroundings import Surroundings

REPEATS = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=1_000_000)
    pairs = parser.parse_args().pairs
    random = np.random.default_rng(1)
    distance = random.uniform(10.0, 4000.0, pairs)
    heights = random.uniform(2.0, 100.0, (2, pairs))
    for frequency in (900.0, 2160.0, 5180.0):
        around = Surroundings(frequency_mhz=frequency)
        walls, cores = [], []
        for _ in range(REPEATS):
            wall, core = time.perf_counter(), time.process_time()
            path_loss(distance, heights[0], heights[1], around)
            walls.append(time.perf_counter() - wall)
            cores.append(time.process_time() - core)
        print(f"{frequency:6.0f} MHz: {min(walls):.3f} s (CPU time {min(cores):.3f} s) for {pairs:,} pairs")


if __name__ == "__main__":
    main()
