"""Optional libraries, imported when they are used; the error names the extra that installs them."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from async_hfl.core.errors import UserError


def needed(module: str, extra: str, purpose: str) -> Any:
    """Import a module, or say which `async-hfl[extra]` `purpose` needs."""
    try:
        return import_module(module)
    except ImportError as error:
        raise UserError(
            f"{purpose} needs {module.partition('.')[0]}, which is not installed ({error}); "
            f"pip install 'async-hfl[{extra}]'"
        ) from error
