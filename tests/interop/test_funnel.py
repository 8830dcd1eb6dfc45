"""Funnel-Transformer against `transformers`, in odd configurations: outputs, losses, gradients and
bytes, in both directions.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.testing import assert_close

import plmctl
from plmctl.artifacts.convert import convert
from plmctl.artifacts.loading import Loaded
from plmctl.core.batch import Batch, Seq
from plmctl.core.errors import PlmctlError
from plmctl.interop import hf
from tests.interop.test_encoder_decoders import Double
from tests.interop.test_relatives import sum_losses

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.parity

BASE = {"d_model": 16, "n_head": 2, "d_head": 8, "d_inner": 24, "vocab_size": 40}
BASE |= {"block_sizes": [2, 1, 2], "num_decoder_layers": 2, "pad_token_id": 1}
ODD: list[Mapping[str, Any]] = [
    {"hidden_act": "relu", "block_sizes": [1, 2], "block_repeats": [2, 1], "vocab_size": 43},
    {"tie_word_embeddings": False, "separate_cls": False, "d_head": 5, "pooling_type": "max"},
    {"attention_type": "factorized", "truncate_seq": False, "layer_norm_eps": 1e-5},
    {"pool_q_only": False, "num_decoder_layers": 1, "block_sizes": [1, 1, 1, 1]},
]
HEADS = {
    "Model": None,
    "BaseModel": None,
    "ForMaskedLM": "mlm",
    "ForPreTraining": "discriminator",
    "ForSequenceClassification": "class",
    "ForMultipleChoice": "choice",
    "ForTokenClassification": "tag",
    "ForQuestionAnswering": "span",
}
LENGTHS = [[17, 17], [16, 16], [21, 14, 5]]


def publish(place: Path, end: str, number: int) -> tuple[Any, Path]:
    """The published model with random weights in all parameters, and its folder."""
    kind = getattr(transformers, f"Funnel{end}")
    labels = {"num_labels": 2 if "Question" in end else 3}
    torch.manual_seed(number)
    model = kind(transformers.FunnelConfig(**{**BASE, **ODD[number], **labels})).eval()
    generator = torch.Generator().manual_seed(number + 1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator))
    model.save_pretrained(place)
    return model, place


def draw(lengths: list[int]) -> tuple[Tensor, Tensor, Tensor]:
    """Ids, which are real, and segments, of which the first token has one of its own."""
    generator = torch.Generator().manual_seed(2)
    ids = torch.randint(3, 40, (len(lengths), max(lengths)), generator=generator)
    columns = torch.arange(max(lengths))
    real = columns < torch.tensor(lengths)[:, None]
    segment = (columns > 6).long().expand(len(lengths), -1).clone()
    segment[:, 0] = 2
    return ids * real + ~real, real, segment


def answer(loaded: Loaded, head: str | None, inputs: tuple[Tensor, ...]) -> Any:
    """Our outputs, by the names of `transformers`."""
    ids, real, segment = inputs
    batch = Batch(torch.arange(len(ids)), {"text": Seq(ids, real.sum(1), {"segment": segment})})
    last, heads = loaded.model(batch).last, loaded.model.heads
    if head is None:
        return {"last_hidden_state": last}
    if head == "span":
        start, end = heads["span"](last).unbind(-1)
        return {"start_logits": start, "end_logits": end}
    logits = heads[head](last[:, 0] if head in ("class", "choice") else last)
    return {"logits": logits.view(1, -1) if head == "choice" else logits}


def ask(model: Any, inputs: tuple[Tensor, ...]) -> dict[str, Tensor]:
    several = "MultipleChoice" in type(model).__name__  # [1, choices, T]
    ids, mask, segment = (x[None] if several else x for x in inputs)
    out = model(ids, attention_mask=mask.long(), token_type_ids=segment)
    return {name: value for name, value in out.items() if isinstance(value, Tensor)}


def stretch(model: Any, states: Tensor, length: int) -> Tensor:
    """The states of `FunnelBaseModel`, as its decoder would repeat them."""
    from transformers.models.funnel.modeling_funnel import upsample

    config = model.config
    return upsample(
        states,
        2 ** (len(config.block_sizes) - 1),
        length,
        separate_cls=config.separate_cls,
        truncate_seq=config.truncate_seq,
    )


def compare(model: Any, loaded: Loaded, head: str | None, within: float) -> None:
    """Outputs, losses and gradients in the type of both models."""
    for lengths in LENGTHS:
        inputs = draw(lengths)
        found = answer(loaded, head, inputs)
        with Double() if within < 1e-6 else contextlib.nullcontext():  # its softmax is in fp32
            wanted = ask(model, inputs)
        if type(model).__name__ == "FunnelBaseModel":
            wanted = {name: stretch(model, x, max(lengths)) for name, x in wanted.items()}
        for name, value in wanted.items():
            mine = found[name].squeeze(-1) if head == "discriminator" else found[name]
            assert mine.shape == value.shape
            assert_close(mine, value, atol=within, rtol=within)
    losses = [sum_losses(outputs, inputs[1]) for outputs in (found, wanted)]
    if head == "discriminator":
        losses = [outputs["logits"].square().mean() for outputs in (found, wanted)]
    assert_close(*losses, atol=within, rtol=within)
    for one, loss in zip((loaded.model, model), losses, strict=True):
        one.zero_grad()
        loss.backward()
    grads = {
        name: torch.zeros_like(weight) if weight.grad is None else weight.grad
        for name, weight in loaded.model.named_parameters()
    }
    named = hf.export(loaded.config, grads).tensors
    compared = set()
    for name, weight in model.named_parameters(remove_duplicate=False):
        if weight.grad is not None and name in named:
            compared.add(weight)
            # our tables of tokens have spare rows
            pair = [named[name][: len(weight)], weight.grad]
            if "word_embeddings" in name:  # theirs of padding learns nothing
                pair = [each.index_fill(0, torch.tensor([1]), 0.0) for each in pair]
            assert_close(*pair, atol=within, rtol=within, msg=name)
    assert compared >= {each for each in model.parameters() if each.grad is not None}


@pytest.mark.sampled(5)
@pytest.mark.parametrize("number", range(len(ODD)))
@pytest.mark.parametrize("end", HEADS)
def test_outputs_losses_gradients_and_bytes_are_equal(
    end: str, number: int, tmp_path: Path
) -> None:
    model, folder = publish(tmp_path / "published", end, number)
    loaded = plmctl.load(folder)
    assert not loaded.source.unused
    convert(folder, tmp_path / "ours", to="plmctl")
    convert(tmp_path / "ours", tmp_path / "back", to="hf")
    first, last = (load_file(tmp_path / one / "model.safetensors") for one in ("published", "back"))
    assert first.keys() <= last.keys()
    for name, tensor in first.items():
        assert last[name].equal(tensor), name
    _, info = type(model).from_pretrained(tmp_path / "back", output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    for dtype, within in {torch.float32: 1e-5, torch.float64: 1e-12}.items():
        loaded.model.to(dtype), model.to(dtype)
        compare(model, loaded, HEADS[end], within)


@torch.no_grad()
@pytest.mark.parametrize("length", [1, 2, 3, 4])
def test_rows_too_short_for_all_poolings_are_read(length: int, tmp_path: Path) -> None:
    _, folder = publish(tmp_path, "Model", 2)
    ids = torch.arange(3, 3 + length)[None]
    batch = Batch(torch.arange(1), {"text": Seq(ids, torch.tensor([length]), {}, True)})
    last = plmctl.load(folder).model(batch).last
    assert last.shape == (1, length, 16)
    assert last.isfinite().all()


def test_a_damaged_setting_is_named(tmp_path: Path) -> None:
    _, folder = publish(tmp_path, "Model", 0)
    config = json.loads((folder / "config.json").read_text())
    for changed, message in (
        ({"block_repeats": [1, 1, 1]}, "block_repeats"),
        ({"pooling_type": "min"}, "mean, max"),
    ):
        (folder / "config.json").write_text(json.dumps(config | changed))
        with pytest.raises(PlmctlError, match=message):
            plmctl.load(folder)
