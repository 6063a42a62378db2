"""Decisions: the idle devices that a gateway triggers, and the gateway of each device.

Policies are pure: the same problem (`core.policies`) gives the same answer anywhere. This is the only package that uses
a solver, and `solvers.highs` is the only module that calls it.
"""
