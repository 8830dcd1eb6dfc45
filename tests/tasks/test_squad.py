"""Windows, answer positions and decoding of SQuAD: run_squad's rules written out, and a model
that knows the answers.
"""

import json
from dataclasses import replace

import numpy as np
import pytest

from plmctl.core.batch import IGNORE
from plmctl.core.errors import ConfigError, DataError
from plmctl.tasks.inference import is_answered
from plmctl.tasks.readers.squad import SquadFiles
from plmctl.tasks.record import Example
from plmctl.tasks.squad import Squad, best_window, doc_windows

CONTEXT = (
    "In 1066 (or so), the Normans — led by William — crossed to England and won near Hastings, it"
    " is said."
)


def _file(tmp_path, *questions):
    qas = [
        {
            "id": str(n),
            "question": q,
            "is_impossible": answer is None,
            "answers": (
                [] if answer is None else [{"text": answer, "answer_start": CONTEXT.find(answer)}]
            ),
        }
        for n, (q, answer) in enumerate(questions)
    ]
    (tmp_path / "train-v2.0.json").write_text(
        json.dumps({"data": [{"paragraphs": [{"context": CONTEXT, "qas": qas}]}]})
    )
    return SquadFiles(splits={"train": ["train-*.json"]}).read(tmp_path, "train", {})


def _squad(**settings):
    defaults = {
        "max_length": 24,
        "stride": 5,
        "max_query": 4,
        "n_best": 20,
        "max_answer": 30,
        "version": 2,
    }
    return Squad(
        name="toy", reader=SquadFiles(splits={}), metrics=["f1"], **{**defaults, **settings}
    )


def _knowing(rows):
    """Logits of 5 at the labelled first and last token of each window."""
    shape = rows.seqs["text"].ids.shape
    found = {}
    for side, name in enumerate(("start", "end")):
        found[name] = np.zeros(shape, np.float32)
        found[name][np.arange(shape[0]), rows.labels["span"][:, side]] = 5.0
    return found


QUESTIONS = [
    ("When did they cross?", "1066"),
    ("Who led the Normans?", "William"),
    ("Where?", "near Hastings"),
    ("Which moon did they reach?", None),
]


@pytest.mark.parametrize("length", [0, 1, 4, 5, 9, 10, 23])
@pytest.mark.parametrize(("room", "stride"), [(5, 3), (5, 5), (4, 7), (1, 1)])
def test_windows_equal_run_squads_loop(length, room, stride):
    expected, start = [], 0
    while start < length:
        size = min(length - start, room)
        expected.append((start, size))
        if start + size == length:
            break
        start += min(size, stride)
    assert doc_windows(length, room, stride) == (expected or [(0, 0)])


def test_most_context_is_right_of_the_first_and_left_of_the_last_window():
    runs = [(0, 5), (3, 5), (6, 4)]
    assert [best_window(runs, token) for token in range(10)] == [0, 0, 0, 0, 1, 1, 1, 2, 2, 2]


def test_a_model_that_knows_the_answers_is_always_right(tmp_path, toy):
    task, examples = _squad(), _file(tmp_path, *QUESTIONS)
    rows = task.encode(examples, toy)
    assert len(rows.key) > 2 * len(examples)  # several windows each
    found = task.predict(_knowing(rows), rows, examples)
    assert [p["guess"] for p in found[:3]] == ["1066", "William", "near Hastings"]
    scores = task.score(found)
    assert scores["best_f1"] == scores["best_exact"] == 100.0


def test_windows_without_the_whole_answer_point_at_the_anchor(tmp_path, toy):
    task, examples = _squad(), _file(tmp_path, QUESTIONS[2])
    rows = task.encode(examples, toy)
    text, (window, span) = rows.seqs["text"], (rows.spans["window"], rows.labels["span"])
    answer = toy.encode("near Hastings")
    for row, (_, start, length, _) in enumerate(window.tolist()):
        inside = any(
            text.ids[row, p : p + len(answer)].tolist() == answer
            for p in range(start, start + length - len(answer) + 1)
        )
        first, last = span[row]
        assert (
            (first, last) == (0, 0)
            if not inside
            else text.ids[row, first : last + 1].tolist() == answer
        )
    assert (text.tracks["segment"].sum(1) == window[:, 2] + 1).all()  # the passage and its [SEP]


def test_the_question_is_global(tmp_path, toy):
    task, (example,) = _squad(), _file(tmp_path, QUESTIONS[1])
    text = task.encode([example], toy).seqs["text"]
    # [CLS] and the question
    marked = 1 + min(task.max_query, len(toy.encode(QUESTIONS[1][0])))
    positions = np.arange(text.ids.shape[1])
    assert (text.tracks["global"] == (positions < marked)).all()


def test_null_score_is_the_smallest_over_windows(tmp_path, toy):
    task, examples = _squad(), _file(tmp_path, QUESTIONS[0])
    rows = task.encode(examples, toy)
    logits = {side: np.zeros(rows.seqs["text"].ids.shape, np.float32) for side in ("start", "end")}
    logits["start"][:, 0] = np.arange(len(rows.key)) - 1.0
    found = task.predict(logits, rows, examples)[0]
    assert found["null_odds"] == -1.0 - found["n_best"][0]["score"]


def test_answers_keep_order_and_length(tmp_path, toy):
    examples = _file(tmp_path, QUESTIONS[0])
    for max_answer in (1, 3):
        task = _squad(max_length=200, max_answer=max_answer)
        rows = task.encode(examples, toy)
        draw = np.random.default_rng(0)
        shape = rows.seqs["text"].ids.shape
        found = task.predict(
            {side: draw.normal(size=shape) for side in ("start", "end")}, rows, examples
        )[0]
        texts = [best["text"] for best in found["n_best"]]
        assert 0 < len(texts) <= 20
        assert all(0 < len(toy.encode(text)) <= max_answer for text in texts)
        assert len(set(texts)) == len(texts)
        scores = [best["score"] for best in found["n_best"]]
        assert scores == sorted(scores, reverse=True)


def test_a_long_question_is_cut_and_room_is_needed(tmp_path, toy):
    examples = _file(tmp_path, ("What " * 30, "1066"))
    assert _squad().encode(examples, toy).spans["window"][0, 1] == 1 + 4 + 1
    with pytest.raises(ConfigError, match=r"task.max_length=7"):
        _squad(max_length=7).encode(examples, toy)


def test_misplaced_answers_of_dev_are_named(tmp_path, toy):
    qas = [{"id": "a", "question": "?", "answers": [{"text": "England", "answer_start": -7}]}]
    (tmp_path / "dev-v1.1.json").write_text(
        json.dumps({"data": [{"paragraphs": [{"context": CONTEXT, "qas": qas}]}]})
    )
    task = _squad()
    assert task.remarks == []
    task.splits.reader.read(tmp_path / "dev-v1.1.json", "dev", {})
    (remark,) = task.remarks
    assert (
        "dev-v1.1.json: of 1 questions the answer does not stand where the file says (the first"
        " is a)" in remark
    )


def test_misplaced_answers_leave_training_and_are_ignored_elsewhere(tmp_path, toy):
    file = tmp_path / "dev-v1.1.json"
    qas = [
        {"id": "a", "question": "?", "answers": [{"text": "England", "answer_start": 3}]},
        {"id": "b", "question": "?", "answers": [{"text": "1066", "answer_start": 3}]},
    ]
    file.write_text(json.dumps({"data": [{"paragraphs": [{"context": CONTEXT, "qas": qas}]}]}))
    reader = SquadFiles(splits={"train": ["dev*"], "dev": ["dev*"]})
    assert [e.id for e in reader.read(tmp_path, "train", {})] == ["b"]
    assert reader.skipped == {str(file): 1}
    examples = reader.read(tmp_path, "dev", {})
    rows = _squad(max_length=200).encode(examples, toy)
    assert rows.labels["span"][0].tolist() == [IGNORE, IGNORE]
    found = _squad(version=1).score([{"golds": ["England"], "guess": "england."}])
    assert found == {"f1": 100.0, "exact": 100.0}


def test_answers_in_characters_that_are_compared_as_words_are_named(toy):
    fields = {"question": "1066", "context": "北京市在北方。", "answers": ["北京市", "北京"]}
    for overlap, named in (("bag", True), ("characters", False), ("run", False)):
        task = _squad(version=1, overlap=overlap)
        task.encode([Example("0", fields, (0, 3))], toy)
        remarks = " ".join(task.remarks)
        assert ("task.overlap=characters, and as in CMRC 2018 by task.overlap=run" in remarks) == (
            named
        )
    task = _squad()
    task.encode([Example("1", {**fields, "answers": ["north"]}, None)], toy)
    assert task.remarks == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "not JSON: Expecting property name"),
        ("[" * 100_000, "not JSON: nested too deeply"),
        ("[]", "not in SQuAD's layout: must be a mapping"),
        (
            '{"data": [{"paragraphs": [{}]}]}',
            r"not in SQuAD's layout: 'data\.0\.paragraphs\.0' must have 'context'",
        ),
        (
            '{"data": [{"paragraphs": [{"context": "a", "qas": 3}]}]}',
            r"'data\.0\.paragraphs\.0\.qas' must be a list",
        ),
    ],
)
def test_bad_files(tmp_path, content, message):
    (tmp_path / "train-x.json").write_text(content)
    with pytest.raises(DataError, match=message):
        SquadFiles(splits={"train": ["train-*.json"]}).read(tmp_path, "train", {})


def test_questions_that_are_typed_have_nothing_to_score():
    typed = _squad().parse("How many?\tThe town has 70 houses.", 1)
    assert not is_answered([typed])
    answers = {"answers": ["70"]}
    assert is_answered([typed, replace(typed, fields={**typed.fields, **answers})])


def _write_rows(file, *answers):
    """A row for each question, with these further fields."""
    rows = [{"question": "?", "context": CONTEXT, **fields} for fields in answers]
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return SquadFiles(splits={name: [f"{name}.jsonl"] for name in ("train", "dev", "test")})


def test_a_question_without_a_field_of_answers_is_no_unanswerable_one(tmp_path):
    there = {"answers": {"text": ["England"], "answer_start": [CONTEXT.find("England")]}}
    for split in ("train", "dev", "test"):
        reader = _write_rows(tmp_path / f"{split}.jsonl", there, {"answer": "England"})
        if split != "test":
            with pytest.raises(DataError, match=r"jsonl:2: no field answers; found .*, answer"):
                reader.read(tmp_path, split, {})
    assert len(reader.read(tmp_path, "test", {})) == 2
    reader = _write_rows(tmp_path / "dev.jsonl", there, {"is_impossible": True}, {"answers": []})
    assert [e.label is None for e in reader.read(tmp_path, "dev", {})] == [False, True, True]


@pytest.mark.parametrize(
    "answers", [{"text": [""], "answer_start": [-1]}, [{"text": " ", "answer_start": 0}]]
)
def test_an_empty_answer_is_learned_as_none(answers, tmp_path):
    there = {"answers": {"text": ["England"], "answer_start": [CONTEXT.find("England")]}}
    reader = _write_rows(tmp_path / "train.jsonl", there, {"answers": answers})
    examples = reader.read(tmp_path, "train", {})
    assert [e.label is None for e in examples] == [False, True]
    assert not sum(reader.skipped.values())


def test_training_on_misplaced_answers_alone_says_that_they_are_misplaced(tmp_path):
    wrong = {"answers": {"text": ["England"], "answer_start": [1]}}
    reader = _write_rows(tmp_path / "train.jsonl", wrong, wrong, {"answers": []})
    task = _squad()
    task.splits = replace(task.splits, reader=reader)
    with pytest.raises(
        DataError, match="2 questions: the answer does not stand at its answer_start"
    ):
        task.fit_labels(reader.read(tmp_path, "train", {}))
