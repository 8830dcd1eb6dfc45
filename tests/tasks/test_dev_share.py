"""What dev is where one file has all labelled examples, and dev sets that stand in train."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from plmctl.config import compose as config
from plmctl.config.build import build
from plmctl.config.command import perform
from plmctl.core.errors import ConfigError, DataError
from plmctl.report.card import make_card
from plmctl.runs import finetuning
from plmctl.tasks import inference
from plmctl.tasks.check import check_task
from plmctl.tasks.readers.holding import hold_out, take_fold
from plmctl.tasks.record import Example
from plmctl.tasks.splits import describe_bundles
from plmctl.tasks.task import Task
from plmctl.tasks.unlabelled import read_unlabelled

SMALL = [
    "checkpoint=null",
    "size=tiny",
    "size.width=16",
    "size.inner_width=16",
    "tokenizer=char",
    "tokenizer.vocab_size=40",
    "train.epochs=1",
    "train.precision=fp32",
    "train.threads=1",
]


def table(file: Path, rows: int = 60, *, first: int = 0) -> Path:
    lines = [f"text number {n}\t{'yes' if n % 3 else 'no'}" for n in range(first, first + rows)]
    file.write_text("text\tlabel\n" + "\n".join(lines) + "\n", encoding="utf-8")
    return file


def task(path: object, *words: str) -> Task:
    cfg = config.compose(
        "finetune", None, ["task=classification", f"task.path={path}", "checkpoint=null", *words]
    )
    return build(cfg.task, {"pooling": "first"}, path="task")


def texts(examples: list[Example]) -> list[str]:
    return [example.fields["text"] for example in examples]


def test_a_dev_split_that_would_be_empty_is_refused(tmp_path: Path) -> None:
    """Each label has one text, which stays in train."""
    file = tmp_path / "few.tsv"
    file.write_text("text\tlabel\n" + "good\tyes\nbad\tno\n" * 3, encoding="utf-8")
    with pytest.raises(DataError, match=r"few.tsv: no examples of dev are left by a dev share of"):
        task(file).read("dev")
    assert len(task(file).read("train")) == 6


def test_a_single_file_is_cut_by_content(tmp_path: Path) -> None:
    one = task(table(tmp_path / "all.tsv"))
    train, dev = one.read("train"), one.read("dev")
    assert (len(train), len(dev)) == (54, 6)
    assert not set(texts(train)) & set(texts(dev))
    lines = (tmp_path / "all.tsv").read_text().splitlines()
    (tmp_path / "other.tsv").write_text("\n".join([lines[0], *reversed(lines[1:])]))
    assert set(texts(task(tmp_path / "other.tsv").read("dev"))) == set(texts(dev))  # not by place
    assert len(task(tmp_path / "all.tsv", "task.dev_share=0.5").read("dev")) == 30


@pytest.mark.parametrize("share", [0.1, 0.25])
def test_a_balanced_part_has_the_share_of_each_label(share: float) -> None:
    sizes = {"a": 120, "b": 57, "c": 9, "d": 3, "e": 2, "f": 1}
    rows = [(f"{label}{n}", label) for label, size in sizes.items() for n in range(size)]
    how = {"unit": lambda row: row[0], "labels": lambda row: [row[1]]}
    train, dev = hold_out(rows, share, **how, balanced=True)
    assert len(dev) == round(share * len(rows))
    assert sorted([*train, *dev]) == sorted(rows)
    counts = Counter(label for _, label in dev)
    for label, size in sizes.items():
        assert (counts[label] > 0) == (size > 1), label
        if label != "a":  # the largest gives to those that would have none
            assert abs(counts[label] - share * size) < 1
    assert set(sizes) == {label for _, label in train}
    assert hold_out(rows[::-1], share, **how, balanced=True)[1] == dev[::-1]
    # without a room for all labels, as many have one as there is
    few = [(f"{n}", str(n % 50)) for n in range(100)]
    assert len({label for _, label in hold_out(few, 0.1, **how, balanced=True)[1]}) == 10


def test_bundles_stay_together_in_a_balanced_part() -> None:
    rows = [(f"{n}", "yes" if n % 30 < 3 else "no", n // 3) for n in range(300)]  # 10 bundles yes
    how = {"unit": lambda row: str(row[2]), "labels": lambda row: [row[1]]}
    train, dev = hold_out(rows, 0.2, **how, balanced=True)
    assert Counter(label for _, label, _ in dev) == {"yes": 6, "no": 54}
    assert not {row[2] for row in dev} & {row[2] for row in train}
    mixed = [(f"{n}", str(n % 4), n // 5) for n in range(200)]  # each bundle has all four
    dev = hold_out(mixed, 0.2, **how, balanced=True)[1]
    assert len(dev) == 40
    assert all(9 <= n <= 12 for n in Counter(label for _, label, _ in dev).values())


def test_every_example_is_in_dev_of_one_fold(tmp_path: Path) -> None:
    table(tmp_path / "train.tsv")
    table(tmp_path / "dev.tsv", first=100)  # is not read
    parts = [task(tmp_path, "task.folds=4", f"task.fold={fold}") for fold in range(4)]
    devs = [texts(part.read("dev")) for part in parts]
    assert [len(dev) for dev in devs] == [15] * 4
    assert sorted(text for dev in devs for text in dev) == sorted(
        f"text number {n}" for n in range(60)
    )
    for part, dev in zip(parts, devs, strict=True):
        assert not set(texts(part.read("train"))) & set(dev)
        assert len(part.read("train")) == 45


@pytest.mark.parametrize("folds", [2, 3, 5])
def test_train_of_each_fold_has_all_labels_of_its_dev(folds: int) -> None:
    """Rare labels, with one to six rows of one to three bundles, whichever parts they fall into."""
    how = {"unit": lambda row: row[0], "labels": lambda row: [row[1]]}
    rows = [(f"u{n}", "usual") for n in range(30)]
    rows += [(f"{copy}{n}", f"rare {n}") for n in range(12) for copy in range(1 + n % 3)] * 2
    devs: Counter[tuple[str, str]] = Counter()
    for fold in range(folds):
        train, dev = take_fold(rows, fold, folds, **how)
        assert {label for _, label in dev} <= {label for _, label in train}
        assert not {unit for unit, _ in dev} & {unit for unit, _ in train}
        devs.update(dev)
    alone = {(f"0{n}", f"rare {n}") for n in range(0, 12, 3)}  # of one bundle: never in dev
    assert devs == Counter(row for row in rows if row not in alone)


@pytest.mark.parametrize("folds", [2, 3, 5, 7])
def test_stratified_folds_have_the_counts_of_scikit_learn(folds: int) -> None:
    sklearn = pytest.importorskip("sklearn.model_selection")
    labels = [["usual", "seldom", "rare"][(n % 2 == 0) + (n % 6 == 0)] for n in range(101)]
    rows = [(f"text {n}", label) for n, label in enumerate(labels)]
    how = {"unit": lambda row: row[0], "labels": lambda row: [row[1]]}
    parts = [take_fold(rows, fold, folds, **how, stratified=True) for fold in range(folds)]
    theirs = sklearn.StratifiedKFold(folds).split(rows, labels)
    wanted = [Counter(labels[place] for place in own) for _, own in theirs]
    found = [Counter(label for _, label in dev) for _, dev in parts]
    for label in set(labels):
        assert sorted(own[label] for own in found) == sorted(own[label] for own in wanted)
    sizes = sorted(sum(own.values()) for own in found)
    assert sizes == sorted(sum(own.values()) for own in wanted)
    assert sorted(row for _, dev in parts for row in dev) == sorted(rows)
    assert all(sorted(train + dev) == sorted(rows) for train, dev in parts)


def test_stratified_folds_keep_groups() -> None:
    """Each fold has the share of each label to half of the largest group."""
    rows = [(n // 4, "yes" if n % 20 < 4 else "no") for n in range(240)]  # 12 groups yes, 48 no
    rows += [(100 + n, label) for n in range(10) for label in ("yes", "no", "no")]  # mixed
    how = {"unit": lambda row: str(row[0]), "labels": lambda row: [row[1]]}
    parts = [take_fold(rows, fold, 5, **how, stratified=True) for fold in range(5)]
    assert not any({n for n, _ in train} & {n for n, _ in dev} for train, dev in parts)
    for label, count in Counter(label for _, label in rows).items():
        shares = [sum(own == label for _, own in dev) for _, dev in parts]
        assert sum(shares) == count
        assert max(abs(share - count / 5) for share in shares) <= 2
    several = [(n, labels) for n in range(60) for labels in [[f"t{n % 3}", f"u{n % 4}"]]]
    how = {"unit": lambda row: str(row[0]), "labels": lambda row: row[1]}
    devs = [take_fold(several, fold, 5, **how, stratified=True)[1] for fold in range(5)]
    for label in ("t0", "t1", "t2", "u0", "u1", "u2", "u3"):
        counts = [sum(label in own for _, own in dev) for dev in devs]
        assert max(counts) - min(counts) <= 2


def test_a_run_records_whether_its_parts_are_stratified(tmp_path: Path) -> None:
    lines = [f"text {n}\t{'yes' if n % 4 else 'no'}" for n in range(40)]
    (tmp_path / "all.tsv").write_text("text\tlabel\n" + "\n".join(lines) + "\n")
    for words in (["task.folds=5", "task.fold=2"], ["task.dev_share=0.2"]):
        part = task(tmp_path / "all.tsv", "task.stratified=true", *words)
        assert Counter(example.label for example in part.read("dev")) == {"yes": 6, "no": 2}
    (tmp_path / "all.tsv").write_text("text\tlabel\n" + "a\t1\nb\t2\nc\t3\n")
    scores = task(tmp_path / "all.tsv", "task=regression", "task.stratified=true", "task.folds=2")
    with pytest.raises(ConfigError, match=r"task\.stratified=True: false: no example of this task"):
        scores.read("dev")


def test_rows_of_one_group_are_in_one_fold(tmp_path: Path) -> None:
    lines = [f"text {n}\tyes\tpatient {n % 7}" for n in range(40)]
    (tmp_path / "all.tsv").write_text("text\tlabel\twho\n" + "\n".join(lines) + "\n")
    words = ["task.columns.bundle=who", "task.folds=3"]
    for fold in range(3):
        part = task(tmp_path / "all.tsv", *words, f"task.fold={fold}")
        sides = [{example.bundle for example in part.read(split)} for split in ("train", "dev")]
        assert not sides[0] & sides[1]
        assert len(sides[0] | sides[1]) == 7
        assert 10 <= len(part.read("dev")) <= 18
    shared = task(tmp_path / "all.tsv", words[0], "task.dev_share=0.3")
    sides = [{example.bundle for example in shared.read(split)} for split in ("train", "dev")]
    assert not sides[0] & sides[1]
    line = describe_bundles(shared.read("train"), shared.read("dev"))
    assert line == f"{len(sides[0])} bundles in train, {len(sides[1])} in dev, none in both"
    findings = {each.name: each.found for each in check_task(shared, None).findings}
    assert findings["bundles"] == f"plmctl finetune has {line}"


@pytest.mark.parametrize("name", ["new.csv", "new.jsonl"])
def test_new_texts_need_no_column_that_answers_do_not_depend_on(tmp_path: Path, name: str) -> None:
    roles = ("label", "id", "bundle", "slice", "probabilities")
    words = [f"task.columns.{role}=own {role}" for role in roles]
    one, file = task(table(tmp_path / "all.tsv"), *words), tmp_path / name
    file.write_text('{"text": "good"}\n' if name.endswith("jsonl") else "text\ngood\n")
    assert texts(read_unlabelled(one, str(file))[1]) == ["good"]
    with pytest.raises(DataError, match="own label"):
        one.splits.read_file(file, one.columns)
    with pytest.raises(DataError, match="own bundle"):
        one.splits.read_file(file, {"text": "text", "bundle": "own bundle"})


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["task.folds=1"], r"task\.folds=1: 2 or more, or null\n  fix: task.folds=5"),
        (["task.fold=1"], r"task\.fold=1: of task\.folds"),
        (["task.folds=3", "task.fold=3"], r"task\.fold=3: from 0 to 2"),
        (["task.folds=3", "task.dev_share=0.1"], r"task\.dev_share=0\.1: without task\.folds=3"),
    ],
)
def test_wrong_folds(words: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        task("x", *words)


def test_without_a_share_a_single_file_is_train_alone(tmp_path: Path) -> None:
    one = task(table(tmp_path / "all.tsv"), "task.dev_share=0")
    assert len(one.read("train")) == 60
    assert not one.splits.has("dev")
    assert inference.check_splits(one) == []


def test_a_folder_without_dev_holds_out_only_where_told(tmp_path: Path) -> None:
    table(tmp_path / "train.tsv")
    assert not task(tmp_path).splits.has("dev")
    assert len(task(tmp_path, "task.dev_share=0.2").read("dev")) == 12
    table(tmp_path / "dev.tsv", 10, first=100)
    with_dev = task(tmp_path, "task.dev_share=0.2")
    assert (len(with_dev.read("train")), len(with_dev.read("dev"))) == (60, 10)


@pytest.mark.parametrize("share", [1.0, -0.1])
@pytest.mark.parametrize("part", ["dev", "test"])
def test_a_share_is_a_share(tmp_path: Path, part: str, share: float) -> None:
    with pytest.raises(ConfigError, match=rf"task\.{part}_share=.*: at least 0 and below 1"):
        task(tmp_path, f"task.{part}_share={share}")


@pytest.mark.parametrize("more", [[], ["task.folds=4"], ["task.dev_share=0"]])
def test_a_test_part_shares_no_unit_with_the_others(tmp_path: Path, more: list[str]) -> None:
    table(tmp_path / "all.tsv")
    found = task(tmp_path / "all.tsv", "task.test_share=0.25", *more)
    parts = {name: {*texts(found.read(name))} for name in ("train", "test", *found.splits.devs)}
    assert len(parts["test"]) == 15
    assert sum(map(len, parts.values())) == len(set().union(*parts.values())) == 60
    table(tmp_path / "test.tsv", 4, first=100)  # a file is read instead
    folder = task(table(tmp_path / "train.tsv").parent, "task.test_share=0.25", *more)
    assert len(folder.read("test")) == 4
    assert (
        len(folder.read("train")) + sum(len(folder.read(dev)) for dev in folder.splits.devs) == 60
    )
    assert not task(tmp_path / "all.tsv", "task.test_share=0.25").splits.whole().divided


def test_equal_texts_fall_on_one_side_and_no_label_is_lost() -> None:
    examples = [
        Example(str(n), {"text": f"t{n // 5}"}, label="rare" if n >= 95 else "common")
        for n in range(100)
    ]
    train, dev = hold_out(
        examples, 0.5, unit=lambda e: e.fields["text"], labels=lambda e: [e.label]
    )
    assert len(dev) == 50
    assert not set(texts(train)) & set(texts(dev))
    assert "rare" in {example.label for example in train}
    assert [int(example.id) for example in dev] == sorted(int(example.id) for example in dev)


def test_one_text_alone_is_no_two_sides() -> None:
    examples = [Example(str(n), {"text": "same"}, label="a") for n in range(10)]
    assert (
        hold_out(examples, 0.5, unit=lambda e: e.fields["text"], labels=lambda e: [e.label])[1]
        == []
    )


def test_questions_of_one_passage_stay_together(tmp_path: Path) -> None:
    def passage(n: int) -> dict:
        return {
            "context": f"passage {n}",
            "qas": [
                {
                    "id": f"{n}-{q}",
                    "question": f"which {q}?",
                    "answers": [{"text": "passage", "answer_start": 0}],
                }
                for q in range(3)
            ],
        }

    data = {"data": [{"paragraphs": [passage(n) for n in range(20)]}]}
    (tmp_path / "all.json").write_text(json.dumps(data))
    cfg = config.compose(
        "finetune", None, ["task=squad", f"task.path={tmp_path / 'all.json'}", "checkpoint=null"]
    )
    squad = build(cfg.task, {"pooling": "first"}, path="task")
    train, dev = ({e.fields["context"] for e in squad.read(split)} for split in ("train", "dev"))
    assert (len(train), len(dev)) == (18, 2)
    assert not train & dev


def test_a_dev_set_that_stands_in_train_is_refused(tmp_path: Path) -> None:
    table(tmp_path / "train.tsv", 60)
    table(tmp_path / "dev.tsv", 20, first=49)
    with pytest.raises(DataError) as error:
        inference.check_splits(task(tmp_path))
    assert (
        str(error.value)
        == f"{tmp_path}: 11 of the 20 examples of dev stand in train with their label: a score on"
        " them says what was learnt by heart\n  fix: task.path=TRAIN_FILE"
        "  # another dev set, or one file alone, of"
        " which a share is held out"
    )
    table(tmp_path / "dev.tsv", 20, first=50)  # half of them: said, not refused
    assert inference.check_splits(task(tmp_path)) == ["dev"]
    table(tmp_path / "dev.tsv", 19, first=0)  # too few to measure anything
    assert inference.check_splits(task(tmp_path)) == ["dev"]


def test_bundles_of_dev_that_stand_in_train_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Customers 0 to 19 in train, 15 to 24 in dev: 5 of these 10 are no new ones."""
    for name, owners in {"train": range(20), "dev": range(15, 25)}.items():
        rows = [f"text {name} {n},{'ab'[n % 2]},{n}\n" for n in owners for _ in "12"]
        (tmp_path / f"{name}.csv").write_text("text,label,owner\n" + "".join(rows))
    asked = ["task=classification", f"task.path={tmp_path}", "task.columns.bundle=owner"]
    found = {f.name: f for f in check_task(task(tmp_path, asked[2]), None).findings}["bundles"]
    assert (found.verdict, found.numbers) == ("bad", {"bundles_in_train": 5})
    assert found.found == "20 bundles in train, 10 in dev, 5 in both"
    run = tmp_path / "run"
    assert (
        finetuning.finetune(config.compose("finetune", None, [*asked, f"run.dir={run}", *SMALL]))
        == 0
    )
    line = "5 of 10 bundles of dev are in train, too: the score does not say how new bundles"
    shown = capsys.readouterr()
    assert line in shown.err.partition("step ")[0]
    assert line in shown.out
    result = json.loads((run / "result.json").read_text())
    assert result["bundles_in_train"] == {"dev": 5}
    assert line in make_card(run, {"task": {"metrics": ["accuracy"]}})


def test_the_score_is_of_what_training_has_not_seen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, run = table(tmp_path / "all.tsv"), tmp_path / "run"
    words = ["task=classification", f"task.path={file}", f"run.dir={run}", *SMALL]
    assert finetuning.finetune(config.compose("finetune", None, words)) == 0
    said = capsys.readouterr().err
    assert "train: 54 examples" in said
    share = "10.0% of 60 (task.dev_share=0.1) held out of train by what they say"
    assert f"dev: 6 examples; nothing is cut; {share}" in said
    scored = [
        json.loads(line) for line in (run / "predictions" / "dev.jsonl").read_text().splitlines()
    ]
    assert len(scored) == 6
    words = (run / "baselines" / "words" / "dev.jsonl").read_text().splitlines()
    assert [json.loads(line)["id"] for line in words] == [row["id"] for row in scored]
    tests = json.loads((run / "result.json").read_text())["p_of_baselines"]["dev"]
    assert tests["words"] == {"p": 1, "swaps": None}

    def rows(*more: str) -> int:
        words = [f"checkpoint={run}", f"out={tmp_path / 'out'}", *more]
        capsys.readouterr()
        assert perform(config.compose("eval", None, words).asked(json=True))
        return json.loads(capsys.readouterr().out)["rows"]

    assert rows() == 6  # as in training
    capsys.readouterr()
    assert rows(f"task.path={table(tmp_path / 'copy.tsv')}") == 6  # by content
    assert (
        rows("task=classification", f"task.path={table(tmp_path / 'new.tsv', 30, first=200)}") == 30
    )
    words = [f"checkpoint={run}", f"task.path={tmp_path / 'new.tsv'}"]
    assert perform(config.compose("eval", None, words))
    said = capsys.readouterr().out
    assert "classification: new" in said
    assert str(run / "eval" / "new.jsonl") in said
