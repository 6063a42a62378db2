"""The page of one method against its best rivals, with ratios worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest
from kept_rows import measured, row

from async_hfl.core.errors import UserError
from async_hfl.experiments.comparison.report import markdown
from async_hfl.experiments.results.kept_run import KeptRun
from async_hfl.experiments.rivals.competitors import problems
from async_hfl.experiments.rivals.page import rivals_page
from async_hfl.experiments.tuning.tuned import Tuned
from async_hfl.reports.tables.table import Spread, Table

MINE = "async-hfl-plus"
TUNED = Tuned(settings={"device.learning_rate": 0.1}, seeds=[91, 92], digest="abc", made="2026-11-19T11:00:00+00:00")


def runs(name: str, costs: list[tuple[float, float]], **more: Any) -> list[KeptRun]:
    """Return runs with seeds 101, 102, ... that reached 0.8 and 0.9 after these seconds and bytes."""
    return [
        row(name, 101 + number, measured({0.8: cost, 0.9: cost}, (1000, 1000)), **({"tuned": TUNED} | more))
        for number, cost in enumerate(costs)
    ]


def rows() -> list[KeptRun]:
    """Over tuned plus: quick is 2 and 8 times as slow (geometric mean 4), thrifty 5 and 20 (10)."""
    return [
        *runs(MINE, [(10, 10), (10, 10)]),
        *runs("plus, untuned", [(20, 20), (20, 20)], method=MINE, tuned=None),
        *runs("quick", [(20, 90), (80, 90)]),
        *runs("thrifty", [(50, 30), (200, 30)]),
        *runs("quick + int8", [(11, 20), (11, 20)], method="quick", role="equipped"),
        *runs("thrifty + int8", [(12, 15), (12, 15)], method="thrifty", role="equipped"),
        *runs("without momentum", [(30, 10), (30, 20)], method=MINE, role="ablation", base=MINE),
        row("quick", 91, measured({0.8: (1, 1), 0.9: (1, 1)}, (9, 9)), role="tuning"),
    ]


def cells(table: Table) -> list[dict[str, Any]]:
    names = [column.name for column in table.columns]
    return [dict(zip(names, one, strict=True)) for one in table.rows]


def value(cell: Any) -> tuple[str, float]:
    assert isinstance(cell, Spread)
    assert cell.value is not None
    return cell.bound, pytest.approx(cell.value)  # type: ignore[return-value]


def table(title: str, of: list[KeptRun]) -> list[dict[str, Any]]:
    return next(cells(one) for one in rivals_page(of, MINE).tables if title in one.title)


def test_the_best_rival_is_chosen_for_time_and_bytes_separately() -> None:
    time, sent = table("Against the best rival", rows())
    assert (time["cost"], time["level"], time["best rival"], time["best equipped rival"]) == (
        *("time", 0.9, "quick"),
        "quick + int8",
    )
    assert (sent["cost"], sent["best rival"], sent["best equipped rival"]) == ("bytes", "thrifty", "thrifty + int8")
    assert value(time["tuned"]) == ("", 4.0)
    assert value(time["packaged"]) == ("", 2.0)
    assert value(sent["tuned"]) == ("", 3.0)
    assert value(time["tuned, equipped"]) == ("", 1.1)
    assert value(sent["packaged, equipped"]) == ("", 0.75)
    assert time["tuned"].low == pytest.approx(4 * 2**-12.7062, rel=1e-3), "t(1) ln 2, as in the statistics' test"


def test_the_headline_is_the_highest_level_that_everybody_held() -> None:
    """One rival never holds 0.9 with seed 102: the table has 0.8, and 0.9 with the rival's horizon beside it."""
    never = measured({0.8: (500, 500), 0.9: None}, (1000, 1000))
    some = [one for one in rows() if one.method == MINE and one.role == "compared"]
    rival = [*runs("slow", [(100, 100)]), row("slow", 102, never, tuned=TUNED)]
    low, _, target, _ = table("Against the best rival", [*some, *rival])
    assert (low["level"], target["level"]) == (0.8, 0.9)
    assert value(low["tuned"]) == ("", pytest.approx((10 * 50) ** 0.5))
    assert value(target["tuned"]) == (">", pytest.approx((10 * 100) ** 0.5))


def test_costs_of_runs_that_never_arrive_are_marked() -> None:
    never = measured({0.9: None}, (1000, 5000), worst_class=0.2, worst_device=0.3, left_out=4)
    mine = [row(MINE, 101, measured({0.9: (10, 10)}, (20, 20), worst_class=0.8, worst_device=0.7, left_out=0))]
    one, other = table("cost to reach 0.9", [*mine, row("slow", 101, never)])
    assert (one["method"], one["reached"], one["worst class"], one["worst device"]) == (MINE, "1 of 1", 0.8, 0.7)
    assert (other["method"], other["reached"], other["left out"]) == ("slow", "0 of 1", 4)
    assert (value(other["time"]), value(other["bytes"])) == ((">", 1000.0), (">", 5000.0))
    assert not any(role in other for role in ("lost", "role"))


def test_a_rival_without_all_seeds_is_not_the_best() -> None:
    alone = runs("lucky", [(1, 1)])
    time, sent = table("Against the best rival", [*rows(), *alone])
    assert (time["best rival"], sent["best rival"]) == ("quick", "thrifty")
    first, *_ = rivals_page([*rows(), *alone], MINE).tables
    assert "digits: not considered, since runs of them are missing: lucky." in first.notes
    assert not any("not considered" in note for note in rivals_page(rows(), MINE).tables[0].notes)


def test_a_ratio_that_seeds_bound_from_both_sides_is_undecided() -> None:
    never = measured({0.9: None}, (1000, 5000))
    mine = [*runs(MINE, [(10, 10)]), row(MINE, 102, never, tuned=TUNED)]
    rival = [row("slow", 101, never, tuned=TUNED), row("slow", 102, measured({0.9: (20, 20)}, (99, 99)), tuned=TUNED)]
    time, _ = table("Against the best rival", [*mine, *rival])
    assert time["tuned"] == Spread(None, text="undecided")
    none = [row("slow", seed, never, tuned=TUNED) for seed in (101, 102)]
    time, _ = table("Against the best rival", [*[row(MINE, 101, never, tuned=TUNED), mine[1]], *none])
    assert time["tuned"] == Spread(None, text="neither arrives")


def test_the_ablation_stands_beside_its_base() -> None:
    (one,) = table("ablation at 0.9", rows())
    assert (one["variant"], one["of"]) == ("without momentum", MINE)
    assert (value(one["time"]), value(one["bytes"])) == (("", 3.0), ("", pytest.approx(2**0.5)))


def test_the_order_of_tuning_and_runs_is_told() -> None:
    (one,) = table("Order of tuning and runs", rows())
    assert (one["seeds"], one["runs"], one["made twice"], one["made before"]) == ("101, 102", 14, 0, 0)
    assert (one["settings chosen"], one["tuning file"]) == ("2026-11-19 11:00:00", "abc")
    early = runs(MINE, [(10, 10), (10, 10)], made="2026-11-19T10:59:00+00:00")
    (one,) = table("Order of tuning and runs", [*rows(), *early])
    assert (one["made twice"], one["made before"]) == (2, 2)


def test_every_table_names_what_was_tuned() -> None:
    page = rivals_page(rows(), MINE, "async-hfl rivals rows.jsonl")
    for one in page.tables[:-1]:
        assert any("Tuned on seeds 91, 92, which are not reported (tuning file abc)" in note for note in one.notes)
    best, _, ablation, _ = page.tables
    assert not any("without momentum:" in note for one in page.tables for note in one.notes), "it has its method's"
    assert any(f"{MINE}: device.learning_rate=0.1" in note for note in ablation.notes)
    assert any("quick: device" in note and "thrifty: device" in note for note in best.notes)
    text = markdown(page)
    assert "digits, to 0.9: cost of the best rival over that of async-hfl-plus: time 4.00x" in text
    assert "async-hfl rivals rows.jsonl" in text


def test_results_on_a_seed_of_the_tuning_are_refused() -> None:
    used = row("other", 91, measured({0.9: (1, 1)}, (9, 9)))
    with pytest.raises(UserError, match="digits: other: seed 91 was used by the tuning"):
        rivals_page([*rows(), used], MINE)


def test_two_results_of_one_group_and_seed_are_refused() -> None:
    again = row("quick", 101, measured({0.9: (1, 1)}, (9, 9)), tuned=TUNED, digest="another")
    with pytest.raises(UserError, match="digits: quick with seed 101 has two results with different settings"):
        problems([*rows(), again])


def test_an_unknown_method_is_refused() -> None:
    with pytest.raises(UserError, match=r"--method none: not among the kept results, which have async-hfl-plus, quick"):
        rivals_page(rows(), "none")
