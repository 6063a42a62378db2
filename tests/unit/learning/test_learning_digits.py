from __future__ import annotations

import numpy as np

from async_hfl.learning.datasets.digits import load_digits


def test_split() -> None:
    data = load_digits()
    assert (len(data.train), len(data.test)) == (1437, 360)
    assert data.train.inputs.shape == (1437, 64)
    assert data.train.inputs.dtype == np.float32
    assert data.train.targets.dtype == np.int32
    train, test = (np.bincount(part.targets, minlength=10) for part in (data.train, data.test))
    assert np.abs(test - 0.2 * (train + test)).max() < 1, "stratified: no class is off by a whole sample"


def test_the_same_every_time() -> None:
    one, again = load_digits(), load_digits()
    assert (one.train.inputs == again.train.inputs).all()
    assert (one.test.targets == again.test.targets).all()


def test_standardised_by_the_training_part() -> None:
    inputs = load_digits().train.inputs
    np.testing.assert_allclose(inputs.mean(axis=0), 0, atol=1e-5)
    blank = np.ptp(inputs, axis=0) == 0
    assert blank.any(), "some border pixels are always blank: they must come out as 0, not as NaN"
    assert not inputs[:, blank].any()
    assert 0.5 < inputs.std() < 1, "the scale is that of all pixels, between images and within"


def test_no_sample_is_in_both_parts() -> None:
    """All images in the archive are different, so equality identifies one."""
    data = load_digits()
    train = {row.tobytes() for row in data.train.inputs}
    assert len(train) == 1437
    assert not any(row.tobytes() in train for row in data.test.inputs)
