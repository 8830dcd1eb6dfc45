"""A table with more rows than the tokenizer has tokens, and one with fewer."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F
from typer.testing import CliRunner

from plmctl.artifacts.convert import convert
from plmctl.artifacts.loading import load, open_source
from plmctl.cli.app import make_app
from plmctl.core.batch import Batch, Seq
from plmctl.core.errors import DataError
from tests.interop.publishing import VOCAB

MORE = 9  # rows that are no token


@pytest.mark.parity
@pytest.mark.parametrize("name", ["BertForMaskedLM", "ElectraForMaskedLM", "GPT2LMHeadModel"])
def test_spare_rows_are_never_predicted(
    tmp_path: Path, published: Callable[..., Any], with_tokenizer: Callable[..., Path], name: str
) -> None:
    theirs, folder = published(name, vocab_size=VOCAB + MORE)
    with torch.no_grad():
        theirs.get_output_embeddings().weight[VOCAB:] *= 20
    theirs.save_pretrained(folder)
    with_tokenizer(folder)
    convert(folder, tmp_path / "ours", to="plmctl")
    ids = torch.tensor([[2, 5, 6, 4, 9, 3]])
    with torch.no_grad():
        expected = F.log_softmax(theirs(ids).logits[..., :VOCAB], -1)
        for place in (folder, tmp_path / "ours"):
            model = load(place).model
            (head,) = model.heads.values()
            last = model(Batch(torch.arange(1), {"text": Seq(ids, torch.tensor([6]))})).last
            assert torch.allclose(F.log_softmax(head(last), -1), expected, atol=1e-5)
    assert len(open_source(folder).tensors["backbone.embedding.token.weight"]) == VOCAB + MORE
    convert(folder, tmp_path / "theirs", to="hf")
    kept = json.loads((tmp_path / "theirs/config.json").read_text(encoding="utf-8"))
    assert kept["vocab_size"] == VOCAB + MORE


COMMANDS = [
    "generate checkpoint={0} prompt=the",
    "embed checkpoint={0} input={1} out={0}/x.npz",
    "eval checkpoint={0} task=lm data.path={1}",
    "finetune checkpoint={0} task=classification task.path={2} run.dir={0}/run",
    "pretrain bert init={0} data.path={1} format.max_length=12 run.dir={0}/run",
    "convert {0} --to hf --out {0}/hf",
    "convert {0} --to plmctl --out {0}/own",
    "pretrain bert --dry-run init={0} data.path={1} format.max_length=12",
]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_tokenizer_with_more_tokens_than_rows_is_refused(
    tmp_path: Path, published: Callable[..., Any], with_tokenizer: Callable[..., Path], command: str
) -> None:
    folder = with_tokenizer(published("BertForMaskedLM")[1])
    added = {f"<e{n}>": VOCAB + n for n in range(2)}
    (folder / "added_tokens.json").write_text(json.dumps(added), encoding="utf-8")
    text, table = tmp_path / "text.txt", tmp_path / "table.tsv"
    text.write_text("the cat sat on the mat <e0> .\n" * 30, encoding="utf-8")
    table.write_text("text\tlabel\n" + "the cat\ta\nthe dog\tb\n" * 20, encoding="utf-8")
    words = [word.format(folder, text, table) for word in command.split()]
    result = CliRunner().invoke(make_app(), words)
    assert result.exit_code == 3, result.output
    said = " ".join(result.output.split())
    assert f"its tokenizer has {VOCAB + 2} tokens, and the table of its model {VOCAB} rows" in said
    with pytest.raises(DataError, match=f"{VOCAB + 2} tokens"):
        load(folder)


def test_rows_without_a_token_are_said(
    published: Callable[..., Any],
    with_tokenizer: Callable[..., Path],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """They may be padding, or the tokenizer may be that of another model."""
    folder = with_tokenizer(published("BertForMaskedLM", vocab_size=VOCAB + MORE)[1])
    assert open_source(folder).tokenizer.vocab.size == VOCAB
    said = " ".join(capsys.readouterr().err.split())
    assert f"has {VOCAB + MORE} rows, and {folder}/vocab.txt {VOCAB} tokens" in said
