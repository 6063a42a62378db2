"""Policies for the two decisions: the idle devices that a gateway triggers, and the gateway of each device.

Policies are pure: the same problem (`core.policies`) has the same answer on every machine. Only `solvers.highs` calls
an external solver.
"""
