"""The gate of all writes, and a walk through the code: no write goes around it."""

from __future__ import annotations

import ast
import os
import re
from pathlib import Path

import pytest

from plmctl.core.errors import DataError
from plmctl.storage.atomic import open_folder, write_text
from plmctl.storage.gate import admit, open_file, own
from plmctl.storage.journal import open_journal
from plmctl.storage.lines import append_line
from tests.trees import walk

PACKAGE = Path(__file__).parents[2] / "plmctl"
GATE = "admit"
# methods of a path (or, of open_file's streams, none): what they change must be admitted
METHODS = {
    *("write_text", "write_bytes", "unlink", "mkdir", "rmdir", "touch", "rename", "symlink_to"),
    *("hardlink_to", "link_to", "chmod", "lchmod"),
}
OS = {
    *("replace", "rename", "renames", "remove", "unlink", "rmdir", "removedirs", "mkdir"),
    *("makedirs", "truncate", "symlink", "link", "mkfifo", "mknod", "open", "chmod", "chown"),
}
SHUTIL = {"rmtree", "copy", "copy2", "copyfile", "copytree", "move", "copymode", "copystat"}
# of libraries, whose native code opens the file itself
WRITERS = {
    *("save_file", "np.save", "torch.save", "savez", "savez_compressed", "savetxt", "tofile"),
    *("SummaryWriter", "from_file", "open_memmap", "memmap", "pq.write_table", "ParquetWriter"),
    *("parquet.write_table", "savefig", "to_csv", "to_parquet"),
    *("mkstemp", "mkdtemp", "NamedTemporaryFile", "TemporaryDirectory", "ZipFile", "TarFile"),
    *("FileHandler", "dump_stats", "export_chrome_trace", "extractall"),
}
# of these names, into streams that are open
STREAMED = {"waiting.tofile", "zipfile.ZipFile", "np.memmap(stream,"}


def name_of(node: ast.expr) -> str:
    """`os.replace` of the node of this text; "" for what is no name."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{name_of(node.value)}.{node.attr}"
    return ""


def mode_of(call: ast.Call, place: int) -> str:
    """The mode of an `open`; any letter that it may hold, where it is no plain text."""
    given = [word.value for word in call.keywords if word.arg == "mode"] or call.args[place:]
    return "".join(
        str(node.value)
        for mode in given[:1]
        for node in ast.walk(mode)
        if isinstance(node, ast.Constant)
    ) or ("?" if given else "r")


def admits(*nodes: ast.expr) -> bool:
    """Whether each of these expressions goes through the gate."""
    return all(
        any(isinstance(inner, ast.Call) and name_of(inner.func) == GATE for inner in walk(node))
        for node in nodes
    )


def judge(call: ast.Call) -> str:
    """What is wrong with a call; "" for nothing."""
    name = name_of(call.func)
    room, _, last = name.rpartition(".")
    given = [*call.args, *(word.value for word in call.keywords)]
    if room == "os" and last in OS:
        if last == "open" and name_of(call.args[1]) == "os.O_RDONLY":
            return ""
        paths = call.args[:2] if last in ("replace", "rename", "renames") else call.args[:1]
        return "" if admits(*paths) else name
    if room == "shutil" and last in SHUTIL:
        paths = call.args[:1] if last == "rmtree" else call.args[1:2]
        return "" if paths and admits(*paths) else name
    if last == "open" and isinstance(call.func, (ast.Name, ast.Attribute)):
        method = isinstance(call.func, ast.Attribute) and room not in ("gzip", "bz2", "lzma", "io")
        ours = method and (last_of(room)[:1].isupper() or room in OPENED)
        if not ours and set(mode_of(call, 0 if method else 1)) & set("wax+?"):
            return "" if method and admits(call.func.value) else f"{name}(..., 'w')"
        return ""
    if isinstance(call.func, ast.Attribute) and last in METHODS:
        two = last == "rename" and len(call.args) == 2  # no path's: of names of tensors
        return "" if two or admits(call.func.value) else f".{last}()"
    if isinstance(call.func, ast.Attribute) and last == "replace" and len(call.args) == 1:
        text = ast.unparse(call)  # `dataclasses.replace` and our specs take settings
        settings = isinstance(call.args[0], (ast.Dict, ast.DictComp)) or call.keywords
        return "" if settings or room in KEEPERS or admits(*given) else text
    if {last, name} & WRITERS and not {name, ast.unparse(call)[: len(name) + 8]} & STREAMED:
        if last in ("TemporaryDirectory", "mkdtemp") and "dir" not in {
            w.arg for w in call.keywords
        }:
            return ""  # in the system's own folder for such
        reading = any(isinstance(node, ast.Constant) and node.value == "r" for node in given)
        return "" if reading or any(map(admits, given)) else name
    return ""


def last_of(name: str) -> str:
    return name.rpartition(".")[2]


OPENED = {"builder", "split"}  # whose `open` opens no file
KEEPERS = {"dataclasses", "spec", "streams"}  # whose `replace` gives a changed copy


# a file without these words has no call that is judged, and need not be parsed
WORDS = {*METHODS, *OS, *SHUTIL, *map(last_of, WRITERS), "open", "replace", "os", "shutil"}
WRITES = re.compile(rf"\b(?:{'|'.join(WORDS)})\b(?:\(|\.| import)|\.(?:write_|unlink)")


def escapes(text: str) -> list[str]:
    """`line: call` of every write that goes around the gate."""
    if not WRITES.search(text):
        return []
    nodes = walk(ast.parse(text))
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    found = [f"{call.lineno}: {why}" for call in calls if (why := judge(call))]
    called = {id(call.func) for call in calls}
    for node in nodes:
        if isinstance(node, ast.Attribute) and id(node) not in called:
            room, _, last = name_of(node).rpartition(".")
            if (room == "os" and last in OS) or last in {"write_text", "write_bytes", "unlink"}:
                found.append(f"{node.lineno}: {room}.{last} in another's hands")
        if isinstance(node, ast.ImportFrom) and node.module in ("os", "shutil"):
            names = {alias.name for alias in node.names} & (OS | SHUTIL)
            found += [f"{node.lineno}: from {node.module} import {name}" for name in names]
    return found


def test_no_write_goes_around_the_gate() -> None:
    own_file = PACKAGE / "storage" / "gate.py"
    found = [
        f"{file.relative_to(PACKAGE)}:{why}"
        for file in sorted(PACKAGE.rglob("*.py"))
        if file != own_file
        for why in escapes(file.read_text(encoding="utf-8"))
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "line",
    [
        "file.write_text('x')",
        "(folder / 'x').open('w')",
        "open(file, 'ab')",
        "open(file, mode)",
        "io.open(file, 'w')",
        "gzip.open(file, 'wb')",
        "file.open('r+b' if there else 'w+b')",
        "os.replace(admit(one), other)",
        "one.rename(other)",
        "one.replace(other)",
        "shutil.rmtree(folder, ignore_errors=True)",
        "shutil.copy2(admit(one), other)",
        "folder.mkdir(parents=True)",
        "save_file(tensors, folder / 'x')",
        "np.save(file, array)",
        "torch.from_file(str(file), shared=True, size=3)",
        "SummaryWriter(str(folder))",
        "tempfile.mkdtemp(dir=folder)",
        "from os import replace",
        "do = file.write_text",
    ],
)
def test_the_walk_finds_each_way_around(line: str) -> None:
    assert escapes(line)


@pytest.mark.parametrize(
    "line",
    [
        "admit(file).unlink()",
        "os.replace(admit(one), admit(other))",
        "file.open(encoding='utf-8')",
        "open(file, 'rb')",
        "text.replace('a', 'b')",
        "tempfile.TemporaryDirectory(prefix='x')",
    ],
)
def test_the_walk_lets_others_pass(line: str) -> None:
    assert not escapes(line)


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """A file of the user, with something in it."""
    file = tmp_path / "precious"
    file.write_text("kept")
    return file


def owned(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    folder.mkdir()
    return own(folder)


def test_a_link_in_a_folder_is_not_written_through(tmp_path: Path, theirs: Path) -> None:
    folder = owned(tmp_path)
    (folder / "lock").symlink_to(theirs)
    for write in (
        lambda: open_file(folder / "lock", "w"),
        lambda: open_file(folder / "lock", "a+"),
        lambda: write_text(folder / "lock", "x"),
        lambda: append_line(folder / "lock", {}),
        lambda: admit(folder / "lock").unlink(),
    ):
        with pytest.raises(DataError, match="a link to") as refused:
            write()
        assert f"cp -rL {folder} {folder}-copy" in str(refused.value)
    assert theirs.read_text() == "kept"
    assert (folder / "lock").is_symlink()


@pytest.mark.parametrize("absolute", [True, False])
def test_a_link_on_the_way_counts_too(tmp_path: Path, absolute: bool) -> None:
    folder, other = owned(tmp_path), tmp_path / "other"
    (other / "step-1").mkdir(parents=True)
    (folder / "checkpoints").symlink_to(other if absolute else "../other")
    for path in ("checkpoints", "checkpoints/step-1", "checkpoints/step-1/new/file"):
        with pytest.raises(DataError, match="a link to"):
            admit(folder / path)
    with pytest.raises(DataError, match="a link to"):
        admit(folder / "plain" / ".." / "checkpoints" / "step-1")


def test_a_folder_may_itself_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "runs").symlink_to(tmp_path / "disk")
    folder = own(tmp_path / "runs" / "one")
    admit(folder).mkdir()
    write_text(folder / "file", "x")
    write_text(tmp_path / "disk" / "one" / "other", "y")
    assert sorted(os.listdir(tmp_path / "disk" / "one")) == ["file", "other"]


def test_the_same_folder_by_its_other_name_is_guarded(tmp_path: Path, theirs: Path) -> None:
    (tmp_path / "disk" / "one").mkdir(parents=True)
    (tmp_path / "runs").symlink_to(tmp_path / "disk")
    own(tmp_path / "runs" / "one")
    (tmp_path / "disk" / "one" / "lock").symlink_to(theirs)
    with pytest.raises(DataError):
        open_file(tmp_path / "disk" / "one" / "lock", "w")


def test_a_second_name_of_a_file_stays_as_it_is(tmp_path: Path, theirs: Path) -> None:
    folder = owned(tmp_path)
    (folder / "log").hardlink_to(theirs)
    with open_file(folder / "log", "a") as stream:
        stream.write(" and more")
    assert theirs.read_text() == "kept"
    assert (folder / "log").read_text() == "kept and more"


def test_a_pipe_is_no_file(tmp_path: Path) -> None:
    folder = owned(tmp_path)
    os.mkfifo(folder / "lock")
    with pytest.raises(DataError, match="neither a file nor a folder"):
        open_file(folder / "lock", "w")


def test_a_named_link_outside_is_followed(tmp_path: Path, theirs: Path) -> None:
    (tmp_path / "link").symlink_to(theirs)
    write_text(tmp_path / "link", "new")
    assert theirs.read_text() == "new"
    assert (tmp_path / "link").is_symlink()


def test_a_scratch_folder_is_no_link(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "kept").write_text("kept")
    (tmp_path / ".out.partial").symlink_to(tmp_path / "theirs")
    with pytest.raises(DataError, match="a link to"), open_journal(tmp_path / "out", {}):
        pass
    assert (tmp_path / "theirs" / "kept").read_text() == "kept"


def dead() -> int:
    """The number of a process that has ended."""
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
    return child


def test_what_a_killed_process_left_goes_with_the_next_start(tmp_path: Path) -> None:
    left, other = tmp_path / f".out.npz.{dead()}", tmp_path / f".another.npz.{dead()}"
    living = tmp_path / f".out.npz.{os.getppid()}"
    for file in (left, other, living):
        file.write_text("half")
    write_text(tmp_path / "out.npz", "x")
    assert sorted(os.listdir(tmp_path)) == sorted(["out.npz", other.name, living.name])
    folder = tmp_path / f".ex.{dead()}.partial"
    folder.mkdir()
    (folder / "half").write_text("")
    with open_folder(tmp_path / "ex") as partial:
        (partial / "whole").write_text("")
    assert os.listdir(tmp_path / "ex") == ["whole"]
    assert not folder.exists()
