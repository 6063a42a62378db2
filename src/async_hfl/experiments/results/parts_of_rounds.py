"""The parts of a round: mean seconds of download, training and upload of each device of a run."""

from __future__ import annotations

import numpy as np

from async_hfl.journal.run_directory import RunDirectory
from async_hfl.reports.data.journal_columns import read_columns

Parts = tuple[float, float, float]


def mean_parts(run: RunDirectory) -> dict[str, Parts]:
    """Return the mean over the jobs of each device that has any, by the device's number."""
    jobs = read_columns(run).jobs
    times = np.column_stack((jobs.download_s, jobs.training_s, jobs.upload_s))
    whole = np.isfinite(times).all(axis=1)
    means = {}
    for device in np.unique(jobs.device[whole]).tolist():
        download, training, upload = times[whole & (jobs.device == device)].mean(axis=0).tolist()
        means[str(device)] = (download, training, upload)
    return means
