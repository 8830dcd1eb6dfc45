"""CTranslate2 writes the texts of PyTorch, with their scores, or names what it lacks."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from plmctl.artifacts.assemble import build_model
from plmctl.config.compose import compose
from plmctl.core.batch import Batch, Seq
from plmctl.core.errors import ConfigError, UsageError
from plmctl.generation.beam import Beam
from plmctl.generation.decode import generate, score_texts
from plmctl.generation.greedy import Greedy
from plmctl.generation.sample import Sample
from plmctl.generation.search import Hypothesis
from plmctl.models.base import Model
from plmctl.runtime.ctranslate2 import CTranslate2Runtime, check_writer, equip
from tests.marks import mark_slow
from tests.runtime.cells import CELLS, WRITTEN, make_cell, make_tokenizer

VOCAB = make_tokenizer().vocab
TINY = ["data.path=x", "tokenizer=word", "size.width=32", "size.num_heads=2"]
TINY += ["size.inner_width=48", "size.num_layers=2"]
GATED = "model.decoder.stack.cells.f._target_=plmctl.nn.cells.glu.GLU"
PRE = "model.decoder.stack.residual._target_=plmctl.nn.residual.PreNorm"
LAYOUTS = {
    "transformer": ("transformer",),
    "transformer, pre-norm": ("transformer", PRE),
    "transformer, interleaved": ("transformer", "position.layout=interleaved"),
    "transformer, two tables": ("transformer", "model.tied=false", "heads.seq2seq.tied=false"),
    "bart": ("bart",),
    "t5": ("t5",),
    "t5 1.1": ("t5", GATED, "model.decoder.stack.cells.f.activation=gelu_tanh"),
    "gpt": ("gpt",),
    "gpt2": ("gpt2",),
    "gpt2, bias": ("gpt2", "heads.clm.bias=true", "model.embedding.scaled=true"),
    "gpt2, shared": ("gpt2", "model.stack.cells.a.projections=shared"),
    "gpt2, none": ("gpt2", "position=none"),
    "gpt2, alibi": ("gpt2", "position=alibi"),
    "modern_decoder": ("modern_decoder", "model.stack.layout=af*2"),
    "modern_decoder, normed": (
        "modern_decoder",
        *("model.stack.layout=af*2", "model.stack.cells.a.qk_norm=true"),
    ),
}
QUICK = {"transformer", "t5 1.1", "gpt2", "modern_decoder, normed"}


def make(recipe: str, *words: str) -> Model:
    """A model with random weights that are no longer alike."""
    config = compose("pretrain", recipe, [*TINY, *words])
    model = build_model(config, vocab_size=VOCAB.size, vocab=VOCAB, seed=3).float().eval()
    generator = torch.Generator().manual_seed(1)
    for own in model.parameters():
        noise = torch.randn(own.shape, generator=generator)
        own.data = own.data * 3 if own.dim() > 1 else own.data + 0.1 * noise
    return model


def make_prompts(model: Model, lengths: list[int]) -> Batch:
    ids = torch.full((len(lengths), max(lengths)), VOCAB.pad)
    generator = torch.Generator().manual_seed(0)
    for row, length in enumerate(lengths):
        ids[row, :length] = torch.randint(5, VOCAB.size, (length,), generator=generator)
    name = "source" if model.backbone.writes == "target" else "text"
    return Batch(torch.arange(len(lengths)), {name: Seq(ids, torch.tensor(lengths))})


def write(model: Model, batch: Batch, search: Any, most: int = 12) -> list[list[Hypothesis]]:
    return generate(model, batch, vocab=VOCAB, search=search, max_new=most)


def compare(own: list[list[Hypothesis]], found: list[list[Hypothesis]]) -> None:
    for one, other in zip(own, found, strict=True):
        assert [(text.ids, text.finished) for text in one] == [
            (text.ids, text.finished) for text in other
        ]
        scores = [text.score for text in other]
        assert scores == pytest.approx([text.score for text in one], abs=1e-4)


@pytest.mark.parametrize("name", mark_slow([*LAYOUTS], [*LAYOUTS.keys() - QUICK]))
def test_texts_and_scores_are_those_of_pytorch(name: str) -> None:
    """Prompts have unlike lengths; those of a decoder have unlike room, too."""
    model = make(*LAYOUTS[name])
    before = {key: own.clone() for key, own in model.state_dict().items()}
    other = equip(model, CTranslate2Runtime().open_writer(model))
    assert all(torch.equal(own, before[key]) for key, own in model.state_dict().items())
    batch = make_prompts(model, [3, 7, 5, 1])
    for search in (
        Greedy(),
        Greedy(min_length=4),
        Beam(width=3, count=2, alpha=0.8, penalty="length", early=True),
    ):
        compare(write(model, batch, search), write(other, batch, search))
    texts = torch.randint(5, VOCAB.size, (4, 6), generator=torch.Generator().manual_seed(5))
    texts[0, 4:] = -1
    wanted, found = (score_texts(each, batch, texts, vocab=VOCAB) for each in (model, other))
    torch.testing.assert_close(found, wanted.to(found), rtol=1e-4, atol=1e-4)


def test_a_text_has_the_room_of_its_own_prompt() -> None:
    model = make("gpt2", "format.max_length=16")
    other = equip(model, CTranslate2Runtime().open_writer(model))
    batch = make_prompts(model, [15, 4, 9])
    own, found = (write(each, batch, Greedy(), 10) for each in (model, other))
    compare(own, found)
    assert len(found[0][0].ids) + found[0][0].finished == 1


def test_no_ngram_is_written_twice_and_scores_stay_those_of_the_model() -> None:
    model = make("transformer", PRE)
    other = equip(model, CTranslate2Runtime().open_writer(model))
    batch, search = make_prompts(model, [3, 7, 5, 1]), Greedy(no_repeat_ngram=2)
    compare(write(model, batch, search), write(other, batch, search))


@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p"), [(1.0, None, 1.0), (0.5, None, 0.6), (2.0, 6, 0.7)]
)
def test_drawn_tokens_have_their_probabilities(
    temperature: float, top_k: int | None, top_p: float
) -> None:
    """`p(v) ^ (1 / temperature)` of the first tokens, as counts of 4,000 draws."""
    count, model = 4000, make("gpt2")
    other = equip(model, CTranslate2Runtime().open_writer(model))
    batch = make_prompts(model, [3])
    with torch.inference_mode():
        logp = model.heads["clm"](model(batch).last[0, -1]).log_softmax(-1)
    how: Any = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
    (texts,) = write(other, batch, Sample(seed=1, count=count, **how), 1)
    assert [text.score for text in texts] == sorted((text.score for text in texts), reverse=True)
    ids = [text.ids[0] if text.ids else VOCAB.eos for text in texts]
    counts = Counter(ids)
    order = sorted(range(VOCAB.size), key=lambda number: -logp[number].item())[:top_k]
    shares = [math.exp(logp[number].item() / temperature) for number in order]
    shares = [share / sum(shares) for share in shares]
    last = next((n for n in range(len(shares)) if sum(shares[: n + 1]) >= top_p), len(shares) - 1)
    kept = sum(shares[: last + 1])
    for number, share in zip(order[: last + 1], shares, strict=False):
        spread = math.sqrt(share / kept * (1 - share / kept) / count)
        assert abs(counts.pop(number, 0) / count - share / kept) <= 4 * spread + 1e-9
    assert not counts
    for text, number in zip(texts, ids, strict=True):
        assert text.score == pytest.approx(logp[number].item(), abs=1e-4)


def test_a_new_process_draws_by_its_seed_again() -> None:
    """The numbers of a writer go on from text to text."""
    model = make("gpt2")
    batch, found = make_prompts(model, [3, 2]), []
    for seed in (1, 1, 2):
        other = equip(model, CTranslate2Runtime().open_writer(model))
        search = Sample(temperature=1, top_k=None, top_p=1, seed=seed)
        found.append([write(other, batch, search) for _ in range(2)])
    assert found[0] == found[1] != found[2]
    assert found[0][0] != found[0][1]


class OwnSearch(Greedy):
    """A search of a plug-in, which states no facts."""

    facts = None  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("recipe", "search", "answer"),
    [
        ("gpt2", Beam(width=2, alpha=1, penalty="length", early=False), "search.early=true"),
        ("gpt2", Beam(width=2, alpha=1, penalty="gnmt", early=True), "search.penalty=length"),
        ("gpt2", Beam(width=2, alpha=0, penalty="length", early=True), "search.alpha=1"),
        ("gpt2", Greedy(first=7), "search.first=null"),
        ("gpt2", Greedy(no_repeat_ngram=2), "search.no_repeat_ngram=0"),
        ("gpt2", Greedy(last=7, excluded=[[3]]), "search.last=null"),
        (
            "transformer",
            Sample(temperature=1, top_k=1, top_p=1, seed=0, min_p=0.1),
            "search.min_p=0",
        ),
        ("gpt2", OwnSearch(), "no search OwnSearch"),
    ],
)
def test_a_setting_of_a_search_that_is_missing_is_named(
    recipe: str, search: Any, answer: str
) -> None:
    model = make(recipe)
    other = equip(model, CTranslate2Runtime().open_writer(model))
    with pytest.raises(UsageError, match=answer):
        write(other, make_prompts(model, [3, 2]), search)


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["modern_decoder"], "no cell DepthwiseConvolution"),
        (["gpt2", "model.stack.layout=a|f*2"], "no cells in parallel"),
        (["gpt2", "model.stack.layout=aff*2"], "no layer of Attention, FeedForward, FeedForward"),
        (["gpt2", "model.stack.cells.a.qk_norm=true"], "unlike eps"),
        (["gpt2", "model.stack.cells.f.activation=square_relu"], "no activation square_relu"),
        (["gpt2", "model.stack.residual._target_=plmctl.nn.residual.SandwichNorm"], "residual"),
        (["gpt2", "model.stack.cells.a.scores=general"], "no score General"),
        (["gpt2", "model.embedding.segments=2"], "no embedding of other things"),
        (["gpt2", "size.num_heads=3", "size.width=48", "position=alibi"], "no power of two"),
        (["unilm"], "no head LMHead with transform"),
        (["bert"], "CTranslate2 writes texts"),
        (["transformer_xl", "size.num_layers=2"], "no "),
        (["mass"], "model.unread"),
        (["bart", "model.forced=bos"], "model.forced"),
        (["transformer", "model.forced=9"], "model.forced"),
        (["bart", "model.start=last"], "model.start=last"),
        (["gpt2", "+model.embedding.norm_first=true"], "norm_first"),
        (["t5", "+model.encoder.embedding.norm_first=true"], "norm_first"),
    ],
)
def test_a_part_that_is_missing_is_named(words: list[str], answer: str) -> None:
    with pytest.raises(UsageError, match=answer) as refused:
        CTranslate2Runtime().open_writer(make(*words))
    assert str(refused.value).endswith("fix: runtime=torch")


def test_eight_bits_are_a_quarter_of_the_bytes(tmp_path: Path) -> None:
    model = make("transformer", PRE)
    sizes = []
    for name, int8 in (("fp32", False), ("int8", True)):
        (tmp_path / name).mkdir()
        CTranslate2Runtime(int8=int8).write(model, tmp_path / name)
        sizes.append((tmp_path / name / "model.bin").stat().st_size)
    tables = 2 * 1024 * 32 * 4  # positions stay in fp32
    assert sizes[1] - tables / 2 < 0.35 * (sizes[0] - tables / 2)
    batch = make_prompts(model, [3, 7, 5, 1])
    other = equip(model, CTranslate2Runtime(int8=True).load(tmp_path / "int8"))
    texts = torch.randint(5, VOCAB.size, (4, 6), generator=torch.Generator().manual_seed(5))
    wanted, found = (score_texts(each, batch, texts, vocab=VOCAB) for each in (model, other))
    assert 0 < ((wanted - found) / wanted).abs().max() < 0.1


def test_other_numbers_are_refused() -> None:
    """A model whose weights change behind the library's."""
    model = make("gpt2")
    writer = CTranslate2Runtime().open_writer(model)
    model.heads["clm"].bias = torch.nn.Parameter(torch.arange(len(model.heads["clm"].table)) / 9)
    with pytest.raises(UsageError, match="log-probabilities differ"):
        check_writer(writer, model)


CELLS_THAT_WRITE = [cell for cell in CELLS if cell[0] == "translation"]


@pytest.mark.parametrize(("task", "backbone"), CELLS_THAT_WRITE)
def test_a_task_that_writes_has_the_answers_of_pytorch_or_is_refused(
    task: str, backbone: str
) -> None:
    """The column of the table in the docs."""
    cell, runtime = make_cell(task, backbone), CTranslate2Runtime()
    for batch in cell.batches():
        if (task, backbone) not in WRITTEN:
            with pytest.raises(UsageError, match="CTranslate2 has no"):
                runtime.answer(cell.program, batch)
            continue
        wanted, found = cell.program(batch), runtime.answer(cell.program, batch)
        assert found.keys() == wanted.keys() == {"written", "nll", "tokens"}
        for name, own in wanted.items():
            np.testing.assert_allclose(found[name], own, rtol=1e-4, atol=1e-4)


def test_a_task_with_labels_is_refused() -> None:
    cell = make_cell("classification", "decoder")
    with pytest.raises(UsageError, match="CTranslate2 writes texts"):
        CTranslate2Runtime().answer(cell.program, next(cell.batches()))


def test_settings_of_steps_have_no_effect_and_are_refused() -> None:
    model = make("gpt2")
    other = equip(model, CTranslate2Runtime().open_writer(model))
    with pytest.raises(ConfigError, match="weights=fp32"):
        generate(other, make_prompts(model, [3]), vocab=VOCAB, search=Greedy(), weights="int8")
    with pytest.raises(UsageError, match="gives no other answers"):
        other(make_prompts(model, [3]))
