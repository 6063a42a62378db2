"""Experiments with many runs: plans, resumable sweeps, comparisons of methods, the paper's tables and figures."""
