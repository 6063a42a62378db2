"""The simulated network: the feasible links, and the time that every transfer and every training takes.

A network is a `NetworkDescription`: feasible links with their expected latency (known to policies in advance), a
`DelayModel` (the actual delays, queried once per transfer) and, if known, positions for maps.
"""
