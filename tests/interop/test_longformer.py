"""Longformer against `transformers`: states, logits and gradients with padding and global tokens
anywhere, a window of its own in each layer; there and back bit for bit; models made long as a
published class.
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
from plmctl.artifacts.convert import convert, to_hf
from plmctl.artifacts.lengthen import lengthen
from plmctl.core.batch import Batch, Seq
from plmctl.core.errors import ConfigError, DataError
from plmctl.interop import hf
from tests.artifacts.test_shrinking import source
from tests.interop.publishing import VOCAB, publish
from tests.interop.test_families import KINDS, assert_round_trip

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.parity

LENGTH = 29  # no multiple of a window
SMALL: dict[str, Any] = {
    "attention_window": [4, 8],
    "max_position_embeddings": 50,
    "type_vocab_size": 1,
    "pad_token_id": 1,
    "layer_norm_eps": 1e-5,
}
HEADS = {
    "ForMaskedLM": "mlm",
    "ForSequenceClassification": "class",
    "ForTokenClassification": "tag",
    "ForQuestionAnswering": "span",
}
MARKED = torch.zeros(3, LENGTH, dtype=torch.long)
MARKED[0, [0, 5, 16, 28]], MARKED[1, [9]] = 1, 1  # none in the last row


def published(place: Path, name: str, **changes: Any) -> tuple[Any, Path]:
    labels = 2 if "Question" in name else 3
    return publish(place, name, **{**SMALL, "num_labels": labels, **changes})


def rows(padding: bool) -> tuple[Tensor, Tensor]:
    """(ids, mask)"""
    ids = torch.randint(2, VOCAB, (3, LENGTH), generator=torch.Generator().manual_seed(2))
    mask = torch.arange(LENGTH) < torch.tensor([29, 17, 23] if padding else [29] * 3)[:, None]
    return ids * mask + ~mask, mask


def read(model: Any, head: str | None, ids: Tensor, mask: Tensor, marked: Tensor) -> Tensor:
    tracks = {"global": marked}
    batch = Batch(torch.arange(3), {"text": Seq(ids, mask.sum(1), tracks, full=bool(mask.all()))})
    states = model(batch).last
    if head is None:
        return states
    return model.heads[head](states[:, 0] if head == "class" else states)


def read_theirs(model: Any, ids: Tensor, mask: Tensor, marked: Tensor) -> Tensor:
    output = model(ids, attention_mask=mask.long(), global_attention_mask=marked)
    if hasattr(output, "start_logits"):
        return torch.stack([output.start_logits, output.end_logits], -1)
    return output[0]


def assert_same(found: Tensor, wanted: Tensor, mask: Tensor) -> None:
    if found.shape[:2] == mask.shape:
        found, wanted = found[mask], wanted[mask]
    assert_close(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("padding", [False, True])
def test_outputs_and_gradients_are_the_same(kind: str, padding: bool, tmp_path: Path) -> None:
    theirs, folder = published(tmp_path, f"Longformer{kind}")
    loaded = plmctl.load(folder)
    assert not loaded.source.unused
    ours, (ids, mask) = loaded.model.eval(), rows(padding)
    found = read(ours, HEADS.get(kind), ids, mask, MARKED)
    wanted = read_theirs(theirs, ids, mask, MARKED)
    assert_same(found, wanted, mask)
    loss = torch.randn(found.shape, generator=torch.Generator().manual_seed(3))
    if loss.shape[:2] == mask.shape:
        loss = loss * mask[..., None]
    (found * loss).sum().backward()
    (wanted * loss).sum().backward()
    layers, base = ours.backbone.stack.blocks, getattr(theirs, "longformer", theirs)
    for block, layer in zip(layers["g"], base.encoder.layer, strict=True):
        own, cell = layer.attention.self, block.cell
        near = torch.cat([own.query.weight.grad, own.key.weight.grad, own.value.weight.grad])
        assert_close(cell.qkv.weight.grad, near, rtol=1e-4, atol=1e-5)
        far = torch.cat([own.key_global.weight.grad, own.value_global.weight.grad])
        assert_close(cell.global_maps.kv.weight.grad, far, rtol=1e-4, atol=1e-5)
        query = own.query_global.weight.grad
        assert_close(cell.global_maps.q.weight.grad, query, rtol=1e-4, atol=1e-5)
        assert query.abs().max() > 1e-3
    table = base.embeddings.position_embeddings.weight.grad[2:]
    assert_close(ours.backbone.position.table.weight.grad, table, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_without_a_field_no_token_is_global(tmp_path: Path) -> None:
    """As there, where no mask is given."""
    theirs, folder = published(tmp_path, "LongformerForMaskedLM", attention_window=6)
    model, (ids, mask) = plmctl.load(folder).model.eval(), rows(True)
    batch = Batch(torch.arange(3), {"text": Seq(ids, mask.sum(1))})
    wanted = theirs(ids, attention_mask=mask.long())[0]
    assert_same(model.heads["mlm"](model(batch).last), wanted, mask)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", KINDS)
def test_there_and_back(kind: str, tmp_path: Path) -> None:
    model, folder = published(tmp_path / "published", f"Longformer{kind}")
    assert_round_trip(model, folder, tmp_path)


@pytest.mark.parametrize(
    ("window", "said"),
    [
        (7, "=7: an even number of at least 2, or one for each of the 2 layers"),
        ([4, 6, 8], r"=\[4, 6, 8\]: an even number"),
        ([1, 4], r"=\[1, 4\]: an even number"),
        (0, "attention_window"),
    ],
)
def test_windows_that_there_are_not(window: Any, said: str, tmp_path: Path) -> None:
    _, folder = published(tmp_path, "LongformerModel")
    settings = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(settings | {"attention_window": window}))
    with pytest.raises((ConfigError, DataError), match=said):
        plmctl.load(folder)


@torch.no_grad()
@pytest.mark.parametrize("name", ["RobertaForMaskedLM", "BertForMaskedLM"])
def test_a_model_made_long_is_a_published_class(name: str, tmp_path: Path) -> None:
    """Its states are those of the short model where a window covers a row."""
    short, folder = publish(tmp_path / "short", name, pad_token_id=1)
    convert(folder, tmp_path / "long", to="hf", max_length=40, reach=12)
    theirs = transformers.LongformerForMaskedLM.from_pretrained(tmp_path / "long").eval()
    assert theirs.config.attention_window == [24, 24]
    ids = torch.randint(2, VOCAB, (3, 12), generator=torch.Generator().manual_seed(0))
    first = (torch.arange(12) == 0).long().expand(3, -1)
    found = theirs(ids, attention_mask=torch.ones_like(ids), global_attention_mask=first)[0]
    assert_close(found, short(ids)[0], rtol=1e-5, atol=1e-5)
    ours, (long_ids, mask) = plmctl.load(tmp_path / "long").model.eval(), rows(True)
    wanted = read_theirs(theirs, long_ids, mask, MARKED)
    assert_same(read(ours, "mlm", long_ids, mask, MARKED), wanted, mask)


def test_what_the_folder_cannot_say_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    to_hf(lengthen(source("roberta")[0], 40, reach=4), tmp_path)
    assert "the first token of a row is global; give each batch a global_attention_mask" in (
        capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("recipe", "said"),
    [
        ("albert", r"cells\.a=GlobalAttention .*fix: --to plmctl  # "),  # layers that share weights
        ("electra", "discriminator.*no class of longformer has such a head.*fix: # keep the run"),
    ],
)
def test_what_no_published_class_has(recipe: str, said: str) -> None:
    long = lengthen(source(recipe)[0], 40, reach=4)
    with pytest.raises(ConfigError, match=f"(?s){said}"):
        hf.export(long.config, long.tensors)


def test_our_windows_by_layer_and_letters(tmp_path: Path) -> None:
    """The letter of conf/model, gf, and windows as one number or one for each layer."""
    long = lengthen(source("roberta")[0], 40, reach=4)
    stack = long.config["model"]["stack"]
    assert stack["layout"].startswith("a")
    long.config["pattern"]["parts"][0]["reach"] = [4, 4]
    exported = hf.export(long.config, long.tensors)
    assert exported.settings["attention_window"] == [8, 8]
    tensors = {name.replace("blocks.a.", "blocks.g."): t for name, t in long.tensors.items()}
    stack["layout"] = "gf*2"
    stack["cells"]["g"] = stack["cells"].pop("a")
    long.config["pattern"]["parts"][0]["reach"] = [2, 4]
    again = hf.export(long.config, tensors)
    assert again.settings["attention_window"] == [4, 8]
    assert all(exported.tensors[name].equal(tensor) for name, tensor in again.tensors.items())
