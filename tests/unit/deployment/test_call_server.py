"""The server that outlives malformed calls, and the ordinary one in its place where grpcio differs."""

from __future__ import annotations

import asyncio

import grpc
import pytest

from async_hfl.deployment.transport import call_server as module
from async_hfl.deployment.transport.call_server import call_server


async def made() -> object:
    server = call_server((), ())
    await server.stop(None)
    return server


def test_the_installed_release_is_known(caplog: pytest.LogCaptureFixture) -> None:
    assert isinstance(asyncio.run(made()), module._CallServer)
    assert not caplog.messages


def test_another_release_serves_with_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "_OVERRIDDEN", ("_a_method_that_no_release_has",))
    server = asyncio.run(made())
    assert isinstance(server, grpc.aio.Server)
    assert not isinstance(server, module._CallServer)
    (message,) = caplog.messages
    assert "install grpcio==" in message
