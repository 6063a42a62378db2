"""A selection policy of your own: devices that have been idle longest come first, as the bandwidth allows.

Run it from the directory above:

    async-hfl run --method async-hfl --seed 1 --set selection.policy=examples/own_policy.py:choose

`async_hfl.core.policies.SelectionProblem` documents the problem. The answer is checked: device numbers from
`problem.candidates`, each at most once, with data rates that sum to at most `problem.capacity`. The run stores a digest
of this file: after a change, a run that was started with it is not resumed.
"""

from __future__ import annotations

import numpy as np

from async_hfl.core.policies import SelectionProblem


def choose(problem: SelectionProblem) -> list[int]:
    chosen, free = [], problem.capacity
    for place in np.argsort(problem.idle_since, kind="stable"):
        if problem.data_rate[place] <= free:
            chosen.append(int(problem.candidates[place]))
            free -= problem.data_rate[place]
    return chosen
