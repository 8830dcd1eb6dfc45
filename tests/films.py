"""A small classifier of films for tests of what answers."""

from __future__ import annotations

from pathlib import Path

from tests.command import plmctl


def train_films(folder: Path, *words: str) -> Path:
    """The run of a classifier of two labels, of three updates from random weights."""
    for split in ("train", "dev"):
        texts = [("dull", "fine")[n % 2] + " film" + " indeed" * (n % 5) for n in range(12)]
        rows = [f"a {text}\t{n % 2}" for n, text in enumerate(texts)]
        (folder / f"{split}.tsv").write_text("\n".join(["text\tlabel", *rows]))
    place = folder / "run"
    told = ["task=classification", f"task.path={folder}", "checkpoint=null", "model=encoder"]
    told += ["size=tiny", "size.width=32", "size.inner_width=48", "tokenizer=word"]
    told += ["task.max_length=16", "train.epochs=null", "train.steps=3", "train.precision=fp32"]
    plmctl("finetune", *told, *words, f"run.dir={place}")
    return place
