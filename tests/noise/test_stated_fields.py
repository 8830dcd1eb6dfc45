"""What each noise of conf/ states of its fields is what it does: the fields of its rows afterwards
are those of before, without `removes`, with `writes`; it needs `reads` and nothing more.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from plmctl.config.build import build
from plmctl.config.recipes import load, part_files
from plmctl.config.references import work_out
from plmctl.core.batch import IGNORE, Rows
from plmctl.core.draws import Draws
from plmctl.core.errors import ConfigError, DataError
from plmctl.core.parts import part_of
from plmctl.noise.base import Chain, Noise
from plmctl.tasks.batches import Batches
from plmctl.text.tokenizer import Tokenizer
from tests.knowledge.tables import write_knowledge
from tests.noise import test_entity_replace as replacing
from tests.noise import test_mixed_vocabulary as mixing
from tests.noise.plain_rows import make_vocab
from tests.noise.test_sense_mask import Marked
from tests.noise.test_sentiment_mask import Words
from tests.noise.worded import worded
from tests.objectives.test_lexical_relation import Few

WORDS = ["clear", "vague", "bad", "good", "none"]
VOCAB = make_vocab(
    1000,
    specials=20,
    sentinels=tuple(range(19, 9, -1)),
    unused=(8, 9),
    texts=("",) * 20 + tuple(WORDS[n // 196] for n in range(980)),
)
# in place of files that this machine may not have
LEXICONS = {"senses": Marked, "lexicon": Words, "pairs": Few}


def rows_with(fields: frozenset[str]) -> Rows:
    """Rows of words and sentences that have these `fields`, and no others."""
    rows = worded(8, 64)
    seq = rows.seqs["text"]
    ids = np.where((seq.ids >= 10) & (seq.ids < 20), seq.ids + 20, seq.ids)
    tracks = {
        **seq.tracks,
        "sentence": np.cumsum(seq.tracks["word_start"], 1) // 8,
        "position": np.broadcast_to(np.arange(64), ids.shape),
        **{name: ids % 3 for name in ("polarity", "pos", "rating")},
        "language": ids % 2,
    }
    groups: dict[str, list[str]] = {"tracks": [], "targets": [], "spans": []}
    for field in fields:
        group, _, name = field.partition(".")
        groups.get(group, []).append(name)
    clean = replace(seq, ids=ids, tracks={name: tracks[name] for name in groups["tracks"]})
    return Rows(
        rows.key,
        {name: clean for name in sorted(fields & {"source", "target"}) or ["text"]},
        targets={name: np.where(ids % 7 == 0, ids, IGNORE) for name in groups["targets"]},
        spans={name: rows.spans["entity"] for name in groups["spans"]},
    )


def make(name: str) -> Noise:
    node = work_out({"train": {"batch_size": 4}, "part": load(part_files("noise")[name])})["part"]
    for key in node.keys() & LEXICONS.keys():
        node[key] = {"_target_": f"{LEXICONS[key].__module__}.{LEXICONS[key].__qualname__}"}
    return build(node, {"vocab": VOCAB, "max_length": 64}, ["tests"], path="noise")


def same(one: Rows, two: Rows) -> bool:
    arrays = [
        [*(seq.ids for seq in rows.seqs.values()), *rows.targets.values(), *rows.spans.values()]
        for rows in (one, two)
    ]
    return len(arrays[0]) == len(arrays[1]) and all(map(np.array_equal, *arrays))


def reads(noise: Noise, field: str) -> bool:
    """Whether the rows are others without this field, or cannot be made."""
    try:
        without = noise(rows_with(noise.reads - {field}), Draws(0, 0))
    except (KeyError, DataError):
        return True
    return not same(without, noise(rows_with(noise.reads), Draws(0, 0)))


def names_after(noise: Noise, before: Rows, after: Rows) -> set[str]:
    """The names in the rows afterwards; sequences that it makes come with tracks of their own."""
    own = {
        f"tracks.{name}"
        for each in after.seqs.keys() - before.seqs.keys()
        for name in after.seqs[each].tracks
    }
    return set(after.names - (own - noise.writes - before.names))


OF_A_FOLDER = {"entity_replace", "mixed_vocabulary"}


@pytest.mark.parametrize("name", sorted(part_files("noise").keys() - OF_A_FOLDER))
def test_a_noise_does_what_it_states(name: str) -> None:
    noise = make(name)
    for fields in {noise.reads, noise.reads | noise.uses}:
        before = rows_with(fields)
        after = noise(before, Draws(0, 0))
        assert names_after(noise, before, after) == (before.names - noise.removes) | noise.writes
    for field in noise.reads - {"input", "text"}:
        assert reads(noise, field), field


def test_so_does_the_one_that_needs_a_knowledge_directory(tmp_path: Path) -> None:
    words = " ".join([*replacing.TEXTS, *replacing.NAMES, "Father Thames river"])
    tokenizer = Tokenizer.train([words] * 3, kind="wordpiece", vocab_size=100, lowercase=False)
    noise = replacing.make(tokenizer, write_knowledge(tmp_path, replacing.ENTITIES))
    before = replacing.cells_of(tokenizer, 2)
    assert noise.reads == {"input", "spans.entity"}
    assert noise(before, Draws(0, 0)).names == before.names | noise.writes


def test_so_does_the_one_that_needs_a_tokenizer(tmp_path: Path) -> None:
    mixing.SMALL.save(tmp_path)
    noise, before = mixing.make(tmp_path), mixing.make_rows(4, 5, 40)
    assert noise.reads == {"input", "tracks.word_start"}
    assert noise(before, Draws(0, 0)).names == before.names | noise.writes


@part_of("noise")
class Silent(Noise):
    writes = frozenset({"targets.mlm", "spans.choosen"})

    def __call__(self, rows: Rows, draws: Draws) -> Rows:
        chosen = np.zeros((0, 4), np.int64)
        return replace(rows, targets={"mlm": rows.seqs["text"].ids}, spans={"chosen": chosen})


def test_a_field_that_is_stated_and_not_given_is_told_with_part_and_field() -> None:
    place = rf"{__name__}.Silent \(.*test_stated_fields.py:\d+\)"
    problem = "states 'spans.choosen' in `writes`, but `__call__` makes rows without it"
    fix = "write 'spans.choosen' in `__call__`, or leave it out of `writes`"
    with pytest.raises(ConfigError) as caught:
        Chain([make("token_mask"), Silent()])(rows_with(frozenset({"text"})), Draws(0, 0))
    near = r" \(did you mean 'spans.chosen'\?\)"
    assert caught.match(f"^noise: {place} {problem}{near}\n  fix: # {fix}$")


def batches(noise: Noise) -> Batches:
    """Those of a task whose rows have a text and nothing else."""
    rows = rows_with(frozenset({"text"}))
    return Batches(rows, batch_size=4, micro_batch_size=None, seed=0, noise=noise)


def test_so_it_is_in_fine_tuning() -> None:
    with pytest.raises(ConfigError, match=r"Silent \(.*\) states 'spans.choosen' in `writes`"):
        next(batches(Silent()))


@part_of("noise")
class Hungry(Noise):
    reads = frozenset({"input", "tracks.word_start"})


def test_a_field_that_a_task_lacks_is_told_with_the_noise_that_reads_it() -> None:
    place = rf"{__name__}.Hungry \(.*test_stated_fields.py:\d+\)"
    problem = "reads 'tracks.word_start', but the rows of this task lack it"
    fix = "a noise that does not read it, or write 'tracks.word_start' in `encode` of the task"
    with pytest.raises(ConfigError, match=f"^noise: {place} {problem}\n  fix: # {fix}$"):
        next(batches(Hungry()))


def test_a_noise_that_finds_what_it_reads_changes_the_rows_of_a_task() -> None:
    assert all("mlm" in batch.targets for batch in next(batches(make("token_mask"))))
