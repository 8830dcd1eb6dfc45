"""`plmctl generate`: texts from prompts, files and standard input; masks; what it streams,
writes and refuses.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

import plmctl
from plmctl.cli.app import make_app
from plmctl.core.terminal import visible
from plmctl.generation import answers as command
from plmctl.generation.answers import trim_incomplete
from plmctl.generation.prompts import Prompt, PromptReader
from plmctl.use.prompting import make_prompt_reader

SMALL = [
    "size=tiny",
    "size.width=32",
    "size.inner_width=48",
    "format.max_length=32",
    "train.steps=1",
    "train.batch_size=2",
]
TWO = ["model=encoder_decoder", "position=learned", "objective=[seq2seq]", "eval.noise=${noise}"]


def invoke(*words: str, given: str | bytes | None = None) -> Any:
    return CliRunner().invoke(make_app(), ["generate", *words], input=given)


@pytest.fixture(scope="module")
def run(
    tokens_of: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], str]:
    """The folder of a run of each kind, trained for one step."""
    kinds = {
        "gpt": ("gpt", "byte_bpe", ["tokenizer.specials=gpt2"], []),
        "bert": ("bert", "wordpiece", [], []),
        "two": ("roberta", "unigram", ["tokenizer.sentinels=10"], ["noise=[span_sentinel]", *TWO]),
    }
    made: dict[str, str] = {}

    def make(kind: str) -> str:
        if kind not in made:
            recipe, tokenizer, special, words = kinds[kind]
            folder = str(tmp_path_factory.mktemp("runs") / kind)
            data = f"data.path={tokens_of(tokenizer, *special)}"
            done = CliRunner().invoke(
                make_app(), ["pretrain", recipe, *words, *SMALL, data, f"run.dir={folder}"]
            )
            assert done.exit_code == 0, done.output
            made[kind] = f"checkpoint={folder}"
        return made[kind]

    return make


def test_a_prompt_is_continued_and_streamed(run: Callable[[str], str]) -> None:
    done = invoke(
        run("gpt"),
        "prompt=Return the, [list] of 'it'",
        "max_new=8",
        "search=sample",
        "search.seed=3",
    )
    assert done.exit_code == 0, done.output
    as_json = invoke(
        run("gpt"),
        "prompt=Return the, [list] of 'it'",
        "max_new=8",
        "search=sample",
        "search.seed=3",
        "--json",
    )
    found = json.loads(as_json.stdout)
    assert found["prompt"] == "Return the, [list] of 'it'"
    assert done.stdout == found["texts"][0]["text"] + "\n"
    assert set(found["texts"][0]) == {"text", "score", "finished"}


def test_tokens_come_as_they_are_chosen(
    run: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[str] = []
    monkeypatch.setattr("builtins.print", lambda *text, **how: shown.append("".join(text)))
    assert invoke(run("gpt"), "prompt=Return", "max_new=12", "search=sample").exit_code == 0
    assert len([part for part in shown if part]) > 6


def test_no_character_is_cut_in_half(
    run: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model that writes the bytes of Chinese text one by one."""
    loaded = plmctl.load(run("gpt").removeprefix("checkpoint="))
    text = "中文字é€ ok"
    ids = loaded.tokenizer.encode(text)
    assert len(ids) > len(text)
    prompt, reader, shown = (
        Prompt("x", loaded.tokenizer.encode("x"), 0),
        PromptReader(loaded.model, loaded.tokenizer, "text", "prompt"),
        [],
    )
    for end in range(len(ids) + 1):
        shown.append(trim_incomplete(reader.spell(prompt, ids[:end])))
    assert shown[-1] == text
    assert all(text.startswith(part) for part in shown)


def test_a_special_token_that_is_read_as_words_is_named(
    run: Callable[[str], str], caplog: pytest.LogCaptureFixture
) -> None:
    loaded = plmctl.load(run("gpt").removeprefix("checkpoint="))
    reader = PromptReader(loaded.model, loaded.tokenizer, "text", "prompt")
    reader("Return the list", 0)
    assert not caplog.messages
    prompt = reader("Return the [MASK]", 0)
    read = " ".join(loaded.tokenizer.pieces(loaded.tokenizer.encode("[MASK]")))
    assert caplog.messages == [f"plmctl: [MASK] in a prompt is read as words: {read}"]
    assert len(prompt.ids) > len(reader("Return the", 0).ids) + 1


def test_a_file_gives_the_texts_of_each_line_alone(
    run: Callable[[str], str], tmp_path: Path
) -> None:
    lines = ["a", "Return the list of all the strings", "The", "of it and so on", "Return the"]
    (tmp_path / "in.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    words = [run("gpt"), "max_new=6", "search=beam", "search.width=3", "search.count=2"]
    out = tmp_path / "made" / "out.jsonl"
    done = invoke(*words, f"input={tmp_path / 'in.txt'}", "batch_size=2", f"out={out}")
    assert done.exit_code == 0, done.output
    found = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert f"{out}: 5 answers" in done.stderr
    assert [it["prompt"] for it in found] == lines
    assert {len(it["texts"]) for it in found} == {2}
    for line, it in zip(lines, found, strict=True):
        alone = json.loads(invoke(*words, f"prompt={line}", "--json").stdout)
        assert [text["text"] for text in alone["texts"]] == [text["text"] for text in it["texts"]]
    plain = invoke(*words, "input=-", given="\n".join(lines) + "\n")
    assert plain.stdout.splitlines() == [
        visible(text["text"].replace("\n", "\\n")) for it in found for text in it["texts"]
    ]
    # standard input is the default
    assert invoke(*words, given="\n".join(lines)).stdout == plain.stdout


def test_masks_are_filled(run: Callable[[str], str]) -> None:
    loaded = plmctl.load(run("bert").removeprefix("checkpoint="))
    done = invoke(run("bert"), "prompt=return a [MASK] of <mask>", "top=3", "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    ids = [
        loaded.vocab.cls,
        *loaded.tokenizer.encode("return a"),
        loaded.vocab.mask,
        *loaded.tokenizer.encode("of"),
        loaded.vocab.mask,
        loaded.vocab.sep,
    ]
    prompt = make_prompt_reader(loaded, "prompt")("return a [MASK] of <mask>", 0)
    assert prompt.ids == ids
    with torch.no_grad():
        batch = make_prompt_reader(loaded, "prompt").batch([prompt])
        shares = torch.softmax(loaded.model.heads["mlm"](loaded.model(batch).last[0]), -1)
    for place, some in zip(
        [i for i, token in enumerate(ids) if token == loaded.vocab.mask],
        found["masks"],
        strict=True,
    ):
        values, tokens = shares[place].topk(3)
        assert [it["token"] for it in some] == loaded.tokenizer.pieces(tokens.tolist())
        assert [it["probability"] for it in some] == pytest.approx(values.tolist(), rel=1e-5)
    shown = invoke(run("bert"), "prompt=return a [MASK] of <mask>", "top=3").stdout
    assert shown.splitlines()[0] == found["text"]
    assert len(shown.splitlines()) == 3


def test_a_source_is_written_out_with_its_sentinels(run: Callable[[str], str]) -> None:
    loaded = plmctl.load(run("two").removeprefix("checkpoint="))
    sentinel = loaded.tokenizer.roles.sentinels[0]
    reader = make_prompt_reader(loaded, "prompt")
    prompt = reader(f"Return {sentinel} of", 0)
    assert reader.kind == "source"
    assert loaded.vocab.sentinels[0] in prompt.ids
    assert prompt.ids[-1] in (loaded.vocab.sep, loaded.vocab.eos)
    ids = [loaded.vocab.sentinels[0], *loaded.tokenizer.encode("the list")]
    assert reader.spell(prompt, ids).split() == [sentinel, "the", "list"]
    done = invoke(
        run("two"), f"prompt=Return {sentinel} of", "max_new=5", "search=beam", "search.width=2"
    )
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize(
    ("kind", "words", "code", "message"),
    [
        ("gpt", ["prompt="], 3, "an empty prompt"),
        (
            "gpt",
            ["prompt=" + "word " * 40],
            3,
            "the model has 32 positions, and needs one to write",
        ),
        ("bert", ["prompt=hello"], 3, "no [MASK] in it: this model fills masks, and"),
        ("bert", ["prompt=a [MASK]", "top=100000"], 2, "top=100000: at most"),
        ("gpt", ["prompt=a", "search=beam", "search.width=100000"], 2, "fix: search.width="),
        ("gpt", ["prompt=a", "search=beam", "search.count=9"], 2, "fix: search.width=9"),
        (
            "gpt",
            ["prompt=a", "search.temperature=0.5"],
            2,
            "fix: search=sample search.temperature=0.5",
        ),
        (
            "gpt",
            ["prompt=a", "search.count=2"],
            2,
            "fix: search=beam search.count=2  # or constrained or diverse or sample",
        ),
        (
            "gpt",
            ["prompt=a", "max_new=5", "search.min_length=10"],
            2,
            "search.min_length=10: at most 5",
        ),
        ("gpt", ["prompt=a", "top=3"], 2, "top='3': without effect: this model writes"),
        (
            "bert",
            ["prompt=a [MASK]", "search=beam"],
            2,
            "search='beam': without effect: this model fills masks",
        ),
        ("bert", ["prompt=a [MASK]", "max_new=4"], 2, "max_new='4': without effect"),
        ("gpt", ["prompt=a", "search=sample", "search.temprature=2"], 2, "did you mean"),
        ("gpt", ["prompt=a", "search=baem"], 2, "did you mean 'beam'"),
        ("gpt", ["prompt=a", "max_new=0"], 2, "max_new=0: must be 1 or more"),
        ("gpt", ["prompt=a", "input=b"], 2, "not both"),
        ("gpt", ["input=no such file"], 3, "no such file: cannot be read"),
    ],
)
def test_mistakes_are_named(
    run: Callable[[str], str], kind: str, words: list[str], code: int, message: str
) -> None:
    done = invoke(run(kind), *words)
    assert (done.exit_code, message in done.stderr) == (code, True), done.stderr


def test_a_bad_line_is_named_by_number(run: Callable[[str], str]) -> None:
    done = invoke(run("gpt"), "max_new=2", given=b"one\n\xff\xfe\n")
    assert (done.exit_code, "standard input:2: not UTF-8" in done.stderr) == (3, True)


@pytest.mark.parametrize(
    ("kind", "words"),
    [("gpt", ["one", "", "three words here"]), ("bert", ["a [MASK]", " ", "[MASK]"])],
)
def test_a_blank_line_gets_a_blank_answer(
    run: Callable[[str], str], kind: str, words: list[str]
) -> None:
    more = [] if kind == "bert" else ["max_new=2"]
    done = invoke(run(kind), *more, "--json", given="\n".join(words) + "\n")
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [it["prompt"] for it in found] == words
    assert [bool(it.get("texts", it.get("masks"))) for it in found] == [True, False, True]
    assert "standard input: 1 blank line (the first is line 2)" in done.stderr
    plain = invoke(run(kind), *more, given="\n" + words[0] + "\n").stdout
    assert plain == "\n" + invoke(run(kind), *more, given=words[0]).stdout
    alone = ["search=sample", "search.count=3", "max_new=1"]
    assert kind == "bert" or len(invoke(run(kind), *alone, given="\none\n").stdout.split("\n")) >= 7


def test_nothing_to_answer_is_said(run: Callable[[str], str], tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("", encoding="utf-8")
    for words, given in (
        ([], ""),
        ([], "\n"),
        ([f"input={tmp_path / 'empty'}", f"out={tmp_path / 'out.jsonl'}"], None),
    ):
        done = invoke(run("gpt"), *words, given=given)
        assert (done.exit_code, "there is no text in it" in done.stderr) == (3, True), done.output
    assert [file.name for file in tmp_path.iterdir()] == ["empty"]


def test_what_does_not_fit_is_noted(run: Callable[[str], str]) -> None:
    assert (
        "max_new=99 is more than the model has room for: it has 32"
        in invoke(run("gpt"), "prompt=a", "max_new=99").stderr
    )
    assert "room" not in invoke(run("gpt"), "prompt=a", "max_new=9").stderr


def test_what_was_written_stays_when_it_is_stopped(
    run: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []

    def stopped(*given: Any, **more: Any) -> Any:
        calls.append(1)
        if len(calls) > 1:
            raise KeyboardInterrupt
        return kept(*given, **more)

    kept = command.generate
    monkeypatch.setattr(command, "generate", stopped)
    monkeypatch.setattr(command, "AHEAD", 1)
    out = tmp_path / "out.jsonl"
    (tmp_path / "in.txt").write_text("one\ntwo\nthree\n", encoding="utf-8")
    out.write_text("older", encoding="utf-8")
    done = invoke(
        run("gpt"),
        "max_new=2",
        f"out={out}",
        "overwrite=true",
        "batch_size=2",
        f"input={tmp_path / 'in.txt'}",
    )
    assert done.exit_code == 130
    there = tmp_path / "out.jsonl.partial"
    assert [
        json.loads(line)["prompt"] for line in there.read_text(encoding="utf-8").splitlines()
    ] == ["one", "two"]
    assert f"2 of 3 lines are answered, in {there}" in done.stderr
    assert out.read_text(encoding="utf-8") == "older"
