"""Dependency parsing: trees against all trees, the biaffine head against loops, scores, files."""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path

import numpy as np
import pytest
import torch

from plmctl.core.batch import IGNORE
from plmctl.core.errors import ConfigError, DataError
from plmctl.heads.biaffine import Biaffine
from plmctl.tasks import batches
from plmctl.tasks.answers.spanning_tree import find_tree, pick_heads
from plmctl.tasks.dependency import score_trees, shorten
from plmctl.tasks.record import Example
from plmctl.text.tokenizer import Tokenizer
from tests.command import plmctl
from tests.tasks.readers.test_conllu import TEXT, make_task

VERBS, NOUNS = ["sees", "likes", "knows"], ["anna", "bert", "rome", "tea"]


def is_tree(heads: tuple[int, ...]) -> bool:
    """Every word leads to 0, and one stands below it."""
    for start in range(1, len(heads) + 1):
        word = start
        for _ in heads:
            word = heads[word - 1] if word else 0
        if word:
            return False
    return heads.count(0) == 1


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
def test_the_tree_is_the_best_of_all(count: int) -> None:
    trees = [heads for heads in itertools.product(range(count + 1), repeat=count) if is_tree(heads)]
    assert len(trees) == count ** (count - 1)  # rooted trees of labelled words (Cayley, 1889)
    draw, differ = np.random.default_rng(count), 0
    for _ in range(60 if count < 5 else 30):
        scores = draw.normal(size=(count, count + 1)) * draw.choice([0.1, 1, 30])
        sums = {heads: sum(scores[w, h] for w, h in enumerate(heads)) for heads in trees}
        best = max(sums, key=sums.__getitem__)
        assert tuple(find_tree(scores)) == best
        differ += tuple(pick_heads(scores)) != best
        for word, head in enumerate(pick_heads(scores)):
            others = [h for h in range(count + 1) if h != word + 1]
            assert head == max(others, key=lambda h: scores[word, h])
    assert (differ > 0) == (count > 1)


def test_hidden_arcs_are_not_taken() -> None:
    scores = np.full((3, 4), -np.inf)
    scores[0, 2], scores[1, 3], scores[2, 0] = 1.0, 2.0, -50.0
    assert find_tree(scores) == [2, 3, 0]


def test_scores_of_arcs_and_relations_are_those_of_the_equations() -> None:
    torch.manual_seed(0)
    head = Biaffine(width=6, num_classes=3, dropout=0.0, arc_width=5, relation_width=4).double()
    states = torch.randn(2, 4, 6, dtype=torch.float64)  # the root and three words
    heads = torch.tensor([[0, 1, 2], [3, 3, 0]])
    arcs, as_head, as_dependent = head(states)
    relations = head.relate(as_head, as_dependent, heads)
    matrix, bias = head.arcs.weight, head.arcs.bias
    of_relations = head.between.weight.view(3, 4, 4)  # [K, as a head, as a dependent]
    for row, word in itertools.product(range(2), range(3)):
        dependent = head.arc_dependent(states[row, word + 1])
        for other in range(4):
            above = head.arc_head(states[row, other])
            wanted = above @ (matrix @ dependent) + above @ bias
            assert arcs[row, word, other].item() == pytest.approx(wanted.item())
        above = head.relation_head(states[row, heads[row, word]])
        below = head.relation_dependent(states[row, word + 1])
        for kind in range(3):
            wanted = above @ of_relations[kind] @ below
            wanted = wanted + head.beside.weight[kind] @ torch.cat([above, below])
            wanted = wanted + head.beside.bias[kind]
            assert relations[row, word, kind].item() == pytest.approx(wanted.item())


GOLD = {
    "heads": [2, 0, 2, 2],
    "relations": ["nsubj:pass", "root", "obj", "punct"],
    "upos": ["NOUN", "VERB", "NOUN", "PUNCT"],
}


@pytest.mark.parametrize(
    ("punctuation", "wanted"), [(True, (3 / 4, 2 / 4, 1 / 4)), (False, (3 / 3, 2 / 3, 1 / 3))]
)
def test_scores_count_words(punctuation: bool, wanted: tuple[float, ...]) -> None:
    guess = {"heads": [2, 0, 2, 3], "relations": ["nsubj", "root", "iobj", "punct"]}
    found = score_trees([{"gold": GOLD, "guess": guess}], punctuation=punctuation)
    assert (found["uas"], found["las"], found["full_las"]) == pytest.approx(wanted)
    assert score_trees([], punctuation=True) == {"uas": 0.0, "las": 0.0, "full_las": 0.0}


def test_long_words_are_shortened_first() -> None:
    assert shorten([[1], [2, 3, 4], [5, 6, 7]], 5) == [[1], [2, 3], [5, 6]]
    assert shorten([[1, 2], [3]], 1) == [[1], [3]]


def test_trees_are_read(tmp_path: Path) -> None:
    (tmp_path / "toy-ud-train.conllu").write_text(TEXT)
    first, second = make_task("dependency", tmp_path).read("train")
    assert first.label["heads"] == [3, 3, 0, 3]
    assert first.label["relations"] == ["aux", "advmod", "root", "punct"]
    assert second.label["relations"] == ["root", "appos:x"]
    plain = make_task("dependency", tmp_path, "task.reader.subtypes=false").read("train")
    assert plain[1].label["relations"] == ["root", "appos"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "\t3\taux",
            "\t9\taux",
            r"train.conllu:4: the head of word 1 is 9\n  fix: # 0 for the root",
        ),
        ("\t3\taux", "\t1\taux", r"train.conllu:4: the head of word 1 is 1"),
        ("\t3\taux", "\tx\taux", r"train.conllu:4: the head of word 1 is x"),
        (
            "\t0\troot\t_\tSpace",
            "\t1\troot\t_\tSpace",
            r"train.conllu:4: the heads of word 1 run in",
        ),
    ],
)
def test_other_trees_are_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    (tmp_path / "toy-ud-train.conllu").write_text(TEXT.replace(old, new))
    with pytest.raises(DataError, match=message):
        make_task("dependency", tmp_path).read("train")


def write_bank(file: Path, seed: int, count: int) -> None:
    """Subject, verb and object, with as many adverbs as it may be."""
    draw, blocks = random.Random(seed), []
    for _ in range(count):
        again = draw.randrange(3)
        words = [draw.choice(NOUNS), draw.choice(VERBS), draw.choice(NOUNS), *["too"] * again]
        heads, kinds = [2, 0, 2, *[2] * again], ["nsubj", "root", "obj", *["advmod"] * again]
        rows = zip(words, heads, kinds, strict=True)
        blocks.append(
            "".join(
                f"{n}\t{word}\t_\tX\t_\t_\t{head}\t{kind}\t_\t_\n"
                for n, (word, head, kind) in enumerate(rows, 1)
            )
        )
    file.write_text("\n".join(blocks))


def test_rows_have_places_heads_and_relations(tmp_path: Path) -> None:
    task = make_task("dependency", tmp_path, "task.max_length=9")
    tree = {"heads": [2, 0], "relations": ["a", "root"], "upos": ["X", "X"]}
    one = {"heads": [0], "relations": ["root"], "upos": ["X"]}
    examples = [
        Example("0", {"words": ["tea", "likes"]}, tree, "here:1"),
        Example("1", {"words": ["rome"]}, one, "here:2"),
    ]
    tokenizer = Tokenizer.train(["tea likes rome"] * 5, kind="wordpiece", vocab_size=24)
    task.fit_labels(examples)
    rows = task.encode(examples, tokenizer)
    assert rows.labels["tree"].tolist() == [[[2, 0], [0, 1]], [[0, 1], [IGNORE, IGNORE]]]
    assert rows.values["words"][1].tolist() == [1, -1]
    batch = batches.collate(rows, np.arange(2))
    assert task.counts(batch) == {"tree": 3}
    many = [Example("2", {"words": ["a"] * 8}, None, "here:3")]
    with pytest.raises(ConfigError, match=r"task.max_length=9: at least 10, for here:3"):
        task.encode(many, tokenizer)
    with pytest.raises(ConfigError, match=r"trees have no logits to distil"):
        task.flatten_logits({}, batch)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("decode", ["tree", "greedy"])
def test_it_learns_and_is_evaluated(tmp_path: Path, decode: str) -> None:
    write_bank(tmp_path / "toy-ud-train.conllu", 0, 80)
    write_bank(tmp_path / "toy-ud-dev.conllu", 1, 20)
    run = tmp_path / "run"
    plmctl(
        *("finetune", "task=dependency", "checkpoint=null", "tokenizer=wordpiece", "size=tiny"),
        *("tokenizer.vocab_size=50", "size.width=32", "size.num_heads=2", "size.num_layers=1"),
        *("size.inner_width=32", "task.max_length=24", "train.batch_size=16", "optim.lr=5e-3"),
        *("train.epochs=null", "train.steps=40", "train.eval_every=0", "train.save_every=0"),
        *("heads.tree.arc_width=16", "heads.tree.relation_width=16", f"task.decode={decode}"),
        *(f"task.path={tmp_path}", f"run.dir={run}"),
    )
    scores = json.loads((run / "result.json").read_text())["metrics"]["dev"]
    assert scores["uas"] >= scores["las"] > 0.9
    lines = tmp_path / "new.txt"
    lines.write_text("anna likes tea\n")
    plmctl("eval", f"checkpoint={run}", f"input={lines}", f"out={tmp_path}/out.jsonl")
    (row,) = map(json.loads, (tmp_path / "out.jsonl").read_text().splitlines())
    assert row["guess"] == {"heads": [2, 0, 2], "relations": ["nsubj", "root", "obj"]}
    if decode == "tree":
        found = json.loads(plmctl("eval", f"checkpoint={run}", "--json"))["metrics"]["dev"]
        assert found == scores
