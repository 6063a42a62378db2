"""The entry point of `async-hfl COMMAND`: parses the arguments, runs the command, reports errors.

Exit codes: 0 success, 1 a fault of async-hfl, 2 a mistake of the user, 3 no answer from other nodes for too long,
130 interrupted. Errors go to stderr in a few lines without a traceback (set ASYNC_HFL_TRACEBACK=1 to see one).
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from async_hfl.cli import certs, data, deploy, experiments, network, operate, reports, runs, tools
from async_hfl.cli.common import complain
from async_hfl.core.errors import AsyncHflError, UnreachableError, UserError

_MODULES = (runs, experiments, reports, deploy, operate, certs, data, network, tools)
"""The modules with commands, in the order in which `async-hfl --help` lists them."""
_OUR_FAULT = "This is a fault of async-hfl, not yours; please report it."


def main(arguments: Sequence[str] | None = None) -> int:
    options, unknown = _parser().parse_known_args(arguments)
    if unknown:
        options.parser.error(f"unknown argument: {' '.join(unknown)}")
    action: Callable[[argparse.Namespace], int] = options.action
    try:
        code = action(options)
        sys.stdout.flush()  # so that a closed pipe raises here, where it is handled, and not at exit
        return code
    except UnreachableError as error:
        return complain(str(error), 3)
    except UserError as error:
        return complain(str(error), 2)
    except AsyncHflError as error:
        return complain(f"{error}\n{_OUR_FAULT}", 1)
    except KeyboardInterrupt:
        return complain("interrupted; `async-hfl resume RUN` continues a run", 130)
    except BrokenPipeError:
        # The pipe is closed. Redirect the rest of the output, so that the interpreter reports no error at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except MemoryError as error:
        return complain(f"not enough memory ({error}); use fewer devices or a smaller model", 2)
    except OSError as error:
        return complain(f"{error.filename or 'the system'}: {error.strerror or error}", 2)
    except Exception as error:
        return complain(f"{type(error).__name__}: {error}\n{_OUR_FAULT}", 1)


class _HelpFormatter(argparse.HelpFormatter):
    """Adds the default of an option to its help text."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        text = action.help
        if not text or "default" in text or not action.default or action.nargs == 0:
            return text
        return f"{text} (default: %(default)s)"


class _Parser(argparse.ArgumentParser):
    """Reports a wrong argument in one line; argparse would print the whole usage first."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(formatter_class=_HelpFormatter, **settings)

    def error(self, message: str) -> NoReturn:
        print(f"{self.prog}: error: {message}; see `{self.prog} --help`", file=sys.stderr)
        sys.exit(2)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="async-hfl", description="Asynchronous hierarchical federated learning, simulated and deployed."
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for module in _MODULES:
        module.add_commands(commands)
    return parser
