"""The tasks of CLUE and its kin: published layouts, an update each, MRR, and idioms that differ."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from plmctl.artifacts.assemble import build_model
from plmctl.config.compose import compose
from plmctl.core.errors import DataError
from plmctl.runs.adapt import complete
from plmctl.runs.resolve import build_task
from plmctl.runs.task_fit import fit_task
from plmctl.tasks import batches, inference
from plmctl.tasks.answers.choice import ChoiceAnswer, choose_apart
from plmctl.tasks.capabilities import submit
from plmctl.tasks.check import check_task
from plmctl.tasks.layouts.choices import ChoiceRows
from plmctl.tasks.record import Example
from plmctl.tasks.scores.labels import LabelScores, expect_rank
from plmctl.text.tokenizer import Tokenizer
from tests.tasks import clue_files
from tests.tasks.superglue_files import make_task

SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "chinese"
COUNTS = {"ocnli": 6, "cmnli": 6, "c3": 24, "chid": 24}  # others: eight, a row each
SMALL = ("tokenizer=char", "size.width=16", "size.num_heads=2", "size.inner_width=16",
         "size.num_layers=1", "model=encoder")  # fmt: skip


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    texts = [f"{clue_files.say(n)}“”它很高兴男女：是的谁坐着？隻貓住倫敦後來去了羅馬哪裡里又人他_"
             for n in range(16)]  # fmt: skip
    return Tokenizer.train([*texts, *clue_files.IDIOMS], kind="char", vocab_size=128)


@pytest.mark.parametrize("name", clue_files.TASKS)
def test_an_update_on_the_published_layout(name: str, tokenizer: Tokenizer, tmp_path: Path) -> None:
    """All rows are read, with Chinese texts, and a few updates lower the loss."""
    words = [f"task={name}", f"task.path={clue_files.write(name, tmp_path)}", "checkpoint=null"]
    spec = complete(compose("finetune", None, [*words, *SMALL]))
    task = build_task(spec)
    examples = task.read("train")
    assert len(examples) == len(task.read("dev")) == COUNTS.get(name, 8)
    assert all(any("一" <= char <= "鿿" for char in str(e.fields)) for e in examples)
    task.fit_labels(examples)
    spec = fit_task(spec, task)
    vocab = tokenizer.vocab
    size = vocab.size + task.transform.new_tokens
    model = build_model(spec, vocab_size=size, vocab=vocab, seed=2).double().eval()
    split = inference.encode_split(task, "train", examples, tokenizer)
    assert inference.find_unread(split, tokenizer) == {}
    rows = split.rows
    batch = batches.collate(rows, np.arange(len(rows.key)))

    def measure() -> Any:
        return sum(term.total for term in task(model, batch).terms.values())

    before, optimizer = measure(), torch.optim.Adam(model.parameters(), lr=3e-2)
    for _ in range(8):
        optimizer.zero_grad()
        measure().backward()
        optimizer.step()
    assert measure() < before


@pytest.mark.parametrize("name", clue_files.FEW)
def test_the_seed_chooses_among_the_training_sets_of_fewclue(name: str, tmp_path: Path) -> None:
    folder = clue_files.write_few(name, tmp_path)
    for seed in (0, 3):
        task = make_task(name, folder, f"seed={seed}")
        read = {split: task.read(split) for split in ("train", "dev", "test")}
        assert {split: len(own) for split, own in read.items()} == {"train": 4, "dev": 4, "test": 6}
        assert str(clue_files.say(4 * seed))[:3] in str(read["train"][0].fields)
        assert str(clue_files.say(20 + 4 * seed))[:4] in str(read["dev"][0].fields)
        assert all(each.label is not None for own in read.values() for each in own)
    with pytest.raises(DataError, match=r"several files could be meant: train_0\.json"):
        make_task(name, folder, "seed=5").read("train")


def test_gaps_of_fewclue(tmp_path: Path) -> None:
    rows = [{"id": 7, "candidates": clue_files.IDIOMS, "content": "甲#idiom#乙", "answer": 2}]
    clue_files.dump(tmp_path / "train.json", *rows)
    (one,) = make_task("chid", tmp_path).read("train")
    assert (one.id, one.label, one.bundle, one.fields["text"]) == ("7", "2", "", "甲")
    assert one.fields["choices"] == [f"{idiom}乙" for idiom in clue_files.IDIOMS]
    clue_files.dump(tmp_path / "train.json", {**rows[0], "answer": 4})
    with pytest.raises(DataError, match=r"train\.json:1: .*4, and there are 4 candidates"):
        make_task("chid", tmp_path).read("train")
    clue_files.dump(tmp_path / "train.json", {k: v for k, v in rows[0].items() if k != "answer"})
    with pytest.raises(DataError, match=r"no train_answer\.json"):
        make_task("chid", tmp_path).read("train")


def test_questions_of_both_files_of_c3(tmp_path: Path) -> None:
    task = make_task("c3", clue_files.write("c3", tmp_path))
    examples = task.read("train")
    assert [e.slices for e in examples] == [("dialogue",)] * 12 + [("mixed",)] * 12
    assert (examples[0].id, examples[0].label, examples[0].bundle) == ("d-0-0", "0", "dialogued-0")
    assert examples[0].fields == {
        "text": f"男：{clue_files.say(0)}\n女：是的。",
        "choices": ["谁坐着？ 猫坐着", "谁坐着？ 狗坐着"],
    }
    blank = [[["男：好。"], [{"id": 7, "question": "谁？", "choice": ["甲", "乙"]}]]]
    clue_files.dump(tmp_path / "test.json", blank)
    (one,) = task.read("test")
    assert (one.id, one.label) == ("7", None)
    alone = make_task("c3", {"train": str(tmp_path / "c3-d-train.json")})
    assert len(alone.read("train")) == 12


def test_gaps_of_chid(tmp_path: Path) -> None:
    """Half of the characters on each side of a gap, and more where the other side is short."""
    file, before, after = tmp_path / "train.json", "甲乙丙丁戊己", "子丑寅卯辰巳"
    passages = [f"{before}#idiom1#{after}", f"乙#idiom2#{after}", f"{before}#idiom3##idiom4#丑"]
    clue_files.dump(file, {"content": passages, "candidates": ["百尺竿头", "随波逐流"]})
    clue_files.dump(tmp_path / "train_answer.json", {f"#idiom{n}#": n % 2 for n in range(1, 5)})
    examples = make_task("chid", tmp_path, "task.reader.around=6").read("train")
    cut = [("丁戊己", "子丑寅"), ("乙", "子丑寅卯辰"), ("丁戊己", "___"), ("己____", "丑")]
    assert [(e.fields["text"], e.fields["choices"][0][4:]) for e in examples] == cut
    assert [e.label for e in examples] == ["1", "0", "1", "0"]
    assert {e.bundle for e in examples} == {"0"}
    (tmp_path / "test1.1.json").write_bytes(file.read_bytes())
    assert {e.label for e in make_task("chid", tmp_path).read("test")} == {None}


def decode(scores: Sequence[Sequence[float]]) -> list[int]:
    """Greedy: again and again the largest score whose row and column are free."""
    left, found = {(n, k) for n, own in enumerate(scores) for k in range(len(own))}, {}
    while left:
        n, k = max(left, key=lambda pair: scores[pair[0]][pair[1]])
        found[n] = k
        left = {pair for pair in left if pair[0] != n and pair[1] != k}
    return [found[n] for n in sorted(found)]


def test_idioms_of_a_line_differ() -> None:
    """Two gaps of one line want the same idiom, and the surer one has it."""
    random = np.random.default_rng(0)
    for gaps in (1, 3, 5):
        scores = random.normal(size=(gaps, 5))
        assert choose_apart(list(scores)) == decode(scores.tolist())
    assert choose_apart([np.array([2.0, 1.0]), np.array([3.0, 0.0]), np.array([0.0, 1.0])])[:2] == [
        1, 0]  # fmt: skip
    names = ["甲", "乙", "丙"]
    examples = [Example(str(n), {"text": "", "choices": names}, "0", bundle=bundle)
                for n, bundle in enumerate(("0", "0", "1"))]  # fmt: skip
    rows: Any = type("R", (), {"values": {"example": np.repeat(np.arange(3), 3)}})()
    logits = np.array([2.0, 1.0, 0.0, 3.0, 0.0, 1.0, 9.0, 8.0, 7.0])
    for distinct, guesses in ((True, [1, 0, 0]), (False, [0, 0, 0])):
        found = ChoiceAnswer(distinct=distinct).predict(logits, rows, examples, None)
        assert [each["guess"] for each in found] == guesses
    assert isinstance(make_task("chid", "x").layout, ChoiceRows)


def test_mrr_of_answers() -> None:
    """ERNIE's loop: `1 / rank` of the first right sentence, 0 for a question without one."""
    random = np.random.default_rng(1)
    rows: list[dict[str, Any]] = [{"gold": str(int(random.random() < 0.3)), "bundle": str(n // 5),
             "probabilities": {"0": 1 - p, "1": p}, "guess": str(int(p > 0.5))}
            for n, p in enumerate(random.random(40))]  # fmt: skip
    total = 0.0
    for question in range(8):
        own = [row for row in rows if row["bundle"] == str(question)]
        for rank, row in enumerate(sorted(own, key=lambda r: -r["probabilities"]["1"]), 1):
            if row["gold"] == "1":
                total += 1 / rank
                break
    found = LabelScores(positive="1")(rows, ["mrr", "f1"])
    assert found["mrr"] == pytest.approx(total / 8)
    # all alike: every order of the five is as likely
    means = [np.mean([next((1 / n for n, row in enumerate(order, 1) if row["gold"] == "1"), 0.0)
                      for order in permutations(rows[5 * q : 5 * q + 5])])
             for q in range(8)]  # fmt: skip
    assert found["constant_mrr"] == pytest.approx(np.mean(means))
    assert expect_rank([(0.9, False), (0.5, True), (0.5, False), (0.1, True)]) == 0.5 * (
        1 / 2 + 1 / 3
    )
    assert "mrr" not in LabelScores().known


def test_a_test_file_without_labels_is_read(tmp_path: Path) -> None:
    task = make_task("cluewsc2020", clue_files.write("cluewsc2020", tmp_path))
    (file,) = tmp_path.rglob("dev.json")
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    bare = [{key: value for key, value in row.items() if key != "label"} for row in rows]
    file.with_name("test.json").write_text("".join(json.dumps(row) + "\n" for row in bare))
    assert [example.label for example in task.read("test")] == [None] * len(rows)


@pytest.mark.parametrize(
    ("name", "split", "wanted"),
    [
        ("tnews", "test_1_0", ("tnews10_predict.json", '{"id": 8, "label": "x"}\n')),
        ("tnews", "test_1_1", ("tnews11_predict.json", '{"id": 8, "label": "x"}\n')),
        ("csl", "test", ("csl_predict.json", '{"id": 8, "label": "x"}\n')),
        ("c3", "test_1_1", ("c311_predict.json", '{"id": 8, "label": "x"}\n')),
        ("chid", "test_1_0", ("chid10_predict.json", '{\n"8": "x"\n}\n')),
        ("cmrc2018", "test", ("cmrc2018_predict.json", '{\n"8": "x"\n}\n')),
    ],
)
def test_files_of_the_leader_board(name: str, split: str, wanted: tuple[str, str]) -> None:
    task = make_task(name, "x")
    found = submit(task, [{"id": "8", "guess": "x"}], task.submission[split])
    assert (task.submission[split], found) == wanted


@pytest.mark.parametrize("name", ["tnews", "cluewsc2020", "c3", "chid"])
def test_both_tests_of_a_folder_have_splits(name: str, tmp_path: Path) -> None:
    """A test without a number is none of the two, and the error says how they are named."""
    task = make_task(name, clue_files.write(name, tmp_path))
    (dev,) = [each for each in tmp_path.rglob("*dev.json") if "m-dev" not in each.name]
    for ending, splits in (("1.0", ["test_1_0"]), ("1.1", ["test_1_0", "test_1_1"])):
        dev.with_name(f"test{ending}.json").write_text(dev.read_text())
        if ending == "1.0" and task.splits.has("test"):  # the only file
            continue
        assert not task.splits.has("test")
        with pytest.raises(DataError) as error:
            task.read("test")
        assert f"fix: {'  # or '.join(f'split={each}' for each in splits)}" in str(error.value)


def test_a_test_with_two_names_is_checked_once(tmp_path: Path) -> None:
    task = make_task("tnews", clue_files.write("tnews", tmp_path))
    (dev,) = tmp_path.rglob("dev.json")
    dev.with_name("test.json").write_text(dev.read_text())
    assert task.splits.has("test")
    assert task.splits.has("test_1_1")
    sizes = check_task(task, None).findings[0].found
    assert "test 8" in sizes
    assert "test_1_1" not in sizes


def test_both_tests_of_a_folder(tmp_path: Path) -> None:
    for ending, word in (("1.0", "旧"), ("1.1", "新")):
        clue_files.dump(tmp_path / f"test{ending}.json", {"sentence": word, "id": 0})
    task = make_task("tnews", tmp_path)
    found = [task.read(split)[0].fields["text"] for split in ("test_1_0", "test_1_1")]
    assert found == ["旧", "新"]
    (tmp_path / "csl").mkdir()
    clue_files.dump(
        tmp_path / "csl" / "test.json", {"keyword": ["甲", "乙"], "abst": "丙", "id": 1}
    )
    assert make_task("csl", tmp_path / "csl").read("test")[0].fields["text"] == "甲 乙"


def test_pronouns_are_found_by_characters(tmp_path: Path) -> None:
    task = make_task("cluewsc2020", clue_files.write("cluewsc2020", tmp_path))
    for n, example in enumerate(task.read("train")):
        spans = [example.fields["text"][e["start"] : e["end"]] for e in example.fields["entities"]]
        assert spans == [clue_files.ANIMALS[n % 4], "它"]
        assert example.label == ["true", "false"][n % 2]
    moved = clue_files.resolve(0)
    moved["target"]["span1_index"] += 1
    clue_files.dump(tmp_path / "train.json", moved)
    assert task.read("train")[0].fields["entities"][0]["start"] == 4
    (note,) = task.splits.reader.notes.values()  # type: ignore[attr-defined]
    assert note == "1 spans differ from the text at their index"


def test_undecided_rows_and_tables_without_names(tmp_path: Path) -> None:
    task = make_task("ocnli", clue_files.write("ocnli", tmp_path))
    task.read("train")
    reader = task.splits.reader
    assert [*reader.skipped.values()] == [2]
    assert [*reader.why.values()] == ["2 rows with the label '-'"]  # type: ignore[attr-defined]
    clue_files.dump(tmp_path / "train.json", clue_files.infer(3))
    with pytest.raises(DataError, match=r"no rows \(1 were skipped\)"):
        task.read("train")
    for split in ("train", "dev"):
        lines = [f"{clue_files.say(n)}\t{clue_files.say(n + 1)}\t{n % 2}\n" for n in range(4)]
        (tmp_path / f"{split}.txt").write_text("".join(lines), "utf-8")
    bare = make_task("lcqmc", {"train": str(tmp_path / "train.txt")})
    assert [e.label for e in bare.read("train")] == ["different", "same"] * 2


QUESTION = {"question": "谁？", "choice": ["甲", "乙"], "answer": "丙"}
PASSAGE = {"content": ["他#idiom1#。"], "candidates": ["百尺竿头", "随波逐流"]}
BROKEN: list[tuple[str, Any, Any, str]] = [
    ("c3", {"data": []}, None, "a list is needed"),
    ("c3", [["男：好。"]], None, "not in C3's layout"),
    ("c3", [], None, "no questions"),
    ("c3", [[["男"], [QUESTION]]], None, "the answer '丙' is none of the options 甲, 乙"),
    ("c3", [[["男"], [{**QUESTION, "choice": ["丙"]}]]], None, "question 0 has 1 options"),
    ("chid", PASSAGE, None, "its folder has no train_answer.json"),
    ("chid", PASSAGE, {"#idiom2#": 0}, "the answers lack the gap #idiom1#"),
    ("chid", PASSAGE, {"#idiom1#": 2}, "is 2, and there are 2 candidates"),
    ("chid", PASSAGE, {"#idiom1#": -1}, "not in ChID's layout"),
    ("chid", {**PASSAGE, "candidates": ["甲"]}, {}, "1 candidates"),
    ("chid", {**PASSAGE, "content": ["他。"]}, {}, "no gaps such as #idiom000378#"),
    ("cluewsc2020", {**clue_files.resolve(0), "label": "maybe"}, None, "'label' must be"),
]


@pytest.mark.parametrize(("name", "row", "answers", "message"), BROKEN)
def test_broken_files(name: str, row: Any, answers: Any, message: str, tmp_path: Path) -> None:
    clue_files.dump(tmp_path / "train.json", row)
    if answers is not None:
        clue_files.dump(tmp_path / "train_answer.json", answers)
    with pytest.raises(DataError, match=message) as refused:
        make_task(name, {"train": str(tmp_path / "train.json")}).read("train")
    assert "train" in str(refused.value)


@pytest.mark.shared
@pytest.mark.skipif(not SHARED.exists(), reason="the shared data sets are not here")
def test_distributed_files() -> None:
    """FewCLUE's few examples, and ChnSentiCorp."""
    few = SHARED / "fewclue"
    for name in ("tnews", "ocnli"):
        task = make_task(name, few / name, "task.reader.splits.train=[train_few_all.json]")
        task.fit_labels(task.read("train"))
        assert len(task.read("train")) > 100
    task = make_task("chnsenticorp", SHARED / "chnsenticorp")
    task.fit_labels(task.read("train"))
    assert len(task.read("dev")) == 1200
    assert json.dumps(task.names) == '["negative", "positive"]'
