"""Uploads at the cloud: each is aggregated once, and its outcome is kept until the gateway has the answer."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from async_hfl.core.protocol import messages as m
from async_hfl.core.protocol.effects import Write
from async_hfl.core.protocol.records import LifecycleRecord, UploadEnd, UploadRecord
from async_hfl.core.weights import is_finite
from async_hfl.nodes.cloud import update_ledger
from async_hfl.nodes.cloud.aggregation.rule import Next
from async_hfl.nodes.cloud.association_table import store_knowledge
from async_hfl.nodes.cloud.context import Cloud

_LARGEST_WEIGHT = 1e18
"""The square of a larger number overflows single precision."""


def admit(cloud: Cloud, upload: m.Upload, at: float) -> bool:
    """Return True if an upload is to be aggregated. A repeat is answered again; others are refused or ignored."""
    state, gateway, number = cloud.state, upload.upload.gateway, upload.upload.number
    member = state.members[gateway]
    if upload.upload.incarnation != member.incarnation or not member.live:
        send_fenced(cloud, gateway, upload.upload.incarnation)
        return False
    known = member.outcomes.get(number)
    if known is not None:
        _answer(cloud, upload, known)
        return False
    if upload.base_epoch > state.epoch:
        reason = (
            f"the gateway works from cloud epoch {upload.base_epoch}, the cloud is at {state.epoch}: "
            "the cloud has lost its state; start a new run, or restore the cloud's run directory"
        )
        cloud.emit(Write(LifecycleRecord(at, "refused", f"g{gateway}", reason)))
        cloud.send(gateway, m.Refused(reason))
        return False
    if number in member.pending:
        cloud.send(gateway, m.UploadHeld(upload.upload))  # a repeat: the first receipt may be lost
        return False
    if number < member.answered_below:
        return False
    member.answered_below = max(member.answered_below, upload.answered_below)
    for old in [old for old in member.outcomes if old < member.answered_below]:
        del member.outcomes[old]
    for known_device in upload.knowledge:
        store_knowledge(cloud, known_device, gateway)
    if cloud.is_last_epoch():
        return False  # the run ends with the evaluation in progress; `Finish` will be the answer
    member.pending.add(number)
    return True


def decode(cloud: Cloud, upload: m.Upload, at: float) -> m.Upload | None:
    """Return the upload with its decoded model. Return None if it is a change of a model that the cloud does not have,
    or not finite. That is put on record, unless the model was forgotten because it was too old. Models of which no
    later upload of this gateway can be a change are forgotten."""
    state, codec, gateway = cloud.state, cloud.config.codec, upload.upload.gateway
    if not codec.encodes_up:
        return upload if _is_usable(cloud, upload, upload.weights, at) else None
    base = state.bases.get(upload.base_epoch)
    member, used = state.members[gateway], upload.bases or (upload.base_epoch,)
    member.bases = {epoch for epoch in member.bases if epoch in used or epoch > max(used)}
    _keep_used_bases(cloud)
    if base is None:
        if upload.base_epoch >= _oldest_base(cloud):
            why = f"is a change of the model of cloud epoch {upload.base_epoch}, which the cloud no longer has"
            _refuse(cloud, upload, why, at)
        return None
    weights = codec.decode_change(upload.weights, base)
    return replace(upload, weights=weights) if _is_usable(cloud, upload, weights, at) else None


def _is_usable(cloud: Cloud, upload: m.Upload, weights: object, at: float) -> bool:
    """True if an upload gives a finite model; otherwise that is put on record."""
    if not isinstance(weights, np.ndarray) or is_finite(weights):  # a simulation on an accelerator need not wait
        return True
    _refuse(cloud, upload, "gives a model that is not finite", at)
    return False


def without_diverged_model(cloud: Cloud, step: Next, at: float) -> Next:
    """Return what a rule has decided; if its model is not finite or has huge numbers, which the next update could make
    infinite, the model before it stays, and the uploads in it are put on record and answered as not accepted."""
    model = step.model
    if not isinstance(model, np.ndarray) or float(np.abs(model).max(initial=0.0)) <= _LARGEST_WEIGHT:
        return step
    decided = []
    for upload, outcome in step.decided:
        if outcome.accepted:
            _refuse(cloud, upload, "gives a global model that is not finite and bounded", at)
        decided.append((upload, m.Outcome(False, outcome.staleness, 0.0)))
    return replace(step, model=None, decided=tuple(decided))


def _refuse(cloud: Cloud, upload: m.Upload, why: str, at: float) -> None:
    """Record that an upload cannot be used."""
    detail = f"upload {upload.upload.number} {why}"
    cloud.emit(Write(LifecycleRecord(at, "refused", f"g{upload.upload.gateway}", detail)))


def forget_old_bases(cloud: Cloud) -> None:
    """Forget the models of which a change would be too stale to be used. A gateway that seldom uploads would otherwise
    make the cloud keep every model that it was sent."""
    oldest, members = _oldest_base(cloud), cloud.state.members
    if any(epoch < oldest for epoch in cloud.state.bases):
        for member in members:
            member.bases = {epoch for epoch in member.bases if epoch >= oldest}
        _keep_used_bases(cloud)


def _oldest_base(cloud: Cloud) -> int:
    return cloud.state.epoch + 1 - cloud.config.max_staleness


def _keep_used_bases(cloud: Cloud) -> None:
    used = set[int]().union(*(member.bases for member in cloud.state.members))
    for epoch in cloud.state.bases.keys() - used:
        del cloud.state.bases[epoch]


def close(cloud: Cloud, upload: m.Upload, outcome: m.Outcome, at: float) -> None:
    """Record the outcome of an upload, keep it for repeats, and answer."""
    member = cloud.state.members[upload.upload.gateway]
    member.pending.discard(upload.upload.number)
    member.outcomes[upload.upload.number] = outcome
    update_ledger.note_decided(cloud, upload)
    reason: UploadEnd = "mixed" if outcome.accepted else "dropped"
    staleness, weight = outcome.staleness, outcome.weight
    record = UploadRecord(at, upload.upload, reason, upload.base_epoch, staleness, weight, upload.updates, upload.early)
    cloud.emit(Write(record))
    _answer(cloud, upload, outcome)


def send_fenced(cloud: Cloud, gateway: int, incarnation: int) -> None:
    """Tell an incarnation that was declared lost to restart as a new one."""
    cloud.send(gateway, m.Fenced(incarnation, unanswered_outcomes(cloud, gateway, incarnation)))


def unanswered_outcomes(cloud: Cloud, gateway: int, incarnation: int) -> tuple[tuple[int, m.Outcome], ...]:
    """Return the outcomes of uploads whose answers may not have arrived; another incarnation has other numbers."""
    member = cloud.state.members[gateway]
    return tuple(member.outcomes.items()) if member.incarnation == incarnation else ()


def _answer(cloud: Cloud, upload: m.Upload, outcome: m.Outcome) -> None:
    gateway, state = upload.upload.gateway, cloud.state
    model = cloud.model_for(gateway)
    cloud.send(gateway, m.Answer(upload.upload, state.epoch, model, outcome, state.reference_latency, state.tiers.told))
