"""PNG, SVG and PDF files, which matplotlib draws. Pages draw their charts in the browser and do not need it."""

from __future__ import annotations

import io
from importlib.util import find_spec
from typing import Any

from async_hfl.core.extras import check_installed, install

NO_PICTURES = f"no pictures were drawn: they need matplotlib; {install('plots')}"


def can_draw() -> bool:
    return find_spec("matplotlib") is not None


def new_figure(**how: Any) -> Any:
    """Return an empty figure of matplotlib."""
    check_installed("plots", "a picture")
    from matplotlib.figure import Figure

    class ShownFigure(Figure):
        """A figure that notebooks show. Those of matplotlib are shown only once pyplot has been imported."""

        def _repr_png_(self) -> bytes:
            file = io.BytesIO()
            self.savefig(file, format="png", bbox_inches="tight")
            return file.getvalue()

    return ShownFigure(**how)
