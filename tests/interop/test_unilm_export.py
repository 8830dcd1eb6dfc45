"""UniLM in BERT's names: six kinds of segments, epsilon 1e-5, and a mask that `transformers` is
given from outside.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import plmctl
from plmctl.artifacts.assemble import build_model, settle_lengths
from plmctl.artifacts.convert import convert
from plmctl.config.build import plain
from plmctl.config.compose import compose
from plmctl.core.batch import Batch, Seq
from plmctl.core.errors import ConfigError
from plmctl.interop import hf
from plmctl.models.base import Model
from plmctl.training.checkpoint import load_exactly, tensors_of

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.parity

T, SOURCE, REAL = 9, 4, torch.tensor([9, 7])
# segments of the first tokens and of the others, and who sees whom (Dong et al., 2019, fig. 1)
MODES = {
    "bidirectional": ([0, 1], lambda q, k: True),
    "left to right": ([2, 2], lambda q, k: k <= q),
    "right to left": ([3, 3], lambda q, k: k >= q),
    "source and target": ([4, 5], lambda q, k: k < SOURCE or (q >= SOURCE and k <= q)),
}


def wanted(model: Any, ids: Tensor, segment: Tensor, sees: Any) -> Tensor:
    """Logits of `transformers` under an additive mask [B, 1, T, T], written out."""
    allowed = torch.tensor(
        [[[bool(sees(q, k)) and k < n for k in range(T)] for q in range(T)] for n in REAL.tolist()]
    )
    mask = torch.zeros(2, 1, T, T, dtype=model.dtype).masked_fill(~allowed[:, None], -1e9)
    with torch.no_grad():
        return model(ids, attention_mask=mask, token_type_ids=segment).prediction_logits


@pytest.fixture
def folder(published) -> tuple[Any, Path]:
    return published(
        "BertForPreTraining", type_vocab_size=6, layer_norm_eps=1e-5, attn_implementation="eager"
    )


def as_unilm(folder: Path) -> Model:
    """The model of a published folder under the recipe's pattern."""
    source = plmctl.load(folder).source
    model = build_model(
        {**source.config, "pattern": plain(compose("pretrain", "unilm", [])["pattern"])},
        vocab_size=40,
    )
    load_exactly(model, source.tensors, file=folder)
    return model.eval()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("mode", MODES)
def test_every_mode_agrees(mode: str, folder: tuple[Any, Path]) -> None:
    published, place = folder
    model = as_unilm(place)
    numbers, sees = MODES[mode]
    segment = torch.tensor([numbers[0]] * SOURCE + [numbers[1]] * (T - SOURCE)).expand(2, T)
    ids = torch.randint(5, 40, (2, T), generator=torch.Generator().manual_seed(5))
    real = torch.arange(T) < REAL[:, None]
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.float64, 1e-12)):
        published.to(dtype), model.to(dtype)
        with torch.no_grad():
            found = model.heads["mlm"](
                model(Batch(torch.arange(2), {"text": Seq(ids, REAL, {"segment": segment})})).last
            )
        assert_close(
            found[real], wanted(published, ids, segment, sees)[real], atol=tolerance, rtol=tolerance
        )


def test_there_and_back(folder: tuple[Any, Path], tmp_path: Path) -> None:
    published, place = folder
    convert(place, tmp_path / "ours", to="plmctl")
    convert(tmp_path / "ours", tmp_path / "hf", to="hf")
    again = transformers.BertForPreTraining.from_pretrained(tmp_path / "hf")
    assert (again.config.layer_norm_eps, again.config.type_vocab_size) == (1e-5, 6)
    assert all(
        again.state_dict()[key].equal(tensor) for key, tensor in published.state_dict().items()
    )


def test_the_released_config_names_no_epsilon(folder: tuple[Any, Path]) -> None:
    _, place = folder
    settings = json.loads((place / "config.json").read_text())
    del settings["layer_norm_eps"]
    (place / "config.json").write_text(json.dumps(settings))
    assert plmctl.load(place).config["model"]["embedding"]["norm"]["eps"] == 1e-5
    (place / "config.json").write_text(json.dumps(settings | {"type_vocab_size": 2}))
    assert hf.read(place).config["model"]["embedding"]["norm"]["eps"] == 1e-12


def test_a_run_of_the_recipe_is_written_without_its_pattern(tmp_path: Path) -> None:
    config = settle_lengths(compose("pretrain", "unilm", ["size=tiny"]))
    model = build_model(config, vocab_size=60, seed=0)
    exported = hf.export(config, tensors_of(model), pad=0)
    assert exported.architecture == "BertForPreTraining"
    assert len(exported.left_out) == 1
    assert "4-D attention_mask" in exported.left_out[0]
    hf.write(tmp_path, exported, tokens={"pad": 0})
    back = hf.read(tmp_path)
    assert back.config["model"]["embedding"]["segments"] == 6
    assert all(tensor.equal(back.tensors[name]) for name, tensor in tensors_of(model).items())
    with pytest.raises(ConfigError, match=r"pattern=Causal \(published: Full\)"):
        hf.export(
            {**config, "pattern": {"_target_": "plmctl.attention.patterns.causal.Causal"}},
            tensors_of(model),
            pad=0,
        )
