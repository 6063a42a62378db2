"""The tables and figures of the paper that can be reproduced."""

from __future__ import annotations

import difflib

from async_hfl.core.errors import UserError
from async_hfl.experiments.paper import convergence, deployment, motivation, overhead, sensitivity
from async_hfl.experiments.paper.entry import Entry

_EVERY = (*motivation.ENTRIES, *convergence.ENTRIES, *deployment.ENTRIES, *sensitivity.ENTRIES, *overhead.ENTRIES)
CATALOGUE: dict[str, Entry] = {entry.name: entry for entry in _EVERY}


def find(name: str) -> Entry:
    if name not in CATALOGUE:
        near = difflib.get_close_matches(name, CATALOGUE, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]}?" if near else "`async-hfl paper list` lists all names"
        raise UserError(f"paper: unknown table or figure {name!r}; {hint}")
    return CATALOGUE[name]
