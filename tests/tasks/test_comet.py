"""COMET: tails are written by a decoder and by an encoder-decoder, and scored as in the paper."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from plmctl.tasks.scores import written
from plmctl.tasks.scores.novelty import TrainedTexts
from plmctl.tasks.scores.sentence_bleu import bleu2
from tests.command import plmctl

FACTS = [
    (f"{head}{n}", relation, tail)
    for n in range(6)
    for head, relation, tail in (("cat", "isa", "pet"), ("car", "isa", "thing"))
]
SMALL = [
    *("checkpoint=null", "size=tiny", "size.width=32", "size.inner_width=64", "size.num_layers=1"),
    *("tokenizer.vocab_size=27", "train.precision=fp32", "train.threads=1", "train.epochs=8"),
    *("optim.lr=1e-2", "train.batch_size=4", "task.max_length=16", "task.max_target=8"),
]


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Triples of two kinds as `plmctl data triples` writes them."""
    folder = tmp_path_factory.mktemp("graph")
    for name, part in (("train", FACTS[:-2]), ("valid", FACTS[-2:])):
        lines = "".join("\t".join(triple) + "\n" for triple in part)
        (folder / f"{name}.tsv").write_text(lines, encoding="utf-8")
    plmctl("data", "triples", f"data.path={folder}", "kind=comet", f"out={folder / 'comet'}")
    return folder / "comet"


@pytest.mark.sampled(2)
@pytest.mark.parametrize("model", ["decoder pattern=causal", "encoder_decoder"])
def test_tails_are_written_and_scored(model: str, texts: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    given = [f"task.path={texts}", f"run.dir={run}", *f"model={model}".split(), *SMALL]
    plmctl("finetune", "task=comet", *given)
    said = json.loads(plmctl("eval", f"checkpoint={run}", "--json"))
    scores = said["metrics"]["dev"]
    assert list(scores)[:5] == ["perplexity", "bleu2", "novel_pairs", "novel", "novel_unique"]
    found = [json.loads(line) for line in Path(said["predictions"]).read_text().splitlines()]
    assert [each["source"] for each in found] == ["cat5 isa", "car5 isa"]
    guesses = [each["guess"] for each in found]
    assert scores["novel_pairs"] == 100  # the heads are new
    assert scores["novel"] == 50 * sum(guess not in ("pet", "thing") for guess in guesses)
    expected = [bleu2([gold], guess) for gold, guess in zip(("pet", "thing"), guesses, strict=True)]
    assert scores["bleu2"] == pytest.approx(50 * sum(expected), abs=1e-3)
    several = ["search=beam", "search.width=4", "search.count=3", "--json"]
    tails = json.loads(plmctl("generate", f"checkpoint={run}", "prompt=cat5 isa", *several))
    assert len(tails["texts"]) == 3


def test_a_wrong_setting_makes_no_other_model_of_a_checkpoint(texts: Path, tmp_path: Path) -> None:
    """It writes, whatever is wrong beside it."""
    run, pattern = tmp_path / "run", ["model=decoder", "pattern=causal", "train.epochs=1"]
    plmctl("finetune", "task=comet", f"task.path={texts}", f"run.dir={run}", *SMALL, *pattern)
    words = [f"checkpoint={run}", f"task.path={texts}", "optim.lr=many", "--dry-run"]
    said = plmctl(
        "finetune", "task=comet", "task.max_length=8", "task.max_target=8", *words, code=2
    )
    assert "optim.lr='many': must be a number" in said
    assert "needs a model that writes" not in said
    words[0] = f"checkpoint={tmp_path / 'nowhere'}"
    said = plmctl(
        "finetune", "task=comet", "task.max_length=8", "task.max_target=8", *words, code=2
    )
    assert "needs a model that writes" not in said


def test_new_texts_are_counted_as_in_the_paper() -> None:
    known = TrainedTexts([("cat isa", "pet"), ("car  isa", "thing"), ("cat isa", "hunter")])
    guesses = [
        ("cat isa", "pet"),
        ("dog isa", "pet"),
        ("car isa", "pet"),
        ("dog isa", "friend"),
        ("fox isa", "friend"),
    ]
    found: list[dict[str, Any]] = [
        {"source": source, "guess": guess, "golds": ["x"], **known.judge(source, guess)}
        for source, guess in guesses
    ]
    names = ["novel_pairs", "novel", "novel_unique"]
    scores, _ = written.score(found, names, tokenize="13a", lowercase=False)
    assert scores == {"novel_pairs": 80.0, "novel": 40.0, "novel_unique": 50.0}


def test_new_texts_need_the_training_examples(texts: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    given = [f"task.path={texts}", f"run.dir={run}", "model=encoder_decoder", *SMALL]
    plmctl("finetune", "task=comet", *given, "train.epochs=1")
    said = plmctl(
        "eval", f"checkpoint={run}", "task=comet", f"task.path={texts / 'dev.jsonl'}", code=2
    )
    assert "novel, novel_pairs and novel_unique need the training examples" in said
