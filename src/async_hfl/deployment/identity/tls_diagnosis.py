"""Diagnosis of failed TLS connections, for operators.

gRPC reports little more than that a handshake failed. So a plain TLS connection is made to examine the certificate of
the server. Nothing is sent over it.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Sequence

from cryptography import x509

from async_hfl.core.errors import IdentityError
from async_hfl.deployment.identity.authority import check_issued
from async_hfl.deployment.identity.certificate_info import certificate_info, now
from async_hfl.deployment.identity.names import listed
from async_hfl.deployment.transport.admission import Role

_TIMEOUT_S = 2.0


def explain(target: str, role: Role, federation: str, authorities: Sequence[x509.Certificate]) -> str:
    """Return the reason for a failed connection; empty if none is found. Blocks, so call it on a thread."""
    host, _, port = target.rpartition(":")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    try:
        with socket.create_connection((host.strip("[]"), int(port)), _TIMEOUT_S) as plain:
            secure = context.wrap_socket(plain, server_hostname=host.strip("[]"))
            try:
                shown = secure.getpeercert(binary_form=True) or b""
            finally:
                with contextlib.suppress(OSError):
                    secure.close()
    except ssl.SSLError:
        return f"{target} does not speak TLS: does it run with --insecure?"
    except ValueError:
        return f"{target}: not of the form HOST:PORT"
    except OSError:
        return ""
    try:
        certificate = x509.load_der_x509_certificate(shown)
        info = certificate_info(certificate, "its certificate")
        info.check_time(now(), "its certificate")
    except (ValueError, IdentityError) as error:
        return str(error)
    try:
        check_issued(certificate, authorities, "its certificate")
    except IdentityError:
        return f"its certificate ({listed(info.identities)}) was not issued by the authority of this node's ca.pem"
    one = next(iter(info.identities))
    if (one.federation, one.role) != (federation, role):
        names = ", ".join(sorted(map(str, info.identities)))
        return f"expected a {role} of {federation}, but its certificate has the names {names}"
    return "its certificate is valid: the server refuses this node's (see its log), or another program answers there"
