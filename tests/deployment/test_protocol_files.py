"""The generated code matches its .proto, and every message has a sender."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import async_hfl.deployment.protocol
from async_hfl.core.protocol.messages import Message
from async_hfl.deployment.protocol import wire_pb2
from async_hfl.deployment.shell import message_validation
from async_hfl.deployment.transport import calls

FOLDER = Path(async_hfl.deployment.protocol.__file__).parent


def test_the_code_is_made_of_the_proto(tmp_path: Path) -> None:
    """The text depends on the compiler's version, the description of the messages does not."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
    from grpc_tools import protoc

    out = tmp_path / "set"
    assert protoc.main(["protoc", f"-I{FOLDER}", f"--descriptor_set_out={out}", "wire.proto"]) == 0
    fresh = FileDescriptorSet.FromString(out.read_bytes()).file[0]
    committed = FileDescriptorProto()
    wire_pb2.DESCRIPTOR.CopyToProto(committed)
    fresh.ClearField("source_code_info")
    for message in fresh.message_type:
        for field in message.field:
            field.ClearField("json_name")
    for message in committed.message_type:
        for field in message.field:
            field.ClearField("json_name")
    assert fresh == committed


def test_the_code_runs_with_the_oldest_protobuf_we_allow() -> None:
    """Code of a newer compiler refuses to run with an older library."""
    assert "Protobuf Python Version: 6.31.1" in (FOLDER / "wire_pb2.py").read_text()


def test_the_methods_are_those_of_the_service() -> None:
    service = wire_pb2.DESCRIPTOR.services_by_name["Link"]
    assert service.full_name == calls.SERVICE
    described = {}
    for method in service.methods:
        kinds = ("stream" if method.client_streaming else "unary", "stream" if method.server_streaming else "unary")
        described[method.name] = ("_".join(kinds), method.input_type.name, method.output_type.name)
    ours = {
        method.name: (method.kind, method.request.DESCRIPTOR.name, method.answer.DESCRIPTOR.name)
        for method in calls.METHODS
    }
    assert ours == described


def test_every_message_has_a_sender() -> None:
    assert frozenset(get_args(Message)) == frozenset().union(*message_validation.ALLOWED.values())
