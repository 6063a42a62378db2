"""The pages in a real browser: no errors, no empty plots, no overlapping labels, working controls."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from page_checks import DATA, PHONE, WIDE, opened

import async_hfl
from async_hfl.reports.data.experiment import Comparison, Figure, FigureLine, RunGroup
from async_hfl.reports.pages.experiment_page import write_page
from async_hfl.reports.pages.network_page import write_network_page
from async_hfl.reports.pages.run_page import write_run_page
from async_hfl.reports.tables.table import Column, Spread, Table
from async_hfl.reports.terminal.network_show import find_network

Runs = dict[str, list[Path]]
VIEWS = [
    pytest.param(WIDE, "light", id="wide"),
    pytest.param(PHONE, "light", id="phone"),
    pytest.param(WIDE, "dark", id="dark"),
]
METHODS = ("async-hfl-plus", "async-random", "sync-random")


@pytest.fixture(scope="session")
def comparison(runs: Runs, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("pages") / "comparison.html"
    table = Table(
        "Time to target",
        (Column("method"), Column("to target", "seconds", "mean over seeds"), Column("speed-up", "ratio")),
        (
            ("async-hfl-plus", Spread(3567.0, 3000.0, 3800.0), 1.9),
            ("sync-random", Spread(None, text="not reached"), None),
        ),
        emphasised=(0,),
    )
    lines = Figure(
        "Bandwidth",
        "bandwidth (MB/s)",
        "time to target",
        (FigureLine("a", (0.5, 1, 2), (9e3, 7e3, 6e3)),),
        kind="seconds",
    )
    bars = Figure("Ablation", "", "bytes to target", (FigureLine("", ("whole", "half"), (5e8, None)),), kind="bytes")
    panels = [RunGroup(name, tuple(runs[name]), panel) for panel in ("first", "second") for name in METHODS]
    write_page(
        Comparison("Three methods", ("A sentence.",), (table,), (lines, bars), command="async-hfl compare"), panels, out
    )
    return out


@pytest.fixture(scope="session")
def page_of_run(runs: Runs, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("pages") / "run.html"
    write_run_page(runs["async-hfl-plus"][0], out)
    return out


@pytest.mark.parametrize(("size", "scheme"), VIEWS)
def test_a_comparison(browser: Any, comparison: Path, size: tuple[int, int], scheme: str) -> None:
    with opened(browser, comparison, size, scheme) as seen:
        seen.assert_sound()
        assert seen.page.evaluate("document.documentElement.classList.contains('dark')") == (scheme == "dark")
        for key in ("loss", "bytes", "up", "updates", "each", "log", "linear", "energy", "cloud"):
            for button in seen.page.locator(f"[data-key={key}]:visible").all():
                button.click()
                assert button.get_attribute("aria-pressed") == "true"
            seen.assert_readable()
        seen.assert_sound()


@pytest.mark.parametrize(("size", "scheme"), VIEWS)
def test_a_run(browser: Any, page_of_run: Path, size: tuple[int, int], scheme: str) -> None:
    with opened(browser, page_of_run, size, scheme) as seen:
        seen.assert_sound()
        for key in ("loss", "bytes", "up", "updates", "cloud", "joules", "compute_s", "all", "none"):
            seen.page.locator(f"[data-key={key}]:visible").first.click()
            seen.assert_readable()
        for details in seen.page.locator("details").all():
            details.locator("summary").click()
        seen.assert_sound()


SITES = """name,role,latitude,longitude
Town Hall,gateway,40.70,-73.99
Depot,gateway,40.72,-73.98
Roof West,device,40.701,-73.991
Pump 2,device,40.702,-73.989
Yard,device,40.721,-73.981
"""


@pytest.fixture(scope="module")
def at_sites(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of many short jobs on a network of named sites."""
    folder = tmp_path_factory.mktemp("sites")
    (folder / "town.csv").write_text(SITES)
    settings = ("task.devices=3", "cloud.epochs=150")
    return async_hfl.run(
        task="null", method="async-random", network=str(folder / "town.csv"), overrides=settings, out=folder / "run"
    ).path


TIMELINE = "svg[aria-label='timeline of a gateway']"


def test_sites_are_called_by_their_names(browser: Any, at_sites: Path, tmp_path: Path) -> None:
    write_run_page(at_sites, tmp_path / "run.html")
    with opened(browser, tmp_path / "run.html") as seen:
        seen.assert_sound()
        page = seen.page
        assert "town.csv" in page.locator("header").inner_text()
        at_map = page.locator("section", has=page.locator("h2", has_text="Map"))
        assert re.search(r"0 Town Hall: \d devices?\s+1 Depot: \d device", at_map.inner_text())
        assert {"Roof West", "Pump 2", "Yard"} & set(page.locator(f"{TIMELINE} text").all_text_contents())
        gateway = page.locator("section", has=page.locator("h2", has_text="Timeline")).locator("select").first
        assert gateway.locator("option").all_text_contents() == ["0, Town Hall", "1, Depot"]


@pytest.mark.parametrize("speed", [1e-3, 1.0, 300.0])
def test_the_timeline_of_a_deployed_run_at_any_speed(
    browser: Any, at_sites: Path, tmp_path: Path, speed: float
) -> None:
    """Jobs of milliseconds, seconds and hours: of the many, as many are shown as can be told apart."""
    deployed, page = tmp_path / "deployed", tmp_path / "run.html"
    shutil.copytree(at_sites, deployed)
    manifest = json.loads((deployed / "manifest.json").read_text())
    names = {"device_names": ["device-1", "device-2", "device-3"], "gateway_names": ["gateway-1", "gateway-2"]}
    (deployed / "manifest.json").write_text(json.dumps({**manifest, "network": "deployed", **names}))
    write_run_page(deployed, page)
    before, data, after = re.split(
        r'(?<=<script id="data" type="application/json">)(.*?)(?=</script>)', page.read_text()
    )
    faster = json.loads(data)
    faster["lifecycle"]["lines"] = {"devices timed out": [[0.0, 0], [1.0, 1]]}
    timeline = faster["timeline"]
    assert len(timeline["jobs"]) > 500
    timeline["typical"] *= speed
    timeline["windows"] = [{**w, "from": w["from"] * speed, "to": w["to"] * speed} for w in timeline["windows"]]
    timeline["jobs"] = [[*j[:2], *(t if t is None else t * speed for t in j[2:8]), j[8]] for j in timeline["jobs"]]
    timeline["uploads"] = [[gateway, at * speed] for gateway, at in timeline["uploads"]]
    page.write_text(before + json.dumps(faster).replace("<", "\\u003c") + after)
    with opened(browser, page) as seen:
        seen.assert_sound()
        widths = seen.page.evaluate(
            f"[...document.querySelectorAll(`{TIMELINE} g`)].map(g => g.getBoundingClientRect().width)"
        )
        assert len(widths) >= 5
        assert sorted(widths)[len(widths) // 2] > 15, "pixels of a usual job"
        labels = seen.page.locator(f"{TIMELINE} text[text-anchor=middle]").all_text_contents()
        assert len(set(labels)) == len(labels) >= 3
        named = seen.page.locator("svg text.name").all_text_contents()
        assert not [name for name in named if "virtual" in name]
        assert len([name for name in named if name.startswith("wall-clock time")]) >= 3
        assert set(names["device_names"]) & set(seen.page.locator(f"{TIMELINE} text").all_text_contents())
        outages = seen.page.locator("svg[aria-label=outages] text.name").first.text_content()
        assert outages == "devices timed out", "a line alone has no legend"


def test_a_run_with_outages(browser: Any, runs: Runs, tmp_path: Path) -> None:
    write_run_page(runs["failing"][0], tmp_path / "run.html")
    with opened(browser, tmp_path / "run.html", PHONE) as seen:
        seen.assert_sound()
        assert (
            "went down: " in seen.page.locator("section", has=seen.page.locator("h2", has_text="Events")).inner_text()
        )


def test_an_interrupted_run(browser: Any, runs: Runs, tmp_path: Path) -> None:
    cut = tmp_path / "cut"
    shutil.copytree(runs["async-hfl-plus"][0], cut)
    for name in ("summary.json", "timings.json", "devices.csv"):
        (cut / name).unlink()
    events = (cut / "events.jsonl").read_bytes()
    (cut / "events.jsonl").write_bytes(events[: len(events) // 2])
    write_run_page(cut, tmp_path / "run.html")
    with opened(browser, tmp_path / "run.html") as seen:
        seen.assert_sound()
        assert "Not complete" in seen.page.locator("header").inner_text()
    write_page(Comparison("cut"), [RunGroup("cut", (cut,))], tmp_path / "comparison.html")
    with opened(browser, tmp_path / "comparison.html") as seen:
        seen.assert_sound(empty=("bytes by kind",))


def test_a_run_that_has_just_started(browser: Any, runs: Runs, tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    begun.mkdir()
    shutil.copy(runs["async-hfl-plus"][0] / "manifest.json", begun)
    write_run_page(begun, tmp_path / "run.html")
    with opened(browser, tmp_path / "run.html", PHONE) as seen:
        assert seen.errors == []
        seen.assert_readable()
        assert "no evaluation yet" in seen.page.locator("main").text_content()


def test_the_legend_hides_a_line_in_every_chart(browser: Any, comparison: Path) -> None:
    with opened(browser, comparison) as seen:
        page = seen.page
        curves, rounds = (
            page.locator("section", has=page.locator("h2", has_text=name)).first for name in ("Curves", "Rounds")
        )
        before = curves.locator("path.data").count(), rounds.locator("path.data").count()
        entry = curves.locator(".legend button", has_text="async-random")
        entry.click()
        assert entry.get_attribute("aria-pressed") == "false"
        assert (curves.locator("path.data").count(), rounds.locator("path.data").count()) == (
            before[0] - 1,
            before[1] - 1,
        )
        entry.click()
        assert (curves.locator("path.data").count(), rounds.locator("path.data").count()) == before
        assert curves.locator("path.band").count() == 3, "the spread over seeds"


def test_axes_panels_and_values_under_the_pointer(browser: Any, comparison: Path) -> None:
    with opened(browser, comparison) as seen:
        page = seen.page
        curves = page.locator("section", has=page.locator("h2", has_text="Curves")).first
        names = set()
        for key in ("time", "bytes", "up", "updates"):
            curves.locator(f"[data-key={key}]").click()
            names.add(curves.locator("svg text.name").last.text_content())
        assert len(names) == 4
        curves.locator(".plot > svg").scroll_into_view_if_needed()
        picture = curves.locator(".plot > svg").bounding_box()
        page.mouse.move(picture["x"] + picture["width"] * 0.6, picture["y"] + 150)
        assert curves.locator(".tip").is_visible()
        assert "sync-random" in curves.locator(".tip").inner_text()
        before = curves.locator("svg text").all_text_contents()
        page.mouse.down()
        page.mouse.move(picture["x"] + picture["width"] * 0.8, picture["y"] + 150)
        page.mouse.up()
        closer = curves.locator("svg text").all_text_contents()
        assert closer != before
        page.mouse.dblclick(picture["x"] + picture["width"] * 0.5, picture["y"] + 150)
        assert curves.locator("svg text").all_text_contents() == before
        page.locator("select").first.select_option(label="second")
        assert "second" in curves.locator(".say").inner_text()


def test_association_and_timeline_follow_their_controls(browser: Any, page_of_run: Path) -> None:
    with opened(browser, page_of_run) as seen:
        page = seen.page
        at_map = page.locator("section", has=page.locator("h2", has_text="Map"))
        slider = page.locator("#association")
        last = at_map.locator(".say").inner_text()
        picture = "document.querySelector('.map canvas').toDataURL()"
        drawn = page.evaluate(picture)
        slider.evaluate("slider => { slider.value = 0; slider.dispatchEvent(new Event('input')); }")
        assert at_map.locator(".say").inner_text() != last
        assert page.evaluate(picture) != drawn
        timeline = page.locator("section", has=page.locator("h2", has_text="Timeline"))
        rows = timeline.locator("svg text").all_text_contents()
        timeline.locator("select").select_option("2")
        assert timeline.locator("svg text").all_text_contents() != rows
        assert timeline.locator(DATA).count() > 10
        timeline.locator(DATA).nth(3).hover(force=True)  # another job of the device may cover it, and is shown then
        assert "training" in timeline.locator(".tip").inner_text()


def test_light_theme_dark_theme_and_print(browser: Any, page_of_run: Path) -> None:
    colour = "getComputedStyle(document.querySelector('section')).backgroundColor"
    with opened(browser, page_of_run) as seen:
        page = seen.page
        light = page.evaluate(colour)
        page.locator("#theme").click()
        dark = page.evaluate(colour)
        assert light != dark
        page.emulate_media(media="print")
        assert page.evaluate(colour) == "rgb(255, 255, 255)"
        assert page.locator(".tools:visible").count() == 0
        assert page.pdf(format="A4")[:5] == b"%PDF-"


def test_names_are_never_parsed_as_html(browser: Any, runs: Runs, tmp_path: Path) -> None:
    bad = '</script><img src=x onerror="window.hacked=1"><b>&amp;'
    run = tmp_path / "run"
    shutil.copytree(runs["async-random"][0], run)
    for name in ("manifest.json", "summary.json"):
        data = json.loads((run / name).read_text())
        data["method"] = data["task"] = bad
        if "settings" in data:
            data["settings"]["association"]["file"] = bad
            data["versions"][bad] = bad
        if "by_class" in data:
            data["by_class"][bad] = 0.5
        (run / name).write_text(json.dumps(data))
    write_run_page(run, tmp_path / "run.html")
    table = Table(bad, (Column(bad, note=bad),), ((bad,),), (bad,))
    page = Comparison(bad, (bad,), (table,), (), bad, bad)
    write_page(page, [RunGroup(bad, (run,), bad), RunGroup("b", (run,), bad)], tmp_path / "comparison.html")
    for name in ("run.html", "comparison.html"):
        with opened(browser, tmp_path / name) as seen:
            assert seen.errors == []
            assert len(seen.requests) == 1
            assert seen.page.evaluate("window.hacked") is None
            assert seen.page.locator("img").count() == 0
            assert bad in seen.page.locator("h1").inner_text()


@pytest.mark.parametrize(("size", "scheme"), VIEWS)
def test_the_map_of_a_network(browser: Any, tmp_path: Path, size: tuple[int, int], scheme: str) -> None:
    view, _ = find_network("nycmesh-paper", devices=40)
    write_network_page(view, tmp_path / "network.html")
    with opened(browser, tmp_path / "network.html", size, scheme) as seen:
        seen.page.wait_for_timeout(100)
        seen.assert_sound()
        for mode in ("all", "none", "own"):
            seen.page.locator(f"[data-links={mode}]").click()
        assert seen.errors == []
