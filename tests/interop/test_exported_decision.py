"""What `plmctl eval calibrate=` keeps in a checkpoint stays in its exports: the temperature in the
weights, the threshold where plmctl finds it again.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

from plmctl.artifacts.convert import convert
from plmctl.artifacts.kept_decision import read_decision, write_decision
from plmctl.artifacts.loading import find
from plmctl.config import compose as config
from plmctl.config.command import perform
from plmctl.core.errors import DataError
from plmctl.report.card import make_card
from plmctl.tasks.calibration import LabelDecision

SMALL = ("checkpoint=null", "tokenizer=char", "size=tiny", "task.max_length=24", "train.threads=1")
SHORT = ("train.epochs=null", "train.steps=6", "train.batch_size=8", "optim.lr=1e-3")
TEXTS = [f"{'ab'[number % 2]} text {number}" for number in range(16)]


def run(verb: str, *words: str) -> None:
    perform(config.compose(verb, None, list(words)))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run beside its table, whose checkpoint keeps a temperature and a threshold."""
    place = tmp_path_factory.mktemp("decided")
    for split in ("train", "dev"):
        rows = "".join(f"{text}\t{'ab'.index(text[0])}\n" for text in TEXTS)
        (place / f"{split}.tsv").write_text(f"text\tlabel\n{rows}", encoding="utf-8")
    words = ("task=classification", f"task.path={place}", f"run.dir={place / 'run'}")
    run("finetune", *words, *SMALL, *SHORT)
    write_decision(LabelDecision.fitted_on("dev", 2.5), find(place / "run"))
    answers = evaluate(place / "run", place / "tempered.jsonl")
    threshold = between([row["probabilities"]["1"] for row in answers])
    write_decision(LabelDecision.fitted_on("dev", 2.5, threshold, "1"), find(place / "run"))
    return place


def between(values: list[float]) -> float:
    """The middle of the widest gap that a half is not in: some value is between it and a half."""
    pairs = [pair for pair in pairwise(sorted(values)) if not pair[0] < 0.5 <= pair[1]]
    low, high = max(pairs, key=lambda pair: pair[1] - pair[0])
    return (low + high) / 2


def kept_in(trained: Path) -> LabelDecision:
    kept = read_decision(find(trained / "run"))
    assert kept is not None
    return kept


def evaluate(checkpoint: Path, out: Path, *words: str) -> list[dict[str, Any]]:
    run("eval", f"checkpoint={checkpoint}", f"out={out}", *words)
    return [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def exported(trained: Path) -> Path:
    card = partial(make_card, library="transformers")
    convert(trained / "run", trained / "hf", to="hf", card=card)
    return trained / "hf"


@pytest.fixture(scope="module")
def before(trained: Path) -> list[dict[str, Any]]:
    """The answers of the run itself."""
    return evaluate(trained / "run", trained / "before.jsonl")


@pytest.mark.parity
def test_the_softmax_of_transformers_has_the_probabilities(
    exported: Path, before: list[dict[str, Any]]
) -> None:
    transformers = pytest.importorskip("transformers")
    tokenizer = transformers.AutoTokenizer.from_pretrained(exported)
    classes = transformers.AutoModelForSequenceClassification
    model = classes.from_pretrained(exported).eval()
    with torch.no_grad():
        logits = model(**tokenizer(TEXTS, padding=True, return_tensors="pt")).logits
    theirs = logits.double().softmax(-1).tolist()
    names = [model.config.id2label[place] for place in range(2)]
    for row, known in zip(before, theirs, strict=True):
        assert row["probabilities"] == pytest.approx(dict(zip(names, known, strict=True)), abs=1e-6)


def test_plmctl_decides_by_the_threshold_of_an_export(
    trained: Path, exported: Path, before: list[dict[str, Any]]
) -> None:
    words = ("task=classification", f"task.path={trained}")
    after = evaluate(exported, trained / "after.jsonl", *words)
    for old, new in zip(before, after, strict=True):
        assert new["guess"] == old["guess"]
        assert new["probabilities"] == pytest.approx(old["probabilities"], abs=2e-6)
        assert (new["guess"] == "1") == (new["probabilities"]["1"] >= kept_in(trained).threshold)
    # the threshold counts: some would have the other label by the larger probability
    assert any((row["guess"] == "1") != (row["probabilities"]["1"] >= 0.5) for row in after)


def test_the_temperature_is_in_the_head_of_the_task_whatever_its_name(
    trained: Path, tmp_path: Path
) -> None:
    """Several labels each have the odds of their logit by the temperature, in an export, too."""
    table = "text\tlabels\n" + "".join(f"{text}\t{text[0]},text\n" for text in TEXTS)
    (tmp_path / "sets.tsv").write_text(table, encoding="utf-8")
    words = ("task=multilabel", f"task.path={tmp_path}/sets.tsv", f"run.dir={tmp_path / 'run'}")
    run("finetune", *words, "task.dev_share=0.5", *SMALL, *SHORT)
    write_decision(LabelDecision.fitted_on("dev", 2.5), find(tmp_path / "run"))
    answers = evaluate(tmp_path / "run", tmp_path / "before.jsonl")
    convert(tmp_path / "run", tmp_path / "hf", to="hf")
    assert read_decision(tmp_path / "hf") is None  # all of it is in the weights
    more = (*words[:2], "task.dev_share=0.5", "task.max_length=24")
    for old, new in zip(
        answers, evaluate(tmp_path / "hf", tmp_path / "a.jsonl", *more), strict=True
    ):
        assert new["probabilities"] == pytest.approx(old["probabilities"], abs=2e-6)


def test_an_export_says_what_it_decides_by(
    trained: Path, exported: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    threshold = kept_in(trained).threshold
    whole = LabelDecision.fitted_on("dev", 2.5, threshold, "1")
    assert read_decision(exported) == replace(whole, temperature=1.0)
    lines = (
        "the temperature 2.5, fitted on dev, is in the weights",
        f"1 from a probability of {threshold:.4g} on, fitted on dev, is in config.json",
    )
    page = (exported / "README.md").read_text(encoding="utf-8")
    convert(trained / "run", trained / "again", to="hf")
    said = " ".join(capsys.readouterr().err.split())
    for line in lines:
        assert line in said
        assert line in page.replace("\\", "")


def test_a_decision_goes_to_the_layout_of_plmctl_and_back(trained: Path, exported: Path) -> None:
    kept = kept_in(trained)
    convert(trained / "run", trained / "copy", to="plmctl")
    assert read_decision(trained / "copy") == kept
    convert(exported, trained / "imported", to="plmctl")
    assert read_decision(trained / "imported") == replace(kept, temperature=1.0)
    write_decision(kept, trained / "imported")  # as fitted again: its head is that of classes
    convert(trained / "imported", trained / "out", to="hf")
    assert read_decision(trained / "out") == replace(kept, temperature=1.0)


def test_a_threshold_of_a_label_that_is_not_there_is_refused(trained: Path, exported: Path) -> None:
    shutil.copytree(exported, trained / "edited")
    file = trained / "edited" / "config.json"
    settings = json.loads(file.read_text(encoding="utf-8"))
    settings["plmctl_decision"]["label"] = "yes"
    file.write_text(json.dumps(settings), encoding="utf-8")
    words = ("task=classification", f"task.path={trained}")
    with pytest.raises(DataError, match="a threshold of the label yes; the labels are 0, 1"):
        evaluate(trained / "edited", trained / "none.jsonl", *words)
