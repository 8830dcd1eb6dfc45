"""What each format of conf/ states in `provides` is what its rows have, whatever is wanted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from plmctl.config.build import build
from plmctl.config.recipes import load, part_files
from plmctl.config.references import work_out
from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.data.formats.base import Format
from plmctl.data.formats.blocks import Blocks
from plmctl.data.reader import RowReader
from plmctl.data.shards import SpanTrack
from plmctl.text.vocab import Vocab
from tests.data.conftest import MemoryShards, make_shards
from tests.data.test_triples_format import described, folder  # noqa: F401

LENGTH = 40
SMALLER = {"max_length": LENGTH, "target_length": 16, "reuse_length": 16}


def make(name: str, vocab: Vocab, **settings: Any) -> Format:
    node = work_out({"train": {"batch_size": 4}, "part": load(part_files("format")[name])})["part"]
    node |= {key: value for key, value in SMALLER.items() if key in node}
    marks = replace(vocab, texts=("",) * 7 + (":", '"'))
    return build(node | settings, {"vocab": marks}, path="format")


def sentences(*, pairs: bool) -> MemoryShards:
    """Documents of some sentences, each with a mark on its first token; or parallel text."""
    rng = np.random.default_rng(0)
    count = 2 if pairs else 6
    shards = make_shards(rng.integers(2, 12, (60, count)).tolist())
    starts = shards.sentences[:-1]
    words = np.arange(len(starts)) // count
    shards.spans["word"] = SpanTrack(starts, np.ones(len(starts), np.int32), words)
    shards.tracks["language"] = np.zeros(len(shards.ids), np.int32)
    shards.pairs = pairs
    return shards


def check(layout: Format, shards: Any) -> None:
    plan = layout.plan(shards, seed=0, epoch=0, input_length=LENGTH)
    brought = {f"spans.{name}" for name in shards.spans}
    brought |= {f"tracks.{name}" for name in shards.tracks}
    for wanted in (None, layout.provides):
        rows = layout.rows(shards, plan, np.arange(min(plan.rows, 8)), wanted)
        assert layout.provides <= rows.names
        assert rows.names <= layout.provides | brought


@pytest.mark.parametrize("name", sorted(part_files("format").keys() - {"triples"}))
def test_rows_have_what_their_format_provides(vocab: Vocab, name: str) -> None:
    layout = make(name, vocab)
    check(layout, sentences(pairs=layout.parallel))


def test_so_do_triples(vocab: Vocab, folder, described) -> None:  # noqa: F811
    check(make("triples", vocab, graph=str(folder)), described[0])


@part_of("format")
class LessThanStated(Blocks):
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.provides |= {"labels.pair", "targets.unread"}


@pytest.mark.parametrize("wanted", [None, frozenset({"labels.pair"}), frozenset({"text"})])
def test_what_a_format_states_and_does_not_give(
    vocab: Vocab, toy: MemoryShards, wanted: frozenset[str] | None
) -> None:
    layout = LessThanStated(vocab=vocab, max_length=LENGTH, crossing=False, specials=True)
    reader = RowReader(toy, layout, seed=0, batch_size=4, wanted=wanted)  # type: ignore[arg-type]
    if wanted == {"text"}:  # what nobody reads is not missed
        assert "text" in reader.rows(0, np.arange(2)).names
        return
    told = (
        rf"^format: {__name__}.LessThanStated \(.*\) states 'labels.pair' in `provides`,"
        r" but `rows` makes rows without it\n"
        r"  fix: # write 'labels.pair' in `rows`, or leave it out of `provides`$"
    )
    with pytest.raises(ConfigError, match=told):
        reader.rows(0, np.arange(2))
