"""The search of a tuning: the points it asks for, and the criterion by which it chooses."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import pytest
from kept_rows import measured

from async_hfl.assembly.settings.loading import compose
from async_hfl.experiments.tuning.ranking import level_of, rank, score
from async_hfl.experiments.tuning.search import Point, search
from async_hfl.experiments.tuning.tunables import Tunable, geometric, linear, tunables_of

Cost = Callable[[Point], float]


def everything(point: Point) -> bool:
    return True


def searched(
    cost: Cost, settings: int, budget: int, allowed: Callable[[Point], bool] = everything
) -> tuple[Point, list[list[Point]]]:
    """Search the minimum of a function, and return it with the batches of points that were asked for."""
    running, batches = search(settings, budget, allowed), []
    batch = next(running)
    while True:
        batches.append(batch)
        try:
            batch = running.send(lambda point: (cost(point),))
        except StopIteration as end:
            return end.value, batches


def test_the_grid_is_followed_to_its_best_point_and_refined_there() -> None:
    best, batches = searched(lambda point: abs(point[0] - 2.4), 1, 12)
    assert batches == [[(0.0,), (1.0,), (-1.0,)], [(2.0,)], [(3.0,)], [(2.5,), (1.5,)]]
    assert best == (2.5,)


def test_the_first_of_several_settings_takes_half_of_the_points_and_the_others_share_the_rest() -> None:
    best, batches = searched(lambda point: -sum(point), 3, 12)  # better without end
    asked = [point for batch in batches for point in batch]
    assert best == (4.0, 2.0, 2.0)
    assert [sum(any(point[place:]) and not any(point[place + 1 :]) for point in asked) for place in range(3)] == [
        5,
        3,
        3,
    ]
    assert len(asked) == len(set(asked)) == 12


@pytest.mark.parametrize("budget", range(1, 15))
@pytest.mark.parametrize("settings", [1, 2, 3])
def test_the_budget_is_kept(settings: int, budget: int) -> None:
    _, batches = searched(lambda point: sum((step - 1.3) ** 2 for step in point), settings, budget)
    asked = [point for batch in batches for point in batch]
    assert len(asked) == len(set(asked)) <= budget
    assert asked[0] == (0.0,) * settings


def test_of_two_half_steps_the_one_on_the_better_side_is_measured() -> None:
    _, batches = searched(lambda point: abs(point[0] - 0.2), 1, 4)
    assert batches[-1] == [(0.5,)]
    _, batches = searched(lambda point: abs(point[0] + 0.2), 1, 4)
    assert batches[-1] == [(-0.5,)]


def test_points_outside_of_the_range_are_not_measured() -> None:
    _, batches = searched(lambda point: point[0], 1, 12, allowed=lambda point: point[0] >= -1)
    assert batches == [[(0.0,), (1.0,), (-1.0,)], [(-0.5,)]]


def test_values_lie_on_a_grid_around_the_packaged_one() -> None:
    rate, momentum = geometric(10**0.5), linear(0.2, 0.1, 0.9)
    assert [rate(0.003, steps) for steps in (-1, 0, 0.5, 1, 2)] == [0.00095, 0.003, 0.0053, 0.0095, 0.03]
    assert [momentum(0.5, steps) for steps in (-2.5, -2, 0, 0.5, 2, 2.5)] == [None, 0.1, 0.5, 0.6, 0.9, None]


def test_a_percentage_has_values_of_its_own() -> None:
    either = Tunable("gateway.bandwidth", geometric(2.0), percentages=linear(20, 10, 95))
    assert [either.value("50%", steps) for steps in (-2, -1, 0, 0.5, 3)] == ["10%", "30%", "50%", "60%", None]
    assert either.value(200.0, 1) == 400.0
    tight, fixed = (compose(preset="tight", overrides=more).settings for more in ([], ["gateway.bandwidth=2e4"]))
    assert (either.usual(tight), either.usual(fixed)) == ("50%", 20000.0)
    assert Tunable("gateway.bandwidth", geometric(2.0)).usual(tight) is None


def tuned_settings(method: str, *overrides: str, preset: str = "tight") -> dict[str, float | str]:
    composed = compose(task="har", method=method, preset=preset, overrides=overrides)
    return {one.setting: value for one, value in tunables_of(composed.settings).items()}


def test_what_can_be_tuned_follows_from_the_settings_of_the_method() -> None:
    rate = {"device.learning_rate": 0.003}
    assert tuned_settings("async-hfl") == rate
    assert tuned_settings("semi-async") == rate | {"gateway.period": 100.0}
    assert tuned_settings("semi-async", "gateway.period=auto") == rate
    assert tuned_settings("semi-async", "cloud.momentum=0.3") == rate | {"gateway.period": 100.0, "cloud.momentum": 0.3}
    adam = tuned_settings("semi-async", "cloud.optimiser=adam", "cloud.adam_rate=0.02")
    assert adam == rate | {"gateway.period": 100.0, "cloud.adam_rate": 0.02}
    assert tuned_settings("sync-random") == rate | {"gateway.round_deadline": "75%"}
    assert tuned_settings("sync-random", "gateway.round_deadline=200") == rate | {"gateway.round_deadline": 200.0}
    assert tuned_settings("sync-random", preset="paper") == rate, "no deadline"


def test_a_given_setting_is_not_tuned() -> None:
    composed = compose(task="har", method="semi-async")
    names = [one.setting for one in tunables_of(composed.settings, fixed=["device.learning_rate"])]
    assert names == ["gateway.period"]


A, B, C = (0.0,), (1.0,), (-1.0,)


def test_points_are_compared_at_the_highest_level_that_one_of_them_held_with_every_seed() -> None:
    """B holds 0.9 with both seeds, after 400 and 100 s: 200 s. A, which is faster to 0.8, holds it with one of them."""
    slow = [measured({0.8: (90, 0), 0.9: (400, 0)}, (500, 0)), measured({0.8: (90, 0), 0.9: (100, 0)}, (500, 0))]
    fast = [measured({0.8: (10, 0), 0.9: (50, 0)}, (500, 0)), measured({0.8: (10, 0), 0.9: None}, (500, 0))]
    results = {A: fast, B: slow}
    assert level_of(results, 0.9) == 0.9
    assert min(results, key=partial(rank, results, 0.9)) == B
    found = score(results, B, 0.9)
    assert found is not None
    assert (found.reached, found.time) == (2, pytest.approx(200.0))
    late = score(results, A, 0.9)
    assert late is not None
    assert late.time == pytest.approx(math.sqrt(50 * 500)), "the horizon counts"
    assert level_of({A: fast}, 0.9) == 0.8
    assert level_of(results, 0.8) == 0.8, "runs end at the target"


def test_losses_fall_to_their_level() -> None:
    one = [measured({0.2: (10, 0), 0.1: (30, 0), 0.05: (40, 0)}, (50, 0), direction="at_most")]
    two = [measured({0.2: (20, 0), 0.1: (20, 0), 0.05: None}, (50, 0), direction="at_most")]
    results = {A: one, B: two}
    assert level_of(results, 0.1) == 0.1
    assert min(results, key=partial(rank, results, 0.1)) == B


def test_a_level_that_nobody_held_with_every_seed() -> None:
    never = measured({0.8: None}, (100, 0))
    results = {A: [never, never], B: [measured({0.8: (90, 0)}, (100, 0)), never]}
    assert level_of(results, 0.9) == 0.8
    assert min(results, key=partial(rank, results, 0.9)) == B


def test_without_any_level_the_last_models_decide_and_then_the_distance() -> None:
    def bad(final: float | None) -> list:  # type: ignore[type-arg]
        return [measured({0.8: None}, (100, 0), final=final)]

    results = {A: bad(0.3), B: bad(0.5), C: bad(None)}
    assert level_of(results, 0.9) is None
    assert sorted(results, key=partial(rank, results, 0.9)) == [B, A, C]
    equal = {B: bad(0.3), A: bad(0.3)}
    assert min(equal, key=partial(rank, equal, 0.9)) == A
