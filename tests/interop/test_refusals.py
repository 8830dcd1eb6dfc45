"""Folders that cannot be opened: each is named, with a fix, and nothing of it is run."""

from __future__ import annotations

import json
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from plmctl.artifacts.loading import load, open_source
from plmctl.cli.app import make_app
from plmctl.core.errors import DataError, PlmctlError
from tests.interop.publishing import publish

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return publish(tmp_path_factory.mktemp("bert") / "whole", "BertModel")[1]


def change(folder: Path, **settings: Any) -> None:
    """Settings of config.json; None: without it."""
    file = folder / "config.json"
    stated = json.loads(file.read_text()) | settings
    file.write_text(json.dumps({k: v for k, v in stated.items() if v is not None}))


def divide(folder: Path, *, names: tuple[str, str], moved: int = 0) -> None:
    """The weights in two shards with their index; `moved` tensors lie in the other shard."""
    tensors = load_file(folder / WEIGHTS)
    (folder / WEIGHTS).unlink()
    half = len(tensors) // 2
    places = {name: names[number >= half] for number, name in enumerate(tensors)}
    (folder / INDEX).write_text(json.dumps({"weight_map": places}))
    where = {name: names[number >= half - moved] for number, name in enumerate(tensors)}
    for shard in names:
        own = {name: tensor for name, tensor in tensors.items() if where[name] == shard}
        save_file(own, folder / shard)


def add_extra(folder: Path) -> None:
    shards = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
    divide(folder, names=shards)
    tensors = load_file(folder / shards[1])
    save_file({**tensors, "encoder.layer.9.x": torch.zeros(1)}, folder / shards[1])


def quantise(end: str, dtype: torch.dtype) -> Callable[[Path], None]:
    def made(folder: Path) -> None:
        tensors = load_file(folder / WEIGHTS)
        name = "encoder.layer.0.output.dense"
        tensors[f"{name}{end}"] = tensors.pop(f"{name}.weight").to(dtype)
        save_file(tensors, folder / WEIGHTS)

    return made


def replace_weights(content: bytes, *others: str) -> Callable[[Path], None]:
    def made(folder: Path) -> None:
        (folder / WEIGHTS).unlink()
        for name in others or (WEIGHTS,):
            (folder / name).write_bytes(content)

    return made


TWO = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
BAD: dict[str, tuple[Callable[[Path], None], str]] = {
    "remote code": (
        lambda folder: change(folder, auto_map={"AutoModel": "modeling_x.XModel"}),
        r"auto_map names code of its own \(modeling_x.XModel\), which plmctl never runs",
    ),
    "remote code of an unknown family": (
        lambda folder: change(
            folder, architectures=["XModel"], model_type="x", auto_map={"AutoConfig": "a--b.X"}
        ),
        r"code of its own \(a--b.X\).*\n  fix: .*plmctl models ls",
    ),
    "GPTQ": (
        lambda folder: change(folder, quantization_config={"quant_method": "gptq", "bits": 4}),
        r"its weights are quantised \(gptq, 4 bits\), and plmctl reads none",
    ),
    "bitsandbytes": (
        lambda folder: change(folder, quantization_config={"load_in_4bit": True}),
        r"quantised \(bitsandbytes\)",
    ),
    "AWQ without a word": (quantise(".qweight", torch.int32), r"dense.qweight.*GPTQ or AWQ"),
    "8 bits without a word": (quantise(".weight", torch.int8), r"dense.weight.*\(int8\)"),
    "a missing shard": (
        lambda folder: (divide(folder, names=TWO), (folder / TWO[1]).unlink()),
        r"names model-00002-of-00002.safetensors, which does not exist",
    ),
    "shards of two models": (
        lambda folder: divide(folder, names=TWO, moved=2),
        r"model-00002-of-00002.safetensors: it has .*names model-00001.*: the shards are of two",
    ),
    "shards of two numbers": (
        lambda folder: divide(folder, names=(TWO[0], "model-00002-of-00003.safetensors")),
        r"names shards of 00002 and of 00003 in all: those of two models",
    ),
    "a tensor more": (add_extra, r"encoder.layer.9.x, and the index does not know it"),
    "a shard without its index": (
        lambda folder: (divide(folder, names=TWO), (folder / INDEX).unlink()),
        r"no weights here: .*not read: model-00001.* \(a shard, whose index is missing\)",
    ),
    "no weights": (replace_weights(b"", "tf_model.h5"), r"not read: tf_model.h5 \(TensorFlow\)"),
    "a pointer": (
        replace_weights(b"version https://git-lfs.github.com/spec/v1\noid sha256:0"),
        r"is a pointer of Git LFS, and no weights\n  fix: git -C .* lfs pull",
    ),
    "truncated": (
        lambda folder: os.truncate(folder / WEIGHTS, 4000),
        r"model.safetensors: truncated or not a weight file",
    ),
    "no name of a family": (
        lambda folder: change(folder, architectures=None, model_type=None, n_langs=3),
        r'no model_type; the nearest family is bert;.*\n  fix: # add "model_type": "bert"',
    ),
    "no model_type": (
        lambda folder: change(folder, architectures=None, model_type=None, hidden_size=None),
        r"no model_type; the nearest family is .*; its setting hidden_size is missing here",
    ),
    "an unknown family": (
        lambda folder: change(folder, architectures=None, model_type="ctrl", n_langs=3),
        r"'ctrl'.*the nearest family is bert; the first setting that differs is n_langs=3",
    ),
    "an activation": (
        lambda folder: change(folder, architectures=None, model_type="x", hidden_act="mish"),
        r"the nearest family is .*; the first setting that differs is hidden_act='mish'",
    ),
    "an activation of a known family": (
        lambda folder: change(folder, hidden_act="mish"),
        r"model/config.json: hidden_act='mish': one of .*\n  fix: plmctl models ls",
    ),
    "weights alone": (
        lambda folder: (folder / "config.json").unlink(),
        r"model.safetensors without its config.json\n  fix: # copy the config.json of this model",
    ),
}


# wrong settings
CONFIGS = ("an unknown family", "an activation", "an activation of a known family")


@pytest.mark.parametrize("name", BAD)
def test_each_is_named(name: str, whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(whole, folder)
    spoil, words = BAD[name]
    spoil(folder)
    with pytest.raises(PlmctlError, match=words) as caught:
        open_source(folder)
    assert "fix:" in str(caught.value) or name in CONFIGS[:2]  # whose fix is what is allowed
    line = ["convert", str(folder), "--to", "plmctl", "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(make_app(), line)
    assert done.exit_code == caught.value.exit_code == (2 if name in CONFIGS else 3)
    assert not (tmp_path / "out").exists()


def test_shards_of_one_model_are_read(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(whole, folder)
    divide(folder, names=TWO)
    same = open_source(whole).tensors
    assert all(same[name].equal(t) for name, t in open_source(folder).tensors.items())


@pytest.mark.parametrize(("rows", "fits"), [(40, True), (900, True), (1300, False)])
def test_a_tokenizer_of_another_size_is_refused(
    rows: int,
    fits: bool,
    with_tokenizer: Callable[[Path], Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    _, folder = publish(tmp_path / "model", "BertModel", vocab_size=rows)
    with_tokenizer(folder)  # 40 tokens
    if fits:
        assert load(folder).vocab.size == 40
        said = capsys.readouterr().err
        line = (
            f"model.safetensors has {rows:,} rows, and {folder / 'vocab.txt'} 40 tokens: the last"
        )
        assert (line in said) == (rows > 40)
        return
    with pytest.raises(DataError, match=r"tokenizer has 40 tokens, and the table .* 1,300 rows"):
        load(folder)


class Touch:
    """A pickle that makes a file as soon as it is read by `pickle.load`."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.file),)


@pytest.mark.parametrize("save", [torch.save, lambda it, file: file.write_bytes(pickle.dumps(it))])
def test_no_pickle_runs_code(save: Callable[..., Any], whole: Path, tmp_path: Path) -> None:
    folder, trace = tmp_path / "model", tmp_path / "trace"
    shutil.copytree(whole, folder)
    (folder / WEIGHTS).unlink()
    file = folder / "pytorch_model.bin"
    save({"a": Touch(trace)}, file)
    with pytest.raises(DataError, match=r"pytorch_model\.bin"):
        load(folder)
    assert not trace.exists()
    pickle.loads(pickle.dumps(Touch(trace)))  # without care, the same object leaves its trace
    assert trace.exists()


def test_settings_that_are_not_read_are_named(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those that say something and that no family states; a model is read without them."""
    folder = tmp_path / "more"
    shutil.copytree(whole, folder)
    change(folder, rotary_share=0.5, use_alibi=False, hidden_dropout_prob=0.3, top_k=7)
    change(folder, model_type="newbert")
    open_source(folder)
    said = capsys.readouterr().err
    assert "model_type is newbert, and BertModel is a class of bert: it is read as bert" in said
    assert "bert has no such settings; they are not read: rotary_share=0.5" in said
    assert "use_alibi" not in said
    assert "top_k" not in said


def test_a_setting_that_the_published_code_ignores_has_its_value_as_fix(tmp_path: Path) -> None:
    _, folder = publish(tmp_path, "MPNetModel", pad_token_id=1)
    change(folder, relative_attention_num_buckets=16)
    words = r'config.json: relative_attention_num_buckets=16: 32.*\n.*"relative_.*_buckets": 32 in'
    with pytest.raises(PlmctlError, match=words):
        open_source(folder)
    change(folder, relative_attention_num_buckets=32)  # the fix
    open_source(folder)


def test_a_table_that_is_no_sinusoid_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is not read, and a model may have another one."""
    model, folder = publish(tmp_path, "MarianMTModel")
    file, name = folder / WEIGHTS, "model.decoder.embed_positions.weight"
    table = model.get_decoder().embed_positions.weight.detach()
    for more in (0, torch.eye(len(table), 16)):  # files of earlier versions have the table
        assert "sinusoid" not in capsys.readouterr().err
        save_file({**load_file(file), name: table + more}, file, {"format": "pt"})
        open_source(folder)
    said = capsys.readouterr().err
    assert f"{name} is no table of sinusoids: it differs from them by up to 1; it is not" in said
