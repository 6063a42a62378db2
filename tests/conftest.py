"""Settings of the whole test suite: hypothesis profiles, `--resume FILE`, and Ctrl-C for child processes.

`pytest --resume FILE` skips the tests that have passed since the sources last changed. Property tests try the same
examples each time, so that a commit either passes or fails; `--hypothesis-profile searching`, as in `make test-long`,
draws new ones. Neither profile has a deadline, since the machine may be busy.
"""

from __future__ import annotations

import hashlib
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("searching", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("steady", settings.get_profile("searching"), derandomize=True)
settings.load_profile("steady")

ROOT = Path(__file__).parents[1]
KINDS = ("*.py", "*.toml", "*.proto", "*.csv", "*.npz")


def sources_digest() -> str:
    digest = hashlib.sha256()
    for folder in ("src", "tests", "examples"):
        for kind in KINDS:
            for path in sorted((ROOT / folder).rglob(kind)):
                digest.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--resume", metavar="FILE", help="skip the tests that have passed before, as recorded in FILE")


class Resuming:
    """Skips the tests that FILE lists as passed, and adds to the list."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._digest = sources_digest()
        known = path.read_text().splitlines() if path.is_file() else []
        self.passed = set(known[1:]) if known[:1] == [self._digest] else set()
        self._failed: set[str] = set()
        self.left_out = 0

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        before = [item for item in items if item.nodeid in self.passed]
        items[:] = [item for item in items if item.nodeid not in self.passed]
        self.left_out = len(before)
        config.hook.pytest_deselected(items=before)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failed.add(report.nodeid)
        elif report.when == "teardown" and report.nodeid not in self._failed:
            self.passed.add(report.nodeid)
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_text("\n".join([self._digest, *sorted(self.passed)]) + "\n")

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and self.left_out:
            session.exitstatus = pytest.ExitCode.OK  # all tests have passed before


def pytest_configure(config: pytest.Config) -> None:
    # In the background of a script, or under nohup, SIGINT is ignored, and child processes inherit that: a test that
    # sends them SIGINT would wait for ever. A handler is not inherited, so children start with the default.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    file = config.getoption("--resume")
    if file and not hasattr(config, "workerinput"):  # with several processes, the first one keeps the file
        config.pluginmanager.register(Resuming(Path(file)), "resuming")
