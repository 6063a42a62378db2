"""Division of jobs into chunks of equally many steps, where jobs run side by side.

A program is compiled for a fixed number of steps. With one program per job length, compilation would take longer than
many runs. So a job is several calls of one program, which pass its state on.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

_UNDIVIDED = 32
"""Steps of the longest job that may be one chunk."""
_LONGEST = 16
"""Steps of the longest chunk of longer jobs. A call costs a fraction of a millisecond, which is little compared with
this many steps, and a short job has few steps of padding."""
_CALLS_PER_STEP = 4
"""Number of calls that cost as much as one step."""
_LONG = 256
"""Steps of a job so long that padding in its last chunk does not matter."""


def chunk_length(steps: int, most: int) -> int:
    """Return the steps of a chunk for jobs of at most `steps`, whose learner has jobs of up to `most` steps.

    The longest jobs then have few chunks and little padding, and few lengths occur.
    """
    if most <= _LONGEST:
        return most
    if most <= _UNDIVIDED:
        return most if 2 * steps > most else _LONGEST
    if most >= _LONG:
        return _LONGEST
    lengths = range(_LONGEST, _LONGEST // 2, -1)
    return min(lengths, key=lambda length: _CALLS_PER_STEP * (-most % length) - (-most // length))


def step_chunks(
    steps: npt.NDArray[np.int64], passes: range, length: int
) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
    """Yield the pass and step of each step of each chunk, both by job and step of the chunk.

    `steps` is the number of steps per pass of each job. A job that has ended repeats its last step.
    """
    total = (len(passes) * steps)[:, None]
    for first in range(0, int(total.max()), length):
        index = np.minimum(np.arange(first, first + length), total - 1)
        turn, step = np.divmod(index, steps[:, None])
        yield passes.start + turn, step
