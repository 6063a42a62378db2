"""The certificate authority of a federation: a folder on a machine that needs no network.

ca.key        the private key; its holder can impersonate any node
ca.pem        the certificate that every node trusts; while one authority replaces another, a node's file holds both
issued/       every certificate ever issued, by serial number
revoked.pem   the signed list of revoked certificates; servers have a copy and reload it when it changes
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from async_hfl.core.errors import IdentityError
from async_hfl.deployment.identity import files
from async_hfl.deployment.identity.certificate_info import CertificateInfo, certificate_info, identities_of, now
from async_hfl.deployment.identity.names import Identity, federation_name, identity, listed, server_host

_CA_KEY = "ca.key"
_ISSUED = "issued"
_SKEW = timedelta(days=1)
"""Certificates are backdated by this much, since the clock of a node may be slow."""
_LIST_LASTS = timedelta(days=3650)
_SERVERS = ("cloud", "gateway")


def request(folder: Path, federation: str, role: str, names: list[str]) -> frozenset[Identity]:
    """Create a key, which stays on this machine, and a certificate request for the authority."""
    wanted = frozenset(identity(federation, role, name) for name in names)
    if not wanted:
        raise IdentityError("a certificate needs at least one name")
    key_path = folder / files.KEY
    if key_path.exists():  # a renewal, or another name for the same key
        key = files.read_key(key_path)
    else:
        key = files.new_key()
        files.write_key(key_path, key)
    builder = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(_subject(federation, listed(wanted)))
        .add_extension(_names(wanted), False)
    )
    files.write(folder / files.REQUEST, files.pem(builder.sign(key, hashes.SHA256())), replace=True)
    return wanted


def is_authority(folder: Path) -> bool:
    return (folder / _CA_KEY).exists()


class Authority:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        if not is_authority(folder):
            raise IdentityError(f"{folder}: no certificate authority; `async-hfl certs init {folder}` makes one")
        self._key = files.read_key(folder / _CA_KEY)
        self._certificate = files.read_certificate(folder / files.CA_CERTIFICATE)
        self.federation = federation_of(self._certificate, str(folder / files.CA_CERTIFICATE))

    @classmethod
    def create(cls, folder: Path, federation: str, days: int = 3650) -> Authority:
        federation_name(federation)
        if is_authority(folder):
            raise IdentityError(f"{folder}: already contains a certificate authority; it is left unchanged")
        key = files.new_key()
        subject = _subject(federation, f"async-hfl {federation}")
        begins = now()
        usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(begins - _SKEW)
            .not_valid_after(begins + timedelta(days=days))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .sign(key, hashes.SHA256())
        )
        files.write_key(folder / _CA_KEY, key)
        files.write(folder / files.CA_CERTIFICATE, files.pem(certificate))
        made = cls(folder)
        made._write_revoked([])
        return made

    def issue(
        self, request_path: Path, out: Path, days: int = 365, role: str = "device", also: Sequence[Path] = ()
    ) -> CertificateInfo:
        """Issue the certificate for a request; write it to `out` with the authority's own and the revocation list.

        `also`: the folders of authorities that the node is to trust as well, while this one replaces them. A request
        may state any names. So the operator must confirm any role other than device (`role`), and a name that
        has a valid certificate is not granted to another key."""
        asked = files.read_request(request_path)
        if not asked.is_signature_valid:
            raise IdentityError(f"{request_path}: wrong signature; the file is damaged")
        key = asked.public_key()
        if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
            raise IdentityError(f"{request_path}: not an ECDSA P-256 key; `async-hfl certs request` makes one")
        names = identities_of(asked, str(request_path))
        asks_for = next(iter(names)).role
        if asks_for != role:
            raise IdentityError(
                f"{request_path}: requests the names {listed(names)}; add --role {asks_for} to grant them"
            )
        self._refuse_taken(names, key)
        if (federation := next(iter(names)).federation) != self.federation:
            raise IdentityError(
                f"{request_path}: requests federation {federation!r}; this is the authority of {self.federation!r}"
            )
        return self._certify(names, key, out, days, str(request_path), [Authority(folder) for folder in also])

    def bundle(
        self, role: str, names: list[str], out: Path, days: int = 365, also: Sequence[Path] = ()
    ) -> CertificateInfo:
        """Create key and certificate on this machine, for a lab; the key must then be copied to the node."""
        request(out, self.federation, role, names)
        return self.issue(out / files.REQUEST, out, days, role, also)

    def revoke(self, which: str) -> list[CertificateInfo]:
        """Revoke a certificate by serial number, or all certificates of ROLE/NAME."""
        role, _, name = which.partition("/")
        found = []
        for certificate in self._all_issued():
            info = certificate_info(certificate, "an issued certificate")
            named = any((one.role, one.name) == (role, name) for one in info.identities)
            if named or f"{info.serial:x}" == which.lower():
                found.append(info)
        if not found:
            raise IdentityError(f"{which}: no certificate of that serial number or ROLE/NAME was issued here")
        old = self._revocations()
        known = {entry.serial_number for entry in old}
        new = [
            x509.RevokedCertificateBuilder().serial_number(one.serial).revocation_date(now()).build()
            for one in found
            if one.serial not in known
        ]
        self._write_revoked([*old, *new])
        return found

    def issued(self) -> list[tuple[CertificateInfo, bool]]:
        """Return every issued certificate, with True if it is revoked."""
        revoked = {entry.serial_number for entry in self._revocations()}
        every = [certificate_info(certificate, "an issued certificate") for certificate in self._all_issued()]
        return [(one, one.serial in revoked) for one in sorted(every, key=lambda one: one.begins)]

    def _refuse_taken(self, names: frozenset[Identity], key: ec.EllipticCurvePublicKey) -> None:
        revoked = {entry.serial_number for entry in self._revocations()}
        for certificate in self._all_issued():
            info = certificate_info(certificate, "an issued certificate")
            taken = info.identities & names
            if taken and info.serial not in revoked and info.ends > now() and certificate.public_key() != key:
                one = min(taken)
                raise IdentityError(
                    f"{one} already has a certificate with another key, valid until {info.ends:%Y-%m-%d}: "
                    f"if its key is lost, revoke it first (`async-hfl certs revoke CA {one.role}/{one.name}`)"
                )

    def _certify(
        self,
        names: frozenset[Identity],
        key: ec.EllipticCurvePublicKey,
        out: Path,
        days: int,
        where: str,
        also: Sequence[Authority],
    ) -> CertificateInfo:
        if days < 1:
            raise IdentityError(f"--days {days}: a certificate must be valid for at least a day")
        for other in also:
            if other.federation != self.federation:
                raise IdentityError(
                    f"--also {other._folder}: the authority of another federation, {other.federation!r}"
                )
        begins = now()
        ends = min(begins + timedelta(days=days), self._certificate.not_valid_after_utc)
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH]
        if next(iter(names)).role in _SERVERS:
            usages.append(ExtendedKeyUsageOID.SERVER_AUTH)
        usage = x509.KeyUsage(True, False, False, False, False, False, False, False, False)
        authority_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        certificate = (
            x509.CertificateBuilder()
            .subject_name(_subject(self.federation, listed(names)))
            .issuer_name(self._certificate.subject)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(begins - _SKEW)
            .not_valid_after(ends)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(_names(names), critical=False)
            .add_extension(authority_key, critical=False)
            .sign(self._key, hashes.SHA256())
        )
        info = certificate_info(certificate, where)
        files.write(self._folder / _ISSUED / f"{info.serial:x}.pem", files.pem(certificate))
        files.write(out / files.CERTIFICATE, files.pem(certificate), replace=True)
        trusted = [self, *also]
        for name in (files.CA_CERTIFICATE, files.REVOKED):
            joined = b"".join(files.read(one._folder / name, "a file of the authority") for one in trusted)
            files.write(out / name, joined, replace=True)
        return info

    def _all_issued(self) -> list[x509.Certificate]:
        return [files.read_certificate(path) for path in sorted((self._folder / _ISSUED).glob("*.pem"))]

    def _revocations(self) -> list[x509.RevokedCertificate]:
        return read_revoked(self._folder / files.REVOKED, [self._certificate])

    def _write_revoked(self, entries: list[x509.RevokedCertificate]) -> None:
        begins = now()
        builder = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(self._certificate.subject)
            .last_update(begins)
            .next_update(begins + _LIST_LASTS)
        )
        for entry in entries:
            builder = builder.add_revoked_certificate(entry)
        files.write(self._folder / files.REVOKED, files.pem(builder.sign(self._key, hashes.SHA256())), replace=True)


def federation_of(certificate: x509.Certificate, where: str) -> str:
    named = certificate.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
    if len(named) != 1:
        raise IdentityError(f"{where}: not the certificate of an async-hfl authority")
    return federation_name(str(named[0].value))


def read_authorities(path: Path) -> list[x509.Certificate]:
    """Return the authorities that a node trusts: one, or several of the same federation."""
    found = files.read_certificates(path)
    if len({federation_of(certificate, str(path)) for certificate in found}) != 1:
        raise IdentityError(f"{path}: its authorities belong to several federations")
    return found


def read_revoked(path: Path, authorities: Sequence[x509.Certificate]) -> list[x509.RevokedCertificate]:
    """Return the revoked certificates. Raises IdentityError for a list that none of the authorities has signed."""
    keys = [authority.public_key() for authority in authorities]
    entries: list[x509.RevokedCertificate] = []
    for found in files.read_revocations(path):
        if not any(isinstance(key, ec.EllipticCurvePublicKey) and found.is_signature_valid(key) for key in keys):
            raise IdentityError(
                f"{path}: not signed by this federation's authority; copy `revoked.pem` from its folder again"
            )
        entries += found
    return entries


def check_issued(certificate: x509.Certificate, authorities: Sequence[x509.Certificate], where: str) -> None:
    for authority in authorities:
        try:
            certificate.verify_directly_issued_by(authority)
        except (ValueError, TypeError, InvalidSignature):
            continue
        return
    raise IdentityError(f"{where}: not issued by the authority of {files.CA_CERTIFICATE} in the same folder")


def certificates_at(path: Path) -> list[tuple[CertificateInfo, bool]]:
    """Return the certificates of an authority, of a node's folder or of a file, with True for each revoked one."""
    if is_authority(path):
        return Authority(path).issued()
    if not path.exists():
        raise IdentityError(f"{path}: no such file or folder")
    file = path / files.CERTIFICATE if path.is_dir() else path
    info = certificate_info(files.read_certificate(file), str(file))
    authority, revoked = file.with_name(files.CA_CERTIFICATE), file.with_name(files.REVOKED)
    if not authority.exists() or not revoked.exists():
        return [(info, False)]
    entries = read_revoked(revoked, read_authorities(authority))
    return [(info, info.serial in {entry.serial_number for entry in entries})]


def _subject(federation: str, name: str) -> x509.Name:
    named = {NameOID.ORGANIZATION_NAME: federation, NameOID.COMMON_NAME: name[:64]}
    return x509.Name([x509.NameAttribute(kind, text) for kind, text in named.items()])


def _names(names: frozenset[Identity]) -> x509.SubjectAlternativeName:
    some = next(iter(names))
    every: list[x509.GeneralName] = [x509.UniformResourceIdentifier(str(one)) for one in sorted(names)]
    if some.role in _SERVERS:
        every.append(x509.DNSName(server_host(some.federation, some.role)))
    return x509.SubjectAlternativeName(every)
