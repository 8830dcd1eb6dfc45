"""What is written with a cache is what reading everything again at every token would write,
whatever else is in the batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from plmctl.artifacts.assemble import build_model
from plmctl.attention.patterns.base import Full, Pattern
from plmctl.attention.patterns.causal import Causal
from plmctl.attention.patterns.dilated import Dilated
from plmctl.attention.patterns.documents import Documents
from plmctl.attention.patterns.padding import Padding
from plmctl.attention.patterns.prefix import CausalWithPrefix
from plmctl.attention.patterns.window import Window
from plmctl.config.compose import compose
from plmctl.core.batch import Batch, Seq
from plmctl.core.errors import DataError, UsageError
from plmctl.generation.beam import Beam
from plmctl.generation.decode import find_writing_head, generate
from plmctl.generation.greedy import Greedy
from plmctl.generation.sample import Sample
from plmctl.generation.search import Hypothesis, find_logp
from plmctl.generation.step import Reading, pad_left
from plmctl.models.base import Model
from plmctl.runs.contract.stand_in import TINY

SIZE, NEW = 19, 7
VOCAB = replace(TINY, size=SIZE, special=np.zeros(SIZE, bool), word_start=np.zeros(SIZE, bool))
SMALL = [
    "size=tiny",
    "size.width=16",
    "size.inner_width=24",
    "format.max_length=20",
    "data.path=x",
    "train.steps=1",
]
DECODER = ["model=decoder", "objective=[clm]", "noise=[]", "pattern=causal", "format=blocks"]
TWO = ["model=encoder_decoder", "noise=[text_infill]", "objective=[seq2seq]", "eval.noise=${noise}"]


def made(words: list[str], pattern: Pattern | None = None, seed: int = 0) -> Model:
    model = build_model(
        compose("pretrain", None, [*words, *SMALL]), vocab_size=SIZE, vocab=VOCAB, seed=seed
    )
    generator = torch.Generator().manual_seed(seed + 1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(
                (0.6 if parameter.dim() > 1 else 0.1)
                * torch.randn(parameter.shape, generator=generator)
            )
    if pattern is not None:
        model.backbone.pattern = pattern & Padding() & Documents()
        model.backbone.needs = frozenset({"text"}) | pattern.needs
    return model.double().eval()


def prompts(lengths: tuple[int, ...] = (5, 2, 1, 7, 5)) -> list[list[int]]:
    draw = np.random.default_rng(3)
    return [draw.integers(7, SIZE, length).tolist() for length in lengths]


def together(given: list[list[int]], name: str = "text") -> Batch:
    length = torch.tensor([len(ids) for ids in given])
    ids = torch.tensor([[*ids, *[0] * (int(length.max()) - len(ids))] for ids in given])
    return Batch(torch.arange(len(ids)), {name: Seq(ids, length)})


def one(ids: list[int], **tracks: list[int]) -> Seq:
    return Seq(
        torch.tensor([ids]),
        torch.tensor([len(ids)]),
        {k: torch.tensor([v]) for k, v in tracks.items()},
        full=True,
    )


class Told:
    """A search that is told what to write `[B, T]`, and keeps the log-probabilities it saw."""

    count = 1

    def __init__(self, texts: torch.Tensor) -> None:
        self.texts = texts

    def __call__(self, step: Any, start: Any) -> list[list[Hypothesis]]:
        seen = [start.logits]
        for tokens in self.texts.T[:-1]:
            seen.append(step.advance(tokens))
        self.seen = find_logp(torch.stack(seen, 1), start.size)  # [B, T, V]
        scores = self.seen.gather(2, self.texts[..., None]).sum((1, 2)).tolist()
        return [
            [Hypothesis(text, score, True)]
            for text, score in zip(self.texts.tolist(), scores, strict=True)
        ]


# (model, prompt, what was written) -> logits of the next token
Ask = Callable[[Model, list[int], list[int]], torch.Tensor]


@torch.no_grad()
def assert_same_text_and_scores(
    model: Model, given: list[list[int]], batch: Batch, ask: Ask
) -> None:
    """The same argmax at every token of a greedy text, the same log-probabilities at every token
    of any text.
    """
    found = generate(model, batch, vocab=VOCAB, search=Greedy(), max_new=NEW)
    for ids, (written,) in zip(given, found, strict=True):
        text: list[int] = []
        while len(text) < NEW and (token := int(ask(model, ids, text).argmax())) != VOCAB.eos:
            text.append(token)
        assert written.ids == text
    told = Told(
        torch.randint(0, SIZE, (len(given), NEW), generator=torch.Generator().manual_seed(0))
    )
    generate(model, batch, vocab=VOCAB, search=told, max_new=NEW)
    for row, ids in enumerate(given):
        text = told.texts[row].tolist()
        wanted = torch.stack([torch.log_softmax(ask(model, ids, text[:t]), -1) for t in range(NEW)])
        torch.testing.assert_close(told.seen[row], wanted, rtol=1e-9, atol=1e-9)


def ask_decoder(model: Model, ids: list[int], text: list[int]) -> torch.Tensor:
    return model.heads["clm"](model(Batch(torch.arange(1), {"text": one(ids + text)})).last[0, -1])


@pytest.mark.sampled(2)
@pytest.mark.parametrize("position", ["learned", "sinusoidal", "rotary", "alibi", "none"])
def test_decoders(position: str) -> None:
    given = prompts()
    assert_same_text_and_scores(
        made([*DECODER, f"position={position}"]), given, together(given), ask_decoder
    )


@pytest.mark.parametrize(
    "pattern",
    [Causal() & Window(reach=2), Causal() & Dilated(reach=2, dilation=[1, 3])],
    ids=["window", "dilated"],
)
def test_patterns(pattern: Pattern) -> None:
    given = prompts()
    assert_same_text_and_scores(
        made([*DECODER, "position=learned"], pattern), given, together(given), ask_decoder
    )


def test_prompts_of_one_length_need_no_mask() -> None:
    given = prompts((4, 4, 4))
    assert_same_text_and_scores(
        made([*DECODER, "position=learned"]), given, together(given), ask_decoder
    )


@pytest.mark.parametrize("position", ["learned", "rotary"])
def test_a_packed_prompt_goes_on_with_its_last_document(position: str) -> None:
    model, (first, second, third) = made([*DECODER, f"position={position}"]), prompts((4, 3, 5))
    rows = [[*first, *second], [*third, *second[:2]]]
    tracks = {
        "document": [[0] * 4 + [1] * 3, [0] * 5 + [1] * 2],
        "position": [[0, 1, 2, 3, 0, 1, 2], [0, 1, 2, 3, 4, 0, 1]],
    }
    text = Seq(
        torch.tensor(rows),
        torch.tensor([7, 7]),
        {k: torch.tensor(v) for k, v in tracks.items()},
        full=True,
    )
    assert_same_text_and_scores(
        model, [second, second[:2]], Batch(torch.arange(2), {"text": text}), ask_decoder
    )


@pytest.mark.sampled(2)
@pytest.mark.parametrize("position", ["learned", "sinusoidal", "rotary", "alibi"])
def test_encoder_decoders(position: str) -> None:
    given = prompts()

    def ask(model: Model, ids: list[int], text: list[int]) -> torch.Tensor:
        target = one([*text, 0])  # its last token is never read
        return model.heads["seq2seq"](
            model(Batch(torch.arange(1), {"source": one(ids), "target": target})).last[0, -1]
        )

    assert_same_text_and_scores(
        made([*TWO, f"position={position}"]), given, together(given, "source"), ask
    )


@pytest.mark.parametrize("lengths", [(4, 4), (5, 2, 3)])
def test_beams_of_a_source_share_its_keys(lengths: tuple[int, ...]) -> None:
    """Rows that are repeated, leave, and leave unevenly read what rows with own keys read."""
    model, rows = made(TWO), len(lengths)
    batch = together(prompts(lengths), "source")
    first = torch.full((rows, 1), 3)

    def begin(batch: Batch, first: torch.Tensor) -> Reading:
        prompt = Seq(first, torch.ones(len(first), dtype=torch.long), full=True)
        head = model.heads[find_writing_head(model)]
        reading = Reading(model=model, head=head, batch=batch, prompt=prompt)
        reading.begin()
        return reading

    shared = begin(batch, first)
    every = torch.arange(rows).repeat_interleave(3)
    source = batch.seqs["source"]
    each = replace(source, ids=source.ids[every], length=source.length[every])
    own = begin(Batch(torch.arange(len(every)), {"source": each}), first[every])
    shared.select(every)
    keys = [slot for slot in shared.cache.slots if slot.fixed is not None]
    assert keys
    assert {(len(slot.fixed[0]), slot.copies) for slot in keys} == {(rows, 3)}
    swapped = torch.arange(len(every)).view(-1, 3).flip(1).flatten()
    last = 3 * (rows - 1)
    chosen: list[tuple[torch.Tensor | None, bool]] = [
        (None, True),
        (swapped, True),
        (torch.arange(3, len(every)), False),  # the first prompt is done
        (torch.arange(last)[1:], False),  # and one of its neighbour's texts
    ]
    for number, (kept, same) in enumerate(chosen):
        if kept is not None and len(kept):
            for reading in (shared, own):
                reading.select(kept, same_prompt=same)
        tokens = torch.arange(len(own.key)) + 5 + number
        torch.testing.assert_close(shared.advance(tokens), own.advance(tokens))


def segments(ids: list[int], text: list[int]) -> list[int]:
    return [0] * len(ids) + [1] * len(text)


@pytest.mark.parametrize("position", ["learned", "alibi"])
def test_a_prefix_at_its_last_token(position: str) -> None:
    def ask(model: Model, ids: list[int], text: list[int]) -> torch.Tensor:
        seq = one(ids + text, segment=segments(ids, text))
        return model.heads["clm"](model(Batch(torch.arange(1), {"text": seq})).last[0, -1])

    given = prompts()
    assert_same_text_and_scores(
        made([*DECODER, f"position={position}", "model.embedding.segments=2"], CausalWithPrefix()),
        given,
        together(given),
        ask,
    )


@pytest.mark.parametrize("pattern", [CausalWithPrefix(), Causal()], ids=["prefix", "causal"])
def test_a_mask_is_asked_and_forgotten(pattern: Pattern) -> None:
    """UniLM's way."""

    def ask(model: Model, ids: list[int], text: list[int]) -> torch.Tensor:
        asked = [*text, VOCAB.id("mask")]
        seq = one(
            ids + asked,
            **({"segment": segments(ids, asked)} if isinstance(pattern, CausalWithPrefix) else {}),
        )
        return model.heads["mlm"](model(Batch(torch.arange(1), {"text": seq})).last[0, -1])

    model = made(
        [
            "model=encoder",
            "objective=[mlm]",
            "position=learned",
            "format=blocks",
            "noise=[token_mask]",
        ],
        pattern,
    )
    given = prompts()
    assert_same_text_and_scores(model, given, together(given), ask)


MODELS = {
    "decoder": ([*DECODER, "position=learned"], None, "text"),
    "window": ([*DECODER, "position=alibi"], Causal() & Window(reach=3), "text"),
    "two": ([*TWO, "position=learned"], None, "source"),
    "mask": (
        ["model=encoder", "objective=[mlm]", "position=learned", "format=blocks"],
        CausalWithPrefix(),
        "text",
    ),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", list(MODELS))
@pytest.mark.parametrize(
    "search",
    [
        Beam(width=3, count=3, alpha=0.7, penalty="gnmt", early=False),
        Sample(temperature=1.0, top_k=None, top_p=0.9, seed=0, count=2),
    ],
    ids=["beam", "sample"],
)
def test_a_row_alone_writes_what_it_writes_in_company(kind: str, search: Any) -> None:
    words, pattern, name = MODELS[kind]
    model, given = made(words, pattern), prompts()
    company = generate(
        model,
        together(given, name),
        vocab=VOCAB,
        search=search,
        max_new=NEW,
        keys=range(len(given)),
    )
    for row, ids in enumerate(given):
        (alone,) = generate(
            model, together([ids], name), vocab=VOCAB, search=search, max_new=NEW, keys=[row]
        )
        assert [text.ids for text in alone] == [text.ids for text in company[row]]
        np.testing.assert_allclose(
            [text.score for text in alone], [text.score for text in company[row]], rtol=1e-9
        )


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", list(MODELS))
def test_scores_are_the_likelihoods_of_the_texts(kind: str) -> None:
    """A beam's texts, read once more from their beginning."""
    words, pattern, name = MODELS[kind]
    model, given = made(words, pattern), prompts()
    beam = Beam(width=4, count=4, alpha=0.0, penalty="length", early=False)
    for ids, texts in zip(
        given,
        generate(model, together(given, name), vocab=VOCAB, search=beam, max_new=NEW),
        strict=True,
    ):
        for text in texts:
            forced = [*text.ids, *([VOCAB.id("eos")] if text.finished else [])]
            found = generate(
                model,
                together([ids], name),
                vocab=VOCAB,
                search=Told(torch.tensor([forced])),
                max_new=NEW,
            )
            assert found[0][0].score == pytest.approx(text.score, rel=1e-9)


@pytest.mark.parametrize(("kind", "room"), [("decoder", 20 - 7), ("two", 20), ("mask", 20 - 7)])
def test_no_text_is_longer_than_the_places(kind: str, room: int) -> None:
    words, pattern, name = MODELS[kind]
    model, search = (
        made(words, pattern),
        Sample(temperature=9.0, top_k=None, top_p=1.0, seed=0, min_length=99),
    )
    short, long = prompts((2, 7))
    found = generate(model, together([short, long], name), vocab=VOCAB, search=search, max_new=50)
    assert [len(texts[0].ids) for texts in found] == [20 if name == "source" else 18, room]


def test_prompts_that_cannot_be_continued_are_refused() -> None:
    model = made([*DECODER, "position=learned"])
    with pytest.raises(DataError, match="20 tokens, but the model has 20 positions"):
        generate(model, together([[7] * 20]), vocab=VOCAB, search=Greedy())
    with pytest.raises(DataError, match="prompt 2 of the batch is empty"):
        generate(model, together([[7], []]), vocab=VOCAB, search=Greedy())


def test_models_that_cannot_write_are_refused() -> None:
    encoder = ["model=encoder", "position=learned", "format=blocks"]
    for pattern in (None, Full(), Window(reach=2)):
        with pytest.raises(UsageError, match="see what follows them"):
            generate(
                made([*encoder, "objective=[mlm]"], pattern),
                together([[7]]),
                vocab=VOCAB,
                search=Greedy(),
            )
    model = made([*DECODER, "position=learned"])
    model.heads = torch.nn.ModuleDict()
    with pytest.raises(UsageError, match="needs a head that predicts tokens, and has none"):
        generate(model, together([[7]]), vocab=VOCAB, search=Greedy())


def test_in_front_keeps_every_token_and_its_tracks() -> None:
    real = torch.tensor([[True, False, True, True], [False, True, False, False]])
    seq = Seq(
        torch.arange(8).view(2, 4),
        real.sum(1),
        {"real": real, "segment": torch.arange(8).view(2, 4) + 100},
    )
    found = pad_left(seq, pad=-1)
    assert found.ids.tolist() == [[0, 2, 3], [-1, -1, 5]]
    assert found.real.tolist() == [[True] * 3, [False, False, True]]
    assert found.tracks["position"].tolist() == [[0, 1, 2], [0, 0, 0]]
    assert found.tracks["segment"][0].tolist() == [100, 102, 103]
    assert found.tracks["segment"][1, 2] == 105
