"""A vector for each language, added to every token of it (Conneau and Lample, 2019), and what
does not fit it.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from plmctl.artifacts.convert import convert
from plmctl.artifacts.loading import load
from plmctl.cli.app import make_app
from plmctl.core.batch import Batch, Seq
from plmctl.data.formats.sentences import Sentences
from plmctl.data.formats.text_pair import TextPair
from plmctl.data.shards import Shards
from plmctl.nn.embeddings import Embedding
from plmctl.nn.norm import layer_norm
from plmctl.nn.positions import Learned
from plmctl.text.tokenizer import Tokenizer

V, W, T = 20, 6, 7


def embedding(**sizes: int) -> tuple[Embedding, Learned]:
    torch.manual_seed(0)
    norm = partial(layer_norm, width=W, eps=1e-12)
    return (
        Embedding(vocab_size=V, width=W, dropout=0.0, norm=norm, **sizes).double(),
        Learned(width=W, max_length=T).double(),
    )


def test_is_the_sum() -> None:
    made, position = embedding(segments=2, languages=3)
    ids, language = torch.randint(V, (2, T)), torch.randint(3, (2, T))
    segment, place = torch.randint(2, (2, T)), torch.randint(T, (2, T))
    found = made(
        Seq(ids, torch.full((2,), T), {"language": language, "segment": segment}), position, place
    )
    for row in range(2):
        for t in range(T):
            x = made.token.weight[ids[row, t]] + made.segment.weight[segment[row, t]]
            x = x + made.language.weight[language[row, t]] + position.table.weight[place[row, t]]
            x = (
                made.norm.weight * (x - x.mean()) / torch.sqrt(((x - x.mean()) ** 2).mean() + 1e-12)
                + made.norm.bias
            )
            torch.testing.assert_close(found[row, t], x, atol=1e-10, rtol=1e-10)


def test_rows_without_the_track_are_of_language_0() -> None:
    made, position = embedding(languages=2)
    seq, places = Seq(torch.randint(V, (2, T)), torch.full((2,), T)), torch.arange(T)[None]
    zeros = seq.with_tracks(language=torch.zeros(2, T, dtype=torch.int64))
    assert made(seq, position, places).equal(made(zeros, position, places))
    assert not made(seq, position, places).equal(
        made(seq.with_tracks(language=1 - zeros.tracks["language"]), position, places)
    )


def test_none_is_the_default() -> None:
    made, position = embedding()
    assert made.language is None
    seq, places = Seq(torch.randint(V, (2, T)), torch.full((2,), T)), torch.arange(T)[None]
    assert made(seq.with_tracks(language=torch.full((2, T), 9)), position, places).equal(
        made(seq, position, places)
    )


@pytest.fixture
def tlm(tokens_of, tmp_path: Path):
    """`tlm(words)`: (exit code, what is said) of two updates on parallel text."""
    words = [
        f"data.path={tokens_of('bpe', pairs=True)}",
        "size=tiny",
        "size.width=32",
        "size.inner_width=128",
        "train.steps=2",
        "train.batch_size=4",
        "train.device=cpu",
        "train.eval_every=100",
        f"run.dir={tmp_path / 'run'}",
    ]

    def run(*more: str) -> tuple[int, str]:
        result = CliRunner().invoke(make_app(), ["pretrain", "tlm", *words, *more])
        return result.exit_code, result.output

    return run


def test_tlm_trains_both_languages_and_transformers_reads_them(tlm, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    code, said = tlm()
    assert code == 0, said
    ours, out = load(tmp_path / "run").model.eval(), tmp_path / "out"
    assert ours.backbone.embedding.language.weight.shape == (2, 32)
    convert(tmp_path / "run", out, to="hf")
    tokenizer = transformers.AutoTokenizer.from_pretrained(out)
    given = tokenizer("a name", "the list", return_tensors="pt")
    assert given.keys() == {"input_ids", "attention_mask"}  # types would be tokens to XLM
    (ids,) = given["input_ids"].tolist()
    first = ids.index(tokenizer.sep_token_id) + 1
    assert ids[-1] == tokenizer.sep_token_id
    language = torch.tensor([[n >= first for n in range(len(ids))]]).long()
    place = torch.tensor([[n - first * (n >= first) for n in range(len(ids))]])
    with torch.no_grad():
        published = transformers.AutoModelForMaskedLM.from_pretrained(out).eval()
        wanted = published(**given, langs=language, position_ids=place).logits
        text = Seq(given["input_ids"], torch.tensor([len(ids)]))
        text = text.with_tracks(language=language, position=place)
        found = ours.heads["mlm"](ours(Batch(torch.zeros(1), {"text": text})).last)
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)


def test_a_language_beyond_the_table_is_refused_before_work(tlm, tmp_path: Path) -> None:
    code, said = tlm("model.embedding.languages=1")
    assert code == 2
    assert "model.embedding.languages=1: at least 2" in said
    assert "fix: model.embedding.languages=2" in said
    assert not list((tmp_path / "run").glob("checkpoints/step-*"))


def test_text_that_names_no_language_wants_no_table(tlm, tokens_of, tmp_path: Path) -> None:
    code, said = tlm(
        f"data.path={tokens_of('bpe')}", "format=blocks", "objective=[mlm]", "noise=[token_mask]"
    )
    assert code == 2
    assert "model.embedding.languages=2: 0 (none): no text says which language it is in" in said
    assert "fix: model.embedding.languages=0" in said
    assert not (tmp_path / "run").exists()


def test_formats_say_how_many_languages_their_rows_tell_apart(tokens_of) -> None:
    home = tokens_of("bpe", pairs=True)
    shards, vocab = Shards.open(home), Tokenizer.load(home).vocab
    pair, single = (
        TextPair(vocab=vocab, max_length=64, packed=True),
        Sentences(vocab=vocab, max_length=64, min_tokens=1),
    )
    assert (pair.languages(shards), single.languages(shards)) == (2, 1)
    shards.tracks["language"] = np.full(len(shards.ids), 6, np.int16)
    assert (pair.languages(shards), single.languages(shards)) == (7, 7)
    assert not len(shards.spans)
    shards.tracks["language"] = shards.tracks["language"][:0]
    assert single.languages(shards) == 1
