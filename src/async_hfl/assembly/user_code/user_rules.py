"""Aggregation rules of a user, FILE.py:CLASS or a class made in Python, held to the contract of `GatewayAggregation`
and `CloudAggregation`.

A user's rule is wrapped. The wrapper checks what each method returns, the model that it makes, and that every update
received is kept in the buffer or ended once. A mistake becomes a `PolicyError` that names the method, what it did and
what it must do. Built-in rules are not wrapped.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from async_hfl.assembly.user_code.loading import describe_error, file_of, load_function
from async_hfl.assembly.user_code.objects import shown
from async_hfl.core.arrays import Ints
from async_hfl.core.errors import PolicyError
from async_hfl.core.protocol import messages as m
from async_hfl.core.protocol.effects import Write
from async_hfl.core.protocol.records import JobRecord
from async_hfl.core.serialization import Plain
from async_hfl.core.vectors import DeviceVector
from async_hfl.core.weights import is_finite
from async_hfl.nodes.cloud.aggregation.rule import Cloud, CloudAggregation
from async_hfl.nodes.cloud.aggregation.rule import Next as CloudNext
from async_hfl.nodes.gateway.aggregation.rule import Gateway, GatewayAggregation, HeldUpdate, Next

Rule = TypeVar("Rule", GatewayAggregation, CloudAggregation)


def load_gateway_rule(name: str) -> Callable[[], GatewayAggregation]:
    """Return the constructor of the rule that `gateway.aggregation` names, wrapped."""
    make = _load("gateway.aggregation", name, GatewayAggregation)  # type: ignore[type-abstract]
    return lambda: CheckedGatewayRule(make(), name)


def load_cloud_rule(name: str) -> Callable[[], CloudAggregation]:
    """Return the constructor of the rule that `cloud.aggregation` names, wrapped."""
    make = _load("cloud.aggregation", name, CloudAggregation)  # type: ignore[type-abstract]
    return lambda: CheckedCloudRule(make(), name)


def _load(setting: str, name: str, base: type[Rule]) -> Callable[[], Rule]:
    found = _load_once(setting, name, _content(name))
    if not isinstance(found, type) or not issubclass(found, base):
        raise PolicyError(f"{setting}: {shown(name)} must be a subclass of {base.__module__}.{base.__name__}")

    def make() -> Rule:
        try:
            rule = found()
        except (Exception, SystemExit) as error:
            described = describe_error(error, file_of(name))
            title = shown(name)
            raise PolicyError(f"{title} is made without arguments, but {title}() raised {described}") from error
        if not hasattr(rule, "state"):
            raise PolicyError(f"{shown(name)}.__init__ must call super().__init__()")
        return rule

    _Caller(make(), name).snapshot()  # a rule that cannot be made or saved is reported before the run begins
    return make


@lru_cache(maxsize=8)
def _load_once(setting: str, name: str, content: bytes) -> object:
    """Load a class; cached, since every gateway of a simulation needs it."""
    return load_function(setting, name, "CLASS")


def _content(name: str) -> bytes:
    """Return the content of the file; empty if it cannot be read, which `load_function` then reports."""
    try:
        return Path(file_of(name)).read_bytes()
    except OSError:
        return b""


class _Caller:
    """Calls the methods of a user's rule, and reports what is wrong in the user's terms."""

    def __init__(self, rule: object, name: str) -> None:
        self.rule = rule
        self.name = name

    def __call__(self, method: str, *arguments: object) -> Any:
        try:
            return getattr(self.rule, method)(*arguments)
        except PolicyError:
            raise
        except (Exception, SystemExit) as error:
            raise self.wrong(method, f"raised {describe_error(error, file_of(self.name))}") from error

    def wrong(self, method: str, what: str) -> PolicyError:
        return PolicyError(f"{shown(self.name)}.{method} {what}")

    def expect(self, method: str, answer: object, kinds: type | tuple[type, ...], wanted: str) -> None:
        if not isinstance(answer, kinds):
            shown = repr(answer) if len(repr(answer)) < 60 else f"a {type(answer).__name__}"
            raise self.wrong(method, f"returned {shown}; it must return {wanted}")

    def check_model(self, method: str, model: Any, size: int) -> None:
        if not isinstance(model, (np.ndarray, DeviceVector)):
            raise self.wrong(method, f"made a model of type {type(model).__name__}; it must be an array of float32")
        if isinstance(model, np.ndarray):
            if model.shape != (size,) or model.dtype != np.float32:
                made = f"shape {model.shape} and type {model.dtype}"
                raise self.wrong(method, f"made a model of {made}; it must have shape ({size},) and type float32")
            model.flags.writeable = False
        if not is_finite(model):
            raise self.wrong(method, "made a model with NaN or infinite values")

    def snapshot(self) -> Plain:
        try:
            return self.rule.snapshot()  # type: ignore[attr-defined]
        except TypeError as error:
            raise self.wrong("state", f"cannot be saved: {error}") from error


class CheckedGatewayRule(GatewayAggregation):
    def __init__(self, rule: GatewayAggregation, name: str) -> None:
        self.rule = rule
        self._call = _Caller(rule, name)

    @property
    def state(self) -> Any:
        return self.rule.state

    @property
    def due(self) -> float:
        return self.rule.due

    @due.setter
    def due(self, due: float) -> None:
        self.rule.due = due

    def eligible(self, gateway: Gateway, slots: Ints) -> Ints:
        return self._call("eligible", gateway, slots)  # type: ignore[no-any-return]

    @property
    def cycle_round(self) -> int:
        return self.rule.cycle_round

    def received(self, gateway: Gateway, held: HeldUpdate, at: float) -> Next:
        return self._checked("received", gateway, held, at, held=held)  # type: ignore[no-any-return]

    def timer(self, gateway: Gateway, at: float) -> Next:
        return self._step("timer", gateway, at)

    def failed(self, gateway: Gateway, jobs: tuple[int, ...], at: float) -> Next:
        return self._step("failed", gateway, jobs, at)

    def adopted(self, gateway: Gateway, at: float) -> None:
        self._checked("adopted", gateway, at)

    def selected(self, gateway: Gateway, jobs: tuple[int, ...], at: float) -> None:
        self._checked("selected", gateway, jobs, at)

    def may_select(self, gateway: Gateway) -> bool:
        return self._true("may_select", gateway)

    def accepts(self, gateway: Gateway, job: int) -> bool:
        return self._true("accepts", gateway, job)

    def may_adopt(self, gateway: Gateway) -> bool:
        return self._true("may_adopt", gateway)

    def may_upload_early(self, gateway: Gateway) -> bool:
        return self._true("may_upload_early", gateway)

    def reset(self) -> None:
        self._call("reset")

    def snapshot(self) -> Plain:
        return self._call.snapshot()

    def restore(self, data: Plain) -> None:
        self._call("restore", data)

    def _step(self, method: str, gateway: Gateway, *arguments: object) -> Next:
        step = self._checked(method, gateway, *arguments)
        if not isinstance(step, Next) or step is Next.RELAY:
            raise self._call.wrong(
                method, f"returned {step!r}; it must return Next.NOTHING, Next.SELECT or Next.UPLOAD"
            )
        return step

    def _true(self, method: str, gateway: Gateway, *arguments: object) -> bool:
        answer = self._call(method, gateway, *arguments)
        self._call.expect(method, answer, (bool, np.bool_), "True or False")
        return bool(answer)

    def _checked(self, method: str, gateway: Gateway, *arguments: object, held: HeldUpdate | None = None) -> Any:
        """Call a method that may change the model and end updates, and check both."""
        state, effects, model = gateway.state, len(gateway.effects), gateway.state.weights
        before = [kept.number for kept in state.buffer] + ([] if held is None else [held.number])
        step = self._call(method, gateway, *arguments)
        if held is not None:
            self._call.expect(method, step, Next, "a Next")
        if state.weights is not model and model is not None:
            self._call.check_model(method, state.weights, len(model))
        if not isinstance(self.due, (int, float)) or math.isnan(self.due):
            raise self._call.wrong(method, f"set due to {self.due!r}; it must be a time in seconds, or NEVER")
        writes = [effect.record for effect in gateway.effects[effects:] if isinstance(effect, Write)]
        after = [record.job.number for record in writes if isinstance(record, JobRecord)]
        after += [kept.number for kept in state.buffer]
        if step is Next.RELAY and held is not None:
            after.append(held.number)
        if before != after:
            self._check_updates(method, Counter(before), Counter(after))
        return step

    def _check_updates(self, method: str, before: Counter[int], after: Counter[int]) -> None:
        for number in sorted(before.keys() | after.keys()):
            if after[number] < before[number]:
                what = f"dropped the update of job {number}"
            elif after[number] > before[number]:
                what = f"used the update of job {number} twice"
            else:
                continue
            ends = "relay it, keep it in gateway.state.buffer, or pass it to gateway.aggregated or gateway.drop_stale"
            raise self._call.wrong(method, f"{what}; it must {ends}, once")


class CheckedCloudRule(CloudAggregation):
    def __init__(self, rule: CloudAggregation, name: str) -> None:
        self.rule = rule
        self._call = _Caller(rule, name)

    @property
    def state(self) -> Any:
        return self.rule.state

    def received(self, cloud: Cloud, upload: m.Upload, staleness: int, at: float) -> CloudNext:
        return self._step("received", cloud, upload, staleness, at)

    def gateway_lost(self, cloud: Cloud, gateway: int, at: float) -> CloudNext:
        return self._step("gateway_lost", cloud, gateway, at)

    def changed(self, cloud: Cloud, at: float) -> CloudNext:
        return self._step("changed", cloud, at)

    def snapshot(self) -> Plain:
        return self._call.snapshot()

    def restore(self, data: Plain) -> None:
        self._call("restore", data)

    def _step(self, method: str, cloud: Cloud, *arguments: object) -> CloudNext:
        call, weights = self._call, cloud.state.weights
        step = call(method, cloud, *arguments)
        call.expect(method, step, CloudNext, "a Next")
        assert isinstance(step, CloudNext)
        if step.model is not None:
            call.check_model(method, step.model, len(weights))
        elif any(outcome.accepted for _, outcome in self._decided(method, step)):
            raise call.wrong(method, "accepted an upload and returned no model that contains it")
        if cloud.state.weights is not weights:
            raise call.wrong(method, "assigned cloud.state.weights; it must return the model in a Next instead")
        self._check_open(method, cloud, step)
        return step

    def _decided(self, method: str, step: CloudNext) -> tuple[tuple[m.Upload, m.Outcome], ...]:
        for pair in step.decided:
            if not (isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[1], m.Outcome)):
                raise self._call.wrong(method, f"decided {pair!r:.60}; it must decide pairs of Upload and Outcome")
        return step.decided

    def _check_open(self, method: str, cloud: Cloud, step: CloudNext) -> None:
        """Check that the rule decides on uploads that are open, once each."""
        seen = set()
        for upload, _ in self._decided(method, step):
            member = cloud.state.members[upload.upload.gateway]
            is_open = member.live and upload.upload.number in member.pending
            if upload.upload in seen or not is_open or upload.upload.incarnation != member.incarnation:
                raise self._call.wrong(
                    method, f"decided on upload {upload.upload}, which is decided already or whose gateway is lost"
                )
            seen.add(upload.upload)
