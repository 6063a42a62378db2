"""The parser of the command line: errors in one line, with the command or option that was probably meant."""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn


class _HelpFormatter(argparse.HelpFormatter):
    """Adds the default of an option to its help text."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        text = action.help
        if not text or "default" in text or not action.default or action.nargs == 0:
            return text
        return f"{text} (default: %(default)s)"


class _Version(argparse.Action):
    """Prints the version. It is looked up only then, because the lookup takes as long as the other imports together."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> NoReturn:
        from importlib.metadata import version

        print(f"async-hfl {version('async-hfl')}")
        parser.exit()


class Parser(argparse.ArgumentParser):
    """Reports a wrong argument in one line; argparse would print the whole usage first."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(formatter_class=_HelpFormatter, **settings)

    def add_version(self) -> None:
        self.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")

    def error(self, message: str) -> NoReturn:
        see = " See" if message.endswith("?") else "; see"
        print(f"{self.prog}: error: {message}{see} `{self.prog} --help`", file=sys.stderr)
        sys.exit(2)

    def unknown(self, arguments: Sequence[str]) -> NoReturn:
        """Report arguments that the command does not have."""
        options = [option for option in self._option_string_actions if option.startswith("--")]
        near = [found for text in arguments if (found := _near(text.partition("=")[0], options))]
        self.error(f"unknown argument: {' '.join(arguments)}{_meant(near)}")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if isinstance(action, argparse._SubParsersAction) and value not in action.choices:
            near = _near(value, action.choices)
            raise argparse.ArgumentError(None, f"there is no command {value!r}{_meant([near] if near else [])}")
        super()._check_value(action, value)


def _near(text: str, known: Iterable[str]) -> str | None:
    return next(iter(difflib.get_close_matches(text, list(known), 1)), None)


def _meant(near: Sequence[str]) -> str:
    return f"; did you mean {' '.join(near)}?" if near else ""
