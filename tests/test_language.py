"""The language of the project: a pattern for each rule, over docstrings, arguments, comments, help,
messages, pages and recipes. `python tests/test_language.py --count` counts the hits by rule and
room; `--list [ROOM, KIND or RULE ...]` prints each hit with its file and line.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.trees import walk

ROOT = Path(__file__).parents[1]
LONGEST = 25  # words of a sentence
CODE = {"docstring", "argument", "comment"}  # counted by room; other kinds by themselves

SCHEMA = {"schema.py", "groups.py", "uses.py", "writing.py", "linked.py", "published.py"}
DATA = {
    "function_words.py",
    "sample.py",
    "sentences.py",
}  # words and texts, which are no language of ours

# Hits that are left: a number may only fall. Rooms and kinds that are not listed have none.
CEILINGS: dict[str, int] = {}


class Unit(NamedTuple):
    """A paragraph or an entry with its room (or folder), its kind, its file and first line."""

    room: str
    kind: str
    file: Path
    line: int
    text: str


_BE = r"(?:is|are|was|were|be|been|being|it|them|one)"
_IS = r"(?:is|are|was|were)"
_RULES = {
    # rule: patterns of what breaks it, the first word of a sentence or anywhere
    "start": (
        r"^(?:of|that)\b(?! (?:is|way|one|much|said|model)\b)",
        r"^(?:what|which)\b(?!.*\?$)",
    ),
    "relative": (
        r"\bthose (?:that|which|whose)\b|\bthe ones? (?:that|which)\b|\bthat which\b",
        rf"\bof (?:two|several|these) the\b|\b{_IS} of[.,;:)]",
        r"\b(?:of|after|before|beyond|behind|than|beside|with|for) what\b",
    ),
    "ask": (rf"\b{_BE} (?:not |never |only )?asked\b", r"\basked (?:of|for)\b"),
    "give": (r"\b(?:as|if|where|when|unless|not|none) (?:it is |they are |one is )?given\b",),
    "keep": (r"\bkept (?:back|apart|beside|of|by|whole|to|alone)\b",),
    "tell": (r"\b(?:tells?|told|telling)\b(?!.{0,24} apart)",),
    "say": (r"\bsaid\b",),
    "beside": (r"\bbeside\b(?![.=\[_-]| \{\}(?: \(|$)| out)",),
    "place": (
        r"(?<!in )(?<!decimal )(?<!takes )(?<!take )(?<!and )\bplaces?\b",
        r"\bin place of\b",
    ),
    "find": (r"\bfound (?:of|in what|by what|so|wanting)\b|\b(?:what|as) (?:is |was )?found\b",),
    "there": (
        rf"\bthere {_IS} none\b|\b{_IS} (?:not )?there[.,;:)]",
        rf"\b(?:that|which) {_IS} (?:not |already )?there\b",
    ),
    # of an argument's description only
    "noun first": (
        r"^(?:of|that|which|where|by|than|those|such|whose|at|on|from|for|how|as|what)\b",
    ),
}
RULES = {name: re.compile("|".join(rules), re.I) for name, rules in _RULES.items()}
# a part of whatever breaks a rule: to look for it takes a tenth of the time
PARTS = {"ask": "asked", "give": "given", "keep": "kept", "say": "said", "beside": "beside"}
PARTS |= {"place": "place", "find": "found", "there": "there"}
_SHORT = "".join(rf"(?<!\b{word}\.)" for word in (r"e\.g", r"i\.e", "sec", "al", "eq", "vs", "app"))
_END = re.compile(rf"(?<=[.!?]){_SHORT}[\"')]?\s+(?=[A-Z*`\"'(\[{{<])")
_SECTION = re.compile(r"(Args|Returns|Raises|Yields|Attributes|Example|Examples):$")


def split_sentences(text: str) -> list[str]:
    text = re.sub(r"``?[^`]*``?|!?\[([^\]]*)\]\([^)]*\)|<[^>]*>", lambda m: m[1] or "X", text)
    return [part.strip(" *_") for part in _END.split(" ".join(text.split())) if part.strip()]


def paragraphs_of(text: str, margin: int) -> Iterator[tuple[int, bool, str]]:
    """(line, of an argument, text) of a docstring with lines indented by `margin`; formulas and
    examples, which are indented more, are left out.
    """
    section, block, start, argument = "", [], 0, False
    lines = text.expandtabs().splitlines()
    for number, line in enumerate([*lines, ""]):
        words, indent = line.strip(), len(line) - len(line.lstrip()) if number else margin
        heading = _SECTION.match(words)
        entry = section in ("Args", "Attributes") and indent == margin + 4
        if not words or heading or entry or (indent == margin and section):
            if block:
                yield start, argument, " ".join(block)
            block, argument = [], False
            section = heading[1] if heading else section if indent > margin or not words else ""
        if heading or not words or section.startswith("Example"):
            continue
        if row := re.match(r"(?:[\w.*]+\s{2,}|[-*] )(\S.*)", words):  # of a table or list
            if block:
                yield start, argument, " ".join(block)
            start, argument, block = number, False, [row[1]]
            continue
        if entry and (named := re.match(r"\*{0,2}[\w, *]+(?:\(.*?\))?:\s+(.*)", words)):
            start, argument, block = number, True, [named[1]]
        elif section or indent == margin:
            start = start if block else number
            block.append(words)
        elif indent > margin and block and not argument:
            yield start, argument, " ".join(block)
            block = []


def literals(nodes: Sequence[ast.AST]) -> Iterator[tuple[int, str]]:
    """The texts in the nodes of a program: strings of two words or more, values as `{}`."""
    docs = {id(n.value) for n in nodes if isinstance(n, ast.Expr)}
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            docs |= {id(value) for value in walk(node) if value is not node}
    for node in nodes:
        if id(node) in docs:
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        elif isinstance(node, ast.JoinedStr):
            parts = [p.value if isinstance(p, ast.Constant) else "{}" for p in node.values]
            text = "".join(map(str, parts))
        else:
            continue
        if len(re.findall(r"(?<![\w.=/])[a-z]{2,}(?![\w.=/(])", text)) >= 2:
            yield node.lineno, text


def comments(text: str, nodes: Sequence[ast.AST]) -> Iterator[tuple[int, str]]:
    """Comments, with the lines of one joined."""
    inside: set[int] = set()
    for node in nodes:
        if isinstance(node, ast.Constant | ast.JoinedStr) and node.end_lineno != node.lineno:
            inside.update(range(node.lineno, (node.end_lineno or 0) + 1))
    yield from joined(
        (number, found[2].strip(), not found[1].strip())
        for number, line in enumerate(text.splitlines(), 1)
        if "#" in line
        and number not in inside
        and (found := re.match(r"^(\s*|.*?  )#(?: +|$)(.*)", line))
        if found[1].count('"') % 2 == 0
    )


def joined(lines: Iterable[tuple[int, str, bool]]) -> Iterator[tuple[int, str]]:
    """Comments out of (line, text, alone on its line): a line alone goes on the one above it."""
    start, last, block = 0, -1, []
    for number, text, alone in lines:
        if block and not (alone and number == last + 1 and text):
            yield start, " ".join(block)
            block = []
        start = start if block else number
        block.append(text)
        last = number if alone else -1
    if block:
        yield start, " ".join(block)


def in_python(file: Path) -> Iterator[Unit]:
    text = file.read_text(encoding="utf-8")
    nodes = walk(ast.parse(text))
    room, *inside = file.relative_to(ROOT).parts
    room = inside[0] if room == "plmctl" else room
    for node in nodes:
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        doc = ast.get_docstring(node, clean=False)
        if doc:
            for line, argument, paragraph in paragraphs_of(doc, node.body[0].col_offset):
                kind = "argument" if argument else "docstring"
                yield Unit(room, kind, file, node.body[0].lineno + line, paragraph)
    if file.name in DATA:
        return
    for line, unit in literals(nodes):
        for paragraph in re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|fix:))", unit):
            yield Unit(room, "message", file, line, paragraph)
    for line, unit in comments(text, nodes):
        yield Unit(
            room,
            "help" if room == "config" and file.name in SCHEMA else "comment",
            file,
            line,
            unit,
        )


def in_page(file: Path) -> Iterator[Unit]:
    block: list[str] = []
    start, code, room = 0, False, "docs" if "docs" in file.parts else file.name
    for number, line in enumerate([*file.read_text(encoding="utf-8").splitlines(), ""], 1):
        words = line.strip()
        fence = words.startswith("```")
        item = re.match(r"(?:[-*]|\d+\.|#+|>) ", words)
        if fence or not words or item or words.startswith(("|", "<!--")):
            yield Unit(room, "page", file, start, " ".join(block))
            block = []
        code ^= fence
        if code or fence or not words or words.startswith("<!--"):
            continue
        if words.startswith("|"):
            for cell in re.split(r"(?<!\\)\|", words):
                yield Unit(room, "cell", file, number, cell.strip())
            continue
        start = start if block else number
        block.append(words[item.end() :] if item else words)


def in_settings(file: Path) -> Iterator[Unit]:
    """Comments of a recipe; those of a header begin with `Launch:` and the like."""
    room, block, start = file.relative_to(ROOT).parts[0], [], 0
    for number, line in enumerate([*file.read_text(encoding="utf-8").splitlines(), ""], 1):
        match = re.match(r"^(\s*|.*?\s)#\s*(.*)$", line) if "#" in line else None
        row = match and re.match(r"(?!\w+:)\S.*?\s{2,}\S", match[2])  # of a table, as ablations
        begins = match and re.match(r"[A-Z]\w*( \w+)?:|[A-Z].*:$|@", match[2])
        if block and (not match or match[1].strip() or begins or row):
            yield Unit(room, "settings", file, start, " ".join(block))
            block = []
        if row:
            for cell in re.split(r"\s{2,}", match[2]):
                yield Unit(room, "cell", file, number, cell)
        elif match and match[1].strip():
            yield Unit(room, "settings", file, number, match[2])
        elif match and not match[2].startswith("@package"):
            start = start if block else number
            block.append(match[2])


def units() -> Iterator[Unit]:
    for file in sorted((ROOT / "plmctl").rglob("*.py")):
        yield from in_python(file)
    for folder in ("docs", "examples"):
        for file in (ROOT / folder).rglob("*.py"):
            yield from in_python(file)
    for folder in ("docs", "examples", "recipes", ".github"):
        for file in (ROOT / folder).rglob("*.md"):
            yield from in_page(file)
    for file in ROOT.glob("*.md"):
        yield from in_page(file)
    for folder in ("conf", "recipes"):
        for file in (ROOT / folder).rglob("*.yaml"):
            yield from in_settings(file)


def broken(unit: Unit) -> Iterator[tuple[str, str]]:
    """(rule, sentence) of each rule that a sentence breaks."""
    command = r"\bplmctl \S.*?(?=\s\([A-Za-z]|$)"  # up to a remark in brackets
    text = re.sub(command, "X", unit.text) if unit.kind == "settings" else unit.text
    for at, sentence in enumerate(split_sentences(text)):
        lower = sentence.lower()
        for name, rule in RULES.items():
            if PARTS.get(name, "") not in lower:
                continue
            if name == "noun first" and (at or unit.kind != "argument"):
                continue
            short = unit.kind == "message" and len(sentence.split()) < 5  # "of 12", behind a number
            if rule.search(sentence) and not (short and name == "start" and sentence[0] == "o"):
                yield name, sentence
        clauses = re.sub(r"\([^()]*\)|\{[^{}]*\}", "", sentence).split("; ")
        if max(len(words.split()) for words in clauses) > LONGEST:
            yield "long", sentence


def hits() -> list[tuple[str, Unit, str]]:
    return [(rule, unit, text) for unit in units() for rule, text in broken(unit)]


def count(found: list[tuple[str, Unit, str]]) -> Counter[str]:
    """{room of the code, or kind of other texts: hits}."""
    return Counter(u.room if u.kind in CODE else u.kind for _, u, _ in found)


def test_hits_only_fall() -> None:
    found = hits()
    grown = {where for where, number in count(found).items() if number > CEILINGS.get(where, 0)}
    shown = [show(*hit) for hit in found if count([hit]).keys() & grown]
    assert not grown, "\n".join([*shown[:20], f"more hits than CEILINGS allow: {sorted(grown)}"])


def test_examples_of_the_rules() -> None:
    def rules(kind: str, text: str) -> set[str]:
        return {rule for rule, _ in broken(Unit("nn", kind, Path("x.py"), 1, text))}

    assert rules("argument", "of two the one that the threshold is of.") >= {"start", "relative"}
    assert not rules("argument", "The positive label. The threshold applies to its probability.")
    assert rules("page", "The user is told. It was said. There is none.") == {
        "tell",
        "say",
        "there",
    }
    assert not rules("page", "What does it cost? One line tells both files apart. It takes place.")
    assert rules("docstring", " ".join(["word"] * 26)) == {"long"}
    assert all(part in rule for name, part in PARTS.items() for rule in _RULES[name])
    assert not rules("docstring", f"{'word ' * 20}(Graves, 2016, arXiv:1603.08983, sec. 2.1).")


def show(rule: str, unit: Unit, text: str) -> str:
    return f"{unit.file.relative_to(ROOT)}:{unit.line}: {unit.kind}, {rule}: {text}"


if __name__ == "__main__":
    found = hits()
    if "--list" in sys.argv:
        wanted = set(sys.argv[2:])
        chosen = [hit for hit in found if wanted <= {hit[1].room, hit[1].kind, hit[0]}]
        print("\n".join(show(*hit) for hit in chosen))
    else:
        print("by rule:", dict(Counter(rule for rule, *_ in found).most_common()))
        print("by kind:", dict(Counter(unit.kind for _, unit, _ in found).most_common()))
        print("by room:", dict(sorted(count(found).items())), "in all", len(found))
