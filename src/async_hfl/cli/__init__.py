"""The command line: `async-hfl COMMAND`. `main` parses and reports errors; every other module is a family of it."""

from async_hfl.cli.main import main

__all__ = ["main"]
