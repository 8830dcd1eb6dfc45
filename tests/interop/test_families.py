"""Logits, states and bytes of published models against `transformers`, in both directions."""

from __future__ import annotations

import json
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
from plmctl.artifacts.model_facts import pooling
from plmctl.core.batch import Batch, Seq
from plmctl.core.errors import ConfigError
from plmctl.interop import hf

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.parity

KINDS = (
    "Model",
    "ForMaskedLM",
    "ForSequenceClassification",
    "ForTokenClassification",
    "ForQuestionAnswering",
)
ENCODERS = [f"{family}{kind}" for family in ("Bert", "Roberta", "Albert") for kind in KINDS]
DECODERS = [
    "GPT2Model",
    "GPT2LMHeadModel",
    "GPT2ForTokenClassification",
    "GPT2ForQuestionAnswering",
    "GPT2ForSequenceClassification",
    "OpenAIGPTModel",
    "OpenAIGPTLMHeadModel",
    "OpenAIGPTForSequenceClassification",
]
BASE = {
    "vocab_size": 30522,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "max_position_embeddings": 512,
}
CLASSES = [
    *ENCODERS,
    "BertForPreTraining",
    "AlbertForPreTraining",
    "BertForNextSentencePrediction",
    *DECODERS,
]


def inputs(length: list[int]) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(2)
    ids = torch.randint(3, 40, (len(length), max(length)), generator=generator)
    mask = torch.arange(max(length)) < torch.tensor(length)[:, None]
    return ids * mask + ~mask, mask  # padding id 1: RoBERTa tells it by the id


def batch(ids: Tensor, mask: Tensor, segment: Tensor | None = None) -> Batch:
    tracks = {} if segment is None else {"segment": segment}
    return Batch(
        torch.arange(len(ids)), {"text": Seq(ids, mask.sum(1), tracks, full=bool(mask.all()))}
    )


@torch.no_grad()
def ours(loaded: Loaded, given: Batch) -> dict[str, Tensor]:
    """States, and the logits of every head by the names of `transformers`."""
    hidden = loaded.model(given, record=frozenset({"hidden"}))
    heads, last = loaded.model.heads, hidden.last
    row = (
        last[torch.arange(len(last)), given.text.length - 1]
        if pooling(loaded.config) == "last"
        else last[:, 0]
    )
    first = heads["pooler"](row) if "pooler" in heads else row
    found = {f"hidden_{i}": state for i, state in enumerate(hidden.recorded["hidden"])}
    for name, features in (
        ("mlm", last),
        ("clm", last),
        ("tag", last),
        ("class", first),
        ("score", first),
        ("nsp", first),
        ("sop", first),
    ):
        if name in heads:
            found[name] = heads[name](features)
    if "span" in heads:
        found["start"], found["end"] = heads["span"](last).unbind(-1)
    return found


@torch.no_grad()
def theirs(
    model: Any, ids: Tensor, mask: Tensor, segment: Tensor | None = None
) -> dict[str, Tensor]:
    extra = {} if segment is None else {"token_type_ids": segment}
    out = model(ids, attention_mask=mask.long(), output_hidden_states=True, **extra)
    found = {f"hidden_{i}": state for i, state in enumerate(out.hidden_states)}
    name = type(model).__name__
    if name == "AlbertForPreTraining":
        return found | {"mlm": out.prediction_logits, "sop": out.sop_logits}
    if name == "BertForPreTraining":
        return found | {"mlm": out.prediction_logits, "nsp": out.seq_relationship_logits}
    if name.endswith("QuestionAnswering"):
        return found | {"start": out.start_logits, "end": out.end_logits}
    ends = {
        "MaskedLM": "mlm",
        "LMHeadModel": "clm",
        "TokenClassification": "tag",
        "NextSentencePrediction": "nsp",
        "SequenceClassification": "class",
    }
    key = next((key for end, key in ends.items() if name.endswith(end)), None)
    return found | ({key: out.logits} if key else {})


def assert_agrees(found: dict[str, Tensor], wanted: dict[str, Tensor], mask: Tensor) -> None:
    for name, value in wanted.items():
        tokens = value.shape[:2] == mask.shape
        assert_close(
            found[name][mask] if tokens else found[name],
            value[mask] if tokens else value,
            atol=1e-5,
            rtol=1e-5,
        )


def labels(name: str) -> int:
    """Of the classifiers of `transformers`, sentence order among them."""
    return 2 if "Question" in name or name == "AlbertForPreTraining" else 3


@pytest.mark.sampled(5)
@pytest.mark.parametrize("length", [[9, 9], [9, 4, 1]], ids=["unpadded", "padded"])
@pytest.mark.parametrize("name", CLASSES)
def test_import_agrees(name: str, length: list[int], published) -> None:
    model, folder = published(name, num_labels=labels(name), pad_token_id=1)
    loaded = plmctl.load(folder)
    assert not loaded.source.unused
    ids, mask = inputs(length)
    assert_agrees(ours(loaded, batch(ids, mask)), theirs(model, ids, mask), mask)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", CLASSES)
def test_there_and_back_is_bitwise(name: str, published, tmp_path: Path) -> None:
    assert_round_trip(*published(name, num_labels=labels(name)), tmp_path)


def assert_round_trip(model: Any, folder: Path, tmp_path: Path) -> None:
    """Published -> plmctl -> published -> plmctl: what transformers reads is the same model, and
    our tensors the same bits.
    """
    name = type(model).__name__
    convert(folder, tmp_path / "a", to="plmctl")
    convert(tmp_path / "a", tmp_path / "b", to="hf")
    convert(tmp_path / "b", tmp_path / "c", to="plmctl")
    again, info = getattr(transformers, name).from_pretrained(
        tmp_path / "b", output_loading_info=True
    )
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    for key, tensor in model.state_dict().items():
        same = tensor.clone()
        if "position_embeddings" in key and name.startswith(("Roberta", "Longformer")):
            same[:2] = 0  # the two rows that no token uses
        assert again.state_dict()[key].equal(same), key
    first, last = (load_file(tmp_path / place / "model.safetensors") for place in "ac")
    assert first.keys() == last.keys()
    assert all(first[key].equal(last[key]) for key in first)
    assert (tmp_path / "a/config.yaml").read_text() == (tmp_path / "c/config.yaml").read_text()


def test_segments_agree(published) -> None:
    model, folder = published("BertForPreTraining")
    ids, mask = inputs([9, 9])
    segment = (torch.arange(9) > 4).long().expand(2, 9)
    assert_agrees(
        ours(plmctl.load(folder), batch(ids, mask, segment)),
        theirs(model, ids, mask, segment),
        mask,
    )


def test_a_roberta_without_token_type_stays_without(published, tmp_path: Path) -> None:
    model, folder = published("RobertaForMaskedLM")
    with torch.no_grad():
        model.roberta.embeddings.token_type_embeddings.weight.zero_()
    model.save_pretrained(folder)
    loaded = plmctl.load(folder)
    assert loaded.config["model"]["embedding"]["segments"] == 0
    convert(folder, tmp_path / "a", to="plmctl")
    convert(tmp_path / "a", tmp_path / "b", to="hf")
    back = transformers.RobertaForMaskedLM.from_pretrained(tmp_path / "b").eval()
    ids, mask = inputs([9, 5])
    assert_agrees(theirs(back, ids, mask), theirs(model, ids, mask), mask)


def test_ties_are_kept_and_untied_tables_too(published, tmp_path: Path) -> None:
    _, folder = published("BertForMaskedLM", "tied")
    assert "cls.predictions.decoder.weight" not in load_file(folder / "model.safetensors")
    loaded = plmctl.load(folder)
    assert loaded.model.heads["mlm"].table is loaded.model.backbone.token_embedding.weight
    for name, key in (("BertForMaskedLM", "mlm"), ("GPT2LMHeadModel", "clm")):
        model, folder = published(name, f"untied-{key}", tie_word_embeddings=False)
        loaded = plmctl.load(folder)
        ids, mask = inputs([9, 9])
        assert loaded.model.heads[key].weight is not None
        assert_agrees(ours(loaded, batch(ids, mask)), theirs(model, ids, mask), mask)
        convert(folder, tmp_path / f"hf-{key}", to="hf")
        back = getattr(transformers, name).from_pretrained(tmp_path / f"hf-{key}").eval()
        assert_agrees(theirs(back, ids, mask), theirs(model, ids, mask), mask)


def test_label_names_and_regression(published, tmp_path: Path) -> None:
    names = {0: "negative", 1: "neutral", 2: "positive"}
    _, folder = published("BertForSequenceClassification", "a", num_labels=3, id2label=names)
    convert(folder, tmp_path / "hf", to="hf")
    assert json.loads((tmp_path / "hf/config.json").read_text())["id2label"] == {
        str(k): v for k, v in names.items()
    }
    _, folder = published("RobertaForSequenceClassification", "b", num_labels=1)
    loaded = plmctl.load(folder)
    assert list(loaded.model.heads) == ["score"]
    convert(folder, tmp_path / "score", to="hf")
    model = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "score")
    assert model.config.num_labels == 1
    assert model.config.problem_type == "regression"


def test_a_masked_model_with_pooler_keeps_the_pooler(published) -> None:
    """bert-base-uncased names itself BertForMaskedLM and has everything of BertForPreTraining."""
    _, folder = published("BertForPreTraining")
    settings = json.loads((folder / "config.json").read_text())
    for names in (["BertForMaskedLM"], None):
        (folder / "config.json").write_text(json.dumps(settings | {"architectures": names}))
        assert list(plmctl.load(folder).model.heads) == ["mlm", "pooler", "nsp"]


def test_a_foreign_structure_is_refused_by_path(published) -> None:
    _, folder = published("BertForMaskedLM")
    source = plmctl.load(folder).source
    config = json.loads(json.dumps(source.config))
    config["model"]["stack"]["residual"]["_target_"] = "plmctl.nn.residual.PreNorm"
    with pytest.raises(
        ConfigError, match=r"model\.stack\.residual=PreNorm \(published: PostNorm\)"
    ):
        hf.export(config, source.tensors)
    config = json.loads(json.dumps(source.config))
    config["position"] = {"_target_": "plmctl.nn.positions.Rotary"}
    with pytest.raises(ConfigError, match=r"position=Rotary"):
        hf.export(config, source.tensors)
    config = json.loads(json.dumps(source.config))
    config["model"]["embedding"]["norm"]["eps"] = 1e-3
    with pytest.raises(ConfigError, match=r"model\.embedding\.norm\.eps=0\.001"):
        hf.export(config, source.tensors)


def test_a_head_that_no_class_has_is_refused(published) -> None:
    _, folder = published("BertForSequenceClassification", num_labels=3)
    source = plmctl.load(folder).source
    heads = {"class": source.config["heads"]["class"]}
    with pytest.raises(ConfigError, match="BertForSequenceClassification has pooler, class"):
        hf.export(source.config | {"heads": heads}, source.tensors)
    _, folder = published("GPT2ForSequenceClassification", "gpt2", num_labels=3)
    source = plmctl.load(folder).source
    with pytest.raises(ConfigError, match=r"heads\.class\.extra"):
        hf.export(source.config, {**source.tensors, "heads.class.extra": torch.ones(3)})
    tensors = {**source.tensors, "heads.class.linear.bias": torch.ones(3)}
    with pytest.raises(ConfigError, match=r"heads\.class\.linear\.bias"):
        hf.export(source.config, tensors)


@pytest.mark.slow
def test_bert_base_agrees(published) -> None:
    """bert-base's own size (110M parameters); random weights as they are drawn, for perturbed
    ones are not of this scale.
    """
    model, folder = published("BertForPreTraining", perturb=0.01, **BASE)
    ids, mask = inputs([128, 77])
    assert_agrees(ours(plmctl.load(folder), batch(ids, mask)), theirs(model, ids, mask), mask)
