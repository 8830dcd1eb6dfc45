"""LUKE as transformers publishes it: the same states and predictions of words and entities, there
and back bit for bit, and what it cannot express.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.testing import assert_close

import plmctl
from plmctl.artifacts.assemble import build_model, settle_lengths
from plmctl.artifacts.convert import convert
from plmctl.config.compose import compose
from plmctl.core.batch import Batch
from plmctl.core.errors import ConfigError
from plmctl.interop import hf
from plmctl.nn.entity_tokens import FIRST
from plmctl.training.checkpoint import load_tensors, tensors_of
from tests.models.test_luke import COUNT, ask, batch_of, published

pytestmark = pytest.mark.parity


def publish(place: Path, kind: str = "LukeForMaskedLM", **settings: Any) -> Any:
    theirs = published(settings.pop("aware", True), kind, **settings)
    theirs.save_pretrained(place)
    return theirs


@torch.no_grad()
def assert_agrees(theirs: Any, model: Any, batch: Batch) -> None:
    """Logits of the words and of the entities."""
    wanted, hidden = ask(theirs, batch), model(batch)
    real, entities = batch.text.real, batch.seqs["entities"].real
    found = model.heads["mlm"](hidden.last)
    assert_close(found[real], wanted.logits[real], atol=1e-4, rtol=1e-4)
    table = model.backbone.entities.table.weight[FIRST:]
    found = model.heads["entities"].score(hidden.streams["entities"][entities], table)
    assert_close(found, wanted.entity_logits[entities][:, FIRST:], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("aware", [True, False])
def test_there_and_back(aware: bool, tmp_path: Path) -> None:
    theirs = publish(tmp_path / "published", aware=aware)
    loaded = plmctl.load(tmp_path / "published")
    assert not loaded.source.unused
    assert_agrees(theirs, loaded.model.eval(), batch_of())
    convert(tmp_path / "published", tmp_path / "a", to="plmctl")
    convert(tmp_path / "a", tmp_path / "b", to="hf")
    again, info = type(theirs).from_pretrained(tmp_path / "b", output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    assert_agrees(again.eval(), loaded.model, batch_of())
    unread = {"position_embeddings.weight": slice(None), "entity_predictions.bias": slice(FIRST)}
    for key, tensor in theirs.state_dict().items():
        own = again.state_dict()[key]
        if not any(key.endswith(name) for name in unread):
            assert torch.equal(own, tensor), key
    convert(tmp_path / "b", tmp_path / "c", to="plmctl")
    first, last = (hf.weights.read(tmp_path / place) for place in "ac")
    assert first.keys() == last.keys()
    assert all(torch.equal(first[name], last[name]) for name in first)


@pytest.mark.parametrize("kind", ["LukeModel", "LukeForTokenClassification"])
def test_other_classes(kind: str, tmp_path: Path) -> None:
    theirs, batch = publish(tmp_path, kind), batch_of()
    loaded = plmctl.load(tmp_path)
    assert not loaded.source.unused
    with torch.no_grad():
        found, wanted = loaded.model.eval()(batch).last, ask(theirs, batch)
        if kind != "LukeModel":
            found, wanted = loaded.model.heads["tag"](found), (wanted.logits,)
    real = batch.text.real
    assert_close(found[real], wanted[0][real], atol=1e-5, rtol=1e-4)


def recipe(*words: str) -> tuple[dict[str, Any], Any]:
    given = ["size=tiny", f"model.entities.count={COUNT}", "format.max_length=16"]
    config = settle_lengths(compose("pretrain", "luke", [*given, *words]))
    return config, build_model(config, vocab_size=60, seed=0).eval()


def test_the_recipe_is_a_published_class(tmp_path: Path) -> None:
    config, model = recipe()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape))
    exported = hf.export(config, tensors_of(model), pad=0)
    assert (exported.architecture, exported.left_out) == ("LukeForMaskedLM", [])
    hf.write(tmp_path, exported, tokens={"pad": 0, "bos": 1, "eos": 2})
    settings = json.loads((tmp_path / "config.json").read_text())
    assert (settings["entity_vocab_size"], settings["entity_emb_size"]) == (COUNT + FIRST, 256)
    theirs = pytest.importorskip("transformers").LukeForMaskedLM.from_pretrained(tmp_path).eval()
    assert_agrees(theirs, model, batch_of())
    assert load_tensors(model, hf.read(tmp_path).tensors).taken


def test_without_entities_it_is_a_roberta(tmp_path: Path) -> None:
    """A control that reads words alone, with the same predictions of them."""
    config, model = recipe("model.read_entities=false", "objective=[mlm]", "format.max_length=16")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape))
    exported = hf.export(config, tensors_of(model), pad=1)
    assert (exported.architecture, exported.left_out) == ("RobertaForMaskedLM", ["model.entities"])
    hf.write(tmp_path, exported, tokens={"pad": 1, "bos": 0, "eos": 2})
    theirs = pytest.importorskip("transformers").RobertaForMaskedLM
    theirs, info = theirs.from_pretrained(tmp_path, output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    text = batch_of().text
    with torch.no_grad():
        found = model.heads["mlm"](model(batch_of()).last)
        mask = text.real.long()
        position = (torch.arange(mask.shape[1])[None] + 2).expand(len(mask), -1)
        wanted = theirs.eval()(input_ids=text.ids, attention_mask=mask, position_ids=position)
    assert_close(found[text.real], wanted.logits[text.real], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("setting", "message"),
    [("+model.entities.asked=2", "entities.asked=2"), ("model.embedding.segments=2", "segments=2")],
)
def test_what_it_cannot_express(setting: str, message: str) -> None:
    config, model = recipe(setting)
    with pytest.raises(ConfigError, match=f"nearest, luke, differs in\n.*{message}"):
        hf.export(config, tensors_of(model), pad=0)


@pytest.mark.parametrize(
    ("key", "value"),
    [("type_vocab_size", 2), ("entity_vocab_size", 3), ("tie_word_embeddings", False)],
)
def test_settings_that_are_not_read(key: str, value: Any, tmp_path: Path) -> None:
    publish(tmp_path)
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), key: value}))
    with pytest.raises(ConfigError, match=f"config.json: {key}"):
        hf.read(tmp_path)
