"""Commands that are killed at a system call that makes a file final: what is under the name that
was asked for is absent or whole, and the same command ends as if it had never been stopped.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

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
    new = ("checkpoint=null", "size=tiny", "tokenizer.vocab_size=20")
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


@pytest.mark.sampled(7)
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
