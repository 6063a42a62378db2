"""The conditions of the convergence theorem: for which methods they are shown, and when they are met."""

from __future__ import annotations

from typing import Any

import pytest

from async_hfl.assembly.settings.loading import as_table, available, compose
from async_hfl.reports.tables.convergence import conditions, conditions_table, is_covered, staleness_text

CONSTANT = "staleness.kind=constant"


def settings(method: str = "async-hfl", *overrides: str) -> dict[str, Any]:
    return as_table(compose(method=method, overrides=overrides).settings)


def test_as_published_no_method_has_a_constant_staleness() -> None:
    assert not any(is_covered(settings(method)) for method in available("method"))


@pytest.mark.parametrize(
    ("method", "more", "covered"),
    [
        ("async-hfl", (), True),
        ("async-random", (), True),
        ("two-tier", (), False),  # gateways do not mix
        ("semi-async", (), False),
        ("rfl-ha", (), False),
        ("async-hfl", ("gateway.drag=0.5",), False),  # not a whole model
        ("async-hfl", ("gateway.during_upload=continue",), False),
    ],
)
def test_methods_that_the_theorem_covers(method: str, more: tuple[str, ...], covered: bool) -> None:
    assert is_covered(settings(method, CONSTANT, *more)) == covered


def test_every_condition_is_checked() -> None:
    seen = {"K_c": 4, "K_g": 9}
    kept = (CONSTANT, "cloud.mixing_weight=0.125", "gateway.mixing_weight=0.03", "device.momentum=0.0")
    met = settings("async-hfl", *kept, "device.proximal_weight=0.6")
    assert [(one.limit, one.met) for one in conditions(met, seen)] == [
        (0.125, True),
        (pytest.approx(1 / 27), True),
        (0.5, True),
        (0.0, True),
    ]
    missed = settings("async-hfl", CONSTANT, "cloud.mixing_weight=0.126", "gateway.mixing_weight=0.04")
    assert [one.met for one in conditions(missed, seen)] == [False, False, False, False]
    assert [one.met for one in conditions(missed, {"K_c": 0, "K_g": 1})] == [True, True, False, False]


def test_adam_takes_no_plain_steps() -> None:
    adam = settings("async-hfl", CONSTANT, "device.optimiser=adam", "device.adam_beta1=0")
    last = conditions(adam, {"K_c": 0, "K_g": 0})[-1]
    assert (last.name, last.met) == ("plain steps: beta_1 of adam", False)


def test_what_a_run_says() -> None:
    summary = {"convergence": {"K_c": 2, "K_g": 3}}
    plain, covered = {"settings": settings()}, {"settings": settings("async-hfl", CONSTANT)}
    assert staleness_text(plain, summary) == "at most 2 at the cloud, 3 at a gateway"
    assert conditions_table(plain, summary) is None
    assert staleness_text(covered, summary).endswith(
        "conditions of the convergence theorem not met: alpha <= K_c^-1.5, beta <= K_g^-1.5, rho > 1/2, "
        "plain steps: no momentum"
    )
    table = conditions_table(covered, summary)
    assert table is not None
    assert [row[3] for row in table.rows] == [False, False, False, False]
    assert "gamma <= 1/L" in table.notes[1]
