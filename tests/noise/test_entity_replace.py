"""WKLM's replaced entities: the rules of the paper's section 2.1, checked on every mention."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from plmctl.core.batch import IGNORE, Rows, Seq
from plmctl.core.draws import Draws
from plmctl.core.errors import ConfigError, DataError
from plmctl.noise.entity_replace import EntityReplace
from plmctl.noise.token_mask import TokenMask
from plmctl.text.tokenizer import Tokenizer
from tests.knowledge.tables import write_knowledge

CITIES = ["Paris", "London", "Rome", "New York City", "Oslo"]
ENTITIES = [
    *({"name": name, "aliases": [[name, 5]], "types": ["city"]} for name in CITIES),
    {"name": "Seine", "aliases": [["Seine", 3], ["river Seine", 2]], "types": ["river", "flow"]},
    {"name": "Thames", "aliases": [["Thames", 3], ["Father Thames", 0]], "types": ["river"]},
    {"name": "Moon", "aliases": [["Moon", 3]], "types": ["moon"]},  # alone in its type
    {"name": "Ada", "aliases": [["Ada", 3]], "types": []},
]
NAMES = [str(entity["name"]) for entity in ENTITIES]
TEXTS = [
    "in Paris the Seine flows and London has Rome",
    "Ada saw Oslo Paris Rome London and the Moon",
    "New York City is not London nor Paris",
]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    words = " ".join(TEXTS + NAMES + ["Father Thames river"])
    return Tokenizer.train([words] * 3, kind="wordpiece", vocab_size=100, lowercase=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_knowledge(tmp_path_factory.mktemp("known"), ENTITIES)


def make(tokenizer: Tokenizer, folder: Path | None, **settings: object) -> EntityReplace:
    home = None if folder is None else str(folder)
    given = {"replace_rate": 0.9, **settings}
    return EntityReplace(vocab=tokenizer.vocab, tokenizer=tokenizer, home=home, **given)


def cells_of(tokenizer: Tokenizer, copies: int = 40, width: int = 24) -> Rows:
    """cls text sep, with every known name marked; as many rows as texts and copies."""
    ids = np.full((len(TEXTS) * copies, width), tokenizer.vocab.pad, np.int32)
    length, table = [], []
    for row, text in enumerate(TEXTS * copies):
        tokens: list[int] = [tokenizer.vocab.cls]
        words = text.replace("New York City", "New_York_City").split()
        for word in words:
            name = word.replace("_", " ")
            piece = tokenizer.encode(name)
            if name in NAMES:
                table.append([row, len(tokens), len(piece), NAMES.index(name)])
            tokens += piece
        tokens.append(tokenizer.vocab.sep)
        ids[row, : len(tokens)] = tokens
        length.append(len(tokens))
    tracks = {"word_start": tokenizer.vocab.word_start[ids]}
    seq = Seq(ids, np.array(length), tracks)
    return Rows(np.arange(len(ids)), {"text": seq}, spans={"entity": np.array(table)})


def tokens_at(rows: Rows, mention: np.ndarray) -> list[int]:
    row, start, length = mention[:3].tolist()
    return rows.seqs["text"].ids[row, start : start + length].tolist()


def changed_of(before: Rows, after: Rows) -> np.ndarray:
    """[m] bool: whose entity is another one now."""
    return before.spans["entity"][:, 3] != after.spans["entity"][:, 3]


def test_every_rule_holds_for_every_mention(tokenizer: Tokenizer, folder: Path) -> None:
    before = cells_of(tokenizer)
    after = make(tokenizer, folder)(before, Draws(0, 0))
    old, new = before.spans["entity"], after.spans["entity"]
    assert (old[:, 0] == new[:, 0]).all()  # their number and order stay
    changed = changed_of(before, after)
    assert 0.2 < changed.mean() < 0.5
    for mention, (was, now) in enumerate(zip(old, new, strict=True)):
        if not changed[mention]:
            assert tokens_at(before, was) == tokens_at(after, now)
            continue
        entity = ENTITIES[now[3]]
        assert set(entity["types"]) & set(ENTITIES[was[3]]["types"])
        names = [alias for alias, count in entity["aliases"] if count]
        assert tokens_at(after, now) in [tokenizer.encode(name) for name in names]
        assert tokens_at(after, now) != tokens_at(before, was)
        same_row = mention and old[mention - 1, 0] == was[0]
        assert not (same_row and changed[mention - 1])


def test_the_text_around_mentions_stays(tokenizer: Tokenizer, folder: Path) -> None:
    before = cells_of(tokenizer)
    after = make(tokenizer, folder)(before, Draws(0, 0))
    for row in range(len(before.key)):
        rest = []
        for rows in (before, after):
            seq = rows.seqs["text"]
            outside = np.arange(seq.ids.shape[1]) < seq.length[row]
            for _, start, length, _ in rows.spans["entity"][rows.spans["entity"][:, 0] == row]:
                outside[start : start + length] = False
            rest.append(seq.ids[row, outside].tolist())
            assert (seq.ids[row, seq.length[row] :] == tokenizer.vocab.pad).all()
        assert rest[0] == rest[1]
        assert after.seqs["text"].tracks["word_start"][row, : seq.length[row]].tolist() == [
            bool(start) for start in tokenizer.vocab.word_start[seq.ids[row, : seq.length[row]]]
        ]


def test_mentions_that_may_be_replaced_are_judged(tokenizer: Tokenizer, folder: Path) -> None:
    before = cells_of(tokenizer)
    after = make(tokenizer, folder)(before, Draws(0, 0))
    changed, table = changed_of(before, after), after.spans["entity"]
    could = [NAMES[e] not in ("Ada", "Moon") for e in before.spans["entity"][:, 3]]
    expected = np.column_stack([table[:, :3], ~changed])[could]
    assert after.spans["judged"].tolist() == expected.tolist()
    assert not changed[~np.array(could)].any()


def test_a_mention_at_the_edge_of_its_document_is_not_judged(
    tokenizer: Tokenizer, folder: Path
) -> None:
    ids = np.array([tokenizer.encode("Paris in Oslo")])
    size = ids.shape[1]
    one, last = len(tokenizer.encode("Paris")), len(tokenizer.encode("Oslo"))
    table = np.array([[0, 0, one, 0], [0, size - last, last, 4]])
    rows = Rows(np.arange(1), {"text": Seq(ids, np.array([size]))}, spans={"entity": table})
    after = make(tokenizer, folder, replace_rate=0.0)(rows, Draws(0, 0))
    assert after.spans["judged"].shape == (0, 4)
    document = np.array([[0] * one + [1] * (size - one)])
    middle = np.array([[0, one, 1, 1]])
    rows = Rows(
        np.arange(1),
        {"text": Seq(ids, np.array([size]), {"document": document})},
        spans={"entity": middle},
    )
    assert len(make(tokenizer, folder, replace_rate=0.0)(rows, Draws(0, 0)).spans["judged"]) == 0


def test_entities_of_a_type_are_drawn_equally_often(tokenizer: Tokenizer, folder: Path) -> None:
    before = cells_of(tokenizer, copies=600)
    after = make(tokenizer, folder, copies=None)(before, Draws(0, 0))
    old, new = before.spans["entity"][:, 3], after.spans["entity"][:, 3]
    drawn = Counter(new[(old == 0) & (new != old)].tolist())
    total = drawn.total()
    assert set(drawn) == {1, 2, 3, 4}
    for count in drawn.values():
        assert abs(count - total / 4) < 5 * (total * 3 / 16) ** 0.5


def test_rate_one_replaces_every_second_and_rate_zero_none(
    tokenizer: Tokenizer, folder: Path
) -> None:
    before = cells_of(tokenizer)
    none = make(tokenizer, folder, replace_rate=0.0)(before, Draws(0, 0))
    assert not changed_of(before, none).any()
    every = changed_of(before, make(tokenizer, folder, replace_rate=1.0)(before, Draws(0, 0)))
    second = before.spans["entity"][:, 0] % 3 == 1  # Ada Oslo Paris Rome London Moon
    assert every[second].reshape(-1, 6)[0].tolist() == [False, True, False, True, False, False]


def test_replacements_repeat_after_their_copies(tokenizer: Tokenizer, folder: Path) -> None:
    before, noise = cells_of(tokenizer), make(tokenizer, folder, copies=3)
    ids = [noise(before, Draws(0, epoch)).seqs["text"].ids for epoch in range(4)]
    assert (ids[0] == ids[3]).all()
    assert (ids[0] != ids[1]).any()
    assert (ids[1] != ids[2]).any()


def test_one_row_alone_gets_what_it_gets_among_others(tokenizer: Tokenizer, folder: Path) -> None:
    before, noise = cells_of(tokenizer), make(tokenizer, folder)
    whole = noise(before, Draws(0, 0))
    seq, table = before.seqs["text"], before.spans["entity"]
    for row in (0, 7, 50):
        part = Seq(
            seq.ids[row : row + 1],
            seq.length[row : row + 1],
            {name: track[row : row + 1] for name, track in seq.tracks.items()},
        )
        own = table[table[:, 0] == row] - np.array([row, 0, 0, 0])
        single = Rows(before.key[row : row + 1], {"text": part}, spans={"entity": own})
        alone = noise(single, Draws(0, 0))
        assert (alone.seqs["text"].ids[0] == whole.seqs["text"].ids[row]).all()


def test_longer_names_need_room(tokenizer: Tokenizer, folder: Path) -> None:
    before = cells_of(tokenizer)
    longest = int(before.seqs["text"].length.max())
    seq = before.seqs["text"]
    cut = Seq(
        seq.ids[:, :longest], seq.length, {"word_start": seq.tracks["word_start"][:, :longest]}
    )
    noise = make(tokenizer, folder, room=0)
    after = noise(before.with_seq("text", cut), Draws(0, 0))
    assert after.seqs["text"].ids.shape[1] == longest
    assert after.seqs["text"].length.max() <= longest
    assert noise.input_length(64) == 64
    assert make(tokenizer, folder, room=8).input_length(64) == 56


def test_positions_and_documents_follow(tokenizer: Tokenizer, folder: Path) -> None:
    before = cells_of(tokenizer)
    seq = before.seqs["text"]
    position = np.broadcast_to(np.arange(seq.ids.shape[1]), seq.ids.shape)
    document = np.where(seq.real, 0, -1)
    tracks = {**seq.tracks, "position": position, "document": document}
    before = before.with_seq("text", Seq(seq.ids, seq.length, tracks))
    after = make(tokenizer, folder)(before, Draws(0, 0))
    moved = after.seqs["text"]
    for row, length in enumerate(moved.length.tolist()):
        assert moved.tracks["position"][row, :length].tolist() == list(range(length))
        assert (moved.tracks["document"][row] >= 0).sum() == length


def test_no_masked_token_is_in_a_mention(tokenizer: Tokenizer, folder: Path) -> None:
    replaced = make(tokenizer, folder)(cells_of(tokenizer), Draws(0, 0))
    settings = {"rate": 0.4, "selection": "ceiling"}
    plain = TokenMask(vocab=tokenizer.vocab, **settings)(replaced, Draws(0, 0))
    outside = TokenMask(vocab=tokenizer.vocab, **settings, outside=["entity"])
    assert outside.reads == {"input", "spans.entity"}
    masked = outside(replaced, Draws(0, 0)).targets["mlm"]
    inside = np.zeros(masked.shape, bool)
    for row, start, length, _ in replaced.spans["entity"].tolist():
        inside[row, start : start + length] = True
    assert (plain.targets["mlm"][inside] != IGNORE).any()
    assert (masked[inside] == IGNORE).all()
    # what is left is what would have been masked without the rule
    assert (masked[~inside] == plain.targets["mlm"][~inside]).all()


def test_a_shuffled_directory_draws_of_other_types(tokenizer: Tokenizer, folder: Path) -> None:
    before = cells_of(tokenizer)
    after = make(tokenizer, folder, shuffled=1)(before, Draws(0, 0))
    changed = changed_of(before, after)
    assert changed.any()
    shown = [tokenizer.decode(tokens_at(after, m)) for m in after.spans["entity"][changed]]
    known = make(tokenizer, folder, shuffled=1).knowledge
    assert set(shown) <= {alias for entity in known for alias, _ in entity.aliases}


def test_any_entity_may_stand_in_for_one_of_a_type(tokenizer: Tokenizer, folder: Path) -> None:
    before, kinds = cells_of(tokenizer), set()
    replaced = np.zeros(len(before.spans["entity"]), bool)
    for seed in range(20):
        after = make(tokenizer, folder, any_type=True)(before, Draws(seed, 0))
        changed = changed_of(before, after)
        replaced |= changed
        was, became = (rows.spans["entity"][changed, 3] for rows in (before, after))
        assert (was != became).all()
        true = make(tokenizer, folder).pools.kinds
        types = make(tokenizer, folder).knowledge.types
        assert all(true[e] for e in was.tolist())  # what has no type is left alone, as ever
        kinds |= {types[a] == types[b] for a, b in zip(was.tolist(), became.tolist(), strict=True)}
    assert replaced.any()
    assert kinds == {True, False}


def test_what_cannot_work_is_said(tokenizer: Tokenizer, folder: Path, tmp_path: Path) -> None:
    rows = cells_of(tokenizer)
    with pytest.raises(ConfigError, match="nothing says which entities"):
        make(tokenizer, None)(rows, Draws(0, 0))
    few = write_knowledge(tmp_path / "few", ENTITIES[:3])
    with pytest.raises(DataError, match="has the id 8, and there are 3 entities"):
        make(tokenizer, few)(rows, Draws(0, 0))
    alone = write_knowledge(tmp_path / "alone", [{**e, "types": []} for e in ENTITIES])
    with pytest.raises(DataError, match="no type has two entities"):
        make(tokenizer, alone)(rows, Draws(0, 0))
