"""Every activation of plmctl has a published name under which transformers computes the same."""

from __future__ import annotations

import pytest
import torch

from plmctl.interop import bert, gpt2
from plmctl.nn.cells.feedforward import ACTIVATIONS

pytest.importorskip("transformers")


@pytest.mark.parity
@pytest.mark.parametrize("published", [bert.ACTIVATIONS, gpt2.ACTIVATIONS], ids=["bert", "gpt2"])
def test_published_names_mean_the_same_function(published: dict[str, str]) -> None:
    from transformers.activations import ACT2FN

    assert set(published.values()) == set(ACTIVATIONS)
    x = torch.linspace(-4, 4, 81)
    for name, ours in published.items():
        torch.testing.assert_close(ACTIVATIONS[ours](x), ACT2FN[name](x), atol=1e-6, rtol=1e-5)
