"""The interface of a gateway's aggregation rule: subclass `GatewayAggregation` to write one.

A rule of your own is a subclass in a file of yours, given as `gateway.aggregation=FILE.py:NAME`:

    class Buffered(GatewayAggregation):                         # FedBuff (Nguyen et al. 2022) at a gateway
        def received(self, gateway, held, at):
            gateway.state.buffer.append(held)
            if len(gateway.state.buffer) < 10:
                return Next.SELECT
            updates, gateway.state.buffer = gateway.state.buffer, []
            gateway.weights = average([held.update.weights for held in updates], [0.1] * 10)
            gateway.state.gateway_epoch += 1
            for held in updates:
                gateway.aggregated(held, at, staleness=1, weight=0.1)
            return Next.UPLOAD
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from types import NoneType
from typing import Any, ClassVar

from async_hfl.core.arrays import Ints
from async_hfl.core.serialization import Plain, from_plain, to_plain
from async_hfl.nodes.gateway.context import Gateway
from async_hfl.nodes.gateway.state import NEVER, HeldUpdate, InFlightJob

__all__ = ["NEVER", "Gateway", "GatewayAggregation", "HeldUpdate", "InFlightJob", "Next"]


class Next(Enum):
    """The gateway's next step, as returned by a rule."""

    NOTHING = "nothing"
    SELECT = "select"
    """Select among the idle devices and trigger those chosen."""
    UPLOAD = "upload"
    """Upload the gateway's model. The cycle is over; the next one begins with the cloud's answer. With `during_upload =
    "continue"` it begins at once; but if the last upload is not answered yet, this one is put off until it is."""
    RELAY = "relay"
    """Upload the update just received as it is. The cycle goes on. The job ends when the cloud answers."""


class GatewayAggregation(ABC):
    """A rule by which a gateway aggregates device updates.

    A gateway works in cycles: it adopts a global model, triggers devices, receives their updates, uploads its model and
    waits for the answer. The rule decides how an update changes the gateway's model and when the cycle is over. The
    gateway does everything else: it calls the methods below and carries out the `Next` that they return. Only
    `received` is required; the other methods have defaults.

    The methods that return a `Next` are called only while a cycle is open. An update that arrives during an upload is
    kept and passed to `received` when the next cycle has begun. With `during_upload = "continue"` a cycle begins with
    the upload of the one before, and on its answer the gateway replaces `weights` by G + (w - u): a rule must then add
    changes to them, and keep no other models.

    `gateway` offers a rule:
      weights                the gateway's model, to be read and assigned; arrays are read-only, so assign a new one
      aggregated, drop_stale end an update's job: the update is in the model now, or it was too stale. Call one of
                             them exactly once for every update received, unless it is relayed
      state.buffer           a list for updates that are to be aggregated later; the gateway saves and restores it
      state.updates          number of updates aggregated in this cycle
      state.gateway_epoch    z, the epoch of the gateway's model: add 1 for each new model
      state.base_epoch       the cloud epoch of the model that the cycle started from
      state.active           number of jobs in flight that are not overdue
      config, max_staleness  the settings of this gateway

    A `HeldUpdate` has the job's `number`, its `in_flight` record (what was sent to the device, and in which epochs) and
    the `update` (weights, samples, loss, ...).

    The numbers of a model from `config.gradient_size` on are running statistics, such as variances. Only average them:
    `mix_with_drag` and `add_changes` (`async_hfl.core.maths.aggregation`) do so with `trained=config.gradient_size`.

    A rule that needs more state than the buffer keeps it in `state`, a dataclass of plain values decorated with
    `async_hfl.core.serialization.plain`, and names that class in `state_type`. Nothing else survives a restart.
    """

    state_type: ClassVar[type[Any]] = NoneType
    """The class of `state`, called without arguments."""
    state: Any
    due: float
    """The time at which the gateway calls `timer`, assigned by the rule; NEVER for no timer. The gateway resets it to
    NEVER when the timer fires and when it uploads its model."""

    def __init__(self) -> None:
        self.reset()

    # The methods that most rules override ------------------------------------------------------------------------

    @abstractmethod
    def received(self, gateway: Gateway, held: HeldUpdate, at: float) -> Next:
        """Aggregate or buffer one device update. The device is already idle again."""

    def adopted(self, gateway: Gateway, at: float) -> None:  # noqa: B027 (a rule without state of its own has nothing to do)
        """Begin a cycle: the gateway has adopted a global model or, with `during_upload = "continue"`, has uploaded its
        own and goes on. Devices are selected next."""

    def timer(self, gateway: Gateway, at: float) -> Next:
        """Handle the timer: the time `due` has come."""
        return Next.NOTHING

    # Devices -----------------------------------------------------------------------------------------------------

    def may_select(self, gateway: Gateway) -> bool:
        """True if devices may be triggered now. Called whenever a device becomes idle, joins, returns or times out."""
        return True

    def eligible(self, gateway: Gateway, slots: Ints) -> Ints:
        """Return those of the idle devices, given as rows of the device table, that may be selected now."""
        return slots

    def selected(self, gateway: Gateway, jobs: tuple[int, ...], at: float) -> None:  # noqa: B027
        """Note a selection that has triggered these jobs; none only if the rule itself has asked for the selection."""

    def failed(self, gateway: Gateway, jobs: tuple[int, ...], at: float) -> Next:
        """Note that these jobs were dropped by their device, were refused, or timed out. If the update of a job that
        timed out arrives later, it is received as usual."""
        return Next.NOTHING

    def accepts(self, gateway: Gateway, job: int) -> bool:
        """True if an update of this job is still of use; otherwise the job ends as `round_closed`."""
        return True

    @property
    def cycle_round(self) -> int:
        """Number of rounds completed in this cycle, for selection policies that differ by round; 0 without rounds."""
        return 0

    # Models ------------------------------------------------------------------------------------------------------

    def may_adopt(self, gateway: Gateway) -> bool:
        """True if a cycle that has no updates yet may restart from a newer global model that was broadcast."""
        return False

    def samples(self, gateway: Gateway) -> int:
        """The number of samples by which a cloud that averages weighs the upload that is about to be made."""
        return gateway.state.samples

    def may_upload_early(self, gateway: Gateway) -> bool:
        """True if the model of an incomplete cycle may be uploaded, because nothing is in flight and no device could be
        triggered for `cycle_patience` seconds."""
        return gateway.state.updates > 0

    # Snapshots ---------------------------------------------------------------------------------------------------

    def reset(self) -> None:
        """Discard the state: the run has ended, or the gateway restarts as another incarnation."""
        self.state = self.state_type()
        self.due = NEVER

    def snapshot(self) -> Plain:
        return {"state": to_plain(self.state), "due": self.due}

    def restore(self, data: Plain) -> None:
        self.state = from_plain(data["state"])
        self.due = data["due"]
