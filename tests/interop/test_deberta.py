"""DeBERTa 1, 2 and 3 against `transformers`, in both directions, for odd configurations: states,
logits, losses, gradients, bytes and names.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn import functional as F
from torch.testing import assert_close

import plmctl
from plmctl.artifacts.convert import convert
from plmctl.core.errors import ConfigError
from tests.interop.publishing import VOCAB
from tests.interop.test_families import batch

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.parity

SMALL = {
    "vocab_size": VOCAB,
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 20,
    "max_position_embeddings": 32,
    "relative_attention": True,
    "position_biased_input": False,
    "num_labels": 2,
}
FIRST = [
    {"pos_att_type": "c2p|p2c", "max_relative_positions": 5, "type_vocab_size": 2},
    {"pos_att_type": ["p2c"], "hidden_act": "relu", "legacy": False},
    {
        "pos_att_type": ["c2p"],
        "position_biased_input": True,
        "num_hidden_layers": 3,
        "pooler_hidden_act": "tanh",
        "hidden_act": "silu",
        "embedding_size": 12,
        "type_vocab_size": 1,
    },
]
SECOND = [
    {  # DeBERTa 3
        "pos_att_type": "p2c|c2p",
        "position_buckets": 8,
        "share_att_key": True,
        "norm_rel_ebd": "layer_norm",
        "legacy": False,
    },
    {  # DeBERTa 2, with n-grams
        "pos_att_type": ["c2p", "p2c"],
        "position_buckets": 7,
        "max_relative_positions": 11,
        "conv_kernel_size": 3,
        "conv_act": "gelu",
        "num_hidden_layers": 3,
        "type_vocab_size": 3,
        "hidden_act": "gelu_new",
    },
    {
        "pos_att_type": ["p2c"],
        "share_att_key": True,
        "max_relative_positions": 6,
        "conv_kernel_size": 5,
        "conv_groups": 2,
        "num_hidden_layers": 1,
        "embedding_size": 10,
        "position_biased_input": True,
        "norm_rel_ebd": "none",
        "hidden_act": "relu",
    },
    {"relative_attention": False, "position_biased_input": True, "hidden_act": "tanh"},
    {"pos_att_type": [], "position_buckets": 4, "max_relative_positions": 9},
]
KINDS = {
    "Model": None,
    "ForMaskedLM": "mlm",
    "ForSequenceClassification": "class",
    "ForTokenClassification": "tag",
    "ForQuestionAnswering": "span",
    "ForMultipleChoice": "choice",
}
CASES = [
    (f"{family}{kind}", changes)
    for family, odd in (("Deberta", FIRST), ("DebertaV2", SECOND))
    for changes in odd
    for kind in KINDS
    if family == "DebertaV2" or kind != "ForMultipleChoice"
]


def publish(place: Path, name: str, changes: dict[str, Any], seed: int = 0) -> tuple[Any, Path]:
    kind = "DebertaV2" if "V2" in name else "Deberta"
    torch.manual_seed(seed)
    model = getattr(transformers, name)(getattr(transformers, f"{kind}Config")(**SMALL | changes))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape))
    model.eval().save_pretrained(place)
    return model, place


def inputs() -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(2)
    ids = torch.randint(3, VOCAB, (3, 13), generator=generator)
    mask = torch.arange(13) < torch.tensor([13, 9, 4])[:, None]
    segment = ((torch.arange(13) > 4) & mask).long()
    return ids * mask, mask, segment


def ours(loaded: Any, head: str | None, *, segments: int) -> Tensor:
    ids, mask, segment = inputs()
    hidden = loaded.model(batch(ids, mask, segment % segments if segments else None))
    if head is None:
        return hidden.last[mask]
    if head in ("class", "choice"):
        return loaded.model.heads[head](hidden.last[:, 0])
    states = hidden.words if head == "mlm" else hidden.last
    return loaded.model.heads[head](states)[mask]


def theirs(model: Any, *, segments: int) -> Tensor:
    ids, mask, segment = inputs()
    known: dict[str, Any] = {"input_ids": ids, "attention_mask": mask.long()}
    known |= {"token_type_ids": segment % segments} if segments else {}
    if "Choice" in type(model).__name__:
        return model(**{name: x[:, None] for name, x in known.items()}).logits
    out = model(**known)
    if "Question" in type(model).__name__:
        return torch.stack([out.start_logits, out.end_logits], -1)[mask]
    found = out.last_hidden_state if type(model).__name__.endswith("Model") else out.logits
    return found[mask] if found.shape[:2] == mask.shape else found


@pytest.mark.sampled(11)
@pytest.mark.parametrize(("name", "changes"), CASES)
def test_both_ways(name: str, changes: dict[str, Any], tmp_path: Path) -> None:
    model, folder = publish(tmp_path / "published", name, changes)
    loaded, segments = plmctl.load(folder), changes.get("type_vocab_size", 0)
    assert not loaded.source.unused
    head = KINDS[name.removeprefix("DebertaV2").removeprefix("Deberta")]
    first = "V2" not in name
    double = not first  # the norms of the first version compute in fp32
    terms = changes.get("pos_att_type") or []
    double &= len(terms if isinstance(terms, list) else terms.split("|")) == 2  # sqrt(36) is exact
    for dtype, within in [(torch.float32, 2e-5), (torch.float64, 1e-11)][: 1 + double]:
        found = ours(loaded.model.to(dtype) and loaded, head, segments=segments)
        wanted = theirs(model.to(dtype), segments=segments)
        assert_close(found, wanted, atol=within, rtol=within)
        weight = torch.linspace(-1, 1, found.numel(), dtype=dtype).view_as(found)
        mine, other = (F.mse_loss(x, weight) for x in (found, wanted))
        mine.backward(), other.backward()
        assert_close(mine, other, atol=within, rtol=within)
        table = (model.deberta if hasattr(model, "deberta") else model).embeddings.word_embeddings
        gradient = loaded.model.backbone.token_embedding.weight.grad[1:VOCAB]
        assert_close(gradient, table.weight.grad[1:], atol=within, rtol=10 * within)
        loaded.model.zero_grad(), model.zero_grad()
    convert(folder, tmp_path / "a", to="plmctl")
    convert(tmp_path / "a", tmp_path / "b", to="hf")
    before, after = (load_file(place / "model.safetensors") for place in (folder, tmp_path / "b"))
    assert before.keys() == after.keys()
    assert all(before[key].equal(after[key]) for key in before)
    again, info = getattr(transformers, name).from_pretrained(
        tmp_path / "b", output_loading_info=True
    )
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    wanted = theirs(model.float(), segments=segments)
    assert_close(theirs(again.eval(), segments=segments), wanted)
    assert_close(ours(plmctl.load(tmp_path / "a"), head, segments=segments), wanted)


def test_files_of_microsoft_have_a_decoder_and_a_detector(tmp_path: Path) -> None:
    """Their files have absolute positions that the input does not read, no class and both heads."""
    model, folder = publish(tmp_path / "ms", "DebertaV2ForMaskedLM", SECOND[0])
    tensors, generator = load_file(folder / "model.safetensors"), torch.Generator().manual_seed(3)
    extra = {"deberta.embeddings.position_embeddings.weight": (32, 24)}
    for part, rows in (("dense", (24, 24)), ("classifier", (1, 24)), ("LayerNorm", (24,))):
        extra |= {
            f"mask_predictions.{part}.weight": rows,
            f"mask_predictions.{part}.bias": rows[:1],
        }
    tensors |= {name: torch.randn(shape, generator=generator) for name, shape in extra.items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    settings = json.loads((folder / "config.json").read_text())
    settings = {k: v for k, v in settings.items() if k not in ("architectures", "legacy")}
    (folder / "config.json").write_text(json.dumps(settings))
    loaded = plmctl.load(folder)
    assert set(loaded.model.heads) == {"mlm", "discriminator"}
    assert not loaded.source.unused
    ids, mask, _ = inputs()
    with torch.no_grad():
        hidden = loaded.model(batch(ids, mask))
        wanted = model.deberta(ids, attention_mask=mask.long()).last_hidden_state
        assert_close(hidden.last[mask], wanted[mask], atol=1e-5, rtol=1e-5)
        assert not torch.allclose(hidden.words[mask], wanted[mask], atol=1e-2)
        norm, dense, last = (
            lambda x, n=n: (
                tensors[f"mask_predictions.{n}.weight"],
                tensors[f"mask_predictions.{n}.bias"],
            )
            for n in ("LayerNorm", "dense", "classifier")
        )
        both = F.layer_norm(wanted + wanted[:, :1], (24,), *norm(0), eps=1e-7)
        logits = F.linear(F.gelu(F.linear(both, *dense(0))), *last(0))[..., 0]
        found = loaded.model.heads["discriminator"](hidden.last)
    assert_close(found[mask], logits[mask], atol=1e-4, rtol=1e-4)
    convert(folder, tmp_path / "a", to="plmctl")
    convert(tmp_path / "a", tmp_path / "b", to="hf")
    after = load_file(tmp_path / "b" / "model.safetensors")
    assert tensors.keys() == after.keys()
    assert all(tensors[key].equal(after[key]) for key in tensors)


@pytest.mark.parametrize(
    "changes", [{"pos_att_type": ["p2p"]}, {"pos_att_type": ["c2p"], "relative_attention": False}]
)
def test_other_scores_are_refused(changes: dict[str, Any], tmp_path: Path) -> None:
    _, folder = publish(tmp_path / "odd", "DebertaV2Model", {"pos_att_type": ["c2p"]})
    settings = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(settings | changes))
    with pytest.raises(ConfigError, match="pos_att_type"):
        plmctl.load(folder)
