"""A gateway or device whose state is an older copy: it is set aside, and the node joins as a new incarnation."""

from __future__ import annotations

import logging
from pathlib import Path

from async_hfl.core.errors import UserError

SET_ASIDE = "set-aside"
log = logging.getLogger("async_hfl.process")


class WentBack(UserError):
    """The state of this node is an older copy than the one that its peers have worked with."""

    def __init__(self, state: Path, reason: str) -> None:
        super().__init__(f"{state}: {reason}")
        self.state = state


def set_aside(went_back: WentBack) -> None:
    """Move the state directory to the folder `set-aside` beside it, so that the node begins with a new one."""
    state = went_back.state
    folder, number = state.parent / SET_ASIDE, 1
    while (aside := folder / f"{state.name}-{number}").exists():
        number += 1
    try:
        folder.mkdir(exist_ok=True)
        state.rename(aside)
    except OSError as error:
        raise UserError(
            f"{went_back}; it cannot be set aside ({error.strerror}): give another --state, to join as a new "
            "incarnation"
        ) from error
    log.warning("%s; it was moved to %s, and this node joins as a new incarnation", went_back, aside)
