"""Sizes that calls are padded to, so that a few compiled programs serve every number of jobs and steps."""

from __future__ import annotations


def padded_steps(steps: int) -> int:
    """The number itself up to 32, then the next of 40, 48, 56, 64, 80, ...: at most a quarter more than asked."""
    unit = 1 if steps <= 32 else 8
    while steps > 8 * unit and unit > 1:
        unit *= 2
    return -(-steps // unit) * unit


def padded_jobs(jobs: int, most: int, *, heavy: bool = False) -> int:
    """The next of 1, 8, 32, 64, 128, 256, ..., at most `most`: an accelerator with few jobs is idle anyway, and each
    size is a program to compile, which takes longer than many a run. Heavy ones, of which few fill it: 1, 2, 4, ..."""
    size = 1
    while size < jobs:
        size = 2 * size if heavy or size >= 32 else 8 if size == 1 else 32
    return min(size, most)
