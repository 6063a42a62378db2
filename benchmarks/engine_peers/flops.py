"""Floating-point operations of one client update, counted from the models' shapes.

A layer with M multiplications per sample costs 2 M operations forward, 2 M for the gradient of its weights and 2 M for
the gradient of its inputs, which the first layer does not need: 6 M per sample, and 4 M in the first layer. Rectifiers,
normalisation, the update and embeddings, which are lookups, are not counted.
"""

from __future__ import annotations

from engine_peers.sizes import Size

_STAGES = ((64, 64, 32), (64, 128, 16), (128, 256, 8), (256, 512, 4))
"""Input channels, output channels and side length of the stages of a ResNet-18."""


def _products(task: str) -> tuple[int, int]:
    """Return the multiplications per sample in the first layer, whose inputs need no gradient, and in all others."""
    if task == "digits":
        return 64 * 64, 64 * 10
    if task == "har":
        return 561 * 128, 128 * 6
    if task == "mnist":
        return 24 * 24 * 25 * 20, 8 * 8 * 25 * 20 * 50 + 800 * 500 + 500 * 10
    if task == "shakespeare":
        # The embedding is trained, so the inputs of the first layer need a gradient.
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
