"""Recipes of encoder-decoders as published classes, what no class has, and what help and pages
say of families.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import plmctl
from plmctl.artifacts.assemble import build_model, settle_lengths
from plmctl.artifacts.loading import load_source
from plmctl.config.compose import compose
from plmctl.core.batch import Batch
from plmctl.core.errors import ConfigError
from plmctl.heads.features import read
from plmctl.interop import hf
from plmctl.runs.contract.stand_in import TINY
from plmctl.text.tokenizer import Tokenizer
from plmctl.training.checkpoint import tensors_of
from tests.interop.test_encoder_decoders import ENDS, assert_agrees, inputs, theirs

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.parity

RECIPES = {
    "bart": "BartForConditionalGeneration",
    "t5": "T5ForConditionalGeneration",
    "transformer": "MarianMTModel",
}
GATES = [
    "model.decoder.stack.cells.f._target_=plmctl.nn.cells.glu.GLU",
    "model.decoder.stack.cells.f.activation=gelu_tanh",
    "heads.seq2seq.tied=false",
    "heads.seq2seq.scaled=false",
]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("recipe", "changes"), [("bart", []), ("t5", []), ("t5", GATES), ("transformer", [])]
)
def test_a_recipe_exports_to_its_family(recipe: str, changes: list[str], tmp_path: Path) -> None:
    files = ["data.path=x", *(["data.target_path=y"] if recipe == "transformer" else [])]
    config = settle_lengths(
        compose(
            "pretrain",
            recipe,
            [*files, "size=tiny", "size.width=32", "size.inner_width=48", *changes],
        )
    )
    model = build_model(config, vocab_size=60, vocab=TINY, seed=0).eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=generator))
    exported = hf.export(config, tensors_of(model), pad=TINY.pad)
    assert (exported.architecture, exported.left_out) == (RECIPES[recipe], [])
    hf.write(
        tmp_path, exported, tokens={role: getattr(TINY, role) for role in ("pad", "bos", "eos")}
    )
    again, info = getattr(transformers, exported.architecture).from_pretrained(
        tmp_path, output_loading_info=True
    )
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    assert again.config.decoder_start_token_id == model.backbone.start
    batch = inputs(*ENDS["padded"])
    with torch.no_grad():
        found = model.heads["seq2seq"](model(batch).last)
    assert_agrees({"seq2seq": found}, {"seq2seq": theirs(again.eval(), batch)["seq2seq"]}, batch)
    back = hf.read(tmp_path)
    assert back.tensors.keys() == tensors_of(model).keys()
    assert all(tensor.equal(back.tensors[name]) for name, tensor in tensors_of(model).items())
    written = again.generate(batch.seqs["source"].ids[:1], max_new_tokens=3, do_sample=False)
    assert written[0, 0] == model.backbone.start


@pytest.mark.parametrize(
    ("recipe", "change", "told"),
    [
        ("bart", "model.unread=mask", r"bart, differs in\s+model\.unread=mask \(published: None\)"),
        (
            "bart",
            "model.decoder.stack.residual._target_=plmctl.nn.residual.SandwichNorm",
            r"residual=SandwichNorm \(published: PostNorm\)",
        ),
        ("bart", "position=sinusoidal", r"position=Sinusoidal \(published: Learned\)"),
        (
            "transformer",
            "heads.seq2seq.tied=false",
            r"marian, differs in\s+heads\.seq2seq\.tied=False \(published: True\)",
        ),
        (
            "t5",
            "model.decoder.position.buckets=8",
            r"model\.decoder\.position\.buckets=8 \(published: 32\)",
        ),
        ("t5", "model.tied=false", r"t5, differs in\s+model\.tied=False \(published: True\)"),
        (
            "t5",
            "model.decoder.stack.cells.c.bias=true",
            r"model\.decoder\.stack\.cells\.c\.bias=True \(published: False\)",
        ),
    ],
)
def test_what_no_published_class_has_is_told(recipe: str, change: str, told: str) -> None:
    files = ["data.path=x", *(["data.target_path=y"] if recipe == "transformer" else [])]
    config = settle_lengths(compose("pretrain", recipe, [*files, "size=tiny", change]))
    model = build_model(config, vocab_size=TINY.size, vocab=TINY, seed=0)
    with pytest.raises(ConfigError, match=told):
        hf.export(config, tensors_of(model), pad=0)


def test_elmo_has_no_published_class() -> None:
    with pytest.raises(ConfigError, match="ELMo has no class in transformers"):
        hf.export(settle_lengths(compose("pretrain", "elmo", ["data.path=x"])), {})


def test_the_exported_tokenizer_frames_a_source_as_the_run_did(
    tokens_of: Callable[..., Path], tmp_path: Path
) -> None:
    """And so does the model that is read back, whose config has no rows."""
    tokenizer = Tokenizer.load(tokens_of("bpe"))
    assert tokenizer.vocab.single == ("cls", "A", "sep")
    tokenizer.export_hf(tmp_path, model_max_length=64, single=["A", "eos"])
    ids = transformers.AutoTokenizer.from_pretrained(tmp_path)("hello world")["input_ids"]
    assert ids == [*tokenizer.encode("hello world"), tokenizer.vocab.eos]
    again = Tokenizer.load(tmp_path).vocab
    assert [again.id(role) for role in again.single if role != "A"] == [tokenizer.vocab.eos]
    assert again.single[0] == "A"


def test_a_start_that_is_a_role_needs_the_tokenizer(tmp_path: Path) -> None:
    config = settle_lengths(compose("pretrain", "bart", ["size=tiny"]))
    exported = hf.export(
        config, tensors_of(build_model(config, vocab_size=TINY.size, vocab=TINY, seed=0)), pad=0
    )
    with pytest.raises(
        ConfigError, match=r"model\.start='eos': an id, since there is no tokenizer"
    ):
        hf.write(tmp_path, exported, tokens={"pad": 0})


@torch.no_grad()
@pytest.mark.parametrize("family", ["T5", "MT5", "UMT5"])
def test_a_tagger_of_the_encoder_is_a_published_class(
    family: str, published: Callable[..., Any], tmp_path: Path
) -> None:
    """features=encoder: no decoder runs or is written, and what is written is read again."""
    source = plmctl.load(published(f"{family}Model", feed_forward_proj="gated-gelu")[1]).source
    kind = "plmctl.heads."
    heads: dict[str, Any] = {"features": {"_target_": f"{kind}features.EncoderStates"}}
    heads["tag"] = {"_target_": f"{kind}tag.Tag", "num_classes": 3, "dropout": 0.1}
    config = {**source.config, "heads": heads}
    own = {"heads.tag.linear.weight": torch.randn(3, 16), "heads.tag.linear.bias": torch.ones(3)}
    model = load_source(replace(source, config=config, tensors={**source.tensors, **own})).model
    batch = inputs(*ENDS["padded"])
    text = batch.seqs["source"]
    model.backbone.decoder.stack.register_forward_hook(lambda *_: pytest.fail("it runs"))
    wanted = model.heads["tag"](read(model, Batch(batch.key, {"text": text})))[text.real]
    exported = hf.export(config, tensors_of(model))
    assert exported.architecture == f"{family}ForTokenClassification"
    assert exported.left_out == ["backbone.decoder"]
    hf.write(tmp_path, exported, tokens={})
    theirs = getattr(transformers, exported.architecture).from_pretrained(tmp_path).eval()
    found = theirs(text.ids, attention_mask=text.real.long()).logits[text.real]
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)
    again = plmctl.load(tmp_path)
    states = again.model.heads["tag"](read(again.model, Batch(batch.key, {"text": text})))
    torch.testing.assert_close(states[text.real], wanted, atol=1e-5, rtol=1e-5)
    written = hf.export(again.config, again.source.tensors)
    assert (written.architecture, written.left_out) == (exported.architecture, [])
    assert all(tensor.equal(written.tensors[name]) for name, tensor in exported.tensors.items())
    with pytest.raises(ConfigError, match="fine-tune with features=encoder"):
        hf.export({**config, "heads": {"tag": heads["tag"]}}, tensors_of(model))
