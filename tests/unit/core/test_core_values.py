"""Random streams, plain data, traffic and layouts."""

from __future__ import annotations

import dataclasses
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from async_hfl.core.errors import DataError
from async_hfl.core.identifiers import CLOUD, JobId, UploadId, device_address, gateway_address
from async_hfl.core.protocol import messages as m
from async_hfl.core.protocol.traffic import HEADER_BYTES, PER_DEVICE_BYTES, Traffic, traffic
from async_hfl.core.randomness import keyed_uniform, scramble, scramble_many, stream, stream_seed
from async_hfl.core.serialization import fast_init, from_plain, plain, to_plain
from async_hfl.core.weights import Layout, frozen

# Randomness ------------------------------------------------------------------------------------------------------


def test_a_stream_is_its_name() -> None:
    names = [(1, "delay", 3), (1, "delay", 4), (2, "delay", 3), (1, "delay"), (1, "del", "ay", 3), (1, "selection", 3)]
    draws = [stream(*name).random(4).tolist() for name in names]  # type: ignore[arg-type]
    assert draws == [stream(*name).random(4).tolist() for name in names]  # type: ignore[arg-type]
    assert len({tuple(draw) for draw in draws}) == len(names)
    assert len({stream_seed(*name) for name in names}) == len(names)  # type: ignore[arg-type]
    assert 0 <= stream_seed(1, "delay") < 2**64


def test_splitmix64_gives_the_published_numbers() -> None:
    """The first outputs of Vigna's splitmix64.c from seed 1234567."""
    expected = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    increments = [(1234567 + k * 0x9E3779B97F4A7C15) % 2**64 for k in range(4)]
    assert [scramble(value) for value in increments] == expected


@given(st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=20))
@settings(max_examples=50)
def test_scramble_many_is_scramble(values: list[int]) -> None:
    assert scramble_many(np.array(values, np.uint64)).tolist() == [scramble(value) for value in values]


def test_keyed_uniform_does_not_depend_on_the_grouping() -> None:
    seeds, counters = np.arange(5, dtype=np.uint64), np.arange(2000, dtype=np.uint64)
    together = keyed_uniform(seeds[:, None], counters)
    apart = np.array([[keyed_uniform(seeds[i : i + 1], counters[j : j + 1])[0] for j in range(7)] for i in range(5)])
    np.testing.assert_array_equal(together[:, :7], apart)
    assert ((together >= 0) & (together < 1)).all()
    # Uniform: 10,000 draws, mean 1/2 with a standard error of 0.003.
    assert together.mean() == pytest.approx(0.5, abs=0.015)
    assert np.abs(np.corrcoef(together)[0, 1:]).max() < 0.1


# Plain data ------------------------------------------------------------------------------------------------------

leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.text(max_size=5),
    st.builds(JobId, st.integers(0, 9), st.integers(1, 9), st.integers(1, 99)),
    st.builds(m.Lease, st.integers(0, 9), st.integers(0, 9), st.integers(0, 9)),
    hnp.arrays(st.sampled_from([np.float32, np.float64, np.int64, np.bool_]), hnp.array_shapes(max_dims=2, max_side=3)),
)
WHOLE = st.integers(-(2**63), 2**64 - 1)
keys = st.one_of(st.text(max_size=3), st.just("$class"), st.just("$tuple"), st.integers(0, 9), st.tuples(WHOLE))
values = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(keys, inner, max_size=3),
        st.sets(WHOLE, max_size=3),
    ),
    max_leaves=8,
)


def assert_same(found: Any, given: Any) -> None:
    assert type(found) is type(given)
    if isinstance(given, np.ndarray):
        assert found.dtype == given.dtype
        np.testing.assert_array_equal(found, given)
    elif isinstance(given, dict):
        assert list(found) == list(given)
        for key in given:
            assert_same(found[key], given[key])
    elif isinstance(given, (list, tuple)):
        assert len(found) == len(given)
        for one, other in zip(found, given, strict=True):
            assert_same(one, other)
    elif dataclasses.is_dataclass(given):
        for field in dataclasses.fields(given):
            assert_same(getattr(found, field.name), getattr(given, field.name))
    else:
        assert found == given or (found != found and given != given)


@given(values)
@settings(max_examples=120)
def test_plain_data_comes_back_as_it_was(value: Any) -> None:
    assert_same(from_plain(to_plain(value)), value)


def test_mutable_values_are_copied_and_frozen_arrays_shared() -> None:
    loose, fixed = np.zeros(2), frozen(np.zeros(2, np.float32))
    inner = [1]
    stored = to_plain({"loose": loose, "fixed": fixed, "inner": inner})
    loose[0] = 9
    inner.append(2)
    back = from_plain(stored)
    assert back["loose"].tolist() == [0, 0]
    assert back["inner"] == [1]
    assert back["fixed"] is fixed
    back["loose"][1] = 5
    assert stored["loose"].tolist() == [0, 0]


def test_what_is_not_registered_cannot_travel() -> None:
    with pytest.raises(TypeError, match="register it"):
        to_plain(object())
    with pytest.raises(DataError, match="unknown class 'os'"):
        from_plain({"$class": "os", "fields": []})
    with pytest.raises(DataError, match="has 1 fields, not 3"):
        from_plain({"$class": "Lease", "fields": [1]})

    @dataclasses.dataclass
    class Lease:
        pass

    with pytest.raises(TypeError, match="two plain classes are called Lease"):
        plain(Lease)


WEIGHTS = frozen(np.array([1.5, -2.0, 0.25], np.float32))
GRADIENT = np.array([1, 2], np.float32)
LEASE = m.Lease(4, 2, 7)
KNOWN = m.DeviceKnowledge(4, 12.5, True, 60, 0.5, 0.3, GRADIENT)
HEARD_NOTHING = m.DeviceKnowledge(5, 12.5, False, 60, float("nan"), float("nan"))
UPLOAD_ID, JOB_ID = UploadId(1, 2, 3), JobId(1, 2, 9)
MODEL, HEADER, EACH = 12, HEADER_BYTES, PER_DEVICE_BYTES

MESSAGES: list[tuple[m.Message, Traffic]] = [
    (m.WarmUp(1, WEIGHTS, (LEASE,), (KNOWN,)), Traffic(MODEL, 8, 0, HEADER + EACH)),
    (m.GlobalModel(3, WEIGHTS), Traffic(MODEL, 0, 0, HEADER)),
    (m.Answer(UPLOAD_ID, 3, WEIGHTS, m.Outcome(True, 1, 0.3)), Traffic(MODEL, 0, 0, HEADER)),
    (m.UploadHeld(UPLOAD_ID), Traffic(0, 0, 0, HEADER)),
    (m.Assignment(1, 7, (4, 5, 6), (LEASE,), (KNOWN, HEARD_NOTHING)), Traffic(0, 8, 0, HEADER + 2 * EACH + 12)),
    (m.LeaseGranted(1, LEASE, KNOWN), Traffic(0, 8, 0, HEADER + EACH)),
    (m.Finish(3), Traffic(0, 0, 0, HEADER)),
    (m.Fenced(2), Traffic(0, 0, 0, HEADER)),
    (m.LeasesRevoked(1, (m.Lease(4, 2, 1),)), Traffic(0, 0, 0, HEADER + 12)),
    (m.Refused("no"), Traffic(0, 0, 0, HEADER)),
    (m.SettledAck(4, (JOB_ID, JOB_ID)), Traffic(0, 0, 0, HEADER + 48)),
    (m.EvaluateRequest(3, WEIGHTS, (4, 5)), Traffic(MODEL, 0, 0, HEADER + 8)),
    (m.Hello(2), Traffic(0, 0, 0, HEADER)),
    (m.Upload(UPLOAD_ID, WEIGHTS, 3, 20, 600, False, 1, (KNOWN,), (7, 9)), Traffic(MODEL, 8, 0, HEADER + EACH + 16)),
    (m.LeaseReleased(LEASE, HEARD_NOTHING, False), Traffic(0, 0, 0, HEADER + EACH)),
    (m.Report(2, 1, (KNOWN,), (4,), (5, 6)), Traffic(0, 8, 0, HEADER + EACH + 12)),
    (m.Unsettled(4, (JOB_ID,)), Traffic(0, 0, 0, HEADER + 24)),
    (m.EvaluateResult(3, 0.9, 0.3, 4), Traffic(0, 0, 0, HEADER)),
    (m.Train(JOB_ID, WEIGHTS, 5, 3, 7), Traffic(MODEL, 0, 0, HEADER)),
    (m.Probe(), Traffic(0, 0, 0, HEADER)),
    (m.Update(JOB_ID, WEIGHTS, 60, 5, 0.5, 0.3, GRADIENT, 1.0, 2.0), Traffic(MODEL, 8, 0, HEADER)),
    (m.JobDropped(JOB_ID, "superseded", 7), Traffic(0, 0, 0, HEADER)),
    (m.Alive(), Traffic(0, 0, 0, HEADER)),
]


def test_every_message_is_here() -> None:
    assert {type(message) for message, _ in MESSAGES} == set(get_args(m.Message))


@pytest.mark.parametrize(("message", "expected"), MESSAGES, ids=lambda value: type(value).__name__)
def test_messages_travel_as_plain_data_and_weigh_what_they_carry(message: m.Message, expected: Traffic) -> None:
    assert_same(from_plain(to_plain(message)), message)
    size = traffic(message)
    assert size == expected
    assert size.total == sum(size)


def test_an_update_without_a_gradient_carries_none() -> None:
    update = m.Update(JOB_ID, WEIGHTS, 60, 5, 0.5, 0.3, None, 1.0, 2.0)
    assert traffic(update) == Traffic(MODEL, 0, 0, HEADER)


def test_a_basis_weighs_its_rows_wherever_it_goes() -> None:
    basis = np.zeros((30, 3), np.float32)
    for message in (m.GlobalModel(3, WEIGHTS, basis), m.Train(JOB_ID, WEIGHTS, 5, 3, 7, basis)):
        assert traffic(message) == Traffic(MODEL, 0, 360, HEADER)
        assert_same(from_plain(to_plain(message)), message)


def test_names() -> None:
    assert [str(a) for a in (CLOUD, gateway_address(3), device_address(12))] == ["cloud", "g3", "d12"]
    assert (str(JOB_ID), str(UPLOAD_ID)) == ("g1.2.9", "u1.2.3")


# Layout ----------------------------------------------------------------------------------------------------------

LAYOUT = Layout(("bias", "kernel"), ((2,), (2, 3)))


def arrays(**changes: Any) -> dict[str, Any]:
    given = {"bias": np.array([1.0, 2.0]), "kernel": np.arange(6.0).reshape(2, 3), **changes}
    return {name: array for name, array in given.items() if array is not None}


def test_a_layout_flattens_in_order_and_back() -> None:
    flat = LAYOUT.flatten(arrays())
    assert flat.tolist() == [1, 2, 0, 1, 2, 3, 4, 5]
    assert (flat.dtype, flat.flags.writeable, LAYOUT.size) == (np.float32, False, 8)
    back = LAYOUT.unflatten(flat)
    assert list(back) == ["bias", "kernel"]
    np.testing.assert_array_equal(back["kernel"], arrays()["kernel"])
    np.testing.assert_array_equal(back["bias"], arrays()["bias"])


def test_an_empty_layout() -> None:
    assert Layout((), ()).flatten({}).tolist() == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"bias": None}, r"the file: arrays missing: \['bias'\]; unknown: none"),
        ({"scale": np.ones(1)}, r"the file: arrays missing: none; unknown: \['scale'\]"),
        ({"bias": np.ones(3)}, r"the file: array 'bias' has shape \(3,\), this task's model wants \(2,\)"),
        ({"kernel": np.ones((3, 2))}, r"array 'kernel' has shape \(3, 2\)"),
        ({"bias": np.array([1.0, np.nan])}, "array 'bias' holds NaN or infinite values"),
        ({"kernel": np.full((2, 3), -np.inf)}, "array 'kernel' holds NaN or infinite values"),
    ],
)
def test_layout_errors_say_what_is_wrong(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        LAYOUT.flatten(arrays(**changes), where="the file")


def test_a_value_too_large_for_float32_is_an_error_not_an_infinity() -> None:
    with pytest.raises(DataError, match="array 'bias'"):
        LAYOUT.flatten(arrays(bias=np.array([1.0, 1e300])))


def test_numpy_scalars_become_plain_numbers_and_huge_ones_are_refused() -> None:
    assert type(to_plain(np.float64(1.5))) is float
    assert type(to_plain({"mean": np.float32(0.5)})["mean"]) is float
    assert type(to_plain(np.int64(3))) is int
    with pytest.raises(TypeError, match="64 bits"):
        to_plain(2**70)


def test_a_quick_value_is_made_as_any_other_and_stays_frozen() -> None:
    @fast_init
    @dataclasses.dataclass(frozen=True, slots=True)
    class Value:
        first: int
        second: str = "two"
        third: list[int] = dataclasses.field(default_factory=list)

    one, other = Value(1), Value(first=1, third=[3])
    assert (one.first, one.second, one.third) == (1, "two", [])
    assert (other.second, other.third) == ("two", [3])
    assert one.third is not Value(1).third  # made anew for each
    assert one == Value(1, "two", []) != other
    assert dataclasses.replace(one, first=7) == Value(7)
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.first = 2  # type: ignore[misc]
    with pytest.raises(TypeError, match="first"):
        Value()  # type: ignore[call-arg]
