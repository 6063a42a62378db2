"""Certificates of a federation: create an authority, then request, issue, revoke and show certificates."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from async_hfl.cli.common import Commands, add_command, add_group, answer

if TYPE_CHECKING:  # imported when a command runs, so that `async-hfl --help` starts fast
    from async_hfl.deployment.identity.certificate_info import CertificateInfo


def add_commands(commands: Commands) -> None:
    certs = add_group(commands, "certs", "certificates of a deployment: init, request, issue, revoke, show")
    init = add_command(certs, "init", _init, "create a certificate authority (keep its folder offline)")
    _add_authority(init)
    init.add_argument("--federation", required=True, metavar="NAME", help="lower-case letters, digits, hyphens")
    init.add_argument("--days", type=int, default=3650, help="validity of the authority in days")
    request = add_command(
        certs, "request", _request, "on the node: make a key, which stays there, and a request for a certificate"
    )
    request.add_argument("folder", type=Path, metavar="FOLDER", help="the node's folder, for key.pem and request.pem")
    request.add_argument("--federation", required=True, metavar="NAME", help="the name of the federation")
    _add_names(request, required=True)
    issue = add_command(certs, "issue", _issue, "at the authority: issue the requested certificate")
    _add_authority(issue)
    issue.add_argument("request", type=Path, nargs="?", metavar="request.pem", help="the request of a node")
    issue.add_argument("--out", type=Path, metavar="FOLDER", help="its folder (default: that of the request)")
    issue.add_argument("--days", type=int, default=365, help="validity of the certificate in days")
    issue.add_argument(
        "--bundle", type=Path, metavar="FOLDER", help="for a lab: also make the key here, to be copied to the node"
    )
    also = "another authority that the node is to trust as well, while CA replaces it; repeatable"
    issue.add_argument("--also", type=Path, action="append", default=[], metavar="CA", help=also)
    _add_names(issue, required=False)
    issue.epilog = "Without --role, only requests of devices are granted."
    revoke = add_command(certs, "revoke", _revoke, "at the authority: revoke certificates")
    _add_authority(revoke)
    revoke.add_argument("which", nargs="+", metavar="ROLE/NAME|SERIAL", help="the certificates to revoke")
    show = add_command(certs, "show", _show, "show names, serial numbers and expiry dates")
    show.add_argument(
        "paths", type=Path, nargs="+", metavar="PATH", help="a node's folder, an authority's, or a PEM file"
    )


def _add_authority(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, metavar="CA", help="the folder of the authority")


def _add_names(parser: argparse.ArgumentParser, *, required: bool) -> None:
    parser.add_argument("--role", required=required, metavar="ROLE", help="cloud, gateway, device or operator")
    text = "the name of the node; repeatable, for devices on one host"
    parser.add_argument("--name", required=required, action="append", default=[], metavar="NAME", help=text)


def _init(options: argparse.Namespace) -> int:
    from async_hfl.deployment.identity.authority import Authority

    authority = Authority.create(options.folder, options.federation, options.days)
    lines = [
        f"{options.folder}: the authority of federation {authority.federation}.",
        "Its ca.key can impersonate every node: keep this folder offline.",
    ]
    return answer(options, {"federation": authority.federation, "folder": str(options.folder)}, lines)


def _request(options: argparse.Namespace) -> int:
    from async_hfl.deployment.identity.authority import request
    from async_hfl.deployment.identity.files import REQUEST

    wanted = request(options.folder, options.federation, options.role, options.name)
    path = options.folder / REQUEST
    lines = [
        f"{path}: take this file to the authority; key.pem stays here.",
        f"There: async-hfl certs issue CA {path.name} ; then bring certificate.pem, ca.pem and revoked.pem back.",
    ]
    return answer(options, {"request": str(path), "names": sorted(map(str, wanted))}, lines)


def _issue(options: argparse.Namespace) -> int:
    from async_hfl.core.errors import IdentityError
    from async_hfl.deployment.identity.authority import Authority

    authority = Authority(options.folder)
    if (options.request is None) == (options.bundle is None):
        raise IdentityError("certs issue: give either a request.pem, or --bundle FOLDER with --role and --name")
    if options.bundle is not None:
        if not options.role or not options.name:
            raise IdentityError("certs issue --bundle: give --role and --name as well")
        out = options.bundle
        certificate = authority.bundle(options.role, options.name, out, options.days, options.also)
    else:
        if options.name:
            raise IdentityError("certs issue: the names are in the request; leave out --name")
        out = options.out or options.request.parent
        certificate = authority.issue(options.request, out, options.days, options.role or "device", options.also)
    lines = [f"{out}: certificate.pem, ca.pem and revoked.pem", *_lines(certificate)]
    return answer(options, {**_row(certificate), "folder": str(out)}, lines)


def _revoke(options: argparse.Namespace) -> int:
    from async_hfl.deployment.identity.authority import Authority

    authority = Authority(options.folder)
    revoked = [certificate for which in options.which for certificate in authority.revoke(which)]
    lines = [line for certificate in revoked for line in _lines(certificate, revoked=True)]
    lines.append(
        f"Copy {options.folder / 'revoked.pem'} into the folder of every cloud and gateway: they reload it at once."
    )
    return answer(options, [_row(certificate, revoked=True) for certificate in revoked], lines)


def _show(options: argparse.Namespace) -> int:
    from async_hfl.deployment.identity.authority import certificates_at

    found = [(path, one, revoked) for path in options.paths for one, revoked in certificates_at(path)]
    lines = [line for path, one, revoked in found for line in (f"{path}:", *_lines(one, revoked=revoked))]
    rows = [{"path": str(path), **_row(one, revoked=revoked)} for path, one, revoked in found]
    return answer(options, rows, lines or ["no certificate has been issued here yet"])


def _row(certificate: CertificateInfo, *, revoked: bool = False) -> dict[str, Any]:
    from async_hfl.deployment.identity.certificate_info import now

    return {
        "names": sorted(map(str, certificate.identities)),
        "serial": f"{certificate.serial:x}",
        "ends": certificate.ends.isoformat(),
        "days_left": certificate.days_left(now()),
        "fingerprint": certificate.fingerprint,
        "revoked": revoked,
    }


def _lines(certificate: CertificateInfo, *, revoked: bool = False) -> list[str]:
    from async_hfl.deployment.identity.certificate_info import WARN_AHEAD, now

    left = certificate.days_left(now())
    last = f"{certificate.ends:%Y-%m-%d}"
    validity = f"valid until {last}, {left} days left" if left >= 0 else f"EXPIRED on {last}"
    if 0 <= left < WARN_AHEAD.days:
        validity += ": RENEW IT SOON"
    return [
        *(f"  {one}" for one in sorted(certificate.identities)),
        f"  {'REVOKED; ' if revoked else ''}{validity}; serial {certificate.serial:x}",
        f"  SHA-256 {certificate.fingerprint}",
    ]
