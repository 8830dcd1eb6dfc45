"""A budget of words: its end, over resumes and micro-batches, the text it needs, kept weights."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from safetensors.torch import load_file

from tests.command import plmctl

SMALL = ("size=tiny", "size.width=32", "size.inner_width=64", "format.max_length=48")
SMALL += ("train.batch_size=8", "eval.rows=8", "objective=[mlm]", "format=blocks")
SMALL += ("train.eval_every=0", "train.log_every=1", "train.save_every=0")
WORDS = 2500


def records(run: Path) -> list[dict]:
    lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [each for each in map(json.loads, lines) if "words" in each]


@pytest.fixture
def tokens(tokens_of) -> str:
    return f"data.path={tokens_of('wordpiece')}"


def pretrain(run: Path, tokens: str, *words: str) -> list[dict]:
    budget = (f"train.words={WORDS}", "train.save_at=words:log", f"run.dir={run}")
    plmctl("pretrain", "bert", *SMALL, tokens, *budget, *words)
    return records(run)


def kept(run: Path) -> dict[str, dict]:
    files = run.glob("checkpoints/words-*/model.safetensors")
    return {file.parent.name: load_file(file) for file in files}


def test_the_same_words_over_a_resume_and_other_micro_batches(tmp_path, tokens) -> None:
    whole = pretrain(tmp_path / "whole", tokens)
    counts = [each["words"] for each in whole]
    assert counts == sorted(counts)
    assert counts[-2] < WORDS <= counts[-1]
    assert all(each["words"] < each["tokens"] for each in whole)
    pretrain(tmp_path / "half", tokens, "train.pause_at=4")
    plmctl("pretrain", "--resume", f"run.dir={tmp_path / 'half'}", "train.pause_at=null")
    cut = pretrain(tmp_path / "cut", tokens, "train.micro_batch_size=2")
    assert [each["words"] for each in records(tmp_path / "half")] == counts
    assert [each["words"] for each in cut] == counts
    one, other = kept(tmp_path / "whole"), kept(tmp_path / "half")
    assert one.keys() == other.keys() == kept(tmp_path / "cut").keys()
    assert {"words-2000", "words-2500"} <= one.keys()
    for name, weights in one.items():
        assert all((other[name][key] == tensor).all() for key, tensor in weights.items())
    scored = ("task=held_out", f"checkpoint={tmp_path / 'half' / 'checkpoints' / 'words-2000'}")
    found = json.loads(plmctl("eval", *scored, "--json"))
    assert "words-2000" in json.dumps(found)


def test_repeats_are_stated(tmp_path, tokens, caplog) -> None:
    plmctl(
        *("pretrain", "bert", *SMALL, tokens, "train.words=1e6", f"run.dir={tmp_path / 'run'}"),
        "train.pause_at=1",
    )
    assert "whose repeats are counted" in caplog.text


def test_text_without_spaces_is_refused(tmp_path) -> None:
    text = "今天天气很好我们一起去公园散步吧那里的花都开了非常漂亮。\n" * 200
    (tmp_path / "zh.txt").write_text(text, encoding="utf-8")
    words = ("tokenizer.vocab_size=32", f"data.path={tmp_path / 'zh.txt'}", "train.words=100")
    run = f"run.dir={tmp_path / 'run'}"
    found = plmctl("pretrain", "bert", *SMALL, *words, run, code=2)
    assert "characters between two spaces" in found
    assert "fix: data.segment=jieba" in found
