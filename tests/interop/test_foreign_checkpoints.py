"""fairseq's and Google's checkpoints: each holds the tensors of a published folder under its own
names, and nothing of a pickle is run.
"""

from __future__ import annotations

import json
import os
import re
import struct
import sys
import types
from argparse import Namespace
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from plmctl.artifacts.convert import convert
from plmctl.artifacts.loading import load, open_source
from plmctl.core.errors import DataError
from plmctl.interop.pickled import read_pickled
from plmctl.interop.tensor_bundle import Bundle
from plmctl.storage.crc32c import crc32c
from plmctl.text.tokenizer import Tokenizer
from tests.interop.publishing import publish

Names = Iterable[tuple[str, str]]


def same(folder: Path, wanted: Path) -> None:
    """The tensors of one folder are those of the other."""
    found, known = open_source(folder), open_source(wanted)
    assert found.tensors.keys() == known.tensors.keys()
    assert all(found.tensors[name].equal(tensor) for name, tensor in known.tensors.items())
    for part in ("size", "model", "position"):
        assert found.config[part] == known.config[part]


# fairseq

ROBERTA: Names = (
    (r"^roberta\.encoder\.layer\.", "E.sentence_encoder.layers."),
    (r"^roberta\.embeddings\.word_embeddings", "E.sentence_encoder.embed_tokens"),
    (r"^roberta\.embeddings\.position_embeddings", "E.sentence_encoder.embed_positions"),
    (r"^roberta\.embeddings\.LayerNorm", "E.sentence_encoder.NORM"),
    (r"attention\.self\.(q|k|v)[a-z]+\.", r"self_attn.\1_proj."),
    (r"attention\.output\.dense", "self_attn.out_proj"),
    (r"attention\.output\.LayerNorm", "self_attn_layer_norm"),
    (r"intermediate\.dense", "fc1"),
    (r"output\.dense", "fc2"),
    (r"output\.LayerNorm", "final_layer_norm"),
    (r"^lm_head\.decoder\.weight", "lm_head.weight"),
    (r"^lm_head", "E.lm_head"),
    (r"^classifier", "classification_heads.mnli"),
)


def spell(tensors: Mapping[str, Any], rules: Names) -> dict[str, Any]:
    spelled = {}
    for name, tensor in tensors.items():
        for pattern, new in rules:
            name = re.sub(pattern, new, name)
        spelled[name] = tensor
    return spelled


def fuse(tensors: dict[str, Any]) -> dict[str, Any]:
    """With `in_proj` instead of three maps."""
    fused = dict(tensors)
    for name in tensors:
        if ".q_proj." in name:
            parts = [fused.pop(name.replace(".q_proj.", f".{each}_proj.")) for each in "qkv"]
            fused[name.replace("q_proj.", "in_proj_")] = torch.cat(parts)
    return fused


@pytest.mark.parametrize("old", [True, False])
@pytest.mark.parametrize("name", ["RobertaForMaskedLM", "RobertaForSequenceClassification"])
def test_roberta_of_fairseq(old: bool, name: str, tmp_path: Path) -> None:
    model, wanted = publish(tmp_path / "wanted", name, num_labels=3)
    torch.nn.init.zeros_(model.roberta.embeddings.token_type_embeddings.weight)
    model.save_pretrained(wanted)
    end, norm = ("decoder", "emb_layer_norm") if old else ("encoder", "layernorm_embedding")
    rules = [
        (pattern, new.replace("E.", f"{end}.").replace("NORM", norm)) for pattern, new in ROBERTA
    ]
    tensors = {
        key: tensor
        for key, tensor in model.state_dict().items()
        if not key.endswith(("token_type_embeddings.weight", "lm_head.decoder.bias", "_ids"))
    }
    tensors = spell(tensors, rules)
    tensors |= {"decoder.version": torch.tensor([3.0]), "decoder._float_tensor": torch.zeros(1)}
    tensors = fuse(tensors) if old else tensors
    args = Namespace(encoder_attention_heads=2, activation_fn="gelu", dropout=0.1)
    saved = {"args": args, "model": OrderedDict(tensors), "last_optimizer_state": {"m": [1, 2]}}
    folder = tmp_path / "made"
    folder.mkdir()
    (folder / "dict.txt").write_text("".join(f"{n} 1\n" for n in range(35)))
    torch.save(saved, folder / "model.pt", _use_new_zipfile_serialization=not old)
    same(folder, wanted)
    convert(folder, tmp_path / "again", to="hf")
    assert open_source(tmp_path / "again").tensors.keys() == open_source(folder).tensors.keys()


@pytest.mark.parametrize("old", [True, False])
def test_bart_of_fairseq(old: bool, tmp_path: Path) -> None:
    changes = {"encoder_layers": 1, "decoder_layers": 2, "encoder_attention_heads": 4}
    model, wanted = publish(tmp_path / "wanted", "BartForConditionalGeneration", **changes)
    table = model.model.shared.weight.detach()
    tensors = {
        key.removeprefix("model."): tensor
        for key, tensor in model.state_dict().items()
        if key.startswith("model.") and "shared" not in key and "embed_tokens" not in key
    }
    tensors |= {f"{end}.embed_tokens.weight": table for end in ("encoder", "decoder")}
    tensors["decoder.output_projection.weight"] = table
    tensors["encoder.version"] = torch.tensor([3.0])
    heads = {"encoder_attention_heads": 4, "decoder_attention_heads": 4}
    content: dict[str, Any] = {"model": tensors}
    with pytest.MonkeyPatch.context() as patch:  # cfg of later versions, by omegaconf
        if old:
            content["args"] = Namespace(**heads, no_scale_embedding=True)
        else:
            content["cfg"] = imitate_omegaconf(heads, patch)
        folder = tmp_path / "made"
        folder.mkdir()
        torch.save(content, folder / "checkpoint_best.pt")
    (folder / "dict.txt").write_text("0 1\n")
    same(folder, wanted)


def imitate_omegaconf(values: Mapping[str, Any], patch: pytest.MonkeyPatch) -> Any:
    """{"model": values} as omegaconf pickles it: nodes with `_content` and `_val`."""
    module: Any = types.ModuleType("omegaconf.nodes")

    class Node:
        def __init__(self, **own: Any) -> None:
            vars(self).update(own)

    Node.__module__, Node.__qualname__ = module.__name__, "Node"
    module.Node = Node
    patch.setitem(sys.modules, "omegaconf.nodes", module)
    leaves = {key: Node(_val=value, _metadata=None) for key, value in values.items()}
    return Node(_content={"model": Node(_content=leaves)})


def test_the_words_of_fairseq_are_gpt2s_numbered_anew(tmp_path: Path) -> None:
    letters = [chr(n) for n in range(33, 127)] + ["Ġ"]
    ids = {token: n for n, token in enumerate([*letters, "th", "Ġth", "Ġthe"])}
    (tmp_path / "encoder.json").write_text(json.dumps(ids))
    (tmp_path / "vocab.bpe").write_text("#version: 0.2\nt h\nĠ th\nĠth e\n", encoding="utf-8")
    order = [*reversed(ids.values())]
    (tmp_path / "dict.txt").write_text("".join(f"{n} 7\n" for n in order) + "madeupword0000 0\n")
    tokenizer = Tokenizer.load(tmp_path)
    # " the", "m": 4 + their lines
    assert tokenizer.encode("a them") == [
        4 + order.index(ids[token]) for token in ("a", "Ġthe", "m")
    ]
    vocab = tokenizer.vocab
    assert (vocab.cls, vocab.pad, vocab.sep, vocab.mask) == (0, 1, 2, 4 + len(order) + 1)
    (tmp_path / "dict.txt").write_text("".join(f"{n} 7\n" for n in order[:-5]))
    with pytest.raises(DataError, match=r"dict\.txt: 5 tokens of encoder\.json have no line"):
        Tokenizer.load(tmp_path)
    (tmp_path / "vocab.bpe").unlink()
    with pytest.raises(DataError, match=r"fix: curl .*gpt2_bpe/vocab\.bpe"):
        Tokenizer.load(tmp_path)


class Touch:
    """Makes a folder where its pickle is executed."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.place),)


@pytest.mark.parametrize("zipped", [True, False])
def test_a_malicious_pickle_raises_and_does_nothing(zipped: bool, tmp_path: Path) -> None:
    trace, file = tmp_path / "trace", tmp_path / "model.pt"
    saved = {"args": Touch(trace), "model": {"a": torch.zeros(1)}}
    torch.save(saved, file, _use_new_zipfile_serialization=zipped)
    (tmp_path / "dict.txt").write_text("0 1\n")
    with pytest.raises(DataError, match=r"posix\.mkdir, and a pickle may run any code"):
        load(tmp_path)
    assert not trace.exists()
    torch.load(file, weights_only=False)  # the same file leaves its trace without care
    assert trace.exists()
    for code in (b"cos\nsystem\n(S'true'\ntR.", b"cbuiltins\neval\n(S'1'\ntR.", b""):
        file.write_bytes(code)
        with pytest.raises(DataError):
            read_pickled(file)


def read_all(file: Path) -> dict[str, torch.Tensor]:
    saved = read_pickled(file)
    return saved.read(saved.content)


@pytest.mark.parametrize("zipped", [True, False])
def test_views_of_storages_are_restored(zipped: bool, tmp_path: Path) -> None:
    whole = torch.arange(24.0).view(4, 6)
    tensors = {
        "transposed": whole.T,
        "part": whole[1:3, 2:5],
        "half": whole.half(),
        "one": torch.nn.Parameter(whole[0]),
        "none": torch.zeros(0, 3),
        "flag": torch.tensor(True),
    }
    torch.save(tensors, tmp_path / "a.pt", _use_new_zipfile_serialization=zipped)
    found = read_all(tmp_path / "a.pt")
    assert found.keys() == tensors.keys()
    assert all(found[name].equal(tensor.detach()) for name, tensor in tensors.items())
    content = (tmp_path / "a.pt").read_bytes()
    (tmp_path / "a.pt").write_bytes(content[: len(content) // 2])
    with pytest.raises(DataError, match=r"a\.pt"):
        read_all(tmp_path / "a.pt")


# TensorFlow


def test_the_checksum_is_that_of_the_standard() -> None:
    assert crc32c(b"123456789") == 0xE3069283  # RFC 3720, B.4
    assert crc32c(bytes(32)) == 0x8A9136AA
    assert crc32c(b"\xff" * 32) == 0x62A8AB43
    data = np.random.default_rng(0).integers(0, 256, 20_011, dtype=np.uint8).tobytes()
    for size in (0, 1, 65, 16_385, 20_011):
        value = 0xFFFFFFFF
        for byte in data[:size]:
            value ^= byte
            for _ in range(8):
                value = value >> 1 ^ 0x82F63B78 * (value & 1)
        assert crc32c(data[:size]) == value ^ 0xFFFFFFFF


def varint(value: int) -> bytes:
    return bytes([value & 127 | 128]) + varint(value >> 7) if value > 127 else bytes([value])


def masked(data: bytes) -> int:
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def block(entries: Mapping[bytes, bytes]) -> bytes:
    """A block of LevelDB with shared prefixes, its kind and its checksum."""
    out, last = b"", b""
    for key, value in entries.items():
        alike = [left == right for left, right in zip(last, key, strict=False)]
        shared = [*alike, False].index(False)
        out += (
            varint(shared) + varint(len(key) - shared) + varint(len(value)) + key[shared:] + value
        )
        last = key
    out += struct.pack("<II", 0, 1)
    return out + b"\0" + struct.pack("<I", masked(out + b"\0"))


def write_bundle(prefix: Path, variables: Mapping[str, np.ndarray]) -> None:
    """A checkpoint as the published format has it, with two blocks of entries."""
    data, entries = b"", {b"": b"\x08\x01\x1a\x02\x08\x01"}
    kinds = {"float32": 1, "float64": 2, "int32": 3, "int64": 9, "float16": 19}
    for name in sorted(variables):
        value = np.asarray(variables[name], order="C")
        raw = value.tobytes()
        sizes = b"".join(
            b"\x12" + varint(len(varint(size)) + 1) + b"\x08" + varint(size) for size in value.shape
        )
        entry = b"\x08" + varint(kinds[value.dtype.name]) + b"\x12" + varint(len(sizes)) + sizes
        entry += (b"\x20" + varint(len(data)) if data else b"") + b"\x28" + varint(len(raw))
        entries[name.encode()] = entry + b"\x35" + struct.pack("<I", masked(raw))
        data += raw
    index, handles = b"", {}
    keys = list(entries)
    for part in (keys[: len(keys) // 2], keys[len(keys) // 2 :]):
        made = block({key: entries[key] for key in part})
        handles[part[-1]] = varint(len(index)) + varint(len(made) - 5)
        index += made
    places = []
    for made in (block({}), block(handles)):
        places.append(varint(len(index)) + varint(len(made) - 5))
        index += made
    footer = b"".join(places).ljust(40, b"\0") + struct.pack("<Q", 0xDB4775248B80FB57)
    Path(f"{prefix}.index").write_bytes(index + footer)
    Path(f"{prefix}.data-00000-of-00001").write_bytes(data)


GOOGLE: dict[str, tuple[str, Names]] = {
    "BertForPreTraining": (
        "bert_config.json",
        (
            (r"^cls\.predictions\.bias", "cls.predictions.output_bias"),
            (r"^cls\.seq_relationship\.(weight|bias)", r"cls.seq_relationship.output_\1"),
        ),
    ),
    "BertForSequenceClassification": (
        "bert_config.json",
        ((r"^classifier\.(weight|bias)", r"output_\1"),),
    ),
    "AlbertForPreTraining": (
        "albert_config.json",
        (
            (r"^predictions\.bias", "cls.predictions.output_bias"),
            (r"^predictions", "cls.predictions.transform"),
            (r"^sop_classifier\.classifier\.(weight|bias)", r"cls.seq_relationship.output_\1"),
            (r"^albert\.pooler", "bert.pooler.dense"),
            (r"^albert\.", "bert."),
            (r"albert_layer_groups\.(\d)\.albert_layers\.(\d)", r"T.group_\1.inner_group_\2"),
            (r"attention\.(query|key|value)", r"attention_1.self.\1"),
            (r"attention\.dense", "attention_1.output.dense"),
            (r"attention\.LayerNorm", "LayerNorm"),
            (r"full_layer_layer_norm", "LayerNorm_1"),
            (r"ffn_output", "ffn_1.intermediate.output.dense"),
            (r"ffn\.", "ffn_1.intermediate.dense."),
            (r"\.T\.", ".transformer."),
        ),
    ),
    "ElectraForPreTraining": ("", ((r"dense_prediction", "dense_1"),)),
}


def as_variables(model: Any, rules: Names) -> dict[str, np.ndarray]:
    """The tensors of transformers by the names of Google's code; kernels are [in, out]."""
    variables = {}
    ties = ("decoder.weight", "decoder.bias", "_ids")
    for name, tensor in model.state_dict().items():
        if name.endswith(ties):
            continue
        ((name, value),) = spell({name: tensor.numpy()}, rules).items()
        name = re.sub(r"layer\.(\d+)", r"layer_\1", name).replace(".", "/")
        if "LayerNorm" in name:
            name = name.replace("/weight", "/gamma").replace("/bias", "/beta")
        elif name.endswith("_embeddings/weight"):
            name = name.removesuffix("/weight")
        elif name.endswith("output_weight"):
            name += "s"
        elif name.endswith("/weight"):
            name, value = name.replace("/weight", "/kernel"), value.T
        variables[name] = value
        variables[f"{name}/adam_m"] = np.zeros(1, np.float32)
    return variables | {"global_step": np.array(7, np.int64)}


@pytest.mark.parametrize("name", GOOGLE)
def test_googles_checkpoints(name: str, with_tokenizer: Any, tmp_path: Path) -> None:
    config, rules = GOOGLE[name]
    changes = {} if config else {"hidden_size": 64, "num_attention_heads": 1, "embedding_size": 8}
    model, wanted = publish(tmp_path / "wanted", name, **changes)
    folder = tmp_path / "made"
    folder.mkdir()
    with_tokenizer(folder)
    if config:
        stated = json.loads((wanted / "config.json").read_text())
        kept = {k: v for k, v in stated.items() if k not in ("model_type", "architectures")}
        (folder / config).write_text(json.dumps(kept))
    write_bundle(folder / "model.ckpt", as_variables(model, rules))
    same(folder, wanted)
    assert load(folder).vocab.size == 40
    data = folder / "model.ckpt.data-00000-of-00001"
    content = bytearray(data.read_bytes())
    content[len(content) // 2] ^= 1
    data.write_bytes(content)
    with pytest.raises(DataError, match=r"the checksum of .* is another"):
        open_source(folder)
    data.unlink()
    with pytest.raises(DataError, match=r"model.ckpt.data-00000-of-00001 is missing"):
        open_source(folder)


def test_heads_that_nothing_states_are_said_or_refused(
    with_tokenizer: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No shape says how many there are, and other numbers of heads give other states."""
    rules = GOOGLE["BertForPreTraining"][1]
    for width, heads in ((128, 2), (16, 2)):
        sizes = {"hidden_size": width, "num_attention_heads": heads}
        model, wanted = publish(tmp_path / f"wanted{width}", "BertForPreTraining", **sizes)
        folder = tmp_path / f"made{width}"
        folder.mkdir()
        with_tokenizer(folder)
        write_bundle(folder / "model.ckpt", as_variables(model, rules))
        if width == 128:
            same(folder, wanted)
            assert "2 heads of 64 columns, since no bert_config.json" in capsys.readouterr().err
            continue
        with pytest.raises(DataError, match="16 columns are no multiple of 64"):
            open_source(folder)


@pytest.mark.parametrize(("share", "said"), [(0, "it is empty"), (0.7, "it is cut off")])
def test_a_file_without_its_end_is_named(share: float, said: str, tmp_path: Path) -> None:
    torch.save({"model": {"x": torch.ones(100)}}, tmp_path / "whole.pt")
    content = (tmp_path / "whole.pt").read_bytes()
    (tmp_path / "part.pt").write_bytes(content[: int(share * len(content))])
    with pytest.raises(DataError, match=said):
        read_pickled(tmp_path / "part.pt")


def test_an_electra_and_its_generator_are_two_models(
    with_tokenizer: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A released checkpoint has both; they share the tables and their norm."""
    sizes: dict[str, Any] = {"embedding_size": 8, "hidden_size": 128, "num_attention_heads": 2}
    first, wanted = publish(tmp_path / "first", "ElectraForPreTraining", **sizes)
    sizes |= {"hidden_size": 64, "num_attention_heads": 1, "num_hidden_layers": 3}
    second, other = publish(tmp_path / "second", "ElectraForMaskedLM", **sizes)
    second.electra.embeddings = first.electra.embeddings
    second.tie_weights()
    second.save_pretrained(other)
    with_tokenizer(other)
    folder = tmp_path / "made"
    folder.mkdir()
    with_tokenizer(folder)
    variables = as_variables(first, GOOGLE["ElectraForPreTraining"][1])
    rules = ((r"^generator_lm_head\.bias", "generator_predictions.output_bias"),)
    for name, value in as_variables(second, (*rules, (r"^electra\.", "generator."))).items():
        if not name.startswith("generator/embeddings/"):
            variables[name] = value
    write_bundle(folder / "model.ckpt", variables)
    same(folder, wanted)
    assert "--part generator" in capsys.readouterr().err
    convert(folder, tmp_path / "generator", to="plmctl", part="generator")
    same(tmp_path / "generator", other)
    write_bundle(folder / "model.ckpt", as_variables(first, GOOGLE["ElectraForPreTraining"][1]))
    with pytest.raises(DataError, match="no generator of an ELECTRA"):
        convert(folder, tmp_path / "none", to="plmctl", part="generator")


def test_a_damaged_index_is_named(tmp_path: Path) -> None:
    values = {"a/b": np.arange(6, dtype=np.float32).reshape(2, 3), "a/c": np.array(3, np.int32)}
    write_bundle(tmp_path / "x", values)
    bundle = Bundle.open(tmp_path / "x.index")
    for name, value in values.items():
        assert bundle.read(name).equal(torch.from_numpy(value))
    content = (tmp_path / "x.index").read_bytes()
    for spoiled in (content[:-1], content[:30] + b"?" + content[31:], b"", bytes(60)):
        (tmp_path / "x.index").write_bytes(spoiled)
        with pytest.raises(DataError, match="no index of a TensorFlow checkpoint"):
            Bundle.open(tmp_path / "x.index")
