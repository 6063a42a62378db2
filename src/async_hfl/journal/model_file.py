"""Model files in the safetensors format: named arrays and no code."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from async_hfl.core.errors import DataError
from async_hfl.core.weights import Layout, Weights


def save_model(path: Path, layout: Layout, weights: Weights) -> None:
    beside = path.with_suffix(".part")
    arrays = {name: np.ascontiguousarray(array) for name, array in layout.unflatten(np.asarray(weights)).items()}
    try:
        save_file(arrays, beside)
    except (OSError, SafetensorError) as error:
        raise DataError(f"{path}: cannot be written ({error})") from error
    beside.replace(path)


def load_model(path: Path, layout: Layout) -> Weights:
    """Load a model; its names and shapes must be those of the layout, and its numbers finite."""
    try:
        arrays = load_file(path)
    except FileNotFoundError as error:
        raise DataError(f"{path}: no such file; `async-hfl model RUN OUT.safetensors` makes one") from error
    except (OSError, SafetensorError) as error:
        raise DataError(f"{path}: not a safetensors file ({error})") from error
    except (TypeError, AttributeError, KeyError) as error:  # bfloat16 and other types that numpy does not have
        raise DataError(f"{path}: {error}; store the arrays as float32") from error
    return layout.flatten(arrays, str(path))
