"""The workload of all engines, as files: data, start weights, rows and orders of each client. Needs only numpy."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from engine_peers.sizes import Size


@dataclass(frozen=True)
class Layout:
    """The named arrays of a flat model, in order; the first `trained` are trained, the others are statistics."""

    names: list[str]
    shapes: list[list[int]]
    trained: int

    def arrays(self, flat: npt.NDArray[np.float32]) -> dict[str, npt.NDArray[np.float32]]:
        found, first = {}, 0
        for name, shape in zip(self.names, self.shapes, strict=True):
            last = first + int(np.prod(shape))
            found[name] = flat[first:last].reshape(shape)
            first = last
        return found

    def flat(self, arrays: dict[str, npt.NDArray[np.float32]]) -> npt.NDArray[np.float32]:
        return np.concatenate([np.ascontiguousarray(arrays[name]).reshape(-1) for name in self.names])


@dataclass(frozen=True)
class Work:
    folder: Path
    size: Size
    layout: Layout
    classes: int
    """0: a regression."""
    data: str
    """Origin of the samples: real or synthetic."""
    window: int
    """Readings per sample if the samples are windows of a series; otherwise 0."""
    seeds: list[int]
    """Seed of each client's batch order, for the engine that draws it itself."""

    def array(self, name: str) -> npt.NDArray[Any]:
        """Return an array. inputs, targets: the samples as a model sees them. rows: (clients, samples) row numbers.
        orders: (clients, epochs, samples) positions in a client's rows. start: flat weights."""
        return np.load(self.folder / f"{name}.npy", allow_pickle=False)

    def save(self, **arrays: npt.NDArray[Any]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        for name, array in arrays.items():
            np.save(self.folder / f"{name}.npy", array, allow_pickle=False)
        plain = {**asdict(self), "folder": None}
        (self.folder / "work.json").write_text(json.dumps(plain))


def load_work(folder: str | Path) -> Work:
    plain = json.loads((Path(folder) / "work.json").read_text())
    plain["folder"] = Path(folder)
    plain["size"] = Size(**plain["size"])
    plain["layout"] = Layout(**plain["layout"])
    return Work(**plain)
