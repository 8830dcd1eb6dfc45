"""Texts in a chosen language, by models of several, against `transformers`."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import plmctl
from plmctl.artifacts.convert import _force_language
from plmctl.artifacts.loading import load
from plmctl.config import compose as config
from plmctl.config.command import perform
from plmctl.core.errors import ConfigError
from plmctl.generation.languages import name_language
from plmctl.runs.contract.stand_in import TINY
from plmctl.tasks.record import Example
from plmctl.use.prompting import make_prompt_reader
from tests.text.test_source_languages import FAMILIES, train

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.parity
MODELS = {
    "mBART": ("MBart", {}, "de_DE"),
    "mBART-50": ("MBart", {"decoder_start_token_id": 2}, "uk_UA"),
    "NLLB": ("M2M100", {"decoder_start_token_id": 2}, "deu_Latn"),
}
ROWS = [{"source": "the old man", "target": "der alte Mann"}, {"source": "a book", "target": "B"}]


def publish(family: str, folder: Path) -> tuple[Any, Any]:
    """A published model with random weights in `folder`, with its tokenizer."""
    kind, model, settings = FAMILIES[family]
    train(folder / "sentencepiece.bpe.model", model)
    tokenizer = getattr(transformers, kind).from_pretrained(str(folder), **settings)
    (folder / "sentencepiece.bpe.model").unlink()
    tokenizer.save_pretrained(folder)
    size = {f"{end}_{name}": n for end in ("encoder", "decoder") for name, n in SIZE.items()}
    name, more, _ = MODELS[family]
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(
        vocab_size=len(tokenizer),
        d_model=16,
        max_position_embeddings=64,
        init_std=1.0,
        forced_eos_token_id=None,
        **size,
        **more,
    )
    published = getattr(transformers, f"{name}ForConditionalGeneration")(config).eval()
    published.save_pretrained(folder)
    return published, tokenizer


SIZE = {"layers": 1, "attention_heads": 2, "ffn_dim": 16}


@pytest.mark.parametrize("family", MODELS)
def test_texts_in_a_language(family: str, tmp_path: Path) -> None:
    """The command writes what `transformers` writes with this language."""
    published, tokenizer = publish(family, tmp_path)
    language = MODELS[family][2]
    number = tokenizer.convert_tokens_to_ids(language)
    first = "decoder_start_token_id" if family == "mBART" else "forced_bos_token_id"
    ids = tokenizer("the old man", return_tensors="pt")["input_ids"]
    how: dict[str, Any] = {first: number, "do_sample": False, "num_beams": 1}
    most = 7 if family == "mBART" else 8
    written = published.generate(ids, max_length=most, eos_token_id=2, **how)[0].tolist()
    own = [i for i in written[1 if family == "mBART" else 2 :] if i not in (1, 2)]
    words = [f"checkpoint={tmp_path}", "prompt=the old man", "max_new=6"]
    run("generate", *words, f"target_language={language}", f"out={tmp_path / 'out.jsonl'}")
    (text,) = json.loads((tmp_path / "out.jsonl").read_text())["texts"]
    ours = plmctl.load(tmp_path).tokenizer
    assert text["text"] == ours.decode(own)
    how = {"target_language": language, "max_new": 6}
    (answer,) = plmctl.load(tmp_path).generate(["the old man"], **how)
    assert answer["texts"][0]["text"] == text["text"]


def test_fine_tuning_with_languages(tmp_path: Path) -> None:
    """A decoder that begins with the language of its target writes in evaluation, too, and the
    command knows the languages of fine-tuning.
    """
    _, tokenizer = publish("mBART", tmp_path)
    for split in ("train", "dev"):
        lines = "".join(json.dumps(row) + "\n" for row in ROWS)
        (tmp_path / f"{split}.jsonl").write_text(lines)
    words = [f"checkpoint={tmp_path}", "task=translation", f"task.path={tmp_path}"]
    words += ["search@task.search=greedy", "task.max_target=8", "task.metrics=[chrf]"]
    words += ["task.source_language=en_XX", "task.target_language=de_DE", "train.epochs=1"]
    run("finetune", *words, "train.precision=fp32", f"run.dir={tmp_path / 'run'}")
    loaded = load(tmp_path / "run")
    reader = make_prompt_reader(loaded, "x")
    english, german = (tokenizer.convert_tokens_to_ids(name) for name in ("en_XX", "de_DE"))
    assert reader("the", 0).ids[-2:] == [2, english]
    assert reader.opening == (german,)
    task: Any = reader.task
    rows = task.encode([Example("0", ROWS[0], label=("B",))], loaded.tokenizer)
    assert rows.seqs["target"].ids[0, -2:].tolist() == [2, german]
    reader = make_prompt_reader(loaded, "x", source_language="fr_XX", target_language="ro_RO")
    assert reader("the", 0).ids[-1] == tokenizer.convert_tokens_to_ids("fr_XX")
    assert reader.opening == (tokenizer.convert_tokens_to_ids("ro_RO"),)


def run(verb: str, *words: str) -> None:
    """A command as one types it."""
    perform(config.compose(verb, None, [*words]).asked())


@pytest.mark.parametrize(
    ("language", "start", "words"),
    [
        ("de_XX", "last", "did you mean 'de_DE'"),
        ("the", "last", "a token of this tokenizer"),
        ("german", "last", "p is a code, such as [unused0], de_DE"),
        ("de_DE", "pad", "writes no language around a text"),
    ],
)
def test_unknown_languages(language: str, start: str, words: str) -> None:
    """Words of a text are no languages; the message names the nearest one."""
    special = np.array([True, True, True, False, False])
    tokens = ("<pad>", "</s>", "[unused0]", "the", "de_DE")
    rest: Any = dict.fromkeys(("unk", "cls", "sep", "mask", "bos"))
    vocab = replace(TINY, **rest, size=5, eos=1, special=special, tokens=tokens)
    with pytest.raises(ConfigError, match=re.escape(words)):
        name_language(("A", "eos"), language, vocab, start=start, path="p")
    assert name_language(("A", "eos"), None, vocab, start=start, path="p") == ("A", "eos")
    by_code = replace(vocab, tokens=(*tokens[:3], "the", "__de__"))
    named = name_language(("A", "eos"), "de", by_code, start="last", path="p")
    assert named == ("A", "eos", "__de__")
    with pytest.raises(ConfigError, match="fix: p=de_DE"):
        name_language(("A", "eos"), "de", vocab, start="last", path="p")
    named = name_language(("cls", "A", "sep"), "[unused0]", vocab, start="last", path="p")
    assert named == ("A", "eos", "[unused0]")


def test_a_language_by_its_code_is_the_first_token_of_an_export() -> None:
    """`de` is a piece of words beside the language `__de__`."""
    special = np.array([True, True, True, False, True])
    tokens = ("<pad>", "</s>", "<unk>", "de", "__de__")
    vocab = replace(TINY, size=5, special=special, tokens=tokens)
    config = {"model": {"start": "eos"}}
    assert _force_language(config, vocab, "de")["model"]["forced"] == 4
    assert _force_language(config, vocab, "__de__")["model"]["forced"] == 4
    assert _force_language(config, vocab, None) == config
