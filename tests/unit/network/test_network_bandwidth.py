from __future__ import annotations

import numpy as np
import pytest

from async_hfl.core.errors import SettingsError
from async_hfl.core.topology import feasible_links
from async_hfl.network.bandwidth import demand, gateway_load
from async_hfl.network.topologies.nycmesh_paper import ComputeFile, nycmesh_paper

# device 0: gateway 0 in 10 s or 1 in 20 s; device 1: gateway 1 in 5 s; device 2: gateways 0 and 1 in 4 s alike
LINKS = feasible_links(
    3, 3, np.array([0, 0, 1, 2, 2]), np.array([0, 1, 1, 0, 1]), np.array([10.0, 20.0, 5.0, 4.0, 4.0])
)


def test_load_by_hand() -> None:
    """Gateway 0: 100/10 + 100/4; gateway 1: 100/5; gateway 2 is unreachable and does not count."""
    assert gateway_load(LINKS, 100).tolist() == [35.0, 20.0, 0.0]
    assert demand(LINKS, 100) == 27.5


@pytest.mark.parametrize(
    ("devices", "compute_file", "model_bytes", "bandwidth", "mean", "most"),
    [
        pytest.param(184, "comp1", 1_724_320, 1e6, 0.31, 0.44, id="mnist"),
        pytest.param(50, "comp1", 44_700_000, 20e6, 0.10, 0.20, id="cifar10"),
        pytest.param(30, "comp", 290_840, 20e3, 0.43, 0.97, id="har"),
        pytest.param(26, "comp", 297_008, 20e3, 0.38, 0.94, id="hpwren"),
        pytest.param(143, "comp1", 210_880, 20e3, 1.45, 2.23, id="shakespeare"),
    ],
)
def test_the_paper_limits_against_the_demand(
    devices: int, compute_file: ComputeFile, model_bytes: int, bandwidth: float, mean: float, most: float
) -> None:
    """The load shares worked out for the paper's tasks, to two digits, with the models' exact bytes."""
    links = nycmesh_paper(devices, 6, compute_file).links
    assert demand(links, model_bytes) / bandwidth == pytest.approx(mean, abs=0.006)
    assert gateway_load(links, model_bytes).max() / bandwidth == pytest.approx(most, abs=0.006)


@pytest.mark.parametrize(
    ("devices", "compute_file", "model_bytes", "bandwidth", "mean", "most"),
    [
        pytest.param(184, "comp1", 1_700_000, 1e6, 0.31, 0.44, id="mnist"),
        pytest.param(30, "comp", 290_000, 20e3, 0.43, 0.97, id="har"),
        pytest.param(26, "comp", 300_000, 20e3, 0.38, 0.94, id="hpwren"),
        pytest.param(143, "comp1", 210_000, 20e3, 1.45, 2.23, id="shakespeare"),
    ],
)
def test_rounded_model_sizes_give_nearly_the_same(
    devices: int, compute_file: ComputeFile, model_bytes: int, bandwidth: float, mean: float, most: float
) -> None:
    """Table 4's sizes are rounded by up to 1.4 %, and so are the shares."""
    links = nycmesh_paper(devices, 6, compute_file).links
    assert demand(links, model_bytes) / bandwidth == pytest.approx(mean, abs=0.012)
    assert gateway_load(links, model_bytes).max() / bandwidth == pytest.approx(most, abs=0.012)


def test_a_model_has_bytes() -> None:
    with pytest.raises(SettingsError, match="a model of 0 bytes"):
        demand(LINKS, 0)
