"""A study that runs in seconds: random sentences, a table whose label is a word, two arms, two
seeds.
"""

from __future__ import annotations

import copy
import random
from pathlib import Path
from typing import Any

import yaml

WORDS = [
    "the",
    "a",
    "cat",
    "dog",
    "sun",
    "moon",
    "runs",
    "walks",
    "sees",
    "likes",
    "big",
    "small",
    "red",
    "blue",
    "tree",
    "house",
    "river",
    "stone",
    "bird",
    "fish",
]
SMALL = [
    "size=tiny",
    "size.width=32",
    "size.inner_width=64",
    "format.max_length=32",
    "train.batch_size=8",
    "tokenizer.vocab_size=300",
    "schedule.warmup_steps=2",
    "train.log_every=6",
    "train.eval_every=12",
    "train.save_every=12",
]
STUDY: dict[str, Any] = {
    "title": "A toy",
    "pretrain": {"recipe": "roberta", "overrides": SMALL},
    "arms": {"slow": ["optim.lr=1e-3"], "fast": ["optim.lr=1e-2"]},
    "baseline": "slow",
    "seeds": [0, 1],
    "budget": {"steps": 24},
    "data": {"path": "corpus.txt", "valid_share": 0.1},
    "finetune": {
        "tasks": {"toy": {"task": "classification", "path": "task"}},
        "overrides": [
            "task.max_length=32",
            "train.epochs=4",
            "train.batch_size=8",
            "optim.lr=3e-3",
        ],
    },
    "metrics": {
        "perplexity": {
            "of": "pretrain",
            "key": "loss/mlm",
            "exp": True,
            "expect": {"fast": "lower"},
            "published": {
                "unit": "perplexity",
                "source": "nobody",
                "values": {"slow": 5.0, "fast": 4.0},
            },
        },
        "toy": {"of": "toy", "key": "accuracy"},
    },
}


def write_files(folder: Path) -> None:
    """corpus.txt and task/ in `folder`."""
    draw = random.Random(0)
    documents = [
        "\n".join(" ".join(draw.choices(WORDS, k=9)) + "." for _ in range(6)) for _ in range(900)
    ]
    (folder / "corpus.txt").write_text("\n\n".join(documents), encoding="utf-8")
    (folder / "task").mkdir()
    for split, count in (("train", 64), ("dev", 32)):
        rows = [
            f"{' '.join(draw.choices(WORDS, k=5))} {'good' if n % 2 else 'bad'}\t{n % 2}\n"
            for n in range(count)
        ]
        (folder / "task" / f"{split}.tsv").write_text(
            "text\tlabel\n" + "".join(rows), encoding="utf-8"
        )


def write_study(folder: Path, name: str = "toy", **changes: Any) -> Path:
    """STUDY with `changes` to its top level, as ./<name>.yaml."""
    file = folder / f"{name}.yaml"
    content = yaml.safe_dump({**copy.deepcopy(STUDY), **changes}, sort_keys=False)
    file.write_text(f"# @package _global_\n# a toy\n{content}", encoding="utf-8")
    return file
