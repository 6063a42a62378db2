"""A browser, and runs whose pages it opens. Without Chromium or Playwright these tests are skipped."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import async_hfl

CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)
DIGITS = ("task.devices=18", "network.gateways=3", "cloud.epochs=12", "task.target=0.55", "cloud.epochs_after_target=4")


@pytest.fixture(scope="session")
def playwright() -> Any:
    found = pytest.importorskip("playwright.sync_api", reason="playwright is not installed (async-hfl[dev])")
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine (apt-get install chromium)")
    return found


@pytest.fixture(scope="module")
def browser(playwright: Any) -> Iterator[Any]:
    """Closed after each module, because an open browser occupies the event loop of this thread."""
    with playwright.sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory, playwright: Any) -> dict[str, list[Path]]:
    """Small runs of three methods on digits, and one of a network with outages."""
    where = tmp_path_factory.mktemp("runs")
    made: dict[str, list[Path]] = {}
    for method in ("async-hfl-plus", "async-random", "sync-random"):
        for seed in (1, 2):
            run = async_hfl.run(
                task="digits",
                method=method,
                network="nycmesh-paper",
                seed=seed,
                overrides=DIGITS,
                out=where / f"{method}-{seed}",
            )
            made.setdefault(method, []).append(run.path)
    failing = (
        "task.devices=40",
        "cloud.epochs=30",
        "outages.device_up=400",
        "outages.gateway_up=3000",
        "outages.link_up=900",
    )
    run = async_hfl.run(task="null", network="uniform", seed=1, overrides=failing, out=where / "failing")
    made["failing"] = [run.path]
    return made
