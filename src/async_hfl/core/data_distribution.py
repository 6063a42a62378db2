"""The distribution of a data set: the number of samples by device and class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True, eq=False)
class DataDistribution:
    task: str
    partition: str
    seed: int
    counts: npt.NDArray[np.int64]
    """Shape (devices, classes); one column if the task has no classes."""
    class_names: tuple[str, ...]
    """Empty if the task has no classes."""
    samples: int
    """Samples in the training set."""
    held: int
    """Samples of the training set that some device holds."""

    @property
    def short_name(self) -> str:
        """Return the beginning of a file name: my_task for some/my_task.py:task."""
        file = self.task.rpartition(":")[0] or self.task
        return file.replace("\\", "/").rpartition("/")[2].removesuffix(".py")

    @property
    def by_device(self) -> npt.NDArray[np.int64]:
        total: npt.NDArray[np.int64] = self.counts.sum(axis=1)
        return total

    @property
    def classes_by_device(self) -> npt.NDArray[np.int64]:
        number: npt.NDArray[np.int64] = np.count_nonzero(self.counts, axis=1)
        return number

    def as_json(self) -> dict[str, Any]:
        return {
            "task": self.task,
            "partition": self.partition,
            "seed": self.seed,
            "devices": len(self.counts),
            "samples": self.samples,
            "held": self.held,
            "class_names": list(self.class_names),
            "counts": self.counts.tolist(),
        }


def data_distribution(
    task: str,
    partition: str,
    seed: int,
    owned: Sequence[npt.NDArray[np.int64]],
    targets: npt.NDArray[Any],
    classes: int,
    class_names: Sequence[str] = (),
) -> DataDistribution:
    """Count the samples. `owned` are rows of `targets` by device; a class without a name is called by its number."""
    if classes:
        counts = np.stack([np.bincount(targets[rows], minlength=classes) for rows in owned]).astype(np.int64)
        named = tuple(class_names[label] if label < len(class_names) else str(label) for label in range(classes))
    else:
        counts = np.array([[len(rows)] for rows in owned], dtype=np.int64)
        named = ()
    held = len(np.unique(np.concatenate(list(owned))))
    return DataDistribution(task, partition, seed, counts, named, len(targets), held)
