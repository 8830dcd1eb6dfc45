"""Names that a file or a config gives, and links in folders of strangers: none leads out of its
folder.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from typer.testing import CliRunner

from plmctl.cli.app import make_app
from plmctl.config.compose import compose
from plmctl.core.errors import ConfigError, DataError
from plmctl.data.shards import Shards
from plmctl.interop import weights
from plmctl.storage.paths import explain_outside, inside, refuse_links
from plmctl.tasks.predictions import write_predictions, write_submission
from plmctl.text.tokenizer import Tokenizer
from plmctl.training.checkpoint import Checkpoints, Snapshot, damage

LEADS_OUT = "leads out of its folder: a name below it has no '..' and begins with no '/'"


@pytest.mark.parametrize("name", ["../x", "a/../../x", "/etc/passwd", "", ".", "..", "a\0b"])
def test_names_that_lead_out(tmp_path: Path, name: str) -> None:
    assert explain_outside(tmp_path, name) == LEADS_OUT
    with pytest.raises(ConfigError, match=r"^key='.*': leads out of its folder"):
        inside(tmp_path, name, lambda why: ConfigError("key", name, why))


@pytest.mark.parametrize("name", ["x", "a/x", "..x", "a..b/x..", "中文"])
def test_names_that_stay(tmp_path: Path, name: str) -> None:
    assert inside(tmp_path, name, DataError) == tmp_path / name


def test_links(tmp_path: Path) -> None:
    home, other = tmp_path / "home", tmp_path / "other"
    home.mkdir()
    other.mkdir()
    (other / "file").write_text("x")
    (home / "own").symlink_to("file")
    refuse_links(home)
    (home / "far").symlink_to(other / "file")
    (home / "folder").symlink_to(other)
    reason = f"is a link that leads out of its folder, to {other / 'file'}"
    assert explain_outside(home, "far") == explain_outside(home, "folder/file") == reason
    assert explain_outside(home, "far", links=False) == ""
    with pytest.raises(DataError) as refused:
        refuse_links(home)
    assert (
        str(refused.value)
        == f"{home}: far {reason}\n  fix: # copy what it leads to into the folder"
    )


def test_the_cache_of_the_hub_stays_readable(tmp_path: Path) -> None:
    """models--<name>/snapshots/<commit>/<file> -> ../../blobs/<hash>, and a folder that leads to
    such a snapshot.
    """
    model = tmp_path / "models--a--b"
    (model / "blobs").mkdir(parents=True)
    snapshot = model / "snapshots" / "0123"
    snapshot.mkdir(parents=True)
    for name in ("one.safetensors", "two.safetensors"):
        save_file({name[:3]: torch.ones(2)}, model / "blobs" / name[:3])
        (snapshot / name).symlink_to(f"../../blobs/{name[:3]}")
    index = {"weight_map": {"one": "one.safetensors", "two": "two.safetensors"}}
    (model / "blobs" / "index").write_text(json.dumps(index))
    (snapshot / "model.safetensors.index.json").symlink_to("../../blobs/index")
    (tmp_path / "mine").symlink_to(snapshot)
    for folder in (snapshot, tmp_path / "mine"):
        refuse_links(folder)
        assert set(weights.read(folder)) == {"one", "two"}
    secret = tmp_path / "secret"
    secret.write_text("x")
    (model / "blobs" / "bad").symlink_to(secret)
    (snapshot / "bad").symlink_to("../../blobs/bad")
    assert (
        explain_outside(snapshot, "bad") == f"is a link that leads out of its folder, to {secret}"
    )


@pytest.mark.parametrize("name", ["../other.safetensors", "/etc/passwd"])
def test_an_index_of_weights(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    save_file({"x": torch.ones(2)}, tmp_path / "other.safetensors")
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"x": name}}))
    with pytest.raises(DataError) as refused:
        weights.read(folder)
    assert (
        str(refused.value)
        == f"{index}: names the weights {name!r}: {LEADS_OUT}\n  fix: # download it again"
    )


def test_links_in_a_published_folder(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "elsewhere").write_text("{}")
    (tmp_path / "model" / "config.json").symlink_to("../elsewhere")
    done = CliRunner().invoke(
        make_app(), ["convert", str(tmp_path / "model"), str(tmp_path / "out"), "--to", "plmctl"]
    )
    assert done.exit_code == 3, done.output
    assert (
        f"config.json is a link that leads out of its folder, to {tmp_path / 'elsewhere'}"
        in done.stderr.replace("\n", " ")
    )
    assert not (tmp_path / "out").exists()


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    trainer = {"progress": {}}
    return Checkpoints(tmp_path / "run").save(
        Snapshot({"x": torch.ones(2)}, {}, {}, {}, trainer), step=1
    )


def test_a_manifest_of_a_checkpoint(checkpoint: Path) -> None:
    assert damage(checkpoint) == ""
    file = checkpoint / "manifest.json"
    entries = json.loads(file.read_text())["files"]
    file.write_text(
        json.dumps({"files": {"../step-1/model.safetensors": entries["model.safetensors"]}})
    )
    assert damage(checkpoint) == f"../step-1/model.safetensors {LEADS_OUT}"


def test_a_link_in_a_checkpoint(checkpoint: Path, tmp_path: Path) -> None:
    shutil.move(checkpoint / "model.safetensors", tmp_path / "weights")
    (checkpoint / "model.safetensors").symlink_to(tmp_path / "weights")
    assert (
        damage(checkpoint)
        == f"model.safetensors is a link that leads out of its folder, to {tmp_path / 'weights'}"
    )


def test_the_arrays_of_a_token_directory_and_a_linked_tokenizer(
    tokens_of: Callable[..., Path], tmp_path: Path
) -> None:
    folder = tmp_path / "tokens"
    shutil.copytree(tokens_of("wordpiece"), folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["tracks"] = ["../../x"]
    for split in manifest["splits"].values():
        split["arrays"]["../../x"] = {"dtype": "uint8", "length": split["tokens"], "sha256": "0"}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(
        DataError, match=r"a damaged manifest, its array '../../x' leads out of its folder"
    ):
        Shards.open(folder)
    shutil.move(folder / "tokenizer" / "tokenizer.json", tmp_path / "far.json")
    (folder / "tokenizer" / "tokenizer.json").symlink_to(tmp_path / "far.json")
    with pytest.raises(DataError, match=r"tokenizer.json is a link that leads out of its folder"):
        Tokenizer.load(folder)


def test_the_name_of_a_submission(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        write_submission(tmp_path / "out", "../RTE.tsv", "index\tprediction\n")
    assert str(refused.value) == f"task.submission='../RTE.tsv': {LEADS_OUT}"
    with pytest.raises(ConfigError, match=r"^split='../dev': leads out"):
        write_predictions(tmp_path / "out", "../dev", [])
    assert not list(tmp_path.glob("*.*"))


def test_the_name_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError) as refused:
        compose("pretrain", None, ["run.name=../../x", "train.steps=1"])
    assert (
        str(refused.value)
        == f"run.name='../../x': runs/../../x {LEADS_OUT}\n  fix: run.name=NAME  # or"
        " run.dir=<any folder>"
    )
    done = CliRunner().invoke(
        make_app(), ["pretrain", "size=tiny", "run.name=/tmp/x", "train.steps=1"]
    )
    assert done.exit_code == 2
    assert (
        compose("pretrain", None, ["run.name=mine/first", "train.steps=1"]).run.name == "mine/first"
    )
    assert compose("pretrain", None, ["train.steps=1"]).run.name is None
