"""Credentials of a process: a certificate (`Certified`), or none (`Insecure`, for a lab)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Protocol

import grpc
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from async_hfl.core.errors import IdentityError, SettingsError
from async_hfl.deployment.identity import files
from async_hfl.deployment.identity.authority import check_issued, read_authorities, read_revoked
from async_hfl.deployment.identity.certificate_info import WARN_AHEAD, CertificateInfo, certificate_info, now
from async_hfl.deployment.identity.names import Caller, listed, server_host
from async_hfl.deployment.identity.tls_diagnosis import explain
from async_hfl.deployment.transport.admission import Role

log = logging.getLogger("async_hfl.identity")
_GONE = (0, 0)
"""The stamp of a revocation list that was there and is not any more."""
_OUTDATED = (-1, -1)
"""The stamp of a revocation list that was read with other authorities."""
Options = Sequence[tuple[str, Any]]


class Credentials(Protocol):
    def channel(self, target: str, role: Role, options: Options) -> Any:
        """Return a grpc.aio channel to a server that must have this role."""
        ...

    def bind(self, server: Any, address: str) -> int:
        """Let the server listen at an address, and return the port."""
        ...

    def caller(self, context: Any) -> Caller:
        """Return the caller. Raises IdentityError for a caller that must not be served."""
        ...

    def recheck(self, caller: Caller) -> None:
        """Raise IdentityError if a caller must no longer be served."""
        ...

    def check_own_name(self, role: Role, name: str) -> None:
        """Raise IdentityError if the certificate does not have this name."""
        ...

    def explain(self, target: str, role: Role) -> str:
        """Return the reason for which a connection fails, if names or certificates are to blame. Blocks."""
        ...

    def take_handshakes(self) -> int:
        """Return the number of connections to this server since the last call of this function."""
        ...


class Insecure:
    """No authentication and no encryption, for a lab."""

    def __init__(self, *, beyond_loopback: bool = False) -> None:
        self._beyond_loopback = beyond_loopback
        log.warning("INSECURE: no certificates; anyone who can reach this process can read and change everything")

    def channel(self, target: str, role: Role, options: Options) -> Any:
        return grpc.aio.insecure_channel(target, options=options)

    def bind(self, server: Any, address: str) -> int:
        host = address.rpartition(":")[0].strip("[]")
        if not self._beyond_loopback and not is_loopback(host):
            raise SettingsError(
                f"--insecure allows loopback addresses only, not {host or 'every address'}: "
                "use certificates (`async-hfl certs init`), or add --insecure-beyond-loopback "
                "if you trust everybody on that network"
            )
        return int(server.add_insecure_port(address))

    def caller(self, context: Any) -> Caller:
        return Caller(None, context.peer())

    def recheck(self, caller: Caller) -> None:
        return

    def check_own_name(self, role: Role, name: str) -> None:
        return

    def explain(self, target: str, role: Role) -> str:
        return ""

    def take_handshakes(self) -> int:
        return 0


def is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class Certified:
    """A folder with key.pem, certificate.pem and ca.pem, and on servers revoked.pem.

    A file that has changed is read again with the next connection, so a renewed certificate, another authority or a new
    list needs no restart."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._revoked: frozenset[int] = frozenset()
        self._revoked_stamp: tuple[int, int] | None = None
        self._known: dict[bytes, CertificateInfo] = {}
        self._warned_at = -1
        self._key_warned = False
        self._handshakes = 0
        self._authorities: list[x509.Certificate] = []
        self._stamps: list[tuple[int, int, int]] = []
        """The stamps of the files that were read last, whether they could be used or not."""
        self._load()
        self._check_time()
        self._read_revoked()

    def check_own_name(self, role: Role, name: str) -> None:
        if not Caller(self._own.identities).has(role, name):
            raise IdentityError(
                f"{role}/{name} is not among the names of {self._folder / files.CERTIFICATE}: "
                f"{listed(self._own.identities)}; use one of these, or request a certificate with that name"
            )

    def explain(self, target: str, role: Role) -> str:
        return explain(target, role, self._own.federation, self._authorities)

    def take_handshakes(self) -> int:
        count, self._handshakes = self._handshakes, 0
        return count

    def _refresh(self) -> None:
        """Load the files if they have changed. If they cannot be used, keep what was loaded before."""
        if (stamps := self._read_stamps()) == self._stamps:
            return
        self._stamps = stamps
        try:
            self._load()
        except IdentityError as error:
            log.error("the certificate on disk cannot be used: %s", error)

    def _read_stamps(self) -> list[tuple[int, int, int]]:
        found = []
        for name in (files.KEY, files.CERTIFICATE, files.CA_CERTIFICATE):
            try:
                status = (self._folder / name).stat()
            except OSError:
                found.append((0, 0, 0))
            else:
                found.append((status.st_mtime_ns, status.st_size, status.st_ino))
        return found

    def _load(self) -> None:
        self._stamps = self._read_stamps()
        path = self._folder / files.CERTIFICATE
        authorities = read_authorities(self._folder / files.CA_CERTIFICATE)
        certificate = files.read_certificate(path)
        key = files.read_key(self._folder / files.KEY)
        if (self._folder / files.KEY).stat().st_mode & 0o077 and not self._key_warned:
            self._key_warned = True
            log.warning(
                "%s is readable by other users of this machine, who could impersonate this node: chmod 600 it",
                self._folder / files.KEY,
            )
        if _public(key.public_key()) != _public(certificate.public_key()):
            raise IdentityError(f"{path}: does not match {files.KEY} in the same folder; have the request issued again")
        check_issued(certificate, authorities, str(path))
        own = certificate_info(certificate, str(path))
        own.check_time(now(), str(path))
        if self._revoked_stamp is not None and authorities != self._authorities:
            self._revoked_stamp = _OUTDATED  # a list of a new authority may have been refused before
        self._own, self._authorities = own, authorities
        key_pem, bundle = files.read(self._folder / files.KEY, "a key"), b"".join(map(files.pem, authorities))
        self._pems = (key_pem, files.pem(certificate), bundle)

    def _check_time(self) -> None:
        """Raise IdentityError if the certificate has expired; warn once a day if it will soon."""
        path = self._folder / files.CERTIFICATE
        self._own.check_time(now(), str(path))
        left = self._own.ends - now()
        if left < WARN_AHEAD and self._warned_at != left.days:  # once a day
            self._warned_at = left.days
            log.warning("%s expires in %d days, on %s: renew it", path, left.days, f"{self._own.ends:%Y-%m-%d}")

    def channel(self, target: str, role: Role, options: Options) -> Any:
        self._refresh()
        self._check_time()
        key, certificate, authority = self._pems
        host = server_host(self._own.federation, role)
        return grpc.aio.secure_channel(
            target,
            grpc.ssl_channel_credentials(authority, key, certificate),
            options=[*options, ("grpc.ssl_target_name_override", host)],
        )

    def bind(self, server: Any, address: str) -> int:
        if self._revoked_stamp is None:
            raise IdentityError(
                f"{self._folder / files.REVOKED}: no such file; without it this server would accept certificates that "
                "were revoked. Copy it from the authority's folder, where it is even if nothing was revoked"
            )
        made = grpc.dynamic_ssl_server_credentials(
            self._server_configuration(), self._renewed, require_client_authentication=True
        )
        return int(server.add_secure_port(address, made))

    def _server_configuration(self) -> Any:
        key, certificate, authority = self._pems
        return grpc.ssl_server_certificate_configuration([(key, certificate)], authority)

    def _renewed(self) -> Any:
        """Return a new configuration, None if unchanged. Called by gRPC before each handshake, on its own thread."""
        self._handshakes += 1
        before = self._pems
        self._refresh()
        return None if self._pems == before else self._server_configuration()

    def caller(self, context: Any) -> Caller:
        shown = context.auth_context().get("x509_pem_cert")
        if not shown:
            raise IdentityError("no certificate was presented")
        caller = self._known.get(shown[0])
        if caller is None:
            if len(self._known) > 10_000:
                self._known.clear()
            caller = certificate_info(x509.load_pem_x509_certificate(shown[0]), "the caller's certificate")
            self._known[shown[0]] = caller
        found = Caller(caller.identities, context.peer(), caller.serial, caller.ends)
        self.recheck(found)
        return found

    def recheck(self, caller: Caller) -> None:
        self._read_revoked()
        if caller.identities is None or any(one.federation != self._own.federation for one in caller.identities):
            raise IdentityError(f"the caller belongs to another federation: {caller.names()}")
        if caller.serial in self._revoked:
            raise IdentityError(f"the certificate of {caller.names()} (serial {caller.serial:x}) was revoked")
        if caller.ends is not None and now() >= caller.ends:
            raise IdentityError(f"the certificate of {caller.names()} expired on {caller.ends:%Y-%m-%d}")

    def _read_revoked(self) -> None:
        """Reload the revocation list if it has changed. If it has become unreadable, the old one stays in force."""
        path = self._folder / files.REVOKED
        try:
            status = path.stat()
        except OSError:
            if self._revoked_stamp not in (None, _GONE):
                self._revoked_stamp = _GONE
                log.error("%s cannot be read any more: the list that was read last stays in force. Put it back", path)
            return
        stamp = (status.st_mtime_ns, status.st_size)
        if stamp == self._revoked_stamp:
            return
        first = self._revoked_stamp is None
        self._revoked_stamp = stamp
        try:
            fresh = frozenset(entry.serial_number for entry in read_revoked(path, self._authorities))
        except IdentityError as error:
            if first:
                raise
            log.error("the revocation list is unreadable, the old one stays in force: %s", error)
            return
        self._revoked |= fresh  # a revocation holds as long as the process runs
        log.info("%d revoked certificates are refused", len(self._revoked))


def _public(key: Any) -> bytes:
    data: bytes = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return data
