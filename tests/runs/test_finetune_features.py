"""`plmctl finetune` with features of several layers, encoders before the head, and frozen parts;
what is saved loads again.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import plmctl
from plmctl.artifacts.assemble import build_model
from plmctl.artifacts.convert import convert
from plmctl.config import compose as config
from plmctl.config.command import perform
from plmctl.config.saved import read_spec
from plmctl.config.spec import Provenance
from plmctl.core.errors import ConfigError
from plmctl.runs import finetuning, row_heads
from plmctl.runs.resume import resume_spec
from plmctl.training.checkpoint import read
from tests.marks import mark_slow

SMALL = [
    "checkpoint=null",
    "size=tiny",
    "size.width=32",
    "size.inner_width=64",
    "tokenizer=char",
    "task.max_length=32",
    "train.precision=fp32",
    "train.threads=1",
    "train.epochs=null",
    "train.steps=2",
    "train.batch_size=8",
    "optim.lr=1e-2",
]
NARROW = ["heads.encoder.hidden_width=8"]
TABLE_7 = {  # Devlin et al., 2019, with the two layers of tiny for the twelve of base
    "embeddings": ["features=layer", "heads.features.layer=0"],
    "second-to-last": ["features=layer"],
    "last": [],
    "weighted sum of all": ["features=mix"],
    "weighted sum of the last two": ["features=mix", "heads.features.layers=[-2,-1]"],
    "sum of the last two": ["features=sum", "heads.features.layers=[-2,-1]"],
    "concatenation of the last two": ["features=concat", "heads.features.layers=[-2,-1]"],
}


def run(verb: str, *words: str, **flags):
    return perform(config.compose(verb, None, list(words)).asked(**flags))


def tuned(folder: Path, data: Path, *words: str, task: str = "tagging") -> Path:
    assert (
        run("finetune", f"task={task}", f"task.path={data}", f"run.dir={folder}", *SMALL, *words)
        == 0
    )
    return folder


@pytest.fixture(scope="module")
def words(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("words")
    for split in ("train", "dev"):
        lines = ["-DOCSTART- O", ""]
        for n in range(24):
            lines += [
                "the O",
                f"{'Anna' if n % 2 else 'dog'} {'B-PER' if n % 2 else 'O'}",
                f"{'sang' * (n % 3 + 1)} O",
                "",
            ]
        (folder / f"{split}.txt").write_text("\n".join(lines))
    return folder


@pytest.fixture(scope="module")
def table(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("table")
    for split in ("train", "dev"):
        lines = [
            f"a {'fine' if n % 2 else 'dull'} film{' indeed' * (n % 3)}\t{n % 2}" for n in range(24)
        ]
        (folder / f"{split}.tsv").write_text("\n".join(["text\tlabel", *lines]))
    return folder


# rows beside them name other layers in the same words
SLOW = {"last", "second-to-last", "weighted sum of the last two", "sum of the last two"}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("variant", mark_slow(TABLE_7, SLOW))
def test_table_7_is_configuration(variant, words, tmp_path, capsys):
    """Frozen backbone, features (and a sum), two-layer BiLSTM, linear layer; trained, loaded,
    evaluated: the same digits.
    """
    frozen = ["train.frozen=[backbone]", "head_encoder=bilstm", *NARROW, *TABLE_7[variant]]
    run_dir = tuned(tmp_path / "run", words, *frozen)
    result = json.loads((run_dir / "result.json").read_text())
    capsys.readouterr()
    assert run("eval", f"checkpoint={run_dir}", json=True)  # the metrics
    assert json.loads(capsys.readouterr().out)["metrics"] == result["metrics"]
    saved = read(Path(result["checkpoint"]))
    spec = read_spec(Path(result["checkpoint"]))
    assert {name.partition("/")[2].partition(".")[0] for name in saved.optimizer} == {"heads"}
    fresh = build_model(spec, vocab_size=plmctl.load(run_dir).vocab.size, seed=0).state_dict()
    kept = [name for name in saved.model if name.startswith("backbone.")]
    assert len(kept) > 20
    assert all(
        torch.equal(saved.model[name], fresh[name][: len(saved.model[name])]) for name in kept
    )
    if "features=mix" in frozen:
        assert saved.model["heads.features.scores"].any()  # zeros at first


# each encoder once, and each task
ENCODED = [
    (task, encoder)
    for task in ("classification", "regression")
    for encoder in ("bilstm", "gru", "cnn")
]
OTHERS = {("classification", "gru"), ("regression", "bilstm"), ("regression", "cnn")}


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("task", "encoder"), mark_slow(ENCODED, OTHERS))
def test_encoders_serve_classifiers_of_rows(encoder, task, table, tmp_path):
    """No value depends on the padding that other rows bring."""
    run_dir = tuned(tmp_path / "run", table, f"head_encoder={encoder}", *NARROW, task=task)
    saved = [
        json.loads(line)
        for line in (run_dir / "predictions" / "dev.jsonl").read_text().splitlines()
    ]
    assert run("eval", f"checkpoint={run_dir}", f"out={tmp_path / 'alone'}", "batch_size=1")
    alone = [
        json.loads(line) for line in (tmp_path / "alone" / "dev.jsonl").read_text().splitlines()
    ]
    for one, other in zip(saved, alone, strict=True):
        key = "guess" if task == "regression" else "probabilities"
        assert one[key] == pytest.approx(other[key], abs=1e-5)


def test_squad_has_them_too(tmp_path):
    text = "the dog sang in the house of Anna and nobody heard it"
    qas = [
        {"id": str(n), "question": "who sang", "answers": [{"text": "dog", "answer_start": 4}]}
        for n in range(8)
    ]
    content = json.dumps(
        {"version": "1.1", "data": [{"title": "x", "paragraphs": [{"context": text, "qas": qas}]}]}
    )
    for split in ("train", "dev"):
        (tmp_path / f"{split}-v1.1.json").write_text(content)
    run_dir = tuned(
        tmp_path / "run",
        tmp_path,
        "features=concat",
        "heads.features.layers=[1,2]",
        "head_encoder=cnn",
        *NARROW,
        "task.max_query=4",
        "task.stride=4",
        task="squad",
    )
    assert plmctl.load(run_dir).model.heads["span"].linear.in_features == 8


def test_a_head_over_the_vocabulary_is_as_wide_as_the_states() -> None:
    """A language model beside a task reads what it was trained on, not features of two layers."""
    words = ["task=classification", "task.path=x", "features=concat", *SMALL]
    spec = config.compose(
        "finetune", None, [*words, "heads.features.layers=[-2,-1]", "position.max_length=32"]
    )
    lm = {"_target_": "plmctl.heads.lm.LMHead", "tied": True, "transform": False, "bias": False}
    spec = spec.replace({"heads.lm": lm, "heads.class.num_classes": 2})
    model = build_model(spec, vocab_size=40)
    assert model.heads["class"].linear.in_features == 64
    states = torch.zeros(3, 32)
    assert model.heads["lm"](states).shape == (3, 40)


@pytest.mark.parametrize("words_of", [["train.frozen=[backbone]"], ["train.trainable=[heads.*]"]])
def test_the_frozen_backbone_is_in_evaluation_mode(words_of, table, tmp_path, monkeypatch):
    seen = []
    forward = finetuning.Model.forward

    def watched(model, batch, *rest, **named):
        modes = {module.training for module in model.backbone.modules()}
        seen.append((model.training, modes))
        return forward(model, batch, *rest, **named)

    monkeypatch.setattr(finetuning.Model, "forward", watched)
    tuned(tmp_path / "run", table, *words_of, task="classification")
    assert (True, {False}) in seen  # an update
    assert all(modes == {False} for _, modes in seen)


@pytest.mark.parametrize(
    ("globs", "still"),
    [
        ("[backbone.embedding*]", ("backbone.embedding.",)),
        (
            "[backbone.stack.blocks.*.0.*]",
            ("backbone.stack.blocks.a.0.", "backbone.stack.blocks.f.0."),
        ),
    ],
)
def test_parts_are_frozen_by_globs(globs, still, table, tmp_path):
    run_dir = tuned(
        tmp_path / "run", table, f"train.frozen={globs}", "train.steps=1", task="classification"
    )
    folder = next((run_dir / "checkpoints").iterdir())
    optimizer = "\n".join(load_file(folder / "optimizer.safetensors"))
    for name in plmctl.load(run_dir).model.state_dict():
        assert (name in optimizer) == (not name.startswith(still)), name


def test_what_matches_nothing_is_refused_before_a_run_directory_exists(table, tmp_path):
    asked = {
        "train.frozen=[backbone.stak]": (
            r"train.frozen='backbone.stak': matches no parameter.*did you mean 'backbone.stack'"
        ),
        "train.trainable=[heads.clas]": (
            r"train.trainable='heads.clas': matches no parameter.*did you mean 'heads.class'"
        ),
        "train.frozen=[backbone,heads]": "something must be left to train",
    }
    for word, message in asked.items():
        with pytest.raises(ConfigError, match=message):
            tuned(tmp_path / "run", table, word, task="classification")
    with pytest.raises(
        ConfigError,
        match=r"heads.features.layers=\[-4, -3, -2, -1\]: 0 \(the embedding output\) to 2",
    ):
        tuned(tmp_path / "run", table, "features=concat", task="classification")
    assert not (tmp_path / "run").exists()


@pytest.mark.slow  # test_finetune_command.py resumes
def test_a_run_with_a_mix_goes_on_bit_for_bit(words, tmp_path):
    made = [
        "features=mix",
        "head_encoder=gru",
        *NARROW,
        "train.frozen=[backbone.embedding*]",
        "schedule=constant",
    ]
    tuned(tmp_path / "whole", words, *made, "train.steps=4")
    tuned(tmp_path / "parts", words, *made, "train.steps=2")
    cfg = resume_spec(
        Provenance(
            "finetune", overrides=("train.steps=4", f"run.dir={tmp_path / 'parts'}"), resume=True
        )
    )
    assert finetuning.finetune(cfg) == 0
    one, two = (
        (tmp_path / name / "checkpoints" / "step-4" / "model.safetensors").read_bytes()
        for name in ("whole", "parts")
    )
    assert one == two


@pytest.mark.parametrize("part", ["features=mix", "head_encoder=cnn"])
def test_no_published_class_has_them(part, words, tmp_path):
    run_dir = tuned(tmp_path / "run", words, part, *(NARROW if "cnn" in part else []))
    name = part.partition("=")[0].removeprefix("head_")
    with pytest.raises(
        ConfigError, match=rf"heads.{name}=.*anything between the last layer and its heads"
    ):
        convert(run_dir, tmp_path / "hf", to="hf")
    assert not (tmp_path / "hf").exists()
    convert(run_dir, tmp_path / "ours", to="plmctl")
    assert name in plmctl.load(tmp_path / "ours").model.heads


def test_an_encoder_is_kept_from_task_to_task(words, tmp_path, capsys):
    made = ["head_encoder=cnn", *NARROW]
    first = tuned(tmp_path / "first", words, *made)
    again = [
        "task=tagging",
        f"task.path={words}",
        f"run.dir={tmp_path / 'second'}",
        f"checkpoint={first}",
        *made,
    ]
    capsys.readouterr()
    assert run("finetune", *again, "task.max_length=32", "train.epochs=1") == 0
    assert "nothing is new" in capsys.readouterr().err


STYLES = {
    "BERT": ({"pooler": True, "dense": False, "bias": True}, {"pooler.dense", "class.linear"}),
    "RoBERTa": ({"pooler": False, "dense": True, "bias": True}, {"class.dense", "class.linear"}),
    "ELECTRA": ({"pooler": False}, {"class.linear"}),
}


@pytest.mark.parametrize("style", STYLES)
def test_the_model_says_how_rows_are_classified(style, table, tmp_path):
    settings, wanted = STYLES[style]
    words = [f"model.classifier.{key}={str(value).lower()}" for key, value in settings.items()]
    model = plmctl.load(
        tuned(tmp_path / "run", table, *words, "train.steps=1", task="classification")
    ).model
    assert {name.rpartition(".")[0] for name, _ in model.heads.named_parameters()} == wanted
    assert model.backbone.classifier["pooler"] == settings["pooler"]


def test_what_the_command_line_says_of_the_head_stays(table, tmp_path):
    words = [
        "heads.class.dense=true",
        "+heads.class.activation=gelu",
        "~heads.pooler",
        "train.steps=1",
    ]
    model = plmctl.load(tuned(tmp_path / "run", table, *words, task="classification")).model
    assert set(model.heads) == {"class"}
    assert model.heads["class"].activation is torch.nn.functional.gelu


@pytest.mark.parametrize(
    ("recipe", "heads", "wanted"),
    [
        ("bert", ["mlm", "pooler", "nsp"], {"pooler": True, "dense": False, "bias": True}),
        ("roberta", ["mlm"], {"pooler": False, "dense": True, "bias": True}),
        ("gpt2", ["clm"], {"pooler": False, "dense": False, "bias": False}),
    ],
)
def test_checkpoints_from_before_it_was_said_mean_the_same(recipe, heads, wanted):
    cfg = config.compose("pretrain", recipe)
    assert dict(cfg.model.classifier) == wanted
    assert row_heads.find_classifier(cfg, dict.fromkeys(heads)) == wanted


def test_embed_gives_the_logits_of_the_predictions(table, tmp_path):
    import numpy as np

    made = ["features=mix", "head_encoder=bilstm", *NARROW]
    run_dir = tuned(tmp_path / "run", table, *made, task="classification")
    saved = [
        json.loads(line)
        for line in (run_dir / "predictions" / "dev.jsonl").read_text().splitlines()
    ][:4]
    lines = [line.partition("\t")[0] for line in (table / "dev.tsv").read_text().splitlines()[1:5]]
    (tmp_path / "in.txt").write_text("\n".join(lines))
    asked = [
        f"checkpoint={run_dir}",
        f"input={tmp_path / 'in.txt'}",
        f"out={tmp_path / 'x.npz'}",
        "logits=true",
        "layers=-1",
    ]
    assert perform(config.compose("embed", None, asked)) == 0
    arrays = np.load(tmp_path / "x.npz")
    for place, prediction in enumerate(saved):
        found = torch.from_numpy(arrays[f"logits_{place}"]).softmax(-1).tolist()
        assert found == pytest.approx(list(prediction["probabilities"].values()), abs=1e-5)


def test_pretraining_freezes_too(tmp_path):
    from plmctl.runs.contract.contract import check_contract

    cfg = config.compose("pretrain", "bert", ["train.frozen=[backbone.embedding.token]"])
    check_contract(cfg)
    cfg = cfg.replace({"train.frozen": ["backbone.embeding"]})
    with pytest.raises(
        ConfigError,
        match=r"train.frozen='backbone.embeding': matches no parameter.*backbone.embedding",
    ):
        check_contract(cfg)
    stages = [{"share": 0.5, "trainable": ["heads.mlmm"]}, {"share": 0.5}]
    cfg = cfg.replace({"train.frozen": [], "train.stages": stages})
    with pytest.raises(ConfigError, match=r"train.stages.0.trainable='heads.mlmm'"):
        check_contract(cfg)
