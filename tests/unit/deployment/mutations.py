"""Mutations of packets: of their bytes, and of the values in their messages, which then are well-typed and wrong."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

import numpy as np

from async_hfl.core.weights import frozen

V = TypeVar("V")
_INTEGERS = (0, 1, 2, 3, -1, 7, 255, 2**31, 2**53, 2**62, 2**63 - 1)
_REALS = (0.0, -1.0, 0.5, 1e-300, 1e9, 1e18, 1e30, 1e300, -1e300, float("nan"), float("inf"), float("-inf"))
_NUMBERS = (0.0, 1.0, -1.0, 1e6, 3.4e38, -3.4e38, float("nan"), float("inf"))


def mutated(packet: bytes, others: list[bytes], random: np.random.Generator) -> bytes:
    """Return other bytes than these, made of them and of the other packets."""
    data = bytearray(packet)
    place = int(random.integers(len(data)))
    match random.integers(6):
        case 0:  # flipped bits
            for _ in range(random.integers(1, 4)):
                data[int(random.integers(len(data)))] ^= 1 << int(random.integers(8))
        case 1:  # truncated
            del data[place:]
        case 2:  # a part is missing, or another one is inserted
            del data[place : place + int(random.integers(1, 9))]
            data[place:place] = random.bytes(int(random.integers(9)))
        case 3:  # spliced with another packet
            other = others[int(random.integers(len(others)))]
            data[place:] = other[int(random.integers(len(other))) :]
        case 4:  # a part of another packet in the same place
            other = others[int(random.integers(len(others)))]
            length = int(random.integers(1, 64))
            data[place : place + length] = other[place : place + length]
        case _:  # other numbers in the arrays, which come last
            start = int(random.integers(1, 200))
            data[-start:] = random.bytes(start)
    return bytes(data)


def with_another_value(value: V, random: np.random.Generator) -> V:
    """Return a message with one of its values replaced by another of the same type."""
    changed: Any = value
    if is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in fields(value)]
        if names:
            name = names[int(random.integers(len(names)))]
            changed = replace(value, **{name: with_another_value(getattr(value, name), random)})
    elif isinstance(value, tuple):
        changed = _tuple(value, random)
    elif isinstance(value, bool):
        changed = not value
    elif isinstance(value, int):
        near = value + int(random.integers(-3, 4))
        changed = near if random.integers(2) else _INTEGERS[int(random.integers(len(_INTEGERS)))]
    elif isinstance(value, float):
        changed = _REALS[int(random.integers(len(_REALS)))]
    elif isinstance(value, np.ndarray):
        changed = _array(value, random)
    elif isinstance(value, str):
        changed = value[: int(random.integers(len(value) + 1))] + "\n\x1b" * int(random.integers(3))
    return changed  # type: ignore[no-any-return]


def _tuple(value: tuple[Any, ...], random: np.random.Generator) -> tuple[Any, ...]:
    items = list(value)
    if items:
        place = int(random.integers(len(items)))
        items[place] = with_another_value(items[place], random)
    if hasattr(value, "_fields"):
        return type(value)(*items)
    match random.integers(4):
        case 0:
            items = items[:-1]
        case 1:
            items = items * int(random.integers(1, 5))
    return tuple(items)


def _array(value: np.ndarray, random: np.random.Generator) -> np.ndarray:
    found = value.copy()
    place = int(random.integers(max(found.size, 1)))
    match random.integers(4):
        case 0 if found.dtype == np.float32 and found.size:
            found.flat[place] = _NUMBERS[int(random.integers(len(_NUMBERS)))]
        case 1:
            found = found.reshape(-1)[:place]
        case 2:
            found = np.concatenate([found.reshape(-1), found.reshape(-1)[: place + 1]])
        case _ if found.size:
            raw = found.view(np.uint8).reshape(-1)
            raw[int(random.integers(raw.size))] ^= np.uint8(1 << int(random.integers(8)))
    return frozen(found)
