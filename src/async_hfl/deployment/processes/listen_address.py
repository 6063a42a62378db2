"""The listen address of a server: it keeps its port after a restart, and is written to a file for others to read."""

from __future__ import annotations

from pathlib import Path

from async_hfl.core.errors import SettingsError
from async_hfl.deployment.store.node_store import NodeStore

FILE = "listening"
_PORT = "port"


class ListenAddress:
    def __init__(self, store: NodeStore, state: Path, listen: str) -> None:
        """`listen` is host:port; port 0 stands for the last port, or any free port at the first start."""
        host, separator, port = listen.rpartition(":")
        if not separator or not host or not port.isdigit() or int(port) > 65535:
            raise SettingsError(f"--listen {listen}: write it as HOST:PORT, for example 0.0.0.0:7100")
        self._store = store
        self._file = state / FILE
        self._host = host
        known = store.get(_PORT)
        self.wanted = f"{host}:{known}" if int(port) == 0 and known else listen

    def announce(self, port: int) -> None:
        """Store the port of the running server, and write the address to the file."""
        self._store.put(_PORT, port)
        self._store.commit()
        temporary = self._file.with_suffix(".part")
        temporary.write_text(f"{self._host}:{port}\n")
        temporary.replace(self._file)


def read_address(state: Path) -> str | None:
    """Return the address at which the node of a state directory listens; None if it does not listen yet."""
    try:
        return (state / FILE).read_text().strip() or None
    except FileNotFoundError:
        return None
