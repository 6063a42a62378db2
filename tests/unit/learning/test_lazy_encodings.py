"""Encodings on an accelerator (here a host device) that wait for each other, or are computed before they are asked
for, are those of the numpy codec, to the bit."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from learning_cases import RECIPE, mixed_jobs, uneven_task

from async_hfl.core.compression import codec
from async_hfl.core.compression.encodings import EncodingKind
from async_hfl.core.learner import ResultEncoding, TrainingJob, TrainingResult
from async_hfl.core.maths.aggregation import mix
from async_hfl.core.serialization import from_plain, to_plain
from async_hfl.core.vectors import HostVector, StoredEncoded, Vector, to_host
from async_hfl.core.weights import frozen, is_finite, mean_step
from async_hfl.journal.checkpoint import load, save
from async_hfl.learning.engine.backend import jax
from async_hfl.learning.engine.on_device.jax_vectors import DeviceOps, JaxVector
from async_hfl.learning.engine.recipe import Recipe
from async_hfl.learning.engine.trainer import EngineOptions, LiveGradients
from async_hfl.learning.tasks.task_learner import TaskLearner

SIZE, TRAINED = 131, 129
KINDS: list[EncodingKind] = ["float16", "int8", "int4"]
SEVERAL = [(kind, count) for kind in KINDS for count in (1, 2)] + [
    # Large groups take long to compile.
    pytest.param(kind, 70, marks=[] if kind == "int8" else [pytest.mark.long])
    for kind in KINDS
]
PLAIN = replace(RECIPE, gradient=False)
IN_SHORT = {("gradient", "int8"), ("gradient", "int4"), ("plain", "int8")}
ANNOUNCED = [
    pytest.param(recipe, kind, id=f"{name}-{kind}", marks=[] if (name, kind) in IN_SHORT else [pytest.mark.long])
    for name, recipe in (("gradient", RECIPE), ("plain", PLAIN))
    for kind in KINDS
]


@pytest.fixture(scope="module")
def ops() -> DeviceOps:
    return DeviceOps(jax.local_devices()[0])


@pytest.fixture(scope="module")
def learners() -> dict[Recipe, TaskLearner]:
    return {recipe: TaskLearner(uneven_task(), recipe, EngineOptions(vectors="device")) for recipe in (RECIPE, PLAIN)}


def normal(count: int, size: int = SIZE) -> list[HostVector]:
    random = np.random.default_rng(count)
    return [frozen(random.standard_normal(size).astype(np.float32)) for _ in range(count)]


def on_device(ops: DeviceOps, vectors: Sequence[HostVector]) -> list[JaxVector]:
    """Place copies, so that nothing is known about them."""
    return [ops.place(vector.copy()) for vector in vectors]


def bits(vector: Vector) -> bytes:
    return to_host(vector).tobytes()


# Encodings that wait ---------------------------------------------------------------------------------------------


def special(number: int) -> HostVector:
    """Return a vector with values that show whether a memory was added: -0, and in some vectors NaN."""
    vector = normal(number + 1)[number].copy()
    vector[3:9] = -0.0
    if number % 5 == 0:
        vector[70] = np.nan
    return frozen(vector)


@pytest.mark.parametrize(("kind", "count"), SEVERAL)
def test_changes_that_are_encoded_together(ops: DeviceOps, kind: EncodingKind, count: int) -> None:
    """With and without a memory, and with values that are not finite."""
    ends, base = [special(number) for number in range(count)], frozen(np.zeros(SIZE, np.float32))
    memories = [None if number % 3 == 0 else special(number + 1)[:TRAINED].copy() for number in range(count)]
    bases = [base if number % 2 else frozen(-special(number)) for number in range(count)]
    found = [
        end.encode_change(start, memory, kind, TRAINED, number)
        for number, (end, start, memory) in enumerate(zip(on_device(ops, ends), bases, memories, strict=True))
    ]
    for number, (encoded, left) in enumerate(found):
        right, kept = codec.encode_change(ends[number], bases[number], memories[number], kind, TRAINED, number)
        assert encoded.to_host().tobytes() == right.tobytes(), number
        assert bits(left) == bits(np.zeros(TRAINED, np.float32) if kept is None else kept), number
        decoded = codec.decode_change(right, bases[number], kind, TRAINED)
        np.testing.assert_array_equal(to_host(encoded.decoded), decoded)
        assert is_finite(encoded.decoded) == is_finite(decoded)
        assert number % 5 != 0 or not is_finite(decoded)


@pytest.mark.parametrize("kind", KINDS)
def test_vectors_that_are_encoded_together(ops: DeviceOps, kind: EncodingKind) -> None:
    vectors = [special(number) for number in range(18)]
    found = [one.encode(kind, TRAINED, number) for number, one in enumerate(on_device(ops, vectors))]
    assert all(one.decoded.decoded_later for one in found if isinstance(one.decoded, JaxVector))
    is_finite(found[7].decoded)
    assert not any(one.decoded.decoded_later for one in found if isinstance(one.decoded, JaxVector))
    for number, encoded in enumerate(found):
        right = codec.encode(vectors[number], kind, TRAINED, number)
        assert encoded.to_host().tobytes() == right.tobytes()
        np.testing.assert_array_equal(to_host(encoded.decoded), codec.decode(right, kind, SIZE, TRAINED))


@pytest.mark.parametrize("kind", KINDS)
def test_a_decoded_vector_is_encoded_as_itself(ops: DeviceOps, kind: EncodingKind) -> None:
    """Its bytes are computed when they are asked for."""
    (vector,) = on_device(ops, normal(1))
    decoded = vector.encode(kind, TRAINED, 1).decoded
    assert isinstance(decoded, JaxVector)
    again = decoded.encode(kind, TRAINED, 2)
    assert again.decoded is decoded
    assert again.finite
    right = codec.encode(to_host(decoded), kind, TRAINED, 2)
    assert again.to_host().tobytes() == right.tobytes()
    assert again.to_host() is again.to_host()
    np.testing.assert_array_equal(codec.decode(right, kind, SIZE, TRAINED), to_host(decoded))
    other: EncodingKind = "int4" if kind == "int8" else "int8"
    assert decoded.encode(other, TRAINED, 3).decoded is not decoded


def test_a_decoded_vector_that_is_not_finite_stays_marked(ops: DeviceOps) -> None:
    (vector,) = on_device(ops, [special(5)])
    decoded = vector.encode("int8", TRAINED, 1).decoded
    assert isinstance(decoded, JaxVector)
    assert not decoded.encode("int8", TRAINED, 2).finite


def test_a_lazy_blend_is_encoded_as_it_was_when_that_was_asked_for(ops: DeviceOps) -> None:
    one, other, third = on_device(ops, normal(3))
    model = mix(one, other, 0.25)
    assert isinstance(model, JaxVector)
    encoded = model.encode("int8", TRAINED, 5)
    assert model.lazy
    mixed = mix(model, third, 0.5)
    right = codec.encode(to_host(model), "int8", TRAINED, 5)
    assert encoded.to_host().tobytes() == right.tobytes()
    assert isinstance(mixed, JaxVector)


def test_an_encoding_may_depend_on_another_of_its_form(ops: DeviceOps) -> None:
    """Blends of decoded vectors, of which none has been computed."""
    model, *others = on_device(ops, normal(9))
    expected = to_host(model)
    vector: Vector = model
    for number, other in enumerate(others):
        blend = mix(vector, other, 0.5)
        assert isinstance(blend, JaxVector)
        encoded, _ = blend.encode_change(vector, None, "int8", TRAINED, number)
        host = mix(expected, to_host(other), 0.5)
        change, _ = codec.encode_change(host, expected, None, "int8", TRAINED, number)
        vector, expected = encoded.decoded, codec.decode_change(change, expected, "int8", TRAINED)
    np.testing.assert_allclose(to_host(vector), expected, atol=0.05)


def test_decoded_gradients_are_multiplied_together(ops: DeviceOps, monkeypatch: pytest.MonkeyPatch) -> None:
    """The gradients in an upload: the products of all with each other, and with those that live, are known."""
    live, gradients = LiveGradients(0.1), on_device(ops, normal(5))
    ops.multiply(live, gradients)
    decoded = [one.encode("int8", SIZE, number).decoded for number, one in enumerate(gradients)]
    decoded[0].products([decoded[0]])
    asked: list[int] = []
    monkeypatch.setattr(DeviceOps, "products", lambda _, one, others: asked.append(len(others)))
    exact = np.array([to_host(one) for one in (*decoded, *gradients)], np.float64)
    found = np.array([one.products([*decoded, *gradients]) for one in decoded])
    assert asked == []
    np.testing.assert_allclose(found, (exact @ exact.T)[:5], atol=1e-4)


# Encodings ahead of time -----------------------------------------------------------------------------------------


def announced(learner: TaskLearner, count: int, kind: EncodingKind = "int8") -> list[TrainingJob]:
    """Return jobs of which some have a memory and one is not announced."""
    size = learner.gradient_size
    return [
        job
        if number == 4
        else replace(
            job,
            encoding=ResultEncoding(
                kind, size, number, normal(number + 1, size)[number] if number % 2 else None, 1000 + number
            ),
        )
        for number, job in enumerate(mixed_jobs(learner, count))
    ]


def pairs(jobs: Sequence[TrainingJob], results: Sequence[TrainingResult]) -> list[tuple[TrainingJob, JaxVector]]:
    return [(job, one.weights) for job, one in zip(jobs, results, strict=True) if isinstance(one.weights, JaxVector)]


@pytest.mark.parametrize(("recipe", "kind"), ANNOUNCED)
def test_results_are_encoded_as_announced(
    learners: dict[Recipe, TaskLearner], recipe: Recipe, kind: EncodingKind
) -> None:
    learner = learners[recipe]
    size, jobs = learner.gradient_size, announced(learner, 9, kind)
    results = learner.train_many(jobs)
    assert len(pairs(jobs, results)) == 9
    for number, (job, weights) in enumerate(pairs(jobs, results)):
        how = job.encoding
        memory = None if how is None else how.memory
        encoded, left = weights.encode_change(job.weights, memory, kind, size, number)
        right, kept = codec.encode_change(
            weights.to_host(), to_host(job.weights), None if memory is None else to_host(memory), kind, size, number
        )
        assert encoded.to_host().tobytes() == right.tobytes()
        assert kept is not None
        assert bits(left) == bits(kept)
        again = weights.encode_change(job.weights, memory, kind, size, number)[0]
        assert (again is encoded) == (how is not None)
        gradient = results[number].gradient
        if gradient is not None:
            assert isinstance(gradient, JaxVector)
            found = gradient.encode(kind, size, 1000 + number)
            assert found.to_host().tobytes() == codec.encode(to_host(gradient), kind, size, 1000 + number).tobytes()


def test_with_other_arguments_a_result_is_encoded_anew(learners: dict[Recipe, TaskLearner]) -> None:
    """As if an earlier job of the device had ended after this one was announced."""
    learner = learners[PLAIN]
    size, jobs = learner.gradient_size, announced(learner, 3)
    memory, base = normal(7, size)[6], learner.initial_weights(9)
    for number, (job, weights) in enumerate(pairs(jobs, learner.train_many(jobs))):
        assert job.encoding is not None
        own = job.encoding.memory
        for arguments in ((job.weights, memory, number), (base, own, number), (job.weights, own, 77)):
            start, left, key = arguments
            encoded, _ = weights.encode_change(start, left, "int8", size, key)
            host = None if left is None else to_host(left)
            right, _ = codec.encode_change(weights.to_host(), to_host(start), host, "int8", size, key)
            assert encoded.to_host().tobytes() == right.tobytes()


@pytest.mark.parametrize("recipe", [RECIPE, PLAIN], ids=["gradient", "plain"])
def test_products_of_gradients_are_known_as_they_are_decoded(
    learners: dict[Recipe, TaskLearner], recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = learners[recipe]
    size, jobs = learner.gradient_size, announced(learner, 6)
    results = learner.train_many(jobs)
    received: list[Vector] = []
    for number, (job, weights) in enumerate(pairs(jobs, results)):
        memory = None if job.encoding is None else job.encoding.memory
        gradient, decoded = results[number].gradient, weights
        if job.encoding is not None:
            coded, _ = weights.encode_change(job.weights, memory, "int8", size, number)
            assert isinstance(coded.decoded, JaxVector)
            decoded = coded.decoded
            if isinstance(gradient, JaxVector):
                gradient = gradient.encode("int8", size, 1000 + number).decoded
        if gradient is None:
            divisor = np.float32(learner.learning_rate * results[number].steps)
            gradient = mean_step(job.weights, decoded, size, divisor)
            (alone,) = on_device(decoded.ops, [decoded.to_host()])
            assert bits(gradient) == bits(mean_step(job.weights, alone, size, divisor))
        received.append(gradient)
    asked: list[int] = []
    compute = DeviceOps.products

    def noted(ops: DeviceOps, one: JaxVector, others: Sequence[JaxVector]) -> list[float]:
        asked.append(len(others))
        return compute(ops, one, others)

    monkeypatch.setattr(DeviceOps, "products", noted)
    placed = [one for one in received if isinstance(one, JaxVector)]
    found = np.array([one.products(placed) for one in placed])
    assert asked == []
    exact = np.array([to_host(one) for one in received], np.float64)
    np.testing.assert_allclose(found, exact @ exact.T, rtol=1e-4, atol=1e-5)


def test_encoded_results_without_references_are_freed(learners: dict[Recipe, TaskLearner]) -> None:
    for learner in learners.values():
        jobs = announced(learner, 5)
        results = learner.train_many(jobs)
        held = [weakref.ref(weights) for _, weights in pairs(jobs, results)]
        size = learner.gradient_size
        coded = [weights.encode_change(job.weights, None, "int8", size, 9)[0] for job, weights in pairs(jobs, results)]
        held += [weakref.ref(one.decoded) for one in coded]
        assert all(reference() is not None for reference in held)
        assert is_finite(coded[0].decoded)
        del results, jobs, coded
        gc.collect()
        assert all(reference() is None for reference in held)


def test_products_do_not_depend_on_what_is_multiplied_with_them(ops: DeviceOps) -> None:
    """So that announcements change no result."""
    vectors = normal(20, 5000)
    together, live = on_device(ops, vectors), LiveGradients(0.1)
    ops.multiply(live, together)
    alone = on_device(ops, vectors)
    for one, other in zip(together, alone, strict=True):
        assert one.products([together[3]]) == other.products([alone[3]])


# Checkpoints -----------------------------------------------------------------------------------------------------


def test_a_checkpoint_holds_bytes_and_decoded_vector_and_shares_them(ops: DeviceOps, tmp_path: Path) -> None:
    (vector,) = on_device(ops, normal(1, 5000))
    encoded = vector.encode("int8", 4990, 1)
    file = tmp_path / "checkpoint"
    save(file, [("node", to_plain({"sent": [encoded, encoded], "base": encoded.decoded}))])
    assert file.stat().st_size < 5000 * 4 + 5100 + 1000
    ((tree,),) = load(file, ops.place).values()
    found = from_plain(tree)
    one, other = found["sent"]
    assert isinstance(one, StoredEncoded)
    assert one.to_host().tobytes() == encoded.to_host().tobytes()
    assert (one.nbytes, one.finite) == (encoded.nbytes, True)
    assert isinstance(one.decoded, JaxVector)
    assert one.decoded is other.decoded is found["base"]
    assert bits(one.decoded) == bits(encoded.decoded)
    assert from_plain(to_plain(one)).decoded is one.decoded


def test_without_an_accelerator_a_stored_vector_is_decoded_on_the_host(ops: DeviceOps, tmp_path: Path) -> None:
    (vector,) = on_device(ops, normal(1))
    encoded = vector.encode("int8", TRAINED, 1)
    save(tmp_path / "checkpoint", [("node", to_plain(encoded))])
    ((tree,),) = load(tmp_path / "checkpoint").values()
    decoded = from_plain(tree).decoded
    assert isinstance(decoded, np.ndarray)
    np.testing.assert_array_equal(decoded, to_host(encoded.decoded))
