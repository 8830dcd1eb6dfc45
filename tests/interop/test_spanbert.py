"""SpanBERT's own checkpoints: BERT's names, and those of the boundary head."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import plmctl
from plmctl.artifacts.convert import convert
from plmctl.core.batch import Batch, Seq
from plmctl.core.errors import ConfigError
from plmctl.heads.sbo import SBOHead
from plmctl.interop import hf

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.parity

PREFIX, WIDTH, PLACES = "cls.pair_target_predictions", 16, 15


def spanbert(
    published, name: str, *, old: bool = True, **changes: object
) -> tuple[object, Path, dict[str, torch.Tensor]]:
    """A published folder with the head's tensors beside, under old names of norms; and those
    tensors.
    """
    model, folder = published(name, **changes)
    generator = torch.Generator().manual_seed(5)
    draw = lambda *shape: torch.randn(*shape, generator=generator)  # noqa: E731
    head = {
        "position_embeddings.weight": draw(PLACES, 200),
        "bias": draw(40),
        "mlp_layer_norm.linear1.weight": draw(WIDTH, 2 * WIDTH + 200),
        "mlp_layer_norm.linear1.bias": draw(WIDTH),
        "mlp_layer_norm.linear2.weight": draw(WIDTH, WIDTH),
        "mlp_layer_norm.linear2.bias": draw(WIDTH),
        **{
            f"mlp_layer_norm.layer_norm{n}.{part}": draw(WIDTH)
            for n in (1, 2)
            for part in ("gamma", "beta")
        },
        "decoder.weight": model.state_dict()["bert.embeddings.word_embeddings.weight"],
    }
    tensors = load_file(folder / "model.safetensors") | {
        f"{PREFIX}.{key}": value.clone() for key, value in head.items()
    }
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    if old:
        settings = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(
            json.dumps(
                {k: settings[k] for k in settings if k not in ("architectures", "model_type")}
            )
        )
    return model, folder, head


def literal(
    head: dict[str, torch.Tensor], left: torch.Tensor, right: torch.Tensor, place: int
) -> torch.Tensor:
    """h0 = [x_{s-1}; x_{e+1}; p], twice LN(GeLU(W h)), logits by the token table and a bias of
    its own.
    """
    x = torch.cat([left, right, head["position_embeddings.weight"][place]])
    for n in (1, 2):
        x = head[f"mlp_layer_norm.linear{n}.weight"] @ x + head[f"mlp_layer_norm.linear{n}.bias"]
        x = x * 0.5 * (1 + torch.erf(x / math.sqrt(2)))
        x = (x - x.mean()) / torch.sqrt(((x - x.mean()) ** 2).mean() + 1e-12)
        x = (
            x * head[f"mlp_layer_norm.layer_norm{n}.gamma"]
            + head[f"mlp_layer_norm.layer_norm{n}.beta"]
        )
    return head["decoder.weight"] @ x + head["bias"]


@torch.no_grad()
@pytest.mark.parametrize("name", ["BertForMaskedLM", "BertForPreTraining"])
def test_import(name: str, published) -> None:
    model, folder, head = spanbert(published, name)
    loaded = plmctl.load(folder)
    assert not loaded.source.unused
    assert isinstance(loaded.model.heads["sbo"], SBOHead)
    assert loaded.source.config["heads"]["sbo"]["max_targets"] == PLACES
    ids = torch.randint(3, 40, (2, 9), generator=torch.Generator().manual_seed(2))
    last = loaded.model(
        Batch(torch.arange(2), {"text": Seq(ids, torch.full((2,), 9), full=True)})
    ).last
    logits = model(ids, attention_mask=torch.ones_like(ids))
    theirs = logits.logits if name == "BertForMaskedLM" else logits.prediction_logits
    torch.testing.assert_close(loaded.model.heads["mlm"](last), theirs, atol=1e-5, rtol=1e-5)
    found = loaded.model.heads["sbo"](last[:, 2], last[:, 6], torch.tensor([0, 2]))
    wanted = torch.stack(
        [literal(head, last[0, 2], last[0, 6], 0), literal(head, last[1, 2], last[1, 6], 2)]
    )
    torch.testing.assert_close(found, wanted, atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize("name", ["BertForMaskedLM", "BertForPreTraining"])
def test_there_and_back_is_bitwise(name: str, published, tmp_path: Path) -> None:
    model, folder, head = spanbert(published, name, old=False)
    convert(folder, tmp_path / "a", to="plmctl")
    convert(tmp_path / "a", tmp_path / "b", to="hf")
    convert(tmp_path / "b", tmp_path / "c", to="plmctl")
    first, last = (load_file(tmp_path / place / "model.safetensors") for place in "ac")
    assert first.keys() == last.keys()
    assert all(first[key].equal(last[key]) for key in first)
    exported = load_file(tmp_path / "b/model.safetensors")
    new = {"gamma": "weight", "beta": "bias"}
    for key, tensor in head.items():
        if key != "decoder.weight":  # the token table
            stem, _, end = key.rpartition(".")
            assert exported[
                f"{PREFIX}.{stem}.{new.get(end, end)}" if stem else f"{PREFIX}.{end}"
            ].equal(tensor)
    again, info = getattr(transformers, name).from_pretrained(
        tmp_path / "b", output_loading_info=True
    )
    assert not info["missing_keys"]
    assert all(key.startswith(PREFIX) for key in info["unexpected_keys"])
    assert all(again.state_dict()[key].equal(tensor) for key, tensor in model.state_dict().items())


def test_a_head_of_another_shape_is_left_out_and_named(published) -> None:
    """The released code embeds places in 200 numbers whatever it is told, so no published model
    has another head.
    """
    _, folder, _ = spanbert(published, "BertForMaskedLM")
    found = hf.read(folder)
    assert hf.export(found.config, found.tensors).left_out == []
    found.config["heads"]["sbo"]["place_width"] = 64
    exported = hf.export(found.config, found.tensors)
    assert (exported.architecture, exported.left_out) == ("BertForMaskedLM", ["heads.sbo"])


def test_languages_have_no_place_in_published_models(published) -> None:
    _, folder = published("BertForMaskedLM")
    found = hf.read(folder)
    found.config["model"]["embedding"]["languages"] = 2
    with pytest.raises(ConfigError, match="languages=2"):
        hf.export(found.config, found.tensors)
