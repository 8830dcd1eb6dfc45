"""ZEN's encoder: the sum over covering n-grams layer by layer in float64, rows without n-grams,
packed rows, its size, and the commands that train it.
"""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from typer.testing import CliRunner

import plmctl
from plmctl.artifacts.assemble import build_model, without_weights
from plmctl.artifacts.from_corpus import describe_empty_lexicons
from plmctl.attention.patterns.base import Full
from plmctl.cli.app import make_app
from plmctl.config.compose import compose
from plmctl.core.batch import Batch, Seq
from plmctl.core.errors import ConfigError
from plmctl.models.encoder import Encoder
from plmctl.models.zen import Zen
from plmctl.nn.cells.attention import Attention
from plmctl.nn.cells.feedforward import FeedForward
from plmctl.nn.embeddings import Embedding
from plmctl.nn.ngram_lexicon import NgramLexicon
from plmctl.nn.ngram_stack import NgramStack, NgramTable
from plmctl.nn.norm import layer_norm
from plmctl.nn.positions import Learned, NoPosition
from plmctl.nn.residual import PostNorm, PreNorm
from plmctl.nn.stack import Stack
from plmctl.nn.tables import count
from tests.models.test_encoder import perturbed

V, W, INNER, HEADS, NGRAMS = 20, 16, 32, 2, 6
SPECIAL = np.array([True] * 5 + [False] * (V - 5))
PHRASES = [5, 6, 7, 10, 5, 6, 7, 11, 8, 9, 12, 8, 9]  # 5 6, 6 7, 5 6 7 and 8 9 come twice
CELLS: dict[str, Any] = {
    "a": partial(Attention, width=W, num_heads=HEADS, dropout=0.0),
    "f": partial(FeedForward, width=W, inner_width=INNER, activation="gelu"),
}
NORM = partial(layer_norm, width=W, eps=1e-12)


def make_ngrams(layers: int) -> Encoder:
    return Encoder(
        embedding=Embedding(
            vocab_size=NGRAMS, width=W, dropout=0.0, segments=2, norm=NORM, table=NgramTable
        ),
        position=NoPosition(),
        stack=Stack(layout=f"af*{layers}", cells=CELLS, residual=PostNorm(norm=NORM, dropout=0.0)),
        pattern=Full(),
    )


def make(*, layers: int = 3, above: int = 2, most: int = 16, learned: bool = True) -> Zen:
    lexicon = NgramLexicon(count=NGRAMS, longest=3, often=2, pmi=0.0, most=most)
    model = Zen(
        embedding=Embedding(vocab_size=V, width=W, dropout=0.0, segments=2, norm=NORM),
        position=Learned(width=W, max_length=16),
        stack=NgramStack(
            layout=f"af*{layers}", cells=CELLS, residual=PostNorm(norm=NORM, dropout=0.0)
        ),
        pattern=Full(),
        lexicon=lexicon,
        ngrams=make_ngrams(above),
    )
    perturbed(model)
    if learned:
        lexicon.learn(np.array(PHRASES), SPECIAL)
        assert lexicon.known == 4
    return model.double()


def batch_of(*, document: bool = False) -> Batch:
    ids = torch.tensor(
        [[2, 5, 6, 7, 3, 8, 9, 5, 3], [2, 8, 9, 3, 6, 7, 3, 0, 0], [2, 7, 6, 5, 3, 9, 8, 9, 3]]
    )
    tracks = {"segment": (torch.arange(9) > 4).long().expand(3, -1)}
    if document:
        tracks["document"] = torch.tensor([[0] * 3 + [1] * 6] * 3)
        tracks["position"] = torch.tensor([[*range(3), *range(6)]] * 3)
    return Batch(torch.arange(3), {"text": Seq(ids, torch.tensor([9, 7, 9]), tracks)})


def run_layer(stack: Any, number: int, x: Tensor, homes: list[int]) -> Tensor:
    """One layer of a row by its definition; tokens see those of their own document."""
    a, f = stack.blocks["a"][number], stack.blocks["f"][number]
    columns = W // HEADS
    q, k, v = a.cell.qkv(x).chunk(3, -1)
    mixed = torch.zeros_like(x)
    for head in range(HEADS):
        part = slice(head * columns, (head + 1) * columns)
        for t, home in enumerate(homes):
            seen = torch.tensor([other == home for other in homes])
            scores = (k[:, part] @ q[t, part]) / math.sqrt(columns)
            mixed[t, part] = scores.masked_fill(~seen, -torch.inf).softmax(0) @ v[:, part]
    x = a.norm_sum(x + a.cell.out(mixed))
    return f.norm_sum(x + f.cell.down(torch.nn.functional.gelu(f.cell.up(x))))


@pytest.mark.parametrize("document", [False, True])
@pytest.mark.parametrize(("layers", "above"), [(3, 2), (2, 2), (1, 2)])
@torch.no_grad()
def test_every_layer_adds_the_ngrams_that_cover_a_token(
    layers: int, above: int, document: bool
) -> None:
    """v_l(t) + sum of mu_l(k) over the n-grams k that cover t, those of the last layer above it."""
    model, batch = make(layers=layers, above=above), batch_of(document=document)
    text, ngrams = batch.text, model.ngrams
    vectors: Any = ngrams.embedding
    hidden = model(batch, record=frozenset({"hidden"}))
    assert not hidden.last.isnan().any()
    found, _ = model.find_ngrams(text)
    assert found.length.tolist() == ([2, 2, 1] if document else [4, 2, 1])
    for row, length in enumerate(text.length.tolist()):
        homes = [0] * length
        if document:
            homes = text.tracks["document"][row, :length].tolist()
        spans = [
            tuple(int(part[row, k]) for part in (found.numbers, found.start, found.size))
            for k in range(int(found.length[row]))
        ]
        places = [homes[start] for _, start, _ in spans]
        mu = torch.stack(
            [
                vectors.norm(
                    vectors.token.weight[number]
                    + vectors.segment.weight[text.tracks["segment"][row, start]]
                )
                for number, start, _ in spans
            ]
        )
        x = model.embed(batch)[row, :length]
        for layer in range(layers):
            x = run_layer(model.stack, layer, x, homes)
            if layer < above:
                mu = run_layer(ngrams.stack, layer, mu, places)
            x = x.clone()
            for vector, (_, start, size) in zip(mu, spans, strict=True):
                for t in range(start, start + size):
                    x[t] += vector
            recorded = hidden.recorded["hidden"][layer + 1][row, :length]
            torch.testing.assert_close(recorded, x, rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(hidden.last[row, :length], x, rtol=1e-10, atol=1e-10)


@torch.no_grad()
def test_without_ngrams_it_is_berts_encoder() -> None:
    """With an empty lexicon, and in the row of a batch that has none."""
    empty, batch = make(learned=False), batch_of()
    plain = Encoder(
        embedding=empty.embedding,
        position=empty.position,
        stack=Stack(layout="af*3", cells=CELLS, residual=PostNorm(norm=NORM, dropout=0.0)),
        pattern=Full(),
    ).double()
    plain.stack.load_state_dict(empty.stack.state_dict())
    wanted = plain(batch).last
    torch.testing.assert_close(empty(batch).last, wanted)
    model = make()
    model.load_state_dict({**empty.state_dict(), **model.lexicon.state_dict(prefix="lexicon.")})
    ids = batch.text.ids.clone()
    ids[1] = torch.tensor([2, 13, 14, 3, 15, 16, 3, 0, 0])
    mixed = Batch(batch.key, {"text": Seq(ids, batch.text.length, batch.text.tracks)})
    found = model(mixed).last
    torch.testing.assert_close(found[1, :7], plain(mixed).last[1, :7])
    assert not torch.allclose(found[0], wanted[0])


def test_a_hidden_token_is_in_no_ngram_and_gradients_are_finite() -> None:
    model, batch = make(), batch_of()
    batch.text.ids[0, 2] = 4  # the mask
    found, _ = model.find_ngrams(batch.text)
    assert found.start[0].tolist() == [5, 0]  # 8 9 alone
    model(batch).last[batch.text.real].square().sum().backward()
    table: Any = model.ngrams.embedding.token.weight
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())
    assert table.grad.any()


def test_parameters_are_those_of_bert_and_of_the_ngrams() -> None:
    """Sec. 2.2 by hand: a table and six layers more; IDEA-CCNL/Erlangshen-ZEN1-224M-Chinese."""
    words = ["size=base", "model.lexicon.count=104089", "objective=[mlm]"]
    with without_weights():
        found, plain = (
            build_model(
                compose("pretrain", recipe, [*words[: 3 if recipe == "zen" else 1], words[2]]),
                vocab_size=21_128,
            ).backbone
            for recipe in ("zen", "bert")
        )
    width, inner = 768, 3072
    layer = 4 * (width * width + width) + 2 * width * inner + inner + width + 4 * width
    more = 6 * layer + (104_089 + 2) * width + 2 * width
    assert count(found) - count(plain) == more
    assert count(found) / 1e6 == pytest.approx(224, rel=0.01)


def test_stacks_that_cannot_add_are_refused() -> None:
    norm = PreNorm(norm=NORM, dropout=0.0)
    stack = NgramStack(layout="af*2", cells=CELLS, residual=norm, reversible=True)
    model = make()
    with pytest.raises(ConfigError, match="reversible=True: false: layers add"):
        Zen(
            embedding=model.embedding,
            position=model.position,
            stack=stack,
            pattern=Full(),
            lexicon=model.lexicon,
            ngrams=model.ngrams,
        )


SMALL = ["size.width=16", "size.num_heads=2", "size.inner_width=16", "format.max_length=32"]
QUICK = ["train.steps=2", "train.batch_size=4", "train.device=cpu", "train.threads=1"]


def run(*words: str) -> str:
    result = CliRunner().invoke(make_app(), list(words))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


def test_an_empty_lexicon_is_said() -> None:
    (line,) = describe_empty_lexicons(make(learned=False))
    assert "the lexicon of n-grams is empty" in line
    assert not list(describe_empty_lexicons(make()))


@pytest.mark.slow  # four models; its parts and its recipe have tests of their own
def test_commands(tokens_of: Any, tmp_path: Path) -> None:
    """A run learns its lexicon, also behind a trained BERT; a run behind that, and a task, have
    the same.
    """
    data = f"data.path={tokens_of('wordpiece')}"
    run("pretrain", "bert", "size=tiny", data, *SMALL, *QUICK, f"run.dir={tmp_path / 'bert'}")
    started = [f"init={tmp_path / 'bert'}", "model.lexicon.count=50", "format.max_length=32"]
    said = run("pretrain", "zen", data, *started, *QUICK, f"run.dir={tmp_path / 'zen'}")
    assert "the lexicon has 50 n-grams of 0.0" in said
    again = [f"init={tmp_path / 'zen'}", *started[1:], f"run.dir={tmp_path / 'again'}"]
    assert "the lexicon has" not in run("pretrain", "zen", data, *again, *QUICK)
    rows = [f"a {'good' if n % 2 else 'bad'} list of the value\t{n % 2}" for n in range(8)]
    for split in ("train", "dev"):
        (tmp_path / f"{split}.tsv").write_text("\n".join(["text\tlabel", *rows]), encoding="utf-8")
    words = ["task=classification", f"task.path={tmp_path}", "task.max_length=16"]
    words += [f"checkpoint={tmp_path / 'again'}", "train.epochs=null"]
    run("finetune", *words, *QUICK, f"run.dir={tmp_path / 'tuned'}")
    models: list[Any] = [plmctl.load(tmp_path / name).model for name in ("zen", "tuned")]
    first, last = (model.backbone.lexicon for model in models)
    for name in ("edges", "ends"):
        assert torch.equal(getattr(first, name), getattr(last, name))
    assert last.known == 50
