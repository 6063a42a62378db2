"""The exception tree of the package.

    AsyncHflError
    ├── UserError                 the caller's mistake: say what, where and the remedy; exit code 2
    │   ├── SettingsError         a setting is unknown, of the wrong type or out of range
    │   ├── DataError             a file is missing, truncated or malformed
    │   ├── PolicyError           a policy from the user's file raised or broke its contract
    │   ├── TaskError             a task from the user's file raised or broke its contract
    │   ├── NetworkError          a network from the user's file raised or broke its contract
    │   ├── IdentityError         a certificate, key or name is missing, wrong, expired or revoked
    │   ├── RunDirectoryError     a run directory is missing, incomplete or of another version
    │   └── UnreachableError      no peer answered within the time allowed; exit code 3
    ├── PeerError                 another process violated the protocol: refuse the message and continue
    └── InternalError             a bug in async_hfl; exit code 1
        ├── InvariantViolation    an invariant of the protocol does not hold
        └── SolverError           a solver returned no usable answer

The class says who has to act (the user, a peer, the developers) and so decides the message and the exit code. Every
error that the package raises on purpose is one of these.
"""

from __future__ import annotations

import errno

FULL_DISK = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""Reasons of the operating system for which a file cannot grow, and can once there is room."""


class AsyncHflError(Exception):
    """Root of all errors that this package raises on purpose."""


class UserError(AsyncHflError):
    """The caller's mistake. The message names the place and the remedy."""


class SettingsError(UserError):
    """A setting is unknown, of the wrong type or out of range."""


class DataError(UserError):
    """A file is missing, truncated or malformed."""


class PolicyError(UserError):
    """A policy from the user's file raised, or answered outside its contract."""


class TaskError(UserError):
    """A task from the user's file raised, or is not what a task must be."""


class NetworkError(UserError):
    """A network from the user's file raised, or returned what is not a network."""


class RunDirectoryError(UserError):
    """A run directory is missing, incomplete or written by another version."""


class UnreachableError(UserError):
    """No peer answered within the time allowed. Nothing is wrong on this side, and a later attempt may succeed."""


class IdentityError(UserError):
    """A certificate, key or name is missing, wrong, expired or revoked."""


class PeerError(AsyncHflError):
    """Another process violated the protocol: it is broken, hostile or of another version. Refuse it and continue."""


class InternalError(AsyncHflError):
    """A bug in async_hfl."""


class InvariantViolation(InternalError):
    """An invariant of the protocol does not hold (every job ends once, staleness is never negative, ...)."""


class SolverError(InternalError):
    """A solver returned no usable answer."""
