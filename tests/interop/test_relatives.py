"""Encoders related to BERT against `transformers`, in odd configurations: outputs, losses,
gradients and bytes, in both directions.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn import functional as F
from torch.testing import assert_close

import plmctl
from plmctl.artifacts.convert import convert
from plmctl.artifacts.loading import Loaded
from plmctl.core.batch import Batch, Seq
from plmctl.interop import hf
from tests.command import plmctl as run_words

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.parity

BASE = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
BASE |= {"intermediate_size": 24, "vocab_size": 40, "max_position_embeddings": 12}
ROBERTA = {"max_position_embeddings": 15, "type_vocab_size": 1, "pad_token_id": 1}
DISTIL = {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 24, "vocab_size": 40}
DISTIL |= {"max_position_embeddings": 12, "pad_token_id": 1}
MPNET = BASE | {"max_position_embeddings": 14, "pad_token_id": 1}
XLM = {"emb_dim": 16, "n_layers": 2, "n_heads": 2, "vocab_size": 40, "pad_token_id": 1}
XLM |= {"max_position_embeddings": 12}
# by the first part of the names of its classes: what all have, and three odd configurations
CONFIGS: Mapping[str, tuple[Mapping[str, Any], list[Mapping[str, Any]]]] = {
    "DistilBert": (
        DISTIL,
        [
            {"activation": "relu", "n_layers": 3, "vocab_size": 41},
            {"activation": "gelu_new", "tie_word_embeddings": False, "n_heads": 4},
            {"activation": "silu", "sinusoidal_pos_embds": True, "dim": 20, "hidden_dim": 7},
        ],
    ),
    "XLMRoberta": (
        BASE | ROBERTA,
        [
            {"hidden_act": "relu", "layer_norm_eps": 1e-5, "vocab_size": 43},
            {"tie_word_embeddings": False, "num_attention_heads": 1, "num_hidden_layers": 1},
            {"hidden_act": "gelu_new", "intermediate_size": 5, "type_vocab_size": 3},
        ],
    ),
    "Camembert": (
        BASE | ROBERTA,
        [
            {"hidden_act": "silu", "num_hidden_layers": 3},
            {"tie_word_embeddings": False, "layer_norm_eps": 1e-6},
            {"max_position_embeddings": 31, "hidden_size": 12, "num_attention_heads": 3},
        ],
    ),
    "MPNet": (
        MPNET,
        [
            {"hidden_act": "relu", "num_hidden_layers": 3, "vocab_size": 47},
            {"tie_word_embeddings": False, "num_attention_heads": 4, "layer_norm_eps": 1e-5},
            {"hidden_act": "tanh", "max_position_embeddings": 300, "intermediate_size": 9},
        ],
    ),
    "ConvBert": (
        BASE | {"num_attention_heads": 4, "embedding_size": 16, "pad_token_id": 1},
        [
            {"hidden_act": "relu", "num_groups": 2, "embedding_size": 8},
            {"conv_kernel_size": 5, "head_ratio": 4, "num_groups": 4},
            {"tie_word_embeddings": False, "num_attention_heads": 1, "conv_kernel_size": 3},
        ],
    ),
    "FNet": (
        {name: BASE[name] for name in BASE if name != "num_attention_heads"} | {"pad_token_id": 1},
        [
            {"hidden_act": "relu", "type_vocab_size": 2, "num_hidden_layers": 3},
            {"tie_word_embeddings": False, "layer_norm_eps": 1e-5, "hidden_size": 15},
            {"intermediate_size": 7, "vocab_size": 43, "hidden_size": 10},
        ],
    ),
    "MobileBert": (
        BASE | {"embedding_size": 6, "intra_bottleneck_size": 8, "pad_token_id": 1},
        [
            {"num_hidden_layers": 3, "num_feedforward_networks": 2},
            {"tie_word_embeddings": False, "layer_norm_eps": 1e-5, "num_feedforward_networks": 1},
            {"classifier_activation": False, "hidden_act": "gelu", "intra_bottleneck_size": 20},
        ],
    ),
    "XLM": (
        XLM,
        [
            {"gelu_activation": False, "n_layers": 3, "vocab_size": 41},
            {"tie_word_embeddings": False, "n_langs": 3, "lang_id": 2, "lang2id": {"fr": 2}},
            {"sinusoidal_embeddings": True, "emb_dim": 20, "n_langs": 5, "use_lang_emb": False},
        ],
    ),
    "Flaubert": (
        XLM,
        [
            {"pre_norm": True, "layerdrop": 0.2, "emb_dim": 12, "n_heads": 3},
            {"tie_word_embeddings": False, "n_langs": 2, "layer_norm_eps": 1e-5},
            {"pre_norm": True, "gelu_activation": False, "n_layers": 1},
        ],
    ),
    "Ernie": (
        BASE | {"pad_token_id": 1},
        [
            {"hidden_act": "relu", "use_task_id": True, "task_type_vocab_size": 5},
            {"tie_word_embeddings": False, "type_vocab_size": 4, "layer_norm_eps": 1e-5},
            {"use_task_id": True, "num_hidden_layers": 1, "hidden_size": 12},
        ],
    ),
}
# families whose other classes have tests of their own
CHOICES = {
    "Bert": BASE | {"pad_token_id": 1},
    "Roberta": BASE | ROBERTA,
    "Albert": BASE | {"embedding_size": 8, "pad_token_id": 1},
    "Electra": BASE | {"embedding_size": 8, "pad_token_id": 1},
    "Longformer": BASE | ROBERTA | {"attention_window": 4},
    "BigBird": BASE | {"attention_type": "original_full", "pad_token_id": 1},
}
FROM_TWO = {"XLMRoberta", "Camembert", "MPNet", "Roberta", "Longformer"}  # rows before: no token's
# a second map stands behind XLM's summary; its other class of answers searches beams
UNREAD = (
    "ConvBertForMultipleChoice",
    *(
        f"{name}For{end}"
        for name in ("XLM", "Flaubert")
        for end in ("MultipleChoice", "QuestionAnswering")
    ),
)
IN_FP32 = ("Longformer", "XLM", "Flaubert")  # families with softmax in fp32
ALONE = ("ConvBert",)  # padding changes what the published class answers
MIXING = ("FNet", "MobileBert")  # tokens read the vector of padding
ENDS = {
    "Model": None,
    "ForMaskedLM": "mlm",
    "WithLMHeadModel": "mlm",
    "ForSequenceClassification": "class",
    "ForMultipleChoice": "choice",
    "ForTokenClassification": "tag",
    "ForQuestionAnswering": "span",
    "ForQuestionAnsweringSimple": "span",
    "ForPreTraining": "nsp",
    "ForNextSentencePrediction": "nsp",
}
PUBLISHED = {*dir(transformers)}  # their names alone: classes take seconds to import
CASES = [
    (family, end, number)
    for family in CONFIGS
    for end in ENDS
    for number in range(3)
    if family + end in PUBLISHED and family + end not in UNREAD
] + [(family, "ForMultipleChoice", 0) for family in CHOICES]


def publish(place: Path, family: str, end: str, number: int) -> tuple[Any, Path]:
    """The published model with random weights in all parameters, and its folder."""
    usual, odd = CONFIGS.get(family) or (CHOICES[family], [{"hidden_act": "relu"}])
    kind = getattr(transformers, family + end)
    labels = {"num_labels": 2 if "Question" in end else 3}
    torch.manual_seed(number)
    model = kind(kind.config_class(**{**usual, **odd[number], **labels})).eval()
    generator = torch.Generator().manual_seed(number + 1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator))
    model.save_pretrained(place)
    return model, place


def draw_inputs(lengths: list[int]) -> tuple[Tensor, Tensor]:
    """Ids above those of special tokens, and which are real; padding has the id 1."""
    generator = torch.Generator().manual_seed(2)
    ids = torch.randint(3, 40, (len(lengths), max(lengths)), generator=generator)
    real = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    return ids * real + ~real, real


def answer(loaded: Loaded, head: str | None, ids: Tensor, real: Tensor) -> dict[str, Tensor]:
    """Our outputs, by the names of `transformers`."""
    batch = Batch(torch.arange(len(ids)), {"text": Seq(ids, real.sum(1), {})})
    last, heads = loaded.model(batch).last, loaded.model.heads
    first = heads["pooler"](last[:, 0]) if "pooler" in heads else last[:, 0]
    if head is None:
        return {"last_hidden_state": last} | ({"pooler_output": first} if "pooler" in heads else {})
    if head == "span":
        start, end = heads["span"](last).unbind(-1)
        return {"start_logits": start, "end_logits": end}
    if head == "nsp" and "mlm" in heads:
        return {
            "prediction_logits": heads["mlm"](last),
            "seq_relationship_logits": heads["nsp"](first),
        }
    logits = heads[head](first if head in ("class", "choice", "nsp") else last)
    return {"logits": logits.view(1, -1) if head == "choice" else logits}


class NoCache(list[None]):
    """No states of earlier tokens; with norms first, FlauBERT's class looks up those of a layer in
    a cache that cannot be indexed.
    """

    def get_seq_length(self) -> int:
        return 0


def ask(model: Any, ids: Tensor, real: Tensor) -> dict[str, Tensor]:
    """The outputs of `transformers`."""
    several = "MultipleChoice" in type(model).__name__  # [1, choices, T]
    ids, mask = (x[None] if several else x for x in (ids, real.long()))
    # else Longformer makes the tokens before its separators global
    given = {"global_attention_mask": mask * 0} if "Longformer" in type(model).__name__ else {}
    if getattr(model.config, "n_langs", 1) > 1:
        given["langs"] = torch.full_like(ids, model.config.lang_id)
    if getattr(model.config, "pre_norm", False):
        given["cache"] = NoCache([None] * model.config.n_layers)
    out = model(ids, attention_mask=mask, **given)
    found = {name: value for name, value in out.items() if isinstance(value, Tensor)}
    if not getattr(model.config, "classifier_activation", True):
        found.pop("pooler_output", None)  # the first state itself
    return found


def sum_losses(outputs: Mapping[str, Tensor], real: Tensor) -> Tensor:
    """Cross-entropy of logits with a label for each token or row, squares of states."""
    total = torch.zeros((), dtype=next(iter(outputs.values())).dtype)
    for name, value in sorted(outputs.items()):
        value = value[real] if value.shape[:2] == real.shape else value
        if name in ("last_hidden_state", "pooler_output"):
            total = total + value.square().mean()
        else:
            value = value.view(1, -1) if value.dim() == 1 else value
            labels = torch.arange(len(value)) % value.shape[-1]
            total = total + F.cross_entropy(value, labels)
    return total


def compare(model: Any, loaded: Loaded, head: str | None, within: float) -> None:
    """Outputs, losses and gradients in the type of both models."""
    for lengths in ([9, 9], [9, 9] if type(model).__name__.startswith(ALONE) else [9, 4, 1]):
        ids, real = draw_inputs(lengths)
        found, wanted = answer(loaded, head, ids, real), ask(model, ids, real)
        assert found.keys() == wanted.keys()
        for name, value in wanted.items():
            kept = real if value.shape[:2] == real.shape else ...
            assert_close(found[name][kept], value[kept], atol=within, rtol=within)
    losses = [sum_losses(outputs, real) for outputs in (found, wanted)]
    assert_close(*losses, atol=within, rtol=within)
    for one, loss in zip((loaded.model, model), losses, strict=True):
        one.zero_grad()
        loss.backward()
    grads = {
        name: torch.zeros_like(weight) if weight.grad is None else weight.grad
        for name, weight in loaded.model.named_parameters()
    }
    named = hf.export(loaded.config, grads).tensors
    compared = set()
    for name, weight in model.named_parameters(remove_duplicate=False):
        if weight.grad is not None and weight.requires_grad and name in named:
            compared.add(weight)
            # our tables of tokens have spare rows
            pair = [named[name][tuple(map(slice, weight.shape))], weight.grad]
            if "word_embeddings" in name and type(model).__name__.startswith(MIXING):
                # the vector of padding is mixed in, and theirs learns nothing
                pair = [each.index_fill(0, torch.tensor([1]), 0.0) for each in pair]
            assert_close(*pair, atol=within, rtol=within, msg=name)
    assert compared >= {each for each in model.parameters() if each.grad is not None}


@pytest.mark.sampled(7)
@pytest.mark.parametrize(("family", "end", "number"), CASES)
def test_outputs_losses_gradients_and_bytes_are_equal(
    family: str, end: str, number: int, tmp_path: Path
) -> None:
    model, folder = publish(tmp_path / "published", family, end, number)
    loaded = plmctl.load(folder)
    assert not loaded.source.unused
    convert(folder, tmp_path / "ours", to="plmctl")
    convert(tmp_path / "ours", tmp_path / "back", to="hf")
    first, last = (load_file(tmp_path / one / "model.safetensors") for one in ("published", "back"))
    assert first.keys() <= last.keys()
    for name, tensor in first.items():
        if name.removesuffix("bias") + "decoder.bias" in first:
            continue  # untied: the published class reads the other one
        rows = 2 if "position_embeddings" in name and family in FROM_TWO else 0
        assert last[name][rows:].equal(tensor[rows:]), name
    _, info = type(model).from_pretrained(tmp_path / "back", output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    double = {} if family in IN_FP32 else {torch.float64: 1e-12}
    for dtype, within in {torch.float32: 1e-5, **double}.items():
        loaded.model.to(dtype), model.to(dtype)
        compare(model, loaded, ENDS[end], within)


@torch.no_grad()
def test_a_model_of_one_segment_reads_rows_of_two(tmp_path: Path) -> None:
    _, folder = publish(tmp_path / "published", "XLMRoberta", "Model", 1)
    model, (ids, real) = plmctl.load(folder).model, draw_inputs([9, 4])
    segment = (torch.arange(9) > 3).long().expand(2, 9)
    found, wanted = (
        model(Batch(torch.arange(2), {"text": Seq(ids, real.sum(1), tracks)})).last
        for tracks in ({"segment": segment}, {})
    )
    assert found.equal(wanted)


def test_a_published_mpnet_goes_on_with_its_own_objective(tmp_path: Path) -> None:
    model, folder = publish(tmp_path / "published", "MPNet", "ForMaskedLM", 2)
    words = [
        "the",
        "cat",
        "sat",
        "on",
        "mat",
        "dog",
        "ran",
        "over",
        "hill",
        "and",
        "looked",
        "at",
        "it",
        ".",
    ]
    tokens = ["<s>", "<pad>", "</s>", "<unk>", "[UNK]", *words]
    tokens += [f"[unused{n}]" for n in range(39 - len(tokens))]
    (folder / "vocab.txt").write_text("\n".join([*tokens, "<mask>"]) + "\n", encoding="utf-8")
    text = tmp_path / "text.txt"
    text.write_text("the cat sat on the mat . the dog ran over the hill .\n" * 20, encoding="utf-8")
    train = ["train.steps=1", "train.batch_size=2", "format.max_length=24", "eval.rows=2"]
    run_words(
        "pretrain",
        "mpnet",
        f"init={folder}",
        f"data.path={text}",
        *train,
        f"run.dir={tmp_path / 'run'}",
    )
    run_words("convert", str(tmp_path / "run"), "--to", "hf", "--out", str(tmp_path / "back"))
    again = transformers.MPNetForMaskedLM.from_pretrained(tmp_path / "back")
    moved = [
        name
        for name, tensor in model.state_dict().items()
        if not again.state_dict()[name].equal(tensor)
    ]
    assert "mpnet.encoder.relative_attention_bias.weight" in moved
