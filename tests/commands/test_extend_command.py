"""`plmctl extend`: tokens of a field's words are added to a trained model."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch.testing import assert_close
from typer.testing import CliRunner

from plmctl.artifacts.extend import describe_unknown_words
from plmctl.artifacts.loading import Loaded, load
from plmctl.cli.app import make_app
from plmctl.core.batch import Batch, Seq

GENERAL = [
    "the cat sat on the mat, near an old hat.",
    "a path of red bricks: gray holly",
    "slow pigs help nine new yellow dogs",
] * 40
FIELD = ["nephrology and nephropathy: a nephrologist sat on the mat", "a nephrologist ☃"] * 40
OLD = "the cat sat near a hat"
SIZE = ["size=tiny", "size.width=16", "size.inner_width=32", "size.num_heads=2"]
SMALL = ["train.batch_size=4", "format.max_length=32", "train.steps=1"]


def plmctl(*given: object, code: int = 0) -> str:
    result = CliRunner().invoke(make_app(), list(map(str, given)))
    assert result.exit_code == code, (result.output, result.exception)
    return result.output


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two texts, a model of the first, and that model with tokens of the second."""
    folder = tmp_path_factory.mktemp("extend")
    for name, texts in (("general", GENERAL), ("field", FIELD)):
        (folder / f"{name}.txt").write_text("\n".join(texts), encoding="utf-8")
    plmctl(
        *("pretrain", "bert", *SMALL, f"data.path={folder}/general.txt", f"run.dir={folder}/run"),
        *(*SIZE, "tokenizer.vocab_size=70"),
    )
    asked = ["extend", folder / "run", f"data.path={folder}/field.txt", "tokens=5", "--json"]
    said = json.loads(plmctl(*asked, f"out={folder}/new"))
    assert (said["tokens"], said["unknown_words"]) == (5, 1)
    assert said["after"] < 0.6 * said["before"]
    return folder


def read(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(load(folder).source.folder / "model.safetensors")


def logits_of(loaded: Loaded, text: str) -> torch.Tensor:
    """[T, V]"""
    ids = torch.tensor([loaded.tokenizer.encode(text)])
    track = torch.zeros_like(ids)
    seq = Seq(ids, torch.tensor([ids.shape[1]]), {"segment": track, "position": track.cumsum(1)})
    with torch.no_grad():
        states = loaded.model(Batch(torch.arange(1), {"text": seq})).last[0]
        logits: torch.Tensor = loaded.model.heads["mlm"](states)
    return logits


def test_rows_are_the_means_of_their_pieces(home: Path) -> None:
    old, new = load(home / "run"), load(home / "new")
    size = old.vocab.size
    before, after = read(home / "run"), read(home / "new")
    pieces = [token.replace("##", "") for token in new.tokenizer.pieces(range(size, size + 5))]
    assert "nephrologist" in pieces
    longer = [name for name in before if len(after[name]) != len(before[name])]
    assert longer == ["backbone.embedding.token.weight", "heads.mlm.bias"]
    for name, tensor in before.items():
        assert torch.equal(after[name][: len(tensor)], tensor), name
    for name in longer:
        assert len(after[name]) == size + 5
        for number in range(5):
            word = new.tokenizer.pieces([size + number])[0]
            if not word.startswith("##"):
                parts = old.tokenizer.encode(word)
                assert_close(after[name][size + number], before[name][parts].mean(0))


def test_old_texts_are_read_as_before(home: Path) -> None:
    old, new = load(home / "run"), load(home / "new")
    assert new.tokenizer.encode(OLD) == old.tokenizer.encode(OLD)
    size = old.vocab.size
    before, after = logits_of(old, OLD), logits_of(new, OLD)
    assert torch.equal(after[..., :size], before[..., :size])
    word = "nephrologist"
    parts, own = old.tokenizer.encode(word), new.tokenizer.encode(word)
    assert len(own) == 1
    assert own[0] >= size
    # it is as likely as its pieces are on average, in logits
    assert_close(after[..., own[0]], before[..., parts].mean(-1))


def test_training_goes_on(home: Path) -> None:
    text = f"data.path={home}/field.txt"
    plmctl("pretrain", "bert", *SMALL, f"init={home}/new", text, f"run.dir={home}/on")
    new, on = load(home / "new"), load(home / "on")
    assert on.tokenizer.fingerprint == new.tokenizer.fingerprint
    assert read(home / "on").keys() == read(home / "new").keys()


def test_back_to_hugging_faces_layout(home: Path) -> None:
    plmctl("convert", home / "run", "--to", "hf", "--out", home / "published")
    asked = [f"data.path={home}/field.txt", "tokens=5", f"out={home}/grown"]
    said = plmctl("extend", home / "published", *asked)
    assert "5 new tokens, such as" in said
    assert "1 word of it stays unknown, 40 times in all, such as ☃: " in said
    assert f"init={home}/grown" in said
    plmctl("convert", home / "grown", "--to", "hf", "--out", home / "again")
    grown, again = load(home / "grown"), load(home / "again")
    assert again.tokenizer.encode(FIELD[0]) == grown.tokenizer.encode(FIELD[0])
    assert torch.equal(logits_of(again, FIELD[0]), logits_of(grown, FIELD[0]))


def test_words_of_letters_can_be_injected() -> None:
    fix = "  fix: plmctl inject checkpoint=x word_vectors=random form=replace words=WORDS.tsv"
    said, advice = describe_unknown_words(Counter({"żółw": 2, "☃": 3}), "x")
    assert said.startswith("2 words of it stay unknown, 5 times in all, such as ☃ żółw: ")
    assert advice.startswith(fix)
    assert len(describe_unknown_words(Counter({"☃": 3}), "x")) == 1  # inject knows words alone
    assert not describe_unknown_words(Counter(), "x")


def test_drawn_rows_are_a_control(home: Path) -> None:
    asked = [f"data.path={home}/field.txt", "tokens=5", "rows=random", f"out={home}/drawn"]
    plmctl("extend", home / "run", *asked)
    drawn, means = read(home / "drawn"), read(home / "new")
    name = "backbone.embedding.token.weight"
    assert torch.equal(drawn[name][:-5], means[name][:-5])
    assert not torch.isclose(drawn[name][-5:], means[name][-5:]).any(1).all()
    assert drawn[name][-5:].std() < 0.05  # as the model draws its first vectors, 0.02


def test_mistakes(home: Path) -> None:
    text = f"data.path={home}/field.txt"
    new = ["extend", home / "run", text]
    assert "is there already" in plmctl(*new, f"out={home}/new", code=2)
    assert "stand 999 times side by side" in plmctl(*new, "least=999", f"out={home}/x", code=2)
    assert "did you mean 'rows'" in plmctl(*new, "row=random", f"out={home}/x", code=2)
    idle = ["data.segment=jieba", f"data.cache_dir={home}"]
    told = plmctl(*new, *idle, f"out={home}/x", code=2)
    assert "data.segment='jieba': null" in told
    assert f"data.cache_dir='{home}': null" in told
    tokens = home / "tokens"
    plmctl("tokenize", text, "tokenizer=char", "tokenizer.vocab_size=60", f"out={tokens}")
    asked = ["extend", home / "run", f"data.path={tokens}", f"out={home}/x"]
    assert "give the text they were made from" in plmctl(*asked, code=2)
    assert not (home / "x").exists()
