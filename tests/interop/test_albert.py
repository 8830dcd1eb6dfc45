"""ALBERT against `transformers` beyond what all families share: float64, groups, widths, what is
refused, published sizes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.testing import assert_close

import plmctl
from plmctl.artifacts.convert import convert
from plmctl.core.batch import Batch, Seq
from plmctl.core.errors import ConfigError
from plmctl.interop import hf

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.parity

BASE = {
    "vocab_size": 30000,
    "embedding_size": 128,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "max_position_embeddings": 512,
}


@torch.no_grad()
def both(
    model: Any, folder: Path, lengths: list[int], dtype: torch.dtype
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """({name: ours}, {name: theirs}) at the real tokens, of the same ids and segments."""
    loaded = plmctl.load(folder)
    ours, theirs = loaded.model.to(dtype), model.to(dtype)
    generator = torch.Generator().manual_seed(2)
    ids = torch.randint(5, 40, (len(lengths), max(lengths)), generator=generator)
    real = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    segment = (torch.arange(max(lengths)) > 2).long().expand_as(ids) * real
    batch = Batch(
        torch.arange(len(ids)),
        {"text": Seq(ids * real, real.sum(1), {"segment": segment}, full=bool(real.all()))},
    )
    hidden = ours(batch, record=frozenset({"hidden"}))
    out = theirs(
        ids * real, attention_mask=real.long(), token_type_ids=segment, output_hidden_states=True
    )
    heads = ours.heads
    found = {
        "mlm": heads["mlm"](hidden.last)[real],
        "sop": heads["sop"](heads["pooler"](hidden.last[:, 0])),
    }
    wanted = {"mlm": out.prediction_logits[real], "sop": out.sop_logits}
    found |= {str(n): state[real] for n, state in enumerate(hidden.recorded["hidden"])}
    return found, wanted | {str(n): state[real] for n, state in enumerate(out.hidden_states)}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("lengths", [[9, 9], [9, 4, 1]], ids=["unpadded", "padded"])
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_states_and_logits_are_those_of_transformers_in_float64(
    groups: int, lengths: list[int], published
) -> None:
    model, folder = published("AlbertForPreTraining", num_hidden_layers=4, num_hidden_groups=groups)
    found, wanted = both(model, folder, lengths, torch.float64)
    assert len(found) == 4 + 1 + 2
    assert_close(found, wanted, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("groups", [2, 4])
def test_groups_come_back_whole(groups: int, published, tmp_path: Path) -> None:
    model, folder = published("AlbertForPreTraining", num_hidden_layers=4, num_hidden_groups=groups)
    convert(folder, tmp_path / "ours", to="plmctl")
    convert(tmp_path / "ours", tmp_path / "hf", to="hf")
    again = transformers.AlbertForPreTraining.from_pretrained(tmp_path / "hf")
    assert (
        again.config.num_hidden_groups,
        again.config.num_hidden_layers,
        again.config.embedding_size,
    ) == (groups, 4, 8)
    assert all(
        tensor.equal(again.state_dict()[name]) for name, tensor in model.state_dict().items()
    )


def test_the_spelling_of_sharing_does_not_matter(published) -> None:
    _, folder = published("AlbertForMaskedLM")
    source = plmctl.load(folder).source
    first = hf.export(source.config, source.tensors)
    config = json.loads(json.dumps(source.config))
    config["model"]["stack"] |= {"layout": "af@2", "share": None}
    assert hf.export(config, source.tensors).settings == first.settings
    assert first.settings["num_hidden_groups"] == 1


def test_sharing_that_no_published_class_has_is_refused(published) -> None:
    _, folder = published("AlbertForMaskedLM")
    source = plmctl.load(folder).source
    config = json.loads(json.dumps(source.config))
    config["model"]["stack"]["share"] = {"a": 1}
    with pytest.raises(
        ConfigError, match=r"(?s)nearest, albert.*model\.stack\.share\.f=2 \(published: 1\)"
    ):
        hf.export(config, source.tensors)


def test_tables_as_wide_as_the_model(published, tmp_path: Path) -> None:
    """The published map must be the identity, which is what export writes."""
    model, folder = published("AlbertForPreTraining", embedding_size=16)
    with pytest.raises(ConfigError, match=r"embedding_size=16.*not hidden_size=16"):
        plmctl.load(folder)
    with torch.no_grad():
        model.albert.encoder.embedding_hidden_mapping_in.weight.copy_(torch.eye(16))
        model.albert.encoder.embedding_hidden_mapping_in.bias.zero_()
    model.save_pretrained(folder)
    found, wanted = both(model, folder, [9, 4], torch.float64)
    assert_close(found, wanted, atol=1e-12, rtol=1e-12)
    convert(folder, tmp_path / "hf", to="hf")
    there, here = (load_file(place / "model.safetensors") for place in (folder, tmp_path / "hf"))
    assert there.keys() == here.keys()
    assert all(tensor.equal(here[name].to(tensor)) for name, tensor in there.items())


@pytest.mark.parametrize(
    ("key", "value"), [("inner_group_num", 2), ("num_hidden_groups", 2), ("hidden_act", "mish")]
)
def test_what_our_parts_cannot_express_is_named(key: str, value: Any, published) -> None:
    _, folder = published("AlbertModel", num_hidden_layers=3)
    settings = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(settings | {key: value}))
    with pytest.raises(ConfigError, match=f"config.json: {key}"):
        plmctl.load(folder)


def test_the_tokenizer_goes_along(published, with_tokenizer, tmp_path: Path) -> None:
    convert(with_tokenizer(published("AlbertForMaskedLM")[1]), tmp_path / "ours", to="plmctl")
    convert(tmp_path / "ours", tmp_path / "hf", to="hf")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")
    own = plmctl.load(tmp_path / "ours").tokenizer
    assert tokenizer("The cats, ran.")["input_ids"] == [2, *own.encode("The cats, ran."), 3]


@pytest.mark.slow
def test_albert_base_agrees(published) -> None:
    """The published size; weights nearly as they are drawn, for strongly perturbed ones are not
    of this scale.
    """
    model, folder = published("AlbertForPreTraining", perturb=0.01, **BASE)
    found, wanted = both(model, folder, [128, 77], torch.float32)
    assert_close(found, wanted, atol=1e-5, rtol=1e-5)
