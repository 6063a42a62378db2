"""The commands in docs/reports.md, run in order, then its Python code."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from command_line import Call

PAGE = (Path(__file__).parents[2] / "docs" / "reports.md").read_text(encoding="utf-8")
MADE = ("report-a.html", "compared.html", "curves.svg", "table.tex", "data/jobs.csv", "data/jobs.parquet", "boards/c")


def test_the_page_about_reports(call: Call, capsys: pytest.CaptureFixture[str]) -> None:
    for module, extra in (("pandas", "frames"), ("pyarrow", "parquet"), ("tensorboardX", "tensorboard")):
        pytest.importorskip(module, reason=f"{module} is not installed (async-hfl[{extra}])")
    for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL):
        for line in block.splitlines():
            program, *arguments = shlex.split(line)
            assert program == "async-hfl"
            done = call(*arguments)
            assert done.code == 0, done.err
    assert all(Path(file).exists() for file in MADE)
    [code] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(compile(code, "docs/reports.md", "exec"), {})
    assert "gateway" in capsys.readouterr().out
