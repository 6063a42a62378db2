"""`async-hfl network show`: find a network by name, file or run, and draw it as a page and as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from async_hfl.assembly.runs.shown_network import PAPER_MODEL_BYTES, last_association, network_by_name, network_of_run
from async_hfl.assembly.settings.loading import available
from async_hfl.core.errors import RunDirectoryError, UserError
from async_hfl.journal.run_directory import RunDirectory
from async_hfl.reports.data.network_view import NEAREST, NetworkView, network_view
from async_hfl.reports.figures.network import draw_network
from async_hfl.reports.figures.pictures import can_draw
from async_hfl.reports.output import writing
from async_hfl.reports.pages.network_page import write_network_page
from async_hfl.reports.tables.formatting import duration, size


def find_network(
    name: str | Path,
    *,
    devices: int | None = None,
    gateways: int | None = None,
    seed: int | None = None,
    overrides: Sequence[str] = (),
    model_bytes: int | None = None,
) -> tuple[NetworkView, str]:
    """Return the network to draw and a short name for it.

    `name` is one of `async-hfl networks`, a file, or a run directory, whose last association is then drawn.
    """
    path = Path(name)
    if path.is_dir() and str(name) not in available("network"):
        if overrides or any(value is not None for value in (devices, gateways, seed, model_bytes)):
            raise UserError(f"{path} is a run, which has its own devices, gateways, seed and model; give RUN alone")
        return _of_run(path)
    if seed is not None and not 0 <= seed < 2**63:
        raise UserError(f"seed {seed}: must be a whole number from 0 to 2^63 - 1")
    shown = network_by_name(
        str(name),
        devices=devices,
        gateways=gateways,
        seed=seed,
        overrides=overrides,
        model_bytes=PAPER_MODEL_BYTES if model_bytes is None else model_bytes,
    )
    title = shown.short_name if shown.network.name == "file" else ""
    return network_view(shown.network, shown.model_bytes, shown.seed, title=title), shown.short_name


def _of_run(path: Path) -> tuple[NetworkView, str]:
    directory = RunDirectory.open(path)
    try:
        shown = network_of_run(directory.read_manifest(), path.resolve().name)
    except KeyError as error:
        raise RunDirectoryError(f"{directory.manifest}: has no {error}, so it was not written by async-hfl") from error
    association, recorded = None, directory.read_events("association")
    if directory.events.is_file():
        moves = (fields for _, fields in recorded)
        association = last_association(shown.network.links.devices, moves)
    words = NEAREST if association is None else f"last association of the run {shown.short_name}"
    return network_view(shown.network, shown.model_bytes, shown.seed, association, words), shown.short_name


def draw_both(view: NetworkView, folder: Path, short_name: str) -> tuple[Path, Path | None]:
    """Write the page and the picture, and return their paths; no picture without matplotlib."""
    if folder.suffix in (".html", ".png"):
        raise UserError(
            f"{folder}: --out is the directory of both files, the page and the picture; leave the ending out"
        )
    page, picture = folder / f"network-{short_name}.html", folder / f"network-{short_name}.png"
    with writing(page):
        write_network_page(view, page)
        if can_draw():
            draw_network(view, picture)
    return page, picture if can_draw() else None


def network_lines(view: NetworkView) -> list[str]:
    """Return a summary in words."""
    rounds, transfers = view.delays.rounds, view.delays.transfers
    middle, tail = int(0.5 * (len(rounds) - 1)), int(0.99 * (len(rounds) - 1))
    return [
        f"{view.name}: {view.devices:,} devices, {len(view.gateway_x):,} gateways, {view.links:,} links",
        f"a round takes {duration(rounds[middle])} (median) and {duration(rounds[tail])} (99th percentile); "
        f"of that, {size(view.model_bytes)} down and up take {duration(transfers[middle])} and "
        f"{duration(transfers[tail])}",
        *view.notes,
    ]
