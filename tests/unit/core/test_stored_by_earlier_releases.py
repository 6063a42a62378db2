"""Values that an earlier release stored: new fields get their defaults, and changed ones are converted."""

from __future__ import annotations

from dataclasses import fields
from math import inf

import numpy as np
import pytest

from async_hfl.core.errors import DataError
from async_hfl.core.identifiers import JobId, UploadId
from async_hfl.core.maths.targets import Target, TargetProgress
from async_hfl.core.protocol.messages import GlobalModel, Update, Upload
from async_hfl.core.serialization import from_plain, to_plain
from async_hfl.core.weights import frozen
from async_hfl.nodes.gateway.state import HeldUpdate, InFlightJob

WEIGHTS = frozen(np.zeros(3, np.float32))


def test_new_fields_of_messages_have_their_defaults() -> None:
    for message, since in (
        (GlobalModel(3, WEIGHTS, None, 5.0), 2),
        (Upload(UploadId(0, 1, 2), WEIGHTS, 3, 4, 5, False, 1, (), (7,)), 1),
    ):
        stored = to_plain(message)
        del stored["fields"][-since:]
        assert to_plain(from_plain(stored)) == to_plain(message)


def test_progress_towards_a_target_is_converted() -> None:
    """Release 0.2.0 stored the last values, and the times at which the target was reached and first passed."""
    stored = {"$class": "TargetProgress", "fields": [{"$tuple": [0.7, 0.95]}, None, 4.0]}
    found = from_plain(stored)
    assert found == TargetProgress(((0.0, 0.7), (0.0, 0.95)), inf, None, 4.0)
    target = Target("accuracy", 0.9, "at_least")
    assert found.after(target, 0.8, 10.0).held_at is None
    assert found.after(target, 0.8, 10.0).after(target, 0.96, 11.0).held_at == 11.0


def test_an_update_that_a_gateway_held_has_the_model_that_arrived() -> None:
    update = Update(JobId(0, 1, 2), WEIGHTS, 10, 5, 0.5, 0.25, None, 0.1, 0.2)
    held = HeldUpdate(2, InFlightJob(*[0] * len(fields(InFlightJob))), update, WEIGHTS)
    stored = to_plain(held)
    del stored["fields"][-1]
    assert from_plain(stored).model is WEIGHTS


def test_a_class_that_lacks_a_field_without_a_default_is_refused() -> None:
    stored = to_plain(JobId(1, 2, 3))
    del stored["fields"][-1]
    with pytest.raises(DataError, match="stored JobId has 2 fields, not 3: another version of async-hfl"):
        from_plain(stored)


def test_a_class_with_more_fields_than_this_release_knows_is_refused() -> None:
    stored = to_plain(GlobalModel(3, WEIGHTS))
    stored["fields"].append(0.0)
    with pytest.raises(DataError, match="stored GlobalModel has 7 fields, not 6"):
        from_plain(stored)
