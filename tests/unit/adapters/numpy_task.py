"""A task file of three lines beside client code."""

from numpy_code import client_fn

from async_hfl.adapters import flower

task = flower(client_fn, target=0.85)
