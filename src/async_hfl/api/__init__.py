"""The Python API below experiments. The command line is a thin layer over it, with the same names and arguments.

`async_hfl` exports all of it, and the functions about many runs (`async_hfl.experiments.commands`).
"""

from async_hfl.api.centralised import Central, central, data_distribution
from async_hfl.api.deployed import cluster, collect
from async_hfl.api.simulated import resume, run, run_together
from async_hfl.api.stored_run import RESULT_FIELDS, Run, load_run

__all__ = [
    "RESULT_FIELDS",
    "Central",
    "Run",
    "central",
    "cluster",
    "collect",
    "data_distribution",
    "load_run",
    "resume",
    "run",
    "run_together",
]
