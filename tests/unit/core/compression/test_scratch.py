"""The buffers of encoders are reused, and no result lies in them."""

from __future__ import annotations

import numpy as np
import pytest

from async_hfl.core.compression.codec import encode, encode_change
from async_hfl.core.compression.encodings import EncodingKind
from async_hfl.core.compression.scratch import Scratch
from async_hfl.core.weights import frozen


def test_a_buffer_grows_and_is_reused() -> None:
    scratch = Scratch()
    small, large = scratch.words("one", 10), scratch.words("one", 1000)
    assert (len(small), len(large)) == (10, 1000)
    assert np.shares_memory(scratch.floats("one", 10), large)
    assert not np.shares_memory(scratch.words("another", 10), large)


@pytest.mark.parametrize("kind", ["float16", "int8", "int4"])
def test_encodings_that_share_buffers_do_not_disturb_each_other(kind: EncodingKind) -> None:
    random, scratch = np.random.default_rng(1), Scratch()
    one, two, base = (frozen(random.standard_normal(size).astype(np.float32)) for size in (200, 333, 200))
    alone = [encode(one, kind, 200, 1), *encode_change(one, base, None, kind, 200, 2)]
    encode(two, kind, 333, 3, scratch)  # leaves other content in buffers that are longer
    shared = [encode(one, kind, 200, 1, scratch), *encode_change(one, base, None, kind, 200, 2, scratch)]
    encode_change(two, two, None, kind, 333, 4, scratch)
    for first, second in zip(alone, shared, strict=True):
        assert first is not None
        assert second is not None
        assert first.tobytes() == second.tobytes()
