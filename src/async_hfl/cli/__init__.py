"""The command line, `async-hfl COMMAND`. `main` parses and reports errors; each other module adds related commands."""

from async_hfl.cli.main import main

__all__ = ["main"]
