"""TagLM's second layer against torch's own LSTM, row by row."""

from __future__ import annotations

import pytest
import torch

from plmctl.core.errors import ConfigError
from plmctl.heads.between import Between


def test_the_second_layer_reads_both_side_by_side() -> None:
    part = Between(width=4, state_width=6, num_layers=2, hidden_width=5).double()
    part.second.start(torch.Generator().manual_seed(1))
    lstm = torch.nn.LSTM(10, 5, batch_first=True, bidirectional=True).double()
    lstm.load_state_dict(part.second.layers.state_dict())
    draws = torch.Generator().manual_seed(2)
    features = torch.randn(3, 7, 4, generator=draws, dtype=torch.float64)
    hidden = [torch.randn(3, 7, 6, generator=draws, dtype=torch.float64) for _ in range(3)]
    length = [7, 4, 1]
    real = torch.arange(7) < torch.tensor(length)[:, None]
    with torch.no_grad():
        found = part.eval()(features, hidden, real)
        assert found.shape == (3, 7, part.width)
        for row, tokens in enumerate(length):
            both = torch.cat([features[row, :tokens], hidden[-1][row, :tokens]], -1)
            torch.testing.assert_close(found[row, :tokens], lstm(both[None])[0][0])
            assert not found[row, tokens:].any()
    with pytest.raises(ConfigError, match="layers"):
        Between(width=4, state_width=6, num_layers=2, layer=3, hidden_width=5)
