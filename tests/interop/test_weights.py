"""Weight files of every layout, old names, and files that are damaged."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import Popen

import pytest
import torch
from safetensors.torch import load_file, save_file

import plmctl
from plmctl.artifacts.loading import refuse_infinite
from plmctl.core.errors import DataError, list_some
from plmctl.interop import weights
from plmctl.interop.names import fuse, linear, same, skip_rows, to_ours, to_theirs, transpose
from plmctl.training.checkpoint import Fit


def test_every_rule_and_its_inverse() -> None:
    q, k, v, table, conv = (
        torch.randn(*shape) for shape in ((4, 3), (4, 3), (4, 3), (7, 2), (3, 5))
    )
    theirs = {
        "l.0.q": q,
        "l.0.k": k,
        "l.0.v": v,
        "l.11.q": v,
        "l.11.k": q,
        "l.11.v": k,
        "p": table,
        "c": conv,
        "o": table,
        "x": q,
    }
    rules = [
        fuse("b.{i}.qkv", "l.{i}.q", "l.{i}.k", "l.{i}.v"),
        skip_rows("place", "p", rows=2),
        transpose("conv", "c"),
        same("one", "o"),
    ]
    ours, left = to_ours(theirs, rules)
    assert left == ["x"]
    assert ours["b.11.qkv"].equal(torch.cat([v, q, k]))
    assert ours["place"].equal(table[2:])
    assert ours["conv"].equal(conv.T)
    back, left = to_theirs(ours, rules)
    assert not left
    assert {name for name in back if not back[name].equal(theirs[name])} == {"p"}
    assert back["p"][:2].count_nonzero() == 0


def test_linear_names_both_tensors() -> None:
    assert [rule.ours for rule in linear("a", "b")] == ["a.weight", "a.bias"]
    assert [rule.theirs for rule in linear("a", "b", "c")] == [
        ("b.weight", "c.weight"),
        ("b.bias", "c.bias"),
    ]


def test_old_files_load_to_the_same_model(published) -> None:
    """gamma and beta, position_ids, a stored copy of the tied table, pytorch_model.bin: all in
    one old file.
    """
    model, folder = published("BertForPreTraining")
    new = plmctl.load(folder).model.state_dict()
    old = dict(model.state_dict()) | {"bert.embeddings.position_ids": torch.arange(12)[None]}
    old = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        ): t
        for name, t in old.items()
    }
    torch.save(old, folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    found = plmctl.load(folder)
    assert not found.source.unused
    assert all(tensor.equal(new[name]) for name, tensor in found.model.state_dict().items())


def test_shards_are_put_together(published) -> None:
    _, folder = published("GPT2LMHeadModel")
    whole = load_file(folder / "model.safetensors")
    names = list(whole)
    parts = {"one.safetensors": names[::2], "two.safetensors": names[1::2]}
    for file, some in parts.items():
        save_file({name: whole[name] for name in some}, folder / file)
    index = {"weight_map": {name: file for file, some in parts.items() for name in some}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "model.safetensors").unlink()
    assert weights.read(folder).keys() == whole.keys()
    (folder / "two.safetensors").unlink()
    with pytest.raises(DataError, match=r"two\.safetensors, which does not exist"):
        weights.read(folder)


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
def test_a_truncated_file_is_named(published, name: str) -> None:
    model, folder = published("BertModel")
    if name.endswith("bin"):
        (folder / "model.safetensors").unlink()
        torch.save(model.state_dict(), folder / name)
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[: len(content) // 2])
    with pytest.raises(DataError, match=rf"{name}: truncated"):
        plmctl.load(folder)


def test_code_in_a_pickle_is_not_run(published, tmp_path) -> None:
    _, folder = published("BertModel")
    (folder / "model.safetensors").unlink()
    torch.save({"x": Trap(tmp_path / "sprung")}, folder / "pytorch_model.bin")
    with pytest.raises(DataError):
        plmctl.load(folder)
    assert not (tmp_path / "sprung").exists()


class Trap:
    def __init__(self, path) -> None:
        self.path = str(path)

    def __reduce__(self):
        return open, (self.path, "w")


def test_half_precision_becomes_fp32(published) -> None:
    model, folder = published("BertModel")
    model.half().save_pretrained(folder)
    assert all(tensor.dtype == torch.float32 for tensor in weights.read(folder).values())


BARE = {"bert.encoder.weight": torch.ones(2), "cls.bias": torch.zeros(2)}


@pytest.mark.parametrize(
    "wrap",
    [
        lambda name: f"module.{name}",
        lambda name: f"_orig_mod.{name}",
        lambda name: f"module._orig_mod.{name}",
        lambda name: f"_orig_mod.module.{name}",
        lambda name: name.replace("encoder.", "encoder._orig_mod."),
        lambda name: f"_fsdp_wrapped_module.{name}",
        lambda name: name.replace("encoder.", "encoder._checkpoint_wrapped_module."),
    ],
)
def test_names_of_a_wrapped_model_are_those_of_the_model(
    wrap: Callable[[str], str], tmp_path: Path
) -> None:
    save_file({wrap(name): tensor for name, tensor in BARE.items()}, tmp_path / "model.safetensors")
    assert weights.read(tmp_path).keys() == BARE.keys()


def test_a_name_that_all_tensors_do_not_share_stays(tmp_path: Path) -> None:
    tensors = {"module.a": torch.ones(2), "b": torch.ones(2)}
    save_file(tensors, tmp_path / "model.safetensors")
    assert weights.read(tmp_path).keys() == tensors.keys()
    twice = {"a._orig_mod.b": torch.ones(2), "a.b": torch.zeros(2)}
    assert weights.unwrap_names(twice) == twice


@pytest.mark.parametrize("table", ["state_dict", "model_state_dict", "model"])
def test_the_tensors_in_a_checkpoint_of_a_trainer_are_read(table: str, tmp_path: Path) -> None:
    wrapped = {f"module.{name}": tensor for name, tensor in BARE.items()}
    torch.save({table: wrapped, "epoch": 3}, tmp_path / "pytorch_model.bin")
    assert weights.read(tmp_path).keys() == BARE.keys()


def test_a_pickle_with_other_objects_is_refused_in_our_words(tmp_path: Path) -> None:
    torch.save({"model": BARE, "path": tmp_path, "args": Popen}, tmp_path / "pytorch_model.bin")
    with pytest.raises(DataError) as caught:
        weights.read(tmp_path)
    text = str(caught.value)
    assert "holds objects other than tensors" in text
    assert "a pickle may run any code" in text
    for advice in ("weights_only", "trusted", "allowlist", "add_safe_globals", "options"):
        assert advice not in text


def test_a_message_names_a_few_of_many_tensors() -> None:
    names = [f"layer.{n}.weight" for n in range(60_000)]
    assert list_some(names) == f"{', '.join(names[:8])} and 59,992 more"
    assert list_some(names[:3]) == ", ".join(names[:3])
    assert len(str(Fit([], names, names, names))) < 1000
    broken = {name: torch.tensor([float("nan")]) for name in names[:5000]}
    with pytest.raises(DataError) as caught:
        refuse_infinite(broken, file="model")
    assert len(str(caught.value)) < 500
