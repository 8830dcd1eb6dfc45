"""Families of translation, summarization and dialogue against `transformers`, each in odd
configurations: outputs, losses, gradients, weights there and back, texts by the cache.
"""

from __future__ import annotations

import json
import random
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.testing import assert_close

import plmctl
from plmctl.artifacts.loading import open_source
from plmctl.core.batch import Batch, Seq
from plmctl.core.errors import UsageError
from plmctl.generation.decode import generate
from plmctl.generation.greedy import Greedy
from plmctl.interop import hf
from plmctl.interop.names import to_theirs
from plmctl.runs.contract.stand_in import TINY
from tests.interop.test_encoder_decoders import Double

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.parity

ACTIVATIONS = ("gelu", "relu", "silu", "gelu_new", "tanh")
FAMILIES = {
    "mbart": ("MBart", {"pad_token_id": 1}),
    "pegasus": ("Pegasus", {"pad_token_id": 0}),
    "m2m_100": ("M2M100", {"pad_token_id": 1}),
    "blenderbot-small": ("BlenderbotSmall", {"pad_token_id": 0}),
    "bigbird_pegasus": ("BigBirdPegasus", {"pad_token_id": 0}),
    "mt5": ("MT5", {"pad_token_id": 0}),
    "umt5": ("UMT5", {"pad_token_id": 0}),
}
T5S = ("mt5", "umt5")


def draw_settings(family: str, number: int) -> dict[str, Any]:
    """An odd configuration, the same one for each number."""
    draw = random.Random(f"{family} {number}")
    if family in T5S:
        gate = ("", "gated-")[number % 2]
        return {
            "vocab_size": draw.choice((37, 41, 53)),
            "d_model": draw.choice((12, 16, 24)),
            "d_kv": draw.choice((5, 8)),
            "d_ff": draw.choice((7, 20, 33)),
            "num_layers": draw.randint(1, 3),
            "num_decoder_layers": draw.randint(1, 3),
            "num_heads": draw.choice((2, 3)),
            "relative_attention_num_buckets": draw.choice((4, 8, 16)),
            "relative_attention_max_distance": draw.choice((9, 20)),
            "feed_forward_proj": gate + draw.choice(ACTIVATIONS),
            "decoder_start_token_id": draw.choice((0, 2, 7)),
        } | FAMILIES[family][1]
    blocks = {"attention_type": "block_sparse", "block_size": 4, "num_random_blocks": 1}
    sparse = {0: {"attention_type": "original_full"}, 1: blocks | {"use_bias": True}, 2: blocks}
    more = sparse[number] if family == "bigbird_pegasus" else {}
    return (
        more
        | {
            "vocab_size": draw.choice((37, 41, 53)),
            "d_model": draw.choice((12, 16, 24)),
            "encoder_layers": draw.randint(1, 3),
            "decoder_layers": draw.randint(1, 3),
            "encoder_attention_heads": draw.choice((1, 2, 4)),
            "decoder_attention_heads": draw.choice((1, 2, 4)),
            "encoder_ffn_dim": draw.choice((7, 20, 33)),
            "decoder_ffn_dim": draw.choice((5, 24)),
            "max_position_embeddings": 14,
            "activation_function": draw.choice(ACTIVATIONS),
            "scale_embedding": bool(number % 2),
            "tie_word_embeddings": number != 1,
            "decoder_start_token_id": draw.choice((0, 2, 7)),
        }
        | FAMILIES[family][1]
    )


def make(family: str, number: int, end: str = "ForConditionalGeneration") -> Any:
    """The published model with random weights, none of them the one it starts with."""
    kind = FAMILIES[family][0]
    torch.manual_seed(number + 10)
    config = getattr(transformers, f"{kind}Config")(**draw_settings(family, number))
    model = getattr(transformers, kind + end)(config).eval()
    with torch.no_grad():
        for parameter in [one for one in model.parameters() if one.requires_grad]:
            parameter.add_(0.1 * torch.randn_like(parameter))
        if hasattr(model, "final_logits_bias") and number == 2:
            model.final_logits_bias.normal_()
        if family == "mt5" and number == 1 and hasattr(model, "lm_head"):  # as in published files
            model.lm_head.weight = torch.nn.Parameter(torch.randn_like(model.lm_head.weight))
    return model


def publish(model: Any, folder: Path) -> Path:
    """The folder that `save_pretrained` writes; a table of its own stays."""
    model.save_pretrained(folder)
    head, shared = getattr(model, "lm_head", None), model.get_input_embeddings().weight
    if head is not None and not head.weight.equal(shared):
        file = folder / "model.safetensors"
        tensors = load_file(file) | {"lm_head.weight": head.weight.detach().clone()}
        save_file(tensors, file, {"format": "pt"})
    return folder


def rows(model: Any) -> tuple[Batch, Tensor, Tensor]:
    """(a batch with padding, the mask of its sources, the labels)."""
    generator = torch.Generator().manual_seed(3)
    source, target = torch.tensor([9, 4, 6]), torch.tensor([7, 5, 1])
    ids = torch.randint(3, 37, (3, 9), generator=generator)
    labels = torch.randint(3, 37, (3, 7), generator=generator)
    batch = Batch(torch.arange(3), {"source": Seq(ids, source), "target": Seq(labels, target)})
    mask = batch.seqs["source"].real.long()
    ids.masked_fill_(mask == 0, model.config.pad_token_id)
    return batch, mask, labels.masked_fill(~batch.seqs["target"].real, -100)


def assert_equal(found: Tensor, wanted: Tensor, tolerance: float) -> None:
    """Values of size 1, and larger ones in proportion."""
    largest = max(1.0, wanted.abs().max().item())
    assert_close(found, wanted, atol=tolerance * largest, rtol=0)


def same_sinusoids(loaded: plmctl.Loaded, model: Any) -> None:
    """Tables of theirs in the numbers of ours, which agree with theirs to 1e-7 only."""
    whole = getattr(model, "model", model)
    for end in ("encoder", "decoder"):
        theirs = getattr(getattr(whole, end), "embed_positions", None)
        position = getattr(loaded.model.backbone, end).position
        if not hasattr(position, "waves"):
            continue
        table = theirs.weight if hasattr(theirs, "weight") else theirs.weights
        first = position.first
        table.data[first:] = position.waves(torch.arange(len(table) - first)).to(table)


def compare(model: Any, loaded: plmctl.Loaded, tolerance: float, how: Any = nullcontext) -> None:
    """Outputs, the loss and the gradients of all weights; `how`: around theirs."""
    batch, mask, labels = rows(model)
    read = loaded.model.backbone._previous(batch.seqs["target"]).ids
    with how():
        out = model(batch.seqs["source"].ids, attention_mask=mask, decoder_input_ids=read)
    real = labels != -100
    states = loaded.model(batch).last
    if "seq2seq" not in loaded.model.heads:
        assert_equal(states[real], out.last_hidden_state[real], tolerance)
        return
    logits = loaded.model.heads["seq2seq"](states)
    assert_equal(logits[real], out.logits[real], tolerance)
    losses = [
        torch.nn.functional.cross_entropy(one[real], labels[real]) for one in (logits, out.logits)
    ]
    assert_equal(*losses, tolerance)
    for model_, loss in zip((loaded.model, model), losses, strict=True):
        model_.zero_grad()
        loss.backward()
    compare_gradients(loaded, model, tolerance)


def compare_gradients(loaded: plmctl.Loaded, model: Any, tolerance: float) -> None:
    """The gradients of ours under their names; no table of theirs is left out."""
    family = next(f for f in hf.FAMILIES if f.model_type == model.config.model_type)
    own = {name: p.grad for name, p in loaded.model.named_parameters() if p.grad is not None}
    size, pad = model.config.vocab_size, model.config.pad_token_id
    numbers = family.measure(loaded.config, loaded.source.tensors, model.config.pad_token_id)
    architecture = next(a for a in family.architectures if a.name == type(model).__name__)
    found, left = to_theirs(own, family.table(numbers, architecture))
    assert not left
    wanted = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    shared = f"{family.prefix}shared.weight"
    tables = {name for name in wanted if "embed_tokens" in name or "lm_head" in name}
    for name in wanted.keys() - tables - {shared}:
        assert_equal(found[name], wanted[name], tolerance)
    if model.config.tie_word_embeddings:  # theirs leaves out the row of the padding
        read = torch.arange(size) != pad
        assert_equal(found[shared][:size][read], wanted[shared][read], tolerance)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("family", FAMILIES)
def test_outputs_losses_and_gradients_agree(family: str, number: int, tmp_path: Path) -> None:
    model = make(family, number)
    loaded = plmctl.load(publish(model, tmp_path))
    assert not loaded.source.unused
    assert loaded.model.backbone.start == model.config.decoder_start_token_id
    compare(model, loaded, 1e-5)
    loaded.model.double(), model.double()
    same_sinusoids(loaded, model)
    compare(model, loaded, 1e-12, Double)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("family", FAMILIES)
def test_weights_come_back_and_texts_are_the_same(family: str, number: int, tmp_path: Path) -> None:
    """Published -> ours -> published: `transformers` reads the same numbers, and what it writes
    token by token from the same start is what we write.
    """
    model = make(family, number)
    model.generation_config.forced_bos_token_id = 5 if number else None
    publish(model, tmp_path / "a")
    found = hf.read(tmp_path / "a")
    exported = hf.export(found.config, found.tensors)
    assert exported.architecture == type(model).__name__
    assert [line for line in exported.left_out if "random blocks" not in line] == []
    hf.write(tmp_path / "b", exported, tokens={})
    again, info = type(model).from_pretrained(tmp_path / "b", output_loading_info=True)
    assert not [key for key in info["missing_keys"] if "embed_positions" not in key]
    assert not info["unexpected_keys"]
    untied = not model.config.tie_word_embeddings
    for key, tensor in model.state_dict().items():
        same = tensor.clone()
        if "embed_positions" in key and family == "mbart":
            same[:2] = 0  # the two rows that no token uses
        if not (untied and key.endswith("shared.weight")):  # which nothing reads
            assert again.state_dict()[key][: len(same)].equal(same), key  # sinusoids go on
    back = hf.read(tmp_path / "b")
    assert back.tensors.keys() == found.tensors.keys()
    assert all(back.tensors[key].equal(tensor) for key, tensor in found.tensors.items())
    assert back.config == found.config
    first, last = (json.loads((tmp_path / n / "config.json").read_text()) for n in "ab")
    learned = family in ("mbart", "blenderbot-small", "bigbird_pegasus")
    free = {"dtype", "tie_word_embeddings"} | (set() if learned else {"max_position_embeddings"})
    assert {k: v for k, v in last.items() if k in first.keys() - free}.items() <= first.items()
    compare_texts(again.eval(), plmctl.load(tmp_path / "b"))


@torch.no_grad()
def compare_texts(model: Any, loaded: plmctl.Loaded) -> None:
    """Greedy texts by the cache against those of `transformers`, and against reading them whole."""
    batch, mask, _ = rows(model)
    source = batch.seqs["source"]
    forced = model.generation_config.forced_bos_token_id
    how = {
        "do_sample": False,
        "use_cache": False,  # theirs fails with more layers in the decoder
        "num_beams": 1,
        "max_new_tokens": 6,
        "min_new_tokens": 6,
    }
    how |= {"eos_token_id": None, "forced_eos_token_id": None, "forced_bos_token_id": forced}
    wanted = model.generate(source.ids, attention_mask=mask, **how)
    opening = [model.config.decoder_start_token_id, *([] if forced is None else [forced])]
    found = generate(
        loaded.model,
        Batch(batch.key, {"source": source}),
        vocab=replace(TINY, eos=None, size=model.config.vocab_size),
        search=Greedy(),
        max_new=7 - len(opening),
    )
    texts = torch.tensor([[*opening, *texts[0].ids] for texts in found])
    assert texts.equal(wanted)
    target = Seq(texts[:, 1:], torch.full((3,), texts.shape[1] - 1), full=True)
    states = loaded.model(Batch(batch.key, {"source": source, "target": target})).last
    best = loaded.model.heads["seq2seq"](states).argmax(-1)
    assert best[:, len(opening) - 1 :].equal(texts[:, len(opening) :])


def test_a_target_begins_with_its_language(tmp_path: Path) -> None:
    """mBART's first input is the last token of each target: the losses are the same, and packed
    targets begin with their own.
    """
    model = make("mbart", 0)
    model.config.decoder_start_token_id = None
    model.generation_config.decoder_start_token_id = None
    loaded = plmctl.load(publish(model, tmp_path))
    assert loaded.config["model"]["start"] == "last"
    batch, mask, labels = rows(model)
    states = loaded.model(batch).last
    logits, real = loaded.model.heads["seq2seq"](states), labels != -100
    found = torch.nn.functional.cross_entropy(logits[real], labels[real])
    wanted = model(batch.seqs["source"].ids, attention_mask=mask, labels=labels)
    assert_equal(found, wanted.loss, 1e-5)
    ids, document = torch.tensor([[3, 4, 9, 5, 8, 1]]), torch.tensor([[0, 0, 0, 1, 1, 0]])
    packed = Seq(ids, torch.tensor([5]), {"document": document})
    assert loaded.model.backbone._previous(packed).ids[0, :5].tolist() == [9, 3, 4, 8, 5]
    exported = hf.export(loaded.config, loaded.source.tensors)
    assert exported.settings["decoder_start_token_id"] is None
    with pytest.raises(UsageError, match="target_language=TOKEN"):
        generate(loaded.model, batch, vocab=TINY, search=Greedy(), max_new=2)
    texts = generate(loaded.model, batch, vocab=TINY, search=Greedy(), max_new=2, opening=[7])
    read = torch.tensor([[7], [7], [7]])
    first = model(batch.seqs["source"].ids, attention_mask=mask, decoder_input_ids=read)
    assert [text[0].ids[0] for text in texts] == first.logits[:, 0].argmax(-1).tolist()


def test_some_layers_of_a_model_keep_their_tables(tmp_path: Path) -> None:
    """umT5 with some of its layers: each keeps its own table of relative positions."""
    publish(make("umt5", 1), tmp_path)
    whole, kept = open_source(tmp_path), open_source(tmp_path, {"decoder": [0, 2]})
    name = "backbone.decoder.position.by_layer.{}.table.weight"
    assert kept.tensors[name.format(1)].equal(whole.tensors[name.format(2)])
    assert name.format(2) not in kept.tensors
    assert kept.config["model"]["decoder"]["position"]["num_layers"] == 2
    lower = name.replace("decoder", "encoder").format(0)
    assert kept.tensors[lower].equal(whole.tensors[lower])
