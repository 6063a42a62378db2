"""Certificates on real connections: which nodes are admitted, and what the others are told."""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
import stat
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from two_nodes import HANG_GUARD_S, QUICK, Numbers, dialling, same, serving, until, update

from async_hfl.core.errors import IdentityError, SettingsError
from async_hfl.core.identifiers import device_address, gateway_address
from async_hfl.deployment.identity import authority as authority_module
from async_hfl.deployment.identity import credentials as credentials_module
from async_hfl.deployment.identity import files
from async_hfl.deployment.identity.authority import Authority, request
from async_hfl.deployment.identity.certificate_info import now
from async_hfl.deployment.identity.credentials import Certified, Insecure
from async_hfl.deployment.transport.admission import Joining, Refusal
from async_hfl.deployment.transport.link import LinkError, enlist, operate

DEVICE = device_address(0)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority.create(tmp_path / "ca", "lab")


def certified(authority: Authority, folder: Path, role: str, *names: str) -> Certified:
    authority.bundle(role, list(names), folder)
    return Certified(folder)


def test_a_certified_device_joins_and_sends(tmp_path: Path, authority: Authority) -> None:
    gateway = certified(authority, tmp_path / "g", "gateway", "g0")
    host = certified(authority, tmp_path / "h", "device", "d0", "d1")

    async def story() -> None:
        async with (
            serving(tmp_path / "s", Numbers(), credentials=gateway) as (server, _, port),
            dialling(tmp_path / "d0", port, "d0", credentials=host) as first,
            dialling(tmp_path / "d1", port, "d1", credentials=host) as second,
        ):
            await until(lambda: bool(first.inbox.joined and second.inbox.joined))
            for number, side in enumerate((first, second)):
                side.transport.send(gateway_address(0), update(number, 50_000, number))
            await until(lambda: len(server.inbox.arrived_) == 2)
            arrived = sorted(server.inbox.contents(), key=lambda content: content.number)
            assert all(same(content, update(number, 50_000, number)) for number, content in enumerate(arrived))

    asyncio.run(story())


def test_a_name_that_the_certificate_lacks_is_refused_with_the_names_it_has(
    tmp_path: Path, authority: Authority
) -> None:
    gateway = certified(authority, tmp_path / "g", "gateway", "g0")
    host = certified(authority, tmp_path / "h", "device", "d0", "d1")

    async def story() -> None:
        numbers = Numbers()
        async with (
            serving(tmp_path / "s", numbers, credentials=gateway) as (server, _, port),
            dialling(tmp_path / "d7", port, "d7", credentials=host) as device,
        ):
            await until(lambda: bool(device.refusals))
            assert device.refusals[0].kind == "refused"
            assert "device/d7" in device.refusals[0].reason
            assert "device/d0, device/d1" in device.refusals[0].reason
            assert not numbers.joinings
            assert not server.inbox.joined

    asyncio.run(story())
    with pytest.raises(IdentityError, match=r"device/d7 is not among the names .*device/d0, device/d1"):
        host.check_own_name("device", "d7")
    host.check_own_name("device", "d1")


def test_another_federation_and_no_certificate_are_refused(tmp_path: Path, authority: Authority) -> None:
    gateway = certified(authority, tmp_path / "g", "gateway", "g0")
    stranger = certified(Authority.create(tmp_path / "ca2", "lab"), tmp_path / "x", "device", "d0")

    async def story() -> None:
        numbers = Numbers()
        async with serving(tmp_path / "s", numbers, credentials=gateway) as (_, _, port):
            for credentials in (stranger, Insecure()):
                with pytest.raises(LinkError):
                    await enlist(f"127.0.0.1:{port}", "gateway", credentials, Joining("device", "d0", 1))
            assert not numbers.joinings
            why = await asyncio.to_thread(stranger.explain, f"127.0.0.1:{port}", "gateway")
            assert "was not issued by the authority" in why

    asyncio.run(story())


def test_a_device_cannot_pose_as_a_gateway(tmp_path: Path, authority: Authority) -> None:
    """Neither as a server to devices, nor as a caller at the cloud."""
    device = certified(authority, tmp_path / "d", "device", "d0")
    cloud = certified(authority, tmp_path / "c", "cloud", "main")
    gateway = certified(authority, tmp_path / "g", "gateway", "g0")

    async def story() -> None:
        numbers = Numbers()
        async with serving(tmp_path / "s", numbers, credentials=device) as (_, _, port):
            target = f"127.0.0.1:{port}"
            with pytest.raises(LinkError):
                await enlist(target, "gateway", device, Joining("device", "d0", 1))
            why = await asyncio.to_thread(device.explain, target, "gateway")
            assert "expected a gateway of lab, but its certificate has the names async-hfl://lab/device/d0" in why
        only_gateways = frozenset({"gateway"})
        async with serving(tmp_path / "s", numbers, credentials=cloud, serves=only_gateways) as (_, _, port):
            target = f"127.0.0.1:{port}"
            with pytest.raises(LinkError, match="device/d0 may not call Enlist"):
                await enlist(target, "cloud", device, Joining("device", "d0", 1))
            with pytest.raises(LinkError, match="may not call Operate"):
                await operate(target, "cloud", gateway, "drain")
            lie = await enlist(target, "cloud", gateway, Joining("gateway", "g1", 1))
            assert isinstance(lie, Refusal)
            assert "gateway/g0" in lie.reason
        assert not numbers.joinings

    asyncio.run(story())


def test_a_device_may_make_a_few_calls_at_once_and_others_are_served(tmp_path: Path, authority: Authority) -> None:
    gateway = certified(authority, tmp_path / "g", "gateway", "g0")
    device, other = (certified(authority, tmp_path / name, "device", name) for name in ("d0", "d1"))

    async def story() -> None:
        numbers = Numbers()
        async with serving(tmp_path / "s", numbers, credentials=gateway) as (_, _, port):
            target = f"127.0.0.1:{port}"
            asked = [enlist(target, "gateway", device, Joining("device", "d0", number)) for number in range(100)]
            answers = await asyncio.gather(*asked, return_exceptions=True)
            refused = [answer for answer in answers if isinstance(answer, LinkError)]
            assert any("too many calls; it may make one in" in str(answer) for answer in refused)
            assert 0 < len(numbers.joinings) <= 100 - len(refused), "what is refused does not reach the cloud"
            answer = await enlist(target, "gateway", other, Joining("device", "d1", 1))
            assert not isinstance(answer, Refusal)

    asyncio.run(story())


def test_only_the_gateway_itself_may_join_for_its_devices(tmp_path: Path, authority: Authority) -> None:
    cloud = certified(authority, tmp_path / "c", "cloud", "main")
    first = certified(authority, tmp_path / "g0", "gateway", "g0")
    second = certified(authority, tmp_path / "g1", "gateway", "g1")

    async def story() -> None:
        numbers = Numbers()
        async with serving(tmp_path / "s", numbers, credentials=cloud) as (_, _, port):
            target = f"127.0.0.1:{port}"

            async def ask(credentials: Certified, joining: Joining) -> object:
                return await enlist(target, "cloud", credentials, joining)

            for_a_device = Joining("device", "d0", 1, via=gateway_address(0))
            early = await ask(first, for_a_device)
            assert isinstance(early, Refusal)
            assert early.kind == "not_yet"
            await ask(first, Joining("gateway", "g0", 1))
            await ask(second, Joining("gateway", "g1", 1))
            assert isinstance(await ask(second, for_a_device), Refusal)
            assert not isinstance(await ask(first, for_a_device), Refusal)
            assert [joining.name for joining in numbers.joinings] == ["g0", "g1", "d0"]

    asyncio.run(story())


def test_an_operator_asks(tmp_path: Path, authority: Authority) -> None:
    cloud = certified(authority, tmp_path / "c", "cloud", "main")
    operator = certified(authority, tmp_path / "o", "operator", "anna")

    async def echo(kind: str, payload: bytes) -> bytes:
        return kind.encode() + payload * 100_000

    async def story() -> None:
        async with serving(tmp_path / "s", Numbers(), credentials=cloud, operate=echo) as (_, _, port):
            answer = await operate(f"127.0.0.1:{port}", "cloud", operator, "collect", b"abcdefgh")
            assert answer == b"collect" + b"abcdefgh" * 100_000

    asyncio.run(story())


def test_a_revoked_certificate_is_disconnected_and_refused(tmp_path: Path, authority: Authority) -> None:
    gateway = certified(authority, tmp_path / "g", "gateway", "g0")
    device = certified(authority, tmp_path / "h", "device", "d0")

    async def story() -> None:
        numbers = Numbers()
        async with (
            serving(tmp_path / "s", numbers, credentials=gateway) as (server, _, port),
            dialling(tmp_path / "d", port, credentials=device) as dialled,
        ):
            await until(lambda: bool(server.inbox.joined))
            authority.revoke("device/d0")
            (tmp_path / "g" / "revoked.pem").write_bytes((tmp_path / "ca" / "revoked.pem").read_bytes())
            await until(lambda: bool(server.inbox.lost and dialled.inbox.lost))
            assert "revoked" in server.inbox.lost[0][1]
            with pytest.raises(LinkError, match="was revoked"):
                await enlist(f"127.0.0.1:{port}", "gateway", device, Joining("device", "d0", 1))
            assert len(server.inbox.joined) == 1

    asyncio.run(story())


def test_a_certificate_that_expires_ends_the_session_and_no_other(
    tmp_path: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway = certified(authority, tmp_path / "g", "gateway", "g0")
    device, other = tmp_path / "h", certified(authority, tmp_path / "o", "device", "d1")
    with monkeypatch.context() as yesterday:
        yesterday.setattr(authority_module, "now", lambda: now() - timedelta(hours=23))
        authority.bundle("device", ["d0"], device, days=1)

    async def story() -> None:
        async with (
            serving(tmp_path / "s", Numbers(), credentials=gateway) as (server, _, port),
            dialling(tmp_path / "d0", port, credentials=Certified(device)) as first,
            dialling(tmp_path / "d1", port, "d1", credentials=other) as second,
        ):
            await until(lambda: len(server.inbox.joined) == 2)
            assert not server.inbox.lost
            monkeypatch.setattr(credentials_module, "now", lambda: now() + timedelta(hours=2))
            await until(lambda: bool(server.inbox.lost and first.inbox.lost))
            assert "the certificate of device/d0 expired" in server.inbox.lost[0][1]
            with pytest.raises(IdentityError, match="expired on"):
                await enlist(f"127.0.0.1:{port}", "gateway", Certified(device), Joining("device", "d0", 1))
            second.transport.send(gateway_address(0), update(1, 100))
            await until(lambda: len(server.inbox.arrived_) == 1)
            assert len(server.inbox.lost) == 1

    asyncio.run(story())


def test_a_renewed_certificate_needs_no_restart(tmp_path: Path, authority: Authority) -> None:
    gateway = certified(authority, tmp_path / "g", "gateway", "g0")
    device = certified(authority, tmp_path / "h", "device", "d0")

    def shown(port: int) -> str:
        return ssl.get_server_certificate(("127.0.0.1", port))

    async def story() -> None:
        async with serving(tmp_path / "s", Numbers(), credentials=gateway) as (_, _, port):
            first = await asyncio.to_thread(shown, port)
            authority.issue(tmp_path / "g" / "request.pem", tmp_path / "g", role="gateway")
            second = await asyncio.to_thread(shown, port)
            assert first != second
            (tmp_path / "g" / "certificate.pem").write_text("half copied")
            assert await asyncio.to_thread(shown, port) == second
            answer = await enlist(f"127.0.0.1:{port}", "gateway", device, Joining("device", "d0", 1))
            assert not isinstance(answer, Refusal)

    asyncio.run(story())


def test_a_revocation_list_that_the_authority_did_not_sign_is_not_used(tmp_path: Path, authority: Authority) -> None:
    gateway = certified(authority, tmp_path / "g", "gateway", "g0")
    other = Authority.create(tmp_path / "ca2", "lab")
    (tmp_path / "g" / "revoked.pem").write_bytes((tmp_path / "ca2" / "revoked.pem").read_bytes())
    with pytest.raises(IdentityError, match="not signed by this federation's authority"):
        Certified(tmp_path / "g")
    assert other.federation == "lab"
    gateway.check_own_name("gateway", "g0")


def test_insecure_stays_on_loopback(tmp_path: Path) -> None:
    async def story() -> None:
        for listen in ("0.0.0.0:0", "[::]:0", "gateway.example:0", ":0"):
            with pytest.raises(SettingsError, match="insecure-beyond-loopback"):
                async with serving(tmp_path / "s", Numbers(), credentials=Insecure(), listen=listen):
                    pass
        async with serving(
            tmp_path / "s", Numbers(), credentials=Insecure(beyond_loopback=True), listen="0.0.0.0:0"
        ) as (_, _, port):
            assert port > 0

    asyncio.run(story())


def test_keys_are_readable_by_their_owner_only(
    tmp_path: Path, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    request(tmp_path / "n", "lab", "device", ["d0"])
    for key in (tmp_path / "n" / "key.pem", tmp_path / "ca" / "ca.key"):
        assert stat.S_IMODE(os.stat(key).st_mode) == 0o600
    authority.bundle("device", ["d1"], tmp_path / "m")
    (tmp_path / "m" / "key.pem").chmod(0o644)
    Certified(tmp_path / "m")
    assert "chmod 600" in caplog.text


def test_requests_that_an_authority_refuses(tmp_path: Path, authority: Authority) -> None:
    request(tmp_path / "n", "lab", "operator", ["anna"])
    asked = tmp_path / "n" / "request.pem"
    with pytest.raises(IdentityError, match="--role operator"):
        authority.issue(asked, tmp_path / "n")
    first = authority.issue(asked, tmp_path / "n", role="operator")
    again = authority.issue(asked, tmp_path / "n", role="operator")
    assert first.serial != again.serial  # a renewal, with the same key
    with pytest.raises(IdentityError, match="already has a certificate with another key"):
        authority.bundle("operator", ["anna"], tmp_path / "thief")
    authority.revoke("operator/anna")
    authority.bundle("operator", ["anna"], tmp_path / "anew")
    assert sorted(revoked for _, revoked in authority.issued()) == [False, True, True]
    request(tmp_path / "m", "other", "device", ["d0"])
    with pytest.raises(IdentityError, match="this is the authority of 'lab'"):
        authority.issue(tmp_path / "m" / "request.pem", tmp_path / "m")
    for role, name in (("device", "../x"), ("king", "x"), ("device", ""), ("device", "a" * 64), ("device", "a b")):
        with pytest.raises(IdentityError):
            request(tmp_path / "bad", "lab", role, [name])


def test_expiry_is_reported(tmp_path: Path, authority: Authority, caplog: pytest.LogCaptureFixture) -> None:
    said = authority.bundle("device", ["d0"], tmp_path / "n", days=20)
    Certified(tmp_path / "n")
    assert "expires in 19 days" in caplog.text
    with pytest.raises(IdentityError, match="expired on"):
        said.check_time(said.ends, "it")
    with pytest.raises(IdentityError, match="check this machine's clock"):
        said.check_time(said.begins.replace(year=1970), "it")


def test_a_server_without_a_revocation_list_does_not_start(tmp_path: Path, authority: Authority) -> None:
    gateway = certified(authority, tmp_path / "g", "gateway", "g0")
    certified(authority, tmp_path / "h", "device", "d0")
    (tmp_path / "g" / "revoked.pem").unlink()

    async def story() -> None:
        with pytest.raises(IdentityError, match=r"revoked\.pem: no such file; .* Copy it from the authority's folder"):
            async with serving(tmp_path / "s", Numbers(), credentials=Certified(tmp_path / "g")):
                pass
        async with serving(tmp_path / "s", Numbers(), credentials=gateway):
            pass  # it was there when this process read it

    asyncio.run(story())
    (tmp_path / "h" / "revoked.pem").unlink()
    Certified(tmp_path / "h").check_own_name("device", "d0")  # a device serves nobody


def test_a_revocation_list_that_vanishes_stays_in_force(
    tmp_path: Path, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    device = certified(authority, tmp_path / "h", "device", "d0")
    authority.revoke("device/d0")
    gateway = certified(authority, tmp_path / "g", "gateway", "g0")
    (tmp_path / "g" / "revoked.pem").unlink()

    async def story() -> None:
        async with serving(tmp_path / "s", Numbers(), credentials=gateway) as (_, _, port):
            for _ in range(2):
                with pytest.raises(LinkError, match="was revoked"):
                    await enlist(f"127.0.0.1:{port}", "gateway", device, Joining("device", "d0", 1))

    asyncio.run(story())
    assert caplog.text.count("the list that was read last stays in force") == 1


def test_one_authority_replaces_another_while_the_nodes_run(tmp_path: Path, authority: Authority) -> None:
    """The operator lets every node trust both, issues new certificates, and then drops the old authority."""
    gateway = certified(authority, tmp_path / "g", "gateway", "g0")
    device = certified(authority, tmp_path / "h", "device", "d0")
    newer = Authority.create(tmp_path / "new", "lab")

    async def story() -> None:
        async with serving(tmp_path / "s", Numbers(), credentials=gateway) as (_, _, port):

            async def asks(credentials: Certified) -> bool:
                answer = await enlist(f"127.0.0.1:{port}", "gateway", credentials, Joining("device", "d0", 1))
                return not isinstance(answer, Refusal)

            assert await asks(device)
            newer.issue(tmp_path / "h" / "request.pem", tmp_path / "h", also=[tmp_path / "ca"])
            with pytest.raises(LinkError):
                await asks(device)  # the gateway does not trust the new authority yet
            for name in ("ca.pem", "revoked.pem"):
                both = (tmp_path / "ca" / name).read_bytes() + (tmp_path / "new" / name).read_bytes()
                (tmp_path / "g" / name).write_bytes(both)
            assert await asks(device)
            newer.issue(tmp_path / "g" / "request.pem", tmp_path / "g", role="gateway")
            assert await asks(device)
            old = certified(authority, tmp_path / "old", "device", "d1")
            with pytest.raises(LinkError):
                await enlist(f"127.0.0.1:{port}", "gateway", old, Joining("device", "d1", 1))
            newer.revoke("device/d0")
            (tmp_path / "g" / "revoked.pem").write_bytes((tmp_path / "new" / "revoked.pem").read_bytes())
            with pytest.raises(LinkError, match="was revoked"):
                await asks(device)

    asyncio.run(story())
    Authority.create(tmp_path / "third", "factory")
    with pytest.raises(IdentityError, match="another federation"):
        newer.issue(tmp_path / "h" / "request.pem", tmp_path / "h", also=[tmp_path / "third"])


def test_a_list_of_a_new_authority_counts_once_that_authority_is_trusted(tmp_path: Path, authority: Authority) -> None:
    """`revoked.pem` may be copied before `ca.pem`: until then it cannot be checked, and must not be forgotten."""
    gateway = certified(authority, tmp_path / "g", "gateway", "g0")
    newer = Authority.create(tmp_path / "new", "lab")
    stolen = newer.bundle("device", ["d0"], tmp_path / "h", also=[tmp_path / "ca"])
    newer.revoke("device/d0")
    both = {
        name: (tmp_path / "ca" / name).read_bytes() + (tmp_path / "new" / name).read_bytes()
        for name in ("revoked.pem", "ca.pem")
    }

    async def story() -> None:
        async with serving(tmp_path / "s", Numbers(), credentials=gateway) as (_, _, port):
            old = certified(authority, tmp_path / "old", "device", "d1")
            for name, content in both.items():
                (tmp_path / "g" / name).write_bytes(content)
                await enlist(f"127.0.0.1:{port}", "gateway", old, Joining("device", "d1", 1))
            with pytest.raises(LinkError, match="was revoked"):
                await enlist(f"127.0.0.1:{port}", "gateway", Certified(tmp_path / "h"), Joining("device", "d0", 1))

    asyncio.run(story())
    assert stolen.serial


def test_connections_that_say_nothing_are_closed_and_logged_in_one_line(
    tmp_path: Path, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    gateway = certified(authority, tmp_path / "g", "gateway", "g0")
    limits = replace(QUICK, handshake_s=0.5)

    async def story() -> None:
        async with serving(tmp_path / "s", Numbers(), credentials=gateway, limits=limits) as (_, server, port):
            silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(50)]
            for reader, _ in silent:
                async with asyncio.timeout(HANG_GUARD_S):
                    assert await reader.read() == b""
            server._note_strangers(60.0)
            server._note_strangers(60.0)
            for _, writer in silent:
                writer.close()

    asyncio.run(story())
    assert caplog.text.count("50 of the 50 connections") == 1


def test_a_connection_with_a_certificate_and_no_call_is_closed(tmp_path: Path, authority: Authority) -> None:
    gateway = certified(authority, tmp_path / "g", "gateway", "g0")
    certified(authority, tmp_path / "d", "device", "d0")
    context = ssl.create_default_context(cafile=str(tmp_path / "d" / files.CA_CERTIFICATE))
    context.check_hostname = False
    context.load_cert_chain(tmp_path / "d" / files.CERTIFICATE, tmp_path / "d" / files.KEY)
    context.set_alpn_protocols(["h2"])

    async def story() -> None:
        limits = replace(QUICK, handshake_s=0.5)
        async with serving(tmp_path / "s", Numbers(), credentials=gateway, limits=limits) as (_, _, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
            writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
            with contextlib.suppress(asyncio.IncompleteReadError):
                async with asyncio.timeout(HANG_GUARD_S):
                    while True:
                        start = await reader.readexactly(9)
                        body = await reader.readexactly(int.from_bytes(start[:3]))
                        if start[3:5] == b"\x06\0":  # a ping; without an answer the connection counts as dead
                            writer.write(start[:4] + b"\x01" + start[5:] + body)
            writer.close()

    asyncio.run(story())
