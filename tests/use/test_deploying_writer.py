"""`plmctl convert --to ctranslate2`: the texts of the folder, its gates, and what is refused."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch

import plmctl as package
from plmctl.artifacts.convert import to_plmctl
from plmctl.artifacts.loading import open_source
from plmctl.core.errors import UsageError
from plmctl.runtime.ctranslate2 import CTranslate2Runtime, CTranslate2Writer
from tests.command import plmctl

WORDS = {"ein": "a", "zwei": "b", "drei": "c", "rot": "d", "blau": "e", "hund": "f", "haus": "g"}
TINY = ["size=tiny", "size.width=32", "size.num_heads=2", "size.inner_width=48"]
TINY += ["size.num_layers=2", "train.precision=fp32", "optim.lr=0.01"]


def make_rows(count: int) -> list[tuple[str, str]]:
    draw = random.Random(count)
    rows = [draw.choices([*WORDS], k=draw.randint(2, 6)) for _ in range(count)]
    return [(" ".join(row), " ".join(WORDS[word] for word in row)) for row in rows]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An encoder-decoder that writes words."""
    folder = tmp_path_factory.mktemp("words")
    for split, count in (("train", 200), ("dev", 24)):
        lines = ["source\ttarget", *map("\t".join, make_rows(count))]
        (folder / f"{split}.tsv").write_text("\n".join(lines))
    words = ["task=translation", f"task.path={folder}", "checkpoint=null", "model=encoder_decoder"]
    words += [*TINY, "tokenizer=word", "tokenizer.vocab_size=64", "task.max_length=10"]
    words += ["task.max_target=10", "train.epochs=null", "train.steps=2", "train.batch_size=32"]
    words += ["model.initializer.std=0.2"]  # texts of different words
    words += ["task.metrics=[chrf,perplexity]", "task.search.early=true"]
    plmctl("finetune", *words, f"run.dir={folder / 'run'}")
    return folder / "run"


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A decoder without a task."""
    folder = tmp_path_factory.mktemp("lines")
    (folder / "lines.txt").write_text("\n".join(" ".join(row) for row in make_rows(300)))
    words = [f"data.path={folder / 'lines.txt'}", "tokenizer.vocab_size=280", "train.steps=2"]
    words += ["format.max_length=24", "train.batch_size=8", "model.initializer.std=0.2"]
    plmctl("pretrain", "gpt2", *TINY, *words, f"run.dir={folder / 'run'}")
    return folder / "run"


@pytest.fixture(scope="module")
def deploy(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """The translator as a folder, with options; each is made once."""

    @cache
    def make(*options: str) -> Path:
        folder = tmp_path_factory.mktemp("to") / "deployed"
        plmctl("convert", str(run), "--to", "ctranslate2", *options, "--out", str(folder))
        return folder

    return make


def write(checkpoint: Path, file: Path, *words: str) -> list[dict[str, Any]]:
    said = plmctl("generate", f"checkpoint={checkpoint}", f"input={file}", *words, "--json")
    return [json.loads(line) for line in said.splitlines() if line.startswith("{")]


def read_card(folder: Path) -> dict[str, Any]:
    card: dict[str, Any] = json.loads((folder / "model.json").read_text())
    return card


def same_texts(one: list[dict[str, Any]], other: list[dict[str, Any]]) -> None:
    for own, found in zip(one, other, strict=True):
        assert own["prompt"] == found["prompt"]
        for text, again in zip(own["texts"], found["texts"], strict=True):
            assert text == again | {"score": pytest.approx(text["score"], abs=1e-4)} or text == {
                **again,
                "score": pytest.approx(again["score"], abs=1e-4),
            }


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    (tmp_path / "in.txt").write_text("\n".join(source for source, _ in make_rows(7)))
    return tmp_path / "in.txt"


@pytest.mark.parametrize(
    "search", [["search=greedy"], ["search=beam", "search.early=true", "search.count=2"]]
)
def test_a_folder_writes_as_its_run(
    run: Path, deploy: Callable[..., Path], prompts: Path, search: list[str]
) -> None:
    folder = deploy()
    own = write(run, prompts, *search)
    assert len({text["text"] for each in own for text in each["texts"]}) > 3
    same_texts(own, write(folder, prompts, *search))
    same_texts(own, write(run, prompts, *search, "runtime=ctranslate2"))


def test_a_folder_has_the_scores_of_its_run(
    run: Path, deploy: Callable[..., Path], tmp_path: Path
) -> None:
    outs = [tmp_path / name for name in ("run.jsonl", "folder.jsonl")]
    found = []
    for checkpoint, out in zip((run, deploy()), outs, strict=True):
        said = plmctl("eval", f"checkpoint={checkpoint}", f"out={out}", "--json")
        found.append(json.loads(said))
    own, other = (each["metrics"]["dev"] for each in found)
    assert other == pytest.approx(own, abs=1e-4)
    assert found[1]["remarks"]["runtime"].startswith("CTranslate2 ")
    guesses = [[json.loads(line)["guess"] for line in out.read_text().splitlines()] for out in outs]
    assert guesses[0] == guesses[1]


def test_the_card_says_what_the_folder_is(deploy: Callable[..., Path]) -> None:
    whole, small = deploy(), deploy("--int8", "--keep", "0.9")
    cards = [read_card(folder) for folder in (whole, small)]
    assert [card["numbers"] for card in cards] == ["fp32", "int8"]
    assert cards[0]["largest_difference_of_fp32"] < 1e-4
    assert cards[0]["same_texts"] == 1
    assert cards[0]["scores"]["after"]["chrf"] == cards[0]["scores"]["before"]["chrf"]
    assert cards[1]["scores"]["keep"] == 0.9
    assert cards[1]["scores"]["after"]["perplexity"] != cards[1]["scores"]["before"]["perplexity"]
    assert cards[0]["scores"]["search"] == "greedy"
    assert cards[0]["scores"]["examples"] == 24
    assert cards[0]["processor"]["name"]
    assert "ctranslate2" in cards[0]["versions"]
    assert [cards[0][name] for name in ("max_length", "max_target")] == [10, 10]
    for folder, card in zip((whole, small), cards, strict=True):
        assert card["bytes"] == {"model.bin": (folder / "model.bin").stat().st_size}
    assert cards[1]["bytes"]["model.bin"] < cards[0]["bytes"]["model.bin"]


def test_other_programs_read_the_folder(
    run: Path, deploy: Callable[..., Path], prompts: Path
) -> None:
    """The library and a tokenizer of transformers alone."""
    library = pytest.importorskip("ctranslate2")
    transformers = pytest.importorskip("transformers")
    folder = str(deploy())
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    sources = [tokenizer.tokenize(line, add_special_tokens=True) for line in prompts.open()]
    found = library.Translator(folder).translate_batch(
        sources, beam_size=1, max_decoding_length=10, min_decoding_length=0
    )
    ids = [tokenizer.convert_tokens_to_ids(each.hypotheses[0]) for each in found]
    texts = [tokenizer.decode(own, skip_special_tokens=True) for own in ids]
    assert texts == [each["texts"][0]["text"] for each in write(run, prompts)]


def test_a_decoder_without_a_task_goes_by_the_perplexity_of_lines(
    decoder: Path, tmp_path: Path, prompts: Path
) -> None:
    lines = tmp_path / "held_out.txt"
    lines.write_text("\n".join(" ".join(row) for row in make_rows(9)) + "\n\nalone\n")
    folder = tmp_path / "deployed"
    words = ["convert", str(decoder), "--to", "ctranslate2"]
    said = plmctl(*words, "--out", str(folder), code=3)
    assert "--data held_out.txt" in said
    plmctl(*words, "--data", str(lines), "--int8", "--keep", "0.9", "--out", str(folder))
    card = read_card(folder)
    assert (card["task"], card["scores"]["metric"], card["scores"]["examples"]) == (
        *(None, "perplexity"),
        9,
    )
    plmctl(*words, "--data", str(lines), "--out", str(tmp_path / "fp32"))
    same_texts(write(decoder, prompts, "max_new=8"), write(tmp_path / "fp32", prompts, "max_new=8"))


def test_python_writes_with_the_library(run: Path, deploy: Callable[..., Path]) -> None:
    texts = [source for source, _ in make_rows(5)]
    own = package.load(run).generate(texts)
    same_texts(own, package.load(deploy()).generate(texts))
    same_texts(own, package.load(run, runtime="ctranslate2").generate(texts))
    with pytest.raises(UsageError, match="computes one pass"):
        package.load(run, runtime="onnx").generate(texts)


def test_eight_bits_that_lose_too_much_are_refused(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = CTranslate2Writer.write

    def lose(self: CTranslate2Writer, prompts: Any, *more: Any, **how: Any) -> Any:
        found = real(self, prompts, *more, **how)
        int8 = self.model.compute_type.startswith("int8")
        return [[replace(text, ids=[])] for (text,) in found] if int8 else found

    monkeypatch.setattr(CTranslate2Writer, "write", lose)
    monkeypatch.setattr("plmctl.runtime.ctranslate2.cpu_sums_int8", lambda: True)
    words = ["convert", str(run), "--to", "ctranslate2", "--int8", "--out", str(tmp_path / "x")]
    said = plmctl(*words, code=2)
    assert "int8 has chrf 0.0000" in said
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("changed", ["score", "write"])
def test_other_texts_than_those_of_pytorch_are_refused(
    run: Path, tmp_path: Path, changed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = CTranslate2Runtime.load

    def load(self: CTranslate2Runtime, folder: Path) -> Any:
        writer = real(self, folder)
        own = getattr(writer, changed)

        def change(*given: Any, **how: Any) -> Any:
            found = own(*given, **how)
            if changed == "score":
                return [score - 0.01 for score in found]
            return [[replace(text, ids=text.ids[:1])] for (text,) in found]

        setattr(writer, changed, change)
        return writer

    monkeypatch.setattr(CTranslate2Runtime, "load", load)
    said = plmctl("convert", str(run), "--to", "ctranslate2", "--out", str(tmp_path / "x"), code=2)
    assert ("log-probabilities" if changed == "score" else "of 24 texts otherwise") in said
    assert "plmctl convert" in said or "plmctl eval" in said
    assert not (tmp_path / "x").exists()


def save_published(kind: str, folder: Path) -> None:
    """A model of transformers with random weights, and its tokenizer."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    special = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0, "vocab_size": 12}
    sizes: dict[str, Any] = {"d_model": 16, "decoder_start_token_id": 2}
    for end in ("encoder", "decoder"):
        sizes |= {f"{end}_layers": 2, f"{end}_attention_heads": 2, f"{end}_ffn_dim": 24}
    if kind == "T5":
        sizes |= {"d_kv": 8, "num_heads": 2, "num_layers": 2, "d_ff": 24}
        sizes |= {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
    config = getattr(transformers, f"{kind}Config")(**special, **sizes)
    name = "MarianMTModel" if kind == "Marian" else f"{kind}ForConditionalGeneration"
    model = getattr(transformers, name)(config)
    for parameter in model.parameters():
        parameter.data *= 3 if parameter.dim() > 1 else 1
    model.save_pretrained(folder)
    vocab = {word: n for n, word in enumerate(["<pad>", "<s>", "</s>", "<unk>", *WORDS, "x"])}
    level = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocab, unk_token="<unk>"))
    level.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    roles = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
    roles |= {"cls_token": "<s>", "sep_token": "</s>"}
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=level, **roles)
    fast.save_pretrained(folder)


@pytest.mark.parity
@pytest.mark.parametrize("kind", ["Bart", "Marian", "T5"])
def test_a_published_model_is_written_with_pairs(kind: str, tmp_path: Path, prompts: Path) -> None:
    save_published(kind, tmp_path / "published")
    pairs = [f"{source}\t{source}" for source, _ in make_rows(9)]
    (tmp_path / "pairs.tsv").write_text("\n".join(["source\ttarget", *pairs]))
    folder = tmp_path / "deployed"
    words = ["convert", str(tmp_path / "published"), "--to", "ctranslate2", "--out", str(folder)]
    assert "--data pairs.tsv" in plmctl(*words, code=3)
    plmctl(*words, "--data", str(tmp_path / "pairs.tsv"))
    assert read_card(folder)["scores"]["metric"] == "perplexity"
    how = ["max_new=6", "search=beam", "search.early=true"]
    same_texts(write(tmp_path / "published", prompts, *how), write(folder, prompts, *how))


def copy_changed(run: Path, folder: Path, **changes: Any) -> Path:
    """A checkpoint of its own, with another config."""
    folder.mkdir()
    source = open_source(run)
    to_plmctl(replace(source, config={**source.config, **changes}), folder)
    return folder


def test_a_task_whose_search_the_library_lacks_is_named(
    run: Path, tmp_path: Path, prompts: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """`plmctl eval` and `predict` run with the setting that is named."""
    task = open_source(run).config["task"]
    search = {**task["search"], "early": False}
    changed = copy_changed(run, tmp_path / "run", task={**task, "search": search})
    folder = tmp_path / "deployed"
    plmctl("convert", str(changed), "--to", "ctranslate2", "--out", str(folder))
    fix = f"plmctl eval checkpoint={folder} task=translation task.search.early=true"
    assert fix in caplog.messages[-1]
    words = [f"checkpoint={folder}", f"input={prompts}", f"out={tmp_path / 'out.csv'}"]
    said = plmctl("predict", *words, code=2)
    assert "fix: task=translation task.search.early=true" in said
    plmctl("predict", *words, "task=translation", "task.search.early=true")
    assert len((tmp_path / "out.csv").read_text().splitlines()) == 8


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["runtime=onnx"], "fix: runtime=torch"),
        (["runtime=ctranslate3"], "did you mean 'ctranslate2'"),
        (["runtime=ctranslate2", "precision=bf16"], "fix: precision=fp32"),
        (["runtime=ctranslate2", "weights=int8"], "fix: weights=fp32"),
        (["runtime=ctranslate2", "search=beam"], "fix: search.early=true"),
    ],
)
def test_settings_that_do_not_go_together(run: Path, words: list[str], answer: str) -> None:
    said = plmctl("generate", f"checkpoint={run}", "prompt=ein hund", *words, code=2)
    assert answer in said


def test_a_folder_has_one_library(deploy: Callable[..., Path]) -> None:
    words = [f"checkpoint={deploy()}", "prompt=ein hund"]
    assert "fix: # leave runtime out" in plmctl("generate", *words, "runtime=torch", code=2)
    assert plmctl("generate", *words).split()
