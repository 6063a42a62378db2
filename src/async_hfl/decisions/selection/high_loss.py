"""Selection of the devices with the highest loss first, as many as the bandwidth allows.

The selection of Async-HL in Yu et al., "Async-HFL", IoTDI 2023, section 6.1, after Goetz et al., "Active Federated
Learning" (2019) and Cho et al., "Towards understanding biased client selection in federated learning" (AISTATS 2022,
power-of-choice): a device whose data the model fits badly contributes most.

    order by  F_i(w)  decreasing,   F_i the mean loss per sample of the device's last local epoch.

A device that has never reported comes before all others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from async_hfl.core.policies import Need, Selection, SelectionProblem
from async_hfl.decisions.selection.capacity_fill import ranked, select_in_order


@dataclass(frozen=True, slots=True)
class HighLoss:
    needs: ClassVar[frozenset[Need]] = frozenset()

    def choose(self, problem: SelectionProblem) -> Selection:
        return select_in_order(problem, ranked(problem, np.where(np.isnan(problem.loss), np.inf, problem.loss)))
