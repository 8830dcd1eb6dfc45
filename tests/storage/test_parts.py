"""Checkpoints in parts: what one process wrote is read bit for bit, and nothing else is."""

import os
import pickle
from collections import OrderedDict
from pathlib import Path

import pytest
import torch
import torch.distributed.checkpoint as dcp

from plmctl.core.errors import DataError, PlmctlError
from plmctl.storage.parts.blocks import TensorBlock, own_blocks
from plmctl.storage.parts.metadata import read_metadata
from plmctl.storage.parts.reading import ShardedTensors
from plmctl.storage.parts.writing import Savers, save_blocks

TENSORS = {
    "model/table": torch.randn(5, 7),
    "model/transposed": torch.randn(4, 3).T,
    "model/row": torch.randn(6, 8)[2:3],  # a part of a larger memory
    "model/half": torch.randn(4).bfloat16(),
    "model/number": torch.tensor(3.5),
    "model/nothing": torch.zeros(0, 4),
    "optimizer/step/table": torch.tensor(7),
    "random/0/cpu": torch.arange(9, dtype=torch.uint8),
}


def save(tensors, folder: Path) -> dict:
    found: dict = {}
    save_blocks(own_blocks(tensors, main=True, rows={}), folder, Savers(), found.update)
    return found


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("parts") / "shards"
    assert set(save(TENSORS, folder)) == {"__0_0.distcp", ".metadata"}
    return folder


def test_every_tensor_is_read_bit_for_bit(saved):
    found = ShardedTensors(saved)
    assert set(found) == set(TENSORS)
    for name, tensor in TENSORS.items():
        assert found[name].dtype == tensor.dtype
        assert torch.equal(found[name], tensor)
    assert found.nbytes == sum(tensor.nbytes for tensor in TENSORS.values())
    model = found.below("model/")
    assert set(model) == {name[6:] for name in TENSORS if name.startswith("model/")}
    for name, tensor in model.spread().items():
        assert torch.equal(tensor, TENSORS[f"model/{name}"])
    with pytest.raises(KeyError):
        model["missing"]


def test_the_list_of_an_early_python_3_11_is_read(tmp_path, monkeypatch):
    """It writes a member of an enumeration by its name."""
    monkeypatch.setattr(
        "torch.distributed.checkpoint.metadata._MEM_FORMAT_ENCODING.__reduce_ex__",
        lambda member, protocol: (getattr, (type(member), member.name)),
    )
    save(TENSORS, tmp_path / "shards")
    assert b"getattr" in (tmp_path / "shards" / ".metadata").read_bytes()
    assert set(ShardedTensors(tmp_path / "shards")) == set(TENSORS)


def test_torch_itself_reads_it(saved):
    """An independent reader: the folder is one of torch.distributed.checkpoint."""
    found = {name: torch.zeros_like(tensor) for name, tensor in TENSORS.items()}
    dcp.load(found, checkpoint_id=saved, no_dist=True)
    assert all(torch.equal(found[name], tensor) for name, tensor in TENSORS.items())


def test_parts_that_are_not_all_of_a_tensor_are_refused(tmp_path):
    """torch would leave the rest as it was in memory."""
    blocks = {"model/table": TensorBlock(torch.ones(2, 2), (3, 2), (0, 0))}
    with pytest.raises(PlmctlError, match="the parts of model/table are not all of it"):
        save_blocks(blocks, tmp_path, Savers(), lambda files: None)


class Evil:
    def __reduce__(self):
        return os.system, ("touch evil",)


class Getter:
    def __reduce__(self):
        return getattr, ("", "upper")


def metadata_of(folder: Path):
    return pickle.loads((folder / ".metadata").read_bytes())


def with_bytes(metadata):
    metadata.state_dict_metadata["model/half"] = dcp.metadata.BytesStorageMetadata()
    return metadata


def with_path(metadata):
    for info in metadata.storage_data.values():
        info.relative_path = "../outside.distcp"
    return metadata


def with_extension(metadata):
    for info in metadata.storage_data.values():
        info.transform_descriptors = ["stream.zstd"]
    return metadata


def with_planner(metadata):
    metadata.planner_data = Evil()
    return metadata


def without_a_place(metadata):
    metadata.storage_data.popitem()
    return metadata


def with_a_hole(metadata):
    metadata.state_dict_metadata["model/table"].size = torch.Size([50, 7])
    return metadata


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda found: Evil(), "posix.system, which is not read: it may run any code"),
        (lambda found: [Getter(), found], "builtins.getattr, which is not read"),
        (with_planner, "posix.system, which is not read"),
        (lambda found: OrderedDict(a=1), "collections.OrderedDict, which is not read"),
        (lambda found: {"a": 1}, "holds another object than a Metadata"),
        (with_bytes, "BytesStorageMetadata, which is not read"),
        (with_path, "'../outside.distcp': leads out of its folder"),
        (with_extension, "its files are packed"),
        (without_a_place, "lies in no file"),
        (with_a_hole, "the parts of model/table are not all of it"),
    ],
)
def test_a_list_of_tensors_runs_no_code(tmp_path, monkeypatch, change, why):
    monkeypatch.chdir(tmp_path)
    save(TENSORS, tmp_path / "shards")
    changed = change(metadata_of(tmp_path / "shards"))
    (tmp_path / "shards/.metadata").write_bytes(pickle.dumps(changed))
    with pytest.raises(DataError) as error:
        ShardedTensors(tmp_path / "shards")["model/table"]
    assert why in str(error.value)
    assert not (tmp_path / "evil").exists()


def test_the_control_runs_it(tmp_path, monkeypatch):
    """torch's own reader runs the code of such a file."""
    monkeypatch.chdir(tmp_path)
    save(TENSORS, tmp_path / "shards")
    (tmp_path / "shards/.metadata").write_bytes(pickle.dumps(Evil()))
    with pytest.raises(AttributeError):  # what it gives is no metadata, but it ran
        dcp.FileSystemReader(tmp_path / "shards").read_metadata()
    assert (tmp_path / "evil").exists()


@pytest.mark.parametrize("cut", [0, 1, 40, 300, -1])
def test_a_damaged_list_is_a_data_error(tmp_path, cut):
    save(TENSORS, tmp_path)
    whole = (tmp_path / ".metadata").read_bytes()
    (tmp_path / ".metadata").write_bytes(whole[:cut])
    with pytest.raises(DataError, match="damaged, or no list of tensors"):
        read_metadata(tmp_path)


@pytest.mark.parametrize("harm", ["cut", "remove", "replace"])
def test_a_damaged_part_is_a_data_error(tmp_path, harm):
    save(TENSORS, tmp_path)
    file = tmp_path / "__0_0.distcp"
    if harm == "cut":
        file.write_bytes(file.read_bytes()[:100])
    elif harm == "remove":
        file.unlink()
    else:
        file.write_bytes(bytes(file.stat().st_size))
    with pytest.raises(DataError, match="truncated or damaged"):
        ShardedTensors(tmp_path).spread()


def test_no_room_for_all_at_once_is_said(saved, monkeypatch):
    def full(*given):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("plmctl.storage.parts.reading._allocate", full)
    with pytest.raises(DataError, match=r"No space left on device\n  fix: export TMPDIR="):
        ShardedTensors(saved).spread()
