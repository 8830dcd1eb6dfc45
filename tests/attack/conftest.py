"""A model that learned which words are good, which the tests of this folder attack."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.command import plmctl

GOOD, BAD = ["fine", "great", "lovely", "superb"], ["awful", "poor", "dull", "terrible"]
SIZE = [
    *("size=tiny", "size.width=32", "size.inner_width=64"),
    *("train.precision=fp32", "train.threads=1", "train.epochs=null", "train.eval_every=0"),
]
SMALL = [*SIZE, "tokenizer.vocab_size=36", "tokenizer.lowercase=true"]


@pytest.fixture(scope="package")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fine-tuned model; beside it one that predicts masked tokens, `writer`."""
    folder, draws = tmp_path_factory.mktemp("attack"), random.Random(1)
    for name, count in (("train", 200), ("dev", 24)):
        lines = ["text\tlabel"]
        for n in range(count):
            words = draws.choices(BAD if n % 2 else GOOD, k=2)
            lines.append(f"this {words[0]} film is {words[1]}\t{'bad' if n % 2 else 'good'}")
        (folder / f"{name}.tsv").write_text("\n".join(lines) + "\n")
    plmctl(
        *("finetune", "task=classification", f"task.path={folder}", "checkpoint=null", *SMALL),
        *("train.steps=60", "train.batch_size=16", "optim.lr=3e-3", "task.max_length=32"),
        f"run.dir={folder / 'run'}",
    )
    text = "\n\n".join(f"this {a} film is {b}" for a in GOOD + BAD for b in GOOD + BAD)
    (folder / "text.txt").write_text(text)
    plmctl(
        *("pretrain", "roberta", f"data.path={folder / 'text.txt'}", *SIZE, "train.steps=2"),
        f"tokenizer.path={folder / 'run' / 'tokenizer'}",
        *("format.max_length=32", "train.batch_size=4", f"run.dir={folder / 'writer'}"),
    )
    return folder / "run"
