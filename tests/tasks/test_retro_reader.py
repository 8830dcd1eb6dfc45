"""The retrospective reader: labels of windows, losses and verification written out, and both
readings as commands, one after the other.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from plmctl.config import compose as config
from plmctl.config.command import perform
from plmctl.core.batch import IGNORE, Batch, Seq
from plmctl.core.errors import ConfigError, DataError
from plmctl.tasks.readers.squad import SquadFiles
from plmctl.tasks.retro_reader import RetroReader, read_odds
from plmctl.tasks.sketchy_reader import SketchyReader

CONTEXT = "In 1066 the Normans crossed to England , led by William , and won near Hastings ."
ANSWERS = {"when": "1066", "who": "William", "where": "near Hastings", "moon": None}
SIZES = {"max_length": 16, "stride": 4, "max_query": 4, "n_best": 9, "max_answer": 9, "version": 2}
TINY = ["tokenizer=word", "size=tiny", "size.width=16", "size.inner_width=16", "size.num_layers=1"]
TINY += ["size.num_heads=2", "task.max_length=16", "task.stride=4", "task.max_query=4"]
TINY += ["train.steps=2", "train.epochs=null", "train.precision=fp32", "train.threads=1"]


@pytest.fixture(scope="module")
def squad(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("squad")
    qas = [
        {
            "id": name,
            "question": f"{name} ?",
            "is_impossible": text is None,
            "answers": [{"text": text, "answer_start": CONTEXT.index(text)}] if text else [],
        }
        for name, text in ANSWERS.items()
    ]
    content = json.dumps({"data": [{"paragraphs": [{"context": CONTEXT, "qas": qas}]}]})
    for name in ("train-v2.0.json", "dev-v2.0.json"):
        (folder / name).write_text(
            content.replace("crossed", "sailed") if "dev" in name else content
        )
    return folder


def intensive(**settings: Any) -> RetroReader:
    weights = {"span": 0.25, "answerable": 0.75}
    settings = {**SIZES, "metrics": ["best_f1"], "weights": weights, **settings}
    return RetroReader(name="toy", reader=SquadFiles(splits={"train": ["train*"]}), **settings)


def sketchy(**settings: Any) -> SketchyReader:
    settings = {**SIZES, "metrics": ["accuracy", "f1"], **settings}
    return SketchyReader(name="toy", reader=SquadFiles(splits={"train": ["train*"]}), **settings)


@pytest.mark.parametrize("make", [intensive, sketchy])
def test_a_window_without_the_answer_is_not_answerable(make: Any, squad: Path, toy: Any) -> None:
    task = make()
    examples = task.splits.reader.read(str(squad), "train", {})
    rows = task.encode(examples, toy)
    spans = intensive().encode(examples, toy).labels["span"]
    for row, label in enumerate(rows.labels["answerable"].tolist()):
        assert label == int(spans[row].tolist() == [0, 0])  # they point at the anchor
    of_moon = rows.values["example"] == list(ANSWERS).index("moon")
    assert rows.labels["answerable"][of_moon].all()
    assert not rows.labels["answerable"].all()


def test_the_losses_are_weighted(squad: Path) -> None:
    ids = torch.zeros(2, 3, dtype=torch.long)
    labels = {
        "span": torch.tensor([[1, 2], [IGNORE, IGNORE]]),
        "answerable": torch.tensor([0, IGNORE]),
    }
    seq = Seq(ids, torch.full((2,), 3), full=True)
    counts = {"span": 1, "answerable": 1}
    batch = Batch(torch.arange(2), {"text": seq}, labels=labels, counts=counts)
    draws = torch.randn(2, 8, generator=torch.Generator().manual_seed(0))
    logits = {"start": draws[:, :3], "end": draws[:, 3:6], "answerable": draws[:, 6:]}
    terms = intensive().loss(logits, batch).terms
    own = -draws[0, :3].log_softmax(0)[1] - draws[0, 3:6].log_softmax(0)[2]
    assert terms["span"].total.item() == pytest.approx(own.item() / 2)
    odds = (draws[0, 7] - draws[0, 6]).item()
    assert terms["answerable"].total.item() == pytest.approx(math.log1p(math.exp(odds)))
    assert {name: term.weight for name, term in terms.items()} == {"span": 0.25, "answerable": 0.75}
    alone = sketchy().loss({"answerable": draws[:, 6:]}, batch)
    assert alone.terms["answerable"].total.item() == terms["answerable"].total.item()


def test_odds_are_the_smallest_over_windows(squad: Path, toy: Any) -> None:
    task = sketchy()
    examples = task.splits.reader.read(str(squad), "train", {})
    rows = task.encode(examples, toy)
    logits = np.random.default_rng(0).normal(size=(len(rows.key), 2)).astype(np.float32)
    found = task.predict({"answerable": logits}, rows, examples)
    for number, prediction in enumerate(found):
        own = logits[rows.values["example"] == number].astype(np.float64)
        assert prediction["null_odds"] == min(no - yes for yes, no in own.tolist())
        p = 1 / (1 + math.exp(-prediction["null_odds"]))
        assert prediction["probabilities"]["unanswerable"] == pytest.approx(p)
        assert (prediction["guess"] == "unanswerable") == (p > 0.5)
    assert [each["gold"] for each in found] == ["answerable"] * 3 + ["unanswerable"]
    half = [{"gold": "unanswerable", "guess": guess} for guess in ("unanswerable", "answerable")]
    assert task.score(half) == {"accuracy": 0.5, "f1": pytest.approx(2 / 3)}


def test_the_rear_verifier_adds_both_odds(squad: Path, tmp_path: Path, toy: Any) -> None:
    odds = dict(zip(ANSWERS, (-1.0, 0.5, 2.0, 4.0), strict=True))
    lines = [json.dumps({"id": name, "null_odds": value}) for name, value in odds.items()]
    (tmp_path / "train.jsonl").write_text("\n".join(lines))
    task = intensive(sketchy_path=str(tmp_path), span_odds=0.3, sketchy_odds=2.0)
    examples = task.splits.reader.read(str(squad), "train", {})
    rows = task.encode(examples, toy)
    shape = rows.seqs["text"].ids.shape
    logits = {side: np.random.default_rng(1).normal(size=shape) for side in ("start", "end")}
    found = task.predict(logits, rows, examples)
    task.sketchy_path = None
    alone = task.predict(logits, rows, examples)
    task.sketchy_path = str(tmp_path)
    for prediction, own in zip(found, alone, strict=True):
        assert prediction["span_odds"] == own["null_odds"]
        wanted = 0.3 * own["null_odds"] + 2 * odds[prediction["id"]]
        assert prediction["null_odds"] == pytest.approx(wanted)
        assert prediction["guess"] == own["guess"]
    (tmp_path / "train.jsonl").write_text(lines[0])
    with pytest.raises(DataError, match=r"question who: .* has no prediction of question who"):
        task.predict(logits, rows, examples)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "the file is empty"),
        ("{", "line|:1"),
        ("[]", "no prediction of task=sketchy_reader"),
        ('{"id": "a"}', "must have 'null_odds'"),
        ('{"id": "a", "null_odds": "x"}', "null_odds"),
    ],
)
def test_broken_predictions_of_the_first_reading(
    content: str, message: str, tmp_path: Path
) -> None:
    (tmp_path / "dev.jsonl").write_text(content)
    with pytest.raises(DataError, match=message) as refused:
        read_odds(tmp_path)
    assert "dev.jsonl" in str(refused.value)
    (tmp_path / "dev.jsonl").unlink()
    with pytest.raises(DataError, match="no predictions are there"):
        read_odds(tmp_path)


def test_version_1_and_unknown_weights_are_refused() -> None:
    for make in (sketchy, intensive):
        with pytest.raises(ConfigError, match=r"task.version=1"):
            make(version=1, metrics=["f1"])
    with pytest.raises(ConfigError, match=r"task.weights='spam'.*span"):
        intensive(weights={"spam": 1})


@pytest.mark.slow  # its verdicts are computed in the next tests
def test_two_readings_one_after_the_other(squad: Path, tmp_path: Path) -> None:
    def run(verb: str, *words: str) -> None:
        assert perform(config.compose(verb, None, list(words))) == 0

    for name in ("sketchy", "retro"):
        words = [f"task={name}_reader", f"task.path={squad}", f"run.dir={tmp_path / name}"]
        run("finetune", *words, "checkpoint=null", *TINY)
    run("eval", f"checkpoint={tmp_path / 'sketchy'}", "split=dev", f"out={tmp_path / 'found'}")
    asked = [f"checkpoint={tmp_path / 'retro'}", f"out={tmp_path / 'both'}", "task=retro_reader"]
    run("eval", *asked, f"task.path={squad}", f"task.sketchy_path={tmp_path / 'found'}")
    lines = (tmp_path / "both" / "dev.jsonl").read_text().splitlines()
    first = read_odds(tmp_path / "found")
    for row in map(json.loads, lines):
        wanted = 0.5 * row["span_odds"] + 0.5 * first[row["id"]]
        assert row["null_odds"] == pytest.approx(wanted, abs=1e-5)
