"""The calls of an operator to a running node: its status, its journal, and a request to end the run."""

from __future__ import annotations

import asyncio
import gzip
from pathlib import Path
from typing import Any

import msgspec

from async_hfl.core.errors import PeerError, UserError
from async_hfl.deployment.identity.credentials import Credentials
from async_hfl.deployment.operations.node_journal import Exported, export, keep_exported
from async_hfl.deployment.transport.admission import Role
from async_hfl.deployment.transport.link import operate

STATUS, DRAIN, JOURNAL = "status", "drain", "journal"


class NotAnswered(UserError):
    """A node does not answer an operator, or refuses to."""


def ask(target: str, role: Role, credentials: Credentials, kind: str) -> bytes:
    try:
        return asyncio.run(operate(target, role, credentials, kind))
    except PeerError as error:
        raise NotAnswered(
            f"{target}: {error}; is a {role} running there, and is this an operator's certificate?"
        ) from error


def ask_status(target: str, credentials: Credentials) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(ask(target, "cloud", credentials, STATUS))
    return found


def fetch_journal(target: str, role: Role, credentials: Credentials, out: Path) -> Path:
    """Fetch a node's journal into a folder under `out` that has the node's name; return the folder."""
    exported = msgspec.msgpack.decode(gzip.decompress(ask(target, role, credentials, JOURNAL)), type=Exported)
    return keep_exported(exported, out)


async def answer_journal(state: Path) -> bytes:
    """Return a node's journal, read and compressed on a thread so that heartbeats continue."""
    return await asyncio.to_thread(lambda: gzip.compress(msgspec.msgpack.encode(export(state)), 3))
