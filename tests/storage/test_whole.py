"""What stands where a command writes its one file: a file, a link, a device or a pipe."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import cast

import numpy as np
import pytest

from plmctl.data.check.finding import Report
from plmctl.report import data_check, page
from plmctl.storage.arrays import write_npz
from plmctl.storage.atomic import name_finished, open_atomic, open_folder
from plmctl.storage.growing import open_growing


def _embed(out: Path) -> None:
    write_npz(out, iter([("hidden_0", np.ones((2, 3), np.float32)), ("ids_0", np.arange(3))]))


def test_arrays_of_lines_are_listed_in_their_order(tmp_path: Path) -> None:
    names = ["hidden_10", "ids_10", "hidden_2", "ids_2", "made", "hidden_0", "ids_0"]
    write_npz(tmp_path / "x.npz", ((name, np.full(2, len(name))) for name in names))
    with np.load(tmp_path / "x.npz") as arrays:
        assert arrays.files == [
            *("hidden_0", "ids_0", "hidden_2", "ids_2", "hidden_10", "ids_10"),
            "made",
        ]
        assert all((arrays[name] == len(name)).all() for name in names)


def _generate(out: Path) -> None:
    with open_growing(out) as write:
        write("one")
        write("two")


def _report(out: Path) -> None:
    page.write_html([page.Heading("x")], out)


def _check(out: Path) -> None:
    data_check.write(cast(Report, None), out)


WRITERS = [_embed, _generate, _report, _check]
Writer = Callable[[Path], None]


@pytest.fixture(autouse=True)
def _report_of_a_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_check, "make_blocks", lambda report: [page.Heading("x")])


def _is_right(write: Writer, content: bytes) -> bool:
    if write is _embed:
        with np.load(io.BytesIO(content)) as found:
            return found["hidden_0"].shape == (2, 3) and found["ids_0"].tolist() == [0, 1, 2]
    return (
        content == b"one\ntwo\n" if write is _generate else content.startswith(b"<!doctype html>")
    )


@pytest.mark.parametrize("write", WRITERS)
def test_a_link_stays_and_what_it_leads_to_is_replaced(write: Writer, tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    target, link = tmp_path / "far" / "file.html", tmp_path / "link.html"
    target.write_text("old")
    link.symlink_to(target)
    before = target.stat().st_ino
    write(link)
    assert link.is_symlink()
    assert _is_right(write, target.read_bytes())
    assert target.stat().st_ino != before  # another file, moved there when it was complete
    assert {file.name for file in tmp_path.rglob("*")} == {"far", "file.html", "link.html"}


@pytest.mark.parametrize("write", WRITERS)
def test_a_link_to_nothing_yet(write: Writer, tmp_path: Path) -> None:
    link = tmp_path / "link.html"
    link.symlink_to(tmp_path / "later.html")
    write(link)
    assert link.is_symlink()
    assert _is_right(write, (tmp_path / "later.html").read_bytes())


@pytest.mark.parametrize("write", WRITERS)
def test_a_pipe_is_written_to(write: Writer, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.html"
    os.mkfifo(pipe)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    write(pipe)
    reader.join(10)
    assert pipe.is_fifo()
    assert _is_right(write, read[0])


@pytest.mark.parametrize("write", WRITERS)
def test_a_device_stays_one(write: Writer, tmp_path: Path) -> None:
    device = Path("/dev/null")
    link = tmp_path / "null.html"
    link.symlink_to(device)
    for place in (device, link):
        write(place)
    assert device.is_char_device()
    assert link.is_symlink()
    assert [file.name for file in tmp_path.iterdir()] == ["null.html"]


def test_a_stopped_write_leaves_what_was_there(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("old")
    with contextlib.suppress(KeyboardInterrupt), open_atomic(file) as stream:
        stream.write("new")
        stream.flush()
        raise KeyboardInterrupt
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("named", [None, ".file.{pid}", "other"])
def test_a_failed_write_names_the_file_that_was_asked_for(
    tmp_path: Path, named: str | None
) -> None:
    file = tmp_path / "file"
    place = None if named is None else str(tmp_path / named.format(pid=os.getpid()))
    with pytest.raises(OSError, match="No space") as raised, open_atomic(file):
        raise OSError(errno.ENOSPC, "No space left on device", place)
    assert raised.value.filename == str(tmp_path / "other" if named == "other" else file)


def test_an_error_without_a_number_keeps_its_message(tmp_path: Path) -> None:
    with pytest.raises(TimeoutError, match=r"^timed out$"), open_atomic(tmp_path / "file"):
        raise TimeoutError("timed out")


@pytest.mark.parametrize("write", WRITERS)
def test_a_folder_that_is_missing_is_made(write: Writer, tmp_path: Path) -> None:
    out = tmp_path / "new" / "folder" / "x.npz"
    write(out)
    assert [file.name for file in out.parent.iterdir()] == ["x.npz"]


def test_messages_name_a_folder_as_it_is_once_complete(tmp_path: Path) -> None:
    with open_folder(tmp_path / "run.1") as unfinished:
        assert unfinished.name != "run.1"
        assert name_finished(unfinished / "model") == tmp_path / "run.1" / "model"
    assert name_finished(tmp_path / "model") == tmp_path / "model"
