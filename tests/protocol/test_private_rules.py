"""Private aggregation at a gateway: the clip and the noise by hand, from their named stream, and what stays inside."""

from __future__ import annotations

from math import isnan
from typing import Any

import numpy as np
from protocol_stage import Stage, assert_close

from async_hfl.core.protocol import messages as m
from async_hfl.core.protocol.events import Started
from async_hfl.core.randomness import stream
from async_hfl.nodes.config import Privacy
from async_hfl.nodes.gateway.aggregation.periods import Periods
from async_hfl.nodes.gateway.aggregation.rounds import Rounds


def stage_of(privacy: Privacy, *association: int, **options: Any) -> Stage:
    stage = Stage(gateway={"privacy": privacy, **options.pop("gateway", {})}, **options)
    stage.begin(*(association or (0, 0, 1)))
    return stage


def drawn(epoch: int, *, gateway: int = 0, secret: int = 0, incarnation: int = 1) -> Any:
    """Return standard normal numbers for both weights."""
    return stream(5, secret, "noise", gateway, incarnation, epoch).standard_normal(2)


def test_a_change_is_clipped_before_it_is_mixed() -> None:
    stage = stage_of(Privacy(clip=1.0))
    stage.returns("d0", (3, 4), at=100)
    assert_close(stage.model("g0"), (0.4 * 0.6, 0.4 * 0.8))
    stage.returns("d1", (0.3, 0.4), at=110)  # shorter than the bound
    assert_close(stage.model("g0"), (11 / 15 * 0.24 + 4 / 15 * 0.3, 11 / 15 * 0.32 + 4 / 15 * 0.4))


def test_mix_adds_noise_in_proportion_to_the_weight() -> None:
    stage = stage_of(Privacy(clip=1.0, noise=2.0, seed=5))
    stage.returns("d0", (3, 4), at=100)
    first = np.array((0.24, 0.32)) + 2.0 * 0.4 * drawn(1)
    assert_close(stage.model("g0"), first)
    stage.returns("d1", (0, 0), at=110)
    assert_close(stage.model("g0"), 11 / 15 * first + 2.0 * 4 / 15 * drawn(2))


def test_the_noise_of_a_round_follows_its_largest_share() -> None:
    stage = stage_of(Privacy(clip=1.0, noise=2.0, seed=5), 1, 1, 1, aggregation=Rounds)
    stage.returns("d0", (1, 0), at=100, samples=10)
    stage.returns("d1", (0, 1), at=110, samples=30)
    stage.returns("d2", (0, 0), at=120, samples=10)
    assert_close(stage.model("g1"), np.array((0.2, 0.6)) + 2.0 * 0.6 * drawn(1, gateway=1))


def test_a_device_that_is_in_a_period_twice_counts_with_both_weights() -> None:
    rules = {"period": 400.0, "refill": "immediate", "weighting": "share", "gain": 1.0}
    stage = stage_of(Privacy(clip=1.0, noise=2.0, seed=5), 1, 1, 1, aggregation=Periods, gateway=rules)
    stage.returns("d0", (1, 0), at=100)
    stage.returns("d0", (0, 1), at=110)
    stage.returns("d1", (1, 0), at=120)
    stage.fire("g1", "aggregation")
    # Three updates with the weight 10/30 each, two of them of d0.
    assert_close(stage.model("g1"), np.array((2 / 3, 1 / 3)) + 2.0 * 2 / 3 * drawn(1, gateway=1))


def test_the_noise_depends_on_a_secret_that_outlives_an_incarnation() -> None:
    stage = Stage(gateway={"privacy": Privacy(clip=1.0, noise=2.0, seed=5)})
    stage.happens("g0", Started(0.0, 77))
    stage.begin(0, 0, 1)
    stage.returns("d0", (0, 0), at=100)
    assert_close(stage.model("g0"), 2.0 * 0.4 * drawn(1, secret=77))
    stage.peer_lost("cloud", "g0", at=110)
    stage.peer_lost("g0", "cloud", at=111)
    stage.deliver("cloud", m.Hello, at=112)
    stage.deliver("g0", m.Fenced, at=113)
    state = stage.gateways[0].state
    assert (state.incarnation, state.noise_secret) == (2, 77)


def test_losses_stay_at_the_gateway() -> None:
    for noise, hidden in ((0.0, False), (2.0, True)):
        stage = stage_of(Privacy(clip=1.0, noise=noise, seed=5))
        stage.returns("d0", (1, 2), at=100)
        stage.returns("d1", (1, 2), at=110)
        (upload,) = stage.waiting("cloud", m.Upload)
        assert [isnan(known.loss) and isnan(known.squared_loss) for known in upload.knowledge] == [hidden, hidden]
