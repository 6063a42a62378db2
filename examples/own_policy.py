"""A selection policy of your own: whoever has waited longest goes first, as far as the bandwidth allows.

Run it from the directory above:

    async-hfl run --method async-hfl --seed 1 --set selection.policy=examples/own_policy.py:choose

What a problem holds is said in `async_hfl.core.policies.SelectionProblem`. The answer is checked: device numbers out
of `problem.candidates`, each once, their data rates within `problem.capacity`. The run remembers this file: change it,
and a run that was begun with it cannot be resumed by mistake.
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
