"""The engines that `benchmarks/engine.py` compares, each in a process of its own."""
