"""BigBird against `transformers`: full attention, and sparse attention with the same random blocks;
there and back bit for bit.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import plmctl
from plmctl.artifacts.assemble import build_model, settle_lengths
from plmctl.artifacts.convert import convert
from plmctl.attention.patterns.big_bird import BigBird
from plmctl.config.compose import compose
from plmctl.core.batch import Batch, Seq
from plmctl.core.errors import ConfigError
from plmctl.interop import hf
from plmctl.runs import adapt
from plmctl.training.checkpoint import tensors_of
from tests.interop.publishing import VOCAB, publish
from tests.interop.test_families import assert_round_trip

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.parity

BLOCK, LENGTH = 4, 45  # 12 blocks, the last one of one token
SPARSE: dict[str, Any] = {"attention_type": "block_sparse", "block_size": BLOCK}
FULL: dict[str, Any] = {"attention_type": "original_full"}
KINDS = ("Model", "ForMaskedLM", "ForSequenceClassification", "ForTokenClassification")
HEADS = {
    "ForMaskedLM": "mlm",
    "ForSequenceClassification": "class",
    "ForTokenClassification": "tag",
}


def published(place: Path, kind: str, **changes: Any) -> tuple[Any, Path]:
    none = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    settings = {"max_position_embeddings": 60, "num_labels": 3, "pad_token_id": 1, **none}
    return publish(place, f"BigBird{kind}", **{**settings, **changes})


def rows() -> tuple[Tensor, Tensor]:
    """(ids, mask)"""
    ids = torch.randint(2, VOCAB, (3, LENGTH), generator=torch.Generator().manual_seed(2))
    mask = torch.arange(LENGTH) < torch.tensor([LENGTH, 30, 41])[:, None]
    return ids * mask + ~mask, mask


def read(model: Any, head: str | None, ids: Tensor, mask: Tensor) -> Tensor:
    states = model(Batch(torch.arange(3), {"text": Seq(ids, mask.sum(1))})).last
    if head is None:
        return states
    return model.heads[head](states[:, 0] if head == "class" else states)


def assert_same(found: Tensor, wanted: Tensor, mask: Tensor) -> None:
    if found.shape[:2] == mask.shape:
        found, wanted = found[mask], wanted[mask]
    assert_close(found, wanted, rtol=1e-4, atol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("kind", KINDS)
def test_full_attention(kind: str, tmp_path: Path) -> None:
    theirs, folder = published(tmp_path, kind, **FULL)
    loaded, (ids, mask) = plmctl.load(folder), rows()
    assert {name.rpartition(".")[0] for name in loaded.source.unused} <= {"bert.pooler"}
    wanted = theirs(ids, attention_mask=mask.long())[0]
    assert_same(read(loaded.model.eval(), HEADS.get(kind), ids, mask), wanted, mask)


def test_sparse_attention_with_our_random_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """States and gradients where they draw what we draw, the same blocks for all heads."""
    theirs, folder = published(tmp_path, "ForMaskedLM", **SPARSE, num_random_blocks=2)
    module = transformers.models.big_bird.modeling_big_bird
    ours, (ids, mask) = plmctl.load(folder).model.eval(), rows()
    text = Seq(ids, mask.sum(1))

    def draw(self: Any, *, num_heads: int, **sizes: Any) -> list[np.ndarray]:
        with_random = pattern(2).at_layer(self.seed)
        without = pattern(0).at_layer(self.seed)
        chosen = with_random._see(text, self.seed) & ~without._see(text, self.seed)
        assert sizes["from_seq_length"] == len(chosen) * BLOCK
        each = [line.nonzero()[:, 0].numpy() for line in chosen[1:-1]]
        assert {len(blocks) for blocks in each} == {2}
        return [np.stack(each)] * num_heads

    monkeypatch.setattr(
        module.BigBirdBlockSparseAttention, "_bigbird_block_rand_mask_with_head", draw
    )
    wanted = theirs.train()(ids, attention_mask=mask.long()).logits
    found = read(ours, "mlm", ids, mask)
    assert_same(found, wanted, mask)
    loss = torch.randn(found.shape, generator=torch.Generator().manual_seed(3)) * mask[..., None]
    (found * loss).sum().backward()
    (wanted * loss).sum().backward()
    for block, layer in zip(
        ours.backbone.stack.blocks["a"], theirs.bert.encoder.layer, strict=True
    ):
        own = layer.attention.self
        grads = [part.weight.grad for part in (own.query, own.key, own.value)]
        assert_close(block.cell.qkv.weight.grad, torch.cat(grads), rtol=1e-3, atol=1e-4)
        assert grads[0].abs().max() > 1e-3
    other = pattern(2, seed=1).at_layer(0)._see(text, 0)
    assert not torch.equal(other, pattern(2).at_layer(0)._see(text, 0))


def pattern(random: int, seed: int = 0) -> BigBird:
    return BigBird(block=BLOCK, window=3, first=1, last=1, random=random, seed=seed, num_layers=2)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", KINDS)
def test_there_and_back(kind: str, tmp_path: Path) -> None:
    model, folder = published(tmp_path / "published", kind, **SPARSE, num_random_blocks=1)
    assert_round_trip(model, folder, tmp_path)


def test_the_recipe_is_a_published_class(tmp_path: Path) -> None:
    config = settle_lengths(compose("pretrain", "big_bird", ["size=tiny", "format.max_length=64"]))
    model = build_model(config, vocab_size=60, seed=0).eval()
    exported = hf.export(config, tensors_of(model), pad=0)
    assert exported.architecture == "BigBirdForMaskedLM"
    assert exported.left_out == ["pattern.random: the published class has other random blocks"]
    hf.write(tmp_path, exported, tokens={"pad": 0, "bos": 1, "eos": 2})
    settings = json.loads((tmp_path / "config.json").read_text())
    assert (settings["block_size"], settings["num_random_blocks"]) == (32, 3)
    back = plmctl.load(tmp_path).config["pattern"]
    assert {key: back[key] for key in ("block", "window", "random")} == {
        "block": 32,
        "window": 3,
        "random": 3,
    }


def test_training_goes_on_from_a_model_of_other_layers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RoBERTa made long: the pattern has as many layers as the model, whatever the recipe's."""
    publish(tmp_path / "short", "RobertaForMaskedLM", pad_token_id=1, num_hidden_layers=3)
    convert(tmp_path / "short", tmp_path / "long", to="plmctl", max_length=64, reach=4)
    monkeypatch.setattr(adapt, "_tokenizer", lambda spec, source: dict(spec.tokenizer))
    words = [f"init={tmp_path / 'long'}", "format.max_length=64", "pattern.block=8", "data.path=x"]
    spec = adapt.adopt(compose("pretrain", "big_bird", words))
    assert (spec.pattern["num_layers"], spec.pattern["block"]) == (3, 8)
    backbone = build_model(spec, vocab_size=VOCAB, seed=0).backbone
    assert backbone.pattern.layers == backbone.num_layers == 3


def test_a_class_without_random_blocks_is_not_published() -> None:
    """`transformers` cannot compute it."""
    words = ["size=tiny", "format.max_length=64", "pattern.random=0"]
    config = settle_lengths(compose("pretrain", "big_bird", words))
    model = build_model(config, vocab_size=60, seed=0)
    with pytest.raises(ConfigError, match=r"pattern.random=0 \(published: 1 or more\)"):
        hf.export(config, tensors_of(model), pad=0)


@pytest.mark.parametrize("setting", [{"use_bias": False}, {"rescale_embeddings": True}])
def test_what_our_encoder_has_not_is_refused(setting: dict[str, Any], tmp_path: Path) -> None:
    _, folder = published(tmp_path, "Model")
    settings = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(settings | setting))
    with pytest.raises(ConfigError, match=next(iter(setting))):
        plmctl.load(folder)
