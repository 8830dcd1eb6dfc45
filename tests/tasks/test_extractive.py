"""BERTSUM's extractive part: oracle, rows, scores of sentences, and their choice."""

from __future__ import annotations

import gzip
import hashlib
import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from plmctl.artifacts.assemble import build_model
from plmctl.config import compose as config
from plmctl.config.build import build
from plmctl.core.batch import IGNORE
from plmctl.core.errors import ConfigError, DataError
from plmctl.heads.extract import SummaryScores
from plmctl.tasks import batches, inference
from plmctl.tasks.answers.oracle import choose_sentences, find_oracle
from plmctl.tasks.extractive import number_sentences
from plmctl.tasks.record import Example
from plmctl.tasks.scores import rouge
from tests.command import plmctl

WORDS = ["a", "red", "house", "is", "the", "old", "one", "here", "now"]
SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "data"
DOCUMENT = ["one small cat sat", "two dogs", "here a cat sat here", "dogs sat"]
TINY = ["size=tiny", "size.width=32", "size.num_heads=2", "size.inner_width=48"]


def f1_of_sets(chosen: list[str], gold: str, n: int) -> float:
    """ROUGE-n by its definition, n-grams counted one by one."""

    def grams(text: str) -> list[tuple[str, ...]]:
        w = text.split()
        return [tuple(w[i : i + n]) for i in range(len(w) - n + 1)]

    have = [gram for text in chosen for gram in grams(text)]
    left, both = Counter(grams(gold)), 0
    for gram in have:
        if left[gram]:
            left[gram] -= 1
            both += 1
    size = len(have) + len(grams(gold))
    return 2 * both / size if size else 0.0


def slow_oracle(sentences: list[str], golds: list[str], most: int) -> list[int]:
    chosen: list[int] = []
    best = 0.0
    for _ in range(most):
        found = None
        for number in range(len(sentences)):
            if number in chosen:
                continue
            texts = [sentences[each] for each in [*chosen, number]]
            value = max(sum(f1_of_sets(texts, gold, n) for n in (1, 2)) for gold in golds)
            if value > best + 1e-12:
                best, found = value, number
        if found is None:
            break
        chosen.append(found)
    return sorted(chosen)


def slow_choice(sentences: list[str], scores: list[float], most: int) -> list[int]:
    chosen: list[int] = []
    for number in np.argsort(-np.array(scores), kind="stable").tolist():
        w = sentences[number].split()
        repeats = any(
            w[i : i + 3] == v[j : j + 3]
            for v in (sentences[other].split() for other in chosen)
            for i in range(len(w) - 2)
            for j in range(len(v) - 2)
        )
        if not repeats and len(chosen) < most:
            chosen.append(number)
    return sorted(chosen)


def test_oracle_and_choice_as_slow_loops() -> None:
    draw = random.Random(3)
    sizes = set()
    for _ in range(200):
        texts = [" ".join(draw.choices(WORDS, k=draw.randint(1, 7))) for _ in range(7)]
        golds = [" ".join(draw.choices(WORDS, k=9)) for _ in range(draw.randint(1, 2))]
        found = find_oracle(texts, golds, 3)
        assert found == slow_oracle(texts, golds, 3)
        sizes.add(len(found))
        scores = [draw.choice([0.1, 0.5, 0.7, 0.9]) for _ in texts]
        assert choose_sentences(texts, scores, 3) == slow_choice(texts, scores, 3)
    assert sizes >= {1, 2, 3}
    assert find_oracle(["nothing", "of it"], ["red house"], 3) == []
    # one sentence: the one with the largest ROUGE-1 + ROUGE-2 of the project's own
    texts, gold = ["a red one", "the old house here", "the house"], "the old house"
    sums = [sum(rouge.rouge_n(gold, text, n=n) for n in (1, 2)) for text in texts]
    assert find_oracle(texts, [gold], 1) == [int(np.argmax(sums))]
    assert choose_sentences(texts, [0.9, 0.8], 3) == [0, 1]  # of what was read


def make_task(*words: str, **given: object):  # type: ignore[no-untyped-def]
    cfg = config.compose(
        "finetune",
        None,
        ["task=extractive_summarization", "task.path=x", "checkpoint=null", *TINY, *words],
    )
    return cfg, build(cfg.task, given, path="task")


def test_a_token_before_every_sentence_and_segments_by_turns(toy: Any) -> None:
    _, task = make_task("task.max_length=16")
    examples = [Example("0", {"source": "\n".join(DOCUMENT)}, ("two dogs\nhere",), "x:1")]
    rows = task.encode(examples, toy)
    text = rows.seqs["text"]
    ids = [toy.encode(sentence) for sentence in DOCUMENT]
    cls, sep = toy.vocab.cls, toy.vocab.sep
    expected = [cls, *ids[0], sep, cls, *ids[1], sep]
    room = 16 - len(expected) - 2
    expected += [cls, *ids[2][:room], sep]
    assert text.ids[0].tolist() == expected  # the fourth sentence does not fit
    starts = [0, len(ids[0]) + 2, len(ids[0]) + len(ids[1]) + 4]
    assert rows.values["starts"].tolist() == [starts]
    assert rows.labels["extract"].tolist() == [[0, 1, 0]]
    segment = [0] * starts[1] + [1] * (starts[2] - starts[1]) + [0] * (16 - starts[2])
    assert text.tracks["segment"][0].tolist() == segment
    assert np.flatnonzero(text.tracks["global"][0]).tolist() == starts
    assert rows.values["cut"].tolist() == [len(ids[2]) - room + len(ids[3])]
    assert number_sentences(np.array([[0, 2, -1]]), 4).tolist() == [[0, 0, 1, 1]]
    with pytest.raises(ConfigError, match=r"task.max_length=2: too short for 2 special tokens"):
        make_task("task.max_length=2")[1].encode(examples, toy)
    with pytest.raises(ConfigError, match="a model whose tokens see later ones"):
        build(make_task()[0].task, {"sees_later": False}, path="task")


def test_the_layers_between_sentences_are_torchs() -> None:
    torch.manual_seed(0)
    head = SummaryScores(width=16, num_heads=2, inner_width=24, between=2, dropout=0.0).eval()
    for parameter in head.parameters():
        nn.init.normal_(parameter, std=0.3)
    vectors, real = torch.randn(3, 5, 16), torch.arange(5) < torch.tensor([5, 2, 1])[:, None]
    waves = torch.zeros(5, 16)
    for p in range(5):
        for i in range(8):
            angle = torch.tensor(p / 10000 ** (2 * i / 16))
            waves[p, 2 * i], waves[p, 2 * i + 1] = angle.sin(), angle.cos()
    x = vectors + waves
    for layer in head.layers:
        theirs = nn.TransformerEncoderLayer(
            16,
            2,
            24,
            dropout=0.0,
            activation=lambda h: F.gelu(h, approximate="tanh"),
            layer_norm_eps=1e-6,
            batch_first=True,
        )
        state = layer.state_dict()
        names = {
            "qkv.weight": "self_attn.in_proj_weight",
            "qkv.bias": "self_attn.in_proj_bias",
            "projection": "self_attn.out_proj",
            "inner": "linear1",
            "outer": "linear2",
            "norms.0": "norm1",
            "norms.1": "norm2",
        }
        for ours, other in names.items():
            state = {name.replace(ours, other): value for name, value in state.items()}
        theirs.load_state_dict(state)
        x = theirs.train()(x, src_key_padding_mask=~real)
    scores = head(vectors, real)
    wanted = (x @ head.linear.weight.T + head.linear.bias)[..., 0]
    assert torch.allclose(scores[real], wanted[real], atol=1e-5)
    alone = SummaryScores(width=16, num_heads=2, inner_width=24, between=0, dropout=0.0)
    assert torch.equal(alone(vectors, real), alone.linear(vectors)[..., 0])
    with pytest.raises(ConfigError, match="between"):
        SummaryScores(width=16, num_heads=2, inner_width=24, between=-1, dropout=0.0)


def test_the_loss_is_the_mean_over_sentences_of_each_document(toy: Any) -> None:
    cfg, task = make_task("train.precision=fp32", "position.max_length=32")
    examples = [
        Example("0", {"source": "\n".join(DOCUMENT)}, ("two dogs\nhere",), "x:1"),
        Example("1", {"source": DOCUMENT[0]}, ("a cat", "small cat"), "x:2"),
    ]
    rows = task.encode(examples, toy)
    model = build_model(cfg, vocab_size=toy.vocab.size, vocab=toy.vocab, seed=1).double().eval()
    batch = batches.collate(rows, np.array([0, 1]))
    with torch.no_grad():
        logits = task.logits(model, batch)
    assert not task.facts.chooses  # each sentence has a probability of its own
    assert logits["extract"][1, 1:].tolist() == [0.0] * 3
    total = 0.0
    for row in range(2):
        gold = [int(y) for y in rows.labels["extract"][row] if y != IGNORE]
        each = [
            -torch.log(torch.sigmoid(z) if y else 1 - torch.sigmoid(z))
            for z, y in zip(logits["extract"][row], gold, strict=False)
        ]
        total += float(sum(each)) / len(gold)
    out = task.loss(logits, batch)
    assert out.terms["extract"].total.item() == pytest.approx(total, rel=1e-5)
    assert task.counts(batch) == {"extract": 2}
    split = inference.Split("dev", examples, rows)
    with torch.no_grad():
        found, _ = inference.predict_split(
            model, task, split, batch_size=1, device=torch.device("cpu")
        )
    assert [row["lead"] for row in found] == ["\n".join(DOCUMENT[:3]), DOCUMENT[0]]
    assert found[0]["oracle"] == "\n".join(
        DOCUMENT[n] for n in find_oracle(DOCUMENT, ("two dogs\nhere",), 3)
    )
    assert found[1]["guess"] == DOCUMENT[0]
    scores = task.score(found)
    golds = [row["golds"] for row in found]
    assert scores["lead/rouge1"] == rouge.mean("rouge1", golds, [row["lead"] for row in found])
    assert scores["oracle/rouge2"] == rouge.mean("rouge2", golds, [row["oracle"] for row in found])


def write_documents(folder: Path) -> Path:
    """The sentence with "here" is the summary, wherever it stands."""
    draw = random.Random(0)
    for name, count in (("train", 160), ("dev", 24)):
        rows = []
        for _ in range(count):
            texts = [" ".join(draw.choices(WORDS[:7], k=4)) for _ in range(6)]
            texts[draw.randrange(6)] += " here now"
            rows.append({"source": texts, "target": [next(t for t in texts if "here" in t)]})
        content = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"{name}.jsonl").write_text(content)
    return folder


@pytest.mark.slow  # what it reads and writes is compared in the tests before
def test_learns_which_sentence_it_is(tmp_path: Path) -> None:
    files = write_documents(tmp_path)
    given = [
        "task=extractive_summarization",
        f"task.path={files}",
        "task.most=1",
        "task.max_length=64",
        "checkpoint=null",
        "tokenizer=word",
        *TINY,
        "size.num_layers=1",
        "train.epochs=8",
        "train.batch_size=16",
        "train.processes=1",
        "optim.lr=3e-3",
        f"run.dir={tmp_path}/run",
    ]
    plmctl("finetune", *given)
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    scores = result["metrics"]["dev"]
    assert scores["oracle/rouge1"] == 100
    assert scores["rouge1"] > scores["lead/rouge1"] + 20
    low, high = result["intervals"]["dev"]["rouge1"]
    assert low <= scores["rouge1"] <= high
    table = plmctl("eval", f"checkpoint={tmp_path}/run", "--json")
    known = json.loads(table.splitlines()[-1])
    assert known["metrics"]["dev"]["rouge1"] == pytest.approx(scores["rouge1"])
    (tmp_path / "new.txt").write_text("The old one. A red house is here now. The end.\n")
    plmctl(
        "eval",
        f"checkpoint={tmp_path}/run",
        f"input={tmp_path}/new.txt",
        f"out={tmp_path}/out.jsonl",
    )
    row = json.loads((tmp_path / "out.jsonl").read_text())
    assert row["guess"] in ("The old one.", "A red house is here now.", "The end.")


def test_documents_as_lists_paragraphs_and_texts(tmp_path: Path) -> None:
    _, task = make_task()
    reader = task.documents
    rows = [
        {"source": ["Dr. Who came. He left.", "The end."], "target": ["He came.", "He left."]},
        {"source": "Dr. Who came. He left.\nThe end", "target": "He came."},
    ]
    file = tmp_path / "train.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    columns = {"source": "source", "target": "target"}
    first, second = reader.read(tmp_path, "train", columns)
    assert first.fields == {"source": "Dr. Who came. He left.\nThe end."}
    assert first.label == ("He came.", "He left.")
    assert second.fields == {"source": "Dr. Who came.\nHe left.\nThe end"}
    (tmp_path / "lines").mkdir()
    for name, text in (("source", "Dr. Who came. He left."), ("target", "He came.")):
        (tmp_path / "lines" / f"train.{name}").write_text(f"{text}\n")
    (tmp_path / "table").mkdir()
    (tmp_path / "table" / "train.tsv").write_text("source\ttarget\nDr. Who came. He left.\tA\n")
    for folder in ("lines", "table"):
        (example,) = reader.read(tmp_path / folder, "train", columns)
        assert example.fields == {"source": "Dr. Who came.\nHe left."}
    (tmp_path / "cnn" / "url_lists").mkdir(parents=True)
    (tmp_path / "cnn" / "url_lists" / "all_train.txt").write_text("http://x\n")
    name = hashlib.sha1(b"http://x").hexdigest()
    story = "(CNN) One. Two\n\nThree\n\n@highlight\n\nFour\n"
    (tmp_path / "cnn" / f"{name}.story").write_text(story)
    (example,) = reader.read(tmp_path / "cnn", "train", columns)
    assert example.fields == {"source": "(CNN) One.\nTwo\nThree"}
    assert example.label == ("Four",)
    empty = Example("0", {"source": "a"}, (" ",), "x.jsonl:3")
    with pytest.raises(DataError, match=r"x.jsonl:3"):
        task.fit_labels([empty])


@pytest.mark.shared
def test_scitldr_as_published() -> None:
    folder = SHARED / "summarization" / "scitldr_a"
    if not folder.is_dir():
        pytest.skip("no shared data")
    _, task = make_task(f"task.path={folder}", "task.most=1")
    dev = task.read("dev")
    task.fit_labels(dev)
    assert len(dev) == 619
    with gzip.open(folder / "dev.jsonl.gz", "rt", encoding="utf-8") as lines:
        assert dev[0].fields["source"].split("\n") == json.loads(lines.readline())["source"]
