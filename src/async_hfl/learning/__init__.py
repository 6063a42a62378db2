"""Learning: training and evaluation of tasks. This is the only package that uses JAX.

`tasks` has the built-in tasks by name, one of which learns nothing. No module imports JAX before a task is built.
"""
