"""`_given_`: other numbers for a part and what is inside it; `${portion:...}`: the arithmetic
behind them.
"""

from __future__ import annotations

import pytest

from plmctl.config.build import build
from plmctl.config.references import portion
from plmctl.core.errors import ConfigError, ConfigErrors
from plmctl.nn.residual import PostNorm

NORM = {"_target_": "plmctl.nn.norm.layer_norm", "_partial_": True, "eps": 1e-5}
NODE = {"_target_": "plmctl.nn.residual.PostNorm", "dropout": 0.0, "norm": NORM}


def test_it_reaches_every_depth_and_nothing_beside() -> None:
    made = build(
        {"one": {**NODE, "_given_": {"width": 3}}, "other": NODE}, {"width": 8}, path="residual"
    )
    assert isinstance(made["one"], PostNorm)
    assert [made[name].norm().weight.shape[0] for name in ("one", "other")] == [3, 8]


def test_what_is_written_at_a_part_wins() -> None:
    assert (
        build({**NODE, "norm": {**NORM, "width": 5}, "_given_": {"width": 3}}, path="residual")
        .norm()
        .weight.shape[0]
        == 5
    )


def test_what_it_gives_is_not_missed() -> None:
    part = {"_target_": "plmctl.heads.discriminator.Discriminator"}
    with pytest.raises((ConfigError, ConfigErrors), match="width"):
        build(part, path="heads")
    assert build({**part, "_given_": {"width": 4}}, path="heads").dense.in_features == 4


@pytest.mark.parametrize(
    ("share", "total", "multiple", "found"),
    [
        (0.25, 256, 1, 64),
        (0.3333, 768, 4, 256),
        (0.3333, 12, 1, 4),
        (0.25, 1024, 4, 256),
        (0.25, 2, 1, 1),
        (1, 312, 12, 312),
        (0.3, 128, 3, 39),
    ],
)
def test_portion(share: float, total: int, multiple: int, found: int) -> None:
    """Widths and heads of ELECTRA's generators (Clark et al., 2020, table 6), and numbers that
    do not divide.
    """
    assert portion(share, total, multiple) == found
