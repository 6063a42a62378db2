"""PNG, SVG and PDF files, which matplotlib draws. Pages draw their charts in the browser and do not need it."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from async_hfl.core.extras import check_installed, install

NO_PICTURES = f"no pictures were drawn: they need matplotlib; {install('plots')}"


def can_draw() -> bool:
    return find_spec("matplotlib") is not None


def new_figure(**how: Any) -> Any:
    """Return an empty figure of matplotlib."""
    check_installed("plots", "a picture")
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    return Figure(**how)
