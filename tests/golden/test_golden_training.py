"""The local training of every model, in double precision, compared with an independent implementation in PyTorch.

`local_training.npz` holds the results of PyTorch (`make_golden.py`). If torch is installed, `make test-long` compares
with PyTorch directly, too, on other numbers and array by array.
"""

from __future__ import annotations

import numpy as np
import our_training
import pytest
from golden_cases import CASES, FILE, Case, Outcome, digests

TOLERANCE = 1e-9
"""Relative to an array's norm."""
BY_NAME = {case.name: case for case in CASES}
# The two ResNets differ in their normalisation alone.
FORMS = [
    pytest.param(name, form, marks=[pytest.mark.long] if name == "resnet18-group" else [], id=f"{name} {form}".strip())
    for name, forms in our_training.FORMS.items()
    for form in forms
]


@pytest.mark.parametrize(("name", "form"), FORMS)
def test_as_recorded_from_pytorch(name: str, form: str) -> None:
    check_as_recorded(BY_NAME[name], our_training.train(BY_NAME[name], 1, form))


# Steps in a chunk: fewer than a job has, and more. A ResNet takes long to compile.
CHUNKS = [
    pytest.param(case.name, chunk, marks=[pytest.mark.long] if "resnet" in case.name else [])
    for case in CASES
    for chunk in ((1,) if "resnet" in case.name else (2, 16))
]


@pytest.mark.parametrize(("name", "chunk"), CHUNKS)
def test_in_chunks_as_recorded_from_pytorch(name: str, chunk: int) -> None:
    check_as_recorded(BY_NAME[name], our_training.train(BY_NAME[name], 1, chunk=chunk))


def check_as_recorded(case: Case, outcome: Outcome) -> None:
    with np.load(FILE) as file:
        prefix = f"{case.name}/"
        kept = {part.removeprefix(prefix): file[part] for part in file.files if part.startswith(prefix)}
    found = digests(case, 1, outcome)
    assert list(found) == list(kept)
    for part, values in found.items():
        norm = np.abs(kept[part][0])
        assert norm > 0, f"{part} did not change: nothing would be compared"
        np.testing.assert_allclose(values, kept[part], rtol=0, atol=TOLERANCE * norm, err_msg=part)


@pytest.mark.long
@pytest.mark.parametrize("seed", [2, 3])
@pytest.mark.parametrize("case", CASES, ids=BY_NAME)
def test_as_pytorch_trains_now(case: Case, seed: int) -> None:
    pytest.importorskip("torch", reason="compares with PyTorch, which is not installed here")
    import torch_reference

    theirs, ours = torch_reference.train(case, seed), our_training.train(case, seed)
    np.testing.assert_allclose(ours.sums, theirs.sums, rtol=TOLERANCE)
    for kind in ("displacement", "gradient"):
        mine, other = getattr(ours, kind), getattr(theirs, kind)
        assert sorted(mine) == sorted(other)
        for name, values in other.items():
            atol = TOLERANCE * np.linalg.norm(values)
            assert atol > 0, name
            np.testing.assert_allclose(mine[name].reshape(-1), values.reshape(-1), rtol=0, atol=atol, err_msg=name)


def test_the_recorded_file_is_small_and_needs_no_pickle() -> None:
    assert FILE.stat().st_size < 200_000
    with np.load(FILE, allow_pickle=False) as file:
        assert {name.partition("/")[0] for name in file.files} == set(BY_NAME)
