"""The schema of a run's settings: one class per section, with default, range and meaning of every setting.

Task, network, preset and method files, a run file and `--set` override these defaults, in that order. Names, types and
ranges are checked (`loading`). The sections are in `learning`, `tiers`, `policies` and `environment`.
"""

from __future__ import annotations

from typing import Literal

from async_hfl.assembly.settings.environment import NetworkSection, OutagesSection, RadioSection, TransferSection
from async_hfl.assembly.settings.field_types import Auto, Count, NotNegative, Section
from async_hfl.assembly.settings.learning import (
    CentralSection,
    DeviceSection,
    EngineSection,
    EvaluationSection,
    TaskSection,
)
from async_hfl.assembly.settings.policies import AssociationSection, SelectionSection, UtilitySection
from async_hfl.assembly.settings.tiers import (
    CloudSection,
    GatewaySection,
    JournalSection,
    PrivacySection,
    StalenessSection,
    WarmUpSection,
)


class SimulationSection(Section, frozen=True):
    """[simulation]: the simulator itself."""

    batching: Literal["on", "off"] = "on"
    """Train the jobs in flight in groups; off: one at a time, when a result is due."""
    checkpoint_epochs: Count | Auto = "auto"
    """Cloud epochs between two checkpoints. auto: 10, and at least 10 updates per device (100 where models stay on a
    GPU), since a checkpoint writes every device's state."""
    solver_seconds: NotNegative = 0.0
    """Virtual seconds that each solution of the association takes."""


class Settings(Section, frozen=True):
    """All settings of a run."""

    task: TaskSection = TaskSection()
    network: NetworkSection = NetworkSection()
    radio: RadioSection = RadioSection()
    cloud: CloudSection = CloudSection()
    gateway: GatewaySection = GatewaySection()
    privacy: PrivacySection = PrivacySection()
    device: DeviceSection = DeviceSection()
    central: CentralSection = CentralSection()
    staleness: StalenessSection = StalenessSection()
    selection: SelectionSection = SelectionSection()
    association: AssociationSection = AssociationSection()
    utility: UtilitySection = UtilitySection()
    warmup: WarmUpSection = WarmUpSection()
    engine: EngineSection = EngineSection()
    outages: OutagesSection = OutagesSection()
    transfer: TransferSection = TransferSection()
    evaluation: EvaluationSection = EvaluationSection()
    journal: JournalSection = JournalSection()
    simulation: SimulationSection = SimulationSection()

    @property
    def last_epoch(self) -> int:
        """The cloud epoch at which a run ends that does not reach its target."""
        return self.cloud.epochs * self.aggregations_per_epoch

    @property
    def aggregations_per_epoch(self) -> int:
        """Aggregations at the cloud that H and evaluations count as one: Z where gateways relay, as many device updates
        as one upload contains elsewhere."""
        return self.gateway.epochs if self.gateway.aggregation == "relay" else 1


class RunChoice(Section, frozen=True):
    """[run] in a run file: the files that a run's settings are composed from, and its seed."""

    task: str = "digits"
    method: str = "async-hfl-plus"
    network: str = "nycmesh-paper"
    preset: str = "tight"
    seed: int = 1
