"""Comparing our network with ns-3's (`async-hfl[ns3]`): an optional check, never needed to run.

`probe` is a program of its own that knows ns-3 and nothing of us; `ask` talks to it over a pipe; `comparison` puts the
same questions to both.
"""
