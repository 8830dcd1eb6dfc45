"""Reformer against `transformers`: logits with the same rotations, there and back bit for bit, our
recipe as a published class, settings that our cells do not have.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import plmctl
from plmctl.artifacts.assemble import build_model, settle_lengths
from plmctl.config.compose import compose
from plmctl.core.batch import Batch, Seq
from plmctl.core.errors import ConfigError
from plmctl.interop import hf
from plmctl.nn.tables import real
from tests.interop.test_families import assert_round_trip

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.parity

SEED, LENGTH, VOCAB = 3, 24, 40
SMALL = {
    "vocab_size": VOCAB,
    "hidden_size": 12,
    "num_attention_heads": 2,
    "attention_head_size": 8,
    "feed_forward_size": 20,
    "attn_layers": ["local", "local", "lsh", "local", "lsh"],
    "local_attn_chunk_length": 4,
    "lsh_attn_chunk_length": 6,
    "num_hashes": 2,
    "num_buckets": 6,
    "hash_seed": SEED,
    "axial_pos_shape": [4, 8],
    "axial_pos_embds_dim": [5, 7],
    "max_position_embeddings": 32,
}
CLASSES = {
    "ReformerModelWithLMHead": "clm",
    "ReformerForMaskedLM": "mlm",
    "ReformerForQuestionAnswering": "span",
    "ReformerModel": None,
}


def publish(folder: Path, name: str, **changes: Any) -> Any:
    torch.manual_seed(0)
    causal = name == "ReformerModelWithLMHead"
    config = transformers.ReformerConfig(**{"is_decoder": causal, **SMALL, **changes})
    model = getattr(transformers, name)(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    model.save_pretrained(folder)
    return model


def rows(padding: bool) -> tuple[Tensor, Tensor]:
    """(ids, mask), whole chunks of both kinds."""
    ids = torch.randint(1, VOCAB, (2, LENGTH), generator=torch.Generator().manual_seed(2))
    mask = torch.ones_like(ids)
    if padding:
        mask[1, 17:] = 0
    return ids, mask


def logits(model: Any, ids: Tensor, mask: Tensor) -> Tensor:
    """With the bias of the head, which version 5 of `transformers` has and does not add."""
    plain: Tensor = model(ids, attention_mask=mask)[0]
    again = model.lm_head.decoder(torch.zeros(1, 2 * model.config.hidden_size).to(plain))
    assert not again.any()  # if it adds it some day, this helper goes
    return plain + model.lm_head.bias


def read(model: Any, head: str | None, ids: Tensor, mask: Tensor) -> Tensor:
    seq = Seq(ids, mask.sum(1), full=bool(mask.all()))
    states = model(Batch(torch.arange(len(ids)), {"text": seq})).last
    return states if head is None else model.heads[head](states)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize("padding", [False, True])
@torch.no_grad()
def test_the_outputs_are_the_same(name: str, padding: bool, tmp_path: Path) -> None:
    theirs, (ids, mask) = publish(tmp_path, name).double(), rows(padding)
    loaded = plmctl.load(tmp_path)
    assert not loaded.source.unused
    found = read(loaded.model.double().eval(), CLASSES[name], ids, mask)
    if CLASSES[name] in ("clm", "mlm"):
        wanted = logits(theirs, ids, mask)
    else:
        output = theirs(ids, attention_mask=mask)
        span = CLASSES[name] == "span"
        wanted = torch.stack([output.start_logits, output.end_logits], -1) if span else output[0]
    read_too = mask.bool()
    assert_close(found[read_too], wanted[read_too], rtol=1e-8, atol=1e-8)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", CLASSES)
def test_there_and_back(name: str, tmp_path: Path) -> None:
    model = publish(tmp_path / "published", name)
    assert_round_trip(model, tmp_path / "published", tmp_path)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "changes",
    [
        {"attn_layers": ["lsh", "lsh"], "num_buckets": [2, 4]},
        {"attn_layers": ["local"], "num_buckets": None},
        {"axial_pos_embds": False},
    ],
)
@torch.no_grad()
def test_other_members(changes: dict[str, Any], tmp_path: Path) -> None:
    model = publish(tmp_path / "published", "ReformerModelWithLMHead", **changes)
    assert_round_trip(model, tmp_path / "published", tmp_path)
    ids, mask = rows(False)
    loaded = plmctl.load(tmp_path / "published").model.double().eval()
    wanted = logits(model.double(), ids, mask)
    assert_close(read(loaded, "clm", ids, mask), wanted, rtol=1e-8, atol=1e-8)


@torch.no_grad()
def test_our_recipe_is_a_published_class(tmp_path: Path) -> None:
    words = [
        "size.width=16",
        "size.inner_width=32",
        "format.max_length=24",
        "model.stack.cells.b.chunk=4",
        "model.stack.cells.h.chunk=6",
        "model.stack.cells.h.buckets=4",
    ]
    config = compose("pretrain", "reformer", words)
    model = build_model(config, vocab_size=VOCAB, seed=0).double().eval()
    plain = settle_lengths(config)
    settings = {name: plain[name] for name in ("size", "pattern", "position", "model", "heads")}
    exported = hf.export(_thaw(settings), real(model))
    assert exported.architecture == "ReformerModelWithLMHead"
    assert not exported.left_out
    hf.write(tmp_path, exported, tokens={})
    theirs = transformers.ReformerModelWithLMHead.from_pretrained(tmp_path).double().eval()
    for layer in theirs.reformer.encoder.layers:
        layer.attention.self_attention.hash_seed = 0
    ids, mask = rows(False)
    found, wanted = read(model, "clm", ids, mask), logits(theirs, ids, mask)
    assert_close(found, wanted, rtol=1e-6, atol=1e-6)  # files hold float32


def _thaw(settings: Any) -> Any:
    from plmctl.config.build import plain

    return {name: plain(node) for name, node in settings.items()}


@pytest.mark.parametrize("key", ["lsh_num_chunks_after", "local_num_chunks_after"])
def test_what_our_cells_do_not_have(key: str, tmp_path: Path) -> None:
    publish(tmp_path, "ReformerModel", **{key: 1})
    with pytest.raises(ConfigError, match=rf"(?s){key}.*0 \(nothing else is supported\)"):
        plmctl.load(tmp_path)
