"""The text that ships with every Python: its reference documentation and the docstrings of its
standard library.

Source files are parsed, never imported. Documents: one for each topic of `pydoc_data.topics` and
one for each module with docstrings. The same docstrings make a labelled task: from which of ten
packages does this text come?
"""

from __future__ import annotations

import ast
import re
import sysconfig
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from pathlib import Path

from plmctl.core.errors import DataError
from plmctl.storage.atomic import write_text
from plmctl.storage.gate import admit

# Present from Python 3.11 to 3.14 and in the base package of the large distributions.
PACKAGES = (
    "asyncio",
    "collections",
    "concurrent",
    "ctypes",
    "dbm",
    "email",
    "html",
    "http",
    "importlib",
    "json",
    "logging",
    "multiprocessing",
    "unittest",
    "urllib",
    "wsgiref",
    "xml",
    "xmlrpc",
    "zoneinfo",
)
MODULES = (
    "_collections_abc",
    "_pydecimal",
    "_pyio",
    "abc",
    "argparse",
    "ast",
    "base64",
    "bdb",
    "bisect",
    "bz2",
    "calendar",
    "cmd",
    "codecs",
    "compileall",
    "configparser",
    "contextlib",
    "copy",
    "csv",
    "dataclasses",
    "datetime",
    "difflib",
    "dis",
    "doctest",
    "enum",
    "filecmp",
    "fileinput",
    "fnmatch",
    "fractions",
    "ftplib",
    "functools",
    "getopt",
    "getpass",
    "gettext",
    "graphlib",
    "gzip",
    "hashlib",
    "heapq",
    "hmac",
    "imaplib",
    "inspect",
    "io",
    "ipaddress",
    "linecache",
    "locale",
    "lzma",
    "mailbox",
    "mimetypes",
    "netrc",
    "numbers",
    "operator",
    "optparse",
    "os",
    "pdb",
    "pickle",
    "pickletools",
    "pkgutil",
    "platform",
    "plistlib",
    "poplib",
    "posixpath",
    "pprint",
    "profile",
    "pstats",
    "pty",
    "pyclbr",
    "pydoc",
    "queue",
    "quopri",
    "random",
    "reprlib",
    "runpy",
    "sched",
    "secrets",
    "selectors",
    "shelve",
    "shlex",
    "shutil",
    "site",
    "smtplib",
    "socket",
    "socketserver",
    "ssl",
    "statistics",
    "string",
    "struct",
    "subprocess",
    "symtable",
    "sysconfig",
    "tabnanny",
    "tarfile",
    "tempfile",
    "textwrap",
    "threading",
    "timeit",
    "token",
    "tokenize",
    "trace",
    "traceback",
    "tracemalloc",
    "types",
    "typing",
    "uuid",
    "warnings",
    "wave",
    "weakref",
    "webbrowser",
    "zipapp",
    "zipfile",
    "zipimport",
)
LABELS = (
    "asyncio",
    "concurrent",
    "email",
    "http",
    "importlib",
    "logging",
    "multiprocessing",
    "unittest",
    "urllib",
    "xml",
)
DEV_SHARE = 0.25  # share of a package's docstrings, at least one module
_SHORTEST = 40  # characters of a docstring that says anything

_CODE = re.compile(r"\s*(>>>|\.\.\. |\$ |\.\. |[=\-~^*+#_\"`|]{3,}\s*$|[+|][-=+| ])")
_PIECES = re.compile(r"[*`]{1,2}([^\s*`][^*`\n]*)[*`]{1,2}|:[a-z:]+:`([^`]*)`")


@dataclass(frozen=True)
class CorpusDocument:
    """A document: its name (module or topic) and paragraphs of running text."""

    name: str
    paragraphs: tuple[str, ...]


@dataclass(frozen=True)
class LabelledDocstring:
    """A docstring, the top-level package it comes from, and its module."""

    text: str
    label: str
    module: str


@cache
def load_documents() -> tuple[CorpusDocument, ...]:
    """The built-in corpus, about 1.5 MB of running English, in a fixed order."""
    return tuple(_documents())


def _documents() -> Iterator[CorpusDocument]:
    for name, text in sorted(load_topics().items()):
        if paragraphs := extract_paragraphs(text):
            yield CorpusDocument(f"topic {name}", tuple(paragraphs))
    for file, module in _sources((*PACKAGES, *MODULES)):
        if paragraphs := read_paragraphs(file):
            yield CorpusDocument(module, tuple(paragraphs))


def load_labelled(split: str) -> Iterator[LabelledDocstring]:
    """The docstrings of ten packages with their package, for `train` or `dev`: no module and no
    text is in both.
    """
    rows = _rows()
    dev_modules = _choose_dev_modules(rows)
    dev_texts = (
        {row.text for row in rows if row.module in dev_modules} if split == "train" else set()
    )
    for row in rows:
        if (row.module in dev_modules) == (split == "dev") and row.text not in dev_texts:
            dev_texts.add(row.text)
            yield row


def write_task(folder: Path) -> dict[str, Path]:
    """Write train.tsv and dev.tsv with the columns text, label, module."""
    admit(folder).mkdir(parents=True, exist_ok=True)
    files = {split: folder / f"{split}.tsv" for split in ("train", "dev")}
    for split, file in files.items():
        rows = [f"{row.text}\t{row.label}\t{row.module}\n" for row in load_labelled(split)]
        write_text(file, "text\tlabel\tmodule\n" + "".join(rows))
    return files


def extract_paragraphs(text: str) -> list[str]:
    """The running text of a docstring or topic, by paragraph: lines are joined; code, tables,
    rulers and mark-up are left out.
    """
    paragraphs = []
    for block in re.split(r"\n[ \t]*\n", textwrap.dedent(text.expandtabs())):
        lines = [
            line.strip() for line in block.split("\n") if line.strip() and not _CODE.match(line)
        ]
        joined = _PIECES.sub(lambda match: match[1] or match[2], " ".join(lines))
        joined = re.sub(r"\s+", " ", joined).strip("*| ").replace("::", ":")
        letters = sum(map(str.isalpha, joined))
        if letters > 0.6 * len(joined) and " " in joined:
            paragraphs.append(joined)
    return paragraphs


@cache
def _rows() -> list[LabelledDocstring]:
    rows = []
    for file, module in _sources(LABELS):
        label = module.split(".")[0]
        for docstring in extract_docstrings(file):
            text = " ".join(extract_paragraphs(docstring))
            if len(text) >= _SHORTEST:
                rows.append(LabelledDocstring(text, label, module))
    return rows


def _choose_dev_modules(rows: list[LabelledDocstring]) -> frozenset[str]:
    """The modules of the dev split: some of each package, in the order of a hash, but never the
    largest.
    """
    sizes: dict[str, dict[str, int]] = {label: {} for label in LABELS}
    for row in rows:
        sizes[row.label][row.module] = sizes[row.label].get(row.module, 0) + 1
    held: set[str] = set()
    for modules in sizes.values():
        room = max(DEV_SHARE * sum(modules.values()), min(modules.values()))
        for module in sorted(
            modules, key=lambda name: blake2b(name.encode(), digest_size=8).digest()
        ):
            if modules[module] <= room and modules[module] < max(modules.values()):
                held.add(module)
                room -= modules[module]
    return frozenset(held)


def load_topics() -> dict[str, str]:
    """Load the pages of Python's reference documentation, by their names."""
    file = _library() / "pydoc_data" / "topics.py"
    if not file.is_file():
        fix = "use another Python (its base package has it), or your own text: data.path=<file>"
        raise DataError("this Python comes without its reference documentation", file=file, fix=fix)
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict):
            return dict(ast.literal_eval(node.value))
    raise DataError("no topics in this file", file=file, fix="data.path=<your own text>")


def _library() -> Path:
    return Path(sysconfig.get_paths()["stdlib"])


def _sources(names: tuple[str, ...]) -> Iterator[tuple[Path, str]]:
    """(file, module name) of packages and modules, in order; what this Python lacks is left out."""
    for name in names:
        root = _library() / name
        files = sorted(root.rglob("*.py")) if root.is_dir() else [root.with_suffix(".py")]
        for file in files:
            parts = file.relative_to(_library()).with_suffix("").parts
            if file.is_file() and not {"test", "tests"} & set(parts):
                yield file, ".".join(part for part in parts if part != "__init__")


def read_paragraphs(file: Path) -> list[str]:
    """The running text of all docstrings of a file, by paragraph."""
    return [
        paragraph for text in extract_docstrings(file) for paragraph in extract_paragraphs(text)
    ]


def extract_docstrings(file: Path) -> list[str]:
    """The docstrings of a file in the order of its source."""
    owners = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings: list[str] = []
    stack: list[ast.AST] = [ast.parse(file.read_bytes())]
    while stack:
        node = stack.pop()
        if isinstance(node, owners) and (docstring := ast.get_docstring(node)):
            docstrings.append(docstring)
        stack += reversed(
            [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.stmt)]
        )
    return docstrings
