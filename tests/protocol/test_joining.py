"""Nodes join a deployed run, stay away and come back: the decisions of cloud and gateway, computed by hand."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from protocol_stage import CLOUD_RULES, GATEWAY_CONFIG, vector

from async_hfl.core.identifiers import CLOUD, JobId, UploadId, device_address, gateway_address
from async_hfl.core.learner import Evaluation, TrainingResult
from async_hfl.core.policies import Association
from async_hfl.core.protocol import messages as m
from async_hfl.core.protocol.effects import Effect, Evaluate, Send, SetTimer, Solve, StartTraining, Stop, Write
from async_hfl.core.protocol.events import (
    DeviceJoined,
    DrainAsked,
    Evaluated,
    Event,
    PeerJoined,
    PeerLost,
    Progressed,
    Received,
    Returned,
    Solved,
    Started,
    TimerFired,
    Trained,
    TrainingBroke,
)
from async_hfl.core.protocol.records import FoundRecord, LostRecord, UploadRecord
from async_hfl.core.topology import no_links
from async_hfl.decisions.selection.utility_knapsack import UtilityKnapsack
from async_hfl.nodes.cloud.aggregation.mix import MixUploads
from async_hfl.nodes.cloud.node import CloudNode
from async_hfl.nodes.config import GatewayDeployment, MembershipRules
from async_hfl.nodes.device import DeviceNode
from async_hfl.nodes.gateway.aggregation.mix import MixOnArrival
from async_hfl.nodes.gateway.node import GatewayNode

DEPLOYED = {"gateways": 0, "bandwidth": (1e15,), "association_patience": 0.5}
MEMBERSHIP = MembershipRules(start_devices=2, start_gateways=2, start_patience=30.0, gateway_patience=10.0)


def new_cloud(**config: Any) -> CloudNode:
    names = {field.name for field in fields(MembershipRules)}
    membership = replace(MEMBERSHIP, **{name: config.pop(name) for name in names & config.keys()})
    made = replace(CLOUD_RULES, membership=membership, **(DEPLOYED | config))
    return CloudNode(made, no_links(), np.zeros(0, np.int64), vector(0.0, 0.0), MixUploads(), revisits=True)


def says(cloud: CloudNode, gateway: int, message: Any, at: float) -> list[Effect]:
    return cloud.handle(Received(at, gateway_address(gateway), message))


def joins(cloud: CloudNode, device: int, gateway: int, at: float, latency: float = 2.0) -> list[Effect]:
    """Let a device join through a gateway, which then reports that it has heard it."""
    cloud.handle(DeviceJoined(at, device, gateway, 10 + device, latency))
    number = int(at * 1000) + device
    return says(cloud, gateway, m.Report(5 + gateway, number, heard=(device,)), at)


def solved(cloud: CloudNode, effects: list[Effect], gateway_of: list[int], at: float) -> list[Effect]:
    (solve,) = [effect for effect in effects if isinstance(effect, Solve)]
    return cloud.handle(Solved(at, solve.number, Association(np.array(gateway_of), 0.0, np.inf)))


def sent(effects: list[Effect], kind: type) -> list[tuple[int, Any]]:
    return [(e.to.number, e.message) for e in effects if isinstance(e, Send) and type(e.message) is kind]


# The start of a run ---------------------------------------------------------------------------------------------


def test_a_run_begins_when_enough_nodes_have_joined() -> None:
    cloud = new_cloud()
    assert cloud.handle(Started(0.0)) == [SetTimer("start", 30.0)]
    says(cloud, 0, m.Hello(5), 1.0)
    assert joins(cloud, 0, 0, 2.0)[:0] == []
    assert cloud.state.phase == "new"
    joins(cloud, 1, 0, 3.0)  # two devices, but one gateway
    assert cloud.state.phase == "new"
    effects = says(cloud, 1, m.Hello(6), 4.0)
    assert cloud.state.phase == "running"  # no warm-up in this config
    (solve,) = [effect for effect in effects if isinstance(effect, Solve)]
    assert solve.problem.link_device.tolist() == [0, 1]
    assert solve.problem.bandwidth.tolist() == [1e15, 1e15]
    assert cloud.state.association.samples.tolist() == [10, 11]


def test_a_run_begins_after_the_patience_with_the_nodes_that_have_joined() -> None:
    cloud = new_cloud()
    cloud.handle(Started(0.0))
    cloud.handle(TimerFired(30.0, "start"))
    assert cloud.state.phase == "new"  # no device could be triggered
    says(cloud, 0, m.Hello(5), 31.0)
    assert cloud.state.phase == "new"
    joins(cloud, 0, 0, 32.0)
    assert cloud.state.phase == "running"


def test_a_report_that_overtakes_its_hello_counts_as_a_hello() -> None:
    cloud = new_cloud(start_devices=1, start_gateways=1)
    cloud.handle(Started(0.0))
    joins(cloud, 0, 0, 1.0)
    assert cloud.state.members[0].live
    assert cloud.state.phase == "running"
    assert says(cloud, 0, m.Hello(5), 1.1) == []


def test_a_link_is_usable_as_soon_as_its_gateway_has_heard_the_device() -> None:
    cloud = new_cloud(start_devices=1, start_gateways=1)
    cloud.handle(Started(0.0))
    says(cloud, 0, m.Hello(5), 1.0)
    cloud.handle(DeviceJoined(2.0, 0, 0, 10, 2.0))
    assert cloud.state.phase == "new"
    assert not cloud.state.association.usable.any()
    says(cloud, 0, m.Report(5, 1, heard=(0,)), 3.0)
    assert cloud.state.association.usable.all()
    # A new incarnation knows no device until it joins again.
    says(cloud, 0, m.Hello(99), 4.0)
    assert not cloud.state.association.usable.any()


# Late joiners -----------------------------------------------------------------------------------------------------


def running_cloud(**config: Any) -> CloudNode:
    """Two gateways, devices 0 and 1 at the first."""
    cloud = new_cloud(**config)
    cloud.handle(Started(0.0))
    says(cloud, 0, m.Hello(5), 1.0)
    says(cloud, 1, m.Hello(6), 1.0)
    joins(cloud, 0, 0, 2.0)
    effects = joins(cloud, 1, 0, 3.0)
    begun = solved(cloud, effects, [0, 0], 4.0)
    assert sorted(gateway for gateway, _ in sent(begun, m.GlobalModel)) == [0, 1]
    return cloud


def test_a_late_device_gets_a_gateway_within_the_association_patience() -> None:
    cloud = running_cloud()
    effects = joins(cloud, 2, 1, 50.0)
    assert SetTimer("association", 50.5) in effects
    effects = cloud.handle(TimerFired(50.5, "association"))
    told = solved(cloud, effects, [0, 0, 1], 50.6)
    ((gateway, assignment),) = sent(told, m.Assignment)
    assert (gateway, assignment.devices) == (1, (2,))
    assert [lease.device for lease in assignment.leases] == [2]
    assert assignment.knowledge[0].round_latency == 2.0
    assert np.isnan(assignment.knowledge[0].loss)


def test_a_device_that_joins_during_a_solution_is_part_of_the_next() -> None:
    cloud = running_cloud()
    effects = joins(cloud, 2, 1, 50.0)
    effects = cloud.handle(TimerFired(50.5, "association"))
    joins(cloud, 3, 0, 50.6)
    solved(cloud, effects, [0, 0, 1], 50.7)  # without device 3
    assert cloud.state.association.gateway_of.tolist() == [0, 0, 1, -1]
    effects = cloud.handle(TimerFired(51.1, "association"))
    (solve,) = [effect for effect in effects if isinstance(effect, Solve)]
    assert len(solve.problem.learning_utility) == 4


def test_a_device_that_joins_again_keeps_its_measured_latency() -> None:
    cloud = running_cloud()
    known = m.DeviceKnowledge(0, 7.5, True, 99, 0.4, 0.2)
    says(cloud, 0, m.LeaseReleased(m.Lease(0, 1, 1), known, False), 10.0)
    cloud.handle(DeviceJoined(20.0, 0, 0, 10, 2.0))
    link = cloud.links.find(0, 0)
    assert cloud.state.association.latency[link] == 7.5
    assert cloud.state.association.samples[0] == 99


def test_links_keep_their_values_when_others_are_inserted() -> None:
    cloud = running_cloud()
    says(cloud, 0, m.Report(5, 9000, lost=(1,)), 5.0)
    joins(cloud, 0, 1, 6.0, latency=9.0)  # sorts before the links of device 1
    links, directory = cloud.links, cloud.state.association
    assert list(zip(links.link_device.tolist(), links.link_gateway.tolist(), strict=True)) == [(0, 0), (0, 1), (1, 0)]
    assert directory.usable.tolist() == [True, True, False]
    assert directory.latency.tolist() == [2.0, 9.0, 2.0]
    # An old report about the link of device 1 is still recognised as old.
    says(cloud, 0, m.Report(5, 8000, heard=(1,)), 7.0)
    assert directory.usable.tolist() == [True, True, False]


def test_nodes_that_joined_survive_a_restart() -> None:
    cloud = running_cloud()
    joins(cloud, 2, 1, 50.0)
    again = new_cloud()
    again.restore(cloud.snapshot())
    assert again.links.find(2, 1) >= 0
    here, there = (str(node.handle(TimerFired(50.5, "association"))) for node in (cloud, again))
    assert here == there


def test_the_bandwidth_is_a_share_of_the_measured_demand() -> None:
    cloud = running_cloud(bandwidth_share=0.5)
    # Two devices of 1000 bytes in 2 s each at the first gateway; no link to the second, which takes no part.
    assert cloud.state.association.bandwidth == pytest.approx(0.5 * 2 * 1000 / 2)
    joins(cloud, 2, 1, 50.0, latency=0.001)
    assert cloud.state.association.bandwidth == pytest.approx(500.0)  # fixed


# Gateways without a session ----------------------------------------------------------------------------------------


def test_a_gateway_may_be_away_for_its_patience() -> None:
    cloud = running_cloud()
    assert cloud.handle(PeerLost(100.0, gateway_address(0))) == [SetTimer("gone", 110.0)]
    cloud.handle(PeerJoined(105.0, gateway_address(0)))
    assert cloud.handle(TimerFired(110.0, "gone")) == []
    assert cloud.state.members[0].live
    cloud.handle(PeerLost(200.0, gateway_address(0)))
    effects = cloud.handle(TimerFired(210.0, "gone"))
    assert not cloud.state.members[0].live
    assert [e.record.what for e in effects if isinstance(e, Write)] == ["gateway_lost"]  # type: ignore[union-attr]


def test_no_device_is_moved_to_a_gateway_that_is_away() -> None:
    cloud = running_cloud()
    joins(cloud, 0, 1, 5.0)
    cloud.handle(PeerLost(6.0, gateway_address(1)))
    joins(cloud, 2, 1, 7.0)
    effects = cloud.handle(TimerFired(7.5, "association"))
    (solve,) = [effect for effect in effects if isinstance(effect, Solve)]
    links = list(zip(solve.problem.link_device.tolist(), solve.problem.link_gateway.tolist(), strict=True))
    assert links == [(0, 0), (1, 0), (2, 1)]  # device 2 has no other


def test_after_its_own_restart_the_cloud_waits_for_its_gateways() -> None:
    cloud = running_cloud()
    assert cloud.handle(Returned(100.0)) == [SetTimer("gone", 110.0), SetTimer("gone", 110.0)]
    cloud.handle(PeerJoined(101.0, gateway_address(0)))
    cloud.handle(TimerFired(110.0, "gone"))
    assert [member.live for member in cloud.state.members] == [True, False]


def test_a_gateway_that_stays_away_loses_only_its_devices() -> None:
    cloud = running_cloud(lost_patience=600.0)
    says(cloud, 0, upload(1, 0), 50.0)
    cloud.handle(PeerLost(100.0, gateway_address(0)))
    joins(cloud, 0, 1, 101.0)
    effects = cloud.handle(TimerFired(110.0, "gone"))
    assert SetTimer("gone", 710.0) in effects
    told = solved(cloud, effects, [1, -1], 110.5)
    ((gateway, assignment),) = sent(told, m.Assignment)
    assert (gateway, assignment.devices) == (1, (0,))
    # It comes back with an older upload, which counts, and is told which leases were revoked.
    effects = says(cloud, 0, upload(2, 1), 300.0)
    ((_, revoked),) = sent(effects, m.LeasesRevoked)
    assert revoked.incarnation == 5
    assert [(lease.device, lease.number) for lease in revoked.leases] == [(0, 1), (1, 1)]
    assert cloud.state.epoch == 2
    assert cloud.state.members[0].live
    assert cloud.handle(TimerFired(710.0, "gone")) == []


def written(effects: list[Effect], kind: type) -> list[str]:
    return [str(getattr(e.record, "job", "")) for e in effects if isinstance(e, Write) and type(e.record) is kind]


def listed_as_lost(cloud: CloudNode) -> None:
    """Let gateway 0 stay away beyond every timeout; device 1 reports the update that it had acknowledged."""
    cloud.handle(PeerLost(100.0, gateway_address(0)))
    cloud.handle(TimerFired(110.0, "gone"))
    says(cloud, 1, m.Unsettled(1, (JobId(0, 5, 3),)), 120.0)
    assert written(cloud.handle(TimerFired(710.0, "gone")), LostRecord) == ["g0.5.3"]
    assert written(says(cloud, 1, m.Unsettled(0, (JobId(0, 5, 4),)), 720.0), LostRecord) == ["g0.5.4"]


def test_a_gateway_that_comes_back_brings_updates_that_were_listed_as_lost() -> None:
    cloud = running_cloud(lost_patience=600.0)
    says(cloud, 0, upload(1, 0), 50.0)
    listed_as_lost(cloud)
    effects = says(cloud, 0, m.Hello(5), 800.0)
    assert sent(effects, m.Fenced) == []
    assert len(sent(effects, m.LeasesRevoked)) == 1
    assert written(effects, FoundRecord) == ["g0.5.3", "g0.5.4"]
    assert not cloud.state.ledgers[0, 5].lost
    # It never received the answer to its first upload, which does not count again; the next upload does.
    assert written(says(cloud, 0, upload(1, 0), 801.0), UploadRecord) == []
    assert cloud.state.epoch == 1
    says(cloud, 0, replace(upload(2, 1), jobs=(3, 4)), 802.0)
    assert cloud.state.epoch == 2
    assert cloud.state.ledgers[0, 5].claims == {}
    # It is gone again, for good: updates that were decided on are not lost.
    cloud.handle(PeerLost(900.0, gateway_address(0)))
    cloud.handle(TimerFired(910.0, "gone"))
    assert written(cloud.handle(TimerFired(1510.0, "gone")), LostRecord) == []
    assert written(says(cloud, 1, m.Unsettled(1, (JobId(0, 5, 3), JobId(0, 5, 5))), 1520.0), LostRecord) == ["g0.5.5"]


def test_an_update_that_was_found_may_be_lost_again() -> None:
    cloud = running_cloud(lost_patience=600.0)
    listed_as_lost(cloud)
    says(cloud, 0, m.Hello(5), 800.0)
    effects = says(cloud, 0, m.Hello(6000), 810.0)  # without its disk
    assert written(effects, LostRecord) == ["g0.5.3", "g0.5.4"]
    assert sent(says(cloud, 0, m.Hello(5), 820.0), m.Fenced) == [(0, m.Fenced(5))]


def test_an_upload_that_is_too_stale_is_dropped_and_its_updates_are_not_lost() -> None:
    cloud = running_cloud(lost_patience=600.0, max_staleness=1)
    listed_as_lost(cloud)
    says(cloud, 1, replace(upload(1, 0), upload=UploadId(1, 6, 1)), 750.0)
    effects = says(cloud, 0, replace(upload(1, 0), jobs=(3, 4)), 800.0)
    (record,) = [e.record for e in effects if isinstance(e, Write) and isinstance(e.record, UploadRecord)]
    assert (record.reason, record.staleness) == ("dropped", 2)
    assert not cloud.state.ledgers[0, 5].lost
    assert cloud.state.ledgers[0, 5].claims == {}


def test_a_gateway_that_comes_back_after_the_end_corrects_its_losses() -> None:
    cloud = running_cloud(lost_patience=600.0)
    listed_as_lost(cloud)
    cloud.handle(DrainAsked(730.0))
    effects = says(cloud, 0, m.Hello(5), 800.0)
    assert [gateway for gateway, _ in sent(effects, m.Finish)] == [0]
    assert written(effects, FoundRecord) == ["g0.5.3", "g0.5.4"]
    assert written(says(cloud, 0, m.Hello(5), 801.0), FoundRecord) == []


def test_a_disk_that_is_lost_after_the_end_is_a_loss() -> None:
    cloud = running_cloud()
    says(cloud, 1, m.Unsettled(0, (JobId(0, 5, 3),)), 50.0)
    cloud.handle(DrainAsked(60.0))
    effects = says(cloud, 0, m.Hello(6000), 70.0)
    ((gateway, finish),) = sent(effects, m.Finish)
    assert (gateway, finish.outcomes) == (0, ())
    assert written(effects, LostRecord) == ["g0.5.3"]
    # A late message of the old incarnation is not answered: the answer would be about other uploads.
    assert says(cloud, 0, m.Hello(5), 71.0) == []
    assert len(sent(says(cloud, 0, m.Hello(6000), 72.0), m.Finish)) == 1


def test_a_gateway_without_its_disk_gets_devices_as_soon_as_one_has_joined() -> None:
    cloud = running_cloud()
    joins(cloud, 0, 1, 50.0)
    joins(cloud, 1, 1, 50.1)
    solved(cloud, cloud.handle(TimerFired(50.6, "association")), [0, 0], 50.7)
    effects = says(cloud, 0, m.Hello(6000), 100.0)
    again = solved(cloud, effects, [1, 1], 100.1)  # no device has joined it yet
    solved(cloud, again, [1, 1], 100.2)
    effects = says(cloud, 0, m.Report(6000, 1, heard=(0,)), 102.0)
    assert SetTimer("association", 102.5) in effects
    effects = cloud.handle(TimerFired(102.5, "association"))
    told = solved(cloud, effects, [0, 1], 102.6)
    assert [gateway for gateway, _ in sent(told, m.Assignment)] == [0, 1]
    # It has a device now: the next one that joins waits for the next association.
    assert says(cloud, 0, m.Report(6000, 2, heard=(1,)), 103.0) == []


def test_another_incarnation_ends_the_wait_for_the_old_one() -> None:
    cloud = running_cloud(lost_patience=600.0)
    cloud.handle(PeerLost(100.0, gateway_address(0)))
    cloud.handle(TimerFired(110.0, "gone"))
    says(cloud, 0, m.Hello(6000), 120.0)
    assert cloud.state.members[0].live
    assert cloud.state.ledgers[0, 5].lost
    assert sent(says(cloud, 0, m.Hello(5), 130.0), m.Fenced) == [(0, m.Fenced(5))]


def test_a_run_that_ends_waits_for_no_gateway() -> None:
    cloud = running_cloud(lost_patience=600.0)
    cloud.handle(PeerLost(100.0, gateway_address(0)))
    cloud.handle(TimerFired(110.0, "gone"))
    cloud.handle(DrainAsked(120.0))
    assert cloud.state.ledgers[0, 5].lost
    assert [gateway for gateway, _ in sent(says(cloud, 0, m.Hello(5), 130.0), m.Finish)] == [0]


def test_an_operator_may_end_the_run() -> None:
    cloud = running_cloud()
    effects = cloud.handle(DrainAsked(60.0))
    assert sorted(gateway for gateway, _ in sent(effects, m.Finish)) == [0, 1]
    assert Stop() in effects
    assert cloud.handle(DrainAsked(61.0)) == []
    # A gateway that was away is told when it joins, whatever its incarnation.
    assert sent(says(cloud, 4, m.Hello(77), 62.0), m.Finish)[0][0] == 4


# A gateway's sessions ----------------------------------------------------------------------------------------------


def new_gateway(**config: Any) -> GatewayNode:
    made = replace(GATEWAY_CONFIG, deployment=GatewayDeployment(cloud_patience=60.0), **config)
    gateway = GatewayNode(made, UtilityKnapsack(), MixOnArrival(), 5)
    known = tuple(m.DeviceKnowledge(device, 100.0, False, 10, np.nan, np.nan) for device in (0, 1))
    leases = tuple(m.Lease(device, 1, 1) for device in (0, 1))
    hears(gateway, m.Assignment(5, 1, (0, 1), leases, known), 1.0)
    return gateway


def hears(gateway: GatewayNode, message: Any, at: float) -> list[Effect]:
    return gateway.handle(Received(at, CLOUD, message))


def trains(effects: list[Effect]) -> list[int]:
    return [device for device, _ in sent(effects, m.Train)]


def test_a_broken_session_makes_a_link_infeasible_and_keeps_the_job() -> None:
    gateway = new_gateway()
    assert trains(hears(gateway, m.GlobalModel(0, vector(0.0, 0.0)), 2.0)) == [0, 1]
    effects = gateway.handle(PeerLost(3.0, device_address(0)))
    assert sent(effects, m.Report)[0][1].lost == (0,)
    assert sorted(gateway.state.in_flight_jobs) == [1, 2]
    effects = gateway.handle(PeerJoined(5.0, device_address(0)))
    assert sent(effects, m.Report)[0][1].heard == (0,)
    assert trains(effects) == []  # it is still busy with the first one


def test_a_device_of_another_gateway_is_reported_too() -> None:
    gateway = new_gateway()
    assert sent(gateway.handle(PeerJoined(3.0, device_address(9))), m.Report)[0][1].heard == (9,)
    assert sent(gateway.handle(PeerLost(4.0, device_address(9))), m.Report)[0][1].lost == (9,)


def test_devices_have_some_time_to_reconnect_after_a_restart() -> None:
    gateway = new_gateway()
    for device in (0, 1):
        gateway.handle(PeerJoined(2.0, device_address(device)))
    effects = gateway.handle(Returned(50.0))
    assert sent(effects, m.Hello) == [(0, m.Hello(5))]
    assert SetTimer("reconnect", 65.0) in effects
    gateway.handle(PeerJoined(52.0, device_address(1)))
    effects = gateway.handle(TimerFired(65.0, "reconnect"))
    assert [report.lost for _, report in sent(effects, m.Report)] == [(0,)]
    assert gateway.state.connected == {1}


def test_no_device_is_triggered_when_the_cloud_is_away_for_too_long() -> None:
    gateway = new_gateway()
    hears(gateway, m.GlobalModel(0, vector(0.0, 0.0)), 2.0)
    assert SetTimer("cloud", 70.0) in gateway.handle(PeerLost(10.0, CLOUD))
    gateway.handle(TimerFired(70.0, "cloud"))
    job = JobId(0, 5, 1)
    update = m.Update(job, vector(1.0, 1.0), 10, 5, 0.5, 0.3, None, 1.0, 1.0)
    effects = gateway.handle(Received(80.0, device_address(0), update))
    assert trains(effects) == []
    assert gateway.state.gateway_epoch == 1  # jobs that were sent before still count
    assert trains(gateway.handle(PeerJoined(90.0, CLOUD))) == [0]


def test_a_cloud_that_is_back_in_time_changes_nothing() -> None:
    gateway = new_gateway()
    gateway.handle(PeerLost(10.0, CLOUD))
    gateway.handle(PeerJoined(20.0, CLOUD))
    gateway.handle(TimerFired(70.0, "cloud"))
    assert trains(hears(gateway, m.GlobalModel(0, vector(0.0, 0.0)), 71.0)) == [0, 1]


def test_a_device_does_not_time_out_during_a_slow_transfer() -> None:
    gateway = new_gateway(patience_factor=1.5)
    hears(gateway, m.GlobalModel(0, vector(0.0, 0.0)), 0.0)  # each times out after 150 s
    gateway.handle(Progressed(140.0, device_address(0)))
    effects = gateway.handle(TimerFired(150.0, "patience"))
    assert [report.lost for _, report in sent(effects, m.Report)] == [(1,)]
    assert SetTimer("patience", 290.0) in effects
    gateway.handle(Progressed(200.0, device_address(9)))  # an unknown device


def test_an_upload_is_not_resent_during_a_slow_transfer() -> None:
    gateway = new_gateway()
    hears(gateway, m.GlobalModel(0, vector(0.0, 0.0)), 0.0)
    for number, device in ((1, 0), (2, 1)):
        update = m.Update(JobId(0, 5, number), vector(1.0, 1.0), 10, 5, 0.5, 0.3, None, 1.0, 1.0)
        effects = gateway.handle(Received(10.0, device_address(device), update))
    assert len(sent(effects, m.Upload)) == 1
    gateway.handle(Progressed(100.0, CLOUD))
    effects = gateway.handle(TimerFired(130.0, "reply"))
    assert effects == [SetTimer("reply", 220.0)]
    assert len(sent(gateway.handle(TimerFired(220.0, "reply")), m.Upload)) == 1


def test_a_gateway_whose_leases_were_revoked_uploads_early() -> None:
    gateway = new_gateway()
    hears(gateway, m.GlobalModel(0, vector(0.0, 0.0)), 2.0)
    update = m.Update(JobId(0, 5, 1), vector(1.0, 1.0), 10, 5, 0.5, 0.3, None, 1.0, 1.0)
    gateway.handle(Received(3.0, device_address(0), update))  # one of the two updates of a cycle
    dropped = m.JobDropped(JobId(0, 5, 2), "superseded", 1)
    gateway.handle(PeerLost(4.0, device_address(0)))
    gateway.handle(PeerLost(4.0, device_address(1)))
    gateway.handle(Received(5.0, device_address(1), dropped))
    gateway.state.in_flight_jobs.clear()  # the job that followed the update ended likewise
    gateway.state.active = 0
    effects = hears(gateway, m.LeasesRevoked(5, (m.Lease(0, 1, 1), m.Lease(1, 1, 1))), 100.0)
    ((_, early),) = sent(effects, m.Upload)
    assert (early.updates, early.early) == (1, True)
    assert gateway.state.device_table.lease.tolist() == [0, 0]
    # Leases that were granted later are not concerned.
    again = new_gateway()
    newer = (m.Lease(0, 7, 2),)
    hears(again, m.Assignment(5, 2, (0,), newer, (m.DeviceKnowledge(0, 1.0, False, 9, np.nan, np.nan),)), 3.0)
    hears(again, m.LeasesRevoked(5, (m.Lease(0, 1, 1), m.Lease(1, 1, 1))), 4.0)
    assert again.state.device_table.lease.tolist() == [7, 0]
    assert hears(again, m.LeasesRevoked(4, (m.Lease(0, 9, 1),)), 5.0) == []


def test_outstanding_uploads_are_resent_when_leases_were_revoked() -> None:
    gateway = new_gateway(epochs=1)
    hears(gateway, m.GlobalModel(0, vector(0.0, 0.0)), 2.0)
    update = m.Update(JobId(0, 5, 1), vector(1.0, 1.0), 10, 5, 0.5, 0.3, None, 1.0, 1.0)
    ((_, first),) = sent(gateway.handle(Received(3.0, device_address(0), update)), m.Upload)
    hears(gateway, m.UploadHeld(first.upload), 4.0)
    assert sent(hears(gateway, m.LeasesRevoked(5, ()), 50.0), m.Upload) == [(0, first)]


def test_a_bandwidth_fixed_by_warm_up_is_in_force_from_the_first_model_on() -> None:
    gateway = new_gateway(bandwidth=1e15)
    assert trains(hears(gateway, m.GlobalModel(0, vector(0.0, 0.0), bandwidth=15.0), 2.0)) == [0]  # R = 10 each


# Devices ----------------------------------------------------------------------------------------------------------


def test_a_training_that_fails_ends_its_job() -> None:
    device = DeviceNode()
    job = JobId(0, 5, 1)
    device.handle(Received(1.0, gateway_address(0), m.Train(job, vector(0.0, 0.0), 0, 0, 1)))
    (dropped,) = device.handle(TrainingBroke(2.0, job))
    assert isinstance(dropped, Send)
    assert isinstance(dropped.message, m.JobDropped)
    assert dropped.message.reason == "device_lost"
    assert device.handle(TrainingBroke(3.0, job)) == []
    result = TrainingResult(vector(1.0, 1.0), 10, 5, 0.5, 0.3)
    assert device.handle(Trained(4.0, job, result)) == []
    (begun,) = device.handle(Received(5.0, gateway_address(0), m.Train(JobId(0, 5, 2), vector(0.0, 0.0), 0, 0, 1)))
    assert isinstance(begun, StartTraining)


# Evaluation by devices ---------------------------------------------------------------------------------------------


def upload(number: int, base: int) -> m.Upload:
    return m.Upload(UploadId(0, 5, number), vector(1.0, 1.0), base, 2, 20, False, number, ())


def assessed(cloud: CloudNode, epoch: int, device: int, metric: float, at: float) -> list[Effect]:
    return says(cloud, 0, m.EvaluateResult(epoch, metric, 0.5, device), at)


def epochs_of(effects: list[Effect]) -> list[tuple[int, float, dict[str, float]]]:
    return [
        (e.record.epoch, e.record.metric, e.record.details)
        for e in effects
        if isinstance(e, Write) and type(e.record).__name__ == "EpochRecord"
    ]  # type: ignore[union-attr]


def test_devices_evaluate_if_the_cloud_cannot() -> None:
    cloud = running_cloud(evaluating_devices=2, device_evaluation_timeout=60.0)
    effects = says(cloud, 0, upload(1, 0), 10.0)
    assert not any(isinstance(effect, Evaluate) for effect in effects)
    ((gateway, asked),) = sent(effects, m.EvaluateRequest)
    assert (gateway, asked.epoch, asked.devices) == (0, 1, (0, 1))
    assert SetTimer("device_evaluation", 70.0) in effects
    assert epochs_of(assessed(cloud, 1, 0, 0.6, 11.0)) == []
    assert epochs_of(assessed(cloud, 1, 7, 0.0, 11.5)) == []  # it was not asked
    found = epochs_of(assessed(cloud, 1, 1, 0.8, 12.0))
    assert found == [(1, pytest.approx(0.7), {"asked": 2.0, "answered": 2.0})]
    assert epochs_of(assessed(cloud, 1, 1, 0.8, 13.0)) == []


def test_an_evaluation_closes_when_the_patience_is_over() -> None:
    cloud = running_cloud(evaluating_devices=2, device_evaluation_timeout=60.0)
    says(cloud, 0, upload(1, 0), 10.0)
    assessed(cloud, 1, 0, 0.6, 11.0)
    assert epochs_of(cloud.handle(TimerFired(70.0, "device_evaluation"))) == [(1, 0.6, {"asked": 2.0, "answered": 1.0})]
    says(cloud, 0, upload(2, 1), 80.0)
    ((_, metric, details),) = epochs_of(cloud.handle(TimerFired(140.0, "device_evaluation")))
    assert np.isnan(metric)
    assert details["answered"] == 0.0


def test_devices_evaluate_every_period_and_at_the_end() -> None:
    cloud = running_cloud(evaluating_devices=1, device_evaluation_period=3, epochs=4)
    asked = [bool(sent(says(cloud, 0, upload(n, n - 1), 10.0 * n), m.EvaluateRequest)) for n in (1, 2, 3, 4)]
    assert asked == [False, False, True, True]


def test_a_gateway_passes_on_evaluation_requests_and_results() -> None:
    gateway = new_gateway()
    gateway.handle(PeerJoined(2.0, device_address(1)))
    effects = hears(gateway, m.EvaluateRequest(4, vector(1.0, 1.0), (0, 1)), 3.0)
    assert [device for device, _ in sent(effects, m.EvaluateRequest)] == [1]  # the other one is not connected
    effects = gateway.handle(Received(4.0, device_address(1), m.EvaluateResult(4, 0.75, 0.5)))
    assert sent(effects, m.EvaluateResult) == [(0, m.EvaluateResult(4, 0.75, 0.5, 1))]


def test_a_gateway_passes_on_an_evaluation_once_and_only_if_it_was_asked_for() -> None:
    gateway = new_gateway()
    gateway.handle(PeerJoined(2.0, device_address(0)))
    gateway.handle(PeerJoined(2.0, device_address(1)))
    hears(gateway, m.EvaluateRequest(4, vector(1.0, 1.0), (1,)), 3.0)

    def passed_on(device: int, epoch: int) -> int:
        return len(
            sent(
                gateway.handle(Received(4.0, device_address(device), m.EvaluateResult(epoch, 0.75, 0.5))),
                m.EvaluateResult,
            )
        )

    assert [passed_on(0, 4), passed_on(1, 3), passed_on(1, 4), passed_on(1, 4)] == [0, 0, 1, 0]
    for epoch in range(5, 105):
        hears(gateway, m.EvaluateRequest(epoch, vector(1.0, 1.0), (1,)), 5.0)
    assert [passed_on(1, 5), passed_on(1, 104)] == [0, 1]


def test_a_device_evaluates_for_each_gateway_that_asks() -> None:
    device = DeviceNode()
    (evaluate,) = device.handle(Received(1.0, gateway_address(3), m.EvaluateRequest(4, vector(1.0, 1.0))))
    assert isinstance(evaluate, Evaluate)
    assert device.handle(Evaluated(2.0, 4, Evaluation(0.75, 0.5))) == [
        Send(gateway_address(3), m.EvaluateResult(4, 0.75, 0.5))
    ]
    assert device.handle(Evaluated(3.0, 4, Evaluation(0.75, 0.5))) == []


def test_a_device_ignores_session_events() -> None:
    events: tuple[Event, ...] = (Started(0.0), PeerJoined(1.0, gateway_address(0)), PeerLost(2.0, gateway_address(0)))
    assert [DeviceNode().handle(event) for event in events] == [[], [], []]
