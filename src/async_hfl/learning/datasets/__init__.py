"""Readers of data sets. Each returns the same `Dataset` every time."""
