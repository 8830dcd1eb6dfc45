"""Joint XLM (Conneau and Lample, 2019): text of each language and pairs of translations take turns;
which language each token has, where positions begin, how often each language comes.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from plmctl.cli.app import make_app
from plmctl.config.compose import compose
from plmctl.config.text_checks import check_data
from plmctl.config.texts import Feed, Texts
from plmctl.core.batch import Batch
from plmctl.core.errors import ConfigError
from plmctl.data.formats.blocks import Blocks
from plmctl.data.formats.in_language import InLanguage
from plmctl.data.formats.text_pair import TextPair
from plmctl.data.mixture import Mixture
from plmctl.data.shards import Shards
from plmctl.data.sharing import share_sample
from plmctl.inputs.corpus import Corpus, open_corpus
from plmctl.inputs.loaders import BatchFields, open_held_out, open_training_loader
from plmctl.text.tokenizer import Tokenizer
from plmctl.training.processes.world import World

LETTERS = {"en": "abcdefgh", "fr": "stuvwxyz"}  # of each language, no letter is of both
FIELDS = BatchFields(uses=frozenset({"tracks.language", "tracks.position", "tracks.document"}))
SIZE = ["size=tiny", "size.width=16", "size.num_heads=2", "size.inner_width=16"]
SIZE += ["tokenizer.vocab_size=80", "format.max_length=32", "train.batch_size=16"]


def write_words(language: str, lines: int, seed: int) -> str:
    """Lines of three words of three letters."""
    letters = np.random.default_rng(seed).choice(list(LETTERS[language]), (lines, 3, 3))
    return "\n".join(" ".join(map("".join, words)) for words in letters.tolist())


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The settings of a run on a long text, a short one, and pairs."""
    home = tmp_path_factory.mktemp("xlm")
    texts = {"wiki.en": ("en", 400), "wiki.fr": ("fr", 40), "x.en": ("en", 60), "x.fr": ("fr", 60)}
    for seed, (name, (language, lines)) in enumerate(texts.items()):
        words = write_words(language, lines, seed)
        if name.startswith("wiki"):  # documents of four lines
            words = "\n\n".join(re.findall(r"(?:.+\n?){1,4}", words))
        (home / name).write_text(words, encoding="utf-8")
    plain = "data.sources.plain.mixture"
    return [
        *(f"{plain}.first.path={home}/wiki.en", f"{plain}.second.path={home}/wiki.fr"),
        *(f"data.path={home}/x.en", f"data.target_path={home}/x.fr"),
        *(f"data.cache_dir={home}/cache", "data.valid_share=0.1", "data.lines=paragraph", *SIZE),
    ]


@pytest.fixture(scope="module")
def run(words: list[str]) -> tuple[Any, Corpus, list[Batch]]:
    """The spec, its text, and eight updates of one micro-batch each."""
    spec = compose("pretrain", "xlm", words)
    corpus = open_corpus(Texts.of(spec))
    with open_training_loader(Feed.of(spec, 0), corpus, World(), FIELDS) as loader:
        return spec, corpus, [batch for _ in range(8) for batch in next(loader)]


def languages_by_letters(corpus: Corpus, ids: list[int]) -> list[int | None]:
    """0 or 1 by the letters of each token; None for special tokens and for what is hidden."""
    found: list[int | None] = []
    for piece in corpus.tokenizer.pieces(ids):
        mine = [n for n, letters in enumerate(LETTERS.values()) if set(piece) & set(letters)]
        found.append(mine[0] if len(mine) == 1 and not piece.startswith("[") else None)
    return found


def test_sources_take_turns(run: tuple[Any, Corpus, list[Batch]]) -> None:
    assert [batch.source for batch in run[2]] == ["plain", "pairs"] * 4


def test_each_token_is_of_the_language_of_its_letters(run: tuple[Any, Corpus, list[Batch]]) -> None:
    """Beside tokens that noise has made random, where a row of plain text has one language."""
    _, corpus, batches = run
    for batch in batches:
        right = wrong = 0
        for row, length in enumerate(batch.text.length.tolist()):
            ids = batch.text.ids[row, :length].tolist()
            track = batch.text.tracks["language"][row, :length].tolist()
            told = [
                (known, stated)
                for known, stated in zip(languages_by_letters(corpus, ids), track, strict=True)
                if known is not None
            ]
            right += sum(known == stated for known, stated in told)
            wrong += sum(known != stated for known, stated in told)
            assert len(set(track)) == (1 if batch.source == "plain" else 2)
        assert wrong <= 0.05 * right, batch.source


def test_positions_begin_again_at_the_translation(run: tuple[Any, Corpus, list[Batch]]) -> None:
    for batch in (batch for batch in run[2] if batch.source == "pairs"):
        for row, length in enumerate(batch.text.length.tolist()):
            tracks = {name: track[row, :length] for name, track in batch.text.tracks.items()}
            place, former = 0, (-1, -1)
            for t in range(length):
                here = (int(tracks["document"][t]), int(tracks["language"][t]))
                place = place + 1 if here == former else 0
                assert int(tracks["position"][t]) == place
                former = here


def test_languages_come_by_tokens_to_the_power_of_seven_tenths(
    run: tuple[Any, Corpus, list[Batch]],
) -> None:
    spec, corpus, _ = run
    counts = {name: len(shards.ids) for name, shards in corpus.train["plain"].items()}
    with open_training_loader(Feed.of(spec, 0), corpus, World(), FIELDS) as loader:
        reader = loader.sources["plain"].reader
    assert isinstance(reader, Mixture)
    powers = {name: count ** (1 / 1.43) for name, count in counts.items()}
    wanted = {name: power / sum(powers.values()) for name, power in powers.items()}
    assert reader.shares == pytest.approx(wanted)
    assert counts["second"] / sum(counts.values()) < reader.shares["second"] < 0.5
    rows = [batch for batch in run[2] if batch.source == "plain"]
    second = np.concatenate([batch.text.tracks["language"][:, 0] for batch in rows])
    spread = (wanted["second"] * wanted["first"] / len(second)) ** 0.5
    assert abs(second.mean() - wanted["second"]) < 4 * spread


def test_held_out_text_has_its_languages(run: tuple[Any, Corpus, list[Batch]]) -> None:
    spec, corpus, _ = run
    held_out = open_held_out(Feed.of(spec), corpus, World(), FIELDS)
    first = {title: next(batches) for title, batches in held_out.items()}
    assert {title: batch.source for title, batch in first.items()} == {
        "plain.first": "plain",
        "plain.second": "plain",
        "pairs": "pairs",
    }
    for number, title in enumerate(("plain.first", "plain.second")):
        text = first[title].text
        assert {int(x) for x in text.tracks["language"][text.real]} == {number}


@pytest.mark.parametrize("temperature", [None, 1.0, 2.0, 10.0])
def test_the_vocabulary_is_learned_by_sizes_to_a_power(temperature: float | None) -> None:
    sizes = [9_000_000, 40_000, 250_000]
    power = 0 if temperature is None else 1 / temperature
    total = sum(size**power for size in sizes)
    found = share_sample(
        [[{"bytes": size - 10}, {"bytes": 10}] for size in sizes], 100_000, temperature=temperature
    )
    assert found == [int(100_000 * size**power / total) for size in sizes]


def test_texts_of_unknown_size_give_as_much() -> None:
    assert share_sample([[{"path": "builtin"}], [{"bytes": 7}]], 100, temperature=2) == [50, 50]


def test_pairs_of_any_two_languages(tokens_of: Any) -> None:
    home = tokens_of("bpe", pairs=True)
    shards, vocab = Shards.open(home), Tokenizer.load(home).vocab
    inner = TextPair(vocab=vocab, max_length=64, packed=True)
    made = InLanguage(format=inner, language=(2, 0))
    plan = made.plan(shards, seed=0, epoch=0, input_length=64)
    index = np.arange(3)
    before, after = (
        part.rows(shards, plan, index).seqs["text"].tracks["language"] for part in (inner, made)
    )
    assert after.tolist() == [[[2, 0][side] for side in row] for row in before.tolist()]
    assert made.languages(shards) == 3
    with pytest.raises(ConfigError, match=r"language=1: \[0,1\], those of source and target"):
        InLanguage(format=inner, language=1)
    plain = Blocks(vocab=vocab, max_length=64, crossing=False, specials=True)
    with pytest.raises(ConfigError, match="one number"):
        InLanguage(format=plain, language=(0, 1))


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["data.sources.plain.mixture.second.path=null"], r"second\.path=null: the text of langu"),
        (["data.sources.plain.mixture.second.language=null"], r"second\.language=null: a number"),
        (["data.sources.pairs.path=y.en"], r"data\.target_path='b': goes with data\.path"),
    ],
)
def test_mistakes(more: list[str], said: str) -> None:
    plain = "data.sources.plain.mixture"
    given = [f"{plain}.first.path=a", f"{plain}.second.path=b"]
    spec = compose("pretrain", "xlm", [*given, "data.path=a", "data.target_path=b", *more])
    with pytest.raises(ConfigError, match=said):
        check_data(spec)


def test_a_run(words: list[str], tmp_path: Path) -> None:
    """Pairs that a source names itself, in place of data.path."""
    own = [word.replace("data.", "data.sources.pairs.", 1) for word in words[2:4]]
    more = ["train.steps=2", "train.device=cpu", "train.threads=1", f"run.dir={tmp_path / 'run'}"]
    given = ["pretrain", "xlm", *words[:2], *own, *words[4:], *more]
    result = CliRunner().invoke(make_app(), given)
    assert result.exit_code == 0, result.output
    assert (tmp_path / "run/checkpoints/step-2").is_dir()
