"""The simulated world: who can reach whom, and how long a transfer or a training takes.

A network is a `NetworkDescription`: feasible links with their expected latency (what policies know beforehand), a
`DelayModel` (what really happens, asked once per transfer) and, where known, positions for maps.
"""
