"""Requests to join, admissions and refusals on the wire, and the negotiation of a protocol version."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from async_hfl.core.errors import IdentityError, PeerError
from async_hfl.core.protocol.messages import MOST_SAMPLES
from async_hfl.deployment.identity.names import identity
from async_hfl.deployment.protocol import wire_pb2 as wire
from async_hfl.deployment.transport.admission import Admission, Joining, Refusal
from async_hfl.deployment.transport.earlier_versions import admission_from_2
from async_hfl.deployment.transport.limits import HIGHEST_VERSION, LOWEST_VERSION, PACKAGE

T = TypeVar("T")
_MOST_PROBE_S = 3600.0
_MOST_MARKS = 1000
"""A node has a mark for each server that it has joined."""
_MOST_COMPUTE_S = 1e9


def pack(value: Joining | Admission | Refusal) -> bytes:
    return msgspec.msgpack.encode(value)


def unpack(data: bytes, kind: type[T]) -> T:
    try:
        return msgspec.msgpack.decode(data, type=kind)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise PeerError(f"{kind.__name__} unreadable: {error}") from error


def hello(joining: Joining, package: str, probe_s: float) -> Any:
    versions = {"lowest_version": LOWEST_VERSION, "highest_version": HIGHEST_VERSION}
    return wire.Hello(**versions, package=package, joining=pack(joining), probe_s=probe_s)


def stated(hello: Any) -> Joining:
    """Return the request to join in a hello. Raises PeerError for implausible values."""
    found = unpack(hello.joining, Joining)
    try:
        identity("any", found.role, found.name)
    except IdentityError as error:
        raise PeerError(str(error)) from error
    if len(found.marks) > _MOST_MARKS or len(found.knows) > _MOST_MARKS:
        raise PeerError(f"{found.role}/{found.name} states {len(found.marks)} marks")
    marked = [number for mark in found.marks for number in (mark.incarnation, mark.sent, mark.acknowledged, mark.seen)]
    counts = (found.incarnation, found.run, found.samples, *marked, *found.knows.values())
    in_range = all(0 <= count < 2**63 for count in counts) and found.samples <= MOST_SAMPLES
    if not in_range or not 0 <= found.compute_s <= _MOST_COMPUTE_S:
        raise PeerError(f"{found.role}/{found.name} states impossible numbers: {counts[:8]}, {found.compute_s}")
    return found


def probe_s(hello: Any) -> float:
    """Return the duration of the probe in a hello; 0 (not measured) if it is implausible."""
    return float(hello.probe_s) if 0 <= hello.probe_s < _MOST_PROBE_S else 0.0


def agreed_version(lowest: int, highest: int) -> int:
    """Return the highest version that both sides support; 0 if there is none."""
    best = min(highest, HIGHEST_VERSION)
    return best if best >= max(lowest, LOWEST_VERSION) else 0


def no_common_version(lowest: int, highest: int, package: str) -> Refusal:
    """Return the refusal of a node that supports only these versions; `package` is its version of async-hfl."""
    older = "the node that joins" if highest < LOWEST_VERSION else "the node that it joins"
    return Refusal(
        "refused",
        f"no common protocol version: the node that joins runs async-hfl {package[:40] or '(unknown version)'} with "
        f"protocol {_range(lowest, highest)}, this node runs async-hfl {PACKAGE} with protocol "
        f"{_range(LOWEST_VERSION, HIGHEST_VERSION)}; install the same version on both, that is, update {older}",
    )


def _range(lowest: int, highest: int) -> str:
    return str(lowest) if lowest == highest else f"{lowest} to {highest}"


def outcome(joined: Any) -> Admission | Refusal:
    """Return a server's answer to a request to join."""
    if joined.refusal:
        return unpack(joined.refusal, Refusal)
    if not LOWEST_VERSION <= joined.version <= HIGHEST_VERSION:
        raise PeerError(
            f"the server chose protocol version {joined.version}; this node runs async-hfl {PACKAGE} with protocol "
            f"{_range(LOWEST_VERSION, HIGHEST_VERSION)}, the server async-hfl {joined.package[:40]}"
        )
    admission = unpack(joined.admission, Admission)
    return admission_from_2(admission) if joined.version == 2 else admission
