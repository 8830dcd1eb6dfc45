"""A pooler is read from whatever file carries it, and fine-tuning says what it takes and what it
does not.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import plmctl
from plmctl.artifacts.assemble import build_model
from plmctl.artifacts.convert import convert
from plmctl.artifacts.taking import take
from plmctl.config import compose
from plmctl.core.errors import ConfigError
from plmctl.runs import finetuning
from plmctl.runs.adapt import complete

transformers = pytest.importorskip("transformers")
# of pretraining, whose absence makes a masked model
HEADS = {"bert": "cls.seq_relationship.", "albert": "sop_classifier."}


def edited(
    folder: Path,
    name: str | None,
    *,
    without: tuple[str, ...] = (),
    added: dict[str, Tensor] | None = None,
) -> Path:
    """`folder` as published under the class `name` (None: config.json names none), without or
    with some of its tensors.
    """
    settings = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(settings | {"architectures": name and [name]}))
    tensors = load_file(folder / "model.safetensors")
    kept = (
        {key: tensor for key, tensor in tensors.items() if not key.startswith(without)}
        if without
        else tensors
    )
    save_file({**kept, **(added or {})}, folder / "model.safetensors")
    return folder


@pytest.mark.parametrize("family", ["bert", "albert"])
@pytest.mark.parametrize("named", ["{}ForMaskedLM", None])
def test_a_masked_model_keeps_its_pooler_without_a_head_of_pairs(
    family: str, named: str | None, published, tmp_path: Path
) -> None:
    model, folder = published(f"{family.capitalize()}ForPreTraining")
    edited(folder, named and named.format(family.capitalize()), without=(HEADS[family],))
    found = plmctl.load(folder)
    pooler = getattr(model, family).pooler
    assert list(found.model.heads) == ["mlm", "pooler"]
    assert found.model.heads["pooler"].dense.weight.equal(
        (pooler if family == "albert" else pooler.dense).weight
    )
    assert not found.source.unused
    convert(folder, tmp_path / "ours", to="plmctl")
    convert(tmp_path / "ours", tmp_path / "back", to="hf")
    assert list(plmctl.load(tmp_path / "back").model.heads) == ["mlm", "pooler"]
    # the backbone that transformers takes from it
    again = transformers.AutoModel.from_pretrained(tmp_path / "back")
    assert all(
        again.state_dict()[key].equal(tensor)
        for key, tensor in getattr(model, family).state_dict().items()
    )


@pytest.mark.parametrize("family", ["bert", "albert", "roberta"])
@pytest.mark.parametrize("named", ["{}Model", None])
def test_a_backbone_with_its_prefix_keeps_its_pooler(
    family: str, named: str | None, published
) -> None:
    name = {"bert": "Bert", "albert": "Albert", "roberta": "Roberta"}[family]
    model, folder = published(f"{name}Model")
    tensors = {
        f"{family}.{key}": tensor for key, tensor in load_file(folder / "model.safetensors").items()
    }
    save_file(tensors, folder / "model.safetensors")
    found = plmctl.load(edited(folder, named and named.format(name)))
    assert list(found.model.heads) == ["pooler"]
    assert not found.source.unused
    assert model.pooler is not None


def test_a_tagger_that_carries_the_pooler_keeps_it(published) -> None:
    model, folder = published("BertForTokenClassification", num_labels=3)
    own = transformers.BertModel(model.config).pooler.dense
    edited(
        folder,
        "BertForTokenClassification",
        added={f"bert.pooler.dense.{key}": t for key, t in own.state_dict().items()},
    )
    found = plmctl.load(folder)
    assert list(found.model.heads) == ["tag", "pooler"]
    assert found.model.heads["pooler"].dense.weight.equal(own.weight)


def test_fine_tuning_takes_the_pooler_and_names_what_it_leaves(
    published, with_tokenizer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = with_tokenizer(published("BertForPreTraining")[1])
    extra = load_file(folder / "model.safetensors")["bert.pooler.dense.bias"].clone()
    edited(
        folder,
        "BertForMaskedLM",
        without=("cls.seq_relationship.",),
        added={"bert.extra.bias": extra},
    )
    for name in ("train", "dev"):
        (tmp_path / f"{name}.tsv").write_text("text\tlabel\nthe cat sat\ta\nthe dog ran\tb\n")
    words = [
        f"checkpoint={folder}",
        "task=classification",
        f"task.path={tmp_path}",
        f"run.dir={tmp_path / 'run'}",
    ]
    words += [
        "task.max_length=12",
        "train.steps=1",
        "train.precision=fp32",
        "train.threads=1",
        "train.batch_size=2",
    ]
    cfg = compose.compose("finetune", None, words)
    assert finetuning.finetune(cfg) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert (
        "tensors taken; new and random: heads.class; not used: heads.mlm, bert.extra.bias" in said
    )


@pytest.mark.parametrize(
    ("name", "prefix"),
    [("RobertaForSequenceClassification", "roberta.pooler.dense"), ("BigBird", "bert.pooler")],
)
def test_a_head_of_rows_reads_no_spare_pooler(name: str, prefix: str, published) -> None:
    """As in the file of the released roberta-large-mnli; BigBird's class has one, and no use."""
    model, folder = published(name if "For" in name else f"{name}ForSequenceClassification")
    spare = {"weight": torch.eye(16), "bias": torch.ones(16)}
    edited(folder, type(model).__name__, added={f"{prefix}.{k}": t for k, t in spare.items()})
    found = plmctl.load(folder)
    assert list(found.model.heads) == ["class"]


def test_a_head_whose_input_is_new_is_named(published) -> None:
    """ELECTRA's own head has a layer of its own, BERT's the pooler."""
    said: list[str] = []
    for name in ("ElectraForSequenceClassification", "BertForSequenceClassification"):
        source = plmctl.load(published(name)[1]).source
        heads = {"class": {**source.config["heads"]["class"], "dense": False}}
        model = build_model({**source.config, "heads": heads}, vocab_size=source.vocab_size)
        take(model, source.tensors, source="a", say=said.append)
    line = "; their input is no longer what they were trained on: heads.class; not used: heads."
    assert [each.partition(" taken")[2] for each in said] == [f"{line}class.dense", f"{line}pooler"]


def test_fine_tuning_takes_the_layers_of_a_head(published, with_tokenizer, tmp_path: Path) -> None:
    folder = with_tokenizer(published("ElectraForSequenceClassification")[1])
    words = [f"checkpoint={folder}", "task=classification", f"task.path={tmp_path}"]
    layer = complete(compose.compose("finetune", None, words)).heads["class"]
    assert (layer["dense"], layer["activation"]) == (True, "gelu")
    words.append("heads.class.dense=false")
    assert complete(compose.compose("finetune", None, words)).heads["class"]["dense"] is False


def test_fine_tuning_has_the_dropout_of_the_user(published, with_tokenizer) -> None:
    """One setting for all parts of the model, or each its own; the head has one, too."""
    folder = with_tokenizer(published("BertForSequenceClassification")[1])
    words = [f"checkpoint={folder}", "task=classification", "task.path=."]

    def read(*more: str) -> list[float]:
        spec = complete(compose.compose("finetune", None, [*words, *more]))
        names = ["embedding", "stack.cells.a", "stack.residual"]
        return [spec.select(f"model.{name}.dropout") for name in names]

    attention, whole = "model.stack.cells.a.dropout=0.3", "model.embedding.dropout=0"
    assert read() == [0.1, 0.1, 0.1]
    assert read(whole) == [0, 0, 0]
    assert read(attention) == [0.1, 0.3, 0.1]
    assert read(attention, whole) == [0, 0.3, 0]
    with pytest.raises(ConfigError, match="checkpoint decides this"):
        read("model.embedding.segments=3")
    with pytest.raises(ConfigError, match="which has no such"):
        read("model.stack.cells.f.dropout=0.1")
