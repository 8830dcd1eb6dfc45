"""`plmctl tokenize` from the command line, with every tokenizer of conf/."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from plmctl.cli.app import make_app
from plmctl.config.command import perform
from plmctl.config.compose import compose
from plmctl.config.recipes import conf_dir
from plmctl.core.errors import UsageError
from plmctl.data.shards import Shards, read_manifest
from plmctl.text.tokenizer import Tokenizer

DATA = Path(__file__).resolve().parents[2] / "../shared/data/pretraining"
SENTENCES = [
    "The cat sat on the mat.",
    "Dogs bark at night.",
    "今天天气很好。",
    "A bird sang a long song!",
    "Nobody knows why it rained.",
]
TEXT = "\n\n".join(
    " ".join(SENTENCES[n % 5 :] + SENTENCES[: n % 3] + [f"Number {n}."]) for n in range(120)
)


@pytest.fixture
def text(tmp_path: Path) -> Path:
    file = tmp_path / "my corpus, [中文].txt"
    file.write_text(TEXT, encoding="utf-8")
    return file


def test_only_a_size_that_was_asked_for_is_refused(text: Path, tmp_path: Path) -> None:
    given = ["tokenize", f"data.path={text}", f"out={tmp_path / 'out'}"]
    done = CliRunner().invoke(make_app(), given)
    assert done.exit_code == 0, done.output
    size = read_manifest(tmp_path / "out")["tokenizer"]["size"]
    assert f"tokenizer.vocab_size={size} instead of 8192: the text yields no more" in done.stderr
    asked = [*given[:2], "tokenizer.vocab_size=8192", f"out={tmp_path / 'other'}"]
    refused = CliRunner().invoke(make_app(), asked)
    assert refused.exit_code == 2
    assert f"fix: tokenizer.vocab_size={size}" in refused.stderr


def tokenize(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "plmctl", "tokenize", *words], capture_output=True, text=True
    )


@pytest.mark.parametrize(
    "kind", sorted(file.stem for file in (conf_dir() / "tokenizer").glob("*.yaml"))
)
def test_every_kind(
    text: Path, tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    size = {"byte_bpe": 300, "unigram": 66}.get(kind, 90)
    words = [
        f"data.path={text}",
        f"tokenizer={kind}",
        f"tokenizer.vocab_size={size}",
        f"out={tmp_path / 'out'}",
    ]
    cfg = compose("tokenize", None, words)
    assert perform(cfg) == 0
    said = capsys.readouterr().out
    shards = Shards.open(tmp_path / "out")
    assert f"{kind} tokenizer" in said
    assert f"{len(shards.ids):,} tokens" in said
    assert Tokenizer.load(tmp_path / "out").kind == kind


def test_from_the_shell_and_again_with_the_same_tokenizer(text: Path, tmp_path: Path) -> None:
    first = tokenize(f"data.path={text}", "tokenizer.vocab_size=66", f"out={tmp_path / 'a'}")
    assert (first.returncode, first.stderr) == (0, "")
    words = [f"data.path={text}", f"tokenizer.path={tmp_path / 'a'}", f"out={tmp_path / 'b'}"]
    assert perform(compose("tokenize", None, words)) == 0
    assert Shards.open(tmp_path / "a").fingerprint == Shards.open(tmp_path / "b").fingerprint


def test_its_numbers_as_json(text: Path, tmp_path: Path) -> None:
    words = [f"data.path={text}", "tokenizer.vocab_size=66", f"out={tmp_path / 'a'}", "--json"]
    done = CliRunner().invoke(make_app(), ["tokenize", *words])
    told, manifest = json.loads(done.stdout), read_manifest(tmp_path / "a")
    assert told["tokenizer"]["fingerprint"] == Tokenizer.load(tmp_path / "a").fingerprint
    for name, counts in told["splits"].items():
        assert counts["tokens"] == len(Shards.open(tmp_path / "a", name).ids)
        assert counts == {count: manifest["splits"][name][count] for count in counts}


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["tokenizer.vocab_size=5000"], 2, "at most"),
        (["tokenizer.vocab_size=ten"], 2, "tokenizer.vocab_size"),
        (["tokenizer=unigrams"], 2, "unigram"),
        (["data.lines=wraped"], 2, "wrapped"),
        (["data.path=nothing.txt"], 3, "no such file"),
        (["tokenizer.path=nowhere"], 3, "no such tokenizer"),
        (["tokenizer.character_coverage=2"], 2, "coverage"),
        (["data.valid_share=1.5"], 2, "data.valid_share"),
    ],
)
def test_mistakes(text: Path, tmp_path: Path, words: list[str], code: int, message: str) -> None:
    given = [f"data.path={text}", f"out={tmp_path / 'out'}", *words]
    changed = {word.split("=")[0] for word in words}
    given = [word for word in given if word.split("=")[0] not in changed]
    done = CliRunner().invoke(make_app(), ["tokenize", *given, *words])
    assert done.exit_code == code
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()


def test_finished_tokens_of_something_else_are_not_written_over(text: Path, tmp_path: Path) -> None:
    """As a run's directory; the same command again makes the same, and so mends damaged arrays."""

    def again(*words: str, path: Path = text) -> int:
        given = [f"data.path={path}", "tokenizer.vocab_size=66", f"out={tmp_path / 'out'}", *words]
        return perform(compose("tokenize", None, given))

    again()
    before = (tmp_path / "out/train.ids.npy").read_bytes()
    (tmp_path / "out/train.ids.npy").write_bytes(b"")
    moved = tmp_path / "elsewhere.txt"
    moved.write_bytes(text.read_bytes())
    again(path=moved)
    assert (tmp_path / "out/train.ids.npy").read_bytes() == before
    other = tmp_path / "other.txt"
    other.write_text(TEXT.replace("cat", "dog"), encoding="utf-8")
    for words, path, told in (
        ((), other, "another text|text: "),
        (("data.valid_share=0.2",), text, "settings.valid_share: 0.01 -> 0.2"),
        (("tokenizer=bpe",), text, 'settings.tokenizer.kind: "unigram" -> "bpe"'),
    ):
        with pytest.raises(UsageError, match=f"holds tokens already.*({told})"):
            again(*words, path=path)
    assert (tmp_path / "out/train.ids.npy").read_bytes() == before


@pytest.mark.parametrize(
    ("kind", "size", "why"),
    [("wordpiece", 50, "% of the tokens are unknown"), ("byte_bpe", 288, "3.0 tokens a character")],
)
def test_a_tokenizer_of_another_language_is_warned_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str, size: int, why: str
) -> None:
    """Chinese text with an English tokenizer is unknown, or spelled in bytes; English is not."""
    texts = {
        "english": "The cat sat on the mat. Dogs bark at night.\n\n" * 60,
        "other": "今天天气很好我们去公园看花\n\n" * 60,
    }
    given = [f"tokenizer={kind}", f"tokenizer.vocab_size={size}"]
    said = {}
    for name, content in texts.items():
        (tmp_path / f"{name}.txt").write_text(content, encoding="utf-8")
        words = [f"data.path={tmp_path / name}.txt", f"out={tmp_path / name}", *given]
        perform(compose("tokenize", None, words))
        said[name] = capsys.readouterr().out
        given = [f"tokenizer.path={tmp_path / 'english'}"]
    assert "does not fit" not in said["english"]
    warning = next(line for line in said["other"].splitlines() if "does not fit" in line)
    assert why in warning
    assert "fix: # train one on it (without tokenizer.path=)" in warning


@pytest.mark.slow  # tests/data/test_tokenize_resume.py stops and goes on
def test_ctrl_c_names_the_command_that_goes_on(text: Path, tmp_path: Path) -> None:
    words = ["tokenize", f"data.path={text}", "tokenizer.vocab_size=66", f"out={tmp_path / 'out'}"]
    code = (
        "import os, signal, sys\nsignal.signal(signal.SIGINT, signal.default_int_handler)  # a"
        " background shell ignores it\n"
    )
    code += "from plmctl.data import encoding, tokenizing\nfrom plmctl.storage import journal\n"
    code += "encoding.CHUNK = tokenizing.EVERY = 2000\n"
    code += (
        "inner, seen = journal.Journal.commit, []\ndef commit(self, **done):\n    inner(self,"
        " **done)\n    seen.append(1)\n"
    )
    code += (
        "    if len(seen) == 4: os.kill(os.getpid(), signal.SIGINT)\njournal.Journal.commit ="
        " commit\n"
    )
    code += f"sys.argv = ['plmctl', *{words!r}]\nfrom plmctl.cli.app import main\nmain()"
    stopped = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert stopped.returncode == 130
    assert "Traceback" not in stopped.stderr
    command = next(line for line in stopped.stderr.splitlines() if line.startswith("  plmctl "))
    assert shlex.split(command) == ["plmctl", *words]
    assert not (tmp_path / "out").exists()
    went_on = tokenize(*shlex.split(command)[2:])
    assert went_on.returncode == 0
    assert "going on from there" in went_on.stderr
    assert tokenize(*words[1:3], f"out={tmp_path / 'straight'}").returncode == 0
    for name in ("manifest.json", "train.ids.npy"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "straight" / name).read_bytes()


@pytest.mark.slow  # text written here stays
@pytest.mark.shared
@pytest.mark.skipif(not DATA.exists(), reason="needs ../shared/data")
def test_real_text(tmp_path: Path) -> None:
    words = [
        f"data.path={DATA / 'zhwiki/zhwiki-valid.txt.gz'}",
        "tokenizer=wordpiece",
        "tokenizer.vocab_size=6000",
    ]
    assert perform(compose("tokenize", None, [*words, f"out={tmp_path / 'out'}"])) == 0
    shards, tokenizer = Shards.open(tmp_path / "out"), Tokenizer.load(tmp_path / "out")
    assert (
        shards.manifest["splits"]["train"]["documents"]
        + shards.manifest["splits"]["valid"]["documents"]
        == 300
    )
    assert (shards.ids == tokenizer.vocab.id("unk")).mean() < 0.01
