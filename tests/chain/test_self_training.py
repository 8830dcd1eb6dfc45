"""Texts labelled by models, and self-training, against loops written from their definitions."""

from __future__ import annotations

import csv
import json
import math
import shlex
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from typer.testing import CliRunner

from plmctl.artifacts.loading import find
from plmctl.chain.self_training import describe, find_threshold, spell_row
from plmctl.cli.app import make_app
from plmctl.core.errors import ConfigError, DataError
from plmctl.datasets.label import (
    Guess,
    LeftOut,
    choose_guesses,
    choose_uncertain,
    make_guess,
    make_table,
    spell_table,
)
from plmctl.jobs.job import Job
from plmctl.storage.formulas import unguard
from plmctl.tasks.answers.label_loss import LabelLoss
from plmctl.tasks.readers.tables import Table
from plmctl.tasks.record import Example
from plmctl.text.tabular import TableSpelling
from tests.command import plmctl

SMALL = [
    *("task=classification", "size=tiny", "size.width=32", "size.inner_width=64"),
    *("tokenizer=char", "checkpoint=null", "train.precision=fp32", "train.threads=1"),
    *("train.epochs=null", "train.steps=4", "train.batch_size=8", "task.max_length=16"),
    *("optim.lr=1e-2", "train.eval_every=0", "task.columns.text=body"),
]


def test_what_several_models_say_is_the_softmax_of_their_mean_score() -> None:
    draws = torch.Generator().manual_seed(1)
    scores = (torch.randn(3, 4, generator=draws, dtype=torch.float64) * 3).tolist()
    weights = [0.5, 1.0, 2.5]

    def normalise(own: list[float]) -> dict[str, float]:
        total = sum(math.exp(score) for score in own)
        return {str(k): math.exp(score) / total for k, score in enumerate(own)}

    answers = [{"probabilities": normalise(own)} for own in scores]
    mean = [sum(weights[m] * scores[m][k] for m in range(3)) / sum(weights) for k in range(4)]
    example = Example("0", {"text": "a"})
    found = make_guess(example, answers, weights=weights, temperature=2.0)
    assert found.shares == pytest.approx(normalise([score / 2 for score in mean]))
    plain = normalise(mean)
    assert found.label == max(plain, key=lambda name: plain[name])
    assert found.sure == pytest.approx(max(plain.values()))
    kept = make_guess(example, answers, weights=weights, decide=lambda shares: "3")
    assert (kept.label, kept.sure) == ("3", pytest.approx(plain["3"]))
    gone = [{"probabilities": {"a": 1.0, "b": 0.0}}]  # rounded: no logarithm of 0
    assert make_guess(example, gone).shares == pytest.approx({"a": 1.0, "b": 0.0})


def test_of_each_label_the_surest_are_kept() -> None:
    sure = [0.9, 0.6, 0.8, 0.95, 0.7, 0.99, 0.5]
    guesses = [
        Guess(Example(str(n), {"text": str(n)}), label, p, {label: p})
        for n, (label, p) in enumerate(zip("aabaabc", sure, strict=True))
    ]

    def keep(threshold: float, share: float) -> list[int]:
        kept = choose_guesses(guesses, threshold=threshold, share=share)
        return [guesses.index(guess) for guess in kept]

    assert keep(0.0, 1.0) == list(range(7))
    assert keep(0.7, 1.0) == [0, 2, 3, 4, 5]
    assert keep(0.0, 0.5) == [0, 3, 5, 6]  # two of a, one of b, one of c at least
    assert keep(0.7, 0.3) == [3, 5]
    assert keep(1.0, 1.0) == []


def test_the_loss_of_probabilities_is_their_cross_entropy() -> None:
    logits = torch.randn(5, 3, generator=torch.Generator().manual_seed(2))
    shares = torch.rand(5, 3, generator=torch.Generator().manual_seed(3)).softmax(-1)
    wanted = torch.nn.functional.cross_entropy(logits, shares, reduction="sum")
    torch.testing.assert_close(LabelLoss.of_shares(logits, shares), wanted)
    second = torch.cat([shares[:4], torch.full((1, 3), -100.0)])  # a further row of an example
    torch.testing.assert_close(
        LabelLoss.of_shares(logits, second), LabelLoss.of_shares(logits[:4], shares[:4])
    )
    LabelLoss(None, 0.0, 0.0).refuse_shares()
    for weights, gamma, smoothing in (("balanced", 0.0, 0.0), (None, 2.0, 0.0), (None, 0.0, 0.1)):
        with pytest.raises(ConfigError, match=r"task\.columns\.probabilities"):
            LabelLoss(weights, gamma, smoothing).refuse_shares()


def test_probabilities_are_read_and_checked(tmp_path: Path) -> None:
    columns = {"text": "text", "label": "label", "probabilities": "p"}
    reader = Table(splits={"train": ["train.*"]})

    def read(name: str, *lines: str) -> list[Example]:
        (tmp_path / name).write_text("\n".join(lines) + "\n")
        return reader.read_file(tmp_path / name, columns)

    line = '{"text": "a", "label": "x", "p": {"x": 0.75, "y": 0.25}}'
    assert [e.shares for e in read("train.jsonl", line)] == [{"x": 0.75, "y": 0.25}]
    cells = read("train.tsv", "text\tlabel\tp", 'a\tx\t{"x": 0.75, "y": 0.25}')
    assert cells[0].shares == {"x": 0.75, "y": 0.25}
    assert dict(cells[0].fields) == {"text": "a"}
    for wrong in ('{"x": 0.75}', '{"x": 2, "y": -1}', '"x"', "{}"):
        with pytest.raises(DataError, match=r"train\.jsonl"):
            read("train.jsonl", f'{{"text": "a", "label": "x", "p": {wrong}}}')


@pytest.mark.parametrize(
    ("kind", "gold", "soft"),
    [
        ("jsonl", '{"text": "a", "label": "x"}', '{"text": "a", "label": "x", "p": {"x": 1}}'),
        ("tsv", "text\tlabel\na\tx", 'text\tlabel\tp\na\tx\t{"x": 1}'),
    ],
)
def test_only_train_has_to_state_probabilities(
    tmp_path: Path, kind: str, gold: str, soft: str
) -> None:
    names = {split: [f"{split}.*"] for split in ("train", "dev", "dev_soft", "test")}
    columns = {"text": "text", "label": "label", "probabilities": "p"}
    reader = Table(splits=names)
    for split in names:
        text = soft if split == "dev_soft" else gold
        (tmp_path / f"{split}.{kind}").write_text(f"{text}\n")
    for split in ("dev", "test"):
        (example,) = reader.read(tmp_path, split, columns)
        assert (example.label, example.shares) == ("x", None)
    assert reader.read(tmp_path, "dev_soft", columns)[0].shares == {"x": 1.0}
    with pytest.raises(DataError, match=r"task\.columns\.probabilities="):
        reader.read(tmp_path, "train", columns)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("labels")
    (folder / "data").mkdir()
    for split, begin in (("train", 0), ("dev", 20), ("test", 40)):
        rows = [
            f"a {'fine' if n % 2 else 'dull'} film {begin}{n}\t{'+-'[n % 2]}\tK{begin + n // 4}"
            for n in range(8)
        ]
        file = folder / f"data/{split}.tsv"
        file.write_text("\n".join(["body\tlabel\tcustomer", *rows]) + "\n")
    texts = [f"a {'fine' if n % 3 else 'dull'} play {n}" for n in range(12)]
    lines = [*texts, "a dull film 00"]
    (folder / "new.txt").write_text("\n".join(lines) + "\n")
    (folder / "new.csv").write_text("\n".join(["body", *lines]) + "\n")
    words = (f"task.path={folder}/data", "task.columns.bundle=customer")
    plmctl("finetune", *SMALL, *words, f"run.dir={folder}/teacher")
    return folder


def read_rows(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_labelled_texts_are_what_eval_says_of_them(place: Path) -> None:
    out = place / "all"
    given = (f"checkpoint={place}/teacher", f"input={place}/new.txt")
    said = json.loads(plmctl("data", "label", *given, f"out={out}", "--json"))
    # one of the texts is known
    assert (said["labelled"], said["texts"], said["kept"]) == (8, 13, 12)
    assert sum(said["labels"].values()) == 12
    plmctl("eval", *given, f"out={place}/said.jsonl")
    rows, answers = read_rows(out / "train.jsonl"), read_rows(place / "said.jsonl")
    assert [row["label"] for row in rows[:8]] == ["+", "-"] * 4
    assert rows[0]["probabilities"] == {"+": 1.0, "-": 0.0}
    assert [row["bundle"] for row in rows] == ["K0"] * 4 + ["K1"] * 4 + [""] * 12
    assert len(rows) == 20
    for row, answer in zip(rows[8:], answers[:12], strict=True):
        assert row["text"] == answer["text"]
        assert row["label"] == answer["guess"]
        assert row["probabilities"] == pytest.approx(answer["probabilities"], abs=1e-5)
    assert [row["text"] for row in read_rows(out / "dev.jsonl")] == [
        f"a {'fine' if n % 2 else 'dull'} film 20{n}" for n in range(8)
    ]
    assert json.loads((out / "made.json").read_text())["made by"] == "plmctl data label"
    assert "is there already" in plmctl("data", "label", *given, f"out={out}", code=2)


@pytest.mark.parametrize(
    ("by", "order"),
    [("margin", ["b", "a", "c"]), ("confidence", ["b", "a", "c"]), ("entropy", ["a", "b", "c"])],
)
def test_the_least_sure_texts_come_first(by: str, order: list[str]) -> None:
    shares = {"a": (0.46, 0.27, 0.27), "b": (0.44, 0.43, 0.13), "c": (0.9, 0.05, 0.05)}
    guesses = [
        Guess(Example("0", {"text": text}), "x", max(own), dict(zip("xyz", own, strict=True)))
        for text, own in [*shares.items(), ("B ", shares["b"])]  # of equal texts one is enough
    ]
    found = choose_uncertain(guesses, count=9, by=by)
    assert [guess.example.fields["text"] for guess in found] == order
    assert choose_uncertain(guesses, count=1, by=by)[0].example.fields["text"] == order[0]


def test_uncertain_texts_wait_for_a_label_in_front_of_the_labelled(
    place: Path, tmp_path: Path
) -> None:
    new = tmp_path / "new.txt"
    new.write_text((place / "new.txt").read_text() + '=a "fine", play\n')
    given = (f"checkpoint={place}/teacher", f"input={new}", f"out={tmp_path}/next")
    said = plmctl("data", "label", *given, "uncertain=3", "share=0.5", code=2)
    assert "share=0.5: 1 with uncertain=3, which writes no guesses" in said
    said = json.loads(plmctl("data", "label", *given, "uncertain=13", "--json"))
    assert (said["uncertain"], said["labelled"]) == (13, 8)
    rows = list(csv.DictReader((tmp_path / "next/train.csv").open(encoding="utf-8-sig")))
    assert [row["label"] for row in rows] == [""] * 13 + ["'+", "'-"] * 4
    doubts = [abs(float(row["probability"]) - 0.5) for row in rows[:13]]
    assert doubts == sorted(doubts)
    plmctl("predict", f"checkpoint={place}/teacher", given[1], f"out={tmp_path}/said.jsonl")
    answers = {row["text"]: row["guess"] for row in read_rows(tmp_path / "said.jsonl")}
    guessed = {unguard(row["body"]): row["guess"][1:] for row in rows[:13]}
    assert guessed == {text: answers[text] for text in guessed}
    words = ["finetune", *SMALL, f"task.path={tmp_path}/next", f"run.dir={tmp_path}/run"]
    assert "train.csv:2: the label is empty" in plmctl(*words, code=3)
    for row in rows[:13]:
        row["label"] = row["guess"]
    with (tmp_path / "next/train.csv").open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, fieldnames=list(rows[0]))
        table.writeheader()
        table.writerows(rows)
    examples = Table(splits={"train": ["train.*"]}).read(
        str(tmp_path / "next"), "train", {"text": "body", "label": "label"}
    )
    assert '=a "fine", play' in [example.fields["text"] for example in examples]
    assert len(examples) == 21


def test_texts_in_a_column_of_another_name(place: Path, tmp_path: Path) -> None:
    new = tmp_path / "new.csv"
    new.write_text("ticket,message\n7,a fine newt\n8,a dull newt\n")
    words = ["data", "label", f"checkpoint={place}/teacher", f"input={new}", "uncertain=2"]
    words += [f"out={tmp_path}/next"]
    assert "fix: task.columns.text=message" in plmctl(*words, code=3)
    assert "columns alone" in plmctl(*words, "task.max_length=9", code=2)
    said = json.loads(plmctl(*words, "task.columns.text=message", "--json"))
    assert said["uncertain"] == 2
    rows = list(csv.DictReader((tmp_path / "next/train.csv").open(encoding="utf-8-sig")))
    assert {row["body"] for row in rows[:2]} == {"a fine newt", "a dull newt"}
    assert "message" not in rows[0]


def test_a_table_for_people_keeps_the_columns_of_its_files() -> None:
    asked = [Guess(Example("0", {"text": "good"}), "+", 0.6, {"+": 0.6, "-": 0.4})]
    own = [{"ticket": "T-9", "body": "good", "label": "", "guess": "?"}]
    own += [{"ticket": "T-1", "body": "bad", "label": "-", "guess": "+", "day": "Mon"}]
    names = {"text": "body", "text2": "text2", "label": "label"}
    done = [Example("1", {"text": "bad"}, "-")]
    table = make_table(done, asked, names, own)
    rows = list(csv.reader(spell_table(table, TableSpelling(";"))[1:].splitlines(), delimiter=";"))
    assert rows[0] == ["ticket", "body", "label", "day", "source_guess", "guess", "probability"]
    assert rows[1] == ["T-9", "good", "", "", "?", "'+", "0.6"]
    assert rows[2] == ["T-1", "bad", "'-", "Mon", "", "'+", ""]  # the guess of an earlier round
    held = make_table(done, [], {**names, "bundle": "customer"}, own[1:])
    assert held[0] == ["customer", "ticket", "body", "label", "guess", "day"]
    bare = make_table([], asked, names, [{"body": "good", "id": "7"}])
    assert bare == [["body", "id", "label", *rows[0][-2:]], ["good", "7", "", "+", 0.6]]


def test_unknown_texts_stay_out_and_copies_but_for_case_are_known() -> None:
    texts = ["A  Cat", "a cow", "中文", "a dog"]
    several = [Example("", {"text": text}, place=f"t:{n}") for n, text in enumerate(texts)]
    known = {"dev": [Example("", {"text": "a cat"}, "+")]}
    left = LeftOut.find(several, known, bundled=False, unread={"t:2", "t:0"})
    assert left.places == {"t:0", "t:2"}
    assert left.describe() == {
        "known texts": "1 in the labelled examples, dev or test: left out",
        "unknown texts": "1, whose tokens the model hardly knows: left out, the first t:2",
    }


def test_texts_of_bundles_of_dev_and_test_stay_out(place: Path, tmp_path: Path) -> None:
    """Customers 0 and 1 are in train, 20 and 21 in dev, 40 and 41 in test."""
    new = tmp_path / "new.csv"
    texts = [f"a fine {animal};K{c}" for c in (0, 7, 21, 40) for animal in ("cat", "dog")]
    texts += ["a fine eel;", "a dull film 00;K0", "a fine cow;K7", "a fine cow;K8"]
    new.write_text("\n".join(["body;customer", *texts]) + "\n")
    given = (f"checkpoint={place}/teacher", f"input={new}")
    said = plmctl("data", "label", *given, f"out={tmp_path}/next", "uncertain=7")
    assert "bundles of dev or test: 4 texts of 2 bundles: left out" in said
    assert "texts without a bundle: 1, which may" in said
    assert "known texts: 1 in the labelled" in said
    assert "train.csv: 4 of 7 texts" in said  # cat and dog twice, an eel, a cow twice
    assert "copies: 3 of 7 texts stand there again, and come once" in said
    assert "task.columns.bundle=customer" in said
    tables = {
        split: [*csv.DictReader(file.open(encoding="utf-8-sig"), delimiter=";")]
        for split in ("train", "dev", "test")
        if (file := tmp_path / f"next/{split}.csv")
    }
    assert {row["customer"] for row in tables["train"][:4]} <= {"K0", "K7", "K8", ""}
    assert [row["customer"] for row in tables["train"][4:]] == ["K0"] * 4 + ["K1"] * 4
    assert [row["customer"] for row in tables["dev"]] == ["K20"] * 4 + ["K21"] * 4
    assert [row["customer"] for row in tables["test"]] == ["K40"] * 4 + ["K41"] * 4


def test_the_threshold_of_a_fix_goes_into_the_line_that_goes_on() -> None:
    why = "none of 9 new texts has a label of 0.99 or more\n  fix: threshold=0.62"
    assert find_threshold(why) == ["threshold=0.62"]
    assert find_threshold("out of memory\n  fix: train.micro_batch_size=8") == []


def test_a_threshold_that_the_checkpoint_keeps_decides(place: Path, tmp_path: Path) -> None:
    shutil.copytree(place / "teacher", tmp_path / "run")
    given = (f"checkpoint={tmp_path}/run", f"input={place}/new.txt")
    plmctl("eval", *given, f"out={tmp_path}/said.jsonl")
    shares = [row["probabilities"]["+"] for row in read_rows(tmp_path / "said.jsonl")][:12]
    threshold = sum(sorted(shares)[5:7]) / 2
    wanted = ["+" if share >= threshold else "-" for share in shares]
    assert wanted != ["+" if share >= 0.5 else "-" for share in shares]
    own = {"temperature": 1.0, "threshold": threshold, "label": "+", "fitted": "dev"}
    (find(tmp_path / "run") / "decision.json").write_text(json.dumps(own))
    said = plmctl("data", "label", *given, f"out={tmp_path}/out")
    assert f"decision: threshold {threshold:.4g} of +, fitted on dev\n" in said
    rows = read_rows(tmp_path / "out/train.jsonl")[8:]
    assert [row["label"] for row in rows] == wanted
    assert [row["probabilities"]["+"] for row in rows] == pytest.approx(shares, abs=1e-5)


def test_empty_texts_are_left_out_and_one_label_for_all_is_told(
    place: Path, tmp_path: Path
) -> None:
    file, run = tmp_path / "new.csv", tmp_path / "run"
    file.write_text('body\na fine play\n""\na dull play\n"  "\n中文没有\n')
    shutil.copytree(place / "teacher", run)
    own = {"temperature": 1.0, "threshold": 0.0, "label": "+", "fitted": "dev"}
    (find(run) / "decision.json").write_text(json.dumps(own))
    given = (f"checkpoint={run}", f"input={file}", "labelled=false")
    result = CliRunner().invoke(make_app(), ["data", "label", *given, f"out={tmp_path}/out"])
    assert result.exit_code == 0, result.output
    assert f"left out: 2 empty texts, the first {file}:3" in result.stdout
    assert f"the model hardly knows: left out, the first {file}:6" in result.stdout
    assert "all 2 texts have the label +: they teach no other one" in result.stderr
    texts = [row["text"] for row in read_rows(tmp_path / "out/train.jsonl")]
    assert texts == ["a fine play", "a dull play"]
    row = {"round": "round 1", "folder": "x", "seconds": 1.0, "metric": "accuracy", "score": 0.5}
    assert spell_row({**row, "texts": 2, "labels": {"+": 2}})[-1] == "2, all +"
    assert spell_row({**row, "texts": 2, "labels": {"+": 1, "-": 1}})[-1] == "2"


def test_a_lost_training_file_is_told_before_any_text_is_read(place: Path, tmp_path: Path) -> None:
    given = (f"checkpoint={place}/teacher", f"input={place}/new.txt")
    train = place / "data/train.tsv"
    train.rename(tmp_path / "train.tsv")
    try:
        said = plmctl("data", "label", *given, f"out={tmp_path}/x", code=2)
        plmctl("data", "label", *given, "labelled=false", f"out={tmp_path}/y")
    finally:
        (tmp_path / "train.tsv").rename(train)
    assert f"labelled=True: the examples that {place}/teacher was trained on are no longer" in said
    assert "fix: labelled=false" in said
    assert len(read_rows(tmp_path / "y/train.jsonl")) == 13  # one of them was an example
    assert (tmp_path / "y/dev.jsonl").is_file()


def test_mistakes_are_named(place: Path, tmp_path: Path) -> None:
    given = (f"checkpoint={place}/teacher", f"input={place}/new.txt", f"out={tmp_path}/x")
    said = plmctl("data", "label", *given, "threshold=1", code=2)
    assert "none of 12 new texts has a label of 1 or more" in said
    assert "1 numbers" in plmctl("data", "label", *given, "weights=[1,2]", code=2)
    tuned = [*SMALL, f"task.path={place}/data"]
    said = plmctl("self-train", *tuned, "rounds=0", "run.dir=x", code=2)
    for told in ("rounds", "run.dir", "must be given"):
        assert told in said
    missing = (f"input={tmp_path}/none.txt", f"out={tmp_path}/s")
    assert "none.txt" in plmctl("self-train", *tuned, *missing, code=3)
    new = f"input={place}/new.txt"
    for name, content, told in (
        ("empty.txt", "\n", "the file is empty"),
        ("other.csv", "lines\na\n", "body"),
        ("odd.txt", b"\xff\xfe\xfa", "not UTF-8"),
    ):
        file = tmp_path / name
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
        assert told in plmctl("self-train", *tuned, f"input={file}", "--dry-run", code=3)
        file.unlink()
    said = plmctl("self-train", *tuned, new, "round=2", "treshold=0.9", code=2)
    assert "(did you mean 'rounds'?)\n  fix: rounds=2\n" in said
    assert "fix: threshold=0.9\n" in said
    old = f"input={tmp_path}/old.txt"
    (tmp_path / "old.txt").write_text("a dull film 00\n")
    said = plmctl("data", "label", given[0], given[2], old, code=3)
    assert "old.txt: none of its texts is left: 1 in the labelled examples" in said
    (tmp_path / "old.txt").unlink()
    for words, told in (
        (["train.share=0.5"], "train.share=0.5: 1: students would learn a share"),
        (["task=sst2"], "one label for each text or pair of a table"),
        (["task=multilabel", "task.columns.text=body"], "one label for each text or pair"),
    ):
        assert told in plmctl("self-train", *tuned, new, *words, "--dry-run", code=2)
    named = ("task.name=tickets", "task.reader.header=true", "--dry-run")
    assert len(plmctl("self-train", *tuned, new, *named).splitlines()) == 3
    assert not list(tmp_path.iterdir())
    (tmp_path / "train.tsv").write_text((place / "data/train.tsv").read_text())
    alone = (*SMALL, f"task.path={tmp_path}", new, f"out={tmp_path}/s")
    assert "task.dev_share=0.1" in plmctl("self-train", *alone, code=3)
    assert len(list(tmp_path.iterdir())) == 1
    plmctl("self-train", *alone, "task.dev_share=0.2", "--dry-run")
    said = plmctl("data", "label", *given, f"labelled_from={place}/none", code=3)
    assert f"{place}/none" in said


def test_scores_are_compared_as_they_are(tmp_path: Path) -> None:
    scores = {"one": 0.900004, "two": 0.900001}
    for name, score in scores.items():
        (tmp_path / name / "run").mkdir(parents=True)
        result = {"metrics": {"dev": {"accuracy": score, "macro_f1": 0.0}}}
        (tmp_path / name / "run/result.json").write_text(json.dumps(result))
    jobs = {name: Job(name, "finetune", name, {}) for name in scores}
    events = SimpleNamespace(of=lambda name: SimpleNamespace(seconds=1.0))
    journal = SimpleNamespace(jobs=jobs, folder=tmp_path, done=[*jobs.values()], events=events)
    rows = describe(cast(Any, journal))
    assert {row["round"]: row["score"] for row in rows} == scores
    assert {row["metric"] for row in rows} == {"accuracy"}


@pytest.mark.slow  # test_a_student_learns_probabilities stays
def test_rounds_of_self_training_go_on_where_they_were(place: Path) -> None:
    out = place / "rounds"
    words = [*SMALL, f"task.path={place}/data", f"input={place}/new.csv", f"out={out}"]
    words += ["rounds=2", "train.device=cpu"]
    plan = plmctl("self-train", *words, "--dry-run").splitlines()
    verbs = [line.split()[1] for line in plan]
    assert verbs == ["finetune", "data", "finetune", "data", "finetune"]
    assert "task.columns.text=text" in plan[2]
    assert "device=cpu" in shlex.split(plan[1])
    assert not out.exists()
    first = json.loads(plmctl("self-train", *words, "--json"))["rounds"]
    assert [row["round"] for row in first] == ["teacher", "round 1", "round 2"]
    assert first[0]["texts"] == 0
    assert [row["texts"] for row in first[1:]] == [12, 12]
    check_second_round(place, shlex.split(plan[3]), student=first[1]["folder"])
    last, before = Path(first[-1]["folder"]), Path(first[-2]["folder"])
    scores = json.loads((last / "result.json").read_text())["metrics"]
    shutil.rmtree(last)  # as if it had been stopped before its first checkpoint
    times = [file.stat().st_mtime_ns for file in sorted(before.rglob("*"))]
    again = json.loads(plmctl("self-train", *words, "--json"))["rounds"]
    assert json.loads((last / "result.json").read_text())["metrics"] == scores
    assert again[-1]["folder"] == str(last)
    assert [file.stat().st_mtime_ns for file in sorted(before.rglob("*"))] == times


def check_second_round(place: Path, words: list[str], *, student: str) -> None:
    """Its training set is the labelled examples, and all texts as the first student labels them
    (Xie et al., 2020, algorithm 1, steps 2 to 4).
    """
    out = next(word.removeprefix("out=") for word in words if word.startswith("out="))
    rows = read_rows(Path(out) / "train.jsonl")
    assert [row["label"] for row in rows[:8]] == ["+", "-"] * 4  # none of them is a guess
    given = (f"checkpoint={student}", f"input={place}/new.txt", f"out={place}/second.jsonl")
    plmctl("eval", *given)
    said = [(row["text"], row["guess"]) for row in read_rows(place / "second.jsonl")][:12]
    assert [(row["text"], row["label"]) for row in rows[8:]] == said


def test_a_student_learns_probabilities(place: Path) -> None:
    out = place / "soft"
    given = (f"checkpoint=[{place}/teacher,{place}/teacher]", f"input={place}/new.txt")
    said = plmctl("data", "label", *given, "labelled=false", "temperature=2", f"out={out}")
    assert "task.columns.probabilities=probabilities" in said
    rows = read_rows(out / "train.jsonl")
    assert len(rows) == 12
    own = [word for word in SMALL if "columns" not in word]
    run = (f"task.path={out}", "task.columns.probabilities=probabilities", "seed=5")
    plmctl("finetune", *own, *run, f"run.dir={place}/student")
    scored = plmctl(
        "eval", f"checkpoint={place}/student", "split=train", f"out={place}/own.jsonl", "--json"
    )
    wanted = -sum(
        share * math.log(answer["probabilities"][name])
        for row, answer in zip(rows, read_rows(place / "own.jsonl"), strict=True)
        for name, share in row["probabilities"].items()
    ) / len(rows)
    assert json.loads(scored)["metrics"]["train"]["loss"] == pytest.approx(wanted, abs=1e-4)
    # its own examples are handed on as they are stated, and so is their column
    (place / "more.txt").write_text("a fine tale\n")
    more = (f"checkpoint={place}/student", f"input={place}/more.txt", f"out={place}/more")
    plmctl("data", "label", *more)
    own_rows = [{**row, "bundle": ""} for row in read_rows(place / "more/train.jsonl")[:12]]
    assert own_rows == rows
    words = (*own, *run, f"input={place}/more.txt", f"out={place}/none", "--dry-run")
    plan = plmctl("self-train", *words).splitlines()
    assert "task.columns.probabilities=probabilities" in shlex.split(plan[2])
