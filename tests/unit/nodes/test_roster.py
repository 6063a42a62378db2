"""What a gateway knows of its devices."""

from __future__ import annotations

from itertools import product

import numpy as np

from async_hfl.core.gradient_table import GradientTable
from async_hfl.core.messages import DeviceKnowledge, Grant
from async_hfl.core.plain import from_plain, to_plain
from async_hfl.nodes.roster import Roster

PRIOR = DeviceKnowledge(7, 50.0, False, 10, float("nan"), float("nan"))


def test_a_candidate_is_associated_granted_idle_and_reachable() -> None:
    for associated, granted, idle, feasible in product([False, True], repeat=4):
        roster = Roster()
        roster.add([7])
        roster.associated[0] = associated
        roster.grant[0] = 3 if granted else 0
        roster.job[0] = -1 if idle else 12
        roster.feasible[0] = feasible
        roster.refresh(0)
        assert roster.candidate[0] == (associated and granted and idle and feasible)


def test_a_slot_stays_with_its_device() -> None:
    roster = Roster()
    roster.add([7, 3, 7])
    roster.add([3, 5])
    assert roster.slot_of == {7: 0, 3: 1, 5: 2}
    assert roster.devices.tolist() == [7, 3, 5]
    assert roster.associate((5, 7)) == []
    assert roster.associate((3, 7)) == [2]
    assert roster.associated.tolist() == [True, True, False]
    assert roster.associated_count == 2
    assert roster.associate(()) == [0, 1]


def test_own_measurements_are_newer_than_what_the_cloud_passes_on() -> None:
    roster = Roster()
    slot = roster.take(Grant(7, 1, 1), PRIOR)
    assert (roster.round_latency[slot], roster.measured[slot]) == (50.0, False)
    roster.measure(slot, 80.0)
    roster.measure(slot, 180.0)
    assert roster.round_latency[slot] == 0.7 * 80 + 0.3 * 180
    roster.take(Grant(7, 4, 2), DeviceKnowledge(7, 50.0, True, 20, 0.5, 0.3))
    assert (roster.round_latency[slot], roster.grant[slot], roster.grant_version[slot]) == (110.0, 4, 2)
    assert (roster.samples[slot], roster.loss[slot], roster.squared_loss[slot]) == (20, 0.5, 0.3)


def test_utility_counts_the_associated_only() -> None:
    roster = Roster(gradients=GradientTable.empty(0, 2))
    for device, gradient in ((7, [1, 0]), (3, [0, 1]), (5, [8, 8])):
        known = DeviceKnowledge(device, 50.0, True, 1, 0.5, 0.3, np.array(gradient, np.float32))
        roster.take(Grant(device, 1, 1), known)
    assert roster.gradients is not None
    assert roster.gradients.count == 0
    roster.associate((7, 3))
    assert (roster.gradients.count, roster.gradients.total().tolist()) == (2, [1, 1])
    # (|g|^2 - g . mean) / (2 - 1) = 1 - 1/2.
    assert roster.gradients.utility(np.array([0, 1])).tolist() == [0.5, 0.5]
    roster.associate((7,))
    assert (roster.gradients.count, roster.gradients.total().tolist()) == (1, [1, 0])


def test_news_are_told_once() -> None:
    roster = Roster()
    slot = roster.take(Grant(7, 1, 1), PRIOR)
    assert roster.news() == ()
    roster.measure(slot, 80.0)
    roster.learnt[slot] = None
    (news,) = roster.news()
    assert (news.device, news.round_latency, news.measured, news.gradient) == (7, 80.0, True, None)
    assert roster.news() == ()


def test_knowledge_does_not_change_behind_its_readers_back() -> None:
    roster = Roster(gradients=GradientTable.empty(0, 1))
    known = DeviceKnowledge(7, 50.0, True, 1, 0.5, 0.3, np.array([2], np.float32))
    slot = roster.take(Grant(7, 1, 1), known)
    told = roster.knowledge(slot)
    assert roster.gradients is not None
    roster.gradients.put(slot, np.array([9], np.float32))
    assert told.gradient is not None
    assert told.gradient.tolist() == [2]


def test_a_roster_travels_as_plain_data() -> None:
    roster = Roster(gradients=GradientTable.empty(0, 2))
    roster.take(Grant(7, 1, 1), PRIOR)
    roster.associate((7, 9))
    back = from_plain(to_plain(roster))
    back.associate((9,))
    assert roster.associated.tolist() == [True, True]
    assert back.associated.tolist() == [False, True]
    assert back.slot_of == {7: 0, 9: 1}
