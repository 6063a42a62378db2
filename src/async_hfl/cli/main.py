"""The entry point of `async-hfl COMMAND`: parses the arguments, runs the command, reports errors.

Exit codes: 0 success, 1 a fault of async-hfl, 2 a mistake of the user, 3 no answer from other nodes for too long,
130 and 143 interrupted by Ctrl-C and SIGTERM. Errors go to stderr in a few lines without a traceback (set
ASYNC_HFL_TRACEBACK=1 to see one).
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence

from async_hfl.cli import certs, data, deploy, experiments, network, operate, reports, runs, settings, tools, tuning
from async_hfl.cli.common import Interruption, complain
from async_hfl.cli.parser import Parser
from async_hfl.core.errors import FULL_DISK, AsyncHflError, UnreachableError, UserError
from async_hfl.core.extras import missing

_MODULES = (runs, settings, experiments, tuning, reports, deploy, operate, certs, data, network, tools)
"""The modules with commands, in the order in which `async-hfl --help` lists them."""
_OUR_FAULT = "This is a fault of async-hfl, not yours; please report it."


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    options, unknown = parser.parse_known_args(arguments)
    if not hasattr(options, "action"):
        if unknown:
            parser.unknown(unknown)
        parser.print_help()
        return 0
    if unknown:
        options.parser.unknown(unknown)
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
    except Interruption as interruption:
        code = complain(str(interruption), interruption.code)
        if arguments is None:
            # JAX would finish everything that it has begun to train, which may take minutes.
            os._exit(code)
        return code
    except KeyboardInterrupt:
        return complain("interrupted", 130)
    except BrokenPipeError:
        # The pipe is closed. Redirect the rest of the output, so that the interpreter reports no error at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except MemoryError as error:
        return complain(f"not enough memory ({error}); use fewer devices or a smaller model", 2)
    except OSError as error:
        full = "; free some space and repeat the command" if error.errno in FULL_DISK else ""
        return complain(f"{error.filename or 'the system'}: {error.strerror or error}{full}", 2)
    except Exception as error:
        if isinstance(error, ImportError) and (remedy := missing(error)):
            return complain(remedy, 2)
        return complain(f"{type(error).__name__}: {error}\n{_OUR_FAULT}", 1)


def _parser() -> Parser:
    parser = Parser(
        prog="async-hfl", description="Asynchronous hierarchical federated learning, simulated and deployed."
    )
    parser.add_version()
    commands = parser.add_subparsers(metavar="COMMAND")
    for module in _MODULES:
        module.add_commands(commands)
    return parser
