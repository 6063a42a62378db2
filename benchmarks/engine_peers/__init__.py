"""The engines that `benchmarks/engine.py` compares, each in its own process."""
