"""The habits of heads: a loop over the attention of transformers' own models."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from typer.testing import CliRunner

import plmctl
from plmctl.analysis.heads import HeadHabits
from plmctl.cli.app import make_app

SENTENCES = ["the cat, it sat.", "dogs run"]
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "it", "sat", "dogs", "run"]
WORDS += [",", "."]


@pytest.fixture
def bert(tmp_path: Path) -> Path:
    (tmp_path / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    transformers.BertTokenizer(str(tmp_path / "vocab.txt")).save_pretrained(tmp_path)
    sizes = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = transformers.BertConfig(
        vocab_size=len(WORDS),
        intermediate_size=8,
        max_position_embeddings=16,
        initializer_range=1.0,
        **sizes,
    )
    torch.manual_seed(0)
    transformers.BertForMaskedLM(config).save_pretrained(tmp_path)
    return tmp_path


@pytest.fixture
def gpt2(tmp_path: Path) -> Path:
    letters = {"<|endoftext|>": 0, **{c: n for n, c in enumerate("thecaisogrundĠ,.", 1)}}
    tokenizer = transformers.GPT2Tokenizer(vocab=letters, merges=[])
    tokenizer.save_pretrained(tmp_path)
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=len(letters),
        n_positions=32,
        n_embd=8,
        n_layer=2,
        n_head=2,
        initializer_range=1.0,
        bos_token_id=0,
        eos_token_id=0,
    )
    transformers.GPT2LMHeadModel(config).save_pretrained(tmp_path)
    return tmp_path


def loop(model: Any, rows: list[list[int]], sets: dict[str, set[int]]) -> dict[str, Any]:
    """The definition, weight by weight."""
    sums: dict[tuple[str, int, int], float] = {}
    for row in rows:
        maps = model(torch.tensor([row]), output_attentions=True).attentions
        for layer, weights in enumerate(maps):
            for head in range(2):
                for q in range(len(row)):
                    for k in range(len(row)):
                        p = float(weights[0, head, q, k])
                        kinds = {"previous": k == q - 1, "next": k == q + 1, "itself": k == q}
                        kinds |= {name: row[k] in ids for name, ids in sets.items()}
                        added = {name: p * yes for name, yes in kinds.items()}
                        added |= {"entropy": -p * math.log(p) if p else 0.0}
                        added |= {"distance": p * abs(q - k)}
                        for name, value in added.items():
                            key = name, layer, head
                            sums[key] = sums.get(key, 0.0) + value
    tokens = sum(map(len, rows))
    names = dict.fromkeys(name for name, _, _ in sums)
    return {
        name: [[sums[name, layer, head] / tokens for head in range(2)] for layer in range(2)]
        for name in names
    }


@torch.inference_mode()
def test_a_loop_over_bert(bert: Path) -> None:
    found = HeadHabits.of(plmctl.load(bert), SENTENCES)
    ids = {word: n for n, word in enumerate(WORDS)}
    rows = [
        [ids[word] for word in ["[CLS]", *words.split(), "[SEP]"]]
        for words in ("the cat , it sat .", "dogs run")
    ]
    model = transformers.AutoModel.from_pretrained(bert, attn_implementation="eager").eval()
    wanted = loop(model, rows, {"[CLS]": {2}, "[SEP]": {3}, "punctuation": {11, 12}})
    assert found.tokens == 12
    assert list(found.means) == list(wanted)
    for name, layers in wanted.items():
        for mine, theirs in zip(found.means[name], layers, strict=True):
            assert mine == pytest.approx(theirs, abs=1e-5), name


@torch.inference_mode()
def test_a_causal_model_looks_at_nothing_behind(gpt2: Path) -> None:
    opened = plmctl.load(gpt2)
    found = plmctl.analyse(gpt2, ["heads"], sentences=["the cat, it"])["heads"]
    model = transformers.AutoModel.from_pretrained(gpt2, attn_implementation="eager").eval()
    marks = {opened.tokenizer.encode(",")[0]}
    wanted = loop(model, [opened.tokenizer.encode("the cat, it")], {"punctuation": marks})
    assert found.means["next"] == [[0.0, 0.0], [0.0, 0.0]]
    for name, layers in wanted.items():
        for mine, theirs in zip(found.means[name], layers, strict=True):
            assert mine == pytest.approx(theirs, abs=1e-5), name


def test_the_table_of_a_report(trained: Path, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("return the value\n\na < b\n")
    page = tmp_path / "page.html"
    for given, said in (("dev", "held-out rows of the run"), (str(text), "the lines of your text")):
        words = ["report", str(trained), "--heads", given, "--out", str(page)]
        done = CliRunner().invoke(make_app(), words)
        assert done.exit_code == 0, done.output
        assert said in page.read_text()
        assert '<th scope="col" class="n"><span>entropy, nats' in page.read_text()
    done = CliRunner().invoke(make_app(), ["report", str(trained), "--heads", "absent.txt"])
    assert done.exit_code == 3
    assert "fix: --heads dev" in done.output


def test_sentences_for_measures_that_read_none(trained: Path) -> None:
    with pytest.raises(plmctl.UsageError, match="none of positions reads any; attention, heads"):
        plmctl.analyse(trained, ["positions"], sentences=["a"])
    found = plmctl.analyse(trained, ["attention"], sentences=["a b c"])["attention"]
    assert len(found.tokens) == 1
