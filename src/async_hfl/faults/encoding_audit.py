"""The audit of encoded models: what travels is, up to rounding, what its sender has.

The checkers of the aggregation rules compute from decoded messages, so they cannot notice that the wrong model was
encoded, or a change of the wrong model. The audit compares messages with the models of gateways and cloud, and with
the results of training. An error of rounding is less than one unit: the distance of two codes.
"""

from __future__ import annotations

import numpy as np

from async_hfl.core.compression.encodings import EncodingKind, is_finite, split
from async_hfl.core.compression.model_codec import Model
from async_hfl.core.identifiers import JobId
from async_hfl.core.protocol import messages as m
from async_hfl.core.protocol.records import LifecycleRecord, Record
from async_hfl.core.weights import Weights
from async_hfl.faults.history import History, require
from async_hfl.nodes.cloud.node import CloudNode
from async_hfl.nodes.gateway.node import GatewayNode
from async_hfl.nodes.reliability.delivery import ReliableNode

_SLACK = 1e-5
"""Error allowed to sums in single precision."""


class EncodingAudit:
    def __init__(self, history: History) -> None:
        self.history = history
        self._results: dict[JobId, tuple[int, Weights]] = {}
        """Device and trained model, of updates that have not been sent yet."""
        self._units: dict[str, float] = {}
        """By sender: the largest unit of its changes so far. What earlier ones have left is less."""

    def trained(self, job: JobId, device: int, weights: Weights) -> None:
        """Note the result of training that a device is about to send."""
        self._results[job] = (device, weights)

    def sent(self, message: m.Message) -> None:
        """Compare an update with the result of the training. The history contains the update already."""
        if not isinstance(message, m.Update) or message.job not in self._results:
            return
        device, weights = self._results.pop(message.job)
        if np.isfinite(np.asarray(weights)).all():
            found = self.history.trained(message.job)
            self._check_change(f"device {device}", f"update {message.job}", message.weights, found, weights)

    def written(self, record: Record) -> None:
        """Check that no upload and no message of a device is refused. An upload of a later incarnation may be a change
        of an old model, which arrived after the disk was lost."""
        if isinstance(record, LifecycleRecord) and record.what == "refused":
            require(record.node.startswith("g"), f"a correct device was refused: {record}")
            number = int(record.node[1:])
            later = any(upload.gateway == number and upload.incarnation > 1 for upload in self.history.uploads)
            require(later, f"an upload of a correct gateway was refused: {record}")

    def check_device(self, device: int, delivery: ReliableNode) -> None:
        """Note the units of updates that wait for a session. Even if such an update is never sent, what it has left is
        in the next one."""
        if self.history.codec.encodes_up:
            for packet in delivery.state.unacknowledged.values():
                if isinstance(packet.message, m.Update):
                    self._note(f"device {device}", self._unit_of_change(packet.message.weights))

    def check_gateway(self, gateway: GatewayNode) -> None:
        state, codec, name = gateway.state, self.history.codec, f"gateway {gateway.config.number}"
        if state.weights is None:
            return
        self._check_whole(name, state.encoded, state.weights)
        model = state.weights if state.phase == "uploading" else state.uploaded
        if model is None:
            return
        for waiting in state.outstanding.values():
            message = waiting.message
            if waiting.relayed is None and message.upload in self.history.uploads:
                found = self.history.uploaded(message.upload)
                if codec.encodes_up:
                    sender = f"{name} ({state.incarnation})"
                    self._check_change(sender, f"upload {message.upload}", message.weights, found, model)
                else:
                    same = np.array_equal(np.asarray(found), np.asarray(model))
                    require(same, f"upload {message.upload} is not the model of {name}")

    def check_cloud(self, cloud: CloudNode) -> None:
        state = cloud.state
        self._check_whole("the cloud", state.encoded, state.weights)
        for epoch, base in state.bases.items():
            sent = self.history.global_models.get(epoch)
            same = sent is None or np.array_equal(np.asarray(sent), np.asarray(base))
            require(same, f"the cloud keeps another model of epoch {epoch} than it has sent")
        used = set[int]().union(*(member.bases for member in state.members))
        same = state.bases.keys() == used or state.phase == "over"
        require(same, f"the cloud keeps models {sorted(state.bases)}, and needs {sorted(used)}")

    def _check_whole(self, name: str, encoded: Model | None, weights: Weights) -> None:
        codec = self.history.codec
        if codec.encodes_down and encoded is not None:
            limit = _unit(encoded, codec.down, codec.size, codec.trained) + _SLACK
            error = _difference(codec.decode_model(encoded), weights)
            require(error <= limit, f"{name} sends another model than it has: they differ by {error}")

    def _check_change(self, sender: str, name: str, change: Model, found: Weights, weights: Weights) -> None:
        if self.history.codec.encodes_up:
            unit = self._unit_of_change(change)
            limit = unit + self._units.get(sender, 0.0) + _SLACK
            self._note(sender, unit)
            error = _difference(found, weights)
            require(error <= limit, f"{name} is decoded to another model: they differ by {error}")

    def _unit_of_change(self, change: Model) -> float:
        codec = self.history.codec
        return _unit(change, codec.up, codec.size, codec.trained)

    def _note(self, sender: str, unit: float) -> None:
        self._units[sender] = max(unit, self._units.get(sender, 0.0))


def _difference(one: Weights, other: Weights) -> float:
    return float(np.abs(np.asarray(one).astype(np.float64) - np.asarray(other)).max())


def _unit(encoded: Model, kind: EncodingKind, size: int, trained: int) -> float:
    """Return the largest distance of neighbouring codes; 0 for a vector that could not be encoded."""
    found = np.asarray(encoded)
    if not is_finite(found, kind, size, trained):
        return 0.0
    parts = split(found, kind, size, trained)
    if kind == "float16":
        largest = int((parts.halves & 0x7FFF).max())
        return 2.0 ** (max(largest >> 10, 1) - 25)
    return 2.0 ** int(parts.exponents.max())
