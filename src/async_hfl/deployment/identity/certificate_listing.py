"""Lists the certificates at a path: the folder of a node or of an authority, or a file."""

from __future__ import annotations

from pathlib import Path

from cryptography import x509

from async_hfl.core.errors import IdentityError
from async_hfl.deployment.identity import files
from async_hfl.deployment.identity.authority import Authority, is_authority, read_revoked
from async_hfl.deployment.identity.certificate_info import Contents, contents


def found_at(path: Path) -> list[tuple[Contents, bool]]:
    """Return each certificate, and True if it is known to be revoked."""
    if is_authority(path):
        return Authority(path).issued()
    if not path.exists():
        raise IdentityError(f"{path}: no such file or folder")
    file = path / files.CERTIFICATE if path.is_dir() else path
    said = contents(files.read_certificate(file), str(file))
    return [(said, said.serial in _revoked_beside(file.parent))]


def _revoked_beside(folder: Path) -> frozenset[int]:
    authority: x509.Certificate
    if not (folder / files.REVOKED).exists() or not (folder / files.CA_CERTIFICATE).exists():
        return frozenset()
    authority = files.read_certificate(folder / files.CA_CERTIFICATE)
    return frozenset(entry.serial_number for entry in read_revoked(folder / files.REVOKED, authority))
