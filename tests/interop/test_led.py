"""LED against `transformers`: states, logits and gradients of both stacks, with padding and global
tokens anywhere; there and back bit for bit; BART made long as a published class.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import plmctl
from plmctl.artifacts.convert import convert
from plmctl.artifacts.lengthen import lengthen
from plmctl.artifacts.places import Places
from plmctl.core.batch import Batch, Seq
from plmctl.core.errors import ConfigError
from plmctl.interop import hf
from tests.artifacts.test_shrinking import batch, built, source
from tests.interop.publishing import VOCAB, publish
from tests.interop.test_families import assert_round_trip

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.parity

LENGTH, TARGET, START = 29, 7, 2
NAMES = ["LEDForConditionalGeneration", "LEDForQuestionAnswering", "LEDModel"]
SMALL: dict[str, Any] = {
    "d_model": 16,
    "encoder_layers": 2,
    "encoder_ffn_dim": 24,
    "encoder_attention_heads": 2,
    "decoder_layers": 3,
    "decoder_ffn_dim": 20,
    "decoder_attention_heads": 4,
    "max_encoder_position_embeddings": 48,
    "max_decoder_position_embeddings": 12,
    "attention_window": [4, 8],
    "vocab_size": VOCAB,
    "pad_token_id": 1,
    "decoder_start_token_id": START,
}
MARKED = torch.zeros(3, LENGTH, dtype=torch.long)
MARKED[0, [0, 5, 16, 28]], MARKED[1, [9]] = 1, 1  # none in the last row


def published(place: Path, name: str, **changes: Any) -> tuple[Any, Path]:
    torch.manual_seed(0)
    model = getattr(transformers, name)(transformers.LEDConfig(**{**SMALL, **changes})).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    model.save_pretrained(place)
    return model, place


def rows(padding: bool, length: int = LENGTH) -> tuple[Seq, Seq]:
    """(source, target)"""
    generator = torch.Generator().manual_seed(2)

    def seq(lengths: list[int]) -> Seq:
        ids = torch.randint(3, VOCAB, (3, max(lengths)), generator=generator)
        return Seq(ids, torch.tensor(lengths), full=len(set(lengths)) == 1)

    reads = [length, length - 12, length - 6] if padding else [length] * 3
    return seq(reads), seq([TARGET, 3, 5] if padding else [TARGET] * 3)


def read(model: Any, source: Seq, target: Seq, marked: Tensor | None) -> Tensor:
    own = source if marked is None else source.with_tracks(**{"global": marked})
    states = model(Batch(torch.arange(3), {"source": own, "target": target})).last
    head = next(iter(model.heads), None)
    return states if head is None else model.heads[head](states)


def read_theirs(model: Any, source: Seq, target: Seq, marked: Tensor | None) -> Tensor:
    ids = torch.cat([torch.full_like(target.ids[:, :1], START), target.ids[:, :-1]], 1)
    masks = {
        "attention_mask": source.real.long(),
        "decoder_attention_mask": target.real.long(),
        "decoder_input_ids": ids,
    }
    if marked is not None:
        masks["global_attention_mask"] = marked
    output = model(source.ids, **masks)
    if hasattr(output, "start_logits"):
        return torch.stack([output.start_logits, output.end_logits], -1)
    return output[0]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("padding", [False, True])
def test_outputs_and_gradients_are_the_same(name: str, padding: bool, tmp_path: Path) -> None:
    theirs, folder = published(tmp_path, name)
    loaded = plmctl.load(folder)
    assert not loaded.source.unused
    ours, (source, target) = loaded.model.eval(), rows(padding)
    found = read(ours, source, target, MARKED)
    wanted = read_theirs(theirs, source, target, MARKED)
    real = target.real
    assert_close(found[real], wanted[real], rtol=1e-5, atol=1e-5)
    loss = torch.randn(found.shape, generator=torch.Generator().manual_seed(3)) * real[..., None]
    (found * loss).sum().backward()
    (wanted * loss).sum().backward()
    encoder, base = ours.backbone.encoder, getattr(theirs, "led", theirs)
    for block, layer in zip(encoder.stack.blocks["a"], base.encoder.layers, strict=True):
        own, cell = layer.self_attn.longformer_self_attn, block.cell
        near = torch.cat([own.query.weight.grad, own.key.weight.grad, own.value.weight.grad])
        assert_close(cell.qkv.weight.grad, near, rtol=1e-4, atol=1e-5)
        far = torch.cat([own.key_global.weight.grad, own.value_global.weight.grad])
        assert_close(cell.global_maps.kv.weight.grad, far, rtol=1e-4, atol=1e-5)
        query = own.query_global.weight.grad
        assert_close(cell.global_maps.q.weight.grad, query, rtol=1e-4, atol=1e-5)
        assert query.abs().max() > 1e-4
    table = base.encoder.embed_positions.weight.grad
    assert_close(encoder.position.table.weight.grad[:LENGTH], table[:LENGTH], rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_without_a_field_no_token_is_global(tmp_path: Path) -> None:
    theirs, folder = published(tmp_path, NAMES[0], attention_window=6)
    source, target = rows(True)
    found = read(plmctl.load(folder).model.eval(), source, target, None)
    wanted = read_theirs(theirs, source, target, None)
    assert_close(found[target.real], wanted[target.real], rtol=1e-5, atol=1e-5)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", NAMES)
def test_there_and_back(name: str, tmp_path: Path) -> None:
    model, folder = published(tmp_path / "published", name)
    assert_round_trip(model, folder, tmp_path)


def test_each_end_has_its_places(tmp_path: Path) -> None:
    _, folder = published(tmp_path, NAMES[0])
    loaded = plmctl.load(folder)
    assert Places.of(loaded.config) == (48, 12)
    assert (loaded.model.backbone.max_length, loaded.model.backbone.max_target) == (48, 12)


@torch.no_grad()
@pytest.mark.parametrize("reach", [12, 2])
def test_bart_made_long(reach: int, tmp_path: Path) -> None:
    """Its logits are those of BART where a window covers a row; the decoder keeps its places."""
    short, folder = publish(tmp_path / "bart", "BartForConditionalGeneration")
    convert(folder, tmp_path / "long", to="plmctl", max_length=48, reach=reach)
    model = plmctl.load(tmp_path / "long").model.eval()
    source, target = rows(True, 12)
    ids = torch.cat([torch.full_like(target.ids[:, :1], START), target.ids[:, :-1]], 1)
    wanted = short(source.ids, attention_mask=source.real.long(), decoder_input_ids=ids)[0]
    found = read(model, source, target, None)
    same = torch.allclose(found[target.real], wanted[target.real], rtol=1e-5, atol=1e-5)
    assert same == (reach == 12)
    assert (model.backbone.max_length, model.backbone.max_target) == (48, 12)
    places = short.model.encoder.embed_positions.weight[2:]
    assert torch.equal(model.backbone.encoder.position.table.weight, places.repeat(4, 1))

    convert(tmp_path / "long", tmp_path / "led", to="hf")
    theirs = transformers.LEDForConditionalGeneration.from_pretrained(tmp_path / "led").eval()
    assert theirs.config.attention_window == [2 * reach] * 2
    source, target = rows(True)
    found, wanted = read(model, source, target, MARKED), read_theirs(theirs, source, target, MARKED)
    assert_close(found[target.real], wanted[target.real], rtol=1e-5, atol=1e-5)


def test_our_recipe_made_long_and_what_is_not() -> None:
    long = lengthen(source("bart", "model.start=2")[0], 64, reach=4)
    exported = hf.export(long.config, long.tensors)
    assert exported.architecture == NAMES[0]
    assert exported.left_out == [
        "pattern: the first token of a row is global; give each batch a global_attention_mask"
    ]
    with pytest.raises(ConfigError, match=r"=60: a multiple of 8.*\n  fix: --max-length 64"):
        lengthen(source("bart", "model.start=2")[0], 60, reach=4)


def test_buckets_have_no_last_one_so_t5_is_made_long_without_copies() -> None:
    short, model = source("t5", "model.start=2")
    made, rows = built(lengthen(short, 60, reach=16)), batch("source", "target")
    wanted = model.backbone(rows).last
    torch.testing.assert_close(made.backbone(rows).last, wanted, rtol=1e-10, atol=1e-10)
    nearer = built(lengthen(short, 60, reach=2))
    assert not torch.allclose(nearer.backbone(rows).last, wanted)
