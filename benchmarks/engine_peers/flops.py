"""Floating-point operations of one client update, counted from the models' shapes.

A layer that multiplies M numbers with weights for one sample costs 2 M forward, 2 M for the gradient of the weights and
2 M for the gradient of its inputs, which the first layer does not need: 6 M for a sample, and 4 M in a first layer.
Rectifiers, norms, the update and embeddings, which are lookups, are not counted.
"""

from __future__ import annotations

from engine_peers.sizes import Size

_STAGES = ((64, 64, 32), (64, 128, 16), (128, 256, 8), (256, 512, 4))
"""Inputs, outputs and side of a ResNet-18's stages."""


def _products(task: str) -> tuple[int, int]:
    """Multiplications of one sample: in the first layer (where its inputs need no gradient), and in all others."""
    if task == "digits":
        return 64 * 64, 64 * 10
    if task == "har":
        return 561 * 128, 128 * 6
    if task == "mnist":
        return 24 * 24 * 25 * 20, 8 * 8 * 25 * 20 * 50 + 800 * 500 + 500 * 10
    if task == "shakespeare":
        # The inputs are embedded, and the embedding is trained.
        return 0, 80 * 4 * 100 * (8 + 100) + 100 * 80
    if task == "hpwren":
        return 48 * 4 * 128 * 12, 48 * 4 * 128 * 128 + 128 * 12
    if task == "cifar10":
        others = 512 * 10
        for inputs, outputs, side in _STAGES:
            others += side * side * 9 * (inputs * outputs + 3 * outputs * outputs)
            others += side * side * inputs * outputs if inputs != outputs else 0
        return 32 * 32 * 27 * 64, others
    raise ValueError(task)


def update_flops(size: Size) -> int:
    first, others = _products(size.task)
    return size.samples * size.epochs * (4 * first + 6 * others)
