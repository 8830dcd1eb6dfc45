"""BERTSUM's abstractive part: rows, a trained encoder under a new decoder, two schedules."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from plmctl.artifacts.loading import find
from plmctl.config import compose as config
from plmctl.config.build import build
from plmctl.core.errors import ConfigError
from plmctl.tasks.record import Example
from plmctl.training.optim.adamw import AdamW
from plmctl.training.optim.groups import split_groups
from plmctl.training.optim.schedule import ByPart, Constant, InverseSqrt
from tests.command import plmctl

TINY = ["size=tiny", "size.width=32", "size.num_heads=2", "size.inner_width=48"]
TINY += ["size.num_layers=1", "tokenizer=word"]
DOCUMENT = "one small cat sat\ntwo dogs\nhere a cat sat here\ndogs sat"


def make_task(*words: str, **given: object) -> Any:
    composed = config.compose(
        "finetune",
        None,
        ["task=abstractive_summarization", "task.path=x", "checkpoint=null", *words],
    )
    return build(composed.task, {"writes": "target", **given}, path="task")


def test_the_encoder_reads_sentences(toy: Any) -> None:
    task = make_task("task.max_length=16", "task.max_target=8")
    examples = [
        Example("0", {"source": DOCUMENT}, ("two dogs",), "x:1"),
        Example("1", {"source": "two dogs"}, ("cat",), "x:2"),
    ]
    rows = task.encode(examples, toy)
    source, (cls, sep) = rows.seqs["source"], (toy.vocab.cls, toy.vocab.sep)
    ids = [toy.encode(sentence) for sentence in DOCUMENT.split("\n")]
    first = [[cls, *own, sep] for own in ids]
    assert source.ids[0].tolist() == [*first[0], *first[1], cls, *ids[2][:2], sep]
    turns = [0] * len(first[0]) + [1] * len(first[1]) + [0] * 4
    assert source.tracks["segment"].tolist() == [turns, [0] * 16]
    assert source.length.tolist() == [16, len(first[1])]
    starts = [0, len(first[0]), len(first[0]) + len(first[1])]
    assert source.tracks["global"][0].nonzero()[0].tolist() == starts
    assert rows.values["cut"].tolist() == [len(ids[2]) - 2 + len(ids[3]), 0]
    assert rows.seqs["target"].ids[0].tolist() == [cls, *toy.encode("two dogs"), sep]
    # a text that is typed is divided first
    assert task.parse("Two dogs. A cat.", 1).fields == {"source": "Two dogs.\nA cat."}
    prompt, _ = task.encode_source("Two dogs. A cat.", toy)
    assert prompt.count(cls) == 2
    with pytest.raises(ConfigError, match="an encoder-decoder: a document is read"):
        make_task(writes="text").check_model(None)
    with pytest.raises(ConfigError, match=r"task\.source_template"):
        make_task("task.source_template=[A]").check_model(None)
    begun = make_task("task.prefix=two ").encode(examples[1:], toy)
    assert begun.seqs["source"].ids[0].tolist() == [cls, *toy.encode("two two dogs"), sep]


class Two(nn.Module):
    """A trained part and a new one."""

    def __init__(self) -> None:
        super().__init__()
        self.old, self.new = nn.Linear(3, 4), nn.Linear(4, 2)

    def loss(self, x: torch.Tensor) -> torch.Tensor:
        return self.new(self.old(x).tanh()).square().sum()


def test_two_schedules_are_two_optimizers() -> None:
    """Against torch's AdamW for each part, at the rates of the paper's formulas."""
    torch.manual_seed(0)
    ours, theirs = Two().double(), Two().double()
    theirs.load_state_dict(ours.state_dict())
    schedule = ByPart(
        parts={"old.*": InverseSqrt(warmup_steps=8)}, rest=InverseSqrt(warmup_steps=4)
    )
    numbers: Any = {"betas": (0.9, 0.999), "eps": 1e-6, "weight_decay": 0.0}
    named = list(ours.named_parameters())
    ratio = (0.002 / 8**0.5) / (0.1 / 4**0.5)
    optimizer = AdamW(parameters=named, lr=0.1 / 4**0.5, scales={"old.*": ratio}, **numbers)
    names = split_groups(optimizer, named, lambda name: id(schedule.of(name)))
    assert len(names) == len(optimizer.param_groups) == 4  # with decay and without
    two = {
        name: torch.optim.AdamW(getattr(theirs, name).parameters(), lr=1.0, **numbers)
        for name in ("old", "new")
    }
    for t in range(1, 30):
        x = torch.randn(5, 3, dtype=torch.float64)
        for group, name in zip(optimizer.param_groups, names, strict=True):
            group["lr"] = group["initial_lr"] * schedule.of(name)(t, 1000)
        for name, (base, warmup) in {"old": (0.002, 8), "new": (0.1, 4)}.items():
            # decay counts updates that are done: t - 1
            past = t if t <= warmup else t - 1
            rate = base * min(past**-0.5, past * warmup**-1.5)
            two[name].param_groups[0]["lr"] = rate
        for model, own in ((ours, [optimizer]), (theirs, list(two.values()))):
            model.zero_grad()
            model.loss(x).backward()
            for each in own:
                each.step()
    for name, parameter in ours.named_parameters():
        assert torch.allclose(parameter, theirs.get_parameter(name), atol=1e-12), name


def test_groups_are_split_where_rates_are_equal() -> None:
    model = Two()
    named = list(model.named_parameters())
    optimizer = torch.optim.SGD([{"params": named, "initial_lr": 1.0}], lr=1.0)
    schedule = ByPart(parts={"old.*": Constant(), "old.bias": Constant()}, rest=Constant())
    names = split_groups(optimizer, named, lambda name: id(schedule.of(name)))
    assert names == ["old.weight", "old.bias", "new.weight"]
    assert [len(group["params"]) for group in optimizer.param_groups] == [1, 1, 2]
    assert {group["initial_lr"] for group in optimizer.param_groups} == {1.0}
    alike = split_groups(optimizer, named, lambda name: None)
    assert alike == names
    told = ByPart(
        parts={"old.*": InverseSqrt(warmup_steps=90, warmup_limit=0.1)}, rest=Constant()
    ).describe_shortening(100)
    assert told.startswith("old.*: warm-up scaled down from 90 to 10")


@pytest.fixture(scope="module")
def stages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An encoder that is new, one that has learned to extract, and its decoder."""
    folder = tmp_path_factory.mktemp("bertsum")
    for name in ("train", "dev"):
        rows = [
            {"source": ["A cat sat.", f"Dogs ran {n}.", "The end."], "target": f"Dogs ran {n}."}
            for n in range(12)
        ]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    shared = [f"task.path={folder}/train.jsonl", "task.dev_share=0.3", "task.max_length=32"]
    shared += ["train.epochs=1", "train.batch_size=4", "train.precision=fp32"]
    plmctl(
        "finetune",
        "task=extractive_summarization",
        *shared,
        "checkpoint=null",
        *TINY,
        f"run.dir={folder}/ext",
    )
    writing = ["task=abstractive_summarization", "task.max_target=12", *shared]
    writing += ["search@task.search=greedy", "model=encoder_decoder"]
    writing += ["model.decoder.stack.layout=acf*2", "schedule=bertsum"]
    plmctl(
        "finetune",
        *writing,
        f"checkpoint={folder}/ext",
        "checkpoint_into=encoder",
        "optim.scales={backbone.encoder.*:0.0}",
        f"run.dir={folder}/abs",
    )
    return folder


def newest(run: Path) -> dict[str, torch.Tensor]:
    return load_file(find(run) / "model.safetensors")


@pytest.mark.slow  # test_graft.py has it
def test_the_trained_encoder_is_under_a_new_decoder(stages: Path) -> None:
    theirs, ours = newest(stages / "ext"), newest(stages / "abs")
    inside = [name for name in theirs if name.startswith("backbone.")]
    assert len(inside) > 10
    for name in inside:  # at rate 0 it stays as it was
        other = name.replace("backbone.", "backbone.encoder.", 1)
        assert ours[other].equal(theirs[name]), name
    layers = {name.split(".")[5] for name in ours if name.startswith("backbone.decoder.stack")}
    assert layers == {"0", "1"}
    result = json.loads((stages / "abs" / "result.json").read_text())
    assert set(result["metrics"]["dev"]) >= {"rouge1", "rougeLsum", "perplexity"}


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["checkpoint_into=encodr"], "did you mean 'encoder'"),
        (["checkpoint_into=encoder", "size=mini"], "checkpoint decides this"),
        (["checkpoint_into=encoder", "checkpoint=null"], "which is not set"),
        (["checkpoint_into=encoder", "task.max_length=48"], "at most 32"),
    ],
)
def test_what_is_refused(words: list[str], answer: str, stages: Path) -> None:
    given = ["task=abstractive_summarization", f"task.path={stages}/train.jsonl"]
    given += [f"checkpoint={stages}/ext", "model=encoder_decoder", "task.max_length=32"]
    given += ["task.max_target=12", "--dry-run"]
    assert answer in " ".join(plmctl("finetune", *given, *words, code=2).split())
