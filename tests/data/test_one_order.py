"""One order of rows: whatever the number of processes, the micro-batches and the read-ahead, an
update of one global batch has the same rows, also after kills.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pytest

from plmctl.config.groups import Data
from plmctl.config.stage_settings import micro_batch_rows
from plmctl.core.batch import Batch, Rows, Seq
from plmctl.core.errors import ConfigError, DataError
from plmctl.data.formats.blocks import Blocks
from plmctl.data.formats.segments import Segments
from plmctl.data.formats.sentence_pair import SentencePair
from plmctl.data.loader import Loader, RowSource
from plmctl.data.mixture import Mixture
from plmctl.data.reader import RowReader
from plmctl.data.shards import Shards
from plmctl.data.stream_reader import StreamReader
from plmctl.data.survey import TextSource
from plmctl.data.text_stream import TextStream
from plmctl.data.tokenizing import TokenizingJob, tokenize
from plmctl.graph.batches import TripleBatches
from plmctl.graph.losses.log_sigmoid import LogSigmoid
from plmctl.inputs.loaders import refuse_other_rows
from plmctl.inputs.sharded import open_shards
from plmctl.noise.token_mask import TokenMask
from plmctl.tasks.batches import Batches
from plmctl.tasks.mixing.proportional import Proportional
from plmctl.tasks.several import TaskBatches
from plmctl.text.tokenizer import Tokenizer
from plmctl.text.train import KINDS
from plmctl.training.processes.world import World
from tests.data.test_parts import sentence
from tests.graph.tiny_graph import make_graph

B, UPDATES = 8, 10  # rows of an update
# (processes, rows of a micro-batch, updates that are prepared ahead)
LAYOUTS = [(1, 8, 0), (1, 2, 2), (2, 4, 0), (2, 1, 2), (4, 2, 0), (4, 1, 2)]


class Updates(Protocol):
    """The updates of one process."""

    def __next__(self) -> list[Batch]: ...
    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: dict[str, Any]) -> None: ...


Make = Callable[[int, int, int, int], Updates]  # (processes, rank, micro-batch, ahead)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tokens of short and long documents, `cut` in shards, and their text."""
    rng, folder = np.random.default_rng(5), tmp_path_factory.mktemp("order")
    rows = [" ".join(sentence(rng) for _ in range(rng.integers(1, 9))) for _ in range(70)]
    file = folder / "x.jsonl"
    file.write_text("\n".join(json.dumps({"text": row}) for row in rows), encoding="utf-8")
    recipe = KINDS["wordpiece"](vocab_size=75)
    job = partial(TokenizingJob, TextSource(str(file)), recipe, processes=1, valid_share=0)
    tokenize(job(), folder / "whole")
    tokenize(job(shard_tokens=500), folder / "cut")
    return folder


def make_loader(home: Path, kind: str, world: int, rank: int, micro: int, ahead: int) -> Updates:
    tokenizer = Tokenizer.load(home / "whole")
    vocab, whole = tokenizer.vocab, Shards.open(home / "whole")
    blocks = Blocks(vocab=vocab, max_length=32, crossing=False, specials=True)
    pairs = SentencePair(vocab=vocab, max_length=32, short_rate=0.1, random_rate=0.5)
    where = {"batch_size": B, "world": world, "rank": rank, "seed": 3}
    text = partial(TextStream, [home / "x.jsonl"], home / "whole/tokenizer", field="text")
    readers: dict[str, Callable[[], Any]] = {
        "packed": lambda: RowReader(whole, blocks, **where),
        "pairs": lambda: RowReader(whole, pairs, **where),
        "memory": lambda: RowReader(
            whole, Segments(vocab=vocab, max_length=16, streams=B, shuffled=True), **where
        ),
        "mixture": lambda: Mixture(
            {
                name: RowReader(whole.first(share), pairs, **where | {"seed": seed})
                for seed, (name, share) in enumerate({"a": 1.0, "b": 0.4, "c": 0.1}.items())
            },
            {"a": 0.5, "b": 0.3, "c": 0.2},
            **where,
        ),
        "stream": lambda: StreamReader(
            text(lines="auto", segment=None, size=2500), blocks, **where
        ),
        "shards": lambda: StreamReader(
            open_shards(home / "cut", str(home / "cut"), Data(), window=1, share=1), blocks, **where
        ),
    }
    schedule = kind if kind in ("together", "alternated", "sampled") else "together"
    names = ["packed", "pairs"] if kind == schedule else [kind]
    mask = TokenMask(vocab=vocab, rate=0.15)
    sources = {name: RowSource(readers[name](), mask) for name in names}
    return Loader(sources, micro_batch_size=micro, seed=3, schedule=schedule, prefetch=ahead)


def make_labelled(world: int, rank: int, micro: int, kind: str) -> Updates:
    """Rows of a task, sorted by length within reach, alone or in groups; several tasks; a graph.
    The last update of an epoch has fewer rows, even than processes.
    """
    where = {"batch_size": B, "micro_batch_size": micro, "seed": 3, "world": world, "rank": rank}
    if kind == "graph":
        return TripleBatches(make_graph(triples=60), LogSigmoid(negatives=3, gamma=1.0), **where)
    rng = np.random.default_rng(7)
    groups = np.repeat(np.arange(26), 2) if kind == "groups" else None

    def of(count: int) -> Batches:
        length = rng.integers(1, 30, count)
        ids = rng.integers(5, 50, (count, 30))
        values = {} if groups is None else {"group": groups[:count]}
        return Batches(Rows(np.arange(count), {"text": Seq(ids, length)}, values=values), **where)

    return (
        TaskBatches({"a": of(51), "b": of(19)}, Proportional(), seed=3)
        if kind == "tasks"
        else of(51)
    )


def list_rows(batches: list[Batch]) -> list[str]:
    """A hash of each row: its number, and the tokens without their padding."""
    found = []
    for batch in batches:
        for row, key in enumerate(batch.key.tolist()):
            digest = hashlib.sha256(str(key).encode())
            for name, seq in sorted(batch.seqs.items()):
                digest.update(f"{name}{seq.ids[row, : seq.length[row]].tolist()}".encode())
            for name, value in sorted(batch.values.items()):
                own = "" if name == "group" else value[row].tolist()  # numbered in each batch
                digest.update(f"{name}{own}".encode())
            found.append("" if batch.spare else digest.hexdigest()[:12])
    return [row for row in found if row]


def read(loaders: list[Updates], count: int) -> Iterator[list[str]]:
    """The rows of each update, of all processes in their order."""
    for _ in range(count):
        yield [row for loader in loaders for row in list_rows(next(loader))]


def close(loaders: list[Updates]) -> None:
    for loader in loaders:
        getattr(loader, "close", lambda: None)()


KINDS_OF_ROWS = ("packed", "pairs", "memory", "mixture", "stream", "shards")


@pytest.mark.parametrize("kind", [*KINDS_OF_ROWS, "together", "alternated", "sampled"])
def test_the_rows_of_an_update_are_the_same(home: Path, kind: str) -> None:
    make = partial(make_loader, home, kind)
    sort = sorted if kind == "together" else list  # sources alternate in each process
    straight = [sort(rows) for rows in read([make(1, 0, B, 0)], UPDATES)]
    assert len({row for rows in straight for row in rows}) > 30
    for world, micro, ahead in LAYOUTS[1:]:
        loaders = [make(world, rank, micro, ahead) for rank in range(world)]
        assert [sort(rows) for rows in read(loaders, UPDATES)] == straight
        close(loaders)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", [*KINDS_OF_ROWS, "together"])
def test_five_kills_with_another_layout_each(home: Path, kind: str) -> None:
    """1 -> 2 -> 4 -> 2 -> 1 processes, each stopped with rows that are prepared, and not used."""
    make = partial(make_loader, home, kind)
    sort = sorted if kind == "together" else list
    straight = [sort(rows) for rows in read([make(1, 0, B, 0)], 12)]
    found, state = list[list[str]](), None
    for world, micro, ahead in ((1, 4, 2), (2, 2, 2), (4, 1, 2), (2, 4, 0), (1, 8, 2), (2, 1, 2)):
        loaders = [make(world, rank, micro, ahead) for rank in range(world)]
        for loader in loaders if state else []:
            loader.load_state_dict(state)
        found += [sort(rows) for rows in read(loaders, 2)]
        states = [loader.state_dict() for loader in loaders]
        assert all(each == states[0] for each in states)  # none is of a process
        state = json.loads(json.dumps(states[0]))
        close(loaders)
    assert found == straight


@pytest.mark.parametrize("kind", ["rows", "groups", "tasks", "graph"])
def test_labelled_rows_and_triples_too(kind: str) -> None:
    straight = list(read([make_labelled(1, 0, B, kind)], 14))
    found, state = list[list[str]](), None
    for world, micro, _ in [*LAYOUTS, (2, 3, 0)]:
        loaders = [make_labelled(world, rank, micro, kind) for rank in range(world)]
        for loader in loaders if state else []:
            loader.load_state_dict(state)
        found += read(loaders, 2)
        states = [loader.state_dict() for loader in loaders]
        assert all(each == states[0] for each in states)
        state = json.loads(json.dumps(states[0]))
    assert found == straight


def test_a_batch_that_processes_cannot_share_is_refused_before_work() -> None:
    with pytest.raises(ConfigError, match=r"a multiple of the 16 processes\n.*batch_size=16"):
        micro_batch_rows(B, None, 16)


def test_processes_with_other_data_are_refused(home: Path) -> None:
    class Two(World):
        def exchange(self, value: Any) -> list[Any]:
            return [value, {"text": "other"}]

    refuse_other_rows({"text": "same"}, World())
    with pytest.raises(DataError, match="process 1 reads other data than process 0"):
        refuse_other_rows({"text": "same"}, Two())
