"""The initial model that the user's function makes: a PyTorch module, its state dict, or arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from async_hfl.adapters.arrays import Array
from async_hfl.adapters.clients import Model
from async_hfl.core.errors import TaskError


def model_of(made: Any) -> Model:
    """Return the arrays in the order of the state dict, which is that of clients in PyTorch."""
    if isinstance(made, Model):
        return made
    if hasattr(made, "state_dict") and hasattr(made, "named_parameters"):
        trained = {name for name, parameter in made.named_parameters() if parameter.requires_grad}
        state = made.state_dict()
        return Model(list(state), [_array(value) for value in state.values()], [name in trained for name in state])
    if hasattr(made, "to_numpy_ndarrays"):  # Flower's ArrayRecord
        return Model(list(made), made.to_numpy_ndarrays(), [True] * len(made))
    if isinstance(made, Mapping):
        return Model(list(made), [_array(value) for value in made.values()], [True] * len(made))
    if isinstance(made, Sequence):
        return Model([str(place) for place in range(len(made))], [_array(value) for value in made], [True] * len(made))
    raise TaskError(f"model= made a {type(made).__name__}; make a torch.nn.Module, or a dict or list of arrays")


def _array(value: Any) -> Array:
    return np.array(value.detach().cpu().numpy() if hasattr(value, "detach") else value)
