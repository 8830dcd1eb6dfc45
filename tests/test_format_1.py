"""Names that older versions saved are read as those of today."""

from __future__ import annotations

import pytest

from plmctl.core.locate import locate
from plmctl.core.parts import declared
from plmctl.run.format_1 import TARGETS, upgrade
from plmctl.run.saved import read_saved


@pytest.mark.parametrize(("old", "new"), TARGETS.items())
def test_a_former_name_means_the_part_of_today(old: str, new: str) -> None:
    assert upgrade({"_target_": old}) == {"_target_": new}
    assert declared(locate(new))


def test_a_saved_config_is_read_with_the_names_of_today(tmp_path) -> None:
    """At every depth, and as the value of `_target_` alone."""
    file = tmp_path / "config.yaml"
    file.write_text(
        "optim: {_target_: plmctl.training.optim.AdamW, lr: 0.1}\n"
        "all: [{_target_: plmctl.training.muon.Muon}, plmctl.training.muon.Muon]\n"
    )
    assert read_saved(file) == {
        "optim": {"_target_": "plmctl.training.optim.adamw.AdamW", "lr": 0.1},
        "all": [{"_target_": "plmctl.training.optim.muon.Muon"}, "plmctl.training.muon.Muon"],
    }


def test_what_has_its_name_of_today_stays() -> None:
    settings = {"a": [1, {"_target_": "mine.parts.Noise"}], "b": None}
    assert upgrade(settings) == settings
