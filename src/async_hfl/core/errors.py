"""The one exception tree.

    AsyncHflError
    ├── UserError                 the caller's mistake: say what, where and the remedy; exit code 2
    │   ├── SettingsError         a setting is unknown, of the wrong type or out of range
    │   ├── DataError             a file is missing, truncated or malformed
    │   ├── PolicyError           a policy from the user's file raised or broke its contract
    │   ├── TaskError             a task from the user's file raised or broke its contract
    │   ├── IdentityError         a certificate, key or name is missing, wrong, expired or revoked
    │   ├── RunDirectoryError     a run directory is missing, incomplete or of another version
    │   └── UnreachableError      nobody answered for as long as we were told to try; exit code 3
    ├── PeerError                 another process sent what the protocol forbids: refuse it and go on
    └── InternalError             our mistake; exit code 1
        ├── InvariantViolation    the protocol broke one of its promises
        └── SolverError           a solver returned no usable answer

Whose fault an error is decides what the user is told, so every error raised on purpose is one of these.
"""

from __future__ import annotations


class AsyncHflError(Exception):
    """Root of every error this package raises on purpose."""


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


class RunDirectoryError(UserError):
    """A run directory is missing, incomplete or written by another version."""


class UnreachableError(UserError):
    """Nobody answered for as long as we were told to try: nothing is wrong here, and a later attempt may do."""


class IdentityError(UserError):
    """A certificate, key or name is missing, wrong, expired or revoked."""


class PeerError(AsyncHflError):
    """Another process sent what the protocol forbids: broken, hostile or of another version. Refuse it and go on."""


class InternalError(AsyncHflError):
    """Our mistake."""


class InvariantViolation(InternalError):
    """The protocol broke one of its promises (every job ends once, no negative staleness, ...)."""


class SolverError(InternalError):
    """A solver returned no usable answer."""
