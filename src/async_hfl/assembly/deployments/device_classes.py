"""Device classes of a cluster (`--class 20:8:20000`): slowed-down devices behind shaped links."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from async_hfl.core.errors import UserError

_DEFAULT_DEVICES = 8


@dataclass(frozen=True, slots=True)
class DeviceClass:
    slowdown: float = 1.0
    """Factor by which training is slowed down."""
    rate: float = inf
    """Bytes per second on each of its links, in each direction."""
    delay_s: float = 0.0

    @property
    def shaped(self) -> bool:
        return self.rate < inf or self.delay_s > 0


def device_classes(texts: Sequence[str], devices: int | None) -> tuple[DeviceClass, ...]:
    """Return one class per device, in the order given."""
    if not texts:
        return (DeviceClass(),) * (_DEFAULT_DEVICES if devices is None else devices)
    found = [kind for text in texts for kind in _parsed(text)]
    if devices is not None and devices != len(found):
        raise UserError(f"--devices {devices}, but the classes have {len(found)} devices; omit one of the two")
    return tuple(found)


def _parsed(text: str) -> list[DeviceClass]:
    parts = text.split(":")
    try:
        count, *rest = int(parts[0]), *map(float, parts[1:])
    except ValueError as error:
        raise _wrong(text) from error
    slowdown, rate, delay = (*rest, *(1.0, inf, 0.0)[len(rest) :]) if len(rest) <= 3 else (0.0, 0.0, 0.0)
    if count < 1 or not 1 <= slowdown < inf or not rate > 0 or not 0 <= delay < inf:
        raise _wrong(text)
    return [DeviceClass(slowdown, rate, delay)] * count


def _wrong(text: str) -> UserError:
    return UserError(
        f"--class {text}: write it as COUNT:SLOWDOWN[:BYTES/S[:DELAY_S]], for example 20:8:20000:0.05 for 20 devices "
        "that take 8 times as long, behind links of 20 kB/s and 50 ms"
    )
