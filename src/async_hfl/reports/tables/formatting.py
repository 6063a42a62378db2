"""Values as people read them: durations, sizes, percentages, and nested settings as flat rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from async_hfl.core.maths.targets import EVALUATIONS


def duration(seconds: float | None) -> str:
    """Format seconds as 1 h 02 min, 3 min 20 s or 12.3 s."""
    if seconds is None:
        return "-"
    if round(seconds, 1) < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min"


def size(count: float | None) -> str:
    """Format bytes as 12.3 MB, in decimal units like the rates of links."""
    if count is None:
        return "-"
    for unit in ("B", "kB", "MB", "GB", "TB"):
        digits = 0 if unit == "B" else 1
        if round(abs(count), digits) < 1000 or unit == "TB":
            return f"{count:.{digits}f} {unit}"
        count /= 1000
    raise AssertionError


def rate(bytes_per_s: float) -> str:
    """Format a rate as 12.3 kB/s; with three digits below 1 kB/s, where small models may need less than 1 B/s."""
    return f"{bytes_per_s:.3g} B/s" if bytes_per_s < 999.5 else f"{size(bytes_per_s)}/s"


def percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"


def held_text(window: float | None) -> str:
    """Return the meaning of a target that is held: the mean over this many seconds, or of three evaluations, passes."""
    over = f"of {EVALUATIONS} evaluations" if window is None else f"over {duration(window)}"
    return f"the mean {over} passes it"


def flat_settings(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten nested tables of settings into `section.key` -> value."""
    found: dict[str, Any] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping):
            found.update(flat_settings(value, f"{prefix}{key}."))
        else:
            found[f"{prefix}{key}"] = value
    return found
