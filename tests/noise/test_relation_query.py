"""The fact before a document, and tokens of mentions that stay: rows by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from plmctl.core.batch import IGNORE, Rows, Seq
from plmctl.core.draws import Draws
from plmctl.core.errors import ConfigError
from plmctl.noise.relation_query import RelationQuery
from plmctl.noise.spare_spans import SpareSpans
from plmctl.noise.token_mask import TokenMask
from tests.noise.plain_rows import make_rows, make_vocab
from tests.objectives.test_erica import Facts

TEXTS = {20: "bo", 21: "rn", 22: "in", 23: "born", 24: "xin"}


def vocab():
    known = make_vocab()
    texts = tuple(TEXTS.get(n, "") for n in range(known.size))
    starts = np.array([n in (20, 22) for n in range(known.size)])
    return replace(known, texts=texts, word_start=starts)


def cells_of() -> Rows:
    ids = np.array([[2, 30, 31, 32, 33, 34, 3, 0], [2, 40, 41, 42, 43, 44, 45, 3]])
    spans = np.array([[0, 1, 2, 7], [0, 4, 1, 8], [0, 5, 1, 7], [1, 2, 1, 7], [1, 4, 2, 9]])
    tracks = {"segment": np.zeros((2, 8), np.uint8), "word_start": np.ones((2, 8), bool)}
    text = Seq(ids.astype(np.int32), np.array([7, 8]), tracks)
    anchors = np.array([[0, 0], [1, 0]])
    return Rows(np.arange(2), {"text": text}, anchors=anchors, spans={"entity": spans})


def noise(facts: set[tuple[int, int, int]], longest: int = 6) -> RelationQuery:
    table = Facts(facts)
    table.names = ["born in", "nothing known"]  # type: ignore[misc]
    return RelationQuery(vocab=vocab(), facts=table, longest=longest)


def test_the_query_by_hand() -> None:
    made = noise({(7, 0, 8)})(cells_of(), Draws(0, 0))
    text = made.seqs["text"]
    # [cls] born in, the first mention of 7, [sep], the document
    assert text.ids[0].tolist() == [2, 20, 21, 22, 30, 31, 3, 30, 31, 32, 33, 34, 3, 0]
    assert text.ids[1].tolist() == [2, 40, 41, 42, 43, 44, 45, 3, 0, 0, 0, 0, 0, 0]
    assert text.length.tolist() == [13, 8]
    assert made.spans["query"].tolist() == [[0, 1, 6, 7, 0, 8]]
    assert made.spans["entity"].tolist() == [
        [0, 7, 2, 7], [0, 10, 1, 8], [0, 11, 1, 7], [1, 2, 1, 7], [1, 4, 2, 9],
    ]  # fmt: skip
    assert made.anchors.tolist() == [[0, 0], [1, 0]]  # type: ignore[union-attr]
    assert noise(set()).input_length(48) == 42


def test_long_queries_are_cut_and_facts_are_drawn() -> None:
    made = noise({(7, 0, 8)}, longest=4)(cells_of(), Draws(0, 0))
    assert made.seqs["text"].ids[0, :6].tolist() == [2, 20, 21, 22, 3, 30]
    several = noise({(7, 0, 8), (8, 1, 7), (8, 0, 7)})
    asked = {
        tuple(several(cells_of(), Draws(0, epoch)).spans["query"][0, 3:].tolist())
        for epoch in range(30)
    }
    assert asked == {(7, 0, 8), (8, 1, 7), (8, 0, 7)}
    nothing = noise({(1, 0, 2)})(cells_of(), Draws(0, 0))
    assert len(nothing.spans["query"]) == 0
    assert (nothing.seqs["text"].ids[:, :8] == cells_of().seqs["text"].ids).all()


def test_facts_are_those_of_the_first_document_of_a_row() -> None:
    rows = cells_of()
    document = np.array([[0, 0, 0, 0, 1, 1, 1, -1], [0] * 8])
    packed = rows.with_seq("text", rows.seqs["text"].with_tracks(document=document))
    made = noise({(7, 0, 8)})(packed, Draws(0, 0))
    assert len(made.spans["query"]) == 0  # 8 stands in the second document


def test_mentions_stay_and_other_tokens_are_hidden_as_often() -> None:
    rows = make_rows(60, 40)
    spans = np.array([(row, start, 2, 1) for row in range(60) for start in (3, 10, 20)])
    rows = replace(rows, spans={"entity": spans})
    masked = TokenMask(vocab=make_vocab(), rate=0.3)(rows, Draws(1, 0))
    made = SpareSpans()(masked, Draws(1, 0))
    inside = np.zeros((60, 40), bool)
    for row, start, length, _ in spans.tolist():
        inside[row, start : start + length] = True
    ids, target = made.seqs["text"].ids, made.targets["mlm"]
    assert (ids[inside] == rows.seqs["text"].ids[inside]).all()
    assert (target[inside] == IGNORE).all()
    assert (target[~inside] == masked.targets["mlm"][~inside]).all()
    assert (ids[~inside] == masked.seqs["text"].ids[~inside]).all()
    assert (masked.targets["mlm"][inside] != IGNORE).any()
    with pytest.raises(ConfigError, match="names of spans"):
        SpareSpans(spans=[])


@pytest.mark.parametrize("more", [set(), {(8, 0, 7)}])
def test_no_fact_is_asked_of_an_entity_and_itself(more: set[tuple[int, int, int]]) -> None:
    """A table may say so (a similar thing, a part of itself): the answer would be the question."""
    asked = noise({(7, 0, 7), (8, 1, 8), *more})
    found = {
        tuple(row[3:])
        for epoch in range(8)
        for row in asked(cells_of(), Draws(0, epoch)).spans["query"].tolist()
    }
    assert found == more
