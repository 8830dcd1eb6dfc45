"""Aspects of sentences: both layouts, offsets, XML that is not to be trusted, terms as tags, and
what is read as a pair or with marks.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from plmctl.config import compose as config
from plmctl.config.build import build
from plmctl.core.errors import DataError
from plmctl.storage.xml_tree import parse_xml
from plmctl.tasks.baselines import score_baselines
from plmctl.tasks.readers.aspect_terms import AspectTerms, tag_words
from plmctl.tasks.readers.aspects import AspectFiles
from plmctl.tasks.record import Example
from plmctl.tasks.unlabelled import read_unlabelled
from tests.command import plmctl
from tests.tasks.aspect_sentences import CSV, XML

SPLITS = {"train": ["*train*"], "dev": ["*dev*"], "test": ["*test*"]}
COLUMNS = {"text": "Sentence", "aspect": "Aspect Term", "start": "from", "end": "to",
           "label": "polarity", "id": "id"}  # fmt: skip


def read(folder: Path, content: str, name: str = "train.xml", **settings: Any) -> list[Example]:
    (folder / name).write_text(content, encoding="utf-8")
    return AspectFiles(splits=SPLITS, **settings).read(folder, name.split(".")[0], COLUMNS)


def make(name: str, path: object, *words: str) -> Any:
    own = [f"task={name}", f"task.path={path}", "checkpoint=null", *words]
    return build(config.compose("finetune", None, own).task, {"pooling": "first"}, path="task")


@pytest.mark.parametrize(("name", "content"), [("train.xml", XML), ("train.csv", CSV)])
def test_an_example_for_each_aspect(tmp_path: Path, name: str, content: str) -> None:
    found = read(tmp_path, content, name)
    assert [(each.fields["text2"], each.label) for each in found] == [
        ("rice & tea", "positive"),
        ("waiter", "negative"),
    ]
    for each in found:
        (entity,) = each.fields["entities"]
        assert each.fields["text"][entity["start"] : entity["end"]] == each.fields["text2"]
    assert [each.label for each in read(tmp_path, content, name, conflict=True)][-1] == "conflict"


def test_categories_places_and_what_is_left_out(tmp_path: Path) -> None:
    found = read(tmp_path, XML, aspects="categories")
    assert [each.fields["text2"] for each in found] == [
        "food",
        "service",
        "anecdotes/miscellaneous",
    ]
    reader = AspectFiles(splits=SPLITS)
    first, _ = reader.read(tmp_path, "train", {})
    assert (first.id, first.place) == ("813.0", f"{tmp_path}/train.xml:6")
    assert reader.skipped == {f"{tmp_path}/train.xml": 1}
    test = XML.replace(' polarity="positive"', "").replace(' polarity="negative"', "")
    assert [each.label for each in read(tmp_path, test, "test.xml")] == [None, None]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('from="4" to="14"', 'from="5" to="14"', r"train.xml:6.*'ice & tea', not the term 'rice"),
        ('from="34" to="40"', 'from="34" to="400"', r"train.xml:7.*outside of the 50 characters"),
        ('from="34"', 'from="x"', r"train.xml:7.*are no numbers"),
        ('from="34" ', "", r"train.xml:7.*<aspectTerm> has no from; its attributes: term, pol"),
        ('polarity="negative" from', "from", r"train.xml:7.*no polarity"),
        ('polarity="negative" from', 'polarity="great" from', r"train.xml:7.*'great' is none"),
        ("<text>We came at noon.</text>", "", r"train.xml:14.*a sentence without <text>"),
        ("&amp; tea were", "& tea were", r"train.xml:4.*no XML"),
        ("</sentences>", "", "no XML"),
        ("sentences>", "reviews>", "<reviews> has no <sentence>"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in XML
    with pytest.raises(DataError, match=message):
        read(tmp_path, XML.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (",4,14", ",3,14", r"train.csv:2.*not the term 'rice & tea'\n  fix: from=4 to=14"),
        ("Aspect Term,polarity", "Aspect,polarity", "expected column Aspect Term"),
        (",negative,", ",,", "train.csv:3.*the label is empty"),
    ],
)
def test_what_is_wrong_in_a_table_is_named(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        read(tmp_path, CSV.replace(old, new), "train.csv")


BOMB = '<!DOCTYPE x [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;">]><sentences>&b;</sentences>'
OUTSIDE = '<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/hostname">]><sentences>&a;</sentences>'


@pytest.mark.parametrize("content", [BOMB, OUTSIDE, '<!DOCTYPE x SYSTEM "x.dtd"><x/>'])
def test_no_document_type_is_read(content: str) -> None:
    with pytest.raises(DataError, match=r"x.xml:1.*the file has a document type"):
        parse_xml(content, Path("x.xml"))


def test_a_tree_knows_its_lines() -> None:
    root = parse_xml('<a>\n<b k="1">x<c/>y</b>\n<b/></a>', Path("x.xml"))
    assert [(each.line, each.text, each.attributes) for each in root.find_all("b")] == [
        (2, "xy", {"k": "1"}),
        (3, "", {}),
    ]
    assert [each.line for each in root.find_all("b", "c")] == [2]
    assert root.find("d") is None
    deep = parse_xml("<a>" * 100_000 + "</a>" * 100_000, Path("x.xml"))
    assert len(deep.children) == 1


def test_terms_as_tags(tmp_path: Path) -> None:
    (tmp_path / "train.xml").write_text(XML)
    first, second, third = AspectTerms(splits=SPLITS).read(tmp_path, "train", {})
    tagged = [
        pair for pair in zip(first.fields["words"], first.label, strict=True) if pair[1] != "O"
    ]
    assert tagged == [
        ("rice", "B-ASPECT"), ("&", "I-ASPECT"), ("tea", "I-ASPECT"), ("waiter", "B-ASPECT"),
    ]  # fmt: skip
    assert first.fields["words"][6:8] == [",", "but"]
    assert set(second.label) == {"O"}
    assert third.label[:3] == ["O", "B-ASPECT", "O"]
    words = [(0, 3), (4, 8), (9, 12)]
    # the longer one of two that share a word, and a part of a word
    assert tag_words(words, [(4, 8), (4, 12)]) == ["O", "B-ASPECT", "I-ASPECT"]
    assert tag_words(words, [(5, 7)]) == ["O", "B-ASPECT", "O"]
    bare = "<sentences><sentence><text>The rice</text></sentence></sentences>"
    (tmp_path / "test.xml").write_text(bare)
    assert AspectTerms(splits=SPLITS).read(tmp_path, "test", {})[0].label is None


def test_a_pair_and_marks(tmp_path: Path, toy: Any) -> None:
    (tmp_path / "train.xml").write_text(XML)
    task = make("aspect_sentiment", tmp_path)
    examples = task.read("train")
    task.fit_labels(examples)
    assert task.names == ["negative", "positive"]
    text = examples[1].fields["text"]
    ids = task.encode(examples, toy).seqs["text"].ids[1].tolist()
    wanted = [2, *toy.encode(text), 3, *toy.encode("waiter"), 3]
    assert ids[: len(wanted)] == wanted
    assert task.unit(examples[0]) == task.unit(examples[1])
    marked = make("aspect_sentiment", tmp_path, "task.read=marks")
    marked.fit_labels(examples)
    rows = marked.encode(examples, toy)
    wanted = [2, *toy.encode("The rice & tea were good, but the # waiter # was rude."), 3]
    assert rows.seqs["text"].ids[1].tolist()[: len(wanted)] == wanted
    assert rows.labels["class"].tolist() == [1, 0]
    asked = ("aspect_sentiment", "x", "task.marks=tokens")
    assert make(*asked, "task.read=marks").requires.new_tokens == 2
    assert make(*asked).requires.new_tokens == 0
    typed = marked.parse("the <e1>tea</e1> is fine", 1)
    assert (typed.fields["text"], typed.fields["text2"]) == ("the tea is fine", "tea")
    pair = task.parse("the tea is fine\ttea", 2)
    assert pair.fields["text2"] == "tea"
    with pytest.raises(DataError, match=r"line 2.*where the aspect 'tea' stands\n  fix: task.read"):
        marked.encode([pair], toy)


def test_baselines_stand_beside_it(tmp_path: Path) -> None:
    (tmp_path / "train.xml").write_text(XML)
    task = make("aspect_sentiment", tmp_path)
    examples = task.read("train")
    found = score_baselines(task, examples * 4, {"dev": examples}).scores["dev"]
    assert found["most frequent in train"]["accuracy"] == 0.5
    assert found["words"]["accuracy"] == 1.0


def test_it_is_learned_and_labels_xml(tmp_path: Path) -> None:
    one = XML.partition("<sentences>")[2].partition("</sentences>")[0]
    swapped = one.replace("positive", "?").replace("negative", "positive").replace("?", "negative")
    texts = [one, swapped.replace("good", "?").replace("rude", "good").replace("?", "rude")]
    (tmp_path / "train.xml").write_text(f"<sentences>{''.join(texts * 4)}</sentences>")
    (tmp_path / "test.xml").write_text(XML)
    run = tmp_path / "run"
    small = ["size=tiny", "tokenizer=word", "tokenizer.vocab_size=64", "train.precision=fp32"]
    path = f"task.path=[{tmp_path}/train.xml,{tmp_path}/test.xml]"
    plmctl("finetune", "task=aspect_sentiment", path, "checkpoint=null", *small,
           "train.epochs=1", "task.max_length=32", f"run.dir={run}", "task.read=marks")  # fmt: skip
    plmctl("eval", f"checkpoint={run}", f"input={tmp_path}/test.xml", f"out={tmp_path}/o.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "o.jsonl").read_text().splitlines()]
    assert [row["aspect"] for row in rows] == ["rice & tea", "waiter"]
    assert {row["guess"] for row in rows} <= {"positive", "negative"}


def test_terms_are_scored_by_their_characters() -> None:
    """As subtask 1: what is no word of ours is a term, too, and equal terms are one."""
    places = [[0, 3], [4, 8], [9, 10], [11, 14]]  # The rice & tea
    rows = [
        {"gold": ["O", "B-ASPECT", "O", "B-ASPECT"], "places": places,
         "guess": ["O", "B-ASPECT", "I-ASPECT", "I-ASPECT"], "gold_terms": [[4, 8], [11, 14]]},
        {"gold": ["O", "B-ASPECT", "O", "O"], "places": places,
         "guess": ["O", "B-ASPECT", "O", "B-ASPECT"], "gold_terms": [[4, 8], [4, 8], [5, 7]]},
    ]  # fmt: skip
    found = make("aspect_terms", "x").score(rows)
    assert (found["term_precision"], found["term_recall"]) == (1 / 3, 1 / 4)
    assert found["term_f1"] == 2 / 7
    assert found["f1"] == 2 / 6


def test_xml_without_labels_is_read_by_its_reader(tmp_path: Path) -> None:
    (tmp_path / "x.xml").write_text(XML)
    _, found = read_unlabelled(make("aspect_terms", tmp_path), str(tmp_path / "x.xml"))
    assert found[0].fields["words"][:2] == ["The", "rice"]
    assert found[0].fields["places"][:2] == [(0, 3), (4, 8)]
    plmctl("finetune", "task=aspect_terms", f"task.path={tmp_path}/x.xml", "checkpoint=null",
           "size=tiny", "tokenizer=word", "tokenizer.vocab_size=64", "task.dev_share=0",
           "train.epochs=1", "task.max_length=32", f"run.dir={tmp_path / 'run'}")  # fmt: skip
    out = plmctl("eval", f"checkpoint={tmp_path / 'run'}", "split=train", "--json")
    assert {"term_f1", "f1"} <= set(json.loads(out)["metrics"]["train"])
