"""The fault simulation is worth something only if it finds faults: break the protocol in many ways; it must tell."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import async_hfl

SOURCE = Path(async_hfl.__file__).parent
SEEDS = 25
FIRST = {"keep the upload of a lost gateway": 40, "forget that a transfer broke off": 15}
"""Seeds before which a breakage does not show, so that they need not be run."""
BREAKAGES = {
    "count an upload twice": (
        "mix",
        "nodes/cloud.py",
        "        if known is not None:\n            self._answer(upload, known)\n            return\n",
        "",
    ),
    "forget a release": (
        "mix",
        "nodes/rights.py",
        "    node.emit(Send(CLOUD, m.Released(grant, roster.knowledge(slot), warmup)))\n",
        "",
    ),
    "lose a timer": (
        "mix",
        "nodes/recovery.py",
        "        timers = [SetTimer(key, at) for key, at in self.timers.items()]\n",
        "        timers: list[SetTimer] = []\n        self.timers = {}\n",
    ),
    "restart staleness": (
        "mix",
        "nodes/cycles.py",
        "    state.base_epoch = model.epoch\n",
        "    state.base_epoch = model.epoch\n    state.gateway_epoch = 0\n",
    ),
    "drop a held update": (
        "mix",
        "nodes/gateway_mixing.py",
        "            held = self.state.held.pop(0)\n"
        "            self._mix(node, held.number, held.flight, held.update, at)\n",
        "            self.state.held.pop(0)\n",
    ),
    "count an update twice in a period": (
        "periods",
        "nodes/gateway_periods.py",
        "            state.weights, [held.update.weights for held, _ in fresh], "
        "[held.flight.sent for held, _ in fresh], weights\n",
        "            add_changes(\n"
        "                state.weights, [fresh[0][0].update.weights], [fresh[0][0].flight.sent], weights[:1]\n"
        "            ),\n"
        "            [held.update.weights for held, _ in fresh], [held.flight.sent for held, _ in fresh], weights\n",
    ),
    "forget the clock of a period": (
        "periods",
        "nodes/gateway_periods.py",
        "            node.emit(SetTimer(AGGREGATION_TIMER, state.ends_at))\n",
        "",
    ),
    "let a late update into the next round": (
        "rounds",
        "nodes/gateway_rounds.py",
        '            node.end_job(number, flight, "round_closed", at, update)\n',
        "            self.state.arrived.append(HeldUpdate(number, flight, update))\n",
    ),
    "close a round without one who is back": (
        "rounds",
        "nodes/gateway_rounds.py",
        "            node.state.weights = average([held.update.weights for held in arrived], weights)\n",
        "            node.state.weights = average([held.update.weights for held in arrived[1:] or arrived], "
        "weights[1:] or weights)\n",
    ),
    "average without one gateway": (
        "rounds",
        "nodes/cloud_averaging.py",
        "        if self.state.held and awaited <= self.state.held.keys() and not node.enough():\n",
        "        if self.state.held and len(awaited - self.state.held.keys()) < 2 and not node.enough():\n",
    ),
    "keep the upload of a lost gateway": (
        "rounds",
        "nodes/cloud_averaging.py",
        "        self.state.held.pop(gateway, None)\n",
        "",
    ),
    "let effects leave before the event is durable": (  # a torn record
        "mix",
        "simulation/faults.py",
        '        if doom == "torn":\n',
        '        if doom == "torn":\n            self._perform(index, effects)\n',
    ),
    "pass a message on twice": (  # an acknowledgement lost after the commit
        "mix",
        "nodes/delivery.py",
        "        if not seen.add(content.number):\n            return [receipt]\n",
        "        seen.add(content.number)\n",
    ),
    "acknowledge a repeat no more": (
        "mix",
        "nodes/delivery.py",
        "        if not seen.add(content.number):\n            return [receipt]\n",
        "        if not seen.add(content.number):\n            return []\n",
    ),
    "forget that a transfer broke off": (  # resumed transfers
        "mix",
        "nodes/delivery.py",
        "        parcel.resend_at = event.at + _patience(parcel)\n"
        "        if parcel.resend_at >= self.state.resend_at:\n",
        "        if parcel.resend_at >= self.state.resend_at:\n",
    ),
    "send something else under the same number": (
        "mix",
        "nodes/delivery.py",
        "self.state.incarnation, number, parcel.message))\n",
        "self.state.incarnation, number - (parcel.attempts > 1), parcel.message))\n",
    ),
    "come back without a disk under the old incarnation": (
        "mix",
        "simulation/fault_hosts.py",
        "        self._incarnation += 1_000_000\n",
        "",
    ),
    "forget what a lost gateway had acknowledged": (  # a lost disk
        "mix",
        "nodes/accounts.py",
        "        node.emit(Write(LostRecord(at, JobId(gateway, incarnation, number), device)))\n",
        "        pass\n",
    ),
    "forget which jobs an upload held": (
        "mix",
        "nodes/accounts.py",
        "    for number in upload.jobs:\n"
        "        account.decided.add(number)\n"
        "        account.claims.pop(number, None)\n",
        "",
    ),
    "fence a gateway that comes back late with its disk": (
        "mix",
        "nodes/cloud_joining.py",
        "    accounts.lose(node, gateway, node.state.members[gateway].incarnation, at)\n\n\ndef replace",
        "    accounts.lose(node, gateway, node.state.members[gateway].incarnation, at)\n"
        "    node.state.members[gateway].suspended = False\n"
        "    node.state.members[gateway].fenced.add(node.state.members[gateway].incarnation)\n\n\ndef replace",
    ),
    "take a gateway back without correcting the list": (
        "mix",
        "nodes/cloud_joining.py",
        "    state.suspended.pop(gateway, None)\n    accounts.find(node, gateway, member.incarnation, at)\n",
        "    state.suspended.pop(gateway, None)\n    node.state.ledgers.pop((gateway, member.incarnation), None)\n",
    ),
    "count twice what a gateway brings that was held for lost": (
        "mix",
        "nodes/cloud_joining.py",
        "    state.suspended.pop(gateway, None)\n    accounts.find(node, gateway, member.incarnation, at)\n",
        "    state.suspended.pop(gateway, None)\n    accounts.find(node, gateway, member.incarnation, at)\n"
        "    member.outcomes.clear()\n    member.answered_below = 0\n",
    ),
    "say nothing of what the end of the run overtook": (
        "mix",
        "nodes/gateway.py",
        "            accounts.list_late(self, decided, at)\n",
        "            pass\n",
    ),
    "say nothing when a link is back": (  # a link outage with a live device
        "mix",
        "nodes/delivery.py",
        "            return self._all_to({event.peer})\n",
        "",
    ),
    "forget devices that were there before a restart": (
        "mix",
        "nodes/presence.py",
        "        node.emit(SetTimer(PRESENCE_TIMER, at + node.config.presence_patience))\n",
        "        pass\n",
    ),
}
PROGRAM = """
from async_hfl.assembly.fuzzing import fuzz
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
    shutil.copytree(SOURCE, tmp_path / "async_hfl", ignore=shutil.ignore_patterns("__pycache__"))
    path = tmp_path / "async_hfl" / file
    text = path.read_text()
    assert text.count(whole) == 1, f"{file} has changed: break it anew"
    path.write_text(text.replace(whole, broken))
    program = PROGRAM.format(first=FIRST.get(name, 0), seeds=SEEDS, gateway=gateway)
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False
    )
    assert "caught at seed" in done.stderr, done.stderr[-500:]
