"""Jobs cut into pieces of so many steps, where jobs run side by side.

A program is made for a number of steps. Were it the job's own, jobs of other lengths would each need one, and compiling
one takes longer than many a run; so a job is several calls of one program, which hand on where it is.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

_WHOLE = 32
"""Steps of a job that is not cut, ..."""
_LONGEST = 16
"""... and of a piece of longer ones. A call costs a fraction of a millisecond: little beside so many steps; and a short
job waits for few in vain."""
_CALLS_A_STEP = 4
"""That cost as much as a step."""
_LONG = 256
"""Steps of a job of whose pieces the last may be as empty as it likes."""


def piece_of(steps: int, most: int) -> int:
    """Steps of a piece of jobs of at most `steps`, whose learner has jobs of up to `most`: so that the longest have few
    pieces and little in vain, and the lengths are few."""
    if most <= _LONGEST:
        return most
    if most <= _WHOLE:
        return most if 2 * steps > most else _LONGEST
    if most >= _LONG:
        return _LONGEST
    lengths = range(_LONGEST, _LONGEST // 2, -1)
    return min(lengths, key=lambda piece: _CALLS_A_STEP * (-most % piece) - (-most // piece))


def cut(
    steps: npt.NDArray[np.int64], passes: range, piece: int
) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
    """Pass and step of each piece's steps, both by (job, step of the piece), where jobs go through these passes one
    after the other; `steps` of a pass by job. A job that has ended repeats its last step."""
    total = (len(passes) * steps)[:, None]
    for first in range(0, int(total.max()), piece):
        index = np.minimum(np.arange(first, first + piece), total - 1)
        turn, step = np.divmod(index, steps[:, None])
        yield passes.start + turn, step
