"""Trees as text: there and back, texts that are none, and a model that learns to write them."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from plmctl.core.errors import ConfigError
from plmctl.tasks.phrase_tree import TaggedWord, words_of
from plmctl.tasks.scores.brackets import find_brackets
from plmctl.tasks.tree_text import read_tree, write_tree
from tests.command import plmctl
from tests.tasks.readers.test_conllu import make_task
from tests.tasks.test_constituency import BANK, draw, read

# Vinyals et al., 2015, figure 2, with XX for all parts of speech
SENTENCE = "(S (NP (NNP John)) (VP (VBZ has) (NP (DT a) (NN dog))) (. .))"
WRITTEN = "(S (NP XX )NP (VP XX (NP XX XX )NP )VP XX )S"


def test_the_example_of_the_paper() -> None:
    assert write_tree(read(SENTENCE)) == WRITTEN
    words = words_of(read(SENTENCE))
    for text in (
        WRITTEN,
        WRITTEN.lower().replace("(", "( ").replace(")", ") "),  # as tokenizers write
        "(S(NP XX)(VP XX(NP XX XX))XX)",
        "( s ( n p xx ) ( v p xx ( np xx xx ) ) xx )",
    ):
        found = read_tree(text, words)
        assert str(found.tree) == SENTENCE
        assert found.well_formed


@pytest.mark.parametrize("seed", range(2))
def test_random_trees_come_back(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(200):
        tree = draw(rng, rng.randint(1, 14))
        assert read_tree(write_tree(tree), words_of(tree)) == (tree, True)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", "(TOP (N a) (N b))"),  # words that it lacks
        ("(S XX", "(TOP (S (N a)) (N b))"),
        ("(S (NP XX XX XX )NP XX", "(S (NP (N a) (N b)))"),  # words too many, brackets open
        (")NP (S XX XX )S )S", "(S (N a) (N b))"),  # brackets that were never opened
        ("(S (NP )NP XX XX )S", "(S (N a) (N b))"),  # a phrase without words
        ("(S (XX XX )NP )S", "(S (N a) (N b))"),  # and without a label
        ("what is this ?", "(TOP (N a) (N b))"),
        ("(S XX XX )S (NP", "(S (N a) (N b))"),
        ("XX XX", "(TOP (N a) (N b))"),  # no root
        ("(S XX )S (NP XX )NP", "(TOP (S (N a)) (NP (N b)))"),  # two of them
        ("(S XX hello XX )S", "(S (N a) (N b))"),  # words of its own
        ("well: (S XX XX )S", "(S (N a) (N b))"),
    ],
)
def test_texts_that_are_no_trees(text: str, wanted: str) -> None:
    found = read_tree(text, [TaggedWord("N", "a"), TaggedWord("N", "b")])
    assert (str(found.tree), found.well_formed) == (wanted, False)


def test_any_text_is_a_tree_of_the_words() -> None:
    rng = random.Random(2)
    pieces = ["(", ")", "(S", ")S", "XX", "np", "(NP XX", "(" * 150, "?"]
    for _ in range(300):
        words = [TaggedWord("NN", f"w{n}") for n in range(rng.randint(1, 9))]
        text = " ".join(rng.choice(pieces) for _ in range(rng.randint(0, 30)))
        tree = read_tree(text, words).tree
        assert words_of(tree) == words
        assert read(str(tree)) == tree
        assert read_tree(write_tree(tree), words) == (tree, True)


@pytest.mark.parametrize(
    "word",
    ["tokenize=zh", "lowercase=true", "columns.source=a", "columns.id=n", "reader.lenient=true"],
)
def test_what_says_nothing_of_trees_is_refused(tmp_path: Path, word: str) -> None:
    name = word.partition("=")[0].removesuffix(".source").removesuffix(".id")
    with pytest.raises(ConfigError, match=rf"task\.{name}=(.|\n)*fix: .*task\.{name}"):
        make_task("tree_writing", tmp_path, f"task.{word}")


def test_scores_are_those_of_the_brackets(tmp_path: Path) -> None:
    (tmp_path / "train.mrg").write_text(BANK)
    task = make_task("tree_writing", tmp_path, "search@task.search=greedy")
    first, second, third = task.read("train")
    assert first.fields["source"] == "The cat sits here ."
    assert first.label == ("(S (NP XX XX )NP (VP XX (ADVP XX )ADVP )VP XX )S",)
    flat = read_tree("(S XX XX XX XX XX )S", words_of(read(second.fields["tree"]))).tree
    rows = [
        {"gold_tree": each.fields["tree"], "tree": tree, "well_formed": formed, "nll": 0.0}
        | {"tokens": 4}
        for each, tree, formed in (
            (first, first.fields["tree"].replace("NP", "np"), True),
            (second, str(flat), True),
            (third, "(FW oui)", False),
        )
    ]
    scores = task.score(rows)
    gold = [find_brackets(read(each.fields["tree"])).total() for each in (first, second, third)]
    assert gold == [4, 4, 1]  # S VP PRT NP of the second, of which S is right
    assert scores["precision"] == 1
    assert scores["recall"] == 5 / 9
    assert (scores["exact"], scores["well_formed"]) == (1 / 3, 2 / 3)
    with pytest.raises(ConfigError, match=r"task\.metrics=\['bleu'\]: of f1, precision"):
        make_task("tree_writing", tmp_path, "task.metrics=[bleu]")


@pytest.mark.slow
def test_trees_are_learned_and_written(tmp_path: Path) -> None:
    lines = [
        f"(S (NP (DT the) (NN {noun})) (VP {verb}) (. .))\n"
        for noun in ("cat", "dog", "bird")
        for verb in ("(VBZ sees) (NP (DT a) (NN mat))", "(VBZ sleeps)")
    ]
    for name, times in (("train", 3), ("dev", 1)):
        (tmp_path / f"{name}.mrg").write_text("".join(lines * times))
    words = [f"task.path={tmp_path}", "checkpoint=null", f"run.dir={tmp_path / 'run'}", "size=tiny"]
    words += ["size.width=32", "size.inner_width=32", "tokenizer=word", "tokenizer.vocab_size=40"]
    words += ["train.epochs=null", "train.steps=40", "train.eval_every=0", "optim.lr=1.5e-2"]
    words += [
        "train.batch_size=18",
        "size.num_layers=1",
        "model=encoder_decoder",
        "task.max_target=32",
    ]
    words += ["search@task.search=greedy", "task.max_length=16"]
    plmctl("finetune", "task=tree_writing", *words)
    scores = json.loads((tmp_path / "run" / "result.json").read_text())["metrics"]["dev"]
    assert min(scores[name] for name in ("f1", "exact", "well_formed")) > 0.8
    (tmp_path / "new.txt").write_text("the dog sees a (mat .\n")
    told = [f"checkpoint={tmp_path / 'run'}", f"input={tmp_path / 'new.txt'}"]
    plmctl("eval", *told, f"out={tmp_path / 'new.jsonl'}")
    row = json.loads((tmp_path / "new.jsonl").read_text())
    assert [each.word for each in words_of(read(row["tree"]))][4:] == ["-LRB-mat", "."]
