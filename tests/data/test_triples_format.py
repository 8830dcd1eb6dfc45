"""format=triples: rows against the documents and the triples, and what is drawn beside them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from plmctl.core.errors import ConfigError, DataError
from plmctl.data.formats.renumbered import Renumbered
from plmctl.data.formats.triples import Triples
from plmctl.data.shards import SpanTrack
from plmctl.knowledge.triples import read_graph

CLS, SEP, PAD = 2, 3, 0
E, LENGTH = 12, 40
TEXT = LENGTH // 4 - 2  # tokens of a description in a row


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    triples = np.unique(rng.integers(0, [E, 3, E], (60, 3)), axis=0)
    (tmp_path / "entities.txt").write_text("".join(f"e{n}\n" for n in range(E)), encoding="utf-8")
    text = "".join(f"e{h}\tr{r}\te{t}\n" for h, r, t in triples)
    (tmp_path / "train.tsv").write_text(text, encoding="utf-8")
    (tmp_path / "valid.tsv").write_text("e0\tr0\te1\n", encoding="utf-8")
    return tmp_path


@pytest.fixture
def described(shards_of):
    """Descriptions of entities 3, 11, 5, 0, 7, 9 and 2, in this order, of one or two sentences."""
    entities = [3, 11, 5, 0, 7, 9, 2]
    shards = shards_of([[4], [6, 9], [1], [8], [3, 3], [12], [5]], first=20)
    edges = shards.sentences[shards.documents]
    starts = np.append(edges[:-1], edges[1] + 2)  # a second mark in a document
    ids = np.array([*entities, 10])
    order = np.argsort(starts)
    shards.spans["entity"] = SpanTrack(starts[order], np.ones(8, np.int32), ids[order])
    texts = [[token for sentence in document for token in sentence] for document in shards.texts()]
    return shards, dict(zip(entities, texts, strict=True))


def make(vocab, folder: Path, **more) -> Triples:
    return Triples(vocab=vocab, max_length=LENGTH, graph=str(folder), **more)


def lay_out(fmt: Triples, shards, epoch: int = 0):
    plan = fmt.plan(shards, seed=0, epoch=epoch, input_length=LENGTH)
    return plan, fmt.rows(shards, plan, np.arange(plan.rows))


def test_a_row_has_four_descriptions(vocab, folder, described) -> None:
    shards, texts = described
    graph = read_graph(folder)
    train = graph.splits["train"].tolist()
    known = {tuple(triple) for triple in train}
    expected = [(h, r, t) for h, r, t in train if h in texts and t in texts]
    assert len(expected) > 5
    _, rows = lay_out(make(vocab, folder), shards)
    seq, anchors = rows.seqs["text"], rows.anchors.reshape(-1, 4, 2)
    by_text = {tuple(text[:TEXT]): entity for entity, text in texts.items()}
    assert rows.values["relation"].tolist() == [r for _, r, _ in expected]
    for row, (h, r, t) in enumerate(expected):
        found = []
        for number, (where, column) in enumerate(anchors[row].tolist()):
            assert where == row
            assert seq.ids[row, column] == CLS
            end = column + seq.ids[row, column:].tolist().index(SEP)
            found.append(by_text[tuple(seq.ids[row, column + 1 : end].tolist())])
            piece = slice(column, end + 1)
            assert (seq.tracks["document"][row, piece] == number).all()
            assert seq.tracks["position"][row, piece].tolist() == list(range(end + 1 - column))
        assert found[:2] == [h, t]
        assert (found[2], r, t) not in known
        assert (h, r, found[3]) not in known
        length = int(seq.length[row])
        assert (seq.ids[row, length:] == PAD).all()
        assert length == sum(len(texts[entity][:TEXT]) + 2 for entity in found)
        # a model needs no positions beyond those of one text
        assert (seq.tracks["position"][row] < seq.ids.shape[1] / 4).all()


def test_the_report_counts_every_token(vocab, folder, described) -> None:
    shards, texts = described
    fmt = make(vocab, folder)
    plan, rows = lay_out(fmt, shards)
    report = plan.report
    assert report["cut"] == sum(max(0, len(text) - TEXT) for text in texts.values())
    assert report["tokens"] + report["repeated"] == (
        report["laid_out"] + report["cut"] + report["dropped"]
    )
    assert report["laid_out"] == rows.seqs["text"].length.sum() - 8 * plan.rows
    left = len(read_graph(folder).splits["train"]) - plan.rows
    assert report["triples_left_out"] == left > 0
    assert fmt.describe_left_out(shards, plan).startswith(f"{left} triples have no description")


def test_other_entities_are_drawn_in_each_epoch(vocab, folder, described) -> None:
    shards, _ = described
    fmt = make(vocab, folder)
    first, again, second = (lay_out(fmt, shards, epoch)[1] for epoch in (0, 0, 1))
    assert np.array_equal(first.seqs["text"].ids, again.seqs["text"].ids)
    assert not np.array_equal(first.seqs["text"].ids, second.seqs["text"].ids)
    assert np.array_equal(first.values["relation"], second.values["relation"])


def test_some_rows_are_those_of_all(vocab, folder, described) -> None:
    shards, _ = described
    fmt = make(vocab, folder)
    plan, rows = lay_out(fmt, shards)
    picked = fmt.rows(shards, plan, np.array([4, 1]))
    width = picked.seqs["text"].ids.shape[1]
    assert np.array_equal(picked.seqs["text"].ids, rows.seqs["text"].ids[[4, 1], :width])
    assert picked.values["relation"].tolist() == rows.values["relation"][[4, 1]].tolist()
    assert picked.anchors[:, 0].tolist() == [0] * 4 + [1] * 4


def test_mistakes_name_the_fix(vocab, folder, described, shards_of, tmp_path) -> None:
    shards, _ = described
    with pytest.raises(ConfigError, match=r"fix: format.max_length=12"):
        Triples(vocab=vocab, max_length=8, graph=str(folder))
    with pytest.raises(DataError, match=r"no such file.*\n  fix: format.graph="):
        Triples.opens["graph"](str(folder / "nowhere"))
    fmt = make(vocab, folder)
    with pytest.raises(DataError, match=r"no spans.entity.*\n  fix: data.sources.triples.path="):
        lay_out(fmt, shards_of([[4], [5]]))
    with pytest.raises(DataError, match=r"no spans.mention"):
        lay_out(make(vocab, folder, span="mention"), shards)
    marks = shards.spans["entity"]
    shards.spans["entity"] = marks._replace(id=marks.id + E)
    with pytest.raises(DataError, match="has 12 entities"):
        lay_out(fmt, shards)


def test_no_row_at_all_is_refused(vocab, folder, described) -> None:
    """Only one entity is described, and no triple links it with itself."""
    shards, _ = described
    loops = {h for h, _, t in read_graph(folder).triples.tolist() if h == t}
    alone, marks = next(entity for entity in range(E) if entity not in loops), shards.spans
    first = (column[:1] for column in marks["entity"])
    marks["entity"] = SpanTrack(*first)._replace(id=np.array([alone]))
    fmt = make(vocab, folder)
    plan = fmt.plan(shards, seed=0, epoch=0, input_length=LENGTH)
    assert plan.rows == 0
    with pytest.raises(DataError, match=r"no triple of .* has descriptions of both"):
        fmt.check(shards, plan)


def test_shuffled_descriptions_are_those_of_other_entities(vocab, folder, described) -> None:
    """One permutation of the described entities; triples, relations and what is drawn stay."""
    shards, texts = described
    _, plain = lay_out(make(vocab, folder), shards)
    _, control = lay_out(make(vocab, folder, shuffled=1), shards)
    _, again = lay_out(make(vocab, folder, shuffled=1), shards)
    assert np.array_equal(control.seqs["text"].ids, again.seqs["text"].ids)
    assert np.array_equal(control.values["relation"], plain.values["relation"])
    whose = {tuple(text[:TEXT]): entity for entity, text in texts.items()}

    def entities(rows) -> list[int]:
        seq = rows.seqs["text"]
        pieces = [seq.ids[row, column:].tolist() for row, column in rows.anchors]
        return [whose[tuple(piece[1 : piece.index(SEP)])] for piece in pieces]

    became: dict[int, int] = {}
    for before, after in zip(entities(plain), entities(control), strict=True):
        assert became.setdefault(before, after) == after
    assert sorted(became.values()) == sorted(became)
    assert sum(before != after for before, after in became.items()) >= len(became) / 2


def test_random_tails_are_the_same_in_each_epoch(vocab, folder, described) -> None:
    """Heads and relations stay; tails are those of the control, and what is drawn makes none."""
    shards, texts = described
    _, plain = lay_out(make(vocab, folder), shards)
    fmt = make(vocab, folder, random=1)
    _, control = lay_out(fmt, shards)
    _, later = lay_out(fmt, shards, epoch=1)
    whose = {tuple(text[:TEXT]): entity for entity, text in texts.items()}

    def entities(rows) -> np.ndarray:
        seq = rows.seqs["text"]
        pieces = [seq.ids[row, column:].tolist() for row, column in rows.anchors]
        found = [whose[tuple(piece[1 : piece.index(SEP)])] for piece in pieces]
        return np.array(found).reshape(-1, 4)

    before, after, again = entities(plain), entities(control), entities(later)
    assert np.array_equal(control.values["relation"], plain.values["relation"])
    assert np.array_equal(after[:, 0], before[:, 0])
    assert np.array_equal(after[:, :2], again[:, :2])
    assert (after[:, 1] != before[:, 1]).mean() > 0.5
    relation = control.values["relation"]
    made = set(zip(after[:, 0].tolist(), relation.tolist(), after[:, 1].tolist(), strict=True))
    for h, t, other_head, other_tail, r in np.column_stack([after, relation]).tolist():
        assert (other_head, r, t) not in made
        assert (h, r, other_tail) not in made


def test_a_format_around_it_names_the_same_graph(vocab, folder) -> None:
    inner = make(vocab, folder)
    assert inner.source_hash
    assert Renumbered(format=inner, segments=[2]).source_hash == inner.source_hash
