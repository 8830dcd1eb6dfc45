"""Tiny models of every kind that a server answers with, of one update each."""

from __future__ import annotations

from pathlib import Path

import pytest

from plmctl.serve.models import Models
from tests.command import plmctl
from tests.serve.served import open_all

FEW = ["train.precision=fp32", "train.threads=1", "train.batch_size=8", "train.steps=2"]
TINY = ["size=tiny", "checkpoint=null", "train.epochs=null", "task.max_length=32", "tokenizer=word"]


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """films, pairs, tags, numbers: fine-tuned; lora_one, lora_two: adapters of films."""
    folder = tmp_path_factory.mktemp("served")
    words = ["fine", "poor", "great", "awful", "好 看"]
    films = [f"a {word} film\t{'ab'[n % 2]}" for n, word in enumerate(words * 4)]
    (folder / "films.tsv").write_text("\n".join(["text\tlabel", *films]))
    pairs = [f"a film\ta {word} film\t{'xy'[n % 2]}" for n, word in enumerate(words * 4)]
    (folder / "pairs.tsv").write_text("\n".join(["text\ttext2\tlabel", *pairs]))
    (folder / "tags.conll").write_text("a O\nfine B-P\nfilm O\n\nan O\nawful B-P\nfilm O\n\n" * 8)
    numbers = [f"a {word} film\ta film\t{n % 5}" for n, word in enumerate(words * 4)]
    (folder / "numbers.tsv").write_text("\n".join(["text\ttext2\tlabel", *numbers]))
    tasks = {
        "films": "classification",
        "pairs": "pair_classification",
        "tags": "tagging",
        "numbers": "regression",
    }
    for name, task in tasks.items():
        data = folder / f"{name}.{'conll' if name == 'tags' else 'tsv'}"
        more = ["task.columns.text2=text2"] if name == "numbers" else []
        words = [f"task={task}", f"task.path={data}", f"run.dir={folder}/{name}", *more]
        plmctl("finetune", *FEW, *TINY, *words)
    for name, task in {"lora_one": "classification", "lora_two": "pair_classification"}.items():
        data = folder / ("films.tsv" if name == "lora_one" else "pairs.tsv")
        words = [f"task={task}", f"task.path={data}", f"checkpoint={folder}/films", "peft=lora"]
        own = ["train.epochs=null", "task.max_length=32", f"run.dir={folder}/{name}"]
        plmctl("finetune", *FEW, *words, *own)
    (folder / "text.txt").write_text("a fine film and an awful film\n" * 200)
    for name, recipe in {"fills": "bert", "writes": "gpt"}.items():
        words = [recipe, "size=tiny", f"data.path={folder}/text.txt", "train.steps=1"]
        more = ["tokenizer=word", "train.precision=fp32", "format.max_length=16"]
        plmctl("pretrain", *words, *more, f"run.dir={folder}/{name}")
    return folder


@pytest.fixture(scope="session")
def models(folder: Path) -> Models:
    """All of them."""
    names = ("films", "pairs", "tags", "numbers", "lora_one", "lora_two")
    return open_all([folder / name for name in names])
