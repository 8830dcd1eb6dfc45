"""K-Adapter's two kinds of knowledge (Wang et al., 2021, sec. 3.3 and 3.4): an adapter of facts,
one that predicts the head of each word, and a task that reads both beside a model that stays.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from tests.command import plmctl
from tests.commands.test_pretrain_command import state

SMALL = ["train.steps=2", "train.epochs=null", "train.batch_size=4", "train.device=cpu"]
SMALL += ["task.max_length=32", "optim.lr=0.01", "features=k_adapter", "train.frozen=[backbone]"]
SENTENCES = [["the", "value", "of", "a", "list"], ["it", "returns", "the", "function"]]
HEADS = [[2, 0, 5, 5, 2], [2, 0, 4, 2]]


def write_bank(folder: Path) -> Path:
    folder.mkdir()
    blocks = [
        "".join(
            f"{n}\t{word}\t_\tX\t_\t_\t{head}\t{'dep' if head else 'root'}\t_\t_\n"
            for n, (word, head) in enumerate(zip(words, heads, strict=True), 1)
        )
        for words, heads in zip(SENTENCES * 4, HEADS * 4, strict=True)
    ]
    for split in ("train", "dev"):
        (folder / f"{split}.conllu").write_text("\n".join(blocks), encoding="utf-8")
    return folder


def write_facts(folder: Path) -> Path:
    folder.mkdir()
    text = "a list has a value"
    rows = [
        {"text": text, "head": [2, 6], "tail": [13, 18], "label": label} for label in ("of", "by")
    ]
    for split in ("train", "dev"):
        lines = [
            {"text": text, "h": {"pos": row["head"]}, "t": {"pos": row["tail"]}}
            | {"relation": row["label"]}
            for row in rows * 4
        ]
        (folder / f"{split}.json").write_text(json.dumps(lines), encoding="utf-8")
    return folder


def adapter(run: Path, name: str) -> dict[str, Tensor]:
    prefix = f"model/heads.features.adapters.{name}."
    found = state(max(run.glob("checkpoints/step-*")))
    return {key.removeprefix(prefix): x for key, x in found.items() if key.startswith(prefix)}


def backbone(run: Path) -> dict[str, Tensor]:
    found = state(max(run.glob("checkpoints/step-*")))
    return {key: x for key, x in found.items() if key.startswith("model/backbone.")}


def test_adapters_of_facts_and_of_syntax_in_one_model(
    tokens_of: Callable[..., Path], tmp_path: Path
) -> None:
    base, bank = tmp_path / "base", write_bank(tmp_path / "bank")
    size = ["size=tiny", "size.width=32", "size.inner_width=48", "size.num_heads=2"]
    size += ["train.steps=1", "train.batch_size=2", "format.max_length=32", "eval.rows=2"]
    plmctl("pretrain", "bert", *size, f"data.path={tokens_of('wordpiece')}", f"run.dir={base}")
    runs = {name: tmp_path / name for name in ("facts", "syntax", "both")}
    facts = ["task=relation", f"task.path={write_facts(tmp_path / 'relations')}", "task.marks=none"]
    syntax = ["task=dependency", f"task.path={bank}", "heads.tree.arc_width=8"]
    for name, task in (("facts", facts), ("syntax", [*syntax, "heads.tree.relation_width=8"])):
        words = [f"heads.features.adapters={{{name}:null}}", f"checkpoint={base}"]
        plmctl("finetune", *task, *SMALL, *words, f"run.dir={runs[name]}")
    before = backbone(base)
    for name in ("facts", "syntax"):  # the model stays
        after = backbone(runs[name])
        assert all(torch.equal(after[key], x) for key, x in before.items() if key in after)
    learned = {name: adapter(runs[name], name) for name in ("facts", "syntax")}
    assert all(learned.values())
    both = f"heads.features.adapters={{facts:{runs['facts']},syntax:{runs['syntax']}}}"
    still = ["optim.lr=0", both, f"checkpoint={base}", f"run.dir={runs['both']}"]
    plmctl("finetune", *facts, *SMALL, *still)
    for name, tensors in learned.items():
        found = adapter(runs["both"], name)
        assert found.keys() == tensors.keys()
        assert all(torch.equal(found[key], x) for key, x in tensors.items())
    weight = state(max(runs["both"].glob("checkpoints/step-*")))["model/heads.class.linear.weight"]
    assert weight.shape[1] == 2 * 2 * 32  # two entities, each as two adapters make it
