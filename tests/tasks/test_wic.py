"""Word in Context: where the word stands, with and without its place, and what the head reads."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from plmctl.artifacts.assemble import build_model
from plmctl.config.build import build
from plmctl.config.compose import compose
from plmctl.core.collate import collate
from plmctl.core.errors import DataError
from plmctl.heads.rows import compare_texts
from plmctl.knowledge.forms import find_form
from plmctl.tasks.wic import WordInContext
from plmctl.text.tokenizer import Tokenizer

SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "word_in_context"


@pytest.mark.parametrize(
    ("text", "lemma", "form"),
    [
        ("The dog ran away .", "run", "ran"),  # an exception of WordNet
        ("They stopped it", "stop", "stopped"),  # a doubled consonant
        ("Two dogs, one dog", "dog", "dog"),  # the lemma comes first
        ("He is better", "good", "better"),
        ("She took them all off", "take off", None),
        ("He takes it off", "take_off", "takes it off"),
        ("the beautifully made", "beautiful", "beautifully"),  # half of its letters
        ("nothing here", "dog", None),
        ("", "dog", None),
    ],
)
def test_the_form_of_a_word_is_found(text: str, lemma: str, form: str | None) -> None:
    place = find_form(text, lemma)
    assert (place and text[slice(*place)]) == form


def write(folder: Path, *rows: dict[str, Any], name: str = "train.jsonl") -> None:
    (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))


def row_of(**more: Any) -> dict[str, Any]:
    own = {"word": "run", "sentence1": "Dogs ran", "sentence2": "a run of it", "label": True}
    return own | more


def task_of(path: Path, *words: str) -> WordInContext:
    given = ["task=wic", f"task.path={path}", "checkpoint=null", *words]
    return build(compose("finetune", None, given).task, path="task")


def test_both_layouts(tmp_path: Path) -> None:
    places = {"start1": 0, "end1": 4, "start2": 2, "end2": 5}
    write(tmp_path, row_of(), row_of(label=False, idx=7, **places))
    first, second = task_of(tmp_path).read("train")
    assert first.fields["places"] == [(5, 8), (2, 5)]
    assert (first.id, first.label) == ("0", "true")
    assert second.fields["places"] == [(0, 4), (2, 5)]
    assert (second.id, second.label) == ("7", "false")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (row_of(word="fly"), r"train\.jsonl:1: no form of 'fly' in sentence1\n.*start1 and end1"),
        (row_of(start2=3, end2=99), "sentence2 stands at 3..99, outside of it"),
        (row_of(label="maybe"), "the label is 'maybe'"),
        (row_of(label=None), "the label is missing"),
        ({"word": "run"}, "no object with word, sentence1, sentence2"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, row: dict[str, Any], message: str) -> None:
    write(tmp_path, row)
    with pytest.raises(DataError, match=message):
        task_of(tmp_path).read("train")


def test_a_typed_line(tmp_path: Path) -> None:
    write(tmp_path, row_of())
    example = task_of(tmp_path).parse("run\tDogs ran\ta run", 1)
    assert example.fields["places"] == [(5, 8), (2, 5)]
    with pytest.raises(ValueError, match="no form of 'fly'"):
        task_of(tmp_path).parse("fly\tDogs ran\ta run", 1)


@pytest.fixture(scope="module")
def tokenizer(small_text: Path) -> Tokenizer:
    cfg = compose("tokenize", None, ["tokenizer=wordpiece", "tokenizer.vocab_size=300", "out=x"])
    lines = small_text.read_text().splitlines()[:80]
    return Tokenizer.learn(lines, build(cfg.tokenizer, path="tokenizer"))


def test_the_head_reads_the_row_and_both_words(tmp_path: Path, tokenizer: Tokenizer) -> None:
    write(tmp_path, row_of(), row_of(sentence1="They ran to the strange strings", label=False))
    task = task_of(tmp_path)
    examples = task.read("train")
    task.fit_labels(examples)
    rows = task.encode(examples, tokenizer)
    words = ["size=tiny", "task=wic", f"task.path={tmp_path}", "checkpoint=null"]
    words += ["position.max_length=64"]
    config = compose("finetune", None, words)
    heads = {"pooler": config.heads.pooler, "class": {**config.heads["class"]}}
    heads["class"] |= {"num_classes": 2, "vectors": 3}
    model = build_model(config, vocab_size=tokenizer.vocab.size, heads=heads, seed=0).eval()
    batch = collate(rows, {})
    found = task.logits(model, batch)["class"]
    states = model(batch).last
    for n, example in enumerate(examples):
        vectors = [model.heads["pooler"](states[n, 0])]
        for text, place in zip(("text", "text2"), example.fields["places"], strict=True):
            ids, offsets = tokenizer.encode_offsets(example.fields[text])
            start = 1 if text == "text" else 2 + len(tokenizer.encode(example.fields["text"]))
            own = [
                states[n, start + t]
                for t in range(len(ids))
                if offsets[t][0] < place[1] and offsets[t][1] > place[0]
            ]
            vectors.append(torch.stack(own).mean(0))
        wanted = model.heads["class"](torch.cat(vectors))
        torch.testing.assert_close(found[n], wanted, rtol=1e-5, atol=1e-6)
    assert rows.labels["class"].tolist() == [1, 0]


def test_rows_of_several_vectors_stand_before_the_words(
    tmp_path: Path, tokenizer: Tokenizer
) -> None:
    write(tmp_path, row_of(), row_of(sentence1="They ran to the strange strings", label=False))
    task = task_of(tmp_path)
    task.rows = replace(task.rows, pooling="compare")  # as modern_encoder has it
    examples = task.read("train")
    task.fit_labels(examples)
    batch = collate(task.encode(examples, tokenizer), {})
    words = ["size=tiny", "task=wic", f"task.path={tmp_path}", "checkpoint=null"]
    config = compose("finetune", None, [*words, "position.max_length=64"])
    heads = {"class": {**config.heads["class"], "num_classes": 2, "vectors": 6}}
    model = build_model(config, vocab_size=tokenizer.vocab.size, heads=heads, seed=0).eval()
    found = task.logits(model, batch)["class"]
    states = model(batch).last
    rows = compare_texts(states, batch)
    for n, places in enumerate(batch.values["mentions"].tolist()):
        means = [states[n, a:b].mean(0) for a, b in (places[:2], places[2:])]
        wanted = model.heads["class"](torch.cat([rows[n], *means]))
        torch.testing.assert_close(found[n], wanted, rtol=1e-5, atol=1e-6)


def test_a_word_that_is_cut_off(tmp_path: Path, tokenizer: Tokenizer) -> None:
    write(tmp_path, row_of(sentence1="of " * 60 + "ran"))
    task = task_of(tmp_path, "task.max_length=24")
    examples = task.read("train")
    task.fit_labels(examples)
    rows = task.encode(examples, tokenizer)
    first, end, *_ = rows.values["mentions"][0]
    assert end == first + 1
    assert 0 < first < np.argmax(rows.seqs["text"].tracks["segment"][0])


@pytest.mark.slow  # files written here stay
@pytest.mark.shared
@pytest.mark.skipif(not SHARED.exists(), reason="the shared data sets are not here")
def test_reads_the_distributed_files() -> None:
    installed = Path("/usr/share/wordnet")
    if not installed.is_dir():
        pytest.skip("WordNet is not installed")
    task = task_of(SHARED, f"task.reader.wordnet={installed}")
    train, dev = task.read("train"), task.read("dev")
    assert (len(train), len(dev)) == (4277, 563)
    assert not {e.fields["word"] for e in train} & {e.fields["word"] for e in dev}
