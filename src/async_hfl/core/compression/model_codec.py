"""The encodings of the models and gradients that the nodes of a run exchange.

Downwards (cloud to gateway, gateway to device) a model travels as a whole, encoded once per version. Upwards the change
since the model that the sender was given travels, with error feedback. What the sender was given is the decoded model.
With the encoding "float32" a model travels as it is, and as a whole, in either direction.

The codec of a process also remembers decoded models, so that in a simulation all receivers of the same bytes share one
array. In a simulation, where it serves the sender as well as the receiver, it remembers what a change decodes to, too,
and the bytes of which a gradient was decoded: that gradient travels on as those bytes.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from async_hfl.core.compression import codec
from async_hfl.core.compression.encodings import Encoded, EncodingKind, encoded_bytes, is_finite
from async_hfl.core.compression.scratch import Scratch
from async_hfl.core.errors import InternalError
from async_hfl.core.randomness import stream_seed
from async_hfl.core.vectors import DeviceEncoded, DeviceVector, HostVector, Vector, to_host
from async_hfl.core.weights import Weights, frozen

if TYPE_CHECKING:
    Model: TypeAlias = Vector | Encoded | DeviceEncoded
    """A model, or a change of a model, as it travels: float32 numbers or the bytes of a light vector."""
else:
    Model = npt.NDArray[np.float32 | np.uint8]  # message decoders read annotations

Direction: TypeAlias = Literal["up", "down"]


class ModelCodec:
    """Encodes and decodes models by the settings of one run."""

    __slots__ = (
        "_arrived",
        "_decoded",
        "_gradients",
        "_scratch",
        "_simulated",
        "down",
        "encodes_gradients",
        "seed",
        "size",
        "trained",
        "up",
    )

    def __init__(
        self,
        up: EncodingKind = "float32",
        down: EncodingKind = "float32",
        *,
        size: int = 0,
        trained: int = 0,
        seed: int = 0,
        encodes_gradients: bool = True,
        simulated: bool = False,
    ) -> None:
        """`size`: numbers in a model, of which the first `trained` are encoded. `seed`: root seed of the rounding.
        `encodes_gradients`: gradients are encoded like models; False if they are projected, and short for that.
        `simulated`: the codec serves all nodes of a run."""
        self.up = up
        self.down = down
        self.size = size
        self.trained = trained
        self.seed = seed
        self.encodes_gradients = encodes_gradients
        self._scratch = Scratch()
        self._simulated = simulated
        self._decoded: dict[int, tuple[weakref.ref[Any], Weights | None, HostVector]] = {}
        """Decoded models, and the base of those that travel as a change. By the identity of the encoded model, which
        removes its entry when it is gone."""
        self._arrived: dict[int, tuple[weakref.ref[Any], EncodingKind, Encoded]] = {}
        """The encodings of which gradients were decoded, by the identity of the gradient."""
        self._gradients: weakref.WeakValueDictionary[int, HostVector] = weakref.WeakValueDictionary()
        """Those gradients, by the identity of the encoding."""

    @property
    def encodes_up(self) -> bool:
        return self.up != "float32"

    @property
    def encodes_down(self) -> bool:
        return self.down != "float32"

    def bytes_of(self, kind: EncodingKind) -> int:
        """Return the bytes of a model in this encoding."""
        return encoded_bytes(kind, self.trained, self.size - self.trained)

    def sizes(self, direction: Direction) -> dict[str, int | str]:
        """Return the bytes of a model and of a gradient in one direction, as they travel and as float32."""
        kind = self.up if direction == "up" else self.down
        return {
            "encoding": kind,
            "model": self.bytes_of(kind),
            "model_float32": self.bytes_of("float32"),
            "gradient": encoded_bytes(self._gradient_kind(direction), self.trained, 0),
            "gradient_float32": 4 * self.trained,
        }

    def key(self, stream: str, *numbers: int) -> int:
        """Return the key that determines the rounding of one vector."""
        return stream_seed(self.seed, "rounding", stream, *numbers)

    # Whole models, downwards -------------------------------------------------------------------------------------

    def encode_model(self, weights: Weights, key: int) -> Model:
        if not self.encodes_down:
            return weights
        if isinstance(weights, DeviceVector):
            return weights.encode(self.down, self.trained, key)
        return codec.encode(weights, self.down, self.trained, key, self._scratch)

    def decode_model(self, model: Model) -> Weights:
        if not self.encodes_down:
            return plain_vector(model)
        if not isinstance(model, np.ndarray):
            return _on_device(model).decoded
        known = self._remembered(model, None)
        if known is None:
            known = codec.decode(_bytes(model), self.down, self.size, self.trained)
            self._remember(model, None, known)
        return known

    def _remembered(self, model: Model, base: Weights | None) -> HostVector | None:
        known = self._decoded.get(id(model))
        return known[2] if known is not None and known[0]() is model and known[1] is base else None

    def _remember(self, model: Model, base: Weights | None, decoded: HostVector) -> None:
        place = id(model)
        gone = weakref.ref(model, lambda _: self._decoded.pop(place, None))
        self._decoded[place] = (gone, base, decoded)

    # Changes, upwards --------------------------------------------------------------------------------------------

    def encode_change(
        self, weights: Weights, base: Weights, memory: Vector | None, key: int
    ) -> tuple[Model, Vector | None]:
        """Return the encoded change since `base`, and the error that is left for the next change."""
        if isinstance(weights, DeviceVector):
            return weights.encode_change(base, memory, self.up, self.trained, key)
        left = None if memory is None else to_host(memory)
        decoded = np.empty(self.size, np.float32) if self._simulated else None
        change, left = codec.encode_change(
            weights, to_host(base), left, self.up, self.trained, key, self._scratch, decoded
        )
        if decoded is not None and is_finite(change, self.up, self.size, self.trained):
            self._remember(change, base, frozen(decoded))
        return change, left

    def decode_change(self, change: Model, base: Weights) -> Weights:
        """Return the model that the sender meant, up to rounding. Values that could not be encoded are NaN."""
        if not isinstance(change, np.ndarray):
            return _on_device(change).decoded
        known = self._remembered(change, base)
        if known is not None:
            return known
        return codec.decode_change(_bytes(change), to_host(base), self.up, self.trained)

    # Gradients ---------------------------------------------------------------------------------------------------

    def encode_gradient(self, gradient: Vector, direction: Direction, key: int) -> Model:
        """Encode a gradient, if gradients travel encoded.

        A decoded gradient is a multiple of its scales and would be encoded exactly, so its own encoding serves."""
        kind = self._gradient_kind(direction)
        if kind == "float32":
            return gradient
        if isinstance(gradient, DeviceVector):
            return gradient.encode(kind, self.trained, key)
        arrived = self._arrived.get(id(gradient))
        if arrived is not None and arrived[0]() is gradient and arrived[1] == kind:
            return arrived[2]
        return codec.encode(gradient, kind, self.trained, key, self._scratch)

    def decode_gradient(self, gradient: Model, direction: Direction) -> Vector:
        kind = self._gradient_kind(direction)
        if kind == "float32":
            return plain_vector(gradient)
        if not isinstance(gradient, np.ndarray):
            return _on_device(gradient).decoded
        known = self._gradients.get(id(gradient))
        if known is None:
            encoded = _bytes(gradient)
            known = codec.decode(encoded, kind, self.trained, self.trained)
            if self._simulated:
                self._remember_arrived(known, kind, encoded)
        return known

    def _remember_arrived(self, gradient: HostVector, kind: EncodingKind, encoded: Encoded) -> None:
        place = id(gradient)
        gone = weakref.ref(gradient, lambda _: self._arrived.pop(place, None))
        self._arrived[place] = (gone, kind, encoded)
        self._gradients[id(encoded)] = gradient

    def encodes_gradient(self, direction: Direction) -> bool:
        return self._gradient_kind(direction) != "float32"

    def _gradient_kind(self, direction: Direction) -> EncodingKind:
        if not self.encodes_gradients:
            return "float32"
        return self.up if direction == "up" else self.down


PLAIN_MODELS = ModelCodec()
"""The codec of a run in which all vectors travel as float32."""


def plain_vector(model: Model) -> Vector:
    """Return a model or gradient that travels as float32."""
    if isinstance(model, DeviceEncoded) or (isinstance(model, np.ndarray) and model.dtype != np.float32):
        raise InternalError("a model arrived encoded, but this run's models travel as float32")
    return model  # type: ignore[return-value]


def _bytes(model: npt.NDArray[Any]) -> Encoded:
    if model.dtype != np.uint8:
        raise InternalError("a model arrived as float32, but this run's models travel encoded")
    return model


def _on_device(model: Vector | DeviceEncoded) -> DeviceEncoded:
    if not isinstance(model, DeviceEncoded):
        raise InternalError("a model arrived as float32, but this run's models travel encoded")
    return model
