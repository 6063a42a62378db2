"""`async-hfl settings` and `init`, docs/settings.md and docs/run-files.md."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import msgspec
import pytest
from command_line import Call

from async_hfl.assembly.settings.documentation.entries import reference
from async_hfl.assembly.settings.documentation.page import settings_page
from async_hfl.assembly.settings.documentation.units import READERS, UNITS
from async_hfl.assembly.settings.loading import compose
from async_hfl.assembly.settings.schema import Settings

DOCS = Path(__file__).parents[2] / "docs"
PATHS = [setting.path for section in reference() for setting in section.settings]


def test_the_page_is_current(call: Call) -> None:
    done = call("settings", "--markdown")
    assert done.out == settings_page()
    current = (DOCS / "settings.md").read_text() == done.out
    assert current, "run: async-hfl settings --markdown > docs/settings.md"


def test_every_setting_is_listed_with_its_unit() -> None:
    assert {path.partition(".")[0] for path in PATHS} == {field.name for field in msgspec.structs.fields(Settings)}
    assert set(READERS) == {section.name for section in reference()}
    assert set(UNITS) <= set(PATHS)
    assert "cloud.start.patience" in PATHS


def test_a_setting_is_explained(call: Call) -> None:
    text = call("settings", "gateway.period").out
    for part in (
        "gateway.period = 100.0",
        "duration of a period",
        "a number > 0 or 'auto'; seconds",
        "read by: each gateway; only: periods",
    ):
        assert part in text
    assert "gateway.epochs = 20" not in text
    assert "method semi-async: 5" in call("settings", "gateway.epochs").out
    (row,) = call("settings", "gateway.bandwidth", "--json").json
    assert (row["path"], row["default"], row["unit"]) == ("gateway.bandwidth", '"50%"', "bytes per second")
    assert {'preset tight: "50%"'} <= set(row["set_by"])


def test_sections_and_keys_are_found(call: Call) -> None:
    assert [row["path"] for row in call("settings", "--json").json] == PATHS
    section = call("settings", "warmup", "--json").json
    assert [row["path"] for row in section] == [path for path in PATHS if path.startswith("warmup.")]
    both = [row["path"] for row in call("settings", "mixing_weight", "--json").json]
    assert both == ["cloud.mixing_weight", "gateway.mixing_weight"]
    done = call("settings", "gateway.perod")
    assert done.code == 2
    assert "no section or setting 'gateway.perod'; did you mean gateway.period?" in done.told()


FLAGS = (
    ("--method", "semi-async", "--set", "gateway.period=50", "--set", "device.learning_rate=0.02"),
    ("--task", "har", "--network", "uniform", "--preset", "paper", "--seed", "5"),
    (
        "--task",
        "null",
        "--network",
        "uniform",
        "--set",
        "network.gateways=3",
        "--set",
        "outages.schedule=['9 link 1-1 down']",
    ),
)


@pytest.mark.parametrize("everything", [False, True])
@pytest.mark.parametrize("flags", FLAGS)
def test_a_run_file_gives_the_run_of_its_flags(flags: tuple[str, ...], everything: bool, call: Call) -> None:
    assert call("init", "mine.toml", *flags, *(["--all"] if everything else [])).code == 0
    pairs = dict(zip(flags[::2], flags[1::2], strict=True))
    sets = [value for key, value in zip(flags[::2], flags[1::2], strict=True) if key == "--set"]
    chosen = {key.removeprefix("--"): value for key, value in pairs.items() if key not in ("--set", "--seed")}
    seed = int(pairs["--seed"]) if "--seed" in pairs else None
    wanted = compose(None, **chosen, seed=seed, overrides=sets)
    assert compose(Path("mine.toml")) == wanted
    # The settings behind # may all be used: they have the values that hold anyway.
    text = Path("mine.toml").read_text()
    used = re.sub(r"^# (\w+ = )", r"\1", text, flags=re.MULTILINE)
    assert used != text
    Path("used.toml").write_text(used)
    assert compose(Path("used.toml")) == wanted
    listed = len(re.findall(r"^#? ?\w+ = ", text, re.MULTILINE))
    assert listed > 90 if everything else listed < 60


def test_init_writes_a_file_that_explains_itself(call: Call) -> None:
    assert call("init", "--method", "semi-async", "--set", "gateway.period=50").out.startswith(
        "run.toml: `async-hfl run run.toml`"
    )
    text = Path("run.toml").read_text()
    assert tomllib.loads(text)["gateway"] == {"period": 50}
    assert "duration of a period" in text
    assert '# aggregation = "periods"' in text
    assert max(map(len, text.splitlines())) <= 120
    done = call("init")
    assert done.code == 2
    assert "run.toml: exists already" in done.told()
    assert "cannot be written" in call("init", "no/such/run.toml").told()
    assert "unknown setting gateway.perod" in call("init", "x.toml", "--set", "gateway.perod=50").told()


def test_the_run_files_of_the_page(call: Call) -> None:
    page = (DOCS / "run-files.md").read_text()
    (commands,) = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)
    first, second = (line.split()[1:] for line in commands.splitlines())
    assert call(*first).code == 0
    short = ("--set", "cloud.epochs=2", "--set", "task.devices=10", "--set", "network.gateways=2", "--json")
    assert call(*second, *short).json["method"] == "semi-async"
    blocks = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    assert len(blocks) == 2
    for number, block in enumerate(blocks):
        Path(f"{number}.toml").write_text(block)
        done = call("run", f"{number}.toml", "--set", "cloud.epochs=2", "--json")
        assert done.code == 0, done.err
