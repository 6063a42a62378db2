"""Records the results of PyTorch: `python tests/golden/make_golden.py`, anywhere torch and numpy are installed."""

from __future__ import annotations

import numpy as np
from golden_cases import CASES, FILE, digests
from torch_reference import train

SEED = 1


def main() -> None:
    kept = {}
    for case in CASES:
        for name, values in digests(case, SEED, train(case, SEED)).items():
            kept[f"{case.name}/{name}"] = values
    np.savez_compressed(FILE, **kept)


if __name__ == "__main__":
    main()
