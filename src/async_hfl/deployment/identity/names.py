"""Names of nodes and operators in certificates: async-hfl://FEDERATION/ROLE/NAME."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import cast, get_args

from async_hfl.core.errors import IdentityError
from async_hfl.deployment.transport.admission import Role

SCHEME = "async-hfl"
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_FEDERATION = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?")


@dataclass(frozen=True, slots=True, order=True)
class Identity:
    federation: str
    role: Role
    name: str

    def __str__(self) -> str:
        return f"{SCHEME}://{self.federation}/{self.role}/{self.name}"


def federation_name(text: str) -> str:
    if not _FEDERATION.fullmatch(text):
        raise IdentityError(
            f"federation {text[:80]!r}: lower-case letters, digits and inner hyphens only, at most 40 characters"
        )
    return text


def identity(federation: str, role: str, name: str) -> Identity:
    federation_name(federation)
    if role not in get_args(Role):
        raise IdentityError(f"role {role[:40]!r}: must be one of {', '.join(get_args(Role))}")
    if not _NAME.fullmatch(name):
        raise IdentityError(f"name {name[:80]!r}: letters, digits and inner . _ - only, at most 63 characters")
    return Identity(federation, cast(Role, role), name)


def parse(uri: str) -> Identity:
    scheme, separator, rest = uri.partition("://")
    parts = rest.split("/")
    if scheme != SCHEME or not separator or len(parts) != 3:
        raise IdentityError(f"{uri[:120]!r} is not of the form {SCHEME}://FEDERATION/ROLE/NAME")
    return identity(*parts)


def server_host(federation: str, role: Role) -> str:
    """Return the host name in every certificate of a role. Clients expect it, whatever address they dial.

    So TLS proves the federation and role of a server, even behind a proxy or after a change of address."""
    return f"{role}.{federation}.{SCHEME}.invalid"


def listed(identities: Iterable[Identity]) -> str:
    """Return the names for a message, at most twelve of them."""
    names = sorted(f"{one.role}/{one.name}" for one in identities)
    shown = ", ".join(names[:12])
    return shown + (f" and {len(names) - 12} more" if len(names) > 12 else "") or "none"


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller of a method."""

    identities: frozenset[Identity] | None
    """None without authentication (--insecure): every name is accepted."""
    address: str = ""
    serial: int = 0
    """Serial number of the certificate."""
    ends: datetime | None = None

    def has(self, role: Role, name: str | None = None) -> bool:
        if self.identities is None:
            return True
        return any(one.role == role and name in (None, one.name) for one in self.identities)

    def names(self) -> str:
        return "a caller without a certificate" if self.identities is None else listed(self.identities)
