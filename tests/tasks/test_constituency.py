"""Constituency: random trees there and back, brackets by a loop over spans, files that are broken,
and the task from files to a score.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from plmctl.core.errors import ConfigError, DataError
from plmctl.tasks.phrase_tree import (
    BracketError,
    Branch,
    Phrase,
    TaggedWord,
    build_tree,
    clean,
    linearise,
    parse_trees,
    words_of,
)
from plmctl.tasks.scores.brackets import score_trees
from tests.command import plmctl
from tests.tasks.readers.test_conllu import make_task

BANK = """( (S (NP-SBJ-1 (DT The) (NN cat))
     (VP (VBZ sits) (ADVP (RB here)) (NP (-NONE- *-1)))
     (. .)))
(TOP (S (VP (VB Run) (PRT (RP away)) (-LRB- -LRB-) (NP (NN a\\/b)) (. !))))
((X (FW oui)))
"""


def read(text: str) -> Branch:
    ((_, tree),) = parse_trees([(1, text)])
    return tree


def draw(rng: random.Random, words: int) -> Branch:
    """A random tree, with chains of phrases of the same words."""
    if words == 1:
        tree: Branch = TaggedWord(rng.choice(["NN", ",", ".", "VB"]), f"w{rng.randrange(99)}")
    else:
        cuts = sorted(rng.sample(range(1, words), rng.randint(1, min(3, words - 1))))
        sizes = [b - a for a, b in zip([0, *cuts], [*cuts, words], strict=True)]
        tree = Phrase(rng.choice(["S", "NP", "VP"]), tuple(draw(rng, size) for size in sizes))
    while rng.random() < 0.3:
        tree = Phrase(rng.choice(["S", "NP", "ADVP", "PRT"]), (tree,))
    return tree


def test_labels_of_words_by_hand() -> None:
    first, second, third = (clean(tree) for _, tree in parse_trees(enumerate(BANK.splitlines(), 1)))
    assert first is not None
    assert second is not None
    assert str(first) == (
        "(S (NP (DT The) (NN cat)) (VP (VBZ sits) (ADVP (RB here))) (. .))"
    )  # without the function, the trace and what it leaves empty, and the root
    assert linearise(first) == ["+2~NP~", "-1~S~", "+1~VP~", "-1~S~ADVP", "~~"]
    assert linearise(second)[:2] == ["+1~S+VP~", "+0~S+VP~PRT"]
    assert third == Phrase("X", (TaggedWord("FW", "oui"),))
    assert linearise(third) == ["~~X"]


@pytest.mark.parametrize("seed", range(3))
def test_random_trees_come_back(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(200):
        tree = draw(rng, rng.randint(1, 14))
        assert build_tree(linearise(tree), words_of(tree)) == tree
        assert read(str(tree)) == tree


def test_any_labels_are_a_tree_of_the_words() -> None:
    rng = random.Random(1)
    parts = ["+3~NP~", "-5~~VP", "~~", "+0~S+VP~", "-1~NP~NP+S", "+300~S~"]
    for _ in range(300):
        words = [TaggedWord("NN", f"w{n}") for n in range(rng.randint(1, 9))]
        tree = build_tree([rng.choice(parts) for _ in words], words)
        assert words_of(tree) == words
        assert read(str(tree)) == tree


def count_by_loop(text: str) -> list[tuple[str, int, int]]:
    """Brackets of a tree by its characters: a stack of labels with the words before them."""
    gone = {",", ":", "``", "''", "."}
    stack: list[tuple[str, int]] = []
    found, words = [], 0
    for piece in text.replace("(", " ( ").replace(")", " ) ").split(" "):
        if piece == "(":
            stack.append(("", words))
        elif piece == ")":
            label, start = stack.pop()
            if label != "word" and words > start:
                found.append(("ADVP" if label == "PRT" else label, start, words))
        elif piece and not stack[-1][0]:
            stack[-1] = (piece, words)
        elif piece:
            words += stack[-1][0] not in gone
            stack[-1] = ("word", words)
    return found


@pytest.mark.parametrize("seed", range(3))
def test_brackets_are_those_of_a_loop(seed: int) -> None:
    rng = random.Random(10 + seed)
    pairs = []
    for _ in range(100):
        gold = draw(rng, size := rng.randint(1, 10))
        tagged = iter(words_of(gold))

        def same(tree: Branch, words: object = tagged) -> Branch:
            if isinstance(tree, TaggedWord):
                return next(words)  # type: ignore[call-overload, no-any-return]
            return Phrase(tree.label, tuple(map(same, tree.children)))

        pairs.append((gold, gold if rng.random() < 0.2 else same(draw(rng, size))))
    right = exact = 0
    counts = [0, 0]
    for gold, guess in pairs:
        own, left = count_by_loop(str(gold)), count_by_loop(str(guess))
        exact += sorted(own) == sorted(left)
        counts = [counts[0] + len(own), counts[1] + len(left)]
        for bracket in own:  # each is found once
            if bracket in left:
                left.remove(bracket)
                right += 1
    found = score_trees(*zip(*pairs, strict=True))
    assert found == {
        "f1": 2 * right / sum(counts),
        "precision": right / counts[1],
        "recall": right / counts[0],
        "exact": exact / 100,
    }


@pytest.mark.parametrize(
    ("guess", "right", "guessed"),
    [
        ("(S (A (P this)) (B (Q is) (A (R a) (T test))))", 4, 4),
        ("(S (A (P this)) (B (Q is) (C (R a) (T test))))", 3, 4),
        ("(S (A (P this)) (B (Q is) (A (R a) (U test))))", 4, 4),  # parts of speech do not count
        ("(TOP (S (A (P this)) (A (B (Q is) (R a)) (T test))))", 2, 4),
        ("(S (A (A (P this))) (Q is) (R a) (T test))", 2, 3),  # the second A is of one word, too
    ],
)
def test_brackets_by_hand(guess: str, right: int, guessed: int) -> None:
    gold = read("(S (A (P this)) (B (Q is) (A (R a) (T test))))")
    found = score_trees([gold], [read(guess)])
    assert (found["recall"], found["precision"]) == (right / 4, right / guessed)
    assert found["exact"] == (right == guessed == 4)


def test_punctuation_and_particles_as_evalb_counts_them() -> None:
    gold = read("(S (NP (NN a) (, ,)) (VP (VB b) (PRT (RP c))) (. .))")
    guess = read("(S (NP (NN a)) (, ,) (VP (VB b) (ADVP (RP c)) (. .)))")
    assert score_trees([gold], [guess]) == dict.fromkeys(("f1", "precision", "recall", "exact"), 1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(S (NN a)\n", "m.mrg:1: the tree that begins here does not end"),
        ("(S (NN a)))\n", r"m.mrg:1: a \) too many"),
        ("(S (NN a))\n\nand more\n", "m.mrg:3: 'and' stands in no brackets"),
        ("(S (NP))\n", r"m.mrg:1: \(NP\) has neither a word nor phrases in it"),
        ("(S (NN a)\n  b)\n", "m.mrg:2: 'b' stands behind the contents of its brackets"),
        ("(S (NN a b))\n", "m.mrg:1: 'b' stands behind the contents of its brackets"),
        ("(S (NN a (NP (NN b))))\n", "m.mrg:1: a phrase behind the word 'a'"),
        ("()\n", r"m.mrg:1: \(\) has neither"),
        ("(S (-NONE- *))\n", "m.mrg: no trees"),
        ("(S (N~P (NN a)))\n", "m.mrg:1: the label 'N~P' has a ~, which joins labels"),
        ("(" * 300, "m.mrg:1: more than 200 brackets"),
        ("Anna\tNNP\tB-NP\n", "m.mrg:1: 'Anna' stands in no brackets"),
    ],
)
def test_files_of_no_trees(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "m.mrg").write_text(text)
    with pytest.raises(DataError, match=message):
        make_task("constituency", tmp_path / "m.mrg").read("train")
    with pytest.raises(BracketError):
        read("(a")


def test_words_as_they_are_written_and_sections(tmp_path: Path) -> None:
    for section in ("02", "03", "22", "23", "24"):
        (tmp_path / section).mkdir()
        (tmp_path / section / f"wsj_{section}01.mrg").write_text(BANK)
    task = make_task("constituency", tmp_path)
    examples = task.read("train")
    assert [len(task.read(name)) for name in ("train", "dev", "test")] == [6, 3, 3]
    assert examples[1].fields["words"] == ["Run", "away", "(", "a/b", "!"]
    assert examples[5].place.endswith("03/wsj_0301.mrg:5")
    with pytest.raises(ConfigError, match=r"task.crf='free': null: labels of a tree"):
        make_task("constituency", tmp_path, "task.crf=free")


def test_labels_that_training_lacks_are_never_right(tmp_path: Path) -> None:
    (tmp_path / "train.mrg").write_text("(S (NP (NN a)) (VP (VB b)))\n")
    (tmp_path / "dev.mrg").write_text("(S (NP (NN a)) (X (VB b)))\n")
    task = make_task("constituency", tmp_path)
    for split in ("train", "dev"):
        task.fit_labels(task.read(split))
    assert task.names == ["~~VP", "+1~S~NP"]
    assert task.remarks == [
        "1 of 2 words have a label of their tree that training lacks: these are never right"
    ]


def test_trees_are_learned_and_written(tmp_path: Path) -> None:
    lines = [
        f"(S (NP (DT the) (NN {noun})) (VP (VBZ sees) (NP (DT a) (NN {other}))) (. .))\n"
        for noun in ("cat", "dog", "bird")
        for other in ("mat", "hat")
    ]
    for name in ("train", "dev"):
        (tmp_path / f"{name}.mrg").write_text("".join(lines * 3))
    words = [f"task.path={tmp_path}", "checkpoint=null", f"run.dir={tmp_path / 'run'}", "size=tiny"]
    words += ["size.width=32", "size.inner_width=32", "tokenizer=word", "tokenizer.vocab_size=40"]
    words += ["train.epochs=null", "train.steps=25", "train.eval_every=0", "optim.lr=5e-3"]
    words += ["train.batch_size=8"]
    plmctl("finetune", "task=constituency", "task.max_length=16", *words)
    scores = json.loads((tmp_path / "run" / "result.json").read_text())["metrics"]["dev"]
    assert min(scores[name] for name in ("f1", "precision", "recall", "exact")) > 0.8
    (tmp_path / "new.txt").write_text("the dog sees a (mat .\n")
    told = [f"checkpoint={tmp_path / 'run'}", f"input={tmp_path / 'new.txt'}"]
    plmctl("eval", *told, f"out={tmp_path / 'new.jsonl'}")
    row = json.loads((tmp_path / "new.jsonl").read_text())
    assert [each.word for each in words_of(read(row["guess"]))][4:] == ["-LRB-mat", "."]
