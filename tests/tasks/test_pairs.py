"""Sources and targets from parallel files, tables, JSON lines and dialogues, with the place of
whatever is wrong.
"""

import json
from pathlib import Path

import pytest

from plmctl.config import compose as config
from plmctl.config.build import build
from plmctl.core.errors import ConfigError, DataError
from plmctl.tasks.readers.dialogues import Dialogues
from plmctl.tasks.readers.pairs import Pairs

SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "data"
SPLITS = {"train": ["train", "*train*"], "dev": ["dev", "val"], "test": ["test", "*test*"]}
EN_DE = {"source": "en", "target": "de"}
TABLE = {"source": "source", "target": "target"}


def _read(folder, columns, split="train"):
    return [
        (e.fields["source"], e.label) for e in Pairs(splits=SPLITS).read(folder, split, columns)
    ]


def test_two_files_line_by_line(tmp_path):
    (tmp_path / "train.en").write_text("one\ntwo\u2028too\n")
    (tmp_path / "train.de").write_text("eins\nzwei\n")
    assert _read(tmp_path, EN_DE) == [("one", ("eins",)), ("two\u2028too", ("zwei",))]
    assert _read({"train": [str(tmp_path / "train.de"), str(tmp_path / "train.en")]}, {})[0] == (
        "eins",
        ("one",),
    )
    named = [str(tmp_path / f"train.{end}") for end in ("de", "en")]
    assert _read(named, {})[1] == ("zwei", ("two\u2028too",))
    assert not Pairs(splits=SPLITS).has(named, "dev", {})
    assert Pairs(splits=SPLITS).has(tmp_path, "train", EN_DE)
    assert not Pairs(splits=SPLITS).has(tmp_path, "dev", EN_DE)


def test_files_of_unequal_length_name_the_line(tmp_path):
    (tmp_path / "train.en").write_text("one\ntwo\nthree\n")
    (tmp_path / "train.de").write_text("eins\nzwei\n")
    with pytest.raises(
        DataError,
        match=r"train.en:3: there is no line 3 in .*train.de: the two files are not line-parallel",
    ):
        _read(tmp_path, EN_DE)
    (tmp_path / "train.de").write_text("eins\n\ndrei\n")
    with pytest.raises(DataError, match=r"train.de:2: the line is empty"):
        _read(tmp_path, EN_DE)


def test_an_unknown_language_pair_is_named(tmp_path):
    for end in ("en", "de"):
        (tmp_path / f"train.{end}").write_text("one\n")
    with pytest.raises(
        DataError, match=r"there is no train.fr next to train.en, but train.de, train.en"
    ):
        _read(tmp_path, {"source": "en", "target": "fr"})
    with pytest.raises(
        DataError,
        match=r"split 'train': neither train.ens and train.de nor a table \(did you mean 'en'\?\)",
    ):
        _read(tmp_path, {"source": "ens", "target": "de"})


def test_tables_and_json_lines(tmp_path):
    (tmp_path / "train.tsv").write_text("source\ttarget\na b\tc\n")
    assert _read(tmp_path, TABLE) == _read([tmp_path / "train.tsv"], TABLE) == [("a b", ("c",))]
    (tmp_path / "train.tsv").unlink()
    (tmp_path / "train.csv").write_text('source,target\n"a, b",c\n')
    assert _read(tmp_path, TABLE) == [("a, b", ("c",))]
    lines = [{"source": ["A b.", "C d."], "target": ["x", "y "]}, {"source": "e", "target": "f"}]
    (tmp_path / "dev.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert _read(tmp_path, TABLE, "dev") == [("A b. C d.", ("x", "y")), ("e", ("f",))]
    (tmp_path / "test.jsonl").write_text(json.dumps({"source": "e"}) + "\n")
    assert _read(tmp_path, TABLE, "test") == [("e", None)]
    (tmp_path / "dev.jsonl").write_text(json.dumps({"source": ["a", 3], "target": "f"}) + "\n")
    with pytest.raises(DataError, match=r"dev.jsonl:1: field source is a list, not a text"):
        _read(tmp_path, TABLE, "dev")
    (tmp_path / "train.txt").write_text("question\tanswer\n")
    (tmp_path / "train.csv").unlink()
    assert _read(tmp_path, {"source": 0, "target": 1}) == [("question", ("answer",))]


COLUMNS = {
    "source": "context",
    "target": "response",
    "turns": "turns",
    "utterance": "utterance",
    "speaker": "speaker",
}


def _dialogues(file, **settings):
    reader = Dialogues(splits=SPLITS, **{"turns": 2, "joiner": " | ", **settings})
    return [(e.id, e.fields["source"], e.label) for e in reader.read_file(file, COLUMNS)]


def test_every_turn_answers_those_before_it(tmp_path):
    turns = [
        {"speaker": who, "utterance": f"{who} {n}"} for n, who in enumerate(["U", "S", "U", "S"])
    ]
    (tmp_path / "train.json").write_text(
        json.dumps([{"dialogue_id": "1", "turns": turns}, {"turns": turns[:1]}], indent=1)
    )
    expected = [
        ("0:1", "U 0", ("S 1",)),
        ("0:2", "U 0 | S 1", ("U 2",)),
        ("0:3", "S 1 | U 2", ("S 3",)),
    ]
    assert _dialogues(tmp_path / "train.json") == expected
    assert _dialogues(tmp_path / "train.json", reply="S", turns=1, joiner=" ")[1] == (
        "0:3",
        "U 2",
        ("S 3",),
    )
    with pytest.raises(
        DataError, match=r"(?s)no turn is a response of X.*fix: task.reader.reply=S  # or U"
    ):
        _dialogues(tmp_path / "train.json", reply="X")
    (tmp_path / "train.jsonl").write_text(json.dumps({"turns": ["a  b"]}) + "\n")
    with pytest.raises(DataError, match=r"(?s)no 'turns' has two turns.*fix: # whole dialogues"):
        _dialogues(tmp_path / "train.jsonl")
    with pytest.raises(ConfigError, match=r"turns=0: 1 or more"):
        _dialogues(tmp_path / "train.jsonl", turns=0)
    (tmp_path / "train.jsonl").write_text(json.dumps({"turns": ["a  b", "c"]}) + "\n")
    assert _dialogues(tmp_path / "train.jsonl") == [("0:1", "a b", ("c",))]
    (tmp_path / "train.jsonl").write_text(json.dumps({"turns": ["a", {"text": "c"}]}) + "\n")
    with pytest.raises(
        DataError, match=r"train.jsonl:1: a turn without text in 'utterance' \(it has text\)"
    ):
        _dialogues(tmp_path / "train.jsonl")
    (tmp_path / "train.tsv").write_text("context\tresponse\nhello\thi\n")
    assert _dialogues(tmp_path / "train.tsv") == [("0", "hello", ("hi",))]


@pytest.mark.sampled(3)
@pytest.mark.shared
@pytest.mark.skipif(not SHARED.exists(), reason="the shared data sets are not here")
@pytest.mark.parametrize(
    ("name", "path", "columns", "train", "dev"),
    [
        ("translation", "translation/multi30k", {"source": "en", "target": "de"}, 29000, 1014),
        ("seq2seq", "question_generation", {"source": "src", "target": "tgt"}, 9329, 750),
        ("summarization", "summarization/scitldr_a", {}, 1992, 619),
        ("dialogue", "dialogue/sgd", {}, 24320 - 1536, 7510 - 512),
    ],
)
def test_reads_the_distributed_files(name, path, columns, train, dev):
    words = [f"task={name}", f"task.path={SHARED / path}", "checkpoint=null"]
    words += [f"task.columns.{side}={column}" for side, column in columns.items()]
    if name == "dialogue":  # the folder has the schemas, too
        words[1] = f"task.path=[{SHARED / path}/train.json.gz,{SHARED / path}/dev.json.gz]"
    task = build(config.compose("finetune", None, words).task, path="task")
    examples = task.read("train")
    task.fit_labels(examples)
    assert (len(examples), len(task.read("dev"))) == (train, dev)
    assert all(example.fields["source"] and example.label[0] for example in examples)
