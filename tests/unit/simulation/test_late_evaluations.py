"""Whoever is told late of an evaluation, because it is computed meanwhile, ends as if told at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from async_hfl.assembly.build.simulation import build
from async_hfl.assembly.runs.simulated_run import session_for
from async_hfl.assembly.settings.loading import compose
from async_hfl.core.errors import InternalError
from async_hfl.core.identifiers import JobId
from async_hfl.core.learner import Evaluation, PrefetchPolicy, Results, TrainingJob
from async_hfl.core.weights import Weights
from async_hfl.journal.run_directory import RunDirectory
from async_hfl.learning.tasks.stub_learner import StubLearner
from async_hfl.nodes.cloud.node import CloudNode
from async_hfl.simulation.recorded_run import Progress, Session

SIZE, DEVICES = 50, 8
APART = {"wall_s", "training"}
"""How long it took, and in which calls: a run that is told late makes others."""


class InTurn(StubLearner):
    """Evaluates while the simulation goes on, and says how many models were made before each answer."""

    ahead = PrefetchPolicy(3, 0.0, 2, in_turn=True)

    def __init__(self, gradient: bool, threshold: float) -> None:
        super().__init__(DEVICES, SIZE, gradient=gradient, threshold=threshold)
        self.begun = 0
        self.begun_when_answered: list[int] = []

    def begin(self, jobs: Sequence[TrainingJob]) -> Results:
        return lambda: self.train_many(jobs)

    def begin_evaluation(self, weights: Weights) -> Callable[[], Evaluation]:
        self.begun += 1

        def answer() -> Evaluation:
            self.begun_when_answered.append(self.begun)
            return self.evaluate(weights)

        return answer


def session_of(folder: Path, method: str, more: Sequence[str], *, aside: bool, best: float | None = None) -> Session:
    overrides = [f"task.devices={DEVICES}", f"task.model_size={SIZE}", "network.gateways=2", "gateway.epochs=4", *more]
    settings = compose(task="null", network="uniform", method=method, preset=None, seed=1, overrides=overrides).settings
    world = build(settings, 1).world
    world.cloud.config = replace(world.cloud.config, target=replace(world.cloud.config.target, best=best))
    if aside:
        gradient = world.learner.train_many([TrainingJob(JobId(0, 1, 0), 0, world.cloud.state.weights, 0)])[0].gradient
        world = replace(world, learner=InTurn(gradient is not None, settings.task.target))
    directory = RunDirectory(folder) if folder.exists() else RunDirectory.create(folder, {"settings": {}})
    return session_for(world, directory, settings)


def ended(session: Session) -> tuple[dict[str, Any], list[Progress], bytes, bytes]:
    told: list[Progress] = []
    result = session.run(on_epoch=told.append)
    assert result is not None
    said = {key: value for key, value in result.items() if key not in APART}
    seen = [replace(one, updates_per_s=0.0) for one in told]
    return said, seen, session.directory.events.read_bytes(), session.directory.epochs.read_bytes()


def late_in(session: Session) -> list[bool]:
    """Of each evaluation: had the next one begun when it was answered?"""
    learner = session.world.learner
    assert isinstance(learner, InTurn)
    return [begun > number for number, begun in enumerate(learner.begun_when_answered, 1)]


CASES = {
    "never reached": (["cloud.epochs=9"], None, [True] * 2 + [False] * 7),  # any third one might be the target
    "never reached, as is known": (["cloud.epochs=9"], 1.0, [True] * 8 + [False]),
    "beyond the target": (
        ["cloud.epochs=9", "cloud.epochs_after_target=20", "task.target=0.1"],
        None,
        [True] * 8 + [False],
    ),
    "one beyond": (["cloud.epochs=30", "cloud.epochs_after_target=1", "task.target=0.1"], None, [True] * 3 + [False]),
    "a little beyond": (
        ["cloud.epochs=30", "cloud.epochs_after_target=3", "task.target=0.1"],
        None,
        [True] * 5 + [False],
    ),
    "reached": (["cloud.epochs=40", "task.target=0.97"], 1.0, None),
    "every second model": (["cloud.epochs=9", "cloud.evaluate_every=2"], 1.0, [True] * 4 + [False]),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("method", ["async-hfl", "async-hfl-plus", "sync-random", "semi-async"])
def test_a_run_told_late_is_the_run_told_at_once(method: str, case: str, tmp_path: Path) -> None:
    more, best, expected = CASES[case]
    wanted = ended(session_of(tmp_path / "at once", method, more, aside=False, best=best))
    late = session_of(tmp_path / "late", method, more, aside=True, best=best)
    assert ended(late) == wanted
    found = late_in(late)
    assert any(found)
    assert not found[-1], "the last ends the run"
    assert expected is None or found == expected


def test_only_what_cannot_reach_the_target_is_told_late(tmp_path: Path) -> None:
    """Those that cannot reach it may wait, those that might may not."""
    late = session_of(tmp_path / "run", "async-hfl", ["cloud.epochs=40", "task.target=0.97"], aside=True, best=1.0)
    ended(late)
    metrics = [row["metric"] for row in late.directory.read_epochs()]
    for number, is_late in enumerate(late_in(late)):
        before = metrics[max(0, number - 2) : number]
        may_reach = len(before) == 2 and (sum(before) + 1.0) / 3 >= 0.97
        assert is_late == (not may_reach)
    assert late_in(late).count(False) > 1, "some that might have reached it did not"


@pytest.mark.parametrize("every", [1, 2, 3])
def test_a_checkpoint_waits_for_who_is_late(every: int, tmp_path: Path) -> None:
    more = ["cloud.epochs=12", f"simulation.checkpoint_epochs={every}"]
    late = session_of(tmp_path / "whole", "async-hfl-plus", more, aside=True, best=1.0)
    whole = ended(late)
    assert whole == ended(session_of(tmp_path / "at once", "async-hfl-plus", more, aside=False, best=1.0))
    # It comes with the same epochs, which are told of at once.
    assert late_in(late) == [epoch % every != 0 and epoch != 12 for epoch in range(1, 13)]
    for stops in (1, 2, 5, 11):
        folder, asked = tmp_path / f"{stops}", 0

        def pause(stops: int = stops) -> bool:
            nonlocal asked
            asked += 1
            return asked == stops

        stopped = session_of(folder, "async-hfl-plus", more, aside=True, best=1.0)
        assert stopped.run(pause=pause) is None
        stopped.close()
        said, _, *files = ended(session_of(folder, "async-hfl-plus", more, aside=True, best=1.0))
        assert (said, *files) == (whole[0], *whole[2:])


def test_where_things_fail_the_cloud_is_told_at_once(tmp_path: Path) -> None:
    more = ["cloud.epochs=9", "outages.device_up=500"]
    session = session_of(tmp_path / "run", "async-hfl", more, aside=True, best=1.0)
    ended(session)
    assert not any(late_in(session))


def test_a_run_that_is_cut_off_has_written_the_beginning_of_the_whole_one(tmp_path: Path) -> None:
    more = ["cloud.epochs=9"]
    _, _, events, epochs = ended(session_of(tmp_path / "whole", "async-hfl", more, aside=False, best=1.0))
    for cut in range(1, 60, 7):
        session = session_of(tmp_path / f"{cut}", "async-hfl", more, aside=True, best=1.0)
        left = [cut]

        def stop(left: list[int] = left) -> bool:
            left[0] -= 1
            if left[0] == 0:
                raise KeyboardInterrupt
            return False

        session.simulator.start()
        with pytest.raises(KeyboardInterrupt):
            session.simulator.run(stop)
        session.close()
        assert events.startswith(session.directory.events.read_bytes())
        assert epochs.startswith(session.directory.epochs.read_bytes())


def test_what_was_told_late_and_ends_the_run_after_all_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A metric that is better than the best there is: rather no result than one that is an epoch too long."""
    monkeypatch.setattr(CloudNode, "goes_on_anyway", lambda node: not node.enough())
    late = session_of(tmp_path / "run", "async-hfl", ["cloud.epochs=9", "task.target=0.1"], aside=True)
    with pytest.raises(InternalError, match="told late of epoch 3"):
        late.run()
    late.close()
    assert late.directory.events.read_bytes().count(b'\n["epoch",') == 2
