"""A biLM in use, through the command line: frozen, mixed, at a task's input and output; new
words are spelled.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import plmctl
from plmctl.analysis.layers import LayerMoves
from plmctl.cli.app import make_app
from plmctl.core.batch import Batch, Seq
from plmctl.tasks import batches
from plmctl.text.characters import Spelling
from plmctl.text.tokenizer import Tokenizer
from plmctl.training.checkpoint import read
from tests.marks import mark_slow

QUICK = ["train.precision=fp32", "train.threads=1"]
TUNED = [
    *QUICK,
    "train.epochs=null",
    "train.steps=3",
    "train.batch_size=8",
    "task.max_length=16",
    "optim.lr=1e-2",
]
FROZEN = [
    "train.frozen=[backbone]",
    "head_encoder=bilstm",
    "heads.encoder.hidden_width=8",
    "heads.encoder.num_layers=1",
]
MIX = ["features=mix", "heads.features.layers=[0,1,2]"]


def run(*words: str, code: int = 0) -> str:
    result = CliRunner().invoke(make_app(), list(words))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result.stdout if "--json" in words else result.output


@pytest.fixture(scope="module")
def elmo(small_text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("elmo") / "run"
    run(
        "pretrain",
        "elmo",
        f"data.path={small_text}",
        "size.width=16",
        "size.inner_width=24",
        "tokenizer.vocab_size=300",
        "model.words.filters=[[1,4],[3,8]]",
        "format.max_length=8",
        "train.batch_size=4",
        "train.steps=2",
        "eval.rows=8",
        f"run.dir={folder}",
        *QUICK,
    )
    return folder


@pytest.fixture(scope="module")
def tagged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tagged")
    for split in ("train", "dev"):
        lines = []
        for n in range(24):  # names that no vocabulary of docstrings has
            lines += [
                "the O",
                f"{'Zwqan' if n % 2 else 'zwqog'} {'B-PER' if n % 2 else 'O'}",
                f"{'sang' * (n % 3 + 1)} O",
                "",
            ]
        (folder / f"{split}.txt").write_text("\n".join(lines))
    return folder


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("classes")
    for split in ("train", "dev"):
        lines = [
            f"a {'zfine' if n % 2 else 'zdull'} film{' indeed' * (n % 3)}\t{n % 2}"
            for n in range(24)
        ]
        (folder / f"{split}.tsv").write_text("\n".join(["text\tlabel", *lines]))
    return folder


VARIANTS = {
    "input": [*MIX],
    "input, normed": [*MIX, "heads.features.norm=true"],
    "output": ["output_features=mix", "heads.output.layers=[0,1,2]"],
    "both": [*MIX, "output_features=mix", "heads.output.norm=true"],
    "held": [
        *MIX,
        "heads.features.penalty=1",
        "heads.features.dropout=0.5",
        "output_features=mix",
        "heads.output.penalty=2",
    ],
    "one layer": ["features=layer", "heads.features.layer=1"],
    "top": [],
    "between": [  # TagLM
        *("features=layer", "heads.features.layer=0", "output_features=between", "task.crf=free"),
        "heads.output.hidden_width=6",
    ],
}


@pytest.mark.slow  # one refusal of this kind is in test_finetune_features.py
def test_nothing_stands_between_without_a_first_layer(elmo: Path, tagged: Path) -> None:
    words = [f"task.path={tagged}", f"checkpoint={elmo}", *VARIANTS["between"], *TUNED]
    said = run("finetune", "task=tagging", *words, "--dry-run", code=2)
    assert "heads.output: it stands behind heads.encoder, which the model lacks" in said
    assert "fix: head_encoder=bilstm heads.encoder.num_layers=1" in said


# "both" has the norm, the input and the top; one layer: tests/runs/test_finetune_features.py
SLOW = {"input", "input, normed", "top", "one layer"}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("variant", mark_slow(VARIANTS, SLOW))
def test_placements_on_tagging(variant: str, elmo: Path, tagged: Path, tmp_path: Path) -> None:
    words = [
        f"task.path={tagged}",
        f"checkpoint={elmo}",
        f"run.dir={tmp_path / 'run'}",
        *FROZEN,
        *VARIANTS[variant],
        *TUNED,
    ]
    run("finetune", "task=tagging", *words)
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert (
        json.loads(run("eval", f"checkpoint={tmp_path / 'run'}", "--json"))["metrics"]
        == result["metrics"]
    )
    saved, before = read(Path(result["checkpoint"])).model, plmctl.load(elmo).model.state_dict()
    frozen = [name for name in saved if name.startswith("backbone.")]
    assert len(frozen) > 20
    assert all(torch.equal(saved[name], before[name]) for name in frozen)
    for name in ("heads.features.scores", "heads.output.mix.scores"):
        assert name not in saved or saved[name].any()  # zeros at first
    penalized = [
        "loss/penalty" in line
        for line in map(json.loads, (tmp_path / "run/metrics.jsonl").read_text().splitlines())
    ]
    assert any(penalized) == (variant == "held")
    width = {"output": 32, "both": 32, "held": 32, "between": 12}.get(variant, 16)
    assert saved["heads.tag.linear.weight"].shape[1] == width


@pytest.mark.slow  # test_placements_on_tagging stays
def test_classification_and_the_words_of_new_text(elmo: Path, table: Path, tmp_path: Path) -> None:
    """Only spelling tells the classes apart: both words are unknown to the vocabulary."""
    tokenizer = plmctl.load(elmo).tokenizer
    assert tokenizer.encode("zfine zdull") == [tokenizer.vocab.unk] * 2
    words = [
        *FROZEN,
        *MIX,
        *TUNED,
        "train.steps=160",
        "optim.lr=5e-2",
        "schedule=constant",
        f"checkpoint={elmo}",
    ]
    run(
        "finetune",
        "task=classification",
        f"task.path={table}",
        f"run.dir={tmp_path / 'run'}",
        *words,
    )
    assert (
        json.loads((tmp_path / "run" / "result.json").read_text())["metrics"]["dev"]["accuracy"]
        == 1.0
    )


def test_spelling() -> None:
    words = Tokenizer.train(["the cat sat"], kind="word", vocab_size=20)
    spelling, vocab = Spelling(words), words.vocab
    ids = spelling.encode("the dog sat , the dog ran")
    known = words.encode("the dog sat , the dog ran")
    assert [a if a < vocab.size else vocab.unk for a in ids] == known
    assert ids[1] == ids[5] != ids[6]  # a spelling has one number
    from plmctl.tasks.layouts import encode

    laid = [
        encode.lay_out(each, None, vocab, max_length=12, pooling="first") for each in (ids, ids[:2])
    ]
    rows = spelling.rows(encode.pad(laid, vocab, example=range(2)))
    assert rows.seqs["text"].ids[0, 1:8].tolist() == known
    batch = batches.collate(rows, np.array([1]))
    characters = batch.seqs["characters"].ids
    assert characters.shape == (1, 4, 50)
    assert characters[0, 2, :5].tolist() == [259, *(byte + 1 for byte in b"dog"), 260]
    assert torch.equal(
        characters[0, [0, 1, 3]],
        torch.from_numpy(vocab.characters()).long()[batch.text.ids[0, [0, 1, 3]]],
    )
    assert batch.counts["tokens"] == 4


def test_embed_spells_new_words(elmo: Path, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("the zfine value\nthe zdull value\n")
    run("embed", f"checkpoint={elmo}", f"input={tmp_path / 'in.txt'}", f"out={tmp_path / 'x.npz'}")
    found = np.load(tmp_path / "x.npz")
    assert found["ids_0"].tolist() == found["ids_1"].tolist()
    assert found["hidden_0"].shape == (3, 5, 16)
    same = np.isclose(found["hidden_0"], found["hidden_1"], atol=1e-6).all(-1)
    assert same[0].tolist() == [True, True, False, True, True]  # words
    assert not same[1:].any(-1).all()


def test_layers_can_be_measured(elmo: Path) -> None:
    loaded = plmctl.load(elmo)
    measured = LayerMoves.of(loaded)
    found, tokens = measured.moves, measured.tokens
    assert len(found) == 2
    assert tokens > 80
    assert all(move.distance > 0 for move in found)


def test_a_loaded_model_has_its_characters(elmo: Path) -> None:
    loaded = plmctl.load(elmo)
    ids = torch.tensor([loaded.tokenizer.encode("the value of the")])
    batch = Batch(torch.arange(1), {"text": Seq(ids, torch.tensor([4]), full=True)})
    hidden = loaded.model(batch, record=frozenset({"hidden"}))
    words = hidden.recorded["hidden"][0][0]
    assert torch.equal(words[0], words[3])
    assert not torch.allclose(words[0], words[1])
