"""The commands in docs/certificates.md, run in order."""

from __future__ import annotations

import re
from pathlib import Path

from command_line import Call

PAGE = (Path(__file__).parents[2] / "docs" / "certificates.md").read_text()


def test_the_commands_of_the_page(call: Call, tmp_path: Path) -> None:
    [block] = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    commands = [line.partition("#")[0].split()[1:] for line in block.splitlines()]
    assert len(commands) == 9
    for command in commands:
        done = call(*command)
        assert done.code == 0, done.err
    assert done.out.count("REVOKED") == 1
    for name in ("key.pem", "certificate.pem", "ca.pem", "revoked.pem"):
        assert (tmp_path / "host" / name).is_file()
