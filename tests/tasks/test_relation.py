"""Relations: marks by hand, states of both entities, long texts, the layouts of files, scores."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from plmctl.core.errors import ConfigError, DataError
from plmctl.knowledge.vectors import GraphVectors
from plmctl.models.base import Hidden
from plmctl.tasks import batches, inference
from plmctl.tasks.layouts import markers
from plmctl.tasks.readers.entity_tags import read_tags
from plmctl.tasks.readers.relation import RelationFiles, make_example
from plmctl.tasks.record import Example
from plmctl.tasks.relation import RelationClassification
from tests.tasks.conftest import SIZE

READER = RelationFiles(splits={"train": ["train.*"], "dev": ["dev.*"]})
TEXT = "the cat sat on one mat"


def _task(**settings: Any) -> RelationClassification:
    own = {"max_length": 32, "metrics": ["accuracy"], "label_names": ["on", "by"], **settings}
    return RelationClassification(name="toy", reader=READER, **own)


def _example(label: str | None = "on", text: str = TEXT, **more: Any) -> Example:
    head, tail = ((text.index(word), text.index(word) + 3) for word in ("cat", "mat"))
    return make_example("0", text, (head, tail), label=label, place="x.json example 0", **more)


def test_marks_by_hand(toy: Any) -> None:
    def ids(text: str) -> list[int]:
        return [2, *toy.encode(text), 3]

    def encode(**settings: Any) -> tuple[list[int], list[int]]:
        rows = _task(**settings).encode([_example(types=["animal", "a_thing"])], toy)
        text = rows.seqs["text"]
        return text.ids[0, : text.length[0]].tolist(), rows.values["mentions"][0].tolist()

    assert encode(marks="none") == (ids(TEXT), [2, 3, 6, 7])
    assert encode(marks="symbols") == (ids("the # cat # sat on one $ mat $"), [2, 4, 8, 10])
    marked, places = encode(marks="types")
    assert marked == ids("the @ * animal * cat @ sat on one # ^ a thing ^ mat #")
    assert marked[places[1]] == toy.encode("@")[0]
    assert marked[places[0]] == toy.encode("@")[0]
    assert marked[places[2]] == marked[places[3]] == toy.encode("#")[0]
    marked, places = encode(marks="tokens")
    plain = ids(TEXT)
    new = [SIZE, SIZE + 1, SIZE + 2, SIZE + 3]
    assert marked == [*plain[:2], new[0], plain[2], new[1], *plain[3:6], new[2], plain[6], *new[3:],
                      3]  # fmt: skip
    assert places == [2, 4, 8, 10]
    assert _task(marks="tokens").requires.new_tokens == 4


def test_one_entity_inside_the_other() -> None:
    offsets = [(0, 1), (2, 3), (4, 5)]
    marked = markers.mark([5, 6, 7], offsets, [(2, 3), (0, 5)], [([1], [2]), ([3], [4])])
    assert marked.ids == [3, 5, 1, 6, 2, 7, 4]
    assert marked.spans == [(2, 4), (0, 6)]
    same = markers.mark([5], [(0, 1)], [(0, 1), (0, 1)], [([1], [2]), ([3], [4])])
    assert same.ids == [1, 3, 5, 4, 2]


def test_long_texts_keep_both_entities() -> None:
    ids = list(range(20))
    for spans in ([(12, 13), (17, 19)], [(0, 1), (6, 8)], [(9, 10), (3, 5)]):
        cut = markers.shorten(markers.MarkedText(ids, spans), 9)
        assert (cut.cut, len(cut.ids), cut.lost) == (11, 9, 0)
        for (first, end), (wanted, last) in zip(cut.spans, spans, strict=True):
            assert cut.ids[first:end] == ids[wanted:last]
    far = markers.shorten(markers.MarkedText(ids, [(1, 2), (18, 20)]), 9)
    assert far.spans == [(0, 1), (8, 9)]  # the second one does not fit
    assert far.ids == ids[1:10]
    assert far.lost == 1


def test_entities_that_are_cut_off_are_counted(toy: Any) -> None:
    text = "a mat and many more words about some big catfish sat mats"
    places = [(2, 5), (text.index("some"), text.index("big") - 1)]
    examples = [make_example("0", text, [(0, 1), place], label="by", place="x") for place in places]
    task = _task(marks="none", max_length=6)
    told = inference.describe_truncation(task.encode(examples, toy))
    assert told.startswith("2 of 2 rows are cut to max_length")
    assert told.endswith("; in 1 of them an entity is cut off")


class Ids(torch.nn.Module):
    """A model whose state at a token is its id, and the head adds head and 1000 times tail."""

    def __init__(self) -> None:
        super().__init__()
        linear = torch.nn.Linear(2, 2, bias=False).double()
        linear.weight.data = torch.tensor([[1.0, 1000.0], [0.0, 0.0]]).double()
        self.heads = torch.nn.ModuleDict({"class": linear})

    def forward(self, batch: Any, state: Any = None, record: Any = frozenset()) -> Hidden:
        return Hidden(batch.text.ids[..., None].double())


@pytest.mark.parametrize("marks", ["none", "symbols"])
def test_the_states_of_both_entities(toy: Any, marks: Any) -> None:
    long = _example("by", "a mat and many more words about some big catfish sat mats")
    examples = [_example(), long]
    for states in ("start", "mean"):
        task = _task(marks=marks, states=states)
        rows = task.encode(examples, toy)
        batch = batches.collate(rows, np.array([1, 0]))
        logits = task.logits(Ids(), batch)["class"][:, 0]  # type: ignore[arg-type]
        for row, found in zip((1, 0), logits.tolist(), strict=True):
            ids, wanted = rows.seqs["text"].ids[row], 0.0
            places = rows.values["mentions"][row]
            for (first, end), factor in zip(places.reshape(2, 2), (1, 1000), strict=True):
                own = ids[first:end] if states == "mean" else ids[first : first + 1]
                wanted += factor * own.mean()
            assert found == pytest.approx(wanted)
    assert task.requires.vectors == 2
    assert _task(states="row").requires.vectors is None


def test_marks_that_the_tokenizer_does_not_know(toy: Any) -> None:
    toy.vocab = toy.vocab.__class__(**{**vars(toy.vocab), "unk": toy.encode("#")[0]})
    with pytest.raises(ConfigError, match="'#' is not all known") as refused:
        _task().encode([_example()], toy)
    assert "task.marks=tokens" in str(refused.value)
    with pytest.raises(ConfigError, match=r"task.marks='symbols': .*'#' is not all known"):
        _task().check_tokenizer(toy)  # before any text is read
    _task(marks="tokens").check_tokenizer(toy)


def test_marks_of_types_where_no_entity_has_one() -> None:
    with pytest.raises(DataError, match=r"none of 2 entities .* have a type.*\n  fix: .*symbols"):
        _task(marks="types").describe_known([_example()])


def test_a_decoder_has_no_states_of_entities() -> None:
    with pytest.raises(ConfigError, match="states of entities stand before"):
        _task(sees_later=False)
    assert _task(sees_later=False, states="row").requires.vectors is None


FEWREL = {"P1": [{"tokens": TEXT.split(), "h": ["cat", "Q1", [[1]]], "t": ["mat", "Q2", [[5]]]}]}
TACRED = [{
    "id": "a", "token": TEXT.split(), "subj_start": 1, "subj_end": 1, "obj_start": 4, "obj_end": 5,
    "subj_type": "ANIMAL", "obj_type": "THING", "relation": "no_relation",
}]  # fmt: skip
OPENNRE = [{"text": TEXT, "h": {"name": "cat", "id": "Q1", "pos": [4, 7]},
            "t": {"name": "mat", "id": "Q2", "pos": [19, 22]}, "relation": "on"}]  # fmt: skip
ERNIE = [{"text": TEXT, "ents": [["Q1", 4, 7, 1.0], ["Q2", 19, 22, 1.0]], "label": "P1"}]
SEMEVAL = (
    '1\t"the <e1>cat</e1> sat on one <e2>mat</e2>"\nOn-Top(e1,e2)\nComment: none\n\n'
    '2\t"a <e2>mat</e2> of the <e1>cat</e1>"\nOther\nComment:\n\n'
)


@pytest.mark.parametrize(
    ("content", "tail", "label", "ids"),
    [
        (FEWREL, "mat", "P1", ["Q1", "Q2"]),
        (TACRED, "one mat", "no_relation", ["", ""]),
        (OPENNRE, "mat", "on", ["Q1", "Q2"]),
        (ERNIE, "mat", "P1", ["Q1", "Q2"]),
    ],
)
def test_layouts_of_json(tmp_path: Path, content: Any, tail: str, label: str, ids: Any) -> None:
    file = tmp_path / "train.json"
    file.write_text(json.dumps(content))
    (example,) = READER.read(tmp_path, "train", {})
    fields = example.fields
    found = [fields["text"][each["start"] : each["end"]] for each in fields["entities"]]
    assert found == ["cat", tail]
    assert (example.label, [each["id"] for each in fields["entities"]]) == (label, ids)
    if isinstance(content, list):
        lines = tmp_path / "dev.jsonl"
        lines.write_text("".join(json.dumps(row) + "\n" for row in content))
        assert READER.read(tmp_path, "dev", {})[0].fields == fields


def test_semevals_own_layout(tmp_path: Path) -> None:
    (tmp_path / "TRAIN.TXT").write_text(SEMEVAL)
    first, second = READER.read(tmp_path, "train", {})
    assert (first.id, first.label, first.fields["text"]) == ("1", "On-Top(e1,e2)", TEXT)
    assert second.fields["text"] == "a mat of the cat"
    assert (second.label, second.fields["entities"][0]["start"]) == ("Other", 13)
    assert second.place.endswith("TRAIN.TXT:5")


def test_what_is_wrong_is_named(tmp_path: Path) -> None:
    wrong: list[tuple[Any, str]] = [
        ({"P1": [{"tokens": ["a"], "h": ["a", "", [[3]]], "t": ["a", "", [[0]]]}]},
         "example 0: .*3..4 lies outside of 1 tokens"),
        ([{"words": []}], "no known layout has the fields words"),
        ([{**TACRED[0], "relation": None}], "the relation is missing"),
        ([{"token": ["a"], "subj_start": 0}], "no field 'subj_end'"),
        ({"P1": 3}, "'P1' has no list"),
    ]  # fmt: skip
    for content, message in wrong:
        (tmp_path / "train.json").write_text(json.dumps(content))
        with pytest.raises(DataError, match=message):
            READER.read(tmp_path, "train", {})
    (tmp_path / "train.json").unlink()
    row = {**FEWREL["P1"][0], "relation": "P1"}
    for tail, what in (
        ([[]], "'t' has no positions of"),
        ([], "'t' has no positions of"),
        (None, ""),
    ):
        lines = [json.dumps(row), "", json.dumps({**row, "t": ["mat", "Q2", tail]})]
        (tmp_path / "train.jsonl").write_text("\n".join(lines))
        with pytest.raises(DataError, match=rf"train\.jsonl:3: .*{what}"):
            READER.read(tmp_path, "train", {})
    (tmp_path / "train.jsonl").unlink()
    (tmp_path / "train.txt").write_text('1\t"a <e1>b</e1> c"\nx\n')
    with pytest.raises(DataError, match=r"train.txt:1: no <e2> in"):
        READER.read(tmp_path, "train", {})


def test_a_typed_line(toy: Any) -> None:
    task = _task()
    example = task.parse("the <e1>cat</e1> sat on one <e2>mat</e2>", 1)
    assert example.fields["text"] == TEXT
    assert not task.encode([example], toy).labels
    with pytest.raises(ValueError, match="no </e2>"):
        read_tags("<e1>a</e1> <e2>b", 2)


def test_scores_by_name() -> None:
    task = _task(metrics=["f1", "accuracy", "semeval_f1"], label_names=["on", "by", "Other"])
    gold, guess = ["on", "by", "Other", "Other"], ["on", "on", "on", "Other"]
    found = task.score([{"gold": g, "guess": p} for g, p in zip(gold, guess, strict=True)])
    assert found == {
        "f1": pytest.approx(2 / 5),
        "accuracy": 0.5,
        "semeval_f1": pytest.approx(0.25),
        "majority": 0.5,
    }
    with pytest.raises(ConfigError, match="semeval_f1"):
        _task(metrics=["semeval"])


def test_entities_that_a_model_may_be_shown(toy: Any, tmp_path: Path) -> None:
    vectors = np.zeros((3, 4), np.float32)
    GraphVectors(("Q7", "mat", "Q1"), ("r",), vectors, vectors[:1]).write(tmp_path / "v")
    examples = [_example(ids=["Q1", "Q2"]), _example(ids=["Q8", "Q7"])]
    rows = _task(entities=str(tmp_path / "v")).encode(examples, toy)
    track = rows.seqs["text"].tracks["entity"]
    ids, found = rows.seqs["text"].ids, []
    for row, column in zip(*np.nonzero(track), strict=True):
        found.append((int(row), int(ids[row, column]), int(track[row, column])))
    cat, mat = toy.encode("cat")[0], toy.encode("mat")[0]
    assert found == [(0, cat, 3), (0, mat, 2), (1, mat, 1)]  # by id, by name, and none for Q8
    assert "entity" not in _task().encode(examples, toy).seqs["text"].tracks
