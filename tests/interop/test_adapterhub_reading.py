"""Folders of the library `adapters` (AdapterHub), read beside their base: the logits of the
library, which `adapters_library.py` has stored with what it saves.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

import plmctl
from plmctl.artifacts.convert import convert
from plmctl.core.errors import DataError
from tests.interop.adapters_library import LENGTHS, METHODS, POOL, make_batch, save, spell, wave
from tests.interop.publishing import publish
from tests.interop.test_adapters_library import WANTED, publish_waves
from tests.interop.test_families import batch

pytestmark = pytest.mark.parity
SAVED = [name for name in METHODS if "folder" in WANTED[name]]


def write(place: Path, method: str, *, base: str = "base", **changes: Any) -> Path:
    """A folder as the library saves it, with weights that are waves of their names."""
    folder, saved = place / method, WANTED[method]["folder"]
    folder.mkdir()
    config = {**saved["config"], "model_name": str(place / base), **changes}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    tensors = {key: fill(key, shape, method) for key, shape in saved["tensors"].items()}
    torch.save(tensors, folder / "pytorch_adapter.bin")
    return folder


def fill(key: str, shape: list[int], method: str) -> Tensor:
    """The weight of the library, of whatever of its names."""
    first = re.sub(r"bert\.(encoder.*pool|prefix_tuning)\.", POOL, key)
    return wave(spell(first, method), torch.empty(shape)).float()


def read(folder: Path, name: str) -> list[float]:
    """The first logits, as the stored ones."""
    loaded = plmctl.load(folder)
    model = loaded.model.double().eval()
    ids, mask, _ = make_batch(METHODS[name].get("lengths", LENGTHS))
    with torch.no_grad():
        found: Tensor = model.heads["mlm"](model(batch(ids, mask)).last)
    return found[:, 2, :6].flatten().tolist()


def add_head(
    folder: Path, tensors: Mapping[str, Tensor], config: Mapping[str, Any] | None, **own: Any
) -> None:
    """The head that the library saves beside an adapter."""
    stated = {"config": config, "name": None, "model_class": "BertAdapterModel", **own}
    (folder / "head_config.json").write_text(json.dumps(stated))
    save_file(dict(tensors), folder / "model_head.safetensors")


@pytest.mark.parametrize("name", SAVED)
def test_a_folder_gives_the_logits_of_the_library(name: str, tmp_path: Path) -> None:
    publish_waves(tmp_path / "base", hidden_act=METHODS[name].get("act", "gelu"))
    found = read(folder := write(tmp_path, name), name)
    assert found == pytest.approx(WANTED[name]["first"], rel=1e-6, abs=1e-7)
    if name in ("lora", "ia3"):
        convert(folder, tmp_path / "folded", to="plmctl")
        assert plmctl.load(tmp_path / "folded").config.get("peft") is None
        assert read(tmp_path / "folded", name) == pytest.approx(found, rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("name", SAVED)
def test_the_library_saves_these_folders(name: str, tmp_path: Path) -> None:
    pytest.importorskip("adapters")
    assert save(name, tmp_path) == WANTED[name]["folder"]


def test_older_folders_are_read(tmp_path: Path) -> None:
    publish_waves(tmp_path / "base")
    folder = write(tmp_path, "houlsby")
    file = folder / "adapter_config.json"
    config = json.loads(file.read_text())
    del config["version"]
    config["config"]["non_linearity"] = "gelu_orig"
    file.write_text(json.dumps(config))
    tensors = {
        key.replace(".adapters.", ".attention_text_task_adapters."): tensor
        for key, tensor in torch.load(folder / "pytorch_adapter.bin").items()
    }
    torch.save(tensors, folder / "pytorch_adapter.bin")
    assert read(folder, "houlsby") == pytest.approx(WANTED["houlsby"]["first"], rel=1e-6, abs=1e-7)
    folder = write(tmp_path, "lora", version="adapters.1.0.1")  # which took alpha for the rank
    assert plmctl.load(folder).config["peft"]["lora"]["alpha"] == 3


@pytest.mark.parametrize("pooled", [True, False])
def test_heads_are_those_of_published_classes(pooled: bool, tmp_path: Path) -> None:
    theirs, _ = publish(tmp_path / "base", "BertForSequenceClassification", num_labels=3)
    folder = write(tmp_path, "ia3")
    saved = torch.load(folder / "pytorch_adapter.bin")
    ones = {key: torch.ones_like(tensor) for key, tensor in saved.items()}
    torch.save(ones, folder / "pytorch_adapter.bin")
    maps = [theirs.classifier] if pooled else [theirs.bert.pooler.dense, theirs.classifier]
    tensors = {}
    for number, part in enumerate(maps):
        part.weight.data, part.bias.data = part.weight + 0.3, part.bias - 0.1
        for end in ("weight", "bias"):
            tensors[f"heads.a.{3 * number + 1}.{end}"] = getattr(part, end).detach()
    labels = {"good": 1, "bad": 0, "so so": 2}
    settings = {"head_type": "classification", "layers": len(maps), "use_pooler": pooled}
    settings |= {"activation_function": "tanh", "label2id": labels, "num_labels": 3}
    if pooled:  # a class of transformers
        tensors = {key.replace("heads.a.1", "classifier"): own for key, own in tensors.items()}
        own = {"model_class": "BertForSequenceClassification", "label2id": labels}
        add_head(folder, tensors, None, **own)
    else:
        add_head(folder, tensors, settings, name="a")
    loaded = plmctl.load(folder)
    ids, mask, _ = make_batch()
    heads = loaded.model.heads
    with torch.no_grad():
        wanted = theirs(ids, attention_mask=mask.long()).logits
        found = heads["class"](heads["pooler"](loaded.model(batch(ids, mask)).last[:, 0]))
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
    assert loaded.config["labels"] == ["bad", "good", "so so"]


def test_what_does_not_fit_is_named(tmp_path: Path) -> None:
    publish_waves(tmp_path / "base")
    publish_waves(tmp_path / "wide", hidden_size=32)

    def refuse(match: str, method: str = "pfeiffer", **changes: Any) -> None:
        own = changes.pop("config", {})
        folder = write(tmp_path, method, **changes)
        file = folder / "adapter_config.json"
        stated = json.loads(file.read_text())
        file.write_text(json.dumps({**stated, "config": {**stated["config"], **own}}))
        with pytest.raises(DataError, match=match):
            plmctl.load(folder)
        folder.rename(tmp_path / f"done{len(list(tmp_path.iterdir()))}")

    refuse("the adapter belongs to another model", base="wide")
    refuse("hf download google/bert", model_name="google/bert")
    refuse("model_name names none", model_name="")
    refuse("roberta in the adapter, bert in", model_type="roberta")
    refuse(r"architecture reft is none .*\n.*bottleneck, lora", config={"architecture": "reft"})
    refuse("ln_after=True is a variant", config={"ln_after": True})
    refuse("use_dora=True is a variant", "lora", config={"use_dora": True})
    refuse(r"leave_out=\[1\] is a variant", "prefix", config={"leave_out": [1]})
    refuse("non_linearity=mish", config={"non_linearity": "mish"})
    refuse("is of no method that plmctl reads", name="b")


def test_folders_without_an_adapter_are_named(tmp_path: Path) -> None:
    publish_waves(tmp_path / "base")
    (tmp_path / "head").mkdir()
    add_head(tmp_path / "head", {"classifier.bias": torch.zeros(2)}, None)
    with pytest.raises(DataError, match=r"a head alone.*\n.*save_adapter"):
        plmctl.load(tmp_path / "head")
    (tmp_path / "fusion").mkdir()
    (tmp_path / "fusion" / "adapter_fusion_config.json").write_text("{}")
    with pytest.raises(DataError, match="a fusion without its adapters"):
        plmctl.load(tmp_path / "fusion")
    folder = write(tmp_path, "pfeiffer")
    add_head(folder, {}, {"head_type": "dependency_parsing", "layers": 0}, name="a")
    with pytest.raises(DataError, match="dependency_parsing of 0 layers"):
        plmctl.load(folder)
