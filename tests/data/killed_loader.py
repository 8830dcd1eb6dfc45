"""A process that reads batches until it is killed: `python killed_loader.py FOLDER UPDATES`, from
its last saved state on.

FOLDER/digests.txt gets a line for each update of all loaders: its number, and a hash of every
tensor of its micro-batches. FOLDER/state.json is saved after every third update, as a checkpoint
would be.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from plmctl.core.batch import Batch
from plmctl.data.formats.blocks import Blocks
from plmctl.data.formats.segments import Segments
from plmctl.data.formats.sentence_pair import SentencePair
from plmctl.data.loader import Loader, RowSource
from plmctl.data.mixture import Mixture
from plmctl.data.reader import RowReader
from plmctl.noise.token_mask import TokenMask
from plmctl.text.vocab import Vocab

ROWS = 12


@dataclass
class Shards:
    """Documents of random sentences, in memory."""

    ids: np.ndarray
    sentences: np.ndarray
    documents: np.ndarray
    tracks: dict = field(default_factory=dict)
    spans: dict = field(default_factory=dict)
    fingerprint: str = "memory"
    given: str = "memory"
    vocab_size: int = 1 << 31


def random_shards(documents: int, seed: int = 0) -> Shards:
    rng = np.random.default_rng(seed)
    per_document = rng.integers(1, 12, documents)
    sentences = np.concatenate([[0], np.cumsum(rng.integers(1, 30, per_document.sum()))])
    return Shards(
        rng.integers(10, 1000, sentences[-1]),
        sentences,
        np.concatenate([[0], np.cumsum(per_document)]),
    )


def loaders() -> dict[str, Loader]:
    """What must come back unchanged: a mixture, packed blocks, sentence pairs, and streams that
    go on.
    """
    vocab = Vocab(
        size=1000,
        pad=0,
        unk=1,
        cls=2,
        sep=3,
        mask=4,
        bos=None,
        eos=5,
        special=np.arange(1000) < 10,
        word_start=np.arange(1000) % 2 == 0,
    )
    shards = random_shards(60)
    packed = Blocks(vocab=vocab, max_length=48, crossing=False, specials=True)
    pairs = SentencePair(vocab=vocab, max_length=48, short_rate=0.1, random_rate=0.5)
    streams = Segments(vocab=vocab, max_length=24, streams=ROWS, shuffled=True)
    corpora = {"large": shards, "small": random_shards(3, 1), "middle": random_shards(20, 2)}
    mixed = {
        name: RowReader(each, pairs, seed=seed, batch_size=ROWS)
        for seed, (name, each) in enumerate(corpora.items())
    }
    readers = {
        "mixture": Mixture(
            mixed, {"large": 0.5, "small": 0.2, "middle": 0.3}, seed=3, batch_size=ROWS
        ),
        **{
            f.__class__.__name__: RowReader(shards, f, seed=3, batch_size=ROWS)
            for f in (packed, pairs, streams)
        },
    }
    mask = TokenMask(vocab=vocab, rate=0.15)
    return {
        name: Loader({"text": RowSource(reader, mask)}, micro_batch_size=5)
        for name, reader in readers.items()
    }


def digest(batches: list[Batch]) -> str:
    """A hash of every tensor, with its name."""
    found = hashlib.sha256()
    for batch in batches:
        tensors = {"key": batch.key, **batch.labels, **batch.values, **batch.spans}
        tensors |= {} if batch.anchors is None else {"anchors": batch.anchors}
        for name, seq in batch.seqs.items():
            tensors |= {f"{name}.ids": seq.ids, f"{name}.length": seq.length}
            tensors |= {f"{name}.tracks.{track}": tensor for track, tensor in seq.tracks.items()}
        for name, target in batch.targets.items():
            tensors |= {f"targets.{name}.index": target.index, f"targets.{name}.ids": target.ids}
        for name, tensor in sorted(tensors.items()):
            found.update(
                f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode() + tensor.numpy().tobytes()
            )
    return found.hexdigest()


def main(folder: Path, updates: int, pause: float) -> None:
    torch.set_num_threads(1)
    made, saved, done = loaders(), folder / "state.json", 0
    if saved.exists():
        state = json.loads(saved.read_text())
        done = state.pop("done")
        for name, loader in made.items():
            loader.load_state_dict(state[name])
    with (folder / "digests.txt").open("a") as file:
        for number in range(done, updates):
            file.write(f"{number} {' '.join(digest(next(loader)) for loader in made.values())}\n")
            file.flush()
            if number % 3 == 2:
                state = {
                    "done": number + 1,
                    **{name: loader.state_dict() for name, loader in made.items()},
                }
                (folder / "state.new").write_text(json.dumps(state))
                (folder / "state.new").replace(saved)
            time.sleep(pause)
    for loader in made.values():
        loader.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
