"""Every model after every event, computed by hand. `paper` is drag 1, `plus` drag 0.5.

With b = 0.8 / (staleness + 1) at a gateway and a = 0.6 / (staleness + 1) at the cloud:
    paper   w <- (1 - b) w + b w_i
    plus    w <- w + b (w_i - w_sent) + b/2 (w_sent - w)          the same where w_sent = w
    cloud   w <- (1 - a) w + a w_j
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from protocol_stage import Stage, assert_close, vector

from async_hfl.core.identifiers import JobId, UploadId
from async_hfl.core.protocol import messages as m

PAPER, PLUS = "paper", "plus"
METHODS = pytest.mark.parametrize("method", [PAPER, PLUS])


def drag(method: str) -> float:
    return 1.0 if method == PAPER else 0.5


def ends(stage: Stage) -> list[tuple[str, str, int, float]]:
    """Return job, reason, staleness and weight of every job that ended."""
    return [(str(j.job), j.reason, j.staleness, pytest.approx(j.weight)) for j in stage.jobs()]


@METHODS
def test_fresh_held_and_carried_over_two_cycles(method: str) -> None:
    stage = Stage(gateway={"drag": drag(method)})
    stage.begin(0, 0, 1)
    g0, g1 = stage.gateways
    # Every device starts from (0, 0): jobs g0.1 (d0), g0.2 (d1), g1.1 (d2), all with zeta 0 and base 0.
    assert stage.in_flight("g0") == {1: 0, 2: 1}
    assert stage.in_flight("g1") == {1: 2}

    def expect(gateway: str, paper: tuple[float, float], plus: tuple[float, float]) -> None:
        assert_close(stage.model(gateway), paper if method == PAPER else plus)

    def expect_global(paper: tuple[float, float], plus: tuple[float, float]) -> None:
        assert_close(stage.cloud.state.weights, paper if method == PAPER else plus)

    # Fresh: z becomes 1, staleness 1 - 0 = 1, b = 0.4.                          0.4 (1, 2)
    stage.returns("d0", (1, 2), at=100)
    expect("g0", (0.4, 0.8), (0.4, 0.8))
    assert stage.in_flight("g0") == {2: 1, 3: 0}  # d0 is triggered again from this model, zeta 1

    # The other gateway: b = 0.4.                                                0.4 (2, 2)
    stage.returns("d2", (2, 2), at=110)
    expect("g1", (0.8, 0.8), (0.8, 0.8))

    # Overtaken once: staleness 2 - 0 = 2, b = 4/15, w_sent = (0, 0).
    #   paper   11/15 (0.4, 0.8) + 4/15 (2, 0) = (4.4 + 8, 8.8) / 15
    #   plus    (0.4, 0.8) + 4/15 (2, 0) - 2/15 (0.4, 0.8) = (6 + 8 - 0.8, 12 - 1.6) / 15
    stage.returns("d1", (2, 0), at=120)
    expect("g0", (12.4 / 15, 8.8 / 15), (13.2 / 15, 10.4 / 15))

    # Z = 2 is reached: the gateway uploads and triggers no device.
    (upload,) = stage.waiting("cloud", m.Upload)
    assert (upload.upload, upload.base_epoch, upload.updates, upload.samples) == (UploadId(0, 1, 1), 0, 2, 20)
    assert stage.in_flight("g0") == {3: 0}
    assert g0.state.load == pytest.approx(10.0)

    # Kept for the next cycle: the model stays, the bandwidth is free, the job has not ended.
    stage.returns("d0", (1.4, 0.8), at=200)
    expect("g0", (12.4 / 15, 8.8 / 15), (13.2 / 15, 10.4 / 15))
    assert g0.state.load == 0.0
    assert stage.in_flight("g0") == {}
    assert len(stage.jobs()) == 3

    # The cloud makes epoch 1: staleness 1 - 0 = 1, a = 0.3.                     0.3 w_j
    stage.deliver("cloud", m.Upload, at=210)
    expect_global((0.248, 0.176), (0.264, 0.208))

    # Adoption, then the held update: z 3, zeta 1, base 1, downloaded base 0: staleness 2 + 1 = 3, b = 0.2.
    #   paper   0.8 (0.248, 0.176) + 0.2 (1.4, 0.8)
    #   plus    (0.264, 0.208) + 0.2 (1, 0) + 0.1 (0.136, 0.592)                 w_sent = (0.4, 0.8)
    stage.deliver("g0", m.Answer, at=220)
    expect("g0", (0.4784, 0.3008), (0.4776, 0.2672))
    assert stage.in_flight("g0") == {4: 0, 5: 1}  # one selection, after mixing; zeta 3, base 1
    assert g0.state.in_flight_jobs[4].sent is g0.state.in_flight_jobs[5].sent  # one snapshot per distinct model
    for train in (*stage.waiting("d0", m.Train), *stage.waiting("d1", m.Train)):
        assert (train.gateway_epoch, train.base_epoch) == (3, 1)
        assert_close(train.weights, (0.4784, 0.3008) if method == PAPER else (0.4776, 0.2672))

    # d2 again, nothing overtook it: b = 0.4.                                    (0.8, 0.8) + 0.4 (1, -1)
    stage.returns("d2", (1.8, -0.2), at=250)
    expect("g1", (1.2, 0.4), (1.2, 0.4))

    # Epoch 2 from g1's upload of base 0: staleness 2, a = 0.2.                  0.8 w + 0.2 (1.2, 0.4)
    stage.deliver("cloud", m.Upload, at=260)
    expect_global((0.4384, 0.2208), (0.4512, 0.2464))
    stage.deliver("g1", m.Answer, at=270)
    expect("g1", (0.4384, 0.2208), (0.4512, 0.2464))

    # d0 in cycle 2: staleness 4 - 3 = 1, b = 0.4; with the held one that makes Z.   0.6 w + 0.4 (1.5, 1.5)
    stage.returns("d0", (1.5, 1.5), at=300)
    expect("g0", (0.88704, 0.78048), (0.88656, 0.76032))

    # Epoch 3 from base 1: staleness 2, a = 0.2.
    #   paper   0.8 (0.4384, 0.2208) + 0.2 (0.88704, 0.78048)
    #   plus    0.8 (0.4512, 0.2464) + 0.2 (0.88656, 0.76032)
    stage.exchanges("g0", at=310)
    expect_global((0.528128, 0.332736), (0.538272, 0.349184))
    expect("g0", (0.528128, 0.332736), (0.538272, 0.349184))
    assert stage.in_flight("g0") == {5: 1, 6: 0}

    # Cycle 3 has d0 alone: b = 0.4 twice.                                        0.6 w + 0.4 (0, 1), 0.6 w + 0.4 (1, 0)
    stage.returns("d0", (0, 1), at=400)
    expect("g0", (0.3168768, 0.5996416), (0.3229632, 0.6095104))
    stage.returns("d0", (1, 0), at=500)
    expect("g0", (0.59012608, 0.35978496), (0.59377792, 0.36570624))

    # Epoch 4 from base 3: staleness 1, a = 0.3.
    #   paper   0.7 (0.528128, 0.332736) + 0.3 (0.59012608, 0.35978496)
    #   plus    0.7 (0.538272, 0.349184) + 0.3 (0.59377792, 0.36570624)
    stage.exchanges("g0", at=510)
    expect_global((0.546727424, 0.340850688), (0.554923776, 0.354140672))

    # d1 was sent w of cycle 2 and carried over two cycles: z 7, zeta 3, base 4, downloaded base 1: 4 + 3 = 7, b = 0.1.
    #   paper   0.9 (0.546727424, 0.340850688) + 0.1 (2, -1)
    #   plus    w + 0.1 ((2, -1) - (0.4776, 0.2672)) + 0.05 ((0.4776, 0.2672) - w)
    #           = (0.554923776 + 0.15224 - 0.0038661888, 0.354140672 - 0.12672 - 0.0043470336)
    stage.returns("d1", (2, -1), at=520)
    expect("g0", (0.6920546816, 0.2067656192), (0.7032975872, 0.2230736384))

    assert ends(stage) == [
        ("g0.1.1", "aggregated", 1, 0.4),
        ("g1.1.1", "aggregated", 1, 0.4),
        ("g0.1.2", "aggregated", 2, 0.8 / 3),
        ("g0.1.3", "aggregated", 3, 0.2),
        ("g1.1.2", "aggregated", 1, 0.4),
        ("g0.1.4", "aggregated", 1, 0.4),
        ("g0.1.6", "aggregated", 1, 0.4),
        ("g0.1.7", "aggregated", 1, 0.4),
        ("g0.1.5", "aggregated", 7, 0.1),
    ]
    assert [(u.upload, u.reason, u.staleness, pytest.approx(u.weight)) for u in stage.uploads()] == [
        (UploadId(0, 1, 1), "mixed", 1, 0.3),
        (UploadId(1, 1, 1), "mixed", 2, 0.2),
        (UploadId(0, 1, 2), "mixed", 2, 0.2),
        (UploadId(0, 1, 3), "mixed", 1, 0.3),
    ]
    assert (g0.state.gateway_epoch, g1.state.gateway_epoch, stage.cloud.state.epoch) == (7, 2, 4)
    assert stage.cloud.state.updates == 8
    # w_sent is kept for jobs 8 (d0, cycle 4 as adopted) and 9 (d1, the model just made).
    assert stage.in_flight("g0") == {8: 0, 9: 1}
    assert_close(g0.state.in_flight_jobs[8].sent, stage.cloud.state.weights.tolist())
    assert g0.state.in_flight_jobs[9].sent is stage.model("g0")


def test_the_staleness_clock_of_the_gateway_leaves_out_cloud_epochs() -> None:
    stage = Stage(gateway={"staleness_clock": "gateway"})
    stage.begin(0, 0, 1)
    stage.returns("d0", (1, 2), at=100)
    stage.returns("d0", (1, 2), at=200)
    # (0.4, 0.8), then 0.6 (0.4, 0.8) + 0.4 (1, 2).
    assert_close(stage.model("g0"), (0.64, 1.28))
    stage.exchanges("g0", at=210)
    # 0.3 (0.64, 1.28) is epoch 1; d1 comes back to it from (0, 0): z 3, zeta 0, so 3 and not 4; b = 0.2.
    stage.returns("d1", (1, 1), at=220)
    assert stage.jobs()[-1].staleness == 3
    assert_close(stage.model("g0"), (0.8 * 0.192 + 0.2, 0.8 * 0.384 + 0.2))


@METHODS
def test_a_device_in_flight_finishes_with_the_gateway_that_triggered_it(method: str) -> None:
    stage = Stage(gateway={"drag": drag(method)}, cloud={"association_period": 1})
    stage.begin(0, 0, 1)
    # g1's cycle: 0.4 (1, 1), then 0.6 (0.4, 0.4) + 0.4 (1, 1) = (0.64, 0.64); epoch 1: 0.3 of it.
    stage.returns("d2", (1, 1), at=100)
    stage.returns("d2", (1, 1), at=200)
    stage.exchanges("g1", at=210)
    assert_close(stage.cloud.state.weights, (0.192, 0.192))
    # The association period is over: d0, in flight at g0, now belongs to g1.
    stage.solved(1, 0, 1, at=220)
    to_g0 = stage.deliver("g0", m.Assignment, at=230)
    to_g1 = stage.deliver("g1", m.Assignment, at=230)
    assert (to_g0.version, to_g0.devices, to_g0.leases) == (2, (1,), ())
    assert (to_g1.version, to_g1.devices, to_g1.leases) == (2, (0, 2), ())
    # d0 is busy: g0 keeps the lease, g1 triggers d2 alone.
    assert stage.waiting("cloud", m.LeaseReleased) == []
    assert stage.in_flight("g1") == {3: 2}

    # d1 of g0: b = 0.4.                                                         0.4 (1, 0)
    stage.returns("d1", (1, 0), at=240)
    assert_close(stage.model("g0"), (0.4, 0.0))
    # d0's update from before: z 2, zeta 0, the base of g0 has not moved: staleness 2, b = 4/15, w_sent = (0, 0).
    #   paper   11/15 (0.4, 0) + 4/15 (1, 1) = (8.4, 4) / 15
    #   plus    (0.4, 0) + 4/15 (1, 1) - 2/15 (0.4, 0) = (9.2, 4) / 15
    stage.returns("d0", (1, 1), at=250, loss=0.75)
    assert_close(stage.model("g0"), (8.4 / 15, 4 / 15) if method == PAPER else (9.2 / 15, 4 / 15))
    assert (stage.jobs()[-1].job, stage.jobs()[-1].staleness) == (JobId(0, 1, 1), 2)
    assert 0 not in stage.in_flight("g0").values()

    # The lease is released at once, with what was learnt: through the cloud to g1, which only then triggers d0.
    (released,) = stage.waiting("cloud", m.LeaseReleased)
    assert (released.lease.device, released.knowledge.loss, released.warmup) == (0, 0.75, False)
    assert released.knowledge.round_latency == 250.0
    assert stage.in_flight("g1") == {3: 2}
    stage.deliver("cloud", m.LeaseReleased, at=260)
    assert stage.in_flight("g1") == {3: 2}
    granted = stage.deliver("g1", m.LeaseGranted, at=270)
    assert (granted.lease.device, granted.knowledge.loss) == (0, 0.75)
    # The latency is that of the new link: still the prior.
    assert (granted.knowledge.round_latency, granted.knowledge.measured) == (100.0, False)
    assert stage.in_flight("g1") == {3: 2, 4: 0}
    (train,) = stage.waiting("d0", m.Train)
    assert (train.job, train.version, train.base_epoch) == (JobId(1, 1, 4), 2, 1)
    assert_close(train.weights, (0.192, 0.192))
    # z of g1 is 2, so its next is 3 - 2 = 1: b = 0.4.                           0.6 (0.192, 0.192) + 0.4 (1, 0)
    stage.returns("d0", (1, 0), at=370)
    assert_close(stage.model("g1"), (0.5152, 0.1152))


@METHODS
def test_an_update_beyond_the_staleness_bound_is_dropped_and_its_device_triggered_again(method: str) -> None:
    stage = Stage(gateway={"drag": drag(method), "epochs": 10, "max_staleness": 2})
    stage.begin(0, 0, 1)
    stage.returns("d0", (1, 1), at=100)  # 0.4 (1, 1)
    # At the bound: staleness 2, b = 4/15, w_sent = (0, 0).
    #   paper   11/15 (0.4, 0.4) + 4/15 (1, 0) = (8.4, 4.4) / 15
    #   plus    (0.4, 0.4) + 4/15 (1, 0) - 2/15 (0.4, 0.4) = (9.2, 5.2) / 15
    stage.returns("d1", (1, 0), at=110)
    at_bound = (8.4 / 15, 4.4 / 15) if method == PAPER else (9.2 / 15, 5.2 / 15)
    assert_close(stage.model("g0"), at_bound)
    # d0's second was sent at zeta 1: z 3, staleness 2, b = 4/15, w_sent = (0.4, 0.4), its result unchanged:
    #   paper   11/15 w + 4/15 (0.4, 0.4);  plus half that pull
    stage.returns("d0", (0.4, 0.4), at=200)
    pull = drag(method) * 4 / 15
    before = ((1 - pull) * at_bound[0] + pull * 0.4, (1 - pull) * at_bound[1] + pull * 0.4)
    assert_close(stage.model("g0"), before)
    stage.deliver("d1", m.Train, at=210)  # zeta 2
    stage.returns("d0", before, at=300)  # from this very model: staleness 1, changes nothing
    assert_close(stage.model("g0"), before)
    epoch = stage.gateways[0].state.gateway_epoch
    # z is 4, d1's update would make 5: staleness 5 - 2 = 3.
    stage.returns("d1", (100, 100), at=310)
    assert_close(stage.model("g0"), before)
    assert ends(stage)[-1] == ("g0.1.4", "stale", 3, 0.0)
    assert stage.gateways[0].state.gateway_epoch == epoch == 4
    assert stage.gateways[0].state.updates == 4
    # The device is idle, and triggered at once from the present model.
    (train,) = stage.waiting("d1", m.Train)
    assert (train.job, train.gateway_epoch) == (JobId(0, 1, 7), 4)


@METHODS
def test_the_cloud_drops_an_upload_beyond_its_bound_and_answers_it(method: str) -> None:
    stage = Stage(gateway={"drag": drag(method), "epochs": 1}, cloud={"max_staleness": 1})
    stage.begin(0, 0, 1)
    stage.returns("d2", (1, 2), at=100)  # g1: 0.4 (1, 2)
    stage.exchanges("g1", at=110)  # epoch 1: 0.3 (0.4, 0.8)
    assert_close(stage.cloud.state.weights, (0.12, 0.24))
    stage.returns("d0", (5, 5), at=120)  # g0: (2, 2), base 0; the cloud is about to make epoch 2: staleness 2
    stage.deliver("cloud", m.Upload, at=130)
    assert_close(stage.cloud.state.weights, (0.12, 0.24))
    assert (stage.cloud.state.epoch, stage.cloud.state.updates) == (1, 1)
    answer = stage.deliver("g0", m.Answer, at=140)
    assert (answer.epoch, answer.outcome) == (1, m.Outcome(False, 2, 0.0))
    assert_close(stage.model("g0"), (0.12, 0.24))
    assert stage.gateways[0].state.base_epoch == 1
    assert [(str(u.upload), u.reason, u.staleness) for u in stage.uploads()] == [
        ("u1.1.1", "mixed", 1),
        ("u0.1.1", "dropped", 2),
    ]
    # The other job of g0 was carried over: d1 from (0, 0), zeta 0 base 0, now z 2 base 1: staleness 3, b = 0.2.
    #   paper   0.8 (0.12, 0.24) + 0.2 (1, 1);   plus   w + 0.2 (1, 1) - 0.1 w = 0.9 w + 0.2
    stage.returns("d1", (1, 1), at=150)
    assert_close(stage.model("g0"), (0.296, 0.392) if method == PAPER else (0.308, 0.416))


@METHODS
def test_an_upload_that_arrives_twice_is_mixed_once_and_answered_twice(method: str) -> None:
    stage = Stage(gateway={"drag": drag(method), "epochs": 1})
    stage.begin(0, 0, 1)
    stage.returns("d0", (1, 2), at=100)  # 0.4 (1, 2)
    # The answer takes too long: after reply_patience the same upload is sent again.
    assert stage.timers["g0", "reply"] == 220.0
    stage.deliver("cloud", m.Upload, at=110)  # epoch 1: 0.3 (0.4, 0.8)
    assert_close(stage.cloud.state.weights, (0.12, 0.24))
    stage.fire("g0", "reply")
    (again,) = stage.waiting("cloud", m.Upload)
    assert again.upload == UploadId(0, 1, 1)
    assert stage.timers["g0", "reply"] == 220.0 + 240.0

    # Meanwhile g1 makes epoch 2: (0.4, 0) from base 0, a = 0.2.                 0.8 (0.12, 0.24) + 0.2 (0.4, 0)
    stage.returns("d2", (1, 0), at=230)
    stage.deliver("cloud", m.Upload, at=240, newest=True)
    assert_close(stage.cloud.state.weights, (0.176, 0.192))

    # The repeat: nothing is mixed; the same outcome, with the newest model.
    stage.deliver("cloud", m.Upload, at=250)
    assert_close(stage.cloud.state.weights, (0.176, 0.192))
    assert (stage.cloud.state.epoch, stage.cloud.state.updates) == (2, 2)
    first, second = stage.waiting("g0", m.Answer)
    assert (first.epoch, first.outcome) == (1, m.Outcome(True, 1, pytest.approx(0.3)))
    assert (second.epoch, second.outcome) == (2, m.Outcome(True, 1, pytest.approx(0.3)))
    assert second.upload == first.upload == again.upload
    assert_close(second.weights, (0.176, 0.192))

    # The second answer overtakes the first, which is ignored then.
    stage.deliver("g0", m.Answer, at=260, newest=True)
    assert_close(stage.model("g0"), (0.176, 0.192))
    stage.deliver("g0", m.Answer, at=270)
    assert_close(stage.model("g0"), (0.176, 0.192))
    assert stage.gateways[0].state.base_epoch == 2
    assert [u.reason for u in stage.uploads()] == ["mixed", "mixed"]

    # d1's first, from (0, 0): z 2, base 2: staleness 2 + 2 = 4, b = 0.16.
    #   paper   0.84 (0.176, 0.192) + 0.16 (1, 1);   plus   w + 0.16 (1, 1) - 0.08 w
    stage.returns("d1", (1, 1), at=280)
    assert_close(stage.model("g0"), (0.30784, 0.32128) if method == PAPER else (0.32192, 0.33664))


def test_an_update_waits_for_the_cycle_after_next_if_the_next_is_full() -> None:
    """At most Z kept updates are mixed on adoption; the gateway still selects devices, then uploads."""
    stage = Stage(gateway={"epochs": 1}, weights=vector(1.0, 1.0))
    stage.begin(0, 0, 1)
    stage.returns("d0", (2, 2), at=100)  # 0.6 (1, 1) + 0.4 (2, 2) = 1.4; uploaded
    stage.returns("d1", (3, 3), at=110)  # held
    stage.exchanges("g0", at=120)
    # Epoch 1: 0.7 + 0.3 x 1.4 = 1.12. Held: z 2, zeta 0, one base: staleness 3, b = 0.2: 0.8 x 1.12 + 0.6 = 1.496.
    assert_close(stage.model("g0"), (1.496, 1.496))
    assert stage.in_flight("g0") == {3: 0, 4: 1}
    (upload,) = stage.waiting("cloud", m.Upload)
    assert (upload.upload.number, upload.base_epoch) == (2, 1)
    # Both updates arrive before the answer and are kept: the first makes the next cycle, the second the one after.
    stage.returns("d1", (0, 0), at=200)
    stage.returns("d0", (0, 0), at=210)
    stage.exchanges("g0", at=220)
    # Epoch 2: staleness 1: 0.7 x 1.12 + 0.3 x 1.496 = 1.2328. d1's: z 3, zeta 2, one base: staleness 2, 11/15 w.
    assert_close(stage.model("g0"), np.full(2, 1.2328 * 11 / 15))
    assert stage.jobs()[-1].job == JobId(0, 1, 4)
    assert stage.in_flight("g0") == {5: 0, 6: 1}
    stage.exchanges("g0", at=230)
    # Epoch 3: 0.7 x 1.2328 + 0.3 x 1.2328 x 11/15 = 1.2328 x 0.92. d0's: z 4, zeta 2, two bases: staleness 4, 0.84 w.
    assert_close(stage.model("g0"), np.full(2, 1.2328 * 0.92 * 0.84))
    assert ends(stage)[-1] == ("g0.1.3", "aggregated", 4, 0.16)
    # No device is idle, but the cycle is full: the gateway uploads again, and no update is kept any more.
    assert len(stage.waiting("cloud", m.Upload)) == 1
    assert stage.gateways[0].state.held_updates() == []


@pytest.mark.parametrize("bad", [(np.nan, 1.0), (np.inf, 0.0), (0.0, -np.inf), (np.inf, -np.inf)])
def test_an_update_that_is_not_finite_ends_refused(bad: tuple[Any, Any]) -> None:
    stage = Stage()
    stage.begin(0, 0, 1)
    stage.returns("d0", (1, 2), at=100)
    stage.returns("d1", bad, at=110)
    assert_close(stage.model("g0"), (0.4, 0.8))
    assert ends(stage)[-1] == ("g0.1.2", "refused", 0, 0.0)
    assert stage.gateways[0].state.gateway_epoch == 1
    # The device is idle, and triggered again.
    assert stage.in_flight("g0") == {3: 0, 4: 1}


def test_a_large_finite_update_is_not_refused() -> None:
    """Its square overflows float32, but the update is finite."""
    stage = Stage()
    stage.begin(0, 0, 1)
    stage.returns("d0", (3e19, 0.0), at=100)
    assert stage.jobs()[-1].reason == "aggregated"
    assert_close(stage.model("g0"), (1.2e19, 0.0))
