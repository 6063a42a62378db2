"""Readers of data sets: each gives a `Dataset`, the same every time."""
