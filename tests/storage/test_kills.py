"""Commands that are killed at a system call that makes a file final: what is under the name that
was asked for is absent or whole, and the same command ends as if it had never been stopped.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from plmctl.core.errors import UsageError
from plmctl.jobs.journal import hold_folder
from tests.command import plmctl

CALLS = ("fsync", "replace", "rename", "unlink", "rmdir", "mkdir")
SMALL = [
    *("task=classification", "train.epochs=null", "train.steps=2", "train.precision=fp32"),
    *("train.threads=1", "task.max_length=32", "optim.lr=1e-3"),
]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with tables, lines, a graph, a fine-tuned model, and one with a method beside it."""
    folder = tmp_path_factory.mktemp("kills")
    (folder / "data").mkdir()
    for split, count in (("train", 24), ("dev", 8)):
        rows = [f"a {'good' if n % 2 else 'bad'} film {n % 5}\t{'yn'[n % 2]}" for n in range(count)]
        text = "\n".join(["text\tlabel", *rows]) + "\n"
        (folder / "data" / f"{split}.tsv").write_text(text)
    (folder / "lines.txt").write_text("a good film\n=1+1\na bad film\n")
    (folder / "questions").mkdir()
    pairs = "".join(f"what is {w}?\tit is {w} and no more\n" for w in ("red", "blue", "green", "a"))
    for split in ("train", "dev"):
        (folder / "questions" / f"{split}.tsv").write_text(f"query\tpositive\n{pairs}")
    (folder / "ring").mkdir()
    for split in ("train", "valid", "test"):
        triples = (f"e{n}\tnext\te{(n + 1) % 9}\n" for n in range(9))
        (folder / "ring" / f"{split}.tsv").write_text("".join(triples))
    tuned = f"run.dir={folder}/tuned"
    given = [*SMALL, f"task.path={folder}/data"]
    new = ("checkpoint=null", "size=tiny", "tokenizer.vocab_size=25")
    plmctl("finetune", *given, *new, tuned)
    lora = (f"checkpoint={folder}/tuned", "peft=[lora]", "peft.lora.rank=2")
    plmctl("finetune", *given, *lora, f"run.dir={folder}/lora")
    return folder


# {name: (words with {place} and {out}, what is asked for under {out})}
COMMANDS: dict[str, tuple[list[str], str]] = {
    "embed": (
        ["embed", "checkpoint={place}/tuned", "input={place}/lines.txt", "out={out}/x.npz"],
        "x.npz",
    ),
    "predict": (
        ["eval", "checkpoint={place}/tuned", "input={place}/lines.txt", "out={out}/p.csv"],
        "p.csv",
    ),
    "predict into a folder": (
        ["eval", "checkpoint={place}/tuned", "input={place}/lines.txt", "out={out}/p"],
        "p/lines.jsonl",
    ),
    "data mine": (
        [
            *("data", "mine", "task=bi_encoder", "task.path={place}/questions", "negatives=1"),
            "task.columns.negatives=null",
            "out={out}/mined",
        ],
        "mined",
    ),
    "data dedup": (
        [
            *("data", "dedup", "{place}/data/train.tsv", "{place}/lines.txt", "processes=1"),
            *("part_mb=0.0001", "lines=paragraph", "out={out}/clean"),
        ],
        "clean",
    ),
    "peft folded": (["convert", "{place}/lora", "{out}/plain", "--to", "plmctl"], "plain"),
    "exported": (["convert", "{place}/tuned", "{out}/hf", "--to", "hf"], "hf"),
    "graph": (
        [
            *("graph", "data.path={place}/ring", "width=4", "train.batch_size=4", "train.epochs=2"),
            *("train.threads=1", "train.precision=fp32", "run.dir={out}/g"),
        ],
        "g/vectors",
    ),
}


def contents(path: Path) -> dict[str, bytes]:
    """What is in a file or a folder, by name; empty where there is nothing."""
    files = [path] if path.is_file() else sorted(f for f in path.rglob("*") if f.is_file())
    return {str(file.relative_to(path.parent)): file.read_bytes() for file in files}


def in_child(do: Callable[[], object]) -> int:
    """Do it in a process of its own; its exit code, below 0 for a signal."""
    if not (child := os.fork()):
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 1)
            os.dup2(nowhere.fileno(), 2)
        try:
            do()
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def run_killed(words: Sequence[str], call: str, number: int) -> int:
    """Run a command that is killed before its `number`th use of a system call."""

    def do() -> None:
        real, seen = getattr(os, call), 0

        def deadly(*args: object, **more: object) -> object:
            nonlocal seen
            seen += 1
            if seen == number:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*args, **more)

        setattr(os, call, deadly)
        plmctl(*words)

    return in_child(do)


def go_on(words: Sequence[str], out: Path) -> list[str]:
    """The command that ends what was killed."""
    if words[0] == "graph" and (out / "g/config.yaml").is_file():
        return ["graph", "--resume", f"run.dir={out}/g"]
    return list(words)


@pytest.mark.sampled(11)
@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("name", list(COMMANDS))
def test_a_kill_leaves_all_or_nothing(
    place: Path, tmp_path: Path, name: str, call: str, number: int
) -> None:
    pattern, asked = COMMANDS[name]
    whole, out = tmp_path / "whole", tmp_path / "out"
    for folder in (whole, out):
        folder.mkdir()
    words = {each: [w.format(place=place, out=each) for w in pattern] for each in (whole, out)}
    assert in_child(lambda: plmctl(*words[whole])) == 0
    wanted = contents(whole / asked)
    assert wanted
    died = run_killed(words[out], call, number)
    assert died in (-signal.SIGKILL, 0)
    left = contents(out / asked)
    if name != "graph":  # its folder says that it is not at its end
        assert left in ({}, wanted)
    if left != wanted:
        assert in_child(lambda: plmctl(*go_on(words[out], out))) == 0
    if name != "graph":
        assert contents(out / asked) == wanted
    assert contents(out / asked).keys() == wanted.keys()
    hidden = [file for file in out.rglob(".*") if not left]  # what a killed start had left, too
    assert not hidden


STEPS = ("tokenize", "pretrain", "eval-pretrain")


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], dict[str, bytes]]:
    """The words of a short chain, and what it leaves where nothing stops it."""
    folder = tmp_path_factory.mktemp("chain")
    films = ((n, kind) for n in range(150) for kind in ("good", "bad"))
    lines = (f"The {kind} film of {n} was {kind} and long.\n" for n, kind in films)
    (folder / "text.txt").write_text("\n".join(lines))
    words = [
        *("recipes", "run", "gpt", f"data.path={folder}/text.txt", "data.valid_share=0.3"),
        *("size.width=16", "size.inner_width=16", "size.num_heads=2", "size.num_layers=1"),
        *("tokenizer.vocab_size=300", "format.max_length=32", "train.batch_size=4"),
        *("train.steps=4", "train.minutes=null", "train.save_every=2", "train.eval_every=0"),
        *("train.threads=1", "train.precision=fp32", "tasks=none"),
    ]
    assert in_child(lambda: plmctl(*words, f"out={folder}/whole")) == 0
    left = list_made(folder / "whole")
    assert {name.split("/")[0] for name in left} == {*STEPS}
    assert any(name.endswith(".safetensors") for name in left)
    return words, left


def list_made(out: Path) -> dict[str, bytes]:
    """What the steps of a chain made, without its times: tokens, weights and scores, by name."""
    made: dict[str, bytes] = {}
    for file in sorted(f for f in out.glob("*-????????/run/**/*") if f.is_file()):
        step, _, place = str(file.relative_to(out)).partition("/run/")
        name = f"{step.rpartition('-')[0]}/{place}"
        if file.suffix in (".npy", ".safetensors", ".model") or file.name == "tokenizer.json":
            made[name] = file.read_bytes()
        if file.name == "result.json":
            made[name] = json.dumps(json.loads(file.read_text())["metrics"]).encode()
    return made


@pytest.mark.sampled(12)
@pytest.mark.parametrize("number", [1, 6, 20])
@pytest.mark.parametrize("call", ["fsync", "replace", "rename", "unlink"])
def test_a_killed_chain_goes_on_to_the_same_end(
    chain: tuple[list[str], dict[str, bytes]], tmp_path: Path, call: str, number: int
) -> None:
    words, wanted = chain
    words = [*words, f"out={tmp_path}/out"]
    died = run_killed(words, call, number)
    assert died in (-signal.SIGKILL, 0)
    assert in_child(lambda: plmctl(*words)) == 0
    assert list_made(tmp_path / "out") == wanted


@pytest.mark.parametrize("kind", ["chain", "study"])
def test_what_the_first_write_left_is_no_other_folder(tmp_path: Path, kind: str) -> None:
    (tmp_path / "lock").touch()
    (tmp_path / f".{kind}.json.18580").touch()  # a kill before it had its name
    with hold_folder(tmp_path, {}, kind=kind, command="plmctl"):
        assert {file.name for file in tmp_path.iterdir()} == {"lock", f"{kind}.json"}
    (tmp_path / "notes.txt").touch()
    (tmp_path / f"{kind}.json").unlink()
    with pytest.raises(UsageError, match=f"holds something that is not a {kind}"):
        hold_folder(tmp_path, {}, kind=kind, command="plmctl").__enter__()
