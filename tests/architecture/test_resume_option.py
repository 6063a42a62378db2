"""`pytest --resume`, which `make test-long` uses: tests that passed are skipped until the sources change."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SMALL = "tests/unit/core/test_core_mixing.py"
HANG_GUARD_S = 300


def test_passed_tests_are_skipped_until_the_sources_change(tmp_path: Path) -> None:
    file = tmp_path / "passed.txt"

    def run(*which: str) -> str:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--resume", str(file), *which]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=HANG_GUARD_S, check=False)
        assert done.returncode == 0, done.stdout
        return done.stdout.strip().splitlines()[-1]

    first = run(SMALL)
    assert "passed" in first
    assert "deselected" in run(SMALL)
    digest, *passed = file.read_text().splitlines()
    assert all(name.startswith(SMALL) for name in passed)
    file.write_text("\n".join([digest[::-1], *passed]))  # the digest of other sources
    assert "deselected" not in run(SMALL)


def test_make_resumes_from_an_existing_file(tmp_path: Path) -> None:
    """pytest takes a file name after a blank for a test file, and then does not find the option that names it."""
    (line,) = [line for line in (ROOT / "Makefile").read_text().splitlines() if "pytest" in line and "--resume" in line]
    file = tmp_path / "passed.txt"
    file.write_text("")
    resuming = line[line.index("--resume") :].replace("build/test-long.txt", str(file)).split()
    few = [f"--ignore={folder}" for folder in sorted(ROOT.glob("tests/*/")) if folder.name != "golden"]
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", *few, *resuming]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=HANG_GUARD_S, check=False)
    assert done.returncode == 0, done.stderr
