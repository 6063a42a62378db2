"""What to do with the gateways' models: the part of the cloud that differs between methods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from async_hfl.core.protocol import messages as m
from async_hfl.core.serialization import Plain

if TYPE_CHECKING:
    from async_hfl.nodes.cloud.node import CloudNode


class CloudAggregation(Protocol):
    def received(self, node: CloudNode, upload: m.Upload, at: float) -> None:
        """A new upload of a live gateway. Sooner or later it must be closed with `node.close_upload`; a gateway whose
        upload is kept waiting is told so with `node.hold_upload`."""
        ...

    def lost(self, node: CloudNode, gateway: int, at: float) -> None:
        """A gateway was declared lost: its uploads that are not closed are void, and it will write their end."""
        ...

    def changed(self, node: CloudNode, at: float) -> None:
        """Who is alive, associated or within reach may have changed: somebody waited for may not be any more."""
        ...

    def snapshot(self) -> Plain: ...

    def restore(self, data: Plain) -> None: ...
