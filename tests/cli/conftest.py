from __future__ import annotations

from pathlib import Path

import pytest
from command_line import Call, Outcome

from async_hfl.cli import main


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """Calls `async-hfl` in this process, in a temporary directory."""
    monkeypatch.chdir(tmp_path)

    def called(*arguments: str) -> Outcome:
        capsys.readouterr()
        try:
            code = main(arguments)
        except SystemExit as left:
            code = left.code if isinstance(left.code, int) else 1
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return called
