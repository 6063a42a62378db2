"""Files of keys and certificates. A key is readable only by its owner, and files are replaced atomically."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from async_hfl.core.errors import IdentityError

KEY, CERTIFICATE, REQUEST = "key.pem", "certificate.pem", "request.pem"
CA_CERTIFICATE, REVOKED = "ca.pem", "revoked.pem"
_MOST_BYTES = 16 * 2**20
_BEGIN = b"-----BEGIN "
Key = ec.EllipticCurvePrivateKey
T = TypeVar("T")


def new_key() -> Key:
    return ec.generate_private_key(ec.SECP256R1())


def write(path: Path, data: bytes, *, secret: bool = False, replace: bool = False) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and not replace:
        raise IdentityError(f"{path} already exists; move it away first, it may be in use")
    temporary = path.with_name(path.name + ".new")
    temporary.unlink(missing_ok=True)
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if secret else 0o644)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def read(path: Path, what: str) -> bytes:
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise IdentityError(f"{path}: too large for {what}")
        return path.read_bytes()
    except FileNotFoundError:
        raise IdentityError(f"{path}: no such file; expected {what}") from None
    except OSError as error:
        raise IdentityError(f"{path}: cannot read {what}: {error.strerror}") from error


def write_key(path: Path, key: Key) -> None:
    data = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    write(path, data, secret=True)


def read_key(path: Path) -> Key:
    try:
        key = serialization.load_pem_private_key(read(path, "a private key"), None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise IdentityError(f"{path}: not a private key in PEM form without a password") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP256R1):
        raise IdentityError(f"{path}: not an ECDSA P-256 key; `async-hfl certs request` makes one")
    return key


def pem(thing: x509.Certificate | x509.CertificateSigningRequest | x509.CertificateRevocationList) -> bytes:
    return thing.public_bytes(serialization.Encoding.PEM)


def read_certificate(path: Path) -> x509.Certificate:
    return _read_pem(path, "a certificate", x509.load_pem_x509_certificate)


def read_request(path: Path) -> x509.CertificateSigningRequest:
    return _read_pem(path, "a certificate request", x509.load_pem_x509_csr)


def read_certificates(path: Path) -> list[x509.Certificate]:
    return _read_pem(path, "certificates", x509.load_pem_x509_certificates)


def read_revocations(path: Path) -> list[x509.CertificateRevocationList]:
    """Return the revocation lists in a file: one for each authority."""
    return _read_pem(path, "a revocation list", lambda data: [x509.load_pem_x509_crl(part) for part in _blocks(data)])


def _blocks(data: bytes) -> list[bytes]:
    """Split a file into its PEM blocks."""
    parts = [_BEGIN + part for part in data.split(_BEGIN)[1:]]
    if not parts:
        raise ValueError("no PEM block")
    return parts


def _read_pem(path: Path, what: str, parse: Callable[[bytes], T]) -> T:
    try:
        return parse(read(path, what))
    except ValueError as error:
        raise IdentityError(f"{path}: not {what} in PEM form") from error
