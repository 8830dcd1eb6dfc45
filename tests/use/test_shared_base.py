"""Several tasks beside one model, asked in one pass: the answers of each alone."""

from __future__ import annotations

import csv
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import plmctl
from plmctl.artifacts.loading import load
from plmctl.core.errors import ConfigError, DataError, UsageError
from plmctl.tasks import inference
from plmctl.training.checkpoint import BASE, fingerprint_tensors, read, write
from plmctl.use.shared_base import SharedBase
from tests.command import plmctl as run_plmctl

SMALL = ["size=tiny", "tokenizer.vocab_size=22", "checkpoint=null", "train.steps=1"]
FEW = [
    *("train.epochs=null", "train.precision=fp32", "train.threads=1", "train.batch_size=8"),
    *("task.max_length=32", "optim.lr=1e-1"),
]
# {name of a run: its task and methods}
RUNS = {
    "lora": ["task=classification", "peft=[dora,lora,ia3,vera]", "peft.lora.rank=2"],
    "prefix": ["task=classification", "peft=[prefix,adapter]", "peft.prefix.length=3"],
    "longer": ["task=tags", "peft=[prefix,adapter_parallel]", "peft.prefix.length=5"],
    "biases": ["task=pairs", "peft=[bitfit,attention_only]"],
}
LINES = ["a fine film", "an awful and long film", "a film", "poor", "great fine film awful film"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data of three tasks, a base, and a run of each method."""
    folder = tmp_path_factory.mktemp("tasks")
    labels = {"fine": "good", "poor": "bad", "great long": "good", "awful": "bad"}
    lines = [f"a {word} film and film\t{label}" for word, label in labels.items()] * 4
    (folder / "text.tsv").write_text("\n".join(["text\tlabel", *lines]))
    pairs = [f"a film\ta {word} film\t{label}" for word, label in (("fine", "x"), ("poor", "y"))]
    (folder / "pairs.tsv").write_text("\n".join(["text\ttext2\tlabel", *(pairs * 8)]))
    (folder / "tags.conll").write_text("a O\nfine B\nfilm O\n\nan O\nawful B\nfilm O\n\n" * 8)
    base = ["task=classification", f"task.path={folder}/text.tsv", f"run.dir={folder}/base"]
    run_plmctl("finetune", *FEW, *SMALL, *base)
    for name, words in RUNS.items():
        tune(folder, name, words)
    return folder


def tune(folder: Path, name: str, words: list[str], base: str = "base") -> Path:
    kind, *rest = words
    task = {
        "task=classification": [kind, f"task.path={folder}/text.tsv"],
        "task=pairs": ["task=pair_classification", f"task.path={folder}/pairs.tsv"],
        "task=tags": ["task=tagging", f"task.path={folder}/tags.conll"],
    }[kind]
    run = folder / name
    given = [f"checkpoint={folder}/{base}", f"run.dir={run}", "train.steps=1"]
    run_plmctl("finetune", *FEW, *task, *rest, *given)
    return run


@pytest.fixture(scope="module")
def shared(folder: Path) -> SharedBase:
    return plmctl.load_adapters({name: folder / name for name in RUNS})


def lines_of(name: str) -> list[str]:
    return [f"{line}\tan awful film" if name == "biases" else line for line in LINES]


def test_rows_of_all_tasks_get_what_each_alone_gives(folder: Path, shared: SharedBase) -> None:
    examples = {
        name: [own.task.parse(line, 1) for line in lines_of(name)]
        for name, own in shared.learned.items()
    }
    splits = {name: shared.encode(name, own) for name, own in examples.items()}
    for own in shared.learned.values():
        own.model.double()  # sums of other shapes are rounded otherwise
    found = shared.ask(splits, batch_size=7)
    for name, split in splits.items():
        alone, own = load(folder / name).model.double(), shared.learned[name]
        with torch.no_grad():
            wanted, _ = inference.run(
                alone, own.task, split.rows, batch_size=7, device=torch.device("cpu")
            )
        real = split.rows.seqs["text"].real
        for key, logits in wanted.items():  # of words: those of padding are nobody's
            chosen = real if logits.ndim > 2 else slice(None)
            np.testing.assert_allclose(found[name][key][chosen], logits[chosen], atol=1e-6, rtol=0)
        own.model.float()
    assert np.abs(found["lora"]["class"] - found["prefix"]["class"]).max() > 1e-2


def test_lines_are_answered_in_their_order(folder: Path, shared: SharedBase) -> None:
    names = ["lora", "biases", "prefix", "lora", "longer"]
    lines = [lines_of(name)[place] for place, name in enumerate(names)]
    found = shared.predict(lines, names)
    for line, name, answer in zip(lines, names, found, strict=True):
        (alone,) = shared.predict([line], [name])
        assert {**alone, "id": ""}.keys() == {**answer, "id": ""}.keys()
        assert alone["guess"] == answer["guess"]
        if "probabilities" in alone:
            assert answer["probabilities"] == pytest.approx(alone["probabilities"], abs=1e-6)
    with pytest.raises(UsageError, match=r"no task 'lra' \(did you mean 'lora'\?\)"):
        shared.predict(["a"], ["lra"])
    with pytest.raises(DataError, match="lines for biases"):
        shared.predict(["one text alone"], ["biases"])
    with pytest.raises(UsageError, match="2 lines, and 1 name of tasks"):
        shared.predict(["a", "b"], ["biases"])
    with pytest.raises(UsageError, match="tasks must be a list of texts, not 'biases'"):
        shared.predict(["a"], "biases")
    with pytest.raises(DataError, match="lines:1: a line is a text, not 5"):
        shared.predict([5], ["biases"])  # type: ignore[list-item]


def test_another_base_is_refused(folder: Path, tmp_path: Path) -> None:
    """Named are both; a copy of the base is no other one."""
    step = change_base(folder, tmp_path, by=1.0)
    with pytest.raises(
        UsageError, match=r"own was trained on .*/other, and .*/lora on .*/base/checkpoints"
    ):
        plmctl.load_adapters({"a": folder / "lora", "b": step})
    step = change_base(folder, tmp_path / "copy", by=0.0)
    assert plmctl.load_adapters({"a": folder / "lora", "b": step}).tasks == ["a", "b"]
    with pytest.raises(UsageError, match="it has all weights itself"):
        plmctl.load_adapters({"a": folder / "base"})
    with pytest.raises(ConfigError, match="device='gpu'"):
        plmctl.load_adapters({"a": folder / "lora"}, device="gpu")  # type: ignore[arg-type]


def change_base(folder: Path, place: Path, *, by: float) -> Path:
    """A checkpoint of "lora" whose base has all its numbers, and `by` more."""
    (own,) = (folder / "lora/checkpoints").glob("step-*")
    shutil.copytree(own, place / "own")
    record = json.loads((own / BASE).read_text())
    saved = read(Path(record["path"]))
    shutil.copytree(record["path"], place / "other")
    (place / "other/manifest.json").unlink()
    model = {name: tensor + by for name, tensor in saved.model.items()}
    write(replace(saved, model=model), place / "other")
    kept = fingerprint_tensors({name: model[name] for name in record["tensors"]})
    set_base(place / "own", record | {"path": str(place / "other"), "fingerprint": kept})
    return place / "own"


def set_base(step: Path, record: dict[str, Any]) -> None:
    (step / BASE).write_text(json.dumps(record))
    manifest = json.loads((step / "manifest.json").read_text())
    manifest["files"].pop(BASE)
    (step / "manifest.json").write_text(json.dumps(manifest))


def test_a_base_that_is_the_checkpoint_itself_is_refused(folder: Path, tmp_path: Path) -> None:
    (own,) = (folder / "lora/checkpoints").glob("step-*")
    step = shutil.copytree(own, tmp_path / "own")
    set_base(step, json.loads((own / BASE).read_text()) | {"path": str(step)})
    with pytest.raises(DataError, match="has its weights from another model itself"):
        load(step)


def test_a_table_says_which_checkpoint_answers_a_row(folder: Path, tmp_path: Path) -> None:
    names = ["lora", "biases", "prefix", "lora"]
    rows = [[name, line, "an awful film"] for name, line in zip(names, LINES, strict=False)]
    table, out = tmp_path / "mixed.tsv", tmp_path / "out.jsonl"
    table.write_text("\n".join("\t".join(row) for row in [["of", "text", "text2"], *rows]))
    runs = ",".join(str(folder / name) for name in ("lora", "biases", "prefix"))
    words = [f"checkpoint=[{runs}]", f"input={table}", "by=of", f"out={out}"]
    run_plmctl("eval", *words)
    found = [json.loads(line) for line in out.read_text().splitlines()]
    assert [(row["of"], row["text"]) for row in found] == [(row[0], row[1]) for row in rows]
    alone = tmp_path / "alone.jsonl"
    run_plmctl("eval", f"checkpoint={folder}/lora", f"input={table}", f"out={alone}")
    wanted = [json.loads(line) for line in alone.read_text().splitlines()]
    assert not any("unknown" in row for row in found)
    for place in (0, 3):
        assert found[place]["probabilities"] == pytest.approx(
            wanted[place]["probabilities"], abs=2e-6
        )
    rows = [["lora", "卡丢了 Моя карта"], ["lora", "a fine film"]]
    table.write_text("\n".join("\t".join(row) for row in [["of", "text"], *rows, *rows[1:]]))
    out = tmp_path / "some.csv"
    run_plmctl("eval", f"checkpoint={folder}/lora", f"input={table}", f"out={out}")
    cells = [row["unknown"] for row in csv.DictReader(out.open())]
    assert cells == ["1.0", "", ""]
    table.write_text("of\ttext\ttext2\nlra\ta film\t")
    more = "overwrite=true"
    said = run_plmctl("eval", *words, more, code=3)
    assert f"{table}:2: of='lra' is none of the checkpoints (did you mean 'lora'?)" in said
    said = run_plmctl("eval", *words, more, "by=task", code=3)
    assert "there is no column 'task'" in said
    said = run_plmctl("eval", f"checkpoint={folder}/lora", *words[1:], more, code=2)
    assert "one checkpoint answers all rows" in said


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "words",
    [
        ["peft=[prompt]", "peft.prompt.length=2", "task.max_length=20"],
        ["peft=[prefix]", "peft.prefix.length=2", "peft.prefix.shift=true", "task.max_length=20"],
    ],
)
def test_what_changes_the_places_of_rows_is_refused(folder: Path, words: list[str]) -> None:
    run = tune(folder, f"placed-{len(words)}", ["task=classification", *words])
    with pytest.raises(UsageError, match="ask this task alone"):
        plmctl.load_adapters({"lora": folder / "lora", "other": run})
