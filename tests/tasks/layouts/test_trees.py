"""Sentence trees: the worked case of the paper, the visible matrix by its definition, rows of the
task, arms, lexicons.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from plmctl.attention.patterns.base import Full
from plmctl.attention.patterns.tree import Tree
from plmctl.core.batch import Seq
from plmctl.core.errors import ConfigError, DataError
from plmctl.knowledge.lexicon import TripleLexicon
from plmctl.tasks.layouts.encode import Row
from plmctl.tasks.layouts.trees import Branches, grow
from plmctl.tasks.readers.tables import Table
from plmctl.tasks.record import Example
from plmctl.tasks.tree_classification import TreeClassification

A, B, X, Y, Z = range(5)


def visible(word: list[int], branch: list[int]) -> list[list[bool]]:
    seq = Seq(
        torch.zeros(1, len(word), dtype=torch.long),
        torch.tensor([len(word)]),
        {"word": torch.tensor([word]), "branch": torch.tensor([branch])},
    )
    found = Tree().dense(seq)
    assert found is not None
    return found[0, 0].tolist()


def test_the_worked_case() -> None:
    """AB, where A has the branch x y: positions A0 x1 y2 B1; A sees all, x sees A x y, B sees A
    B.
    """
    tree = grow(Row([A, B], 0, None, 0), [Branches(0, 0, [[X, Y]])], max_length=9)
    assert tree.row.ids == [A, X, Y, B]
    assert tree.position == [0, 1, 2, 1]
    assert visible(tree.word, tree.branch) == [
        [True, True, True, True],
        [True, True, True, False],
        [True, True, True, False],
        [True, False, False, True],
    ]


def test_the_matrix_by_its_definition() -> None:
    """A token of the sentence sees the sentence and the branches of its word, a branch itself and
    the tokens of its word; two branches of one word do not see each other.
    """
    words = [Branches(0, 1, [[10], [11, 12]]), Branches(3, 3, [[13, 14]])]
    tree = grow(Row([1, 2, 3, 4, 5], 0, None, 0), words, max_length=20)
    assert tree.row.ids == [1, 2, 10, 11, 12, 3, 4, 13, 14, 5]
    assert tree.position == [0, 1, 2, 2, 3, 2, 3, 4, 5, 4]
    sentence = {1, 2, 3, 4, 5}
    sees = {1: {10, 11, 12}, 2: {10, 11, 12}, 4: {13, 14}}
    wanted = {token: sentence | sees.get(token, set()) for token in sentence}
    wanted |= {10: {10, 1, 2}, 11: {11, 12, 1, 2}, 12: {11, 12, 1, 2}}
    wanted |= {13: {13, 14, 4}, 14: {13, 14, 4}}
    found = visible(tree.word, tree.branch)
    for q, row in zip(tree.row.ids, found, strict=True):
        assert {k for k, seen in zip(tree.row.ids, row, strict=True) if seen} == wanted[q]
    plain = Seq(torch.zeros(1, 3, dtype=torch.long), torch.tensor([3]))
    assert isinstance(Tree().simplify(plain), Full)


def test_branches_that_do_not_fit_are_left_out() -> None:
    words = [Branches(0, 0, [[X, Y], [Z]]), Branches(1, 1, [[Z, Z], [X]])]
    tree = grow(Row([A, B], 0, 1, 1), words, max_length=6)
    assert tree.row.ids == [A, X, Y, Z, B, X]
    assert (tree.row.b_start, tree.row.anchor) == (4, 4)
    assert grow(Row([A, B], 0, 1, 1), words, max_length=2).row.ids == [A, B]


LINES = "cat\tis\tpet\ncat\thas\tfur\ncat\tis\tanimal\none mat\tlies on\tfloor\n"
TEXT = "the cat sat on one mat"


@pytest.fixture
def lexicon(tmp_path: Path) -> Path:
    file = tmp_path / "kb.spo"
    file.write_text(LINES)
    return file


def _task(**settings: Any) -> TreeClassification:
    reader = Table(splits={"train": ["train.tsv"]})
    own = {"max_length": 32, "metrics": ["accuracy"], "label_names": ["a", "b"], **settings}
    return TreeClassification(name="toy", reader=reader, columns={"text": 0, "label": 1}, **own)


def _encode(toy: Any, fields: dict[str, str], **settings: Any) -> Seq:
    rows = _task(**settings).encode([Example("0", fields, "a")], toy)
    return rows.seqs["text"]


def test_rows_of_the_task(toy: Any, lexicon: Path) -> None:
    known = TripleLexicon(path=str(lexicon))
    text = _encode(toy, {"text": TEXT}, lexicon=known)
    written = "the cat ani mal fur sat on one mat flo or"  # the toy's pieces have three letters
    assert text.ids[0].tolist() == [2, *toy.encode(written), 3]
    assert text.tracks["position"][0].tolist() == [0, 1, 2, 3, 4, 3, 3, 4, 5, 6, 7, 8, 7]
    assert text.tracks["branch"][0].tolist() == [0, 0, 0, 1, 1, 2, 0, 0, 0, 0, 3, 3, 0]
    assert text.tracks["word"][0].tolist() == [0, 0, 1, 1, 1, 1, 0, 0, 2, 2, 2, 2, 0]
    assert text.tracks["segment"][0].tolist() == [0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 1, 1, 0]


def test_arms(toy: Any, lexicon: Path) -> None:
    known = TripleLexicon(path=str(lexicon))
    fields = {"text": TEXT}
    hard = _encode(toy, fields, lexicon=known, soft_positions=False, branch_segment=False)
    assert "position" not in hard.tracks
    assert not hard.tracks["segment"].any()
    without = _encode(toy, fields)
    assert without.ids[0].tolist() == [2, *toy.encode(TEXT), 3]
    assert "branch" not in without.tracks
    node = {"_target_": "plmctl.attention.patterns.tree.Tree"}
    assert _task(lexicon=known).requires.pattern == node
    assert _task(lexicon=known, visible=False).requires.pattern is None
    assert _task().requires.pattern is None
    with pytest.raises(ConfigError, match="branches stand between"):
        _task(pooling="last")


def test_pairs_have_branches_in_both_texts(toy: Any, lexicon: Path) -> None:
    known = TripleLexicon(path=str(lexicon), most=1)
    text = _encode(toy, {"text": "the cat", "text2": "one mat"}, lexicon=known)
    cls, sep = [2], [3]
    wanted = [*cls, *toy.encode("the cat ani mal"), *sep, *toy.encode("one mat flo or"), *sep]
    assert text.ids[0].tolist() == wanted
    assert text.tracks["position"][0].tolist() == [0, 1, 2, 3, 4, 3, 4, 5, 6, 7, 6]
    assert text.tracks["segment"][0].tolist() == [0, 0, 0, 1, 1, 0, 1, 1, 1, 1, 1]


def test_lexicons_and_their_controls(lexicon: Path, tmp_path: Path) -> None:
    def texts(**settings: Any) -> list[tuple[str, ...]]:
        return [each.texts for each in TripleLexicon(path=str(lexicon), **settings).find(TEXT)]

    assert texts() == [("animal", "fur"), ("floor",)]
    assert texts(most=3) == [("animal", "fur", "pet"), ("floor",)]
    assert texts(relations=True) == [("has fur", "is animal"), ("lies on floor",)]
    shuffled = {tuple(texts(control="shuffled", seed=seed)) for seed in range(8)}
    assert shuffled == {(("animal", "fur"), ("floor",)), (("floor",), ("animal", "fur"))}
    random = {tuple(texts(control="random", seed=seed)) for seed in range(8)}
    assert {tuple(map(len, each)) for each in random} == {(2, 1)}
    assert len(random) > 2
    lexicon.write_text("cat\tpet\n")
    with pytest.raises(DataError, match=r"kb.spo:1: 2 columns, not subject.*\n  fix: # lines of s"):
        texts()
    lexicon.write_text("\n")
    with pytest.raises(DataError, match=r"kb.spo: no triples\n  fix: # lines of subject, relation"):
        texts()
    with pytest.raises(DataError, match="no such file of triples"):
        TripleLexicon(path=str(tmp_path / "no")).find(TEXT)


def test_long_rows(toy: Any, lexicon: Path) -> None:
    known = TripleLexicon(path=str(lexicon))
    words = " ".join(["the cat"] * 30)
    text = _encode(toy, {"text": words}, lexicon=known)
    assert text.ids.shape == (1, 32)
    assert not text.tracks["branch"].any()  # the text is never cut for a branch
    assert int(np.max(text.tracks["position"])) == 31
