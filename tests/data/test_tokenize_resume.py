"""Tokenizing that is killed at any moment goes on where it was, does nothing twice, and ends in
the same bytes.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from plmctl.core.errors import DataError, UsageError
from plmctl.data import encoding, tokenizing
from plmctl.data.shards import Shards
from plmctl.data.survey import TextSource, survey_text
from plmctl.data.tokenizing import TokenizingJob, open_or_tokenize, tokenize
from plmctl.storage.arrays import ArrayWriter, hash_array
from plmctl.storage.journal import Journal, differences, open_journal
from plmctl.text.train import KINDS
from tests.marks import mark_slow

IMPORTS = """
import json, os, signal, sys
from plmctl.data import encoding, tokenizing
from plmctl.storage import arrays
from plmctl.storage import journal
from plmctl.data.survey import TextSource as Source
from plmctl.text.train import KINDS
"""
# For each line, a process of its own that has imported all already: the other processes of these
# tests would spend most of their time with that. Its exit status is printed.
SERVER = """
for line in sys.stdin:
    sys.argv[1:], said, failed = json.loads(line)
    if not (pid := os.fork()):
        for number, file in enumerate((os.devnull, said, failed)):
            os.dup2(os.open(file, os.O_RDWR | os.O_CREAT), number)
        break
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
else:
    sys.exit()
"""
# One process: tokenize argv[1] into argv[2]; argv[3] is run first, to make it die.
CHILD = """
def die(*_, **__): os.kill(os.getpid(), signal.SIGKILL)
encoding.CHUNK, tokenizing.EVERY = 2000, 6000
exec(sys.argv[3])
valid = Source(sys.argv[1] + ".valid") if os.path.exists(sys.argv[1] + ".valid") else None
kind = KINDS["wordpiece"](vocab_size=90)
job = tokenizing.TokenizingJob(Source(sys.argv[1]), kind, valid=valid, tell=print)
if sys.argv[2].startswith("cache:"):
    print(tokenizing.open_or_tokenize(job, cache_dir=sys.argv[2][6:]))
else:
    print(bool(tokenizing.tokenize(job, sys.argv[2])))
"""
COUNTED = """
calls = {'survey_text': 0, 'learn': 0, 'encoded': 0}
def counts(owner, name, label=None):
    inner = getattr(owner, name)
    def outer(*a, **k):
        calls[label or name] += 1
        return inner(*a, **k)
    setattr(owner, name, outer)
counts(tokenizing, 'survey_text')
learn = tokenizing.Tokenizer.learn
def learning(texts, recipe):
    calls['learn'] += 1
    return learn(texts, recipe)
tokenizing.Tokenizer.learn = learning
call = encoding.DocumentEncoder.__call__
def encode(self, documents):
    calls['encoded'] += len(documents)
    return call(self, documents)
encoding.DocumentEncoder.__call__ = encode
import atexit
atexit.register(lambda: print('CALLS', __import__('json').dumps(calls)))
"""
NTH = """
def at(owner, name, number, when):
    inner, seen = getattr(owner, name), [0]
    def outer(*a, **k):
        seen[0] += 1
        if seen[0] < number: return inner(*a, **k)
        if when == 'after': inner(*a, **k)
        elif when == 'half': a[0]._stream.write(b'half a value!'); a[0]._stream.flush()
        die()
    setattr(owner, name, outer)
"""
_WORDS = (
    "the of and to in is was for on with as by at from his that it an were are which this also be"
)
WORDS = _WORDS.split()
DEATHS = {
    "before anything is committed": "at(journal.Journal, 'commit', 1, 'before')",
    "after the survey": "at(journal.Journal, 'commit', 1, 'after')",
    "while the journal is written": "at(journal.Path, 'replace', 2, 'before')",
    "after the tokenizer": "at(journal.Journal, 'commit', 2, 'after')",
    "at the first stretch": "at(journal.Journal, 'commit', 3, 'after')",
    "at the third stretch": "at(journal.Journal, 'commit', 5, 'after')",
    "between two stretches, in the middle of a value": (
        "at(arrays.ArrayWriter, 'append', 150, 'half')"
    ),
    "before the manifest": "at(tokenizing, '_manifest', 1, 'before')",
    "before the folder has its name": "at(journal.Journal, 'finish', 1, 'before')",
}


def write_text(file: Path, count: int, seed: int = 0) -> Path:
    rng = np.random.default_rng(seed)
    texts = [
        " ".join(rng.choice(WORDS, rng.integers(5, 60))).capitalize() + f".\n第{n % 10}。好的！"
        for n in range(count)
    ]
    file.write_text("\n\n".join(texts), encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_text(tmp_path_factory.mktemp("text") / "text.txt", 400)


@pytest.fixture(scope="module")
def whole(text: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("whole") / "out"
    tokenize(TokenizingJob(TextSource(str(text)), KINDS["wordpiece"](vocab_size=90)), folder)
    return contents(folder)


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


Child = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def child(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Child]:
    """`child(text, out, first)`: what one process does."""
    words = [sys.executable, "-c", IMPORTS + SERVER + CHILD]
    ends = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(words, **ends) as server:  # type: ignore[call-overload]

        def run(text: Path, out: object, first: str = "pass") -> subprocess.CompletedProcess[str]:
            asked, folder = [str(text), str(out), first], tmp_path_factory.mktemp("said")
            files = [folder / "out.txt", folder / "err.txt"]
            server.stdin.write(json.dumps([asked, *map(str, files)]) + "\n")
            server.stdin.flush()
            code = int(server.stdout.readline())
            return subprocess.CompletedProcess(asked, code, *(f.read_text() for f in files))

        yield run
        server.stdin.close()


def calls(done: subprocess.CompletedProcess[str]) -> dict[str, int]:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.rpartition("CALLS ")[2])


# another moment before, or after, the same step stays
SLOW = {
    "while the journal is written",
    "at the first stretch",
    "at the third stretch",
    "before the manifest",
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("moment", mark_slow(DEATHS, SLOW))
def test_killed_and_started_again(
    text: Path, whole: dict[str, bytes], child: Child, tmp_path: Path, moment: str
) -> None:
    place = tmp_path / "out"
    killed = child(text, place, f"{NTH}\ntokenizing.count_processors = lambda: 1\n{DEATHS[moment]}")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert not place.exists()
    state = tmp_path / ".out.partial/journal.json"
    left = json.loads(state.read_text(encoding="utf-8"))["state"] if state.exists() else {}
    again = child(text, place, f"tokenizing.count_processors = lambda: 1\n{COUNTED}")
    assert contents(place) == whole
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    found = calls(again)
    assert found["survey_text"] == ("survey" not in left)
    assert found["learn"] == ("tokenizer" not in left)
    assert found["encoded"] == 400 - left.get("done", {"documents": 0})["documents"]
    assert ("going on from there" in again.stdout) == bool(left)


@pytest.mark.slow  # one kill at each place stays
def test_killed_again_and_again_with_a_pool(
    text: Path, whole: dict[str, bytes], child: Child, tmp_path: Path
) -> None:
    done = [0]
    for number in (3, 2, 2, 1):  # each start gets some stretches further, in three processes
        killed = child(
            text,
            tmp_path / "out",
            f"{NTH}\ntokenizing.count_processors = lambda: 3\n"
            f"at(journal.Journal, 'commit', {number},"
            " 'after')",
        )
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        state = json.loads((tmp_path / ".out.partial/journal.json").read_text(encoding="utf-8"))[
            "state"
        ]
        done.append(state["done"]["documents"])
    assert all(a < b for a, b in pairwise(done))
    assert child(text, tmp_path / "out").returncode == 0
    assert contents(tmp_path / "out") == whole


def test_the_pool_of_a_killed_process_ends_too(text: Path, child: Child, tmp_path: Path) -> None:
    record = f"""{NTH}
tokenizing.count_processors = lambda: 3
inner, opened = encoding._prepare, open({str(tmp_path / "pids")!r}, 'a')
def prepare(*a):
    opened.write(f'{{os.getpid()}} ')
    opened.flush()
    inner(*a)
encoding._prepare = prepare
at(journal.Journal, 'commit', 4, 'after')
"""
    killed = child(text, tmp_path / "out", record)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    pids = [int(line) for line in (tmp_path / "pids").read_text(encoding="utf-8").split()]
    assert pids
    for _ in range(100):
        alive = [pid for pid in pids if _runs(pid)]
        if not alive:
            return
        time.sleep(0.05)
    raise AssertionError(alive)


def _runs(pid: int) -> bool:
    try:
        return (
            Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
            not in "ZX"
        )
    except OSError:
        return False


def test_the_cache_goes_on_too(
    text: Path, whole: dict[str, bytes], child: Child, tmp_path: Path
) -> None:
    killed = child(
        text,
        f"cache:{tmp_path}",
        f"{NTH}\ntokenizing.count_processors = lambda: 1\n"
        f"at(journal.Journal, 'commit', 4, 'after')",
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    found = calls(
        again := child(
            text, f"cache:{tmp_path}", f"tokenizing.count_processors = lambda: 1\n{COUNTED}"
        )
    )
    assert 0 < found["encoded"] < 400
    assert found["survey_text"] == found["learn"] == 0
    (place,) = tmp_path.iterdir()
    assert contents(place) == whole
    assert str(place) in again.stdout


@pytest.mark.slow  # starts processes; the others here stay
def test_two_at_once_make_it_once(text: Path, tmp_path: Path) -> None:
    slow = """
import time
inner = tokenizing._tokenizer
def late(*a):
    time.sleep(1)
    return inner(*a)
tokenizing._tokenizer = late
"""
    words = [sys.executable, "-c", IMPORTS + CHILD, str(text), f"cache:{tmp_path}", slow + COUNTED]
    both = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = [process.communicate(timeout=60)[0] for process in both]
    assert sorted(json.loads(text.rpartition("CALLS ")[2])["learn"] for text in said) == [0, 1]
    assert sum("waiting" in text for text in said) == 1
    assert len(list(tmp_path.iterdir())) == 1


def test_a_second_process_is_refused_the_same_folder(tmp_path: Path) -> None:
    hold = (
        "from plmctl.storage.journal import open_journal\nfrom pathlib import Path\nplace ="
        f" Path({str(tmp_path / 'out')!r})\n"
    )
    hold += "with open_journal(place, {}) as made:\n    print('held', flush=True)\n    input()\n"
    other = subprocess.Popen(
        [sys.executable, "-c", hold], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert other.stdout.readline() == "held\n"
    with (
        pytest.raises(UsageError, match="another process is writing it"),
        open_journal(tmp_path / "out", {}),
    ):
        pass
    other.communicate("\n")
    with open_journal(tmp_path / "out", {}) as journal:
        assert journal.state == {}
    assert not list(tmp_path.iterdir())


@pytest.mark.sampled(2)
@pytest.mark.parametrize("change", ["vocab_size", "text", "damage", "journal"])
def test_what_does_not_fit_starts_afresh_and_says_so(
    text: Path, child: Child, tmp_path: Path, change: str
) -> None:
    own = tmp_path / "text.txt"
    shutil.copy(text, own)
    killed = child(
        own,
        tmp_path / "out",
        f"{NTH}\ntokenizing.count_processors = lambda: 1\n"
        f"at(journal.Journal, 'commit', 4, 'after')",
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    size, said, partial = 90, [], tmp_path / ".out.partial"
    if change == "vocab_size":
        size = 80
    elif change == "text":
        write_text(own, 380, seed=1)
    elif change == "damage":
        os.truncate(partial / "tokens/train.ids.npy", 500)
    else:
        (partial / "journal.json").write_text("{", encoding="utf-8")
    job = TokenizingJob(TextSource(str(own)), KINDS["wordpiece"](vocab_size=size), tell=said.append)
    tokenize(job, tmp_path / "out")
    tokenize(job, tmp_path / "straight")
    assert contents(tmp_path / "out") == contents(tmp_path / "straight")
    words = {
        "vocab_size": "settings.tokenizer.vocab_size: 90 -> 80",
        "text": "another text",
        "damage": "damaged",
    }
    assert "starting afresh" in said[0]
    assert words.get(change, "another") in said[0]


@pytest.mark.slow  # one kill at each place stays
def test_a_killed_replacement_leaves_one_or_the_other(
    text: Path, child: Child, tmp_path: Path
) -> None:
    place = tmp_path / "out"
    tokenize(TokenizingJob(TextSource(str(text)), KINDS["char"](vocab_size=90)), place)
    before = contents(place)
    # the old one is away, the new one not there
    killed = child(text, place, f"{NTH}\nat(journal.Path, 'rename', 2, 'before')")
    assert killed.returncode == -signal.SIGKILL
    assert not place.exists()
    with open_journal(place, {"another": "job"}):
        assert contents(place) == before


@pytest.mark.slow  # a matter of time, not of results
def test_a_held_out_text_is_surveyed_once(text: Path, child: Child, tmp_path: Path) -> None:
    own = Path(shutil.copy(text, tmp_path / "text.txt"))
    paragraphs = own.read_text(encoding="utf-8").split("\n\n")
    (tmp_path / "text.txt.valid").write_text(
        "\n\n".join([*paragraphs[5:9], "Something else."]), encoding="utf-8"
    )
    assert child(own, tmp_path / "straight").returncode == 0
    killed = child(own, tmp_path / "out", f"{NTH}\nat(journal.Journal, 'commit', 3, 'after')")
    assert killed.returncode == -signal.SIGKILL
    assert (
        calls(child(own, tmp_path / "out", f"tokenizing.count_processors = lambda: 1\n{COUNTED}"))[
            "survey_text"
        ]
        == 0
    )
    assert contents(tmp_path / "out") == contents(tmp_path / "straight")
    assert Shards.open(tmp_path / "out").manifest["dropped_from_train"] == 4


def test_an_array_is_cut_back_and_goes_on(tmp_path: Path) -> None:
    writer = ArrayWriter(tmp_path / "a.npy", np.int64)
    writer.append(np.arange(10))
    assert writer.flush() == 10
    writer.append(np.arange(100, 120))  # after the commit: lost
    writer.flush()
    again = ArrayWriter(tmp_path / "a.npy", np.int64, 10)
    again.append(np.arange(10, 13))
    stated = again.close()
    found = np.load(tmp_path / "a.npy")
    assert found.tolist() == list(range(13))
    assert stated == {"length": 13, "dtype": "int64", "sha256": hash_array(found)}
    with pytest.raises(ValueError, match="shorter"):
        ArrayWriter(tmp_path / "a.npy", np.int64, 14)


@pytest.mark.parametrize(
    ("error", "kept"),
    [
        (KeyboardInterrupt(), True),
        (DataError("x"), False),
        (UsageError("x"), False),
        (OSError(28, "full"), True),
    ],
)
def test_what_is_no_fault_of_the_text_is_kept(
    tmp_path: Path, error: BaseException, kept: bool
) -> None:
    def fail(**done: int) -> None:
        with open_journal(tmp_path / "out", {"a": 1}) as journal:
            if done:
                journal.commit(**done)
            raise error

    for done in ({}, {"survey": 1}):
        with pytest.raises((KeyboardInterrupt, DataError, UsageError)):
            fail(**done)
        assert (tmp_path / ".out.partial/journal.json").exists() == (kept and bool(done))
        assert (tmp_path / ".out.partial").exists() == (kept and bool(done))


def test_differences() -> None:
    old, new = {"a": {"b": 1, "c": [1]}, "d": "x"}, {"a": {"b": 2, "c": [1]}, "e": "y" * 99}
    assert differences(old, new) == ["a.b: 1 -> 2", 'd: "x" -> null', "another e"]
    assert differences(old, old) == []


@pytest.mark.slow  # a matter of memory, not of results
def test_the_survey_takes_8_bytes_a_document_and_a_bounded_sample(tmp_path: Path) -> None:
    import tracemalloc

    file = tmp_path / "tiny.txt"
    file.write_text("\n\n".join(f"doc {n}" for n in range(20_000)), encoding="utf-8")
    survey_text(TextSource(str(file)), valid_share=0.01, sample_bytes=1 << 16)
    tracemalloc.start()
    found = survey_text(TextSource(str(file)), valid_share=0.01, sample_bytes=1 << 16)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found.documents == 20_000
    assert len(found.sample) <= (1 << 16) / 128 + 1  # a tiny document is not free
    assert found.identities.nbytes == 8 * 20_000
    assert (np.diff(found.identities.astype(object)) >= 0).all()
    # the layout looks at a first megabyte, the sample's documents at 1 kB each
    assert peak < 20_000 * 8 * 2.5 + (6 << 20)


def test_the_journal_is_on_the_disk_before_it_is_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tokens").mkdir()
    (tmp_path / "tokens/a").write_text("abc", encoding="utf-8")
    order: list[str] = []
    fsync, replace = os.fsync, Path.replace
    monkeypatch.setattr(
        os,
        "fsync",
        lambda handle: (order.append(os.readlink(f"/proc/self/fd/{handle}")), fsync(handle)),
    )
    monkeypatch.setattr(
        Path, "replace", lambda self, to: (order.append(f"-> {to}"), replace(self, to))
    )
    Journal(tmp_path, {}).commit(x=1)
    place = order.index(f"-> {tmp_path / 'journal.json'}")
    assert order.index(str(tmp_path / "tokens/a")) < place
    assert order.index(str(tmp_path / "journal.json.new")) < place


def test_the_same_whatever_the_stretches(
    text: Path, whole: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encoding, "CHUNK", 5000)
    monkeypatch.setattr(tokenizing, "EVERY", 1)
    place = open_or_tokenize(
        TokenizingJob(TextSource(str(text)), KINDS["wordpiece"](vocab_size=90)), cache_dir=tmp_path
    )
    assert contents(place) == whole


def _stopped_and_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, job: TokenizingJob
) -> dict[str, Any]:
    """`job` stopped after each of its commits in turn, then finished; the same bytes as in one
    go.
    """
    monkeypatch.setattr(encoding, "CHUNK", 1500)
    monkeypatch.setattr(tokenizing, "EVERY", 3000)
    straight = tokenize(job, tmp_path / "straight")
    commit = Journal.commit

    def stop(self: Journal, **done: Any) -> None:
        commit(self, **done)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Journal, "commit", stop)
        for _ in range(5):
            with pytest.raises(KeyboardInterrupt):
                tokenize(job, tmp_path / "out")
    assert tokenize(job, tmp_path / "out") == straight
    assert contents(tmp_path / "out") == contents(tmp_path / "straight")
    return straight


def test_parallel_text_with_pairs_that_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    for name in ("a.txt", "b.txt"):
        lines = ["" if rng.random() < 0.1 else " ".join(rng.choice(WORDS, 12)) for _ in range(300)]
        (tmp_path / name).write_text("\n".join(["some words", *lines, "the end"]), encoding="utf-8")
    source = TextSource(str(tmp_path / "a.txt"), target=str(tmp_path / "b.txt"))
    job = TokenizingJob(source, KINDS["wordpiece"](vocab_size=60), processes=1)
    manifest = _stopped_and_resumed(tmp_path, monkeypatch, job)
    assert sum(manifest["left_out"].values()) > 20


def test_spans_and_tags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    rows = [
        {
            "text": " ".join(rng.choice(WORDS, 20)),
            "who": [{"start": 0, "end": 2, "id": n}, {"start": 3, "end": 9, "id": n + 1}],
        }
        for n in range(300)
    ]
    file = tmp_path / "rows.jsonl"
    file.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    job = TokenizingJob(
        TextSource(str(file), spans=("who",)), KINDS["wordpiece"](vocab_size=60), processes=1
    )
    _stopped_and_resumed(tmp_path, monkeypatch, job)
    assert len(Shards.open(tmp_path / "out").spans["who"].id) > 200


def test_the_training_of_a_tokenizer_reports_what_it_has_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = list[tuple[str, int, int]]()
    recipe = KINDS["wordpiece"](vocab_size=11)
    job = TokenizingJob(TextSource(tmp_path), recipe, say=lambda *each: said.append(each))
    monkeypatch.setattr(tokenizing, "STEP", 7)
    texts = ["中文", "ab ab", "中文 中文"]  # 6, 5 and 13 bytes
    learnt = tokenizing.learn_tokenizer(job, lambda: iter(texts))
    assert learnt.sampled == {"sentences": 3, "bytes": 24}
    reading = "reading text for the tokenizer"
    assert said == [(reading, 11, 24), (reading, 24, 24), ("training the tokenizer", 0, 0)]
