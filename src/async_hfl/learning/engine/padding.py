"""Sizes that calls are padded to, so that a few compiled programs serve every number of jobs and steps."""

from __future__ import annotations


def padded_steps(steps: int) -> int:
    """The number itself up to 32, then the next of 40, 48, 56, 64, 80, ...: at most a quarter more than asked."""
    unit = 1 if steps <= 32 else 8
    while steps > 8 * unit and unit > 1:
        unit *= 2
    return -(-steps // unit) * unit


def padded_jobs(jobs: int, most: int, *, heavy: bool = False) -> int:
    """The next of 1, 8, 16, 32, 48, 64, 96, 128, 192, ..., at most `most`: an accelerator with few jobs is idle anyway,
    and each size is a program to compile, which takes longer than many a run. Heavy ones, few of which fill it: 1, 2,
    4, ..."""
    size = 1
    while size < jobs:
        size = 8 if size == 1 and not heavy else 2 * size
    between = 3 * size // 4
    return min(between if not heavy and between >= max(jobs, 48) else size, most)
