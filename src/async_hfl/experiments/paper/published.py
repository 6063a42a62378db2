"""The numbers printed in the paper (arXiv:2301.06646). Values that it only shows in figures are not included."""

from __future__ import annotations

BASELINES = ("async-hl", "async-random", "semi-async", "rfl-ha", "sync-oort", "sync-tifl", "sync-divfl", "sync-random")
TASKS = ("mnist", "fashion-mnist", "cifar10", "shakespeare", "har", "hpwren")
SPEED_UPS: dict[str, tuple[float, ...]] = {
    "mnist": (1.11, 1.27, 6.2, 32.5, 40.0, 27.13, 63.4, 67.3),
    "fashion-mnist": (1.08, 1.49, 8.3, 36.7, 20.5, 32.8, 73.4, 96.8),
    "cifar10": (1.09, 1.40, 2.3, 12.3, 44.3, 59.0, 62.0, 61.7),
    "shakespeare": (1.19, 1.79, 0.59, 0.71, 0.31, 2.39, 5.87, 5.46),
    "har": (1.31, 1.22, 2.7, 7.4, 10.3, 21.6, 22.5, 24.1),
    "hpwren": (1.11, 1.48, 2.4, 12.8, 19.5, 26.5, 27.7, 31.4),
}
"""Table 6: speed-up of Async-HFL over each of BASELINES."""
BYTES_HAR = {"sync-oort": 0.79, "rfl-ha": 1.42, "semi-async": 1.66, "two-tier": 1.30}
"""Table 3: bytes to 95 % relative to Async-HFL."""
TIMES_HAR = {"async-random": 1.24, "async-st": 2.13, "semi-async": 1.39}
"""Fig. 3, from the text: time to 95 % relative to Async-HFL."""
ABLATION: dict[str, dict[str, float]] = {
    "mnist": {"async-hfl-association": 1.71},
    "cifar10": {"async-hfl-association": 1.23},
    "har": {"async-hfl-association": 1.17},
    "fashion-mnist": {"async-hfl": 1.23},
    "shakespeare": {"async-hfl-selection": 1.12},
    "hpwren": {"async-hfl-selection": 1.45, "async-hfl-association": 1.17, "async-hfl": 1.64},
}
"""Fig. 7 right, from the text: speed-up over random selection and association."""
SAVINGS = {"async-hl": "2.6 to 21.6 % less", "async-random": "14.5 to 66.8 % less"}
"""Fig. 7 left: bytes that Async-HFL saves relative to each method, over all tasks."""
BANDWIDTH = {("async-random", 0.5): 3.47, ("async-random", 2.0): 0.56}
"""Fig. 10 left: speed-up of Async-HFL on MNIST by the bandwidth, as a multiple of 1 MB/s."""
TARGETS = {"async-random": {0.85: 1.99, 0.90: 1.50, 0.95: 1.34}, "sync-random": {0.85: 106.0, 0.90: 78.0, 0.95: 51.0}}
"""Fig. 10 right: the same by target accuracy."""
DEPLOYED = {
    ("mnist", "async-hfl"): 0.70,
    ("mnist", "async-hl"): 0.62,
    ("fashion-mnist", "async-hfl"): 0.56,
    ("fashion-mnist", "async-hl"): 0.36,
    ("har", "async-hfl"): 0.75,
    ("har", "async-hl"): 0.73,
}
"""Fig. 8: accuracy on the physical deployment after DEPLOYED_S seconds."""
DEPLOYED_S = {"mnist": 7600.0, "fashion-mnist": 3400.0, "har": 2000.0, "hpwren": 2000.0}
SELECTION_S = {"mnist": 1.6, "fashion-mnist": 1.4, "cifar10": 4.3, "shakespeare": 0.1}
ASSOCIATION_S = {"mnist": 1.1, "fashion-mnist": 0.9, "cifar10": 8.7, "shakespeare": 0.3}
"""Seconds per decision, measured by the authors."""
PCA_BYTES = "below 0.5 %"
PCA_TIME = "below 6 % more"
"""With 30 components instead of whole gradients, on HAR."""
