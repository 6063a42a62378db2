"""The command `async-hfl certs`."""

from __future__ import annotations

from pathlib import Path

from command_line import Call, Outcome


def authority(call: Call) -> Outcome:
    return call("certs", "init", "ca", "--federation", "lab", "--json")


def test_request_issue_show_revoke(call: Call, tmp_path: Path) -> None:
    assert authority(call).json == {"federation": "lab", "folder": "ca"}
    asked = call("certs", "request", "node", "--federation", "lab", "--role", "device", "--name", "d1", "--name", "d2")
    assert asked.code == 0
    assert "key.pem stays here" in asked.out
    key = (tmp_path / "node" / "key.pem").read_bytes()
    issued = call("certs", "issue", "ca", "node/request.pem", "--days", "20")
    assert issued.code == 0
    assert "RENEW IT SOON" in issued.out
    assert (tmp_path / "node" / "key.pem").read_bytes() == key
    (shown,) = call("certs", "show", "node", "--json").json
    assert shown["names"] == ["async-hfl://lab/device/d1", "async-hfl://lab/device/d2"]
    assert (shown["days_left"], shown["revoked"]) == (19, False)
    gone = call("certs", "revoke", "ca", "device/d2")
    assert gone.code == 0
    assert "revoked.pem into the folder of every cloud and gateway" in gone.out
    (shown,) = call("certs", "show", "ca", "--json").json
    assert shown["revoked"]
    assert "REVOKED" in call("certs", "show", "ca").out


def test_a_bundle_for_a_lab(call: Call, tmp_path: Path) -> None:
    authority(call)
    made = call("certs", "issue", "ca", "--bundle", "g", "--role", "gateway", "--name", "g1", "--json")
    assert made.json["names"] == ["async-hfl://lab/gateway/g1"]
    assert {path.name for path in (tmp_path / "g").iterdir()} >= {"key.pem", "certificate.pem", "ca.pem", "revoked.pem"}


def test_mistakes_are_reported(call: Call) -> None:
    assert "no certificate authority" in call("certs", "issue", "nowhere", "request.pem").told()
    authority(call)
    assert "already" in call("certs", "init", "ca", "--federation", "lab").told()
    assert "lower-case letters" in call("certs", "init", "other", "--federation", "My Lab").told()
    assert "role 'king'" in call("certs", "request", "n", "--federation", "lab", "--role", "king", "--name", "x").told()
    assert "no such file" in call("certs", "issue", "ca", "missing.pem").told()
    assert "either a request.pem, or --bundle" in call("certs", "issue", "ca").told()
    call("certs", "request", "o", "--federation", "lab", "--role", "operator", "--name", "anna")
    assert "add --role operator" in call("certs", "issue", "ca", "o/request.pem").told()
    assert call("certs", "issue", "ca", "o/request.pem", "--role", "operator").code == 0
    assert "no certificate of that serial number" in call("certs", "revoke", "ca", "device/d9").told()
    assert "not a certificate" in call("certs", "show", "o/key.pem").told()
    assert "no such file" in call("certs", "show", "gone").told()
