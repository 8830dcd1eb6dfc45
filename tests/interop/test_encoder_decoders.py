"""BART, Marian and T5 against `transformers`, in both directions: states, logits, tables, what
cannot be exported.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.testing import assert_close

import plmctl
from plmctl.artifacts.convert import convert
from plmctl.artifacts.model_facts import reading
from plmctl.core.batch import Batch, Seq
from plmctl.core.errors import ConfigError
from plmctl.interop import hf

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.parity

# lengths of sources and targets
ENDS = {"unpadded": ([9, 9], [7, 7]), "padded": ([9, 4, 6], [7, 5, 1])}
GATED = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
MEMBERS: dict[str, tuple[str, dict[str, Any]]] = {
    "bart": ("BartForConditionalGeneration", {}),
    "bart-untied": ("BartForConditionalGeneration", {"tie_word_embeddings": False}),
    "bart-scaled": ("BartForConditionalGeneration", {"scale_embedding": True, "decoder_layers": 1}),
    "bart-bare": ("BartModel", {}),
    "bart-bare-untied": ("BartModel", {"tie_word_embeddings": False}),
    "bart-span": ("BartForQuestionAnswering", {}),
    "marian": ("MarianMTModel", {"scale_embedding": True, "activation_function": "swish"}),
    "marian-bare": ("MarianModel", {}),
    "mbart-bare": ("MBartModel", {}),
    "mbart-span": ("MBartForQuestionAnswering", {}),
    "t5": ("T5ForConditionalGeneration", {}),
    "t5-1.1": ("T5ForConditionalGeneration", GATED),
    "t5-narrow": (
        "T5ForConditionalGeneration",
        {"d_kv": 5, "relative_attention_num_buckets": 8, "num_decoder_layers": 1},
    ),
    "t5-bare": ("T5Model", GATED),
    "t5-span": ("T5ForQuestionAnswering", {}),
}


def inputs(sources: list[int], targets: list[int]) -> Batch:
    generator = torch.Generator().manual_seed(2)

    def seq(length: list[int]) -> Seq:
        ids = torch.randint(3, 40, (len(length), max(length)), generator=generator)
        return Seq(ids, torch.tensor(length), full=len(set(length)) == 1)

    return Batch(torch.arange(len(sources)), {"source": seq(sources), "target": seq(targets)})


@torch.no_grad()
def ours(loaded: plmctl.Loaded, batch: Batch) -> dict[str, Tensor]:
    hidden, heads = loaded.model(batch, record=frozenset({"hidden", "source"})), loaded.model.heads
    found = {f"hidden_{i}": state for i, state in enumerate(hidden.recorded["hidden"])}
    found |= {f"source_{i}": state for i, state in enumerate(hidden.recorded["source"])}
    found |= {"seq2seq": heads["seq2seq"](hidden.last)} if "seq2seq" in heads else {}
    return found | ({"span": heads["span"](hidden.last)} if "span" in heads else {})


@torch.no_grad()
def theirs(model: Any, batch: Batch) -> dict[str, Tensor]:
    source, target, start = (
        batch.seqs["source"],
        batch.seqs["target"],
        model.config.decoder_start_token_id,
    )
    read = torch.cat([torch.full_like(target.ids[:, :1], start), target.ids[:, :-1]], 1)
    extra = {
        "attention_mask": source.real.long(),
        "decoder_attention_mask": target.real.long(),
        "output_hidden_states": True,
    }
    out = model(source.ids, decoder_input_ids=read, **extra)
    found = {f"hidden_{i}": state for i, state in enumerate(out.decoder_hidden_states)}
    found |= {f"source_{i}": state for i, state in enumerate(out.encoder_hidden_states)}
    found |= (
        {"span": torch.stack([out.start_logits, out.end_logits], -1)}
        if "start_logits" in out
        else {}
    )
    return found | ({"seq2seq": out.logits} if "logits" in out else {})


def assert_agrees(
    found: dict[str, Tensor], wanted: dict[str, Tensor], batch: Batch, tolerance: float = 1e-5
) -> None:
    """Of values of size 1, and of larger ones (logits by T5's tables) in proportion."""
    for name, value in wanted.items():
        real = batch.seqs["source" if name.startswith("source") else "target"].real
        largest = max(1.0, value[real].abs().max().item())
        assert_close(found[name][real], value[real], atol=tolerance * largest, rtol=0)


class Double(torch.overrides.TorchFunctionMode):
    """T5 of `transformers` takes softmax and norm in fp32 whatever its type; here "float" is
    float64.
    """

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if function is torch.Tensor.float:
            return args[0].double()
        if function is torch.Tensor.to:
            args = [torch.float64 if value is torch.float32 else value for value in args]
        return function(*args, **(kwargs or {}))


def same_sinusoids(loaded: plmctl.Loaded, model: Any) -> None:
    """Marian's are a table in fp32, ours are made in fp32: alike to 1e-7 only."""
    if "Marian" not in type(model).__name__:
        return
    whole = getattr(model, "model", model)
    for end, position in (
        (whole.encoder, loaded.model.backbone.encoder.position),
        (whole.decoder, loaded.model.backbone.decoder.position),
    ):
        weight = end.embed_positions.weight
        weight.data = position.embed(
            torch.zeros_like(weight)[None], torch.arange(len(weight))[None]
        )[0]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("lengths", ENDS.values(), ids=ENDS)
@pytest.mark.parametrize("member", MEMBERS)
def test_import_agrees(member: str, lengths: tuple[list[int], list[int]], published) -> None:
    name, changes = MEMBERS[member]
    model, folder = published(name, **changes)
    loaded, batch = plmctl.load(folder), inputs(*lengths)
    assert not loaded.source.unused
    assert_agrees(ours(loaded, batch), theirs(model, batch), batch)
    loaded.model.double(), model.double()
    same_sinusoids(loaded, model)
    with Double():
        wanted = theirs(model, batch)
    assert_agrees(ours(loaded, batch), wanted, batch, 1e-10)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("member", MEMBERS)
def test_there_and_back(member: str, published, tmp_path: Path) -> None:
    """Published -> plmctl -> published -> plmctl: `transformers` reads the same model, and our
    tensors are the same bits.
    """
    name, changes = MEMBERS[member]
    model, folder = published(name, **changes)
    for place, (start, to) in {
        "a": (folder, "plmctl"),
        "b": (tmp_path / "a", "hf"),
        "c": (tmp_path / "b", "plmctl"),
    }.items():
        convert(start, tmp_path / place, to=to)
    again, info = getattr(transformers, name).from_pretrained(
        tmp_path / "b", output_loading_info=True
    )
    assert not [
        key for key in info["missing_keys"] if "Marian" not in name or "embed_positions" not in key
    ]
    assert not info["unexpected_keys"]
    untied = changes.get("tie_word_embeddings") is False and name.startswith("Bart")
    for key, tensor in model.state_dict().items():
        same = tensor.clone()
        if "embed_positions" in key and name.startswith(("Bart", "MBart")):
            same[:2] = 0  # the two rows that no token uses
        never_read = untied and key.endswith("shared.weight")
        if not never_read and not ("Marian" in name and "embed_positions" in key):  # sinusoids
            assert again.state_dict()[key].equal(same), key
    first, last = (load_file(tmp_path / place / "model.safetensors") for place in "ac")
    assert first.keys() == last.keys()
    assert all(first[key].equal(last[key]) for key in first)
    # a table of both ends is stored once
    assert ("backbone.decoder.embedding.token.weight" in first) == untied
    assert (tmp_path / "a/config.yaml").read_text() == (tmp_path / "c/config.yaml").read_text()
    settings = json.loads((tmp_path / "b/config.json").read_text())
    assert settings["decoder_start_token_id"] == model.config.decoder_start_token_id


def classified(loaded: plmctl.Loaded, model: Any) -> tuple[Tensor, Tensor]:
    """(ours, theirs) of rows of unlike length that end in `</s>`: what stands for a row is the
    state that predicts it.
    """
    ids, length = (
        torch.randint(3, 40, (3, 8), generator=torch.Generator().manual_seed(4)),
        torch.tensor([8, 5, 3]),
    )
    row = torch.arange(3)
    ids[row, length - 1] = model.config.eos_token_id
    text = Seq(ids, length)
    ids.masked_fill_(~text.real, model.config.pad_token_id)
    head = next(iter(loaded.model.heads.values()))
    with torch.no_grad():
        found = head(loaded.model(Batch(row, {"text": text})).last[row, length - 1])
        return found, model(ids, attention_mask=text.real.long()).logits


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    ("name", "changes"), [("Bart", {}), ("T5", {}), ("T5", GATED), ("MBart", {}), ("MT5", GATED)]
)
@pytest.mark.parametrize("outputs", [3, 1])
def test_a_classifier_reads_the_last_state(
    name: str, changes: dict[str, Any], outputs: int, published, tmp_path: Path
) -> None:
    name += "ForSequenceClassification"
    model, folder = published(name, num_labels=outputs, **changes)
    convert(folder, tmp_path / "ours", to="plmctl")
    convert(tmp_path / "ours", tmp_path / "hf", to="hf")
    again, info = getattr(transformers, name).from_pretrained(
        tmp_path / "hf", output_loading_info=True
    )
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    assert all(
        again.state_dict()[key].equal(value)
        for key, value in model.state_dict().items()
        if "positions" not in key
    )
    again.eval()
    for place in (folder, tmp_path / "hf"):
        loaded = plmctl.load(place)
        assert list(loaded.model.heads) == ["class" if outputs > 1 else "score"]
        assert reading(loaded.config)["pooling"] == "last"  # which `classified` reads
        for one in (model, again):
            assert_close(*classified(loaded, one.float()), atol=1e-5, rtol=1e-5)
        loaded.model.double()
        for one in (model, again):
            with Double():
                assert_close(*classified(loaded, one.double()), atol=1e-10, rtol=1e-10)


def test_a_classifier_of_another_state_has_no_class(published) -> None:
    source = plmctl.load(published("T5ForSequenceClassification", num_labels=3)[1]).source
    hf.export(source.config, source.tensors, pad=0)
    source.config["model"]["classifier"]["pooling"] = None
    with pytest.raises(ConfigError, match=r"classifier.pooling=first \(published: last\)"):
        hf.export(source.config, source.tensors, pad=0)


@pytest.mark.parametrize(("end", "lines"), [(3, 0), (2, 1)])
def test_a_classifier_whose_token_the_tokenizer_does_not_write(
    end: int, lines: int, published, with_tokenizer, caplog: pytest.LogCaptureFixture
) -> None:
    """[SEP] of this tokenizer is 3."""
    name = "BartForSequenceClassification"
    _, folder = published(name, num_labels=3, eos_token_id=end)
    assert plmctl.load(with_tokenizer(folder)).vocab.eos == 3
    told = [line for line in caplog.messages if "classifier reads the token 2 (eos" in line]
    assert len(told) == lines


def _with(folder: Path, tensors: dict[str, Tensor], **settings: Any) -> None:
    """Other tensors and settings in a published folder."""
    save_file(
        {**load_file(folder / "model.safetensors"), **tensors},
        folder / "model.safetensors",
        {"format": "pt"},
    )
    found = json.loads((folder / "config.json").read_text()) | settings
    (folder / "config.json").write_text(
        json.dumps({key: value for key, value in found.items() if value is not None})
    )


def _again(name: str, folder: Path, tmp_path: Path) -> Iterator[Any]:
    """The published model, and what it is after import and export."""
    convert(folder, tmp_path / "ours", to="plmctl")
    convert(tmp_path / "ours", tmp_path / "hf", to="hf")
    for place in (folder, tmp_path / "hf"):
        yield getattr(transformers, name).from_pretrained(place).eval()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["BartForConditionalGeneration", "MarianMTModel"])
def test_a_bias_of_the_output_is_carried(name: str, published, tmp_path: Path) -> None:
    _, folder = published(name)
    bias = torch.randn(1, 40, generator=torch.Generator().manual_seed(3))
    assert plmctl.load(folder).model.heads["seq2seq"].bias is None  # it is all zeros
    _with(folder, {"final_logits_bias": bias})
    batch = inputs(*ENDS["padded"])
    for model in _again(name, folder, tmp_path):
        assert model.final_logits_bias.equal(bias)
        assert_agrees(ours(plmctl.load(tmp_path / "ours"), batch), theirs(model, batch), batch)


def test_an_output_table_of_its_own_is_carried(published, tmp_path: Path) -> None:
    """T5 1.1 as it was released: `tie_word_embeddings` is false, and the file has `lm_head`."""
    name = "T5ForConditionalGeneration"
    _, folder = published(name, **GATED)
    table = torch.randn(40, 16, generator=torch.Generator().manual_seed(3))
    _with(folder, {"lm_head.weight": table}, tie_word_embeddings=False, scale_decoder_outputs=None)
    batch = inputs(*ENDS["padded"])
    for model in _again(name, folder, tmp_path):
        assert model.lm_head.weight.equal(table)
        assert_agrees(ours(plmctl.load(tmp_path / "ours"), batch), theirs(model, batch), batch)
    assert json.loads((tmp_path / "hf/config.json").read_text())["tie_word_embeddings"] is False
    config = plmctl.load(tmp_path / "ours").config
    config["heads"]["seq2seq"]["scaled"] = True  # nothing in config.json would say so
    with pytest.raises(ConfigError, match=r"heads\.seq2seq\.scaled=True \(published: False\)"):
        hf.export(config, plmctl.load(tmp_path / "ours").source.tensors)


@pytest.mark.parametrize("name", ["BartForConditionalGeneration", "GPT2LMHeadModel"])
def test_a_head_without_tensors_may_stand_on_bare_names(name: str, published) -> None:
    """As released: gpt2 says GPT2LMHeadModel, and its file has the names of GPT2Model."""
    _, folder = published(name)
    found = plmctl.load(folder).source
    prefix = "model." if name.startswith("Bart") else "transformer."
    tensors = {
        key.removeprefix(prefix): value
        for key, value in load_file(folder / "model.safetensors").items()
    }
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    bare = plmctl.load(folder).source
    assert (bare.config, bare.unused) == (found.config, found.unused)
    assert all(tensor.equal(bare.tensors[key]) for key, tensor in found.tensors.items())


def test_aliases_of_old_files_are_one_table(published) -> None:
    """pytorch_model.bin of the first releases names the table of tokens four times."""
    for name, prefix in (
        ("BartForConditionalGeneration", "model."),
        ("T5ForConditionalGeneration", ""),
    ):
        _, folder = published(name, name)
        before = plmctl.load(folder).source
        table = before.tensors["backbone.encoder.embedding.token.weight"]
        ends = [f"{prefix}{end}.embed_tokens.weight" for end in ("encoder", "decoder")]
        _with(folder, {key: table.clone() for key in [*ends, "lm_head.weight"]})
        after = plmctl.load(folder).source
        assert (after.config, after.unused) == (before.config, [])
        assert after.tensors.keys() == before.tensors.keys()


def test_missing_layers_are_named_for_each_stack(published) -> None:
    _, folder = published("BartModel")
    _with(folder, {}, encoder_layers=3, decoder_layers=4)
    with pytest.raises(
        plmctl.core.errors.DataError, match=r"encoder\.layers\.2.*decoder\.layers\.3"
    ) as caught:
        plmctl.load(folder)
    assert "encoder.layers.3" not in str(caught.value)
