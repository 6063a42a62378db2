"""Where a server listens, known to those who start it: the same port after a restart, and a file that says which."""

from __future__ import annotations

from pathlib import Path

from async_hfl.core.errors import SettingsError
from async_hfl.deployment.store.node_store import NodeStore

FILE = "listening"
_PORT = "port"


class Listening:
    def __init__(self, store: NodeStore, state: Path, listen: str) -> None:
        """`listen` is host:port; port 0: the one it had before, else any that is free."""
        host, separator, port = listen.rpartition(":")
        if not separator or not host or not port.isdigit() or int(port) > 65535:
            raise SettingsError(f"--listen {listen}: write it as HOST:PORT, for example 0.0.0.0:7100")
        self._store = store
        self._file = state / FILE
        self._host = host
        known = store.get(_PORT)
        self.wanted = f"{host}:{known}" if int(port) == 0 and known else listen

    def announce(self, port: int) -> str:
        """The server is up: remember the port, and write it where others look."""
        self._store.put(_PORT, port)
        self._store.commit()
        address = f"{self._host}:{port}"
        beside = self._file.with_suffix(".part")
        beside.write_text(address + "\n")
        beside.replace(self._file)
        return address


def read_address(state: Path) -> str | None:
    """Where the node of that state directory listens; None: not yet."""
    try:
        return (state / FILE).read_text().strip() or None
    except FileNotFoundError:
        return None
