"""The plans of docs/results/comparison.md, one file for each problem; they differ in task, network, preset and horizon.

    python benchmarks/campaigns/make_plans.py          # writes the *.toml files beside it

How they are used is described in README.md beside this file.
"""

from __future__ import annotations

from pathlib import Path

HERE = Path(__file__).parent
SEEDS = "[101, 102, 103, 104, 105]"
PLUS = "async-hfl-plus"
MOST = ("async-hfl", "async-random", "two-tier", "semi-async", "fedbuff", "rfl-ha", "sync-random", "sync-oort")
ALL = (*MOST, "async-hl", "async-age", "sync-tifl", "sync-divfl")
BEST = ("async-hfl", "two-tier", "semi-async", "fedbuff", "sync-oort")
EQUIPPED = ("async-random", "two-tier", "semi-async", "fedbuff", "sync-oort")
AVERAGED = ("semi-async", "fedbuff", "sync-oort", "sync-random", "sync-tifl", "sync-divfl")
"""Methods whose cloud averages, which can be given momentum."""

WITHOUT = {
    "shares of the data": {"gateway.weighting": "period", "staleness.kind": "polynomial"},
    "gain (1)": {"gateway.gain": 1.0},
    "constant staleness": {"staleness.kind": "polynomial"},
    "observed period (100 s)": {"gateway.period": 100.0},
    "an upload each period (Z = 5)": {"gateway.epochs": 5},
    "immediate refill": {"gateway.refill": "period"},
    "uploads that do not wait": {"gateway.during_upload": "wait"},
    "even association": {"association.policy": "random", "association.max_latency_ratio": float("inf")},
    "light updates": {"transfer.up": "float32", "transfer.down": "float32"},
    "int4 upwards (int8)": {"transfer.up": "int8"},
}
"""An ingredient of the method -> the settings without it."""
INSTEAD = {
    "momentum 0.3": {"cloud.momentum": 0.3},
    "utility selection": {"selection.policy": "utility-knapsack", "utility.gradient": "update"},
    "balanced-utility association": {"association.policy": "balanced-utility", "utility.gradient": "update"},
    "a warm-up": {"warmup.enabled": True},
}
"""Ingredients that the method leaves out -> the settings with them."""
GIVEN = {
    "shares of the data, gain 1.5": {"gateway.weighting": "share", "staleness.kind": "constant"},
    "observed period": {"gateway.period": "auto"},
    "an upload each period": {"gateway.epochs": 1},
    "immediate refill": {"gateway.refill": "immediate"},
    "uploads that do not wait": {"gateway.during_upload": "continue"},
    "even association": {"association.policy": "even", "association.max_latency_ratio": 2.0},
    "light updates": {"transfer.up": "int4", "transfer.down": "int8"},
}
"""Ingredients that semi-async can be given."""


def text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f'"{value}"' if isinstance(value, str) else f"{value}"


def table(settings: dict[str, object]) -> str:
    return "{ " + ", ".join(f"{key} = {text(value)}" for key, value in settings.items()) + " }"


def case(methods: str | tuple[str, ...], label: str = "", **more: object) -> list[str]:
    named = text(methods) if isinstance(methods, str) else "[" + ", ".join(map(text, methods)) + "]"
    lines = ["", "[[case]]", f"methods = {named}"]
    lines += [f"label = {text(label)}"] if label else []
    return lines + [f"{key} = {table(v) if isinstance(v, dict) else text(v)}" for key, v in more.items()]


def equipped(method: str) -> list[str]:
    if method in AVERAGED:
        settings: dict[str, object] = {"transfer.encoding": "int8", "cloud.momentum": 0.5}
        return case(method, f"{method} + int8 + momentum", role="equipped", set=settings)
    return case(method, f"{method} + int8", role="equipped", set={"transfer.encoding": "int8"})


def ablation() -> list[str]:
    lines: list[str] = []
    for name, settings in WITHOUT.items():
        lines += case(PLUS, f"without {name}", role="ablation", base=PLUS, set=settings)
    for name, settings in INSTEAD.items():
        lines += case(PLUS, f"with {name}", role="ablation", base=PLUS, set=settings)
    for name, settings in GIVEN.items():
        lines += case("semi-async", f"semi-async with {name}", role="ablation", base="semi-async", set=settings)
    return lines


def plan(
    file: str,
    task: str,
    rivals: tuple[str, ...],
    horizon: int,
    *,
    panel: str = "",
    seeds: str = SEEDS,
    places: dict[str, str] | None = None,
    settings: dict[str, object] | None = None,
    stronger: tuple[str, ...] = EQUIPPED,
    parts: bool = False,
) -> None:
    chosen: dict[str, object] = {
        "cloud.epochs": 100_000,
        "cloud.time_limit": horizon,
        "cloud.epochs_after_target": 20,
        **(settings or {}),
    }
    lines = ["# Written by make_plans.py.", f"tasks = {text(task)}", f"seeds = {seeds}", 'tuning = "tuning.toml"']
    lines += [f"{key} = {text(value)}" for key, value in (places or {}).items()]
    lines += [f"panel = {text(panel)}"] if panel else []
    lines += ["", "[set]", *(f"{key} = {text(value)}" for key, value in chosen.items())]
    lines += case((PLUS, *rivals))
    lines += case(PLUS, f"{PLUS}, untuned", tuning="")
    for method in stronger:
        lines += equipped(method)
    if parts:
        lines += ablation()
    (HERE / f"{file}.toml").write_text("\n".join(lines) + "\n")


CHURN: dict[str, object] = {"outages.device_up": 9000.0, "outages.device_down": 1000.0}
TF32: dict[str, object] = {"engine.precision": "tf32"}
ONE_PASS: dict[str, object] = {"device.epochs": 1}


def main() -> None:
    for task, horizon, quick, rivals, own in (
        ("digits", 30_000, 2_500, ALL, {}),
        ("har", 60_000, 6_000, ALL, {}),
        ("mnist", 40_000, 4_000, BEST, TF32),
    ):
        others = MOST if rivals is ALL else BEST
        stronger = EQUIPPED if rivals is ALL else EQUIPPED[2:]
        plan(task, task, rivals, horizon, settings=own, stronger=stronger, parts=True)
        places = {"presets": "paper"}
        plan(f"{task}-paper", task, others, horizon, places=places, settings=own, stronger=stronger)
        places = {"networks": "nycmesh"}
        plan(f"{task}-radio", task, others, quick, places=places, settings=own, stronger=stronger)
        panel, churn = f"{task}, a tenth of the devices down", {**own, **CHURN}
        plan(f"{task}-churn", task, others, horizon, panel=panel, settings=churn, stronger=stronger)
    stronger = EQUIPPED[2:4]
    plan("fashion-mnist", "fashion-mnist", BEST, 40_000, settings=TF32, stronger=stronger)
    one_pass = {**TF32, **ONE_PASS}
    plan("shakespeare", "shakespeare", BEST, 40_000, settings=one_pass, stronger=stronger)
    plan("hpwren", "hpwren", BEST, 200_000, settings=one_pass, stronger=stronger)
    bf16: dict[str, object] = {"engine.precision": "bf16", **ONE_PASS}
    few = ("async-hfl", "semi-async", "fedbuff")
    plan("cifar10", "cifar10", few, 60_000, seeds="[101, 102]", settings=bf16, stronger=("semi-async",))


if __name__ == "__main__":
    main()
