from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Frame(_message.Message):
    __slots__ = ("hello", "joined", "heartbeat", "packet", "offer", "held", "digest", "goodbye")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    JOINED_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    PACKET_FIELD_NUMBER: _ClassVar[int]
    OFFER_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    GOODBYE_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    joined: Joined
    heartbeat: Heartbeat
    packet: bytes
    offer: Offer
    held: Held
    digest: bytes
    goodbye: Goodbye
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., joined: _Optional[_Union[Joined, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ..., packet: _Optional[bytes] = ..., offer: _Optional[_Union[Offer, _Mapping]] = ..., held: _Optional[_Union[Held, _Mapping]] = ..., digest: _Optional[bytes] = ..., goodbye: _Optional[_Union[Goodbye, _Mapping]] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("lowest_version", "highest_version", "package", "joining", "probe_s")
    LOWEST_VERSION_FIELD_NUMBER: _ClassVar[int]
    HIGHEST_VERSION_FIELD_NUMBER: _ClassVar[int]
    PACKAGE_FIELD_NUMBER: _ClassVar[int]
    JOINING_FIELD_NUMBER: _ClassVar[int]
    PROBE_S_FIELD_NUMBER: _ClassVar[int]
    lowest_version: int
    highest_version: int
    package: str
    joining: bytes
    probe_s: float
    def __init__(self, lowest_version: _Optional[int] = ..., highest_version: _Optional[int] = ..., package: _Optional[str] = ..., joining: _Optional[bytes] = ..., probe_s: _Optional[float] = ...) -> None: ...

class Joined(_message.Message):
    __slots__ = ("version", "package", "session", "admission", "refusal", "heartbeat_s")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PACKAGE_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    ADMISSION_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_S_FIELD_NUMBER: _ClassVar[int]
    version: int
    package: str
    session: int
    admission: bytes
    refusal: bytes
    heartbeat_s: float
    def __init__(self, version: _Optional[int] = ..., package: _Optional[str] = ..., session: _Optional[int] = ..., admission: _Optional[bytes] = ..., refusal: _Optional[bytes] = ..., heartbeat_s: _Optional[float] = ...) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ("number", "echo")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    ECHO_FIELD_NUMBER: _ClassVar[int]
    number: int
    echo: int
    def __init__(self, number: _Optional[int] = ..., echo: _Optional[int] = ...) -> None: ...

class Offer(_message.Message):
    __slots__ = ("transfer", "length", "sha256", "run", "incarnation", "number")
    TRANSFER_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    transfer: int
    length: int
    sha256: bytes
    run: int
    incarnation: int
    number: int
    def __init__(self, transfer: _Optional[int] = ..., length: _Optional[int] = ..., sha256: _Optional[bytes] = ..., run: _Optional[int] = ..., incarnation: _Optional[int] = ..., number: _Optional[int] = ...) -> None: ...

class Held(_message.Message):
    __slots__ = ("transfer", "bytes", "whole", "refused")
    TRANSFER_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    WHOLE_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    transfer: int
    bytes: int
    whole: bool
    refused: str
    def __init__(self, transfer: _Optional[int] = ..., bytes: _Optional[int] = ..., whole: bool = ..., refused: _Optional[str] = ...) -> None: ...

class Wanted(_message.Message):
    __slots__ = ("session", "transfer", "offset")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    TRANSFER_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    session: int
    transfer: int
    offset: int
    def __init__(self, session: _Optional[int] = ..., transfer: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...

class Chunk(_message.Message):
    __slots__ = ("session", "transfer", "offset", "data")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    TRANSFER_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    session: int
    transfer: int
    offset: int
    data: bytes
    def __init__(self, session: _Optional[int] = ..., transfer: _Optional[int] = ..., offset: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class Goodbye(_message.Message):
    __slots__ = ("reason", "refusal")
    REASON_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    reason: str
    refusal: bytes
    def __init__(self, reason: _Optional[str] = ..., refusal: _Optional[bytes] = ...) -> None: ...

class Operation(_message.Message):
    __slots__ = ("lowest_version", "highest_version", "kind", "payload")
    LOWEST_VERSION_FIELD_NUMBER: _ClassVar[int]
    HIGHEST_VERSION_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    lowest_version: int
    highest_version: int
    kind: str
    payload: bytes
    def __init__(self, lowest_version: _Optional[int] = ..., highest_version: _Optional[int] = ..., kind: _Optional[str] = ..., payload: _Optional[bytes] = ...) -> None: ...
