"""CMRC 2018 and XQuAD: their files, their scores, and a model that is trained on English questions
and asked Chinese ones.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from plmctl.config import compose as config
from plmctl.config.build import build
from plmctl.config.command import perform
from plmctl.core.errors import DataError
from plmctl.tasks.inference import describe_skipped

SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "chinese"
TINY = [
    "tokenizer=byte_bpe",
    "tokenizer.vocab_size=270",
    "size=tiny",
    "size.width=16",
    "size.inner_width=16",
    "size.num_layers=1",
]
TINY += ["size.num_heads=2", "task.max_length=64", "task.stride=16", "train.steps=2"]
TINY += ["train.epochs=null", "train.precision=fp32", "train.threads=1", "checkpoint=null"]
ENGLISH = "Ada wrote notes. She lived in London, and Bob in Rome."
CHINESE = "艾达写了笔记。她住在伦敦，鲍勃住在罗马。"


def write(file: Path, context: str, **answers: str) -> None:
    qas = [
        {
            "id": name,
            "question": f"Where is {name}?",
            "answers": [{"text": text, "answer_start": context.index(text)}],
        }
        for name, text in answers.items()
    ]
    content = {"version": "1.1", "data": [{"paragraphs": [{"context": context, "qas": qas}]}]}
    file.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")


def task(name: str, path: object) -> Any:
    words = [f"task={name}", f"task.path={path}", "checkpoint=null"]
    return build(config.compose("finetune", None, words).task, {"pooling": "first"}, path="task")


@pytest.fixture(scope="module")
def languages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("xquad")
    write(folder / "train-v1.1.json", ENGLISH, Ada="London", Bob="Rome")
    write(folder / "dev-v1.1.json", f"{ENGLISH} Yes.", Ada="London", Bob="Rome")
    write(folder / "xquad.zh.json", CHINESE, ada="伦敦", bob="罗马")
    write(folder / "xquad.de.json", "Ada wohnt in London.", ada="London")
    return folder


def test_languages_that_are_there_are_scored(languages: Path) -> None:
    xquad = task("xquad", languages)
    assert xquad.splits.devs == ["dev", "dev_de", "dev_zh"]
    assert [each.fields["answers"] for each in xquad.read("dev_zh")] == [["伦敦"], ["罗马"]]
    rows = [{"golds": ["伦敦市"], "guess": "伦敦"}, {"golds": ["the Ada"], "guess": "Ada"}]
    assert xquad.score(rows) == {"f1": pytest.approx((80 + 100) / 2), "exact": 50.0}


def test_zero_shot(languages: Path, tmp_path: Path) -> None:
    """The score of Chinese at the end of training on English, by its split, and by its file."""
    run = tmp_path / "run"
    words = ["task=xquad", f"task.path={languages}", f"run.dir={run}", *TINY]
    assert perform(config.compose("finetune", None, words)) == 0
    scores = json.loads((run / "result.json").read_text())["metrics"]
    assert set(scores) >= {"dev", "dev_de", "dev_zh"}
    trained = (run / "predictions" / "dev_zh.jsonl").read_text()
    of_file = ["task=xquad", f"task.path={languages}/xquad.zh.json", "split=dev"]
    for name, more in {"dev_zh": ["split=dev_zh"], "dev": of_file}.items():
        found = [f"checkpoint={run}", f"out={tmp_path / name}", *more]
        assert perform(config.compose("eval", None, found))  # the metrics
        assert (tmp_path / name / f"{name}.jsonl").read_text() == trained


def test_cmrc_is_scored_by_runs(tmp_path: Path) -> None:
    for name in ("cmrc2018_train.json", "cmrc2018_dev.json"):
        write(tmp_path / name, CHINESE, ada="住在伦敦")
    cmrc = task("cmrc2018", tmp_path)
    assert [len(cmrc.read(split)) for split in ("train", "dev")] == [1, 1]
    assert cmrc.score([{"golds": ["住在伦敦"], "guess": "在，伦敦住"}])["f1"] == 100 * 2 * 3 / 8


@pytest.mark.shared
@pytest.mark.skipif(not SHARED.exists(), reason="the shared data sets are not here")
def test_distributed_files() -> None:
    cmrc, xquad = task("cmrc2018", SHARED / "cmrc2018"), task("xquad", SHARED)
    train, dev = cmrc.read("train"), cmrc.read("dev")
    skipped = sum(cmrc.splits.reader.skipped.values())
    assert len(train) + skipped == 2374
    assert 0 < skipped < 0.03 * 2374
    assert len(dev) == 393
    assert len(xquad.read("dev_zh")) == 1190
    for own, examples in ((cmrc, dev), (xquad, xquad.read("dev_zh"))):
        rows = [{"golds": e.fields["answers"], "guess": e.fields["answers"][-1]} for e in examples]
        assert own.score(rows) == {"f1": 100.0, "exact": 100.0}
        rows = [{**row, "guess": f"{row['guess']}。甲"} for row in rows]
        assert own.score(rows)["exact"] < 2
        assert 60 < own.score(rows)["f1"] < 99


def test_the_older_layout_of_cmrc(tmp_path: Path) -> None:
    """Lists of texts, whose answers stand where their text occurs first."""
    qas = [
        {"query_id": "a_1", "query_text": "where?", "answers": ["伦敦", "在伦敦"]},
        {"query_id": "a_2", "query_text": "who?", "answers": ["nobody"]},
    ]
    older = [{"context_id": "a", "title": "t", "context_text": CHINESE, "qas": qas}]
    file = tmp_path / "cmrc2018_train.json"
    file.write_text(json.dumps(older, ensure_ascii=False), encoding="utf-8")
    reader = task("cmrc2018", tmp_path)
    (found,) = reader.read("train")  # without the answer that the text does not have
    start = CHINESE.index("伦敦")
    assert (found.id, found.label) == ("a_1", (start, start + 2))
    assert found.fields["answers"] == ["伦敦", "在伦敦"]
    assert reader.splits.reader.skipped == {str(file): 1}
    why = "the answer does not stand at its answer_start"
    assert describe_skipped(reader.splits.reader) == f"{file}: 1 row passed over: {why}"
    for broken, message in (
        ([], "no questions"),
        ([{"context_text": "a", "qas": [{"query_id": "1"}]}], "not in CMRC 2018's layout"),
        ([{"context": "a"}], "not in CMRC 2018's layout"),
    ):
        file.write_text(json.dumps(broken))
        with pytest.raises(DataError, match=message):
            reader.read("train")


@pytest.mark.parametrize("name", ["cmrc2018", "drcd", "squad", "squad_v2", "quac", "xquad"])
@pytest.mark.parametrize("given", [{}, {"answers": []}, {"answers": None}])
def test_a_test_file_without_any_answer_has_no_labels(
    name: str, given: dict[str, Any], tmp_path: Path
) -> None:
    """Otherwise a score of 0 would say that every answer is wrong."""
    asked = {"id": "1", "question": "where?", **given}
    sections = [{"id": "s", "context": CHINESE, "qas": [asked]}]
    file = tmp_path / "test.json"
    reader = task(name, tmp_path).splits.reader

    def read() -> Any:
        file.write_text(json.dumps({"data": [{"paragraphs": sections}]}), encoding="utf-8")
        return reader.read(file, "test", {})[-1]

    assert (read().label, "answers" in read().fields) == (None, False)
    here = {"text": "伦敦", "answer_start": CHINESE.index("伦敦")}
    answered = {"id": "0", "question": "?", "answers": [here], "yesno": "y", "followup": "y"}
    sections[0]["qas"] = [answered, asked]  # questions without an answer, among others
    assert read().fields["answers"] == []
    if name != "quac":
        sections[0]["qas"] = [{**asked, "is_impossible": True}]
        assert read().fields["answers"] == []
    rows = [{"context": CHINESE, "question": "where?", **given}]
    if name != "quac":
        file.write_text(json.dumps(rows), encoding="utf-8")
        assert "answers" not in reader.read(file, "test", {})[0].fields


@pytest.mark.parametrize("given", [{}, {"answers": []}])
def test_older_files_without_any_answer_have_no_labels(
    given: dict[str, Any], tmp_path: Path
) -> None:
    qas = [{"query_id": "a_1", "query_text": "where?", **given}]
    file = tmp_path / "cmrc2018_test.json"
    file.write_text(json.dumps([{"context_text": CHINESE, "qas": qas}]), encoding="utf-8")
    reader = task("cmrc2018", tmp_path).splits.reader
    assert "answers" not in reader.read(tmp_path, "test", {})[0].fields
    if not given:
        with pytest.raises(DataError, match="no field answers"):
            reader.read_file(file, {})
