"""Libraries that only some features need, and the extra (`async-hfl[EXTRA]`) that installs each."""

from __future__ import annotations

from importlib.util import find_spec

from async_hfl.core.errors import UserError

EXTRAS = {
    "matplotlib": "plots",
    "grpc": "deployment",
    "cryptography": "deployment",
    "prometheus_client": "deployment",
    "google": "deployment",
    "torch": "torch",
    "pandas": "frames",
    "pyarrow": "parquet",
    "tensorboardX": "tensorboard",
    "mlflow": "mlflow",
    "ray": "ray",
    "dp_accounting": "privacy",
}
"""Extras by the top-level module that they install."""


def install(extra: str) -> str:
    """Return the command that installs an extra."""
    return f"pip install 'async-hfl[{extra}]'"


def missing(error: ImportError) -> str | None:
    """Return what to install if an import failed because an extra is missing."""
    module = (error.name or "").partition(".")[0]
    extra = EXTRAS.get(module)
    return None if extra is None else f"this needs {module}, which is not installed; {install(extra)}"


def check_installed(extra: str, purpose: str) -> None:
    """Raise UserError if a module of the extra is missing."""
    for module, of in EXTRAS.items():
        if of == extra and find_spec(module) is None:
            raise UserError(f"{purpose} needs {module}, which is not installed; {install(extra)}")
