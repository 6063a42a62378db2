"""What a process shows to others and asks of them. (The insecure kind; certificates follow.)"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import grpc

from async_hfl.deployment.identity.names import Caller
from async_hfl.deployment.membership import Role

Options = Sequence[tuple[str, Any]]


class Credentials(Protocol):
    def channel(self, target: str, role: Role, options: Options) -> Any:
        """A grpc.aio channel to a server that must have this role."""
        ...

    def bind(self, server: Any, address: str) -> int:
        """Let the server listen there; returns the port."""
        ...

    def caller(self, context: Any) -> Caller:
        """Who calls. Raises IdentityError for whom we do not serve."""
        ...


class Insecure:
    """Nobody is asked who he is, and everybody on the way can read and change everything. For a lab."""

    def channel(self, target: str, role: Role, options: Options) -> Any:
        return grpc.aio.insecure_channel(target, options=options)

    def bind(self, server: Any, address: str) -> int:
        return int(server.add_insecure_port(address))

    def caller(self, context: Any) -> Caller:
        return Caller(None, context.peer())
