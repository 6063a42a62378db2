"""The contents of a certificate: names, serial number, validity."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes

from async_hfl.core.errors import IdentityError
from async_hfl.deployment.identity.names import Identity, parse

WARN_AHEAD = timedelta(days=30)


@dataclass(frozen=True, slots=True)
class CertificateInfo:
    identities: frozenset[Identity]
    serial: int
    begins: datetime
    ends: datetime
    fingerprint: str
    """SHA-256 of the certificate, for comparison by telephone."""

    @property
    def federation(self) -> str:
        return next(iter(self.identities)).federation

    def days_left(self, now: datetime) -> int:
        return (self.ends - now).days

    def check_time(self, now: datetime, where: str) -> None:
        if now >= self.ends:
            raise IdentityError(
                f"{where}: expired on {self.ends:%Y-%m-%d}; "
                "request a new one (`async-hfl certs request`) and have it issued"
            )
        if now < self.begins:
            raise IdentityError(
                f"{where}: not valid before {self.begins:%Y-%m-%d %H:%M} UTC; "
                f"check this machine's clock, which says {now:%Y-%m-%d %H:%M} UTC"
            )


def now() -> datetime:
    return datetime.now(UTC)


def identities_of(thing: x509.Certificate | x509.CertificateSigningRequest, where: str) -> frozenset[Identity]:
    """Return the names in a certificate or request; `where` names its source in messages."""
    try:
        names = thing.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, x509.DuplicateExtension, ValueError) as error:
        raise IdentityError(f"{where}: has no readable names") from error
    found = frozenset(parse(uri) for uri in names.get_values_for_type(x509.UniformResourceIdentifier))
    if not found:
        raise IdentityError(f"{where}: has no name of the form async-hfl://FEDERATION/ROLE/NAME")
    if len({(one.federation, one.role) for one in found}) != 1:
        raise IdentityError(f"{where}: its names belong to several federations or roles")
    return found


def certificate_info(certificate: x509.Certificate, where: str) -> CertificateInfo:
    return CertificateInfo(
        identities_of(certificate, where),
        certificate.serial_number,
        certificate.not_valid_before_utc,
        certificate.not_valid_after_utc,
        certificate.fingerprint(hashes.SHA256()).hex(":"),
    )
