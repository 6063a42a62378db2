"""Every model's local training, in double precision, against an independent one in PyTorch.

`local_training.npz` holds what PyTorch gave (`make_golden.py`); where torch is installed, `make test-long` compares
with it anew, on other numbers and array by array.
"""

from __future__ import annotations

import numpy as np
import our_training
import pytest
from golden_cases import CASES, FILE, Case, digests

TOLERANCE = 1e-9
"""Of an array's norm."""
BY_NAME = {case.name: case for case in CASES}


@pytest.mark.parametrize("case", CASES, ids=BY_NAME)
def test_as_recorded_from_pytorch(case: Case) -> None:
    with np.load(FILE) as file:
        prefix = f"{case.name}/"
        kept = {name.removeprefix(prefix): file[name] for name in file.files if name.startswith(prefix)}
    found = digests(case, 1, our_training.train(case, 1))
    assert list(found) == list(kept)
    for name, values in found.items():
        norm = np.abs(kept[name][0])
        assert norm > 0, f"{name} never moved: nothing would be compared"
        np.testing.assert_allclose(values, kept[name], rtol=0, atol=TOLERANCE * norm, err_msg=name)


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


def test_the_record_is_small_and_plain() -> None:
    assert FILE.stat().st_size < 200_000
    with np.load(FILE, allow_pickle=False) as file:
        assert {name.partition("/")[0] for name in file.files} == set(BY_NAME)
