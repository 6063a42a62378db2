"""Changed settings, named for an operator who restarts a cloud with others than its run began with."""

from __future__ import annotations

import json

from async_hfl.deployment.store.node_identity import settings_changed


def test_changes_are_named_with_both_values() -> None:
    then = {"transfer": {"encoding": "int8", "up": "auto"}, "task": {"devices": 8}}
    now = {"transfer": {"encoding": "float32", "up": "auto"}, "task": {"devices": 8, "target": 0.9}}
    found = settings_changed(json.dumps(then), json.dumps(now))
    assert found == "task.target was None, now 0.9; transfer.encoding was 'int8', now 'float32'"


def test_of_many_changes_the_first_are_named() -> None:
    then, now = ({"cloud": {f"s{number}": value for number in range(9)}} for value in (1, 2))
    found = settings_changed(json.dumps(then), json.dumps(now))
    assert found == "cloud.s0 was 1, now 2; cloud.s1 was 1, now 2; cloud.s2 was 1, now 2 and 6 more"
