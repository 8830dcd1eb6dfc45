"""LIBERT's third task: which words are exchanged, as a loop over the words of a batch; the loss of
its rows, and the noise that brings the pairs.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from plmctl.artifacts.assemble import build_model
from plmctl.config.compose import compose
from plmctl.core.batch import Batch, Rows, Seq
from plmctl.core.draws import Draws
from plmctl.core.errors import DataError
from plmctl.core.parts import part_of
from plmctl.knowledge.word_pairs import PairTable, WordPairs
from plmctl.noise.lexical_pairs import LexicalPairs
from plmctl.objectives.lexical_relation import LexicalRelation
from plmctl.text.vocab import Vocab
from tests.noise.plain_rows import make_vocab

N, V = 9, 30
PAIRS = np.array([[0, 1], [2, 3], [4, 5], [0, 3], [6, 7], [1, 8]])


@part_of("pairs")
class Few(WordPairs):
    def of_vocab(self, vocab: Vocab) -> PairTable:
        ids = [[10 + n] if n % 2 else [10 + n, 20 + n] for n in range(N)]
        return PairTable([f"w{n}" for n in range(N)], ids, PAIRS, PAIRS.max(1) >= 7)


VOCAB = make_vocab(V, specials=5, eos=None, word_start=np.ones(V, bool))


def objective(**settings: object) -> LexicalRelation:
    return LexicalRelation(vocab=VOCAB, pairs=Few(), **settings)


def nearest(word: int, kept: int, batch: set[int], vectors: dict[int, np.ndarray]) -> int:
    """The definition, word by word."""
    best, found = -math.inf, None
    for other in sorted(batch):
        related = [kept, other] in PAIRS.tolist() or [other, kept] in PAIRS.tolist()
        if other in (word, kept) or related:
            continue
        a, b = vectors[word], vectors[other]
        cosine = a @ b / np.linalg.norm(a) / np.linalg.norm(b)
        if cosine > best:
            best, found = cosine, other
    assert found is not None
    return found


@pytest.mark.parametrize("seed", range(5))
def test_negatives_are_the_nearest_words_of_the_batch(seed: int) -> None:
    rng = np.random.default_rng(seed)
    pairs = PAIRS[rng.choice(len(PAIRS), 4, replace=False)]
    batch = set(pairs.ravel().tolist())
    vectors = {n: rng.normal(size=3) for n in batch}
    rows = objective().choose_rows(pairs, vectors)
    wanted = [
        *pairs.tolist(),
        *([a, nearest(b, a, batch, vectors)] for a, b in pairs.tolist()),
        *([nearest(a, b, batch, vectors), b] for a, b in pairs.tolist()),
    ]
    assert rows.tolist() == wanted


def test_a_batch_of_one_pair_takes_another_word() -> None:
    rows = objective().choose_rows(PAIRS[:1], {0: np.ones(2), 1: np.ones(2)})
    assert rows[0].tolist() == [0, 1]
    assert rows[1, 0] == 0
    assert rows[1, 1] not in (0, 1)
    assert rows[2, 1] == 1
    assert rows[2, 0] != 0


def test_rows_and_loss() -> None:
    """`- sum log p` over three rows for each pair, from passes of single rows."""
    words = ["size=tiny", "size.width=32", "data.path=x", "noise.lexical_pairs.share=1"]
    model = build_model(compose("pretrain", "libert", words), vocab_size=V, seed=0).double().eval()
    spans = torch.tensor([[0, 0, 1, 0], [1, 0, 1, 4]])
    text = {"text": Seq(torch.full((2, 6), 5), torch.tensor([6, 6]))}
    batch = Batch(torch.arange(2), text, spans={"lexical": spans})
    task = objective()
    out = task(model, batch)
    table = Few().of_vocab(VOCAB)
    pairs = PAIRS[[0, 4]]
    weight = model.backbone.token_embedding.weight.detach()
    vectors = {
        n: np.mean([weight[i].numpy() for i in table.ids[n]], 0) for n in pairs.ravel().tolist()
    }
    loss = right = 0.0
    for number, (a, b) in enumerate(task.choose_rows(pairs, vectors).tolist()):
        ids = [2, *table.ids[a], 3, *table.ids[b], 3]
        segment = [0] * (len(table.ids[a]) + 2) + [1] * (len(table.ids[b]) + 1)
        seq = Seq(
            torch.tensor([ids]), torch.tensor([len(ids)]), {"segment": torch.tensor([segment])}
        )
        state = model(Batch(torch.arange(1), {"text": seq})).last[0, 0]
        logits = model.heads["lexical"](model.heads["pooler"](state))
        label = int(number < 2)
        loss -= float(logits.detach().log_softmax(-1)[label])
        right += int(logits.argmax()) == label
    assert task.counts(batch) == {"lexical": 6}
    assert out.terms["lexical"].total.item() == pytest.approx(loss, abs=1e-9)
    assert out.logs["acc/lexical"][0].item() == right
    assert not task(model, Batch(torch.arange(2), text)).terms


def test_rows_lie_on_the_device_of_the_batch() -> None:
    batch = objective().lay_out(PAIRS[:2], torch.device("meta"))
    text = batch.seqs["text"]
    tensors = [batch.key, text.ids, text.length, text.tracks["segment"]]
    assert {tensor.device.type for tensor in tensors} == {"meta"}


def test_vectors_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "vectors.txt"
    file.write_text("w0 1 0\nw1 0 1\nother 5 5\n")
    found = objective(vectors=str(file)).embed(None, np.array([0, 1, 2]))
    assert found[0].tolist() == [1, 0]
    assert found[2].tolist() == [0, 0]


@pytest.mark.parametrize("held_out", [False, True])
def test_the_noise_brings_pairs(held_out: bool) -> None:
    rows = Rows(np.arange(4000), {"text": Seq(np.full((4000, 3), 6), np.full(4000, 3))})
    noise = LexicalPairs(vocab=VOCAB, pairs=Few(), share=0.25, held_out=held_out)
    spans = noise(rows, Draws(0, 0)).spans["lexical"]
    assert len(spans) == pytest.approx(1000, abs=100)
    assert set(spans[:, 3].tolist()) == set(np.flatnonzero((PAIRS.max(1) >= 7) == held_out))
    part = Rows(rows.key[100:200], {"text": Seq(np.full((100, 3), 6), np.full(100, 3))})
    again = noise(part, Draws(0, 0)).spans["lexical"]
    inside = spans[(spans[:, 0] >= 100) & (spans[:, 0] < 200)]
    assert np.array_equal(again[:, 3], inside[:, 3])
    assert not np.array_equal(noise(rows, Draws(0, 1)).spans["lexical"], spans)


def test_nothing_is_held_out() -> None:
    @part_of("pairs")
    class All(WordPairs):
        def of_vocab(self, vocab: Vocab) -> PairTable:
            return PairTable(["a", "b"], [[5], [6]], np.array([[0, 1]]), np.array([False]))

    noise = LexicalPairs(vocab=VOCAB, pairs=All(), held_out=True)
    with pytest.raises(DataError, match="no pair with a held-out word"):
        noise(Rows(np.arange(2), {"text": Seq(np.ones((2, 2)), np.ones(2))}), Draws(0, 0))
