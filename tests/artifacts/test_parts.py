"""A checkpoint in parts is read and converted as one in whole files."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from plmctl.artifacts.convert import convert
from plmctl.artifacts.loading import load, open_source
from plmctl.interop import weights
from plmctl.storage.parts.blocks import own_blocks
from plmctl.storage.parts.kinds import KINDS, SHARDS, read_kind
from plmctl.storage.parts.writing import Savers, save_blocks
from plmctl.training.checkpoint import damage, seal

RUN = Path(__file__).parents[1] / "fixtures/saved/pretrained"


@pytest.fixture(scope="module")
def parted(tmp_path_factory):
    """The same run, its checkpoint in parts."""
    run = tmp_path_factory.mktemp("run") / "run"
    shutil.copytree(RUN, run)
    step = next((run / "checkpoints").iterdir())
    tensors = {
        f"{kind}/{name}": tensor for kind in KINDS for name, tensor in read_kind(step, kind).items()
    }
    blocks = own_blocks(tensors, main=True, rows={})
    save_blocks(blocks, step / SHARDS, Savers(), lambda files: None)
    for file in [*step.glob("*.safetensors"), step / "manifest.json"]:
        file.unlink()
    seal(step)
    assert damage(step) == ""
    return run


def test_its_tensors_are_the_same(parted):
    whole, parts = open_source(RUN), open_source(parted)
    assert whole.tensors.keys() == parts.tensors.keys()
    assert all(torch.equal(parts.tensors[name], t) for name, t in whole.tensors.items())
    assert whole.config == parts.config
    loaded = load(parted).model.state_dict()
    assert all(torch.equal(loaded[name], t) for name, t in load(RUN).model.state_dict().items())


def test_hugging_faces_folder_is_the_same(parted, tmp_path):
    for name, run in (("whole", RUN), ("parts", parted)):
        convert(run, tmp_path / name, to="hf")
    for file in (tmp_path / "whole").iterdir():
        assert file.read_bytes() == (tmp_path / "parts" / file.name).read_bytes()


def test_large_weights_become_several_files(parted, tmp_path, monkeypatch):
    """`transformers` and this package read them; no file is larger than it may be."""
    transformers = pytest.importorskip("transformers")
    convert(parted, tmp_path / "one", to="hf")
    monkeypatch.setattr(weights, "LARGEST", 8_000)
    convert(parted, tmp_path / "several", to="hf")
    index = json.loads((tmp_path / "several/model.safetensors.index.json").read_text())
    files = sorted((tmp_path / "several").glob("model-*.safetensors"))
    assert sorted(set(index["weight_map"].values())) == [file.name for file in files]
    assert len(files) > 2
    assert not (tmp_path / "several/model.safetensors").exists()
    of_file = {file.name: 0 for file in files}
    count = dict.fromkeys(of_file, 0)
    for name, tensor in weights.read(tmp_path / "one").items():
        of_file[index["weight_map"][name]] += tensor.nbytes
        count[index["weight_map"][name]] += 1
    assert sum(of_file.values()) == index["metadata"]["total_size"]
    assert all(size <= 8_000 or count[name] == 1 for name, size in of_file.items())
    models = [
        transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / name).state_dict()
        for name in ("one", "several")
    ]
    assert models[0].keys() == models[1].keys()
    assert all(torch.equal(models[1][name], tensor) for name, tensor in models[0].items())
    one, several = (open_source(tmp_path / name).tensors for name in ("one", "several"))
    assert all(torch.equal(several[name], tensor) for name, tensor in one.items())
