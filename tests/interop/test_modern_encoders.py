"""Encoders of 2024 and 2025 against `transformers`: states, losses and gradients in fp32 and fp64,
for three odd configurations each; there and back bit for bit.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional as F
from torch.testing import assert_close

import plmctl
from plmctl.artifacts.assemble import build_model
from plmctl.artifacts.convert import convert
from plmctl.artifacts.loading import open_source
from plmctl.artifacts.taking import _with_inner_layers, take
from plmctl.config.compose import compose
from plmctl.core.batch import Batch, Seq
from plmctl.core.errors import ConfigError
from plmctl.heads.rows import POOLINGS
from plmctl.interop import hf
from plmctl.interop.names import to_theirs
from plmctl.nn.tables import real
from plmctl.runs.adapt import fit_to
from tests.interop import neobert_reference as neobert

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.parity

SLOW, VOCAB = pytest.mark.slow, 41
Settings = dict[str, Any]
TINY: Settings = {
    "vocab_size": VOCAB,
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 20,
    "pad_token_id": 1,
    "bos_token_id": 2,
    "eos_token_id": 3,
    "num_labels": 3,
}
OWN = {
    "ModernBertDecoder": {"cls_token_id": 2, "sep_token_id": 3},
    "ModernBert": {"local_attention": 4, "cls_token_id": 2, "sep_token_id": 3},
    "EuroBert": {"mask_token_id": 4},
    "RoFormer": {
        "max_position_embeddings": 20,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
    },
}
# three odd configurations of each family
ODD: dict[str, list[Settings]] = {
    "ModernBert": [
        {"hidden_activation": "relu", "num_hidden_layers": 5, "classifier_pooling": "mean"},
        {
            "attention_bias": True,
            "mlp_bias": True,
            "norm_bias": True,
            "classifier_bias": True,
            "decoder_bias": False,
            "tie_word_embeddings": False,
            "vocab_size": 53,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
            "rope_parameters": {
                "full_attention": {"rope_type": "default", "rope_theta": 777.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 50.0},
            },
        },
        {
            "global_attn_every_n_layers": 2,
            "global_rope_theta": 9000.0,
            "local_rope_theta": 400.0,
            "local_attention": 7,
            "num_attention_heads": 4,
            "classifier_activation": "silu",
            "norm_eps": 1e-3,
            "num_hidden_layers": 2,
        },
    ],
    "ModernBertDecoder": [
        {"local_attention": 4, "num_hidden_layers": 4},
        {"local_attention": 9, "attention_bias": True, "norm_bias": True, "decoder_bias": False},
        {
            "tie_word_embeddings": False,
            "layer_types": ["sliding_attention"] * 3,
            "local_attention": 6,
            "hidden_activation": "silu",
            "vocab_size": 50,
        },
    ],
    "EuroBert": [
        {"num_key_value_heads": 1, "classifier_pooling": "mean", "tie_word_embeddings": True},
        {
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "attention_bias": True,
            "mlp_bias": True,
            "hidden_act": "relu",
            "rope_parameters": {"rope_type": "default", "rope_theta": 77.0},
        },
        {
            "classifier_pooling": "bos",
            "head_dim": 6,
            "num_hidden_layers": 1,
            "rms_norm_eps": 1e-3,
            "vocab_size": 70,
        },
    ],
    "NeoBert": [
        {"intermediate_size": 36, "num_hidden_layers": 1},
        {"intermediate_size": 20, "num_attention_heads": 4, "vocab_size": 61},
        {"norm_eps": 1e-2, "hidden_size": 24, "max_length": 30},
    ],
    "RoFormer": [
        {"embedding_size": 10, "max_position_embeddings": 19, "hidden_act": "relu"},
        {"rotary_value": True, "num_hidden_layers": 2, "tie_word_embeddings": False},
        {
            "type_vocab_size": 1,
            "num_attention_heads": 4,
            "hidden_act": "gelu_new",
            "embedding_size": 16,
            "vocab_size": 57,
        },
    ],
}
ALL = ("MaskedLM", "SequenceClassification", "TokenClassification", "QuestionAnswering")
KINDS = {
    "ModernBertDecoder": ("CausalLM",),
    "ModernBert": (*ALL, "MultipleChoice"),
    "EuroBert": ALL[:3],
    "NeoBert": ALL[:2],
    "RoFormer": ALL,
}
HEADS = {
    "MaskedLM": "mlm",
    "CausalLM": "clm",
    "SequenceClassification": "class",
    "TokenClassification": "tag",
    "QuestionAnswering": "span",
    "MultipleChoice": "choice",
}
CELLS = [
    # every configuration once, with another head each; all others are slow
    pytest.param(family, number, kind, marks=() if number % len(kinds) == place else SLOW)
    for family, kinds in KINDS.items()
    for number in range(len(ODD[family]))
    for place, kind in enumerate(kinds)
]


def publish(folder: Path, family: str, kind: str, **changes: Any) -> Any:
    """A published model of random weights, which `folder` holds."""
    settings = {**TINY, **OWN.get(family, {}), **changes}
    if kind == "QuestionAnswering":
        settings["num_labels"] = 2
    torch.manual_seed(0)
    if family == "NeoBert":
        part = neobert.LMHead if kind == "MaskedLM" else neobert.Classifier
        model: Any = part(SimpleNamespace(**{"norm_eps": 1e-5, **settings})).eval()
    else:
        own = getattr(transformers, f"{family}Config")(**settings)
        own._attn_implementation = "eager" if family == "RoFormer" else "sdpa"
        model = getattr(transformers, f"{family}For{kind}")(own).eval()
    with torch.no_grad():
        for parameter in [each for each in model.parameters() if each.requires_grad]:
            parameter.add_(0.2 * torch.randn_like(parameter))
    neobert.save(folder, model) if family == "NeoBert" else model.save_pretrained(folder)
    return model


def rows(vocab: int) -> tuple[Tensor, Tensor]:
    """(ids [3, 13], mask)"""
    ids = torch.randint(4, vocab, (3, 13), generator=torch.Generator().manual_seed(2))
    mask = torch.arange(13) < torch.tensor([13, 9, 11])[:, None]
    return torch.where(mask, ids, 1), mask


def read(loaded: Any, head: str, ids: Tensor, mask: Tensor) -> Tensor:
    """The logits of a head."""
    batch = Batch(
        torch.arange(3),
        {"text": Seq(ids, mask.sum(1))},
        anchors=torch.stack([torch.arange(3), torch.zeros(3, dtype=torch.long)], 1),
    )
    features = loaded.model(batch).last
    if head in ("class", "choice"):
        pooling = (loaded.config["model"]["classifier"] or {}).get("pooling") or "first"
        features = POOLINGS[pooling].read(features, batch)
    return loaded.model.heads[head](features)


@contextmanager
def without_fp32(family: str) -> Iterator[None]:
    """The library computes some steps in fp32 whatever the model has: here in fp64."""
    name = family.lower().replace("bertd", "bert_d")
    package = getattr(transformers.models, name, None)
    module = getattr(package, f"modeling_{name}", neobert)

    def turn(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, unsqueeze_dim: int = 1) -> Any:
        half = q.shape[-1] // 2
        cos, sin = cos.unsqueeze(unsqueeze_dim), sin.unsqueeze(unsqueeze_dim)
        other = [torch.cat([-x[..., half:], x[..., :half]], -1) for x in (q, k)]
        return q * cos + other[0] * sin, k * cos + other[1] * sin

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "apply_rotary_pos_emb", turn, raising=False)
        yield


def widen(model: Any) -> Any:
    """The published model in fp64, its waves of positions and its norms too."""
    model = model.double()
    for part in model.modules():
        name = type(part).__name__
        if name.endswith("RotaryEmbedding"):
            part.forward = exact_waves(part)
        elif hasattr(part, "variance_epsilon"):
            own = partial(F.rms_norm, eps=part.variance_epsilon, weight=part.weight)
            part.forward = lambda x, own=own: own(x, x.shape[-1:])
        elif name.endswith("SinusoidalPositionalEmbedding"):
            rows, width = part.weight.shape
            step = torch.arange(0, width, 2, dtype=torch.float64) / width
            angles = torch.arange(rows)[:, None] * 10000.0**-step
            part.weight.data = torch.cat([angles.sin(), angles.cos()], -1)
    return model


def exact_waves(part: nn.Module) -> Any:
    own: Any = part.config
    width = getattr(own, "head_dim", 0) or own.hidden_size // own.num_attention_heads

    def forward(x: Tensor, position_ids: Tensor, layer_type: str | None = None) -> Any:
        turns = own.rope_parameters if layer_type is None else own.rope_parameters[layer_type]
        step = torch.arange(0, width, 2, dtype=torch.float64) / width
        angles = position_ids[..., None].double() * turns["rope_theta"] ** -step
        both = torch.cat([angles, angles], -1)
        return both.cos(), both.sin()

    return forward


def ask(model: Any, ids: Tensor, mask: Tensor) -> Tensor:
    """The logits of the published model."""
    if type(model).__name__.endswith("MultipleChoice"):  # of one example
        return model(ids[None], attention_mask=mask[None].long()).logits.T
    out = model(ids, attention_mask=mask.long())
    if hasattr(out, "start_logits"):
        return torch.stack([out.start_logits, out.end_logits], -1)
    return out.logits


def lose(logits: Tensor, mask: Tensor) -> Tensor:
    """A cross-entropy of all real tokens, or of the rows."""
    flat = logits[mask] if logits.dim() == 3 else logits
    if flat.shape[-1] == 1:
        flat = flat.T
    labels = torch.arange(len(flat)) % flat.shape[-1]
    return F.cross_entropy(flat, labels)


@pytest.mark.parametrize("kind", [pytest.param("fp32", marks=pytest.mark.sampled(3)), "fp64"])
@pytest.mark.parametrize(("family", "number", "task"), CELLS)
def test_states_losses_and_gradients_agree(
    family: str, number: int, task: str, kind: str, tmp_path: Path
) -> None:
    model = publish(tmp_path, family, task, **ODD[family][number])
    loaded = plmctl.load(tmp_path)
    assert not loaded.source.unused
    close = {"atol": 1e-5, "rtol": 1e-5}
    ids, mask = rows(model.config.vocab_size)
    loaded.model.train()  # all rates are 0; gradients are wanted
    if kind == "fp64":
        close = {"atol": 1e-12, "rtol": 1e-12}
        loaded.model.double()
        widen(model)
    with without_fp32(family):
        wanted = ask(model, ids, mask)
    found = read(loaded, HEADS[task], ids, mask)
    chosen = mask if found.dim() == 3 else slice(None)
    assert_close(found[chosen], wanted[chosen], **close)
    (theirs := lose(wanted, mask)).backward()
    (ours := lose(found, mask)).backward()
    assert_close(ours, theirs, **close)
    sizes = {name: len(tensor) for name, tensor in real(loaded.model).items()}  # no spare rows
    gradients = {
        name: parameter.grad[: sizes[name]]
        for name, parameter in loaded.model.named_parameters()
        if parameter.grad is not None
    }
    assert_close(
        name_as_theirs(tmp_path, gradients, {*loaded.model.heads}), own_gradients(model), **close
    )


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("layer_types", ["full_attention"] * 2, r"layer_types.*for each of 3 layers"),
        ("layer_types", ["full_attention", "sliding", "full_attention"], "layer_types"),
        ("classifier_pooling", "max", r"classifier_pooling='max': one of cls, mean"),
        ("classifier_activation", "gellu", r"classifier_activation='gellu'.*gelu"),
        (
            "rope_parameters",
            {"full_attention": {"rope_type": "yarn", "rope_theta": 5.0}},
            r"rope_parameters\.full_attention\.rope_type='yarn'",
        ),
    ],
)
def test_settings_of_modernbert_that_no_part_has(
    key: str, value: Any, message: str, tmp_path: Path
) -> None:
    publish(tmp_path, "ModernBert", "MaskedLM")
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), key: value}))
    with pytest.raises(ConfigError, match=message):
        plmctl.load(tmp_path)


def test_old_and_new_settings_of_modernbert_are_the_same(tmp_path: Path) -> None:
    """Files of before transformers 5 name a period and two bases; null: that of global layers."""
    publish(tmp_path, "ModernBert", "MaskedLM", num_hidden_layers=4)
    file = tmp_path / "config.json"
    new = json.loads(file.read_text())
    found = plmctl.load(tmp_path).config
    assert found["pattern"]["reach"] == [None, 2, 2, None]
    assert found["position"]["base"] == [160000.0, 10000.0, 10000.0, 160000.0]
    old = {k: v for k, v in new.items() if k not in ("layer_types", "rope_parameters")}
    older = {"global_attn_every_n_layers": 3, "global_rope_theta": 160000.0}
    file.write_text(json.dumps({**old, **older, "local_rope_theta": 10000.0}))
    assert plmctl.load(tmp_path).config == found
    file.write_text(json.dumps({**old, **older, "local_rope_theta": None}))
    assert plmctl.load(tmp_path).config["position"]["base"] == [160000.0] * 4


def own_gradients(model: Any) -> dict[str, Tensor]:
    """Gradients of the published model; an untied output has the bias of its head."""
    return {
        name.replace("predictions.decoder.bias", "predictions.bias"): parameter.grad
        for name, parameter in model.named_parameters()
        if parameter.grad is not None
    }


def name_as_theirs(folder: Path, tensors: dict[str, Tensor], heads: set[str]) -> dict[str, Tensor]:
    """Our tensors by the names of the published class."""
    settings = json.loads((folder / "config.json").read_text())
    family, name = hf._family_of(settings, folder)
    numbers = family.numbers(settings)
    architecture = next(
        each for each in family.architectures if each.name == name and set(each.heads) == heads
    )
    named, left = to_theirs(tensors, family.table(numbers, architecture))
    assert not left
    return named


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("family", "number", "task"), CELLS)
def test_there_and_back_is_bitwise(family: str, number: int, task: str, tmp_path: Path) -> None:
    model = publish(tmp_path / "theirs", family, task, **ODD[family][number])
    convert(tmp_path / "theirs", tmp_path / "a", to="plmctl")
    convert(tmp_path / "a", tmp_path / "b", to="hf")
    convert(tmp_path / "b", tmp_path / "c", to="plmctl")
    first, last = (load_file(tmp_path / place / "model.safetensors") for place in ("theirs", "b"))
    assert first.keys() == last.keys()
    unread = (
        set()
        if model.config.__dict__.get("tie_word_embeddings", True)
        else {"cls.predictions.bias"}
    )
    assert all(first[name].equal(last[name]) for name in first.keys() - unread)
    assert (tmp_path / "a/config.yaml").read_text() == (tmp_path / "c/config.yaml").read_text()
    if family == "NeoBert":
        return
    kind = getattr(transformers, f"{family}For{task}")
    again, info = kind.from_pretrained(tmp_path / "b", output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    ids, mask = rows(model.config.vocab_size)
    # the same bits of weights at other addresses: the last bit of a sum may differ
    assert_close(ask(again.eval(), ids, mask), ask(model, ids, mask), atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize(("task", "head"), [("tagging", "tag"), ("classification", "class")])
def test_fine_tuning_goes_on_with_the_layer_of_masked_words(
    task: str, head: str, tmp_path: Path
) -> None:
    """As `from_pretrained` of the other published class: `head.dense` and `head.norm` stay."""
    publish(tmp_path, "ModernBert", "MaskedLM", num_hidden_layers=2)
    words = [f"task={task}", "task.path=x", f"checkpoint={tmp_path}", "task.label_names=[a,b,c]"]
    nodes = plmctl.load(tmp_path).config
    spec = fit_to(compose("finetune", None, words), nodes)
    node = {**spec.heads[head], "num_classes": 3}
    assert {name: node[name] for name in ("dense", "dense_bias", "norm_eps", "norm_bias")} == {
        "dense": True,
        "dense_bias": False,
        "norm_eps": 1e-5,
        "norm_bias": False,
    }
    model = build_model({**nodes, "heads": {head: node}}, vocab_size=VOCAB)
    wanted = load_file(tmp_path / "model.safetensors")
    source = open_source(tmp_path)
    take(model, _with_inner_layers(model, dict(source.tensors)), source=tmp_path)
    assert model.heads[head].dense.weight.equal(wanted["head.dense.weight"])
    assert model.heads[head].norm.weight.equal(wanted["head.norm.weight"])
    again = _with_inner_layers(model, {f"heads.{head}.dense.weight": torch.ones(1)})
    assert [*again] == [f"heads.{head}.dense.weight"]
