"""Folders of `sentence-transformers`: vectors by the formulas of its layers, and written again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.nn import functional as F

from plmctl.artifacts.convert import convert
from plmctl.artifacts.loading import Loaded, load
from plmctl.config.compose import compose
from plmctl.core.errors import ConfigError, DataError
from plmctl.runs.adapt import complete
from plmctl.runtime.eager import EagerRuntime
from plmctl.serve.errors import Refusal
from plmctl.serve.vectors import VectorEngine
from plmctl.training.device.precision import choose
from plmctl.use.embedding_lines import lay_out_lines
from plmctl.use.sentence_vectors import check_prompt, choose_pooling, embed_texts
from tests.interop.publishing import publish

TEXTS = ["The cat sat on the mat .", "the dog", "dogs ran , the cat sat . the dog ran"]
MODES = ("cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")
OLD = ("cls_token", "max_tokens", "mean_tokens", "mean_sqrt_len_tokens")
OLD = (*OLD, "weightedmean_tokens", "lasttoken")
ALL = "sentence_transformers.models."
NEW = "sentence_transformers.sentence_transformer.modules."


def write(file: Path, content: Any) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(content), encoding="utf-8")


def lay_out(
    folder: Path,
    with_tokenizer: Any,
    pooling: dict[str, Any],
    *,
    root: str = "",
    behind: tuple[str, ...] = (),
    prefix: str = ALL,
    **whole: Any,
) -> Any:
    """A folder as the library writes it, and the network in it."""
    model, place = publish(folder / root, "BertModel", max_position_embeddings=24)
    with_tokenizer(place)
    names = [("Transformer", root), ("Pooling", "1_Pooling")]
    names += [(name, f"{n}_{name}") for n, name in enumerate(behind, 2)]
    kinds = {"Pooling": "pooling.Pooling"} if prefix == NEW else {}
    modules = [
        {"idx": n, "name": str(n), "path": path, "type": prefix + kinds.get(name, name)}
        for n, (name, path) in enumerate(names)
    ]
    write(folder / "modules.json", modules)
    write(folder / "1_Pooling/config.json", pooling)
    write(place / "sentence_bert_config.json", {"max_seq_length": 10, "do_lower_case": False})
    if whole:
        write(folder / "config_sentence_transformers.json", whole)
    return model


def embed(loaded: Loaded, texts: list[str] = TEXTS, size: int = 2, *prompts: str) -> np.ndarray:
    pooling = choose_pooling(loaded, None, path="pooling")
    how: Any = {"batch_size": size, "precision": choose("fp32", torch.device("cpu"))}
    return embed_texts(loaded, texts, pooling, prompts=prompts, **how)


def states_of(loaded: Loaded, model: Any, text: str) -> torch.Tensor:
    """[T, W] by transformers, cut to 10 tokens as the folder says."""
    vocab, ids = loaded.vocab, loaded.tokenizer.encode(text)[:8]
    with torch.no_grad():
        return model(torch.tensor([[vocab.cls, *ids, vocab.sep]])).last_hidden_state[0]


def reduce(states: torch.Tensor, mode: str, start: int = 0) -> torch.Tensor:
    weights = torch.arange(1, len(states) + 1)[start:, None]
    some = states[start:]
    return {
        "cls": some[0],
        "max": some.max(0).values,
        "mean": some.mean(0),
        "mean_sqrt_len_tokens": some.sum(0) / len(some) ** 0.5,
        "weightedmean": (some * weights).sum(0) / weights.sum(),
        "lasttoken": some[-1],
    }[mode]


def test_old_and_new_keys_give_the_vectors_of_the_formulas(
    with_tokenizer: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    flags = {f"pooling_mode_{name}": True for name in OLD}
    old = {"word_embedding_dimension": 16, **flags}
    model = lay_out(tmp_path / "old", with_tokenizer, old, root="0_Transformer")
    new = {"embedding_dimension": 16, "pooling_mode": list(MODES)}
    lay_out(tmp_path / "new", with_tokenizer, new, prefix=NEW)
    first, second = load(tmp_path / "old"), load(tmp_path / "new")
    texts = [*TEXTS, ""]  # the library reads the special tokens of a blank text
    found = embed(first, texts)
    np.testing.assert_array_equal(found, embed(second, texts))
    # neither the batch nor its padding matters
    np.testing.assert_allclose(embed(first, texts[::-1], 3)[::-1], found, atol=1e-6)
    for text, vector in zip(texts, found, strict=True):
        states = states_of(first, model, text)
        wanted = torch.cat([reduce(states, mode) for mode in MODES])
        np.testing.assert_allclose(vector, wanted, atol=1e-5)
    lay_out_lines(enumerate(["the cat", " "], 1), first, "a.txt")
    line = "a.txt: 1 of 2 lines are blank; their vectors: read as the special tokens alone"
    assert caplog.messages[-1].startswith(line)


@pytest.mark.parametrize("include", [True, False])
def test_layers_prompts_and_lengths(include: bool, with_tokenizer: Any, tmp_path: Path) -> None:
    folder = tmp_path / "made"
    pooling = {"pooling_mode": "mean", "include_prompt": include}
    whole = {"prompts": {"query": "the cat . ", "passage": "on "}, "default_prompt_name": "query"}
    behind = ("Dense", "LayerNorm", "Normalize")
    model = lay_out(folder, with_tokenizer, pooling, behind=behind, truncate_dim=5, **whole)
    generator = torch.Generator().manual_seed(3)
    weight, bias = (torch.randn(*s, generator=generator) for s in ((6, 16), (6,)))
    norm, shift = (torch.randn(6, generator=generator) for _ in range(2))
    write(folder / "2_Dense/config.json", {"in_features": 16, "out_features": 6})
    save_file({"linear.weight": weight, "linear.bias": bias}, folder / "2_Dense/model.safetensors")
    write(folder / "3_LayerNorm/config.json", {"dimension": 6})
    torch.save({"norm.weight": norm, "norm.bias": shift}, folder / "3_LayerNorm/pytorch_model.bin")
    loaded = load(folder)

    def expect(text: str, prompt: str) -> torch.Tensor:
        start = 0 if include else 1 + len(loaded.tokenizer.encode(prompt))
        vector = reduce(states_of(loaded, model, prompt + text), "mean", start)
        vector = torch.tanh(F.linear(vector, weight, bias))
        return F.normalize(F.layer_norm(vector, [6], norm, shift), dim=-1)[:5]

    for prompts, prompt in (((), "the cat . "), (("document", "passage"), "on ")):
        found = embed(loaded, TEXTS, 2, *prompts)
        wanted = torch.stack([expect(text, prompt) for text in TEXTS])
        np.testing.assert_allclose(found, wanted, atol=1e-5)
    with pytest.raises(ConfigError, match=r"prompt='pasage': one of query, passage.*did you mean"):
        check_prompt(choose_pooling(loaded, None, path="pooling"), "pasage")
    engine = VectorEngine(
        loaded,
        choose_pooling(loaded, None, path="pooling"),
        precision=choose("fp32", torch.device("cpu")),
        runtime=EagerRuntime(),
        rows=4,
    )
    (served,) = engine.answer([item.content for item in engine.read(TEXTS[:1], prompt="passage")])
    np.testing.assert_allclose(served, F.normalize(expect(TEXTS[0], "on "), dim=0), atol=1e-5)
    with pytest.raises(Refusal, match="prompt_name=nothing: one of query, passage"):
        engine.read(TEXTS, prompt="nothing")
    # there and back: the same vectors, bytes of weights and settings
    convert(folder, tmp_path / "ours", to="plmctl")
    convert(tmp_path / "ours", tmp_path / "again", to="sentence-transformers")
    again = load(tmp_path / "again")
    np.testing.assert_array_equal(embed(again), embed(loaded))
    assert again.config["sentence"] == loaded.config["sentence"]
    assert load_file(tmp_path / "again/2_Dense/model.safetensors")["linear.bias"].equal(bias)
    # training goes on from its pooling and its layers
    words = ["task=sentence_scores", "task.path=x.tsv", f"checkpoint={folder}"]
    spec: Any = complete(compose("finetune", None, words))
    assert spec.task["pooling"] == "mean"
    assert len(spec.heads["sentence"]["layers"]) == 4
    assert spec.task.max_length == 10
    assert spec.sentence == loaded.config["sentence"]
    other: Any = complete(compose("finetune", None, [*words, "task.pooling=max"]))
    assert other.task["pooling"] == other.sentence["pooling"] == "max"
    assert other.sentence["prompts"] == spec.sentence["prompts"]
    modules = json.loads((tmp_path / "again/modules.json").read_text())
    assert [each["type"] for each in modules] == [f"{ALL}{name}" for name in KINDS]


KINDS = ("Transformer", "Pooling", "Dense", "LayerNorm", "Normalize")


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("modules.json", [{"path": "", "type": "os.system"}], "module system is none that plmctl"),
        ("modules.json", [{"path": "", "type": f"{ALL}CLIPModel"}], "module CLIPModel is none"),
        (
            "modules.json",
            [{"path": "", "type": f"{ALL}Pooling"}],
            "its modules are Pooling; plmctl",
        ),
        (
            "modules.json",
            [{"path": "../x", "type": f"{ALL}Transformer"}],
            "leads out of its folder",
        ),
        ("1_Pooling/config.json", {"pooling_mode": "men"}, "pooling_mode men: one of cls.*'mean'"),
        ("2_Dense/config.json", {"use_residual": True}, "use_residual=True is a variant"),
        ("2_Dense/config.json", {"activation_function": "os.system"}, "activation_function os.sys"),
        ("config_sentence_transformers.json", {"model_type": "SparseEncoder"}, "SparseEncoder"),
        (
            "modules.json",
            [{"path": "", "type": f"x.{n}"} for n in ("Transformer", "SpladePooling", "Normalize")],
            "its modules are Transformer, SpladePooling, Normalize",
        ),
    ],
)
def test_unknown_parts_are_named(
    file: str, content: Any, words: str, with_tokenizer: Any, tmp_path: Path
) -> None:
    lay_out(tmp_path, with_tokenizer, {"pooling_mode": "mean"}, behind=("Dense",))
    sizes = {"in_features": 16, "out_features": 6} if "Dense" in file else {}
    write(tmp_path / file, content if isinstance(content, list) else {**sizes, **content})
    with pytest.raises(DataError, match=words):
        load(tmp_path)


def test_texts_are_lowered_where_the_library_lowers_them(
    with_tokenizer: Any, tmp_path: Path
) -> None:
    """Training and use read one tokenizer; the library puts `Lowercase` before its other rules."""
    lay_out(tmp_path / "made", with_tokenizer, {"pooling_mode": "mean"}, root="0_Transformer")
    place = tmp_path / "made/0_Transformer"
    write(place / "tokenizer_config.json", {"do_lower_case": False})
    cased = load(tmp_path / "made").tokenizer
    assert cased.vocab.unk in cased.encode("The CAT")
    write(place / "sentence_bert_config.json", {"max_seq_length": 10, "do_lower_case": True})
    trained = load(tmp_path / "made").tokenizer
    assert trained.encode("The CAT ran") == cased.encode("the cat ran")
    assert trained.encode_offsets("The CAT")[1] == [(0, 3), (4, 7)]
    convert(tmp_path / "made", tmp_path / "ours", to="plmctl")
    convert(tmp_path / "ours", tmp_path / "again", to="sentence-transformers")
    stated = json.loads((tmp_path / "again/sentence_bert_config.json").read_text())
    rules = json.loads((tmp_path / "again/tokenizer.json").read_text())["normalizer"]["normalizers"]
    assert stated["do_lower_case"]
    assert [rule["type"] for rule in rules] == ["Lowercase", "BertNormalizer"]
    texts = ["The Cat ran on", "the cat RAN on"]
    vectors = [embed(load(tmp_path / name), texts) for name in ("made", "ours", "again")]
    np.testing.assert_array_equal(vectors[0][0], vectors[0][1])
    np.testing.assert_array_equal(vectors[0], vectors[1])
    np.testing.assert_array_equal(vectors[0], vectors[2])
    earlier = load(tmp_path / "ours")  # as earlier versions converted it
    earlier.source.__dict__["tokenizer"] = cased
    assert (earlier.tokenizer.is_uncased, trained.is_uncased) == (False, True)
    np.testing.assert_array_equal(vectors[0], embed(earlier, texts))


@pytest.mark.parametrize("new", [True, False])
def test_a_sparse_encoder_weighs_the_vocabulary(
    new: bool, with_tokenizer: Any, tmp_path: Path
) -> None:
    """The layouts of versions 6.2 and 5.0."""
    folder = tmp_path / "splade"
    model, _ = publish(folder, "BertForMaskedLM", max_position_embeddings=24)
    with_tokenizer(folder)
    kinds = (
        ("base.modules.transformer.Transformer", "modules.splade_pooling.SpladePooling")
        if new
        else ("sparse_encoder.models.MLMTransformer", "sparse_encoder.models.SpladePooling")
    )
    modules = [{"path": "", "type": f"x.{kinds[0]}"}, {"path": "1", "type": f"x.{kinds[1]}"}]
    write(folder / "modules.json", modules)
    write(folder / "sentence_bert_config.json", {"max_seq_length": 24})
    splade = {"pooling_strategy": "max", "activation_function": "relu"}
    write(folder / "1/config.json", splade if new else {})
    whole: dict[str, Any] = {"model_type": "SparseEncoder", "similarity_fn_name": None}
    write(folder / "config_sentence_transformers.json", whole)
    loaded = load(folder)
    found = embed(loaded)
    for text, vector in zip(TEXTS, found, strict=True):
        ids = [loaded.vocab.cls, *loaded.tokenizer.encode(text), loaded.vocab.sep]
        with torch.no_grad():
            logits = model(torch.tensor([ids])).logits[0]
        wanted = torch.stack([logit.clamp(min=0).log1p() for logit in logits]).max(0).values
        np.testing.assert_allclose(vector, wanted, atol=1e-5)
    assert 0 < (found > 0).mean() < 1
    convert(folder, tmp_path / "ours", to="plmctl")
    convert(tmp_path / "ours", tmp_path / "again", to="sentence-transformers")
    again = load(tmp_path / "again")
    np.testing.assert_array_equal(embed(again), found)
    assert again.config["sentence"] == loaded.config["sentence"]
    assert loaded.config["sentence"]["similarity"] == "dot"
    written = json.loads((tmp_path / "again/modules.json").read_text())
    assert [each["type"] for each in written] == [
        f"sentence_transformers.sparse_encoder.models.{name}"
        for name in ("MLMTransformer", "SpladePooling")
    ]
    for file, content, words in (
        ("1/config.json", {"pooling_strategy": "sum"}, "pooling_strategy=sum is a variant"),
        ("config_sentence_transformers.json", {"max_active_dims": 9}, "max_active_dims"),
        ("config_sentence_transformers.json", {"model_type": KINDS[0]}, "with SpladePooling"),
    ):
        before = (folder / file).read_text(encoding="utf-8")
        write(folder / file, {**json.loads(before), **content})
        with pytest.raises(DataError, match=words):
            load(folder)
        (folder / file).write_text(before, encoding="utf-8")
