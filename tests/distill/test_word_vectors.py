"""Vectors of new tokens, and the command that gives them to a model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch.testing import assert_close
from typer.testing import CliRunner

from plmctl.artifacts.assemble import build_model
from plmctl.artifacts.loading import load
from plmctl.cli.app import make_app
from plmctl.config.compose import compose
from plmctl.core.batch import Batch, Seq
from plmctl.core.errors import ConfigError
from plmctl.distill.mimicked import Mimicked, shuffle_contexts, split_context
from plmctl.distill.one_token import OneToken
from plmctl.distill.word_vectors import PieceMean, RandomVectors, WordsToAdd
from plmctl.knowledge.contexts import Context, ContextSettings, read_contexts, write_contexts
from plmctl.knowledge.words import WordCounts
from plmctl.models.base import Model
from plmctl.objectives.mimic import Groups, make_vectors
from plmctl.text.tokenizer import Tokenizer

WORDS = ["cat", "cats", "scatter", "concatenate", "dog", "dogs"]
SENTENCES = [
    'the cat sat on the mat : " so it is "',
    "cats and dogs scatter",
    "to concatenate two words / is easy",
    "a dog",
] * 20
SMALL = ["size=tiny", "size.width=16", "size.inner_width=32", "size.num_heads=2"]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train(SENTENCES, kind="wordpiece", vocab_size=60)


@pytest.fixture
def words(tmp_path: Path) -> Path:
    write_contexts(
        lambda: SENTENCES, tmp_path / "words", ContextSettings(contexts=5), words=[*WORDS, "unicat"]
    )
    return tmp_path / "words"


@pytest.fixture
def model(words: Path, tokenizer: Tokenizer) -> Model:
    more = [f"data.path={words}", "heads.mimic.often=2", "heads.mimic.ngrams=60"]
    config = compose("pretrain", "bertram", [*SMALL, *more])
    return build_model(
        config, vocab_size=tokenizer.vocab.size, vocab=tokenizer.vocab, seed=0
    ).eval()


def wanted_of(words: Path) -> WordsToAdd:
    table = WordCounts.read(words)
    return WordsToAdd(table.spellings, read_contexts(words, table))


def test_contexts_are_read_as_they_were_written(words: Path):
    wanted = wanted_of(words)
    assert sorted(wanted.contexts) == sorted(WORDS)  # none of unicat
    for word, contexts in wanted.contexts.items():
        assert len(contexts) == 5
        assert all(text[start:end] == word for text, start, end in contexts)


@pytest.mark.parametrize("mode", ["add", "replace", "shallow", "form"])
def test_mimicked_words(mode: str, model: Model, tokenizer: Tokenizer, words: Path):
    """The mean over equal parts of the contexts, each as in training; letters without contexts."""
    made = Mimicked(together=2, mode=mode, max_length=24).make(model, tokenizer, wanted_of(words))
    form = model.heads["mimic"].form([*WORDS, "unicat"])
    assert_close(made[-1], form[-1])
    if mode == "form":
        assert_close(made, form)
        return
    contexts = wanted_of(words).contexts["dogs"]
    parts = []
    for some in (contexts[:1], contexts[1:3], contexts[3:]):
        rows = []
        for context in some:
            left, right = split_context(tokenizer, context)
            before = [tokenizer.vocab.id("cls")]
            if mode == "add":
                before += [tokenizer.vocab.id("sep"), tokenizer.encode(":")[0]]
            rows.append((before, left, [tokenizer.vocab.id("mask")], right))
        length = torch.tensor([sum(map(len, row)) + 1 for row in rows])
        ids = torch.zeros(len(rows), int(length.max()), dtype=torch.long)
        for n, row in enumerate(rows):
            joined = [i for part in row for i in part]
            ids[n, : len(joined) + 1] = torch.tensor([*joined, tokenizer.vocab.id("sep")])
        anchors = torch.tensor([(n, len(row[0]) + len(row[1])) for n, row in enumerate(rows)])
        batch = Batch(torch.arange(len(rows)), {"text": Seq(ids, length)}, anchors=anchors)
        groups = Groups.of(torch.zeros(len(rows), dtype=torch.long))
        parts.append(make_vectors(model, batch, ["dogs"], groups, mode=mode)[0])
    assert_close(made[WORDS.index("dogs")], torch.stack(parts).mean(0), atol=1e-5, rtol=1e-4)


def test_shuffled_words_have_the_contexts_of_others(
    model: Model, tokenizer: Tokenizer, words: Path
):
    wanted = wanted_of(words)
    shuffled = shuffle_contexts(wanted.contexts, seed=3)
    assert sorted(map(str, shuffled.values())) == sorted(map(str, wanted.contexts.values()))
    assert all(shuffled[word] is not own for word, own in wanted.contexts.items())
    assert shuffle_contexts(wanted.contexts, seed=4) != shuffled
    other = WordsToAdd(wanted.words, shuffled)
    plain = Mimicked(together=2, mode="add", max_length=24)
    control = Mimicked(together=2, mode="add", max_length=24, control="shuffled", seed=3)
    made = control.make(model, tokenizer, wanted)
    assert_close(made, plain.make(model, tokenizer, other))
    assert not torch.equal(made, plain.make(model, tokenizer, wanted))


def test_only_a_run_of_bertram_mimics(tokenizer: Tokenizer, words: Path):
    config = compose("pretrain", "bert", SMALL)
    bert = build_model(config, vocab_size=tokenizer.vocab.size, vocab=tokenizer.vocab, seed=0)
    with pytest.raises(ConfigError, match="a model with the head mimic"):
        Mimicked(together=2, mode="add", max_length=24).make(bert, tokenizer, wanted_of(words))


def test_one_token_does_what_its_pieces_do(model: Model, tokenizer: Tokenizer, words: Path):
    wanted = wanted_of(words)
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in model.backbone.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape))
        model.backbone.position.table.weight.zero_()  # fewer tokens move those behind the word
    table = model.backbone.token_embedding.weight.detach().clone()

    def distance(word: str, vector: torch.Tensor) -> float:
        """Squared distance of the states with the pieces of the word, or with the vector."""
        total = 0.0
        for context in wanted.contexts[word][:3]:
            left, right = split_context(tokenizer, context)
            left, right = [tokenizer.vocab.id("cls"), *left], [*right, tokenizer.vocab.id("sep")]
            states = []
            for inside in (tokenizer.encode(word), [5]):
                ids = torch.tensor([[*left, *inside, *right]])
                with torch.no_grad():
                    model.backbone.token_embedding.weight[5] = vector
                    seq = Seq(ids, torch.tensor([ids.shape[1]]))
                    last = model(Batch(torch.arange(1), {"text": seq})).last[0]
                    model.backbone.token_embedding.weight.copy_(table)
                own = last[len(left) : len(left) + len(inside)].mean(0, keepdim=True)
                states.append(torch.cat([last[: len(left)], own, last[len(left) + len(inside) :]]))
            total += float((states[0] - states[1]).square().mean())
        return total

    single = [len(tokenizer.encode(word)) == 1 for word in wanted.words]
    assert not all(single)
    maker = OneToken(contexts=3, steps=40, lr=0.1, max_length=64)
    made, first = maker.make(model, tokenizer, wanted), PieceMean().make(model, tokenizer, wanted)
    assert all(p.requires_grad for p in model.backbone.parameters())
    assert torch.equal(model.backbone.token_embedding.weight, table)
    for number, word in enumerate(wanted.words):
        if len(tokenizer.encode(word)) == 1:
            assert torch.equal(made[number], table[tokenizer.encode(word)[0]])
        elif word != "unicat":
            assert distance(word, made[number]) < 0.8 * distance(word, first[number])


def test_random_vectors_are_like_those_of_the_table(model: Model, tokenizer: Tokenizer):
    many = WordsToAdd(tuple(f"word{n}" for n in range(4000)), {})
    made = RandomVectors(seed=1).make(model, tokenizer, many)
    table = model.backbone.token_embedding.weight.detach()[: tokenizer.vocab.size]
    assert_close(made.mean(0), table.mean(0), atol=0.005, rtol=0)
    assert_close(made.std(0), table.std(0), atol=0, rtol=0.1)
    assert torch.equal(made, RandomVectors(seed=1).make(model, tokenizer, many))


def plmctl(*given: str, code: int = 0) -> str:
    result = CliRunner().invoke(make_app(), list(given))
    assert result.exit_code == code, (result.output, result.exception)
    return result.output


def refuse_work(*args: object, **kwargs: object) -> None:
    raise AssertionError("vectors were made before all was checked")


def test_the_command(tmp_path: Path, words: Path, monkeypatch: pytest.MonkeyPatch):
    text = tmp_path / "text.txt"
    text.write_text("\n\n".join(SENTENCES), encoding="utf-8")
    run = tmp_path / "run"
    plmctl(
        *("pretrain", "bert", *SMALL, f"data.path={text}", f"run.dir={run}", "train.steps=1"),
        *("tokenizer.vocab_size=50", "train.batch_size=4", "format.max_length=32"),
    )
    asked = ["inject", f"checkpoint={run}", f"words={words}", f"out={tmp_path / 'new'}"]
    output = plmctl(*asked, "word_vectors=pieces")
    assert "7 tokens, 1 of them of words without contexts" in output
    old, new = load(run), load(tmp_path / "new")
    size, before = old.vocab.size, load_file(old.source.folder / "model.safetensors")
    assert new.vocab.size == size + 7
    after = load_file(tmp_path / "new/model.safetensors")
    for name, tensor in before.items():
        assert torch.equal(after[name][: len(tensor)], tensor), name
    made = PieceMean().make(old.model, old.tokenizer, wanted_of(words))
    assert_close(after["backbone.embedding.token.weight"][size:], made)
    bias = after["heads.mlm.bias"]
    assert (bias[size:] == bias[:size].min()).all()
    pieces = new.tokenizer.pieces(new.tokenizer.encode("a dog"))
    slash = old.tokenizer.pieces(old.tokenizer.encode("/"))
    assert pieces[-2:] == [*slash, "<word:dog>"]
    filled = plmctl("generate", f"checkpoint={tmp_path / 'new'}", "prompt=a [MASK] dog", "top=1")
    assert filled
    assert "is there already" in plmctl(*asked, "word_vectors=pieces", code=2)
    into = [*asked[:-1], "word_vectors=random", f"into={run}", f"out={tmp_path / 'into'}"]
    counts = json.loads(plmctl(*into, "--json").splitlines()[-1])
    assert counts == {"out": f"{tmp_path / 'into'}", "tokens": 7, "without contexts": 1}
    both = load_file(tmp_path / "into/model.safetensors")
    table = "backbone.embedding.token.weight"
    assert torch.equal(both[table][:size], after[table][:size])
    for part in (PieceMean, RandomVectors):  # what is wrong is told before any work
        monkeypatch.setattr(part, "make", refuse_work)
    wrong = [*into[:-2], f"into={tmp_path / 'new'}", f"out={tmp_path / 'wrong'}"]
    assert "a model with the tokens and the width of" in plmctl(*wrong, code=2)
    other = [*asked[:-1], f"out={tmp_path / 'other'}"]
    assert "a model with the head mimic" in plmctl(*other, code=2)
    assert "which words become tokens?" in plmctl(
        "inject", f"checkpoint={run}", "word_vectors=pieces", f"out={tmp_path / 'other'}", code=2
    )
    again = [f"checkpoint={tmp_path / 'new'}", "word_vectors=pieces"]
    assert "has a token already" in plmctl("inject", *again, *other[2:], code=2)


def test_a_context(tokenizer: Tokenizer):
    left, right = split_context(tokenizer, Context("the cat sat", 4, 7))
    assert (left, right) == (tokenizer.encode("the"), tokenizer.encode("sat"))


def test_rare_words_are_probed(tmp_path: Path):
    """A model that was given the right answers by hand, through `plmctl eval task=wnlampro`."""
    text, file, run = tmp_path / "text.txt", tmp_path / "probes.tsv", tmp_path / "run"
    text.write_text("\n\n".join(SENTENCES), encoding="utf-8")
    file.write_text("0\tdev\tunicat (n,1,3)\tcohyponym\tdog (n,1,9)\n", encoding="utf-8")
    plmctl(
        *("pretrain", "bert", *SMALL, f"data.path={text}", f"run.dir={run}", "train.steps=1"),
        *(
            "tokenizer.vocab_size=50",
            "train.batch_size=4",
            "format.max_length=32",
            "data.valid_share=0",
        ),
    )
    output = plmctl(
        *("eval", f"checkpoint={run}", "task=wnlampro", f"task.path={file}", "task.top=50"),
        *("task.at=[50]", "--json"),
    )
    scores = json.loads(output)["metrics"]["dev"]
    assert scores["entries/rare"] == 1
    assert 1 / 50 <= scores["mrr/rare/cohyponym"] <= 1
    assert scores["p@50"] == 1 / 50
