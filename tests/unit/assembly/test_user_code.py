"""Functions loaded from a user's file."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from async_hfl.assembly.build.policies import association_policy, selection_policy
from async_hfl.assembly.settings.loading import compose
from async_hfl.assembly.user_code.loading import file_of, fingerprint, is_user_code, load_function
from async_hfl.core.errors import DataError, PolicyError, SettingsError


def test_names_of_user_code() -> None:
    assert is_user_code("mine.py:choose")
    assert is_user_code("mine.py")
    assert not is_user_code("utility-knapsack")
    assert file_of("some/mine.py:choose") == "some/mine.py"


def test_a_function_is_loaded(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("def double(x):\n    return 2 * x\n")
    assert load_function("selection.policy", f"{file}:double")(4) == 8


def test_a_file_may_hold_dataclasses(tmp_path: Path) -> None:
    """With `from __future__ import annotations`, a dataclass looks up its module by name when it is defined."""
    file = tmp_path / "with_dataclass.py"
    file.write_text(
        "from __future__ import annotations\n"
        "from dataclasses import dataclass\n"
        "from typing import ClassVar\n"
        "@dataclass\n"
        "class Rule:\n"
        "    most: ClassVar[int] = 3\n"
        "    least: int = 1\n"
        "def least(problem):\n"
        "    return Rule().least\n"
    )
    assert load_function("selection.policy", f"{file}:least")(None) == 1


def test_errors_in_user_code(tmp_path: Path) -> None:
    file = tmp_path / "wrong.py"
    with pytest.raises(SettingsError, match="there is no file"):
        load_function("selection.policy", f"{file}:choose")
    file.write_text("import no_such_module_anywhere\n")
    with pytest.raises(
        PolicyError, match=r"selection\.policy: .*wrong\.py failed while loading: ModuleNotFound.*line 1"
    ):
        load_function("selection.policy", f"{file}:choose")
    text = tmp_path / "wrong.txt"
    text.write_text("")
    with pytest.raises(SettingsError, match="is not a Python file"):
        load_function("selection.policy", f"{text}:choose")
    for name in ("mine.py", ":choose", "mine.py:"):
        with pytest.raises(SettingsError, match=r"write it as FILE\.py:FUNCTION"):
            load_function("selection.policy", name)


def test_a_fingerprint_is_the_digest_of_the_content(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_bytes(b"x = 1\n")
    assert fingerprint(str(file)) == hashlib.sha256(b"x = 1\n").hexdigest()
    with pytest.raises(DataError, match="cannot be read"):
        fingerprint(str(tmp_path / "gone.py"))


def test_the_needs_of_a_user_policy(tmp_path: Path) -> None:
    file = tmp_path / "needy.py"
    file.write_text(
        "def choose(problem):\n    return []\nchoose.needs = {'utility'}\ndef solve(problem):\n    return {}\n"
    )
    settings = compose(overrides=[f"selection.policy={file}:choose", f"association.policy={file}:solve"]).settings
    assert selection_policy(settings).needs == {"utility"}
    assert association_policy(settings).needs == frozenset()
