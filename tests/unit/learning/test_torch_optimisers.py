"""Adam and AdamW on a flat vector agree with torch.optim, step by step."""

from __future__ import annotations

from typing import Any

import pytest

from async_hfl.learning.engine.recipe import Adam, Recipe
from async_hfl.learning.pytorch.optimisers import flat_optimiser


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'async-hfl[torch]'")


@pytest.mark.parametrize("decoupled", [False, True], ids=["Adam", "AdamW"])
def test_steps_agree_with_torch(decoupled: bool, torch: Any) -> None:
    torch.manual_seed(1)
    start, gradients = torch.randn(50), torch.randn(20, 50) * torch.logspace(-4, 1, 50)
    chosen = Adam(0.8, 0.95, 1e-6, decoupled=decoupled)
    ours = start.clone()
    optimiser = flat_optimiser(torch, Recipe(1, 1, 0.02, weight_decay=0.3, optimiser=chosen), 0.02, ours)
    theirs = torch.nn.Parameter(start.clone())
    kind = torch.optim.AdamW if decoupled else torch.optim.Adam
    reference = kind([theirs], lr=0.02, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.3)
    for gradient in gradients:
        optimiser.step(ours, gradient.clone(), start)
        theirs.grad = gradient.clone()
        reference.step()
    torch.testing.assert_close(ours, theirs.data, rtol=1e-5, atol=1e-6)
    assert (ours - start).abs().max() > 0.05


def test_the_proximal_term_is_in_the_gradient(torch: Any) -> None:
    """With beta_1 = beta_2 = 0 a step is gamma times the sign: here that of the pull back to the received model."""
    flat, origin = torch.ones(3), torch.zeros(3)
    recipe = Recipe(1, 1, 0.1, proximal_weight=2.0, optimiser=Adam(0.0, 0.0))
    flat_optimiser(torch, recipe, 0.1, flat).step(flat, torch.tensor([0.0, 1.0, -5.0]), origin)
    torch.testing.assert_close(flat, torch.tensor([0.9, 0.9, 1.1]))
