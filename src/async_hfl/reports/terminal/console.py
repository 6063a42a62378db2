"""The consoles that commands print on. With NO_COLOR in the environment they print no styles (https://no-color.org)."""

from __future__ import annotations

import os

from rich.console import Console


def console(*, stderr: bool = False, quiet: bool = False, highlight: bool = False) -> Console:
    # Rich itself leaves out colours only, and prints bold and dim text.
    system = None if os.environ.get("NO_COLOR") else "auto"
    return Console(stderr=stderr, quiet=quiet, highlight=highlight, color_system=system)  # type: ignore[arg-type]
