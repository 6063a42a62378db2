"""The ns-3 side of `benchmarks/ns3_validation.py`.

`probe` is a separate program that imports ns-3 and nothing of async_hfl; `ask` runs it and talks to it over a pipe.
`transfers` lists the Wi-Fi transfers to compare, and `prediction` computes them with async_hfl's own network model.
"""
