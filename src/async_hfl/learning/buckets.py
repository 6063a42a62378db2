"""Sizes that calls are padded to, so that a few compiled programs serve every number of jobs and steps."""

from __future__ import annotations


def padded_steps(steps: int) -> int:
    """The number itself up to 32, then the next of 40, 48, 56, 64, 80, ...: at most a quarter more than asked."""
    unit = 1 if steps <= 32 else 8
    while steps > 8 * unit and unit > 1:
        unit *= 2
    return -(-steps // unit) * unit


def padded_jobs(jobs: int, most: int, *, closely: bool = False) -> int:
    """The next of 1, 8, 16, 32, 48, 64, 96, 128, 192, ..., at most `most`. Few small jobs leave a device idle anyway.

    `closely`: as steps are padded, for jobs so large that each one counts more than a compilation.
    """
    if closely:
        return min(padded_steps(jobs), most)
    size = 1 if jobs == 1 else 8
    while size < jobs:
        power_of_two = size & (size - 1) == 0
        size = size * 2 if size < 32 else size * 3 // 2 if power_of_two else size * 4 // 3
    return min(size, most)
