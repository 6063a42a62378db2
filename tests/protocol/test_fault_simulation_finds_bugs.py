"""The fault simulation finds bugs: each test breaks the protocol in one way, and the simulation must notice."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import async_hfl

SOURCE = Path(async_hfl.__file__).parent
SEEDS = 25
FIRST = {
    "drop an update that arrived during an upload": 8,
    "move statistics by changes when an update is mixed": 10,
    "keep the upload of a lost gateway": 50,
    "forget the moments of Adam": 10,
    "let effects leave before the event is durable": 10,
    "forget that a transfer broke off": 20,
    "come back without a disk under the old incarnation": 8,
    "forget what a lost gateway had acknowledged": 10,
    "fence a gateway that comes back late with its disk": 6,
    "take a gateway back without correcting the list": 20,
    "count the uploads of a gateway twice that was declared lost and comes back": 150,
    "send nothing when a link is back": 6,
    "forget devices that were connected before a restart": 6,
    "encode an update as a change of the model of a superseded job": 35,
    "feed the rounding error back twice": 14,
    "compare changes with one that its device has replaced": 6,
    "forget the changes of other devices at a restart": 8,
    "trim no changes": 6,
    "add the noise of the epoch before": 15,
    "measure the noise by the device with the smallest weight": 15,
}
"""The first seed to run for bugs that do not show with lower seeds."""
BREAKAGES = {
    "count an upload twice": (
        "mix",
        "nodes/cloud/uploads.py",
        "    if known is not None:\n        _answer(cloud, upload, known)\n        return False\n",
        "",
    ),
    "forget a release": (
        "mix",
        "nodes/gateway/leases.py",
        "    gateway.emit(Send(CLOUD, m.LeaseReleased(lease, gateway.knowledge(slot), warmup)))\n",
        "",
    ),
    "lose a timer": (
        "mix",
        "nodes/reliability/recovery.py",
        "        timers = [SetTimer(key, at) for key, at in self.timers.items()]\n",
        "        timers: list[SetTimer] = []\n        self.timers = {}\n",
    ),
    "restart staleness": (
        "mix",
        "nodes/gateway/context.py",
        "        if codec.encodes_down:\n            state.encoded = model.weights\n",
        "        state.gateway_epoch = 0\n        if codec.encodes_down:\n            state.encoded = model.weights\n",
    ),
    "drop an update that arrived during an upload": (
        "mix",
        "nodes/gateway/node.py",
        "            held = state.pending.pop(0)\n            step = rule.received(gateway, held, at)\n",
        "            held = state.pending.pop(0)\n            step = Next.SELECT\n",
    ),
    "count an update twice in a period": (
        "periods",
        "nodes/gateway/aggregation/periods.py",
        "        model = add_changes(gateway.weights, new, sent, weights, trained=config.gradient_size)\n",
        "        model = add_changes(gateway.weights, [*new, new[0]], [*sent, sent[0]], [*weights, weights[0]])\n",
    ),
    "weigh an update by the data of devices that have moved away": (
        "periods",
        "nodes/gateway/device_table.py",
        "        return int(self.samples[self.associated].sum())\n",
        "        return int(self.samples.sum())\n",
    ),
    "forget the clock of a period": (
        "periods",
        "nodes/gateway/node.py",
        "            self.gateway.emit(SetTimer(AGGREGATION_TIMER, self.aggregation.due))\n",
        "            pass\n",
    ),
    "let a late update into the next round": (
        "rounds",
        "nodes/gateway/aggregation/rounds.py",
        "        return job in self.state.members\n",
        "        return True\n",
    ),
    "close a round without one of its updates": (
        "rounds",
        "nodes/gateway/aggregation/rounds.py",
        "            adopt(gateway, average(models_of(gateway, arrived), weights), arrived, weights)\n",
        "            adopt(gateway, average(models_of(gateway, arrived)[1:] or models_of(gateway, arrived), "
        "weights[1:] or weights), arrived, weights)\n",
    ),
    "weigh the updates of a round equally": (
        "rounds",
        "nodes/gateway/aggregation/rounds.py",
        "            weights = shares([held.update.samples for held in arrived])\n",
        "            weights = shares([1 for held in arrived])\n",
    ),
    "wait for one answer more than a round needs": (
        "rounds",
        "nodes/gateway/aggregation/rounds.py",
        "max(1, math.floor(len(jobs) / gateway.config.over_selection + 0.5))",
        "max(1, math.floor(len(jobs) / gateway.config.over_selection + 1.5))",
    ),
    "let a round last beyond its deadline": (
        "rounds",
        "nodes/gateway/aggregation/rounds.py",
        "min(deadline, gateway.config.round_patience * slowest)",
        "gateway.config.round_patience * slowest",
    ),
    "draw tiers again when devices are associated again": (
        "rounds",
        "nodes/cloud/tier_draws.py",
        "if config.tier_rounds == 0 or state.tiers.epoch == state.epoch:",
        "if config.tier_rounds == 0:",
    ),
    "weigh the updates of a buffer by samples": (
        "buffer",
        "nodes/gateway/aggregation/buffer.py",
        "        weights = [config.staleness(age) / len(arrived) for age in ages]\n",
        "        total = sum(held.update.samples for held in arrived)\n"
        "        parts = [held.update.samples / total for held in arrived]\n"
        "        weights = [part * config.staleness(age) for part, age in zip(parts, ages, strict=True)]\n",
    ),
    "let a buffer grow beyond its size": (
        "buffer",
        "nodes/gateway/aggregation/buffer.py",
        "        if len(gateway.state.buffer) < gateway.part_of",
        "        if len(gateway.state.buffer) <= gateway.part_of",
    ),
    "ignore the age of updates in a period": (
        "periods",
        "nodes/gateway/aggregation/periods.py",
        "        weights = [part * config.staleness(age) for part, (_, age) in zip(parts, fresh, strict=True)]\n",
        "        weights = parts\n",
    ),
    "move statistics by changes when an update is mixed": (
        "mix",
        "nodes/gateway/aggregation/mix.py",
        "config.drag, trained=trained)",
        "config.drag)",
    ),
    "move statistics by changes in a period": (
        "periods",
        "nodes/gateway/aggregation/periods.py",
        "weights, trained=config.gradient_size)",
        "weights)",
    ),
    "relay the model that the device was sent": (
        "relay",
        "nodes/gateway/uploads.py",
        "        model, base_epoch, state.relays = relayed.model, relayed.in_flight.base_epoch, True\n",
        "        model = relayed.model if gateway.config.codec.encodes_up else relayed.in_flight.sent\n"
        "        base_epoch, state.relays = relayed.in_flight.base_epoch, True\n",
    ),
    "mix an upload with a weight that is not on record": (
        "mix",
        "nodes/cloud/aggregation/mix.py",
        "        model = mix(cloud.state.weights, plain_vector(upload.weights), weight)\n",
        "        model = mix(cloud.state.weights, plain_vector(upload.weights), 0.9 * weight)\n",
    ),
    "average without one gateway": (
        "rounds",
        "nodes/cloud/aggregation/average.py",
        "        if not held or not awaited <= held.keys() or cloud.is_last_epoch():\n",
        "        if not held or len(awaited - held.keys()) > 1 or cloud.is_last_epoch():\n",
    ),
    "keep the upload of a lost gateway": (
        "rounds",
        "nodes/cloud/aggregation/average.py",
        "        self.state.held.pop(gateway, None)\n",
        "",
    ),
    "forget to evaluate a new model": (
        "mix",
        "nodes/cloud/evaluations.py",
        "    elif on_grid:\n        _set_grid_timer(cloud, at)\n",
        "",
    ),
    "end a run without evaluating its last model": (
        "mix",
        "nodes/cloud/evaluations.py",
        "    if cloud.state.epoch != cloud.state.evaluation.epoch:\n        _begin(cloud, at)\n",
        "",
    ),
    "forget the momentum of the step before": (
        "rounds",
        "nodes/cloud/aggregation/average.py",
        "        previous, state.previous = state.previous, current\n",
        "        previous = None\n",
    ),
    "forget the moments of Adam": (
        "rounds",
        "nodes/cloud/aggregation/average.py",
        "            state.mean_step, state.squared_step = after.mean, after.square\n",
        "            state.mean_step = after.mean\n",
    ),
    "give statistics momentum": (
        "rounds",
        "nodes/cloud/aggregation/average.py",
        "current, previous, config.momentum, trained=config.gradient_size)",
        "current, previous, config.momentum)",
    ),
    "forget what was aggregated during an upload": (
        "periods",
        "nodes/gateway/context.py",
        "        if current is not None and uploaded is not None and state.updates:\n",
        "        if False and current is not None and uploaded is not None:\n",
    ),
    "add an upload to its own answer": (
        "periods",
        "nodes/gateway/node.py",
        "            state.uploaded = state.weights\n",
        "            state.uploaded = gateway.weights if state.base is None else state.base\n",
    ),
    "count updates again in the upload after theirs": (
        "periods",
        "nodes/gateway/node.py",
        "        state.updates = state.samples = 0\n",
        "        state.updates, state.samples = (0, 0) if model is not None else (state.updates, state.samples)\n",
    ),
    "upload while an upload is under way": (
        "mix",
        "nodes/gateway/node.py",
        "        state.upload_due = state.uploaded is not None\n",
        "        state.upload_due = False\n",
    ),
    "forget the upload that was put off": (
        "mix",
        "nodes/gateway/node.py",
        "            if state.upload_due:\n                self._upload(at)\n",
        "",
    ),
    "let effects leave before the event is durable": (  # a torn record
        "mix",
        "faults/simulator.py",
        '        if crash_point == "before_commit":\n',
        '        if crash_point == "before_commit":\n            self._perform(index, effects)\n',
    ),
    "pass a message on twice": (  # an acknowledgement lost after the commit
        "mix",
        "nodes/reliability/delivery.py",
        "        if not seen.add(content.number):\n            return [receipt]\n",
        "        seen.add(content.number)\n",
    ),
    "do not acknowledge a repeated packet": (
        "mix",
        "nodes/reliability/delivery.py",
        "        if not seen.add(content.number):\n            return [receipt]\n",
        "        if not seen.add(content.number):\n            return []\n",
    ),
    "forget that a transfer broke off": (  # resumed transfers
        "mix",
        "nodes/reliability/delivery.py",
        "        packet.resend_at = event.at + _patience(packet)\n"
        "        if packet.resend_at >= self.state.resend_at:\n",
        "        if packet.resend_at >= self.state.resend_at:\n",
    ),
    "send something else under the same number": (
        "mix",
        "nodes/reliability/delivery.py",
        "self.state.incarnation, number, packet.message))\n",
        "self.state.incarnation, number - (packet.attempts > 1), packet.message))\n",
    ),
    "come back without a disk under the old incarnation": (
        "mix",
        "faults/hosts.py",
        "        self._incarnation += 1_000_000\n",
        "",
    ),
    "forget what a lost gateway had acknowledged": (  # a lost disk
        "mix",
        "nodes/cloud/update_ledger.py",
        "        cloud.emit(Write(LostRecord(at, JobId(gateway, incarnation, number), device)))\n",
        "        pass\n",
    ),
    "forget which jobs an upload held": (
        "mix",
        "nodes/cloud/update_ledger.py",
        "    for number in upload.jobs:\n        ledger.decided.add(number)\n        ledger.claims.pop(number, None)\n",
        "",
    ),
    "fence a gateway that comes back late with its disk": (
        "mix",
        "nodes/cloud/membership.py",
        "    update_ledger.declare_lost(cloud, gateway, cloud.state.members[gateway].incarnation, at)\n",
        "    update_ledger.declare_lost(cloud, gateway, cloud.state.members[gateway].incarnation, at)\n"
        "    cloud.state.members[gateway].suspended = False\n"
        "    cloud.state.members[gateway].fenced.add(cloud.state.members[gateway].incarnation)\n",
    ),
    "take a gateway back without correcting the list": (
        "mix",
        "nodes/cloud/membership.py",
        "    update_ledger.withdraw_loss(cloud, gateway, member.incarnation, at)\n",
        "    cloud.state.ledgers.pop((gateway, member.incarnation), None)\n",
    ),
    "count the uploads of a gateway twice that was declared lost and comes back": (
        "mix",
        "nodes/cloud/membership.py",
        "    update_ledger.withdraw_loss(cloud, gateway, member.incarnation, at)\n",
        "    update_ledger.withdraw_loss(cloud, gateway, member.incarnation, at)\n"
        "    member.outcomes.clear()\n    member.answered_below = 0\n",
    ),
    "do not list updates that came too late for the end of the run": (
        "mix",
        "nodes/gateway/closing.py",
        "            gateway.emit(Write(LateRecord(at, JobId(number, state.incarnation, job), device)))\n",
        "            pass\n",
    ),
    "send nothing when a link is back": (  # a link outage with a live device
        "mix",
        "nodes/reliability/delivery.py",
        "                resent = self._transmit_all(event.peer)\n",
        "",
    ),
    "forget devices that were connected before a restart": (
        "mix",
        "nodes/gateway/sessions.py",
        "        gateway.emit(SetTimer(RECONNECT_TIMER, at + gateway.config.deployment.reconnect_patience))\n",
        "        pass\n",
    ),
    "send the former model encoded": (
        "mix",
        "nodes/gateway/context.py",
        "        self.state.weights, self.state.encoded = weights, None\n",
        "        self.state.weights = weights\n",
    ),
    "send the former global model encoded": (
        "mix",
        "nodes/cloud/node.py",
        "            state.weights, state.encoded = step.model, None\n",
        "            state.weights = step.model\n",
    ),
    "encode updates as changes of nothing": (
        "mix",
        "nodes/device.py",
        "        state.base = weights if self.codec.encodes_up else None\n",
        "        state.base = 0 * weights if self.codec.encodes_up else None\n",
    ),
    "encode an update as a change of the model of a superseded job": (
        "mix",
        "nodes/device.py",
        "        state.base = weights if self.codec.encodes_up else None\n",
        "        state.base = (weights if state.base is None else state.base) if self.codec.encodes_up else None\n",
    ),
    "count a change from the result of another job": (
        "mix",
        "nodes/device.py",
        "            state.rounding_error = left\n",
        "            state.rounding_error = weights\n",
    ),
    "feed the rounding error back twice": (
        "mix",
        "nodes/gateway/context.py",
        "        change, state.rounding_error = codec.encode_change(weights, state.base, state.rounding_error, key)\n",
        "        change, left = codec.encode_change(weights, state.base, state.rounding_error, key)\n"
        "        if left is not None:\n"
        "            state.rounding_error = left if state.rounding_error is None else left + state.rounding_error\n",
    ),
    "upload the change since the gateway's last upload": (
        "mix",
        "nodes/gateway/context.py",
        "            state.base = state.weights\n",
        "            state.base = state.weights if state.base is None else state.base\n",
    ),
    "decode uploads as changes of the newest model": (
        "mix",
        "nodes/cloud/uploads.py",
        "    base = state.bases.get(upload.base_epoch)\n",
        "    base = state.bases[max(state.bases)]\n",
    ),
    "decode updates as changes of the gateway's model": (
        "mix",
        "nodes/gateway/node.py",
        "decode_update(gateway.config.codec, update, in_flight.sent)\n",
        "decode_update(gateway.config.codec, update, gateway.weights)\n",
    ),
    "keep only the model of the newest upload": (
        "relay",
        "nodes/cloud/uploads.py",
        "    member, used = state.members[gateway], upload.bases or (upload.base_epoch,)\n",
        "    member, used = state.members[gateway], (upload.base_epoch,)\n",
    ),
    "relay a change as one of the gateway's model": (
        "relay",
        "nodes/gateway/uploads.py",
        "        model, base_epoch, state.relays = relayed.model, relayed.in_flight.base_epoch, True\n",
        "        model, base_epoch, state.relays = relayed.model, state.base_epoch, True\n",
    ),
    "relay a model that is encoded again": (
        "relay",
        "nodes/gateway/uploads.py",
        "        model, base_epoch, state.relays = relayed.model, relayed.in_flight.base_epoch, True\n",
        "        model, base_epoch, state.relays = relayed.model, relayed.in_flight.base_epoch, True\n"
        "        if gateway.config.codec.encodes_up:\n"
        "            model, _ = gateway.config.codec.encode_change(relayed.weights, relayed.in_flight.sent, None, 1)\n",
    ),
    "encode an upload again when it is resent": (
        "mix",
        "nodes/gateway/uploads.py",
        "            gateway.emit(Send(CLOUD, waiting.message))\n    gateway.state.resend_at",
        "            from dataclasses import replace\n"
        "            again = gateway.model_for_cloud(waiting.message.upload)\n"
        "            waiting.message = replace(waiting.message, weights=again)\n"
        "            gateway.emit(Send(CLOUD, waiting.message))\n    gateway.state.resend_at",
    ),
    "compare changes with one that its device has replaced": (
        "mix",
        "nodes/gateway/aggregation/robust.py",
        "        seen.pop(held.in_flight.slot, None)\n",
        "",
    ),
    "forget the changes of other devices at a restart": (
        "periods",
        "nodes/gateway/node.py",
        "        self.gateway.state.device_table.complete()\n",
        "        self.gateway.state.device_table.complete()\n        self.gateway.state.latest.clear()\n",
    ),
    "trim no changes": (
        "buffer",
        "nodes/gateway/aggregation/robust.py",
        "cut_at_each_end(len(vectors), config.trim)",
        "0",
    ),
    "add the noise of the epoch before": (
        "periods",
        "nodes/gateway/aggregation/private.py",
        "state.gateway_epoch + 1)",
        "state.gateway_epoch)",
    ),
    "measure the noise by the device with the smallest weight": (
        "rounds",
        "nodes/gateway/aggregation/private.py",
        "max(by_device.values())",
        "min(by_device.values())",
    ),
    "aggregate a change that is not clipped": (
        "mix",
        "nodes/gateway/aggregation/contributions.py",
        "        return [clipped(gateway, held) for held in arrived]\n",
        "        return [held.weights for held in arrived]\n",
    ),
}
PROGRAM = """
from importlib import import_module
import_module({package!r}).__path__.insert(0, {folder!r})  # the broken module comes before the right one
from async_hfl.assembly.fuzzing.scenarios import fuzz
from async_hfl.core.errors import InvariantViolation
for seed in range({first}, {first} + {seeds}):
    try:
        fuzz(seed, {gateway!r})
    except InvariantViolation as violation:
        raise SystemExit(f"caught at seed {{seed}}: {{violation}}")
"""


@pytest.mark.parametrize("name", BREAKAGES)
def test_a_broken_protocol_is_caught(name: str, tmp_path: Path) -> None:
    gateway, file, whole, broken = BREAKAGES[name]
    path = SOURCE / file
    text = path.read_text()
    assert text.count(whole) == 1, f"{file} has changed: update this breakage"
    (tmp_path / path.name).write_text(text.replace(whole, broken))
    program = PROGRAM.format(
        package=".".join(["async_hfl", *Path(file).parent.parts]),
        folder=str(tmp_path),
        first=FIRST.get(name, 0),
        seeds=SEEDS,
        gateway=gateway,
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=600, check=False)
    assert "caught at seed" in done.stderr, done.stderr[-500:]
