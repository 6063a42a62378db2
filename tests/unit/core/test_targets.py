"""Targets: the moments at which a metric passes them, by hand and against an exact computation."""

from __future__ import annotations

from bisect import bisect_right
from fractions import Fraction
from math import inf, nan

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from async_hfl.core.maths.milestones import Reached, Track
from async_hfl.core.maths.targets import Target, TargetProgress, progress_over

HALF = Target("accuracy", 0.5, window=4.0)
Steps = list[tuple[float, float]]


def mirrored(target: Target) -> Target:
    return Target(target.metric, -target.threshold, "at_most", target.window)


def progress_after(target: Target, *values: float) -> TargetProgress:
    progress = TargetProgress()
    for at, value in enumerate(values, start=1):
        progress = progress.after(target, value, float(at))
    return progress


# The mean of three evaluations -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "first", "held"),
    [
        ((0.5, 0.6, 0.7), None, None),
        ((0.95, 0.1, 0.1, 0.1), 1.0, None),  # a single crossing is not the target
        ((0.95, 0.95), 1.0, None),  # nor are two
        ((0.95, 0.95, 0.95), 1.0, 3.0),
        ((0.5, 0.75, 1.0, 1.0), 3.0, 4.0),  # means 0.75 and 0.917
        ((1.0, 1.0, 1.0, 0.0, 0.0, 0.0), 1.0, 3.0),  # what was reached stays reached
    ],
)
def test_without_a_window_the_mean_of_three_counts(
    values: tuple[float, ...], first: float | None, held: float | None
) -> None:
    target = Target("accuracy", 0.9)
    progress = progress_after(target, *values)
    assert (progress.first_at, progress.held_at) == (first, held)
    # A metric that should be small: the mirror image.
    progress = progress_after(mirrored(target), *(-value for value in values))
    assert (progress.first_at, progress.held_at) == (first, held)


def test_the_threshold_itself_passes() -> None:
    assert Target("accuracy", 0.5).passes(0.5)
    assert Target("error", 0.5, "at_most").passes(0.5)
    assert not Target("error", 0.5, "at_most").passes(0.51)
    # Two small errors are no mean of three, however small their sum.
    assert progress_after(Target("error", 0.5, "at_most"), 0.6, 0.6).held_at is None
    assert progress_after(Target("error", 0.5, "at_most"), 0.6, 0.6, 0.2).held_at == 3.0


# The mean over a window ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("steps", "due", "held"),
    [
        # Half of the window (8, 12] is above by as much as the other half is below.
        ([(0.0, 0.0), (10.0, 1.0)], 12.0, 10.0),
        # With x seconds of the window above: 0.75 x = 0.25 (4 - x).
        ([(0.0, 0.25), (10.0, 1.25)], 11.0, 9.0),
        # The first window begins with the first evaluation.
        ([(3.0, 0.75)], 7.0, 5.0),
        ([(3.0, 0.5)], 7.0, 5.0),
        # A spike of one second among zeros never fills half of four seconds ...
        ([(0.0, 0.0), (10.0, 1.0), (11.0, 0.0)], inf, None),
        # ... two seconds do, the moment they end.
        ([(0.0, 0.0), (10.0, 1.0), (12.0, 0.0)], 12.0, 10.0),
        # The window leaves the zeros: (14 - end) 0.5 = 0.5 - (end - 11) / 16. With less than 0.5 - 1/6 it never passes.
        ([(0.0, 0.0), (10.0, 1.0), (11.0, 0.4375)], 93 / 7, 93 / 7 - 2),
        ([(0.0, 0.0), (10.0, 1.0), (11.0, 0.25)], inf, None),
        # The target is reached while a later evaluation is still far away.
        ([(0.0, 0.0), (10.0, 1.0), (50.0, 0.0)], 12.0, 10.0),
        # No window may contain a value that is not finite: the next evaluation begins anew.
        ([(0.0, 1.0), (3.0, nan), (5.0, 1.0)], 9.0, 7.0),
        ([(0.0, 1.0), (3.0, -inf), (5.0, 1.0)], 9.0, 7.0),
    ],
)
def test_held_by_hand(steps: Steps, due: float, held: float | None) -> None:
    progress = progress_over(HALF, steps, 100.0)
    assert progress.held_at == (None if held is None else pytest.approx(held, abs=1e-12))
    other = progress_over(mirrored(HALF), [(at, -value) for at, value in steps], 100.0)
    assert other.held_at == progress.held_at
    if held is not None:  # it is known when the window ends, and not before
        assert progress_over(HALF, [step for step in steps if step[0] <= due], due + 1e-9).held_at == progress.held_at
        before = due - 1e-9
        assert progress_over(HALF, [step for step in steps if step[0] <= before], before).held_at is None


def test_what_was_held_stays_held() -> None:
    progress = progress_over(HALF, [(0.0, 1.0), (5.0, 0.0), (6.0, 0.0), (30.0, 1.0)], 90.0)
    assert (progress.first_at, progress.held_at, progress.steps) == (0.0, 2.0, ())


def test_only_the_steps_of_the_last_window_are_kept() -> None:
    progress = progress_over(HALF, [(float(at), (at % 2) / 4) for at in range(1000)], 1000.0)
    assert [at for at, _ in progress.steps] == [995.0, 996.0, 997.0, 998.0, 999.0]


times = st.lists(st.integers(0, 60), min_size=1, max_size=12, unique=True).map(sorted)
metrics = st.integers(0, 16).map(lambda sixteenth: sixteenth / 16)


@st.composite
def step_functions(draw: st.DrawFn) -> Steps:
    at = draw(times)
    return [(float(one), draw(metrics)) for one in at]


def exact_end(steps: Steps, until: float, threshold: float, window: float) -> Fraction | None:
    """Return the end of the first window whose mean is at least the threshold, from areas at every breakpoint."""
    begins = [Fraction(at) for at, _ in steps]
    excess = [Fraction(value) - Fraction(threshold) for _, value in steps]
    last, wide = Fraction(until), Fraction(window)

    def mean(end: Fraction) -> Fraction:
        ends = [*begins[1:], max(last, end)]
        low = end - wide
        return sum(
            (e * max(Fraction(0), min(b, end) - max(a, low)) for e, a, b in zip(excess, begins, ends, strict=True)),
            Fraction(0),
        )

    moments = sorted({b for a in begins for b in (a, a + wide) if begins[0] + wide <= b <= last} | {last})
    if moments[0] < begins[0] + wide:
        return None
    before: Fraction | None = None
    for moment in moments:
        if mean(moment) >= 0:
            if before is None:
                return moment
            low, high = mean(before), mean(moment)
            return before + (moment - before) * -low / (high - low)
        before = moment
    return None


@given(step_functions(), st.integers(0, 80), metrics, st.integers(1, 12))
@example([(0.0, 0.0), (10.0, 1.0), (12.0, 0.0)], 60, 0.5, 4)
def test_held_is_the_first_window_of_all(steps: Steps, more: int, threshold: float, window: int) -> None:
    until = steps[-1][0] + more
    exact = exact_end(steps, until, threshold, window)
    target = Target("accuracy", threshold, window=float(window))
    held = progress_over(target, steps, until).held_at
    assert held == (None if exact is None else pytest.approx(float(exact) - window / 2, abs=1e-9))


@given(step_functions(), st.lists(st.floats(0, 80), max_size=6), metrics, st.floats(0.5, 12))
def test_it_does_not_matter_how_often_an_unchanged_model_is_evaluated(
    steps: Steps, again: list[float], threshold: float, window: float
) -> None:
    at = [one for one, _ in steps]
    repeated = {one: steps[bisect_right(at, one) - 1][1] for one in again if one >= at[0]}
    target = Target("accuracy", threshold, window=window)
    assert (
        progress_over(target, sorted({**repeated, **dict(steps)}.items()), 90.0).held_at
        == progress_over(target, steps, 90.0).held_at
    )


@given(step_functions(), metrics, st.floats(0.5, 12), st.floats(0, 90))
def test_nothing_is_known_too_early_and_nothing_changes_later(
    steps: Steps, threshold: float, window: float, until: float
) -> None:
    """The decision at a moment needs only what was evaluated before, and the whole run confirms it."""
    target = Target("accuracy", threshold, window=window)
    so_far = progress_over(target, [step for step in steps if step[0] <= until], until).held_at
    whole = progress_over(target, steps, 90.0).held_at
    if so_far is not None:
        assert so_far == whole
        assert so_far + window / 2 <= until + 1e-9
    elif whole is not None:
        assert whole + window / 2 >= until - 1e-9


# The state of a run at that moment -------------------------------------------------------------------------------


def test_bytes_and_updates_are_interpolated() -> None:
    states = [Reached(0.0, 0, 0, 0), Reached(8.0, 800, 80, 8), Reached(12.0, 1600, 120, 10)]
    track = Track(states, [0.0, 0.0, 1.0], Reached(20.0, 2400, 360, 18))
    found = track.milestones(HALF)
    assert found.first == states[2]
    assert found.held == states[2]  # half of (10, 14] passes: 12 is an evaluation itself
    found = track.milestones(Target("accuracy", 0.25, window=4.0))
    assert found.held == Reached(11.0, 1400, 110, round(9.5))
    found = track.milestones(Target("accuracy", 1.0, window=4.0))  # known at 16, long after the last evaluation
    assert found.held == Reached(14.0, 1800, 180, 12)
    assert track.milestones(Target("accuracy", 1.0, window=9.0)).held is None  # the run ended before that was known
    nothing = Track([], [], Reached(0.0, 0, 0, 0)).milestones(HALF)
    assert (nothing.held, nothing.first) == (None, None)
