"""The biLM: both stacks against loops, no direction sees what lies ahead of it, rows and streams
go on as they should.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from plmctl.core.batch import Batch, Seq
from plmctl.core.errors import ConfigError
from plmctl.models.bilm import BiLM
from plmctl.nn.char_cnn import CharCNN
from plmctl.nn.init import truncated_normal
from plmctl.text.tokenizer import Tokenizer

TEXTS = ["the cat sat on the mat", "a dog ran home at once", "naïve birds sing all day long"]
WORDS = Tokenizer.train(TEXTS, kind="word", vocab_size=60)
V = WORDS.vocab.size
T = 7


def made(**numbers) -> BiLM:
    words = partial(CharCNN, filters=[[1, 3], [2, 5]], char_width=4)
    settings = {
        "width": 8,
        "num_layers": 2,
        "hidden_width": 6,
        "dropout": 0.1,
        "clip": 3.0,
        "skip": True,
    } | numbers
    model = BiLM(
        vocab_size=V, vocab=WORDS.vocab, words=words, one_boundary=True, **settings
    ).double()
    truncated_normal(model, std=0.02, generator=torch.Generator().manual_seed(0))
    return model.eval()


def seq(length: list[int], seed: int = 0, **tracks: torch.Tensor) -> Seq:
    ids = torch.randint(5, V, (len(length), T), generator=torch.Generator().manual_seed(seed))
    return Seq(ids, torch.tensor(length), tracks, full=min(length) == T and "real" not in tracks)


def batch(**seqs: Seq) -> Batch:
    return Batch(torch.arange(len(next(iter(seqs.values())).ids)), seqs)


def read(model: BiLM, given: Batch, state=None) -> tuple[torch.Tensor, list[torch.Tensor]]:
    hidden = model(given, state, frozenset({"hidden"}))
    return hidden.last, hidden.recorded["hidden"]


@pytest.mark.parametrize("skip", [True, False])
@torch.no_grad()
def test_layers_are_those_of_a_loop_over_rows(skip: bool) -> None:
    model, length = made(skip=skip), [7, 4, 1]
    given = batch(text=seq(length))
    last, hidden = read(model, given)
    assert torch.equal(last, hidden[-1])
    for row, n in enumerate(length):
        words = model.words(model.spellings[given.text.ids[row, :n]])
        torch.testing.assert_close(hidden[0][row, :n], torch.cat([words, words], -1))
        for side, (lstms, turned) in enumerate(((model.forwards, False), (model.backwards, True))):
            x = words.flip(0) if turned else words
            for number, lstm in enumerate(lstms):
                y = lstm(x[None], (torch.zeros(1, 4).double(), torch.zeros(1, 6).double()))[0][0]
                x = y + x if number and skip else y
                torch.testing.assert_close(
                    hidden[number + 1][row, :n, 4 * side : 4 * side + 4], x.flip(0) if turned else x
                )
    assert not last[1, 4:].any()


def test_no_direction_sees_what_lies_ahead() -> None:
    """The gradient of place i by the characters of word j is zero where j is not yet read, and
    only there.
    """
    model = made(dropout=0.0)
    given = batch(text=seq([7, 5]))
    x = model.embed(given).detach().requires_grad_()
    streams = model.encode(x, given).streams
    for name, ahead in (("forward", lambda i, j: j > i), ("backward", lambda i, j: j < i)):
        for row, n in ((0, 7), (1, 5)):
            for i in range(n):
                (grad,) = torch.autograd.grad(streams[name][row, i].sum(), x, retain_graph=True)
                sees = grad.abs().sum(-1).ne(0)
                assert not sees[1 - row].any()
                assert sees[row].tolist() == [j < n and not ahead(i, j) for j in range(T)]


@torch.no_grad()
def test_padding_anywhere_changes_nothing() -> None:
    model, text = made(), seq([7])
    real = torch.tensor([[False, True, True, False, True, True, True]])
    spaced = replace(text, tracks={"real": real}, full=False)
    tight = Seq(text.ids[:, real[0]], torch.tensor([5]), full=True)
    torch.testing.assert_close(
        read(model, batch(text=spaced))[0][:, real[0]], read(model, batch(text=tight))[0]
    )


@torch.no_grad()
def test_packed_documents_are_what_they_are_alone() -> None:
    model, text = made(), seq([6])
    packed = replace(text, tracks={"document": torch.tensor([[0, 0, 0, 1, 1, 1, -1]])})
    alone = [Seq(text.ids[:, a:b], torch.tensor([3]), full=True) for a, b in ((0, 3), (3, 6))]
    wanted = torch.cat([read(model, batch(text=each))[0] for each in alone], 1)
    torch.testing.assert_close(read(model, batch(text=packed))[0][:, :6], wanted)


@torch.no_grad()
def test_streams_go_on_and_begin_anew() -> None:
    """Two batches, of which the second continues, are one long row; rows that do not continue
    have an empty memory.
    """
    model = made()
    parts, backs = [seq([7, 7], seed) for seed in (1, 2)], [seq([7, 7], seed) for seed in (3, 4)]
    state = model.fresh_state(2, torch.device("cpu"))
    found = []
    for place in range(2):
        goes_on = torch.tensor([place > 0, False])
        given = replace(
            batch(text=parts[place], reverse=backs[place]), values={"continues": goes_on}
        )
        hidden = model(given, state)
        state = hidden.state
        found.append(hidden.streams)

    def both(seqs):
        return Seq(torch.cat([s.ids for s in seqs], 1), torch.full((2,), 14), full=True)

    long = model(batch(text=both(parts), reverse=both(backs))).streams
    fresh = model(batch(text=parts[1], reverse=backs[1])).streams
    for name in ("forward", "backward"):
        torch.testing.assert_close(torch.cat([each[name][0] for each in found]), long[name][0])
        torch.testing.assert_close(found[1][name][1], fresh[name][1])
    assert model(batch(text=parts[1])).state is None  # evaluation keeps nothing


@torch.no_grad()
def test_without_a_stream_of_its_own_the_backward_stack_keeps_nothing() -> None:
    model, parts = made(), [seq([7, 7], seed) for seed in (1, 2)]
    goes_on = {"continues": torch.tensor([True, True])}
    state = model(
        replace(batch(text=parts[0]), values=goes_on), model.fresh_state(2, torch.device("cpu"))
    ).state
    found = model(replace(batch(text=parts[1]), values=goes_on), state).streams
    fresh = model(batch(text=parts[1])).streams
    torch.testing.assert_close(found["backward"], fresh["backward"])
    assert not torch.allclose(found["forward"], fresh["forward"])


@torch.no_grad()
def test_characters_of_the_batch_count_before_those_of_the_vocabulary() -> None:
    model, text = made(), seq([7, 7])
    spelled = model.spellings[text.ids]
    same = read(
        model,
        batch(
            text=replace(text, ids=text.ids * 0 + 5),
            characters=Seq(spelled, text.length, full=True),
        ),
    )[0]
    torch.testing.assert_close(same, read(model, batch(text=text))[0])


def test_the_table_of_characters_is_the_vocabularys() -> None:
    model, vocab = made(), WORDS.vocab
    wanted = vocab.characters()
    wanted[vocab.bos] = wanted[vocab.eos]  # one_boundary
    assert np.array_equal(model.spellings.numpy(), wanted)
    assert "spellings" not in model.state_dict()


def test_what_it_refuses() -> None:
    with pytest.raises(ConfigError, match="even number"):
        made(width=7)
    pieces = Tokenizer.train(TEXTS, kind="char", vocab_size=60).vocab
    with pytest.raises(ConfigError, match="tokenizer=word"):
        BiLM(
            vocab_size=9,
            vocab=pieces,
            words=partial(CharCNN, filters=[[1, 3]]),
            one_boundary=True,
            width=8,
            num_layers=1,
            hidden_width=6,
            dropout=0.1,
            clip=3.0,
            skip=True,
        )
