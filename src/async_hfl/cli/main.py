"""The command line: `async-hfl COMMAND`. Parses, calls the API, prints; decides nothing.

Exit codes: 0 done, 1 our mistake, 2 the user's, 3 nobody answered for too long, 130 interrupted. Errors go to stderr in
a few lines, never a traceback (set ASYNC_HFL_TRACEBACK=1 to see one).
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from async_hfl.cli import certs, checks, data, decide, deploy, experiments, network, operate, replay, reports, runs
from async_hfl.cli.common import complain
from async_hfl.core.errors import AsyncHflError, UnreachableError, UserError

_FAMILIES = (runs, experiments, reports, deploy, operate, replay, data, decide, network, certs, checks)
"""In the order in which `async-hfl --help` lists them."""


def main(arguments: Sequence[str] | None = None) -> int:
    options, unknown = _parser().parse_known_args(arguments)
    if unknown:
        options.parser.error(f"there is no {' '.join(unknown)}")
    action: Callable[[argparse.Namespace], int] = options.action
    try:
        code = action(options)
        sys.stdout.flush()  # here, where a reader that has gone is expected, and not while Python ends
        return code
    except UnreachableError as error:
        return complain(str(error), 3)
    except UserError as error:
        return complain(str(error), 2)
    except AsyncHflError as error:
        return complain(f"{error}\nThis is a fault of async-hfl, not yours; please report it.", 1)
    except KeyboardInterrupt:
        return complain("interrupted; a run goes on with `async-hfl resume RUN`", 130)
    except BrokenPipeError:
        # The reader of our output has gone; nothing is left to say to it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except MemoryError as error:
        return complain(f"not enough memory ({error}); ask for fewer devices or a smaller model", 2)
    except OSError as error:
        return complain(f"{error.filename or 'the system'}: {error.strerror or error}", 2)
    except Exception as error:
        return complain(
            f"{type(error).__name__}: {error}\nThis is a fault of async-hfl, not yours; please report it.", 1
        )


class _Parser(argparse.ArgumentParser):
    """Says what is wrong with the arguments in one line; argparse would print the whole usage first."""

    def error(self, message: str) -> NoReturn:
        print(f"{self.prog}: error: {message}; see `{self.prog} --help`", file=sys.stderr)
        sys.exit(2)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="async-hfl", description="Asynchronous hierarchical federated learning, simulated in wall-clock time."
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for family in _FAMILIES:
        family.add_commands(commands)
    return parser
