"""Encoder-decoders through the command line: training, exact resume, figures of validation,
lengths that do not fit.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

from plmctl.cli.app import make_app
from tests.marks import mark_slow

TINY = [
    "size=tiny",
    "size.width=32",
    "size.inner_width=64",
    "train.batch_size=8",
    "eval.rows=16",
    "train.precision=fp32",
]
ROWS = ["format.max_length=48"]


def plmctl(*words: str, code: int = 0) -> str:
    result = CliRunner().invoke(make_app(), ["pretrain", *words])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result.output


def last_validation(run: Path) -> dict[str, float]:
    lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return next(
        record
        for record in reversed([json.loads(line) for line in lines])
        if "valid/loss" in record
    )


@pytest.fixture(scope="module")
def data(tokens_of: Callable[..., Path]) -> dict[str, str]:
    return {
        "transformer": f"data.path={tokens_of('bpe', pairs=True)}",
        "bart": f"data.path={tokens_of('byte_bpe')}",
        "mass": f"data.path={tokens_of('bpe')}",
        "t5": f"data.path={tokens_of('unigram', 'tokenizer.sentinels=100')}",
    }


# one of parallel text, one of text that is made noisy
@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "recipe", mark_slow(("transformer", "bart", "mass", "t5"), slow=("mass", "t5"))
)
def test_a_run_that_was_interrupted_ends_as_if_it_had_not_been(
    recipe: str, data: dict[str, str], tmp_path: Path
) -> None:
    whole, part = tmp_path / "whole", tmp_path / "part"
    words = [
        recipe,
        *TINY,
        *ROWS,
        data[recipe],
        "train.steps=4",
        "train.save_every=2",
        "train.keep_last=9",
    ]
    plmctl(*words, f"run.dir={whole}")
    shutil.copytree(whole, part)
    shutil.rmtree(part / "checkpoints/step-4")
    plmctl("--resume", f"run.dir={part}")
    one, other = (load_file(run / "checkpoints/step-4/model.safetensors") for run in (whole, part))
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert "backbone.decoder.embedding.token.weight" not in one  # tied: stored once


def test_what_validation_says(data: dict[str, str], tmp_path: Path) -> None:
    """The smoothed loss and the plain one apart; bits per byte of the plain one, and none of one
    side of parallel text.
    """
    plmctl(
        "transformer", *TINY, data["transformer"], "train.steps=2", f"run.dir={tmp_path / 'pairs'}"
    )
    found = last_validation(tmp_path / "pairs")
    assert found["valid/loss/seq2seq"] > found["valid/nll/seq2seq"]
    assert not [name for name in found if "bits_per_byte" in name]
    words = [
        "bart",
        *TINY,
        *ROWS,
        data["bart"],
        "train.steps=2",
        "optim.lr=0",
        "optim.weight_decay=0",
    ]
    for name, more in {"plain": [], "smoothed": ["objective.seq2seq.smoothing=0.1"]}.items():
        plmctl(*words, *more, f"run.dir={tmp_path / name}")
    plain, smoothed = last_validation(tmp_path / "plain"), last_validation(tmp_path / "smoothed")
    assert "valid/nll/seq2seq" not in plain
    assert smoothed["valid/nll/seq2seq"] == pytest.approx(plain["valid/loss/seq2seq"], rel=1e-6)
    assert smoothed["valid/bits_per_byte/seq2seq"] == pytest.approx(
        plain["valid/bits_per_byte/seq2seq"], rel=1e-6
    )
    # a token is more than a byte
    assert plain["valid/bits_per_byte/seq2seq"] < plain["valid/loss/seq2seq"] / math.log(2)


@pytest.mark.slow  # test_what_validation_says stays
def test_what_was_pretrained_on_pairs_is_scored_as_it_stands(
    data: dict[str, str], tmp_path: Path
) -> None:
    plmctl(
        "transformer", *TINY, data["transformer"], "train.steps=1", f"run.dir={tmp_path / 'run'}"
    )
    for name, text in {"test.en": "a red house\nold\n", "test.ne": "esuoh der a\ndlo\n"}.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    words = [
        "task=translation",
        f"task.path={tmp_path}",
        "task.columns.source=en",
        "task.columns.target=ne",
        "split=test",
    ]
    words += [
        "search@task.search=greedy",
        "task.metrics=[bleu,perplexity]",
        "task.max_target=40",
        "--json",
    ]
    done = CliRunner().invoke(make_app(), ["eval", f"checkpoint={tmp_path / 'run'}", *words])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout.strip().splitlines()[-1])
    assert found["rows"] == 2
    words = [
        "task=held_out",
        f"data.path={tmp_path / 'test.en'}",
        f"data.target_path={tmp_path / 'test.ne'}",
        "--json",
    ]
    done = CliRunner().invoke(make_app(), ["eval", f"checkpoint={tmp_path / 'run'}", *words])
    assert done.exit_code == 0, done.output
    (held,) = json.loads(done.stdout.strip().splitlines()[-1])["metrics"].values()
    lines = [
        json.loads(line)
        for line in Path(found["predictions"]).read_text(encoding="utf-8").splitlines()
    ]
    # the same specials
    nll, tokens = (sum(line[name] for line in lines) for name in ("nll", "tokens"))
    assert held["nll/seq2seq"] == pytest.approx(nll / tokens, rel=1e-5)


def test_a_target_longer_than_the_source_has_places(data: dict[str, str], tmp_path: Path) -> None:
    words = [
        "transformer",
        data["transformer"],
        "format.max_length=24",
        "format.target_length=40",
        "train.steps=1",
    ]
    plmctl(*words, *TINY, "position=learned", f"run.dir={tmp_path / 'run'}")
    saved = load_file(tmp_path / "run/checkpoints/step-1/model.safetensors")
    assert len(saved["backbone.decoder.position.table.weight"]) == 40
    output = plmctl(*words[:3], "format.target_length=41", f"init={tmp_path / 'run'}", code=2)
    assert "format.target_length=41: at most 40, the positions" in output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["position=learned", "+position.max_length=32"],
            "format.target_length=64: at most 32, the positions of the model",
        ),
        (
            ["model.start=cls2"],
            "model.start='cls2': an id, or one of cls, sep, bos, eos, pad, mask",
        ),
        (
            ["model.unread=masks"],
            (
                "model.unread='masks': an id, or one of cls, sep, bos, eos, pad, mask (did you mean"
                " 'mask'?)"
            ),
        ),
        (["objective.seq2seq.smoothing=1"], "objective.seq2seq.smoothing=1.0: 0 (none) up to 1"),
        (
            ["format.target_template=[A]"],
            "format.target_template=['A']: roles whose last is a special token: it ends what is",
        ),
        (["data.target_path=null"], "data.target_path=null: this format reads parallel text"),
    ],
)
def test_mistakes_are_named_before_work_starts(
    words: list[str], message: str, tmp_path: Path
) -> None:
    given = ["transformer", "data.path=nowhere.en", "data.target_path=nowhere.de", *words]
    assert message in plmctl(*given, f"run.dir={tmp_path / 'x'}", code=2)
    assert not (tmp_path / "x").exists()


def test_ids_beyond_the_vocabulary_leave_nothing_behind(
    data: dict[str, str], tmp_path: Path
) -> None:
    """Found when the model is built, after the directory was opened: the corrected command finds
    it free.
    """
    words = [
        "transformer",
        *TINY,
        data["transformer"],
        "train.steps=1",
        f"run.dir={tmp_path / 'runs/x'}",
    ]
    for name in ("start", "unread"):
        assert f"model.{name}=5000: 0 up to " in plmctl(*words, f"model.{name}=5000", code=2)
        assert not (tmp_path / "runs").exists()
    output = plmctl(*words, "model.start=3")
    assert "task=lm" not in output
    assert "plmctl generate checkpoint=" in output
    assert "plmctl eval task=held_out checkpoint=" in output


def test_pairs_that_are_too_long(data: dict[str, str], tmp_path: Path) -> None:
    words = [
        "transformer",
        *TINY,
        data["transformer"],
        "train.steps=1",
        f"run.dir={tmp_path / 'x'}",
    ]
    output = plmctl(*words, "format.target_length=3", code=3)
    assert "pairs are longer than format.max_length=64 / format.target_length=3" in output
    fix = next(line for line in output.splitlines() if "fix: " in line)
    assert not (tmp_path / "x").exists()
    plmctl(
        *words,
        *(
            word.strip(",")
            for word in fix.split()
            if word.startswith("format.") and "_length" in word
        ),
    )
    output = plmctl(*words[:-1], "format.target_length=24", f"run.dir={tmp_path / 'y'}")
    assert "pairs are longer than format.max_length=64 / format.target_length=24 (" in output


def test_init_of_another_kind_beside_parts_of_ones_own(
    tokens_of: Callable[..., Path], data: dict[str, str], tmp_path: Path
) -> None:
    plmctl(
        "bert",
        *TINY,
        *ROWS,
        f"data.path={tokens_of('wordpiece')}",
        "train.steps=1",
        f"run.dir={tmp_path / 'bert'}",
    )
    words = [
        "bart_translation",
        f"init={tmp_path / 'bert'}",
        data["transformer"],
        "format.max_length=48",
    ]
    output = plmctl(*words, "format.target_length=48", code=2)
    assert (
        "a model of the kind EncoderDecoder, to which own=[front] adds; this one is Encoder without"
        in output
    )


@pytest.mark.slow  # test_graft.py has the encoder in front
def test_an_encoder_in_front_learns_in_the_two_published_stages(
    data: dict[str, str], translation: tuple[Path, Path], tmp_path: Path
) -> None:
    """First the new encoder, the places and q, k, v of the encoder's first layer, then
    everything.
    """
    pairs = [
        f"data.path={translation[0]}",
        f"data.target_path={translation[1]}",
        f"data.cache_dir={tmp_path / 'cache'}",
    ]
    pairs += ["format.max_length=40", "format.target_length=40"]
    bart, both = tmp_path / "bart", tmp_path / "both"
    plmctl("bart", *TINY, *ROWS, data["bart"], "train.steps=2", f"run.dir={bart}")
    words = [
        "bart_translation",
        f"init={bart}",
        *pairs,
        "train.batch_size=8",
        "eval.rows=16",
        "model.front.stack.layout=af*1",
    ]
    plmctl(*words, "train.steps=10", "train.save_every=8", "train.keep_last=9", f"run.dir={both}")
    before, stage_1, stage_2 = (
        load_file(folder / "model.safetensors")
        for folder in (
            bart / "checkpoints/step-2",
            both / "checkpoints/step-8",
            both / "checkpoints/step-10",
        )
    )
    moved = {name for name, tensor in before.items() if not torch.equal(tensor, stage_1[name])}
    assert moved == {
        "backbone.encoder.position.table.weight",
        "backbone.decoder.position.table.weight",
        "backbone.encoder.stack.blocks.a.0.cell.qkv.weight",
        "backbone.encoder.stack.blocks.a.0.cell.qkv.bias",
    }
    new = {name for name in stage_1 if name not in before}
    assert all(name.startswith("backbone.front.") for name in new)
    assert not [name for name in new if "blocks.a.1" in name]
    assert [name for name in stage_2 if torch.equal(stage_2[name], stage_1[name])] == []
    output = plmctl(*words, "model.encoder.embedding.dropout=0", code=2)
    assert "model.encoder.embedding.dropout='0': init decides this" in output
    assert "model.front" not in output


def test_text_without_labels_is_asked_as_the_head_can_be(
    data: dict[str, str], tmp_path: Path
) -> None:
    plmctl("bart", *TINY, *ROWS, data["bart"], "train.steps=1", f"run.dir={tmp_path}")
    for words in (["task=lm", f"data.path={__file__}"], []):
        done = CliRunner().invoke(make_app(), ["eval", f"checkpoint={tmp_path}", *words])
        assert (done.exit_code, "fix: task=held_out data.path=TEXT" in done.output) == (2, True), (
            done.output
        )
