"""Text that is tokenized in parts becomes the bytes that one process writes."""

from __future__ import annotations

import gzip
import json
import os
import shlex
import shutil
import signal
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from plmctl.core.errors import DataError
from plmctl.data import parts as parts_module
from plmctl.data.dividing import divide, list_whole
from plmctl.data.parts import Parts
from plmctl.data.survey import TextSource
from plmctl.data.tokenizing import TokenizingJob, tokenize
from plmctl.storage.journal import Journal
from plmctl.text.train import KINDS
from tests.command import plmctl
from tests.data.test_tokenize_resume import WORDS, contents


def sentence(rng: np.random.Generator, most: int = 20) -> str:
    return " ".join(rng.choice(WORDS, rng.integers(3, most))).capitalize() + "."


def write_files(folder: Path, seed: int = 0) -> list[str]:
    """One file of each kind: sentences with blank lines, rows, `<doc>` blocks, packed text."""
    rng = np.random.default_rng(seed)
    plain = ["\n".join(sentence(rng) for _ in range(rng.integers(1, 5))) for _ in range(60)]
    rows = [json.dumps({"text": f"{sentence(rng, 60)} 第{n}。"}) for n in range(80)]
    rows[7] = json.dumps({"text": json.loads(rows[3])["text"]})  # a duplicate
    docs = [
        f'<doc id="{n}" title="T{n}">\nT{n}\n\n{sentence(rng)}\n\n\n{sentence(rng)}\n</doc>'
        for n in range(30)
    ]
    (folder / "a.txt").write_text("\n\n".join(plain) + "\n\n\n", encoding="utf-8")
    (folder / "b.jsonl").write_text("\ufeff" + "\n".join(rows), encoding="utf-8")
    (folder / "c.txt").write_text("\n".join(docs) + "\n", encoding="utf-8")
    with gzip.open(folder / "d.txt.gz", "wt") as stream:
        stream.write("\n\n".join(sentence(rng) for _ in range(20)))
    return [str(folder / name) for name in ("a.txt", "b.jsonl", "c.txt", "d.txt.gz")]


def make_job(source: TextSource, **settings: Any) -> TokenizingJob:
    recipe = KINDS["wordpiece"](vocab_size=110)
    return TokenizingJob(source, recipe, processes=1, at_most=True, **settings)


def spell(numbers: Any) -> str:
    return f"part={[*numbers]}"


def join(job: TokenizingJob, out: Path, count: int) -> dict[str, Any]:
    whole = Parts(job, out, count, spell)
    for part in np.random.default_rng(count).permutation(count).tolist():
        whole.write(part)
    return whole.join()


@pytest.mark.parametrize("count", [1, 3, 7])
def test_the_same_bytes_as_in_one_process(tmp_path: Path, count: int) -> None:
    job = make_job(TextSource(tuple(write_files(tmp_path))), valid_share=0.05)
    manifest = tokenize(job, tmp_path / "one")
    assert join(job, tmp_path / "parts", count) == manifest
    assert contents(tmp_path / "parts") == contents(tmp_path / "one")
    assert manifest["duplicates"] > 0
    assert manifest["splits"]["valid"]["documents"] > 0
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == ["one", "parts"]


def test_every_part_has_its_share(tmp_path: Path) -> None:
    """A slow loop over all pieces: every byte of a file is in one piece."""
    files = write_files(tmp_path)
    source = TextSource(tuple(files[:3]))
    found: dict[str, list[tuple[int, int]]] = {file: [] for file in files}
    sizes = []
    for part in range(9):
        (cut,) = divide([source], part, 9)
        for file, begin, end in cut.pieces or ():
            found[str(file)].append((begin, end or 0))
        sizes.append(sum((end or 0) - begin for _, begin, end in cut.pieces or ()))
    for file in files[:3]:
        edges = [edge for piece in found[file] for edge in piece]
        assert edges[0] == 0
        assert edges[-1] == os.path.getsize(file)
        assert edges[1:-1:2] == edges[2:-1:2]
    share = sum(map(os.path.getsize, files[:3])) / 9
    assert max(abs(size - share) for size in sizes) < 400  # a document
    assert list_whole(TextSource(tuple(files))) == [Path(files[3])]


@pytest.mark.parametrize("kind", ["spans", "fields", "target", "running", "wrapped", "valid"])
def test_other_kinds_of_text(tmp_path: Path, kind: str) -> None:
    rng = np.random.default_rng(1)
    lines = [sentence(rng) for _ in range(150)]
    rows = [
        {"text": line, "a": line, "b": other, "who": [{"start": 0, "end": 2, "id": n}]}
        for n, (line, other) in enumerate(zip(lines, lines[::-1], strict=True))
    ]
    rows[5]["b"] = " "
    file, text, other = tmp_path / "x.jsonl", tmp_path / "x.txt", tmp_path / "y.txt"
    file.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    text.write_text("\n\n".join(lines), encoding="utf-8")
    other.write_text("\n\n".join(lines[::-1][:140] + lines[:3]), encoding="utf-8")
    if kind == "wrapped":
        wrapped = [line.replace(" ", "\n", 1) for line in lines]
        text.write_text("".join(f"{w}\n\n{w}\n\n\n" for w in wrapped), encoding="utf-8")
    if kind == "target":
        other.write_text("\n\n".join(lines[::-1]), encoding="utf-8")
    source = {
        "spans": TextSource(str(file), spans=("who",)),
        "fields": TextSource(str(file), fields=("a", "b")),
        "target": TextSource(str(text), target=str(other)),
        "running": TextSource((str(text), str(file)), lines="running"),
        "wrapped": TextSource(str(text), lines="wrapped"),
        "valid": TextSource(str(file)),
    }[kind]
    held = {"valid": TextSource(str(other))} if kind == "valid" else {}
    job = make_job(source, **held)
    manifest = tokenize(job, tmp_path / "one")
    assert join(job, tmp_path / "parts", 4) == manifest
    assert contents(tmp_path / "parts") == contents(tmp_path / "one")
    assert (manifest["dropped_from_train"] > 0) == (kind == "valid")


def test_long_documents_and_more_parts_than_documents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plmctl.text.reader.PART", 300)
    rng = np.random.default_rng(2)
    long = "\n".join(sentence(rng) for _ in range(40))
    text = tmp_path / "x.txt"
    text.write_text("\n\n".join([long, sentence(rng), long, sentence(rng)]), encoding="utf-8")
    job = make_job(TextSource(str(text), lines="sentence"), valid_share=0.3)
    manifest = tokenize(job, tmp_path / "one")
    assert join(job, tmp_path / "parts", 9) == manifest
    assert contents(tmp_path / "parts") == contents(tmp_path / "one")


@pytest.mark.slow  # 16 s; other texts stay
def test_the_text_that_comes_with_python(tmp_path: Path) -> None:
    job = make_job(TextSource(None))
    manifest = tokenize(job, tmp_path / "one")
    assert join(job, tmp_path / "parts", 2) == manifest
    assert contents(tmp_path / "parts") == contents(tmp_path / "one")


def test_missing_and_damaged_parts_are_named_and_made_again(tmp_path: Path) -> None:
    job = make_job(TextSource(tuple(write_files(tmp_path))))
    tokenize(job, tmp_path / "one")
    told: list[str] = []
    whole = Parts(replace(job, tell=told.append), tmp_path / "out", 3, spell)
    whole.write(1)
    with pytest.raises(
        DataError, match=r"2 of 3 parts of this text are missing: 0, 2\n  fix: .*\[0, 2\]"
    ):
        whole.join()
    whole.write(0)
    whole.write(2)
    part = whole.home / "part-2"
    ids = part / "train.ids.npy"
    content = bytearray(ids.read_bytes())
    content[-3] ^= 1
    ids.write_bytes(content)
    with pytest.raises(DataError, match=r"part 2 is damaged: .*ids.*\n  fix: .*part=\[2\]"):
        whole.join()
    assert not (tmp_path / "out").exists()
    before = {name: (whole.home / name).stat().st_mtime_ns for name in ("part-0", "part-1")}
    whole.write(2)
    os.truncate(whole.home / "part-2/valid.documents.npy", 100)
    whole.write(2)
    assert "part 2 of 3 is damaged; it is made again" in told
    whole.write(0)
    assert told[-1] == "part 0 of 3 is there"
    assert before == {name: (whole.home / name).stat().st_mtime_ns for name in before}
    whole.join()
    assert contents(tmp_path / "out") == contents(tmp_path / "one")


def test_joining_removes_what_the_parts_wrote_alone(tmp_path: Path) -> None:
    said: list[str] = []
    job = replace(make_job(TextSource(tuple(write_files(tmp_path)))), tell=said.append)
    folder, whole = tmp_path / "out.parts", Parts(job, tmp_path / "out", 2, spell)
    folder.mkdir()
    (folder / "notes.txt").write_text("mine", encoding="utf-8")
    for part in range(2):
        whole.write(part)
    (whole.home / ".part-1.far.partial").mkdir()  # of a process that was killed
    whole.join()
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]
    assert f"{folder} stays: it has notes.txt" in said


def test_a_damaged_survey_is_made_again(tmp_path: Path) -> None:
    job = make_job(TextSource(tuple(write_files(tmp_path))))
    tokenize(job, tmp_path / "one")
    whole = Parts(job, tmp_path / "out", 2, spell)
    whole.write(0)
    sizes = whole.home / "survey-1/0.sizes.npy"
    sizes.write_bytes(sizes.read_bytes()[:-8])
    whole.write(1)
    whole.join()
    assert contents(tmp_path / "out") == contents(tmp_path / "one")


def test_two_machines_write_the_same_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a lock that both know, at the same time, from copies of the text."""
    files = write_files(tmp_path)
    (tmp_path / "copy").mkdir()
    copies = [shutil.copy(file, tmp_path / "copy") for file in files]
    job = make_job(TextSource(tuple(files)))
    tokenize(job, tmp_path / "one")
    met = threading.Barrier(2)
    own = threading.local()
    finish = Journal.finish

    def meet(self: Journal, place: Path, **how: bool) -> None:
        if place.name == "part-0":
            met.wait(20)
        finish(self, place, **how)

    monkeypatch.setattr(Journal, "finish", meet)
    monkeypatch.setattr(parts_module, "name_machine", lambda: own.name)
    failed: list[BaseException] = []

    def work(name: str, paths: list[str]) -> None:
        own.name = name
        try:
            Parts(make_job(TextSource(tuple(paths))), tmp_path / "out", 2, spell).write(0)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=each) for each in (("a", files), ("b", copies))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failed
    own.name = "c"
    whole = Parts(job, tmp_path / "out", 2, spell)
    assert [path.name for path in whole.home.parent.iterdir()] == [whole.home.name]
    whole.write(1)
    whole.join()
    assert contents(tmp_path / "out") == contents(tmp_path / "one")


def test_a_killed_part_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plmctl.data.encoding.CHUNK", 800)
    monkeypatch.setattr("plmctl.data.tokenizing.EVERY", 1500)
    job = make_job(TextSource(tuple(write_files(tmp_path))))
    tokenize(job, tmp_path / "one")
    whole = Parts(job, tmp_path / "out", 2, spell)
    commit = Journal.commit

    def die(self: Journal, **done: Any) -> None:
        commit(self, **done)
        os.kill(os.getpid(), signal.SIGKILL)

    for _ in range(3):
        if not (pid := os.fork()):
            monkeypatch.setattr(Journal, "commit", die)
            try:
                whole.write(1)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
        assert not (whole.home / "part-1").exists()
    whole.write(1)
    whole.write(0)
    whole.join()
    assert contents(tmp_path / "out") == contents(tmp_path / "one")


def test_a_wrong_row_is_named_by_its_line(tmp_path: Path) -> None:
    file = tmp_path / "x.jsonl"
    rows = [json.dumps({"text": f"Row number {n} of all."}) for n in range(90)]
    file.write_text("\n".join([*rows[:70], "{wrong", *rows[70:]]), encoding="utf-8")
    whole = Parts(make_job(TextSource(str(file))), tmp_path / "out", 3, spell)
    with pytest.raises(DataError, match=r"x.jsonl:71: "):
        whole.write(2)


def test_blank_lines_inside_of_blocks_that_begin_late(tmp_path: Path) -> None:
    """No process can know from the midst of such a file where a document begins."""
    rng = np.random.default_rng(3)
    plain = "\n\n".join(sentence(rng) for _ in range(25_000))
    assert len(plain) > 1 << 20  # what a process looks at
    docs = "\n".join(
        f"<doc>\n{sentence(rng)}\n\n" * 1 + f"{sentence(rng)}\n</doc>" for _ in range(9)
    )
    file = tmp_path / "x.txt"
    file.write_text(
        f"{plain}\n\n<doc>\n" + "\n\n".join([sentence(rng, 400)] * 1500) + f"\n</doc>\n{docs}",
        encoding="utf-8",
    )
    cut = divide([TextSource(str(file))], 2, 5)[0]
    with pytest.raises(DataError, match="it is read in one part"):
        list(cut.documents())


def test_the_command(tmp_path: Path) -> None:
    files = write_files(tmp_path)
    words = ["tokenize", f"data.path=[{','.join(files)}]", "tokenizer=wordpiece", "processes=1"]
    plmctl(*words, f"out={tmp_path / 'one'}")
    more = [*words, f"out={tmp_path / 'out'}"]
    assert "fix: parts=16" in plmctl(*more, "part=1", code=2)
    assert "fix: part=1\n" in plmctl(*more, "parts=2", "part=[1,2]", code=2)
    refused = plmctl(*more, "parts=2", "part=2", code=2)
    assert "a number from 0 to 1" in refused
    assert "fix: part=1" in refused
    assert f"{shlex.join(['plmctl', *more])} parts=2 joins all" in plmctl(
        *more, "parts=2", "part=1"
    )
    both = plmctl(*words, f"out={tmp_path / 'x'}", "parts=2", code=3).rpartition("fix: ")[2]
    assert both.startswith("for part in 0 1; do plmctl tokenize ")
    assert both.endswith("parts=2 part=$part; done\n")
    said = plmctl(*more, "parts=2", code=3)
    assert "1 of 2 parts of this text are missing: 0" in said
    plmctl(*shlex.split(said.rpartition("fix: plmctl ")[2]))
    plmctl(*more, "parts=2")
    assert contents(tmp_path / "out") == contents(tmp_path / "one")
    plmctl(*more, "parts=2")  # a second start finds it
    assert contents(tmp_path / "out") == contents(tmp_path / "one")
