"""CoNLL-U, parts of speech and chunks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from plmctl.config import compose as config
from plmctl.config.build import build
from plmctl.core.errors import ConfigError, DataError
from plmctl.tasks.record import Example

SHARED = Path(__file__).resolve().parents[3].parent / "shared" / "data"
TEXT = """# sent_id = 1
# text = Don't run.
1-2\tDon't\t_\t_\t_\t_\t_\t_\t_\t_
1\tDo\tdo\tAUX\tVB\t_\t3\taux\t_\t_
2\tn't\tnot\tPART\tRB\t_\t3\tadvmod\t_\t_
3\trun\trun\tVERB\tVB\t_\t0\troot\t_\tSpaceAfter=No
3.1\trun\trun\tVERB\tVB\t_\t_\t_\t3:conj\t_
4\t.\t.\tPUNCT\t.\t_\t3\tpunct\t_\t_

1\t#\t#\tSYM\tNN\t_\t0\troot\t_\t_
2\tnew york\tNew York\tPROPN\tNNP\t_\t1\tappos:x\t_\t_
"""


def make_task(name: str, path: object, *words: str) -> Any:
    spec = config.compose(
        "finetune", None, [f"task={name}", f"task.path={path}", "checkpoint=null", *words]
    )
    return build(spec.task, {"pooling": "first"}, path="task")


@pytest.fixture
def bank(tmp_path: Path) -> Path:
    (tmp_path / "en_toy-ud-train.conllu").write_text(TEXT)
    return tmp_path


@pytest.mark.parametrize(
    ("column", "wanted"),
    [
        ("upos", [["AUX", "PART", "VERB", "PUNCT"], ["SYM", "PROPN"]]),
        ("xpos", [["VB", "RB", "VB", "."], ["NN", "NNP"]]),
        ("7", [["aux", "advmod", "root", "punct"], ["root", "appos:x"]]),
    ],
)
def test_words_and_a_column(bank: Path, column: str, wanted: list[list[str]]) -> None:
    found = make_task("pos", bank, f"task.columns.tags={column}").read("train")
    assert [example.fields["words"] for example in found] == [
        ["Do", "n't", "run", "."],
        ["#", "new york"],
    ]
    assert [example.label for example in found] == wanted
    assert found[1].place.endswith("train.conllu:10")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("3\trun\trun\tVERB", "3\trun\trun\t_", r"train.conllu:6: no tag in column upos"),
        ("2\tn't\tnot", "3\tn't\tnot", r"train.conllu:5: the id of word 2 is 3"),
        ("\t3\taux\t_\t_", "", r"train.conllu:4: 6 columns parted by tabs, CoNLL-U has 10"),
        ("\t", " ", r"train.conllu:1|no sentences|1 column"),
    ],
)
def test_other_files(bank: Path, old: str, new: str, message: str) -> None:
    (bank / "en_toy-ud-train.conllu").write_text(TEXT.replace(old, new))
    with pytest.raises(DataError, match=message):
        make_task("pos", bank).read("train")


def test_another_column_is_named(bank: Path) -> None:
    with pytest.raises(ConfigError, match=r"task.columns.tags='upo': one of form.*upos"):
        make_task("pos", bank, "task.columns.tags=upo").read("train")


def test_files_of_conll2000(tmp_path: Path) -> None:
    """With its official names, and a tenth of train as dev."""
    lines = [f"w{n} NN B-NP\nis VBZ B-VP\nbig JJ I-VP\n" for n in range(40)]
    (tmp_path / "train.txt").write_text("\n".join(lines))
    (tmp_path / "test.txt").write_text(lines[0])
    task = make_task("conll2000", tmp_path)
    assert len(task.read("train")) + len(task.read("dev")) == 40
    assert 1 <= len(task.read("dev")) < 12
    assert task.read("test")[0].label == ["B-NP", "B-VP", "I-VP"]
    (tmp_path / "train.txt").write_text("He PRP I-NP I-PER\nhe PRP B-NP O\n")
    (example,) = make_task("chunking", f"[{tmp_path}/train.txt,{tmp_path}/test.txt]").read("train")
    assert example.label == ["B-NP", "B-NP"]  # the third column, IOB1


@pytest.mark.slow  # files written here stay
@pytest.mark.shared
@pytest.mark.skipif(not SHARED.exists(), reason="the shared data sets are not here")
def test_real_files() -> None:
    task = make_task("conll2000", SHARED / "chunking/conll2000")
    task.fit_labels(train := task.read("train"))
    assert len(train) + len(task.read("dev")) == 8936
    assert len(task.names) == 23  # 11 types, with B- and I-, and O
    file = SHARED / "supersense/streusle/streusle.ud_dev.conllulex"
    task = make_task("pos", file)
    task.fit_labels(train := task.read("train"))
    assert len(train) + len(task.read("dev")) == 554
    assert set(task.names) >= {"NOUN", "VERB", "PUNCT"}


@pytest.mark.slow
def test_a_thousand_tags_are_read_and_scored() -> None:
    """As many as categories of CCG, in time that grows with words, not with words times tags."""
    names = [f"T{n}" for n in range(1000)]
    task = make_task("pos", "x")
    draw = np.random.default_rng(0)
    tags = [draw.choice(names, 50).tolist() for _ in range(400)]
    task.fit_labels(Example(str(n), {"words": ["a"] * 50}, own) for n, own in enumerate(tags))
    rows = [{"id": "0", "words": ["a"] * 50, "gold": own, "guess": own[::-1]} for own in tags]
    scores = task.score(rows)
    assert len(task.names) == 1000
    flat = [tag for own in tags for tag in own], [tag for own in tags for tag in own[::-1]]
    right = sum(g == p for g, p in zip(*flat, strict=True))
    assert scores["accuracy"] == right / 20_000
    each = []
    for name in names:
        both = sum(g == name == p for g, p in zip(*flat, strict=True))
        each.append(2 * both / (flat[0].count(name) + flat[1].count(name)))
    assert scores["macro_f1"] == pytest.approx(sum(each) / 1000)
