"""A fine-tuned run in Hugging Face's layout: its tokenizer and its class give the predictions
that plmctl saved.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from plmctl.artifacts.convert import convert
from plmctl.config import compose as config
from plmctl.config.command import perform
from tests.marks import mark_slow

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.parity

SMALL = [
    "checkpoint=null",
    "size=tiny",
    "train.precision=fp32",
    "train.threads=1",
    "train.epochs=null",
    "train.steps=3",
    "train.batch_size=8",
    "task.max_length=64",
    "optim.lr=1e-2",
]
GPT2 = [
    "tokenizer=byte_bpe",
    "tokenizer.specials=gpt2",
    "tokenizer.vocab_size=270",
    "model=decoder",
    "pattern=causal",
]
BERT = ["tokenizer=wordpiece", "tokenizer.vocab_size=45"]
ROBERTA = [
    "tokenizer=byte_bpe",
    "tokenizer.vocab_size=270",
    "model.embedding.segments=0",
    "model.classifier.pooler=false",
    "model.classifier.dense=true",
]
BART = ["tokenizer=byte_bpe", "tokenizer.vocab_size=270", "model=encoder_decoder"]
LONG = "a film is dull " * 40  # more tokens than task.max_length
TEXTS = ["a fine film", "dull", "it is a long and rather dull film", "fine, fine", LONG]
CUT = {"padding": True, "truncation": True, "return_tensors": "pt"}


def run(verb, *words: str) -> int:
    return perform(config.compose(verb, None, list(words)))


@pytest.fixture
def table(tmp_path: Path) -> Path:
    pairs = [f"{text}\t{TEXTS[n % 4]}\t{n % 3}\n" for n, text in enumerate(TEXTS * 6)]
    for split, rows in (("train", pairs), ("dev", pairs[:15])):
        (tmp_path / f"{split}.tsv").write_text(
            "text\ttext2\tlabel\n" + "".join(rows), encoding="utf-8"
        )
    return tmp_path


TASKS = ("classification", "pair_classification", "regression")
FAMILIES = {"bert": BERT, "roberta": ROBERTA, "gpt2": GPT2, "bart": BART}
CASES = [(family, task) for family in FAMILIES for task in TASKS]
# each task of the first family, and one of each other family: pairs are rows of two segments
KEPT = {("roberta", "classification"), ("gpt2", "regression"), ("bart", "pair_classification")}


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("family", "task"),
    mark_slow(CASES, [case for case in CASES if case[0] != "bert" and case not in KEPT]),
)
def test_predictions_agree_in_a_padded_batch(
    family: str, task: str, table: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    assert (
        run(
            "finetune",
            f"task={task}",
            f"task.path={table}",
            f"run.dir={folder}",
            *SMALL,
            *FAMILIES[family],
        )
        == 0
    )
    saved = [
        json.loads(line) for line in (folder / "predictions" / "dev.jsonl").read_text().splitlines()
    ][: len(TEXTS)]
    convert(folder, tmp_path / "hf", to="hf")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")
    classes = transformers.AutoModelForSequenceClassification
    theirs, info = classes.from_pretrained(tmp_path / "hf", output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    second = [TEXTS[n % 4] for n in range(len(TEXTS))] if task == "pair_classification" else None
    given = tokenizer(TEXTS, second, **CUT)
    with torch.no_grad():
        logits = theirs.eval()(**given).logits
    if task == "regression":
        assert [p["guess"] for p in saved] == pytest.approx(logits[:, 0].tolist(), abs=1e-5)
        return
    names = [theirs.config.id2label[place] for place in range(logits.shape[1])]
    for found, wanted in zip(saved, logits.double().softmax(-1).tolist(), strict=True):
        assert found["probabilities"] == pytest.approx(
            dict(zip(names, wanted, strict=True)), abs=1e-5
        )
    if second is None:
        (tmp_path / "in.txt").write_text("\n".join(TEXTS), encoding="utf-8")
        run(
            "embed",
            f"checkpoint={folder}",
            f"input={tmp_path / 'in.txt'}",
            f"out={tmp_path / 'x.npz'}",
            "logits=true",
        )
        import numpy as np

        arrays = np.load(tmp_path / "x.npz")
        for place, row in enumerate(logits):
            assert arrays[f"logits_{place}"] == pytest.approx(row.numpy(), abs=1e-5)


def test_any_number_of_labels(tmp_path: Path) -> None:
    rows = [f"{text}\t{'good,short' if n % 2 else 'bad'}\n" for n, text in enumerate(TEXTS)]
    for split in ("train", "dev"):
        text = "text\tlabels\n" + "".join(rows * 3)
        (tmp_path / f"{split}.tsv").write_text(text, encoding="utf-8")
    folder, back = tmp_path / "run", tmp_path / "back"
    words = ["task=multilabel", f"task.path={tmp_path}", f"run.dir={folder}"]
    assert run("finetune", *words, *SMALL, *BERT) == 0
    file = folder / "predictions" / "dev.jsonl"
    saved = [json.loads(line) for line in file.read_text().splitlines()]
    convert(folder, tmp_path / "hf", to="hf")
    convert(tmp_path / "hf", back, to="hf")  # a published folder keeps what it says
    for place in (tmp_path / "hf", back):
        theirs = transformers.AutoModelForSequenceClassification.from_pretrained(place)
        assert theirs.config.problem_type == "multi_label_classification"
        tokenizer = transformers.AutoTokenizer.from_pretrained(place)
        with torch.no_grad():
            shares = theirs.eval()(**tokenizer(TEXTS, **CUT))
        for found, wanted in zip(saved, shares.logits.double().sigmoid().tolist(), strict=False):
            names = [theirs.config.id2label[place] for place in range(len(wanted))]
            assert found["probabilities"] == pytest.approx(
                dict(zip(names, wanted, strict=True)), abs=1e-5
            )
    out = tmp_path / "again.jsonl"
    asked = ["task=multilabel", f"task.path={tmp_path}", "task.dev_share=0", f"out={out}"]
    run("eval", f"checkpoint={tmp_path / 'hf'}", *asked)
    again = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["guess"] for row in again] == [row["guess"] for row in saved]
