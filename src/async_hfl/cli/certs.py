"""Certificates of a federation: make an authority, request, issue, revoke, look."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from async_hfl.cli.common import Commands, finish, print_json

if TYPE_CHECKING:
    from async_hfl.deployment.identity.certificate_info import Contents


def add_commands(commands: Commands) -> None:
    certs = commands.add_parser("certs", help="certificates of a deployment: init, request, issue, revoke, show")
    of_certs = certs.add_subparsers(metavar="WHAT", required=True)
    init = of_certs.add_parser("init", help="make a certificate authority (keep its folder offline)")
    init.add_argument("folder", type=Path, metavar="CA")
    init.add_argument("--federation", required=True, metavar="NAME", help="small letters, digits, hyphens")
    init.add_argument("--days", type=int, default=3650, help="how long the authority is good (default: 3650)")
    finish(init, _init)
    request = of_certs.add_parser(
        "request", help="on the node: make a key, which stays, and a request for a certificate"
    )
    request.add_argument("folder", type=Path, metavar="FOLDER", help="the node's own; takes key.pem and request.pem")
    request.add_argument("--federation", required=True, metavar="NAME")
    _add_names(request, required=True)
    finish(request, _request)
    issue = of_certs.add_parser("issue", help="at the authority: certify a request")
    issue.add_argument("folder", type=Path, metavar="CA")
    issue.add_argument("request", type=Path, nargs="?", metavar="request.pem")
    issue.add_argument("--out", type=Path, metavar="FOLDER", help="takes the certificate (default: beside the request)")
    issue.add_argument("--days", type=int, default=365, help="how long it is good (default: 365)")
    issue.add_argument(
        "--bundle", type=Path, metavar="FOLDER", help="for a lab: make the key here, too; it then travels"
    )
    _add_names(issue, required=False)
    issue.epilog = "A request for more than a device is granted only if --role says so."
    finish(issue, _issue)
    revoke = of_certs.add_parser("revoke", help="at the authority: a certificate is no longer good")
    revoke.add_argument("folder", type=Path, metavar="CA")
    revoke.add_argument("which", nargs="+", metavar="ROLE/NAME|SERIAL")
    finish(revoke, _revoke)
    show = of_certs.add_parser("show", help="names, serial numbers and last days")
    show.add_argument(
        "paths", type=Path, nargs="+", metavar="PATH", help="a node's folder, an authority's, or a PEM file"
    )
    finish(show, _show)


def _add_names(parser: argparse.ArgumentParser, *, required: bool) -> None:
    parser.add_argument("--role", required=required, metavar="ROLE", help="cloud, gateway, device or operator")
    parser.add_argument(
        "--name", required=required, action="append", default=[], metavar="NAME", help="again for each device of a host"
    )


def _init(options: argparse.Namespace) -> int:
    from async_hfl.deployment.identity.authority import Authority

    authority = Authority.create(options.folder, options.federation, options.days)
    if options.json:
        print_json({"federation": authority.federation, "folder": str(options.folder)})
    else:
        print(f"{options.folder}: the authority of federation {authority.federation}.")
        print("Whoever has its ca.key can be anybody: keep this folder off the network.")
    return 0


def _request(options: argparse.Namespace) -> int:
    from async_hfl.deployment.identity.authority import request
    from async_hfl.deployment.identity.files import REQUEST

    wanted = request(options.folder, options.federation, options.role, options.name)
    path = options.folder / REQUEST
    if options.json:
        print_json({"request": str(path), "names": sorted(map(str, wanted))})
    else:
        print(f"{path}: take this file to the authority; key.pem stays here.")
        print(f"There: async-hfl certs issue CA {path.name} ; then bring certificate.pem, ca.pem and revoked.pem back.")
    return 0


def _issue(options: argparse.Namespace) -> int:
    from async_hfl.core.errors import IdentityError
    from async_hfl.deployment.identity.authority import Authority

    authority = Authority(options.folder)
    if (options.request is None) == (options.bundle is None):
        raise IdentityError("certs issue: name either a request.pem, or --bundle FOLDER with --role and --name")
    if options.bundle is not None:
        if not options.role or not options.name:
            raise IdentityError("certs issue --bundle: say --role and --name, too")
        out = options.bundle
        said = authority.bundle(options.role, options.name, out, options.days)
    else:
        if options.name:
            raise IdentityError("certs issue: the names are the request's own; leave out --name")
        out = options.out or options.request.parent
        said = authority.issue(options.request, out, options.days, options.role or "device")
    if options.json:
        print_json({**_row(said), "folder": str(out)})
    else:
        print(f"{out}: certificate.pem, ca.pem and revoked.pem")
        _print(said)
    return 0


def _revoke(options: argparse.Namespace) -> int:
    from async_hfl.deployment.identity.authority import Authority

    authority = Authority(options.folder)
    gone = [said for which in options.which for said in authority.revoke(which)]
    if options.json:
        print_json([_row(said, revoked=True) for said in gone])
    else:
        for said in gone:
            _print(said, revoked=True)
        print(
            f"Copy {options.folder / 'revoked.pem'} into the folder of every cloud and gateway: they read it at once."
        )
    return 0


def _show(options: argparse.Namespace) -> int:
    from async_hfl.deployment.identity.certificate_listing import found_at

    rows = [(path, said, revoked) for path in options.paths for said, revoked in found_at(path)]
    if options.json:
        print_json([{"path": str(path), **_row(said, revoked=revoked)} for path, said, revoked in rows])
        return 0
    for path, said, revoked in rows:
        print(f"{path}:")
        _print(said, revoked=revoked)
    if not rows:
        print("no certificate was issued here yet")
    return 0


def _row(said: Contents, *, revoked: bool = False) -> dict[str, Any]:
    from async_hfl.deployment.identity.certificate_info import now

    return {
        "names": sorted(map(str, said.identities)),
        "serial": f"{said.serial:x}",
        "ends": said.ends.isoformat(),
        "days_left": said.days_left(now()),
        "fingerprint": said.fingerprint,
        "revoked": revoked,
    }


def _print(said: Contents, *, revoked: bool = False) -> None:
    from async_hfl.deployment.identity.certificate_info import WARN_AHEAD, now

    left = said.days_left(now())
    word = f"good until {said.ends:%Y-%m-%d}, {left} days" if left >= 0 else f"EXPIRED on {said.ends:%Y-%m-%d}"
    if 0 <= left < WARN_AHEAD.days:
        word += ": RENEW IT SOON"
    for one in sorted(said.identities):
        print(f"  {one}")
    print(f"  {'REVOKED; ' if revoked else ''}{word}; serial {said.serial:x}")
    print(f"  SHA-256 {said.fingerprint}")
