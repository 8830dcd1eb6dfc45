"""A CRF as a setting of tagging: legal tags, windows, probabilities, resuming, refusals."""

from __future__ import annotations

import itertools
import json
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from plmctl.config import compose as config
from plmctl.config.build import build
from plmctl.core.errors import ConfigError, DataError
from plmctl.heads.crf import LinearChain
from plmctl.tasks import batches
from plmctl.tasks.answers.tag_chain import TagChain
from plmctl.tasks.capabilities import predict_fully
from plmctl.tasks.readers.schemes import may_begin, may_end, may_follow, spell
from plmctl.tasks.record import Example
from plmctl.tasks.scores.metrics import entities
from plmctl.text.tokenizer import Tokenizer
from tests.command import plmctl

WORDS = ["anna", "bert", "sees", "rome", "paris", "and", "new", "york", "today", "in"]
TAGS = {"anna": "B-PER", "bert": "B-PER", "rome": "B-LOC", "paris": "B-LOC", "new": "B-LOC"}


def make_sentences(seed: int, count: int) -> list[tuple[list[str], list[str]]]:
    draw, sentences = random.Random(seed), []
    for _ in range(count):
        words = [draw.choice(WORDS) for _ in range(draw.randrange(2, 9))]
        tags = [TAGS.get(word, "O") for word in words]
        for place in range(1, len(words)):
            if words[place - 1 : place + 1] == ["new", "york"]:
                tags[place] = "I-LOC"
        sentences.append((words, tags))
    return sentences


def write(folder: Path, **sizes: int) -> Path:
    folder.mkdir(exist_ok=True)
    for number, (split, count) in enumerate(sizes.items()):
        rows = [{"tokens": words, "tags": tags} for words, tags in make_sentences(number, count)]
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def make_task(path: Path, *words: str, name: str = "tagging") -> Any:
    spec = config.compose(
        "finetune", None, [f"task={name}", f"task.path={path}", "checkpoint=null", *words]
    )
    return build(spec.task, {"pooling": "first"}, path="task")


@pytest.mark.parametrize("scheme", ["iob1", "iob2", "bioes"])
def test_legal_sequences_are_those_that_spell_entities(scheme: Any) -> None:
    names = [
        "O",
        *(
            f"{letter}-{kind}"
            for letter in ("BIES" if scheme == "bioes" else "BI")
            for kind in "XY"
        ),
    ]
    for length in (1, 2, 3):
        for tags in itertools.product(names, repeat=length):
            legal = (
                may_begin(tags[0], scheme)
                and may_end(tags[-1], scheme)
                and all(may_follow(a, b, scheme) for a, b in itertools.pairwise(tags))
            )
            assert legal == (spell(entities(tags), length, scheme) == list(tags)), tags


def test_legal_predictions_are_well_formed() -> None:
    names = ["O", "B-X", "I-X", "B-Y", "I-Y"]
    scores = torch.randn(60, 5, generator=torch.Generator().manual_seed(0)) * 3
    sizes, chain = [10, 20, 30], LinearChain(num_classes=5)
    found = {
        kind: [
            [names[tag] for tag in own]
            for own in TagChain(kind, names, None).decode(scores, sizes, chain)
        ]
        for kind in ("free", "legal")
    }
    for tags in found["legal"]:
        assert spell(entities(tags), len(tags), "iob2") == tags
    assert found["free"] != found["legal"]  # without learned transitions: the best of each word
    assert [names[k] for k in scores[:10].argmax(-1).tolist()] == found["free"][0]
    for own in TagChain("legal", names, None).weigh(scores.double(), sizes, chain):
        assert torch.allclose(own.sum(-1), torch.ones(len(own), dtype=own.dtype))


def encode(task: Any, sentences: list[tuple[list[str], list[str]]]) -> Any:
    examples = [Example(str(n), {"words": w}, t) for n, (w, t) in enumerate(sentences)]
    task.fit_labels(examples)
    tokenizer = Tokenizer.train([" ".join(WORDS)] * 3, kind="wordpiece", vocab_size=60)
    return examples, task.encode(examples, tokenizer)


@pytest.mark.parametrize("length", [64, 6])
def test_the_loss_of_a_batch_is_that_of_its_windows(length: int, tmp_path: Path) -> None:
    """By sums over all sequences of tags; the inner ends of windows have no first and last."""
    task = make_task(tmp_path, "task.crf=free", f"task.max_length={length}")
    sentences = [(w[:5], t[:5]) for w, t in make_sentences(3, 6)]
    examples, rows = encode(task, sentences)
    assert (len(rows.key) > len(examples)) == (length == 6)
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(*rows.seqs["text"].ids.shape, len(task.names), generator=generator)
    chain = LinearChain(num_classes=len(task.names), gain=1.0)
    for parameter in chain.parameters():
        torch.nn.init.normal_(parameter, generator=generator)
    task.answer._asked = [chain]
    batch = batches.collate(rows, np.arange(len(rows.key)))
    term = task.loss({"tag": logits[:, : batch.text.ids.shape[1]]}, batch).terms["tag"]
    first, last, follow = (each.detach().double() for each in chain())
    wanted, counts = 0.0, task.counts(batch)["tag"]
    for row in range(len(rows.key)):
        places = [(p, w) for r, p, _, w in rows.spans["word"].tolist() if r == row]
        words, tags = sentences[int(rows.values["example"][row])]
        gold = [task.names.index(tags[w]) for _, w in places]

        def score(path: Any, row: int = row, places: Any = places, count: int = len(words)) -> Any:
            total = sum(logits[row, p, k].double() for (p, _), k in zip(places, path, strict=True))
            total += sum(follow[a, b] for a, b in itertools.pairwise(path))
            total += first[path[0]] if places[0][1] == 0 else 0
            return total + (last[path[-1]] if places[-1][1] == count - 1 else 0)

        paths = itertools.product(range(len(task.names)), repeat=len(gold))
        every = torch.stack([score(path) for path in paths])
        wanted += (every.logsumexp(0) - score(gold)).item()
    assert term.total.item() == pytest.approx(wanted, rel=1e-5)
    assert counts == sum(len(words) for words, _ in sentences)


def test_a_sentence_in_windows_is_predicted_as_one(tmp_path: Path) -> None:
    task = make_task(tmp_path, "task.crf=legal", "task.max_length=6")
    examples, rows = encode(task, make_sentences(5, 12))
    chain = LinearChain(num_classes=len(task.names))
    task.answer._asked = [chain]
    logits = (
        np.random.default_rng(0)
        .normal(size=(*rows.seqs["text"].ids.shape, len(task.names)))
        .astype(np.float32)
    )
    for prediction in predict_fully(task, {"tag": logits}, rows, examples):
        tags = prediction["guess"]
        assert spell(entities(tags), len(tags), "iob2") == tags
        assert np.allclose(np.sum(prediction["tag_probabilities"], axis=1), 1)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["task.class_weights=balanced"], r"task.crf='free': null with task.class_weights, "),
        (["task.focal_gamma=2"], r"a CRF learns the likelihood of whole sentences"),
        (["task.label_smoothing=0.1"], r"task.crf='free'"),
        (["task.crf=lawful"], r"task.crf='lawful': must be one of free, legal"),
        (["task=supersense"], r"task.crf='free': null: only some words have a tag"),
    ],
)
def test_what_does_not_go_with_it(words: list[str], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        make_task(tmp_path, "task.crf=free", *words)


def test_ill_formed_training_tags_have_no_legal_likelihood(tmp_path: Path) -> None:
    task = make_task(tmp_path, "task.crf=legal")
    with pytest.raises(DataError, match=r"here:1: 'I-X' of word 2 cannot stand there in iob2"):
        task.fit_labels([Example("0", {"words": ["a", "b"]}, ["O", "I-X"], "here:1")])
    with pytest.raises(ConfigError, match=r"task.crf='legal': free or null: these tags name no"):
        make_task(tmp_path, "task.crf=legal").fit_labels(
            [Example("0", {"words": ["a", "b"]}, ["IN", "NN"])]
        )


TINY = [
    *("finetune", "task=tagging", "checkpoint=null", "tokenizer=wordpiece", "size=tiny"),
    *("tokenizer.vocab_size=60", "size.width=16", "size.num_heads=2", "size.num_layers=1"),
    *("size.inner_width=16", "task.max_length=16", "train.batch_size=8", "train.epochs=null"),
    *("optim.lr=1e-2", "train.eval_every=0", "train.steps=9", "train.save_every=3"),
]


@pytest.mark.slow  # test_finetune_command.py resumes, test_head_matrix.py trains taggers
def test_it_trains_resumes_and_is_evaluated(tmp_path: Path) -> None:
    data, run, other = write(tmp_path / "data", train=60, dev=20), tmp_path / "a", tmp_path / "b"
    plmctl(*TINY, f"task.path={data}", "task.crf=legal", "train.keep_last=3", f"run.dir={run}")
    weights = load_file(run / "checkpoints/step-9/model.safetensors")
    assert weights["heads.tag.chain.follow"].abs().max() > 0
    shutil.copytree(run, other)
    for name in ("step-6", "step-9"):
        shutil.rmtree(other / "checkpoints" / name)
    plmctl("finetune", "--resume", f"run.dir={other}")
    again = load_file(other / "checkpoints/step-9/model.safetensors")
    assert all(torch.equal(again[name], own) for name, own in weights.items())
    scores = json.loads((run / "result.json").read_text())["metrics"]["dev"]
    found = json.loads(plmctl("eval", f"checkpoint={run}", "--json"))["metrics"]["dev"]
    assert found == scores
    plmctl("eval", f"checkpoint=[{run},{other}]", f"out={tmp_path}/both")
    for line in (tmp_path / "both/dev.jsonl").read_text().splitlines():
        row = json.loads(line)
        assert len(row["guess"]) == len(row["words"])
    said = plmctl("convert", str(run), str(tmp_path / "hf"), "--to", "hf", code=2)
    assert "chain" in said


def test_what_compares_words_is_refused(tmp_path: Path) -> None:
    task = make_task(tmp_path, "task.crf=free")
    with pytest.raises(ConfigError, match=r"task.crf='free': null where .* words are compared"):
        task.flatten_logits({"tag": torch.zeros(1)}, None)
    data, run = write(tmp_path / "data", train=8, dev=4), tmp_path / "run"
    for words in (["regulariser=smart"], ["stabiliser=[r_drop]"]):  # before any work
        given = [*TINY, f"task.path={data}", "task.crf=free", f"run.dir={run}", *words]
        assert "task.crf=null" in plmctl(*given, code=2)
        assert not run.exists()
