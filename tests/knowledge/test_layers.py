"""Layers of marks: lexicons, WordNet, and the columns of CoNLL-U, down to the tokens."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from plmctl.commands.data_link import describe_links
from plmctl.config.build import build
from plmctl.config.compose import compose
from plmctl.config.make_spec import spec_of
from plmctl.core.errors import ConfigError, DataError
from plmctl.data.shards import Shards
from plmctl.data.survey import TextSource
from plmctl.data.tokenizing import TokenizingJob, tokenize
from plmctl.knowledge.layers import Lexicon, Treebank
from plmctl.knowledge.linking import link
from plmctl.knowledge.wordnet import SUPERSENSES

BANK = """\
# newdoc id = one
# text = Dogs don't bark.
1	Dogs	dog	NOUN	NNS	_	4	nsubj	_	_
2-3	don't	_	_	_	_	_	_	_	_
2	do	do	AUX	VBP	_	4	aux	_	_
3	n't	not	PART	RB	_	4	advmod	_	_
4	bark	bark	VERB	VB	_	0	root	_	SpaceAfter=No
5	.	.	PUNCT	.	_	4	punct	_	_

# text = Why?
1	Why	why	ADV	WRB	_	0	root	_	SpaceAfter=No
1.1	not	not	PART	RB	_	_	_	_	_
2	?	?	PUNCT	.	_	1	punct	_	_

# newdoc id = two
1	No	no	INTJ	UH	_	0	root	_	_
2	text	text	NOUN	NN	_	1	dep	_	SpaceAfter=No
3	!	!	PUNCT	.	_	1	punct	_	_
"""


def shown(row: dict, name: str, tags: list[str] | None = None) -> list[tuple[str, object]]:
    return [
        (row["text"][start:end], number if tags is None else tags[number - 1])
        for start, end, number in row[name]
    ]


def test_columns_become_marks(tmp_path: Path) -> None:
    file = tmp_path / "bank.conllu"
    file.write_text(BANK)
    bank = Treebank(file, ["upos", "head"])
    one, two = bank.documents()
    tags = bank.tags["upos"]
    assert (one["title"], two["title"]) == ("one", "two")
    assert (one["text"], two["text"]) == ("Dogs don't bark.\nWhy?", "No text!")
    assert shown(one, "upos", tags) == [
        *(("Dogs", "NOUN"), ("don't", "AUX"), ("bark", "VERB"), (".", "PUNCT")),
        *(("Why", "ADV"), ("?", "PUNCT")),
    ]
    assert shown(one, "head") == [
        *(("Dogs", 4), ("don't", 4), ("bark", 4), (".", 4)),
        *(("Why", 1), ("?", 1)),
    ]
    assert shown(two, "upos", tags)[-1] == ("!", "PUNCT")
    assert set(bank.tags) == {"upos"}


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        (
            "4	bark	bark",
            "4	growl	growl",
            "conllu:7: the word 'growl' is not in the text",
        ),
        ("4	bark	bark	VERB", "4	bark", "conllu:7: 8 columns of a word, not 10"),
    ],
)
def test_a_broken_line_is_named(tmp_path: Path, old: str, new: str, what: str) -> None:
    file = tmp_path / "bank.conllu"
    file.write_text(BANK.replace(old, new))
    with pytest.raises(DataError, match=what):
        list(Treebank(file, ["upos"]).documents())


def test_an_unknown_column_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"columns of CoNLL-U.*did you mean 'upos'"):
        Treebank(tmp_path / "bank.conllu", ["upo"])


def test_words_of_a_lexicon_are_found_in_any_case(tmp_path: Path) -> None:
    file = tmp_path / "tags.tsv"
    file.write_text("good\tpositive\nnot good\tnegative\nbad\tnegative\n")
    lexicon = Lexicon(file)
    assert lexicon.tags == ["positive", "negative"]
    found = [(m.start, m.end, m.id) for m in lexicon("Good, NOT  good; badly bad")]
    assert found == [(0, 4, 1), (6, 15, 2), (23, 26, 2)]


def test_wordnet_gives_the_class_of_the_first_meaning() -> None:
    lexicon = Lexicon("wordnet")
    assert set(lexicon.tags) <= set(SUPERSENSES)
    (mark,) = lexicon("bass")
    assert lexicon.tags[mark.id - 1].startswith("noun.")


def test_layers_reach_the_tokens(tmp_path: Path) -> None:
    file = tmp_path / "bank.conllu"
    file.write_text(BANK)
    (tmp_path / "names.tsv").write_text("Dogs\tDog\n")
    given = {"dictionary": str(tmp_path / "names.tsv"), "layers": ("upos", "head")}
    spec = spec_of("link", {"path": str(file), "out": ".", **given}, None)
    folder = tmp_path / "out"
    about = link(spec.make_job(), folder, say=lambda *_: None, tell=lambda _: None)
    assert about["layers"] == {"entity": "entities.jsonl", "upos": "upos.txt", "head": "head.txt"}
    names = (folder / "upos.txt").read_text().split("\n")
    assert names[:3] == ["", "NOUN", "AUX"]

    cfg = compose("tokenize", None, ["tokenizer=char", f"out={folder / 'tokens'}"])
    source = TextSource(str(folder / "text.jsonl"), spans=("entity",), tags=("upos", "head"))
    recipe = build(cfg.tokenizer, path="tokenizer")
    tokenize(TokenizingJob(source, recipe, valid_share=0, processes=1), folder / "tokens")
    shards = Shards.open(folder / "tokens")
    assert len(shards.spans["entity"].start) == 1
    assert [names[number] for number in shards.tracks["upos"][:4]] == ["NOUN"] * 4
    assert shards.tracks["head"][:4].tolist() == [4] * 4


def test_layers_are_columns_of_treebanks(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x\n")
    given = {"path": str(tmp_path / "a.txt"), "out": ".", "layers": ("upos",)}
    with pytest.raises(ConfigError, match="goes with a path of CoNLL-U"):
        spec_of("link", given, None).make_job()


def test_a_treebank_needs_no_dictionary(tmp_path: Path) -> None:
    file = tmp_path / "bank.conllu"
    file.write_text(BANK)
    spec = spec_of("link", {"path": str(file), "out": ".", "layers": ("deprel",)}, None)
    about = link(spec.make_job(), tmp_path / "out", say=lambda *_: None, tell=lambda _: None)
    assert describe_links(about, "out") == [
        "out: 2 documents of 29 characters",
        "  other marks: deprel 9",
    ]
    rows = [json.loads(line) for line in (tmp_path / "out/text.jsonl").read_text().splitlines()]
    assert [len(row["deprel"]) for row in rows] == [6, 3]
    assert [row["entity"] for row in rows] == [[], []]
