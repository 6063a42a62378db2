"""Sizes to which calls are padded, so that a few compiled programs serve every number of jobs and steps."""

from __future__ import annotations


def padded_steps(steps: int) -> int:
    """Return the number itself up to 32, then the next of 40, 48, 56, 64, 80, ...: at most a quarter more."""
    unit = 1 if steps <= 32 else 8
    while steps > 8 * unit and unit > 1:
        unit *= 2
    return -(-steps // unit) * unit


def padded_jobs(jobs: int, most: int, *, large: bool = False) -> int:
    """Return the next of 1, 8, 16, 32, 48, 64, 96, 128, 192, ..., at most `most`. Padding costs little, since few jobs
    leave an accelerator idle, and compiling a program for each size takes longer than many runs. Large models, of which
    a few fill the accelerator, are padded to the next of 1, 2, 4, ..."""
    size = 1
    while size < jobs:
        size = 8 if size == 1 and not large else 2 * size
    between = 3 * size // 4
    return min(between if not large and between >= max(jobs, 48) else size, most)
