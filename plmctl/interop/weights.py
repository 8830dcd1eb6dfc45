"""Tensors from the files of a Hugging Face folder, in any of their layouts."""

from __future__ import annotations

import json
import pickle
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TypedDict

import torch
from safetensors.torch import save_file

from plmctl.core.errors import DataError, list_some
from plmctl.core.terminal import remark
from plmctl.interop.names import Tensors, Weights
from plmctl.interop.refusals import refuse_narrow
from plmctl.storage.atomic import write_text
from plmctl.storage.gate import admit
from plmctl.storage.paths import explain_outside
from plmctl.storage.reading import blame_file, read_json, read_tensors, summarize_error

AGAIN = "download it again"
TENSORS_ALONE = "save the tensors alone: model.state_dict() with torch.save, or as safetensors"
TABLES = ("state_dict", "model_state_dict", "model", "module")  # in checkpoints of trainers
FILES = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)


# weights of other libraries, and shards without their index
OTHERS = {
    "tf_model.h5": "TensorFlow",
    "flax_model.msgpack": "Flax",
    "*.gguf": "llama.cpp",
    "*.onnx": "ONNX",
    "*-of-*.safetensors": "a shard, whose index is missing",
    "*-of-*.bin": "a shard, whose index is missing",
}
WHOLE = "download all files of one model again"
_OF = re.compile(r"-of-(\d+)\.")
_POINTER = b"version https://git-lfs"
_PARALLEL = "module."
_WRAPPERS = re.compile(
    r"(?:^|(?<=\.))(?:_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module|_forward_module)\."
)


CONFIG = "copy the config.json of this model into the folder: it says what the weights are of"
LARGEST = 5 * 10**9  # bytes of a file that is written, as in the library


class _Index(TypedDict):
    weight_map: dict[str, str]


def write(folder: Path, tensors: Weights) -> None:
    """Write the first of `FILES`; above `LARGEST` bytes, several of them and their index. Mapped
    tensors need the memory of one file.
    """
    files = _divide(tensors)
    names = [f"model-{n + 1:05d}-of-{len(files):05d}.safetensors" for n in range(len(files))]
    names = names if len(names) > 1 else [FILES[0]]
    for name, own in zip(names, files, strict=True):
        # not two views of one memory
        copies = {key: tensors[key].contiguous().clone() for key in own}
        save_file(copies, admit(folder / name), {"format": "pt"})
    if len(names) > 1:
        places = {key: name for name, own in zip(names, files, strict=True) for key in own}
        size = sum(tensor.nbytes for tensor in tensors.values())
        record = {"metadata": {"total_size": size}, "weight_map": dict(sorted(places.items()))}
        write_text(folder / FILES[1], json.dumps(record, indent=2) + "\n")


def _divide(tensors: Weights) -> list[list[str]]:
    """The names of the tensors in each file, in their order; a tensor above `LARGEST` is alone."""
    files: list[list[str]] = [[]]
    size = 0
    for name, tensor in tensors.items():
        if files[-1] and size + tensor.nbytes > LARGEST:
            files.append([])
            size = 0
        files[-1].append(name)
        size += tensor.nbytes
    return files


def read(folder: Path) -> Tensors:
    """Read all tensors of `folder` in fp32, from the first of `FILES` that exists."""
    file = next((folder / name for name in FILES if (folder / name).is_file()), None)
    if file is None:
        problem = f"no weights here: looked for {', '.join(FILES)}{_describe_others(folder)}"
        raise DataError(problem, file=folder, fix="download the whole model folder")
    tensors = _read_shards(file) if file.suffix == ".json" else read_file(file)
    refuse_narrow(tensors, file)
    return {
        name: tensor.float() if tensor.is_floating_point() else tensor
        for name, tensor in unwrap_names(tensors).items()
    }


def unwrap_names(tensors: Tensors) -> Tensors:
    """Tensors under the names of the model itself. The prefix `module.` is removed if all names
    have it (DataParallel), and so are the insertions of torch.compile, FSDP and checkpointing.
    """
    bare = {_WRAPPERS.sub("", name): tensor for name, tensor in tensors.items()}
    while bare and all(name.startswith(_PARALLEL) for name in bare):
        bare = {name.removeprefix(_PARALLEL): tensor for name, tensor in bare.items()}
    if len(bare) < len(tensors):  # they were told apart by it
        return tensors
    if bare.keys() != tensors.keys():
        first = next(name for name in tensors if name not in bare)
        remark(f"{first} and others are read without the prefix of a wrapper")
    return bare


def modernize_names(tensors: Tensors) -> Tensors:
    """Rename `gamma` and `beta` of old files, and remove buffers that are not weights."""
    buffers = (".position_ids", ".token_type_ids", ".attn.bias", ".attn.masked_bias")
    ends = {".gamma": ".weight", ".beta": ".bias"}
    renamed = {}
    for name, tensor in tensors.items():
        end = next((end for end in ends if name.endswith(end)), "")
        if not f".{name}".endswith(buffers):
            renamed[name.removesuffix(end) + ends[end] if end else name] = tensor
    return renamed


def _describe_others(folder: Path) -> str:
    """The weights of a folder that are not read, in words."""
    found = [
        f"{file.name} ({kind})"
        for pattern, kind in OTHERS.items()
        for file in sorted(folder.glob(pattern))
    ]
    return f"; not read: {list_some(found, 3)}" if found else ""


def _read_shards(index: Path) -> Tensors:
    """The tensors of all shards, each in the shard that the index names; DataError for shards of
    two models.
    """
    places = read_json(index, _Index, fix=AGAIN)["weight_map"]
    if len(counts := {match[1] for name in places.values() if (match := _OF.search(name))}) > 1:
        what = f"it names shards of {' and of '.join(sorted(counts))} in all: those of two models"
        raise DataError(what, file=index, fix=WHOLE)
    tensors: Tensors = {}
    for shard in _shards(index, sorted({*places.values()})):
        found = read_file(shard)
        for name in found:
            if places.get(name) != shard.name:
                where = f"names {places[name]} for it" if name in places else "does not know it"
                what = f"it has {name}, and the index {where}: the shards are of two models"
                raise DataError(what, file=shard, fix=WHOLE)
        tensors |= found
    if absent := [name for name in places if name not in tensors]:
        what = f"it lacks {list_some(absent)}: the shards are of two models, or one is damaged"
        raise DataError(what, file=index.parent / places[absent[0]], fix=WHOLE)
    return tensors


def _shards(index: Path, names: Sequence[str]) -> list[Path]:
    for name in names:
        if why := explain_outside(index.parent, name):
            raise DataError(f"names the weights {name!r}: {why}", file=index, fix=AGAIN)
    missing = [name for name in names if not (index.parent / name).is_file()]
    if missing:
        problem = f"names {', '.join(missing)}, which does not exist"
        raise DataError(problem, file=index, fix="download the missing files")
    return [index.parent / name for name in names]


def read_file(file: Path) -> Tensors:
    """The tensors of one file, of whatever name: safetensors, or what torch has saved."""
    with file.open("rb") as start:
        if start.read(len(_POINTER)) == _POINTER:
            fix = f"git -C {shlex.quote(str(file.parent))} lfs pull"
            raise DataError("is a pointer of Git LFS, and no weights", file=file, fix=fix)
    if file.suffix == ".safetensors":
        return read_tensors(file, fix=AGAIN)
    with blame_file(file, "truncated or not a weight file", fix=AGAIN):
        try:
            # no code of the file is run
            content = torch.load(file, map_location="cpu", weights_only=True)
        except pickle.UnpicklingError as error:  # the text of which has torch's own advice
            if "nsupported" not in str(error):
                raise ValueError("no tensors that torch has saved") from error
            kind = re.search(r"(?:GLOBAL|class|global:?) ([\w.]+\.\w+)", str(error))
            what = f"holds objects other than tensors{f' ({kind[1]})' if kind else ''}"
            problem = f"{what}, and is not read: a pickle may run any code"
            raise DataError(problem, file=file, fix=TENSORS_ALONE) from error
        except (EOFError, OSError) as error:
            raise ValueError(summarize_error(error)) from error
    if not isinstance(content, dict):
        raise DataError("holds no table of tensors", file=file, fix=TENSORS_ALONE)
    if not any(isinstance(value, torch.Tensor) for value in content.values()):
        # a checkpoint of a trainer, with its tensors under one name
        content = next((content[key] for key in TABLES if isinstance(content.get(key), dict)), {})
    return {name: tensor for name, tensor in content.items() if isinstance(tensor, torch.Tensor)}
