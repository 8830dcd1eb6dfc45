"""SBERT's objectives against loops, and commands from training to vectors, search and scores."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import plmctl
from plmctl.artifacts.loading import load
from plmctl.cli.app import make_app
from plmctl.config.build import build
from plmctl.config.compose import compose
from plmctl.core.errors import ConfigError, DataError
from plmctl.heads.classify import Classify
from plmctl.models.base import Model
from plmctl.tasks import batches
from plmctl.text.tokenizer import Tokenizer
from plmctl.use.semantic_search import Manner, VectorFile
from tests.objectives.contrastive import W, encoder

PAIRS = [
    ("a cat sat on a mat", "the cat sat", "4.5", "entailment"),
    ("a dog ran", "the cat sat", "0.5", "contradiction"),
    ("a dog ran", "one dog ran to it", "3.5", "entailment"),
    ("the mat", "dogs", "1", "neutral"),
]
TINY = ["size=tiny", "size.width=32", "size.inner_width=64", "tokenizer.vocab_size=400"]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    texts = ["the cat sat on a mat, and one dog ran to it; the dogs"] * 3
    return Tokenizer.train(texts, kind="wordpiece", vocab_size=40)


def write_pairs(file: Path, column: int, times: int = 1) -> Path:
    lines = ["\t".join((a[0], a[1], a[column])) for a in PAIRS] * times
    file.write_text("\n".join(["text\ttext2\tlabel", *lines]) + "\n")
    return file


def make_task(kind: str, path: Path | str, *words: str) -> Any:
    asked = [f"task={kind}", f"task.path={path}", "checkpoint=null", "task.dev_share=0", *words]
    return build(compose("finetune", None, asked).task, {"pooling": "first"}, path="task")


def test_classes_of_two_vectors(tmp_path: Path, tokenizer: Tokenizer) -> None:
    task = make_task("sentence_classes", write_pairs(tmp_path / "a.tsv", 3))
    examples = task.read("train")
    task.fit_labels(examples)
    rows = task.encode(examples, tokenizer)
    model = Model(backbone=encoder(0.0).backbone, heads={}).eval()
    head = model.heads["class"] = Classify(width=W, num_classes=3, dropout=0.0, vectors=3).double()
    batch = batches.collate(rows, np.arange(8))
    logits = task.logits(model, batch)
    states, length = model(batch).last, batch.text.length
    means = [states[n, : length[n]].mean(0) for n in range(8)]
    total = 0.0
    for n, (u, v) in enumerate(zip(means[::2], means[1::2], strict=True)):
        scores = head.linear.weight @ torch.cat([u, v, (u - v).abs()]) + head.linear.bias
        torch.testing.assert_close(logits["class"][2 * n], scores)
        total -= float(scores.detach().log_softmax(-1)[task.names.index(PAIRS[n][3])])
    out = task.loss(logits, batch)
    assert float(out.terms["class"].total.detach()) == pytest.approx(total, rel=1e-9)
    assert task.counts(batch) == {"class": 4}
    stored = {"class": logits["class"].detach().numpy()}
    assert [p["gold"] for p in task.predict(stored, rows, examples)] == [a[3] for a in PAIRS]
    assert task.requires.vectors == 3


def test_scores_of_two_vectors(tmp_path: Path, tokenizer: Tokenizer) -> None:
    file = write_pairs(tmp_path / "a.tsv", 2)
    task = make_task("sentence_scores", file, "task.pooling=max")
    examples = task.read("train")
    rows = task.encode(examples, tokenizer)
    model = Model(backbone=encoder(0.0).backbone, heads={}).eval()
    batch = batches.collate(rows, np.arange(8))
    logits = task.logits(model, batch)
    states, length = model(batch).last, batch.text.length
    largest = [states[n, : length[n]].amax(0) for n in range(8)]
    cosines = [
        float((u @ v / u.norm() / v.norm()).detach())
        for u, v in zip(largest[::2], largest[1::2], strict=True)
    ]
    wanted = sum((c - float(a[2]) / 5) ** 2 for c, a in zip(cosines, PAIRS, strict=True))
    out = task.loss(logits, batch)
    assert float(out.terms["sentence"].total) == pytest.approx(wanted, rel=1e-5)
    predictions = task.predict({"sentence": logits["sentence"].detach().numpy()}, rows, examples)
    assert [p["guess"] for p in predictions] == pytest.approx(cosines)
    assert [p["gold"] for p in predictions] == [4.5, 0.5, 3.5, 1.0]


def test_scores_outside_of_the_scale(tmp_path: Path) -> None:
    task = make_task("sentence_scores", write_pairs(tmp_path / "a.tsv", 2), "task.scale=[0,4]")
    with pytest.raises(DataError, match=r"a\.tsv:2: the score '4\.5' is no number from 0 to 4"):
        task.fit_labels(task.read("train"))
    (tmp_path / "b.tsv").write_text("text\ttext2\tlabel\na\tb\t1e40\n")
    task = make_task("sentence_scores", tmp_path / "b.tsv", "task.scale=[0,1e300]")
    with pytest.raises(DataError, match=r"b\.tsv:2: the score '1e40' is too large"):
        task.fit_labels(task.read("train"))
    with pytest.raises(ConfigError, match=r"task\.scale"):
        make_task("sentence_scores", "x", "task.scale=[5,0]")


def test_the_first_token_of_a_causal_model_has_seen_nothing() -> None:
    node = compose("finetune", None, ["task=bi_encoder", "task.path=x", "checkpoint=null"]).task
    with pytest.raises(ConfigError, match=r"task\.pooling.*the first token sees no other"):
        build(node, {"causal": True}, path="task")


def invoke(*words: str) -> Any:
    done = CliRunner().invoke(make_app(), list(words))
    assert done.exit_code == 0, done.output
    return done


def write_questions(folder: Path) -> Path:
    folder.mkdir()
    nouns = ["cat", "dog", "mat", "bird", "tree", "house", "river", "stone", "cloud", "road"]
    rows = [
        {
            "query": f"where is the {noun}",
            "positive": f"the {noun} is here, and it is the {noun} of all",
            "negatives": [f"the {nouns[n - 1]} is not here"],
        }
        for n, noun in enumerate(nouns)
    ]
    lines = [json.dumps(row) + "\n" for row in rows]
    (folder / "train.jsonl").write_text("".join(lines))
    return folder


@pytest.fixture(scope="module")
def trained(small_text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bi-encoder that has learned ten questions by heart."""
    folder = tmp_path_factory.mktemp("ranking")
    data = write_questions(folder / "data")
    words = [*TINY, "checkpoint=null", f"data.path={small_text}", "train.epochs=40"]
    words += ["optim.lr=2e-3", "train.batch_size=5", "task.max_length=24"]
    words += ["task.likeness=cosine", "task.temperature=0.1", "task.metrics=[mrr@10,recall@1]"]
    words += [f"task.path={data / 'train.jsonl'}", "task.dev_share=0"]
    invoke("finetune", "task=bi_encoder", *words, f"run.dir={folder / 'bi'}")
    return folder


@pytest.mark.slow  # test_a_cross_encoder_orders_again stays
def test_a_bi_encoder_learns_and_searches_the_corpus(trained: Path) -> None:
    words = [f"task.path={trained / 'data' / 'train.jsonl'}", "task=bi_encoder", "split=train"]
    words += [f"checkpoint={trained / 'bi'}", "task.beside=[bm25]", "task.dev_share=0", "--json"]
    result = json.loads(invoke("eval", *words).stdout.splitlines()[-1])
    assert result["searched"] == 20
    assert result["remarks"]["searched"] == "20 texts for 10 questions"
    assert result["metrics"]["train"]["mrr@10/corpus"] > 0.4  # by chance 0.18
    assert set(result["metrics"]) == {"train", "bm25"}
    names = {name for own in result["metrics"].values() for name in own}
    assert names == {"mrr@10/corpus", "recall@1/corpus"}
    lines = Path(result["predictions"]).read_text().splitlines()
    assert len(lines) == 10
    assert len(json.loads(lines[0])["guess"]) == 20


def test_a_cross_encoder_orders_again(trained: Path, small_text: Path, tmp_path: Path) -> None:
    data = trained / "data"
    words = [*TINY, "checkpoint=null", f"data.path={small_text}", "train.steps=2"]
    words += ["task.max_length=40", "train.batch_size=4", f"run.dir={tmp_path / 'cross'}"]
    words += [f"task.path={data / 'train.jsonl'}", "task.dev_share=0"]
    invoke("finetune", "task=cross_encoder", *words)
    for first in ("bm25", str(trained / "bi")):
        asked = [f"checkpoint={tmp_path / 'cross'}", "split=train", "--json", "task=cross_encoder"]
        asked += [f"task.first={first}", "task.candidates=6", f"task.path={data / 'train.jsonl'}"]
        asked += [f"out={tmp_path / 'found.jsonl'}", "overwrite=true", "task.dev_share=0"]
        result = json.loads(invoke("eval", *asked).stdout.splitlines()[-1])
        assert set(result["metrics"]) == {"train", f"first ({first})"}
        rows = [json.loads(line) for line in (tmp_path / "found.jsonl").read_text().splitlines()]
        assert {len(row["guess"]) for row in rows} == {6}
        assert all(row["scores"] == sorted(row["scores"], reverse=True) for row in rows)
        # the same texts in another order: what is found does not change
        found = result["metrics"]["train"]["recall@100/corpus"]
        assert found <= result["metrics"][f"first ({first})"]["recall@100/corpus"]
    wrong = CliRunner().invoke(make_app(), ["eval", *asked, f"task.first={tmp_path / 'cross'}"])
    assert wrong.exit_code != 0
    assert "bm25, or a run of plmctl finetune task=bi_encoder" in wrong.output


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("task", "column"), [("simcse_nli", 3), ("sentence_classes", 3), ("sentence_scores", 2)]
)
def test_from_training_to_vectors(task: str, column: int, small_text: Path, tmp_path: Path) -> None:
    file = write_pairs(tmp_path / "pairs.tsv", column, times=3)
    if task == "simcse_nli":  # a premise with both
        with file.open("a") as stream:
            stream.write("a cat sat on a mat\tno cat sat\tcontradiction\n")
    words = [*TINY, "checkpoint=null", f"data.path={small_text}", "train.steps=2"]
    words += [
        "task.max_length=24",
        f"run.dir={tmp_path / 'run'}",
        f"task.path={file}",
        "task.dev_share=0",
    ]
    invoke("finetune", f"task={task}", *words)
    scored = write_pairs(tmp_path / "sts.tsv", 2)
    asked = ["eval", f"checkpoint={tmp_path / 'run'}", "task=sts", f"task.path={scored}", "--json"]
    result = json.loads(invoke(*asked).stdout.splitlines()[-1])
    own = "first" if task == "simcse_nli" else "mean"
    assert result["pooling"] == f"{own}, as it was trained"
    assert result["metrics"]["sts"]["pairs"] == 4
    loaded = load(tmp_path / "run")
    assert ("sentence" in loaded.model.heads) == (task != "sentence_classes")
    (tmp_path / "lines.txt").write_text("a cat sat\nthe mat\n")
    asked = [f"checkpoint={tmp_path / 'run'}", f"input={tmp_path / 'lines.txt'}"]
    invoke("embed", *asked, "pooling=trained", f"out={tmp_path / 'lines.npz'}")
    with np.load(tmp_path / "lines.npz") as found:
        vocab, tokenizer = loaded.vocab, loaded.tokenizer
        ids = [vocab.id("cls"), *tokenizer.encode("the mat"), vocab.id("sep")]
        assert found["ids_1"].tolist() == ids  # a text alone, no pair
        assert found["hidden_1"].shape == (1, 32)


def test_semantic_search(trained: Path, tmp_path: Path) -> None:
    """The nearest line is found by the vectors that `embed` writes, in a loop over lines."""
    texts = ["the cat is here", "", "the dog is here", "the river is here", "the cat is here"]
    (tmp_path / "corpus.txt").write_text("\n".join(texts) + "\n")
    (tmp_path / "queries.txt").write_text("where is the dog\n\nwhere is the cat\n")
    vectors = {}
    for name in ("corpus", "queries"):
        asked = [f"checkpoint={trained / 'bi'}", f"input={tmp_path / name}.txt", "normalize=true"]
        asked += ["pooling=trained", "dimensions=16"]
        invoke("embed", *asked, f"out={tmp_path / name}.npz")
        with np.load(tmp_path / f"{name}.npz") as found:
            count = len([key for key in found if key.startswith("hidden_")])
            vectors[name] = [found[f"hidden_{n}"][0] for n in range(count)]
    whole = plmctl.load(trained / "bi").embed([texts[0]], pooling="trained")[0, :16]
    assert vectors["corpus"][0] == pytest.approx(whole / np.linalg.norm(whole), abs=1e-6)
    asked = ["embed", f"checkpoint={trained / 'bi'}", f"among={tmp_path / 'corpus.npz'}", "top=3"]
    asked += [f"input={tmp_path / 'queries.txt'}", f"out={tmp_path / 'found.jsonl'}"]
    done = invoke(*asked)
    answers = [json.loads(line) for line in (tmp_path / "found.jsonl").read_text().splitlines()]
    assert [answer["query"] for answer in answers] == ["where is the dog", "where is the cat"]
    for answer, number in zip(answers, (0, 2), strict=True):
        scores = {n: float(vectors["queries"][number] @ vectors["corpus"][n]) for n in (0, 2, 3, 4)}
        order = sorted(scores, key=lambda n: (-round(scores[n], 5), n))[:3]
        assert [each["line"] for each in answer["found"]] == [n + 1 for n in order]
        assert [each["text"] for each in answer["found"]] == [texts[n] for n in order]
        assert [each["score"] for each in answer["found"]] == pytest.approx(
            [scores[n] for n in order], abs=1e-5
        )
    assert "where is the dog" in done.output
    assert json.loads(invoke(*asked, "overwrite=true", "--json").stdout) == {
        "out": f"{tmp_path / 'found.jsonl'}",
        "questions": 2,
        "among": len(texts),
    }
    refused = CliRunner().invoke(make_app(), [*asked, "overwrite=true", "pooling=max"])
    assert refused.exit_code != 0
    assert "pooling='max': trained, as the vectors" in refused.output
    shutil.copytree(trained / "bi", tmp_path / "copied")  # the same weights elsewhere
    asked[1] = f"checkpoint={tmp_path / 'copied'}"
    invoke(*asked, "overwrite=true")
    made = VectorFile.read(tmp_path / "corpus.npz").manner
    with np.load(tmp_path / "corpus.npz") as found:
        other = {**found, **dict(replace(made, model="other").write())}
    np.savez(tmp_path / "corpus.npz", **other)
    refused = CliRunner().invoke(make_app(), [*asked, "overwrite=true"])
    assert refused.exit_code == 2, refused.output
    assert refused.stderr.endswith(f"  fix: checkpoint={trained / 'bi'}\n")
    with pytest.raises(ConfigError, match="other weights now"):
        made.refuse_other(str(trained / "bi"), "other", "corpus.npz")
    old = replace(made, model="")  # of a file without a hash the path decides
    old.refuse_other(f"{trained}/data/../bi", "other", "corpus.npz")
    with pytest.raises(ConfigError, match="whose vectors corpus"):
        old.refuse_other(str(tmp_path / "copied"), made.model, "corpus.npz")


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"hidden_0": np.zeros((1, 4))}, "not vectors with one for each line"),
        ({"made": np.frombuffer(b"{}", np.uint8)}, "no file of vectors"),
        ({"made": np.frombuffer(b"\xff", np.uint8)}, "no file of vectors"),
        ({}, "not vectors with one for each line"),
    ],
)
def test_files_that_cannot_be_searched(
    arrays: dict[str, np.ndarray], message: str, tmp_path: Path
) -> None:
    np.savez(tmp_path / "x.npz", **arrays)
    with pytest.raises(DataError, match=message):
        VectorFile.read(tmp_path / "x.npz")
    (tmp_path / "x.npz").write_text("no")
    with pytest.raises(DataError, match="no file of vectors"):
        VectorFile.read(tmp_path / "x.npz")


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([[1.0, 2.0], [1.0, np.nan]], "the vector of line 2 is not a row of finite numbers"),
        ([[np.inf, 2.0], [1.0, 3.0]], "the vector of line 1 is not a row of finite numbers"),
        ([[1.0, 2.0], [1.0]], "no file of vectors: all input arrays"),
    ],
)
def test_vectors_that_are_ragged_or_not_finite_are_not_searched(
    rows: list[list[float]], message: str, tmp_path: Path
) -> None:
    manner = Manner("runs/a", "mean", -1, True, ["one", "two"])
    arrays = dict(manner.write())
    arrays |= {f"hidden_{n}": np.array([row]) for n, row in enumerate(rows)}
    np.savez(tmp_path / "x.npz", **arrays)
    with pytest.raises(DataError, match=message):
        VectorFile.read(tmp_path / "x.npz")


def test_hard_negatives(trained: Path, tmp_path: Path) -> None:
    """By BM25 the texts with most in common, by a model those with the nearest vectors; never one
    that is right.
    """
    data = trained / "data" / "train.jsonl"
    words = ["data", "mine", "task=bi_encoder", f"task.path={data}", "task.dev_share=0"]
    said = invoke(*words, "negatives=2", f"out={tmp_path / 'words'}", "--json").stdout
    invoke("data", "mine", f"checkpoint={trained / 'bi'}", f"out={tmp_path / 'vectors'}")
    invoke(*words, f"checkpoint={trained / 'bi'}", "skipped=3", f"out={tmp_path / 'later'}")
    found = {
        name: [json.loads(line) for line in (tmp_path / name / "train.jsonl").open()]
        for name in ("words", "vectors", "later")
    }
    negatives = sum(len(row["negatives"]) for row in found["words"])
    counts = {"questions": len(found["words"]), "negatives": negatives}
    assert json.loads(said) == {"out": f"{tmp_path / 'words'}", "splits": {"train": counts}}
    for row in found["words"]:
        noun = row["query"].split()[-1]
        assert row["negatives"][0] == f"the {noun} is not here"  # that shares the rare word
        assert len(row["negatives"]) == 2
    for row, later in zip(found["vectors"], found["later"], strict=True):
        assert len(row["negatives"]) == 4
        assert not set(row["positive"]) & set(row["negatives"])
        assert row["negatives"][3] == later["negatives"][0]
    wrong = CliRunner().invoke(make_app(), ["data", "mine", f"out={tmp_path / 'x'}"])
    assert "task: whose questions are they?" in wrong.output
    wrong = CliRunner().invoke(
        make_app(), ["data", "mine", "task=sst2", f"task.path={data}", f"out={tmp_path / 'x'}"]
    )
    assert "a task of ranking" in wrong.output
