"""Evaluations of the global model: when they begin, the order in which they count, and the end of the run.

The model is evaluated at points of a grid of times (`CloudConfig.evaluation_grid`), and only if it has changed, so that
a method that aggregates more often is not evaluated more often. No evaluation begins while another one is in progress.
Without a grid, every `evaluate_every`-th model is evaluated. The last model of a run is always evaluated, as soon as it
is known to be the last.
"""

from __future__ import annotations

from math import ceil, inf, isfinite

from async_hfl.core.learner import Evaluation
from async_hfl.core.maths.targets import TargetProgress
from async_hfl.core.protocol.effects import Evaluate, SetTimer, Write
from async_hfl.core.protocol.records import EpochRecord, LifecycleRecord
from async_hfl.nodes.cloud import device_evaluation
from async_hfl.nodes.cloud.context import Cloud

GRID_TIMER, TARGET_TIMER, LIMIT_TIMER = "evaluation", "target", "time_limit"
TIMERS = frozenset({GRID_TIMER, TARGET_TIMER, LIMIT_TIMER})


def limit_time(cloud: Cloud, at: float) -> None:
    """Set the timer that ends the run, if its time is limited."""
    if isfinite(cloud.config.time_limit):
        cloud.emit(SetTimer(LIMIT_TIMER, at + cloud.config.time_limit))


def model_made(cloud: Cloud, at: float) -> None:
    """Begin the evaluation of a new global model if it is due, or set the timer for it."""
    config, state = cloud.config, cloud.state
    on_grid = config.evaluation_grid > 0.0
    if cloud.is_last_epoch() or (not on_grid and state.epoch % config.evaluate_every == 0 and _enough_epochs(cloud)):
        _begin(cloud, at)
    elif on_grid:
        _set_grid_timer(cloud, at)


def timer_fired(cloud: Cloud, key: str, at: float) -> None:
    state = cloud.state
    if key == LIMIT_TIMER:
        state.evaluation.ending = True
    elif key == TARGET_TIMER:
        _follow_target(cloud, at)
    elif at >= state.evaluation.due:
        state.evaluation.due = inf
        if not state.awaiting and _enough_epochs(cloud):
            _begin(cloud, at)


def answered(cloud: Cloud, number: int, evaluation: Evaluation, at: float) -> None:
    """Count evaluations in the order of their epochs, whatever the order in which they arrive."""
    state = cloud.state
    if number not in state.awaiting:
        return
    state.evaluated[number] = evaluation
    while state.awaiting and (epoch := min(state.awaiting)) in state.evaluated:
        updates, begun_at = state.awaiting.pop(epoch)
        _count(cloud, epoch, updates, begun_at, state.evaluated.pop(epoch))
    _follow_target(cloud, at)
    if cloud.config.evaluation_grid > 0.0:
        _set_grid_timer(cloud, at)


def run_ends(cloud: Cloud, at: float) -> bool:
    """Return True if the run ends now. The evaluation of its last model is begun first, if need be."""
    if not cloud.is_last_epoch():
        return False
    if cloud.state.epoch != cloud.state.evaluation.epoch:
        _begin(cloud, at)
    return not cloud.state.awaiting


def _enough_epochs(cloud: Cloud) -> bool:
    """True if the model has changed since its last evaluation; devices are asked after some epochs only."""
    config = cloud.config
    least = config.device_evaluation_period if config.evaluating_devices else 1
    return cloud.state.epoch - max(cloud.state.evaluation.epoch, 0) >= least


def _set_grid_timer(cloud: Cloud, at: float) -> None:
    """Set the timer to the next point of the grid that has had no evaluation, unless it is set or nothing is new."""
    asked, grid = cloud.state.evaluation, cloud.config.evaluation_grid
    if asked.due == inf and _enough_epochs(cloud) and not cloud.is_last_epoch():
        point = ceil(at / grid)
        asked.due = grid * (point if grid * point > asked.at else point + 1)
        cloud.emit(SetTimer(GRID_TIMER, asked.due))


def _begin(cloud: Cloud, at: float) -> None:
    state = cloud.state
    state.evaluation.epoch, state.evaluation.at = state.epoch, at
    state.awaiting[state.epoch] = (state.updates, at)
    if cloud.config.evaluating_devices:
        device_evaluation.begin(cloud, at)
    else:
        cloud.emit(Evaluate(state.epoch, state.weights))


def _count(cloud: Cloud, epoch: int, updates: int, begun_at: float, evaluation: Evaluation) -> None:
    """Record one evaluation and note the progress towards the target."""
    state = cloud.state
    before = state.progress.held_at
    progress = state.progress.after(cloud.config.target, evaluation.metric, begun_at)
    reached, details = progress.held_at is not None, dict(evaluation.details)
    cloud.emit(Write(EpochRecord(begun_at, epoch, updates, evaluation.metric, evaluation.loss, details, reached)))
    if before is not None:
        state.evaluations_after_target += 1
    _note_progress(cloud, progress, epoch)


def _follow_target(cloud: Cloud, at: float) -> None:
    """Note a target that is held because the metric has stayed as it is, or set the timer for that moment."""
    state = cloud.state
    if state.awaiting:
        return  # an evaluation that began earlier may change the metric
    progress = state.progress.until(cloud.config.target, at)
    _note_progress(cloud, progress, state.evaluation.epoch)
    if progress.held_at is None and isfinite(progress.due):
        cloud.emit(SetTimer(TARGET_TIMER, progress.due))


def _note_progress(cloud: Cloud, progress: TargetProgress, epoch: int) -> None:
    state = cloud.state
    before, state.progress = state.progress.held_at, progress
    if progress.held_at is None:
        return
    if before is None:
        cloud.emit(Write(LifecycleRecord(progress.due, "target_reached", "cloud", f"epoch {epoch}")))
    if state.evaluations_after_target >= cloud.config.epochs_after_target:
        state.evaluation.ending = True
