"""A text that its tokenizer does not know: said in training and evaluation, refused where that
is most of it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from plmctl.cli.app import make_app
from plmctl.core.batch import Rows, Seq
from plmctl.core.errors import DataError
from plmctl.data.shards import Shards
from plmctl.data.words import warn_of_missing_words
from plmctl.tasks.inference import ReadPieces, Split, find_unread, name_unread
from plmctl.tasks.record import Example
from plmctl.text.tokenizer import KINDS, Tokenizer
from plmctl.text.unknown import (
    describe_spelled,
    describe_unknown,
    find_spelled,
    refuse_unknown,
    unknown_share,
)

CHINESE = (
    "北京是中国的首都，也是一座历史悠久的城市。\n长江流过很多城市，最后流入大海。\n\n"
    "他们住在海边的房子里，每天看日出。\n猫在桌子上睡觉。\n\n"
)
SMALL = [
    "size=tiny",
    "size.width=16",
    "size.inner_width=16",
    "format.max_length=32",
    "train.batch_size=2",
    "eval.rows=2",
]
SIZES = {"unigram": 30, "bpe": 40, "char": 40, "wordpiece": 60}
TokensOf = Callable[..., Path]


def invoke(*words: object, code: int = 0) -> Any:
    done = CliRunner().invoke(make_app(), [str(word) for word in words])
    assert done.exit_code == code, done.output + done.stderr
    return done


@pytest.fixture(scope="module")
def run(tokens_of: TokensOf, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "english"
    invoke(
        "pretrain",
        "bert",
        f"data.path={tokens_of('wordpiece')}",
        *SMALL,
        "train.steps=1",
        f"run.dir={folder}",
    )
    return folder


def test_special_tokens_are_no_text(tokens_of: TokensOf) -> None:
    vocab = Tokenizer.load(tokens_of("wordpiece")).vocab
    assert vocab.unk is not None
    ids = np.array([vocab.cls, vocab.unk, 50, 51, vocab.unk, 52, vocab.sep, vocab.pad, vocab.pad])
    assert unknown_share(ids, vocab) == 2 / 5
    assert unknown_share(ids, replace(vocab, unk=None)) == 0
    # GPT-2: that token has other meanings, too
    assert unknown_share(ids, replace(vocab, unk=vocab.eos)) == 0
    assert unknown_share(ids[:1], vocab) == 0


def test_a_script_that_a_tokenizer_spells_by_bytes_or_letters() -> None:
    def learn(kind: str, *texts: str) -> Tokenizer:
        return Tokenizer.learn_most(lambda: texts, KINDS[kind](vocab_size=500), lambda line: None)

    english, chinese = "the cat sat on the mat", "北京是中国的首都"
    for kind in ("wordpiece", "byte_bpe", "char"):
        tokenizer = learn(kind, english, english)
        texts = (tokenizer.encode(text) for text in (chinese, english))
        assert [find_spelled(ids, tokenizer.vocab) for ids in texts] == [1.0, 0.0], kind
    tokenizer = learn("wordpiece", chinese, "DNA DNA", "the cat")
    assert find_spelled(tokenizer.encode(chinese), tokenizer.vocab) == 0
    assert find_spelled(tokenizer.encode("cat heat ache teach"), tokenizer.vocab) > 0.9
    line = "95% of the tokens are unknown, bytes or single letters"
    assert describe_spelled(0.954).startswith(line)


@pytest.mark.parametrize("kind", SIZES)
def test_a_text_in_another_script_is_unknown_whatever_spaces_it_has(kind: str) -> None:
    english = ["the card has not arrived", "a top-up by bank was declined", "lost or stolen"] * 9
    words = Tokenizer.train(english, kind=kind, vocab_size=SIZES[kind])
    rows = {"卡丢了": 1, "Моя карта не пришла": 1, "the card": 0, "card 卡丢了 card": None}
    shares = {text: unknown_share(words.encode(text), words.vocab) for text in rows}
    for text, share in rows.items():
        assert shares[text] == share if share is not None else 0 < shares[text] < 1
    examples = [Example(str(n), {"text": text}) for n, text in enumerate(["the card", " ", *rows])]
    ids = [words.encode(each.texts[0]) for each in examples]
    length = np.array([len(row) for row in ids])
    table = np.full((len(ids), length.max()), words.vocab.pad)
    for n, row in enumerate(ids):
        table[n, : len(row)] = row
    number = np.arange(len(ids))
    read = Split(
        "new",
        examples,
        Rows(
            number,
            {"text": Seq(table, length)},
            values={"example": number, "cut": np.zeros_like(number)},
        ),
    )
    assert find_unread(read, words) == {1: 1, 2: 1, 3: 1}
    said = ReadPieces()
    said.add(examples, read.rows, words)
    again = ReadPieces()
    again.load(json.loads(json.dumps(said.save())))
    assert again.describe_unknown() == said.describe_unknown()
    assert "2 of 6 texts are hardly read" in said.describe_unknown()
    named = name_unread([{"guess": "a"}] * len(ids), find_unread(read, words))
    assert [each.get("unknown") for each in named] == [None, 1, 1, 1, None, None]


def test_full_width_letters_that_the_vocabulary_has_are_hardly_read() -> None:
    """Published vocabularies have them, and texts of training seldom."""
    tokenizer = Tokenizer.train(["a 1 ａ １"] * 9, kind="char", vocab_size=12)
    texts = ["a 1 a 1", "ａ１ａ", "a 1 a 1 ａ"]
    examples = [Example(str(n), {"text": text}) for n, text in enumerate(texts)]
    ids = [[*tokenizer.encode(text)] for text in texts]
    assert all(tokenizer.vocab.unk not in row for row in ids)
    length = np.array([len(row) for row in ids])
    table = np.array([row + [tokenizer.vocab.pad] * (length.max() - len(row)) for row in ids])
    number = np.arange(len(ids))
    rows = Rows(
        number,
        {"text": Seq(table, length)},
        values={"example": number, "cut": np.zeros_like(number)},
    )
    assert find_unread(Split("new", examples, rows), tokenizer) == {1: 1}
    said = ReadPieces()
    said.add(examples, rows, tokenizer)
    assert "2 texts with full-width letters or digits" in said.describe_unknown()


def test_what_is_said_and_where_it_ends() -> None:
    assert describe_unknown(0.0) == describe_unknown(0.0004, Counter("@")) == ""
    assert describe_unknown(0.1234) == "12.3% of the tokens are unknown"
    refuse_unknown(0.5, fix="")
    with pytest.raises(DataError) as error:
        refuse_unknown(0.51, file="x.txt", line=3, fix="another")
    assert (
        str(error.value)
        == "x.txt:3: 51% of its tokens are unknown to the tokenizer, so that little of the text is"
        " left\n  fix: another"
    )


def test_pretraining_says_it_and_refuses(tokens_of: TokensOf, tmp_path: Path) -> None:
    english = " ".join(["the name of a list and a file"] * 8) + "\n\n"
    path, folder = tmp_path / "mixed.txt", tmp_path / "run"
    words = [
        "pretrain",
        "bert",
        f"data.path={path}",
        f"tokenizer.path={tokens_of('wordpiece')}",
        *SMALL,
        "train.steps=1",
    ]
    path.write_text(CHINESE * 20, encoding="utf-8")
    refused = invoke(*words, f"run.dir={folder}", code=3)
    assert f"{path}: 100% of its tokens are unknown to the tokenizer" in refused.stderr
    assert "fix: tokenizer=byte_bpe  # a tokenizer of this text" in refused.stderr
    assert not folder.exists()
    path.write_text((CHINESE + english * 6) * 10, encoding="utf-8")
    said = invoke(*words, f"run.dir={folder}").stderr
    (line,) = (line for line in said.splitlines() if "rows an epoch" in line)
    assert line.endswith("% of the tokens are unknown")


def test_a_task_in_another_script(run: Path, tmp_path: Path) -> None:
    rows = [f"{'北京很好' if n % 2 else '上海不好'}{n}\t{n % 2}" for n in range(40)]
    (tmp_path / "train.tsv").write_text("\n".join(["text\tlabel", *rows]) + "\n", encoding="utf-8")
    words = [
        "finetune",
        "task=classification",
        f"task.path={tmp_path}",
        f"checkpoint={run}",
        "train.epochs=1",
    ]
    refused = invoke(*words, "task.max_length=16", f"run.dir={tmp_path / 'run'}", code=3)
    assert f"{tmp_path / 'train.tsv'}: 70% of its tokens are unknown" in refused.stderr
    assert "a checkpoint whose tokenizer knows this text" in refused.stderr
    assert "byte_bpe" not in refused.stderr  # the checkpoint decides the tokenizer
    assert not (tmp_path / "run").exists()
    mixed = [f"the name of a list is {n} 好\t{n % 2}" for n in range(40)]
    (tmp_path / "train.tsv").write_text("\n".join(["text\tlabel", *mixed]) + "\n", encoding="utf-8")
    said = invoke(*words, "task.max_length=16", f"run.dir={tmp_path / 'run'}").stderr
    (line,) = (line for line in said.splitlines() if line.startswith("train: 40 examples"))
    assert "% of the tokens are unknown" in line
    (tmp_path / "new.txt").write_text("the name of the 猫\n", encoding="utf-8")
    answer = invoke(
        "eval",
        f"checkpoint={tmp_path / 'run'}",
        f"input={tmp_path / 'new.txt'}",
        f"out={tmp_path}",
        "--json",
    )
    assert "of the tokens are unknown" in json.loads(answer.stdout)["remarks"]["unknown"]


def test_lines_prompts_and_perplexity(run: Path, tmp_path: Path) -> None:
    (tmp_path / "zh.txt").write_text(CHINESE, encoding="utf-8")
    of_lines = invoke(
        "embed",
        f"checkpoint={run}",
        f"input={tmp_path / 'zh.txt'}",
        f"out={tmp_path / 'v.npz'}",
        code=3,
    )
    assert f"{tmp_path / 'zh.txt'}: 100% of its tokens are unknown" in of_lines.stderr
    assert not (tmp_path / "v.npz").exists()
    prompt = invoke("generate", f"checkpoint={run}", "prompt=北京是[MASK]国", code=3)
    assert "prompt: 100% of its tokens are unknown" in prompt.stderr
    of_text = invoke(
        "eval", f"checkpoint={run}", "task=lm", f"data.path={tmp_path / 'zh.txt'}", code=3
    )
    assert f"{tmp_path / 'zh.txt'}: 100% of its tokens are unknown" in of_text.stderr


def test_whole_words_of_chinese_need_a_segmenter(tmp_path: Path, tokens_of: TokensOf) -> None:
    (tmp_path / "zh.txt").write_text(CHINESE * 20, encoding="utf-8")
    tokens = tmp_path / "tokens"
    invoke(
        "tokenize",
        f"data.path={tmp_path / 'zh.txt'}",
        "tokenizer=wordpiece",
        "tokenizer.vocab_size=27",
        f"out={tokens}",
    )
    words = ["pretrain", "bert", f"data.path={tokens}", *SMALL, "train.steps=1"]
    said = invoke(*words, f"run.dir={tmp_path / 'run'}", "noise=[whole_word_mask]").stderr
    assert (
        "of the tokens are Chinese without marked words: a character, or what is between two spaces"
        " counts as a word; tokenize with data.segment=jieba to mark words (extra: chinese)" in said
    )
    shown = invoke(*words, "noise=[whole_word_mask]", "--preview", 1)
    assert "text: 88% of the tokens are Chinese without marked words" in shown.stderr
    # of single tokens
    assert (
        "Chinese without marked words" not in invoke(*words, f"run.dir={tmp_path / 'other'}").stderr
    )

    shards, tokenizer = Shards.open(tokens), Tokenizer.load(tokens)
    assert len(warn_of_missing_words(shards, tokenizer)) == 1
    shards.manifest["settings"]["segment"] = "jieba"  # type: ignore[index]
    assert warn_of_missing_words(shards, tokenizer) == []
    english = tokens_of("wordpiece")
    assert warn_of_missing_words(Shards.open(english), Tokenizer.load(english)) == []
