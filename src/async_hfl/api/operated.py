"""A running deployment, as its operator sees it: the state of all nodes, and the end of its run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from async_hfl.api.stored_run import Run
from async_hfl.core.errors import UserError
from async_hfl.core.extras import check_installed

_OPERATOR = Path("certificates") / "operator"


def status(
    cloud: Run | str | Path, *, certificates: str | Path | None = None, insecure: bool = False
) -> dict[str, Any]:
    """Return the state of a deployment (`async-hfl status`).

    `cloud` is an address HOST:PORT, for which an operator's certificate is needed, or the run of a cluster.
    """
    check_installed("deployment", "the state of a deployment")
    from async_hfl.deployment.operations.operators import ask_status

    address, credentials = cloud_of(cloud, certificates, insecure=insecure)
    return ask_status(address, credentials)


def drain(cloud: Run | str | Path, *, certificates: str | Path | None = None, insecure: bool = False) -> str:
    """End the run of a deployment now, gracefully (`async-hfl drain`); return the address of the cloud."""
    check_installed("deployment", "a deployment")
    from async_hfl.deployment.operations.operators import DRAIN, ask

    address, credentials = cloud_of(cloud, certificates, insecure=insecure)
    ask(address, "cloud", credentials, DRAIN)
    return address


def cloud_of(cloud: Run | str | Path, certificates: str | Path | None, *, insecure: bool) -> tuple[str, Any]:
    """Return address and credentials, which the run directory of a cluster also holds."""
    run = cloud.path if isinstance(cloud, Run) else Path(cloud)
    if not run.is_dir():
        return str(cloud), trust(certificates, insecure=insecure)
    from async_hfl.deployment.processes.listen_address import read_address

    address = read_address(run / "nodes" / "cloud")
    if address is None:
        raise UserError(f"{run}: no cloud of a cluster has started here yet")
    if certificates is None and (run / _OPERATOR).is_dir():
        return address, trust(run / _OPERATOR, insecure=insecure)
    return address, trust(certificates, insecure=insecure or certificates is None)


def trust(certificates: str | Path | None, *, insecure: bool) -> Any:
    """Return an operator's credentials."""
    from async_hfl.deployment.identity.credentials import Certified, Insecure

    if insecure:
        return Insecure()
    if certificates is None:
        raise UserError("no credentials; give an operator's --certificates DIR, or --insecure in a lab")
    return Certified(Path(certificates))
