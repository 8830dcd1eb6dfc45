"""Dialogues turn by turn: the turns before are the source, the next turn is the target."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from plmctl.core.errors import ConfigError, DataError, nearest
from plmctl.core.parts import part_of
from plmctl.storage.reading import parse_json_at
from plmctl.tasks.readers import cornell, files
from plmctl.tasks.readers.column_settings import Columns
from plmctl.tasks.readers.numbered import OTHER, SELF, is_numbered, read_numbered
from plmctl.tasks.readers.pairs import Pairs
from plmctl.tasks.record import Example
from plmctl.text.inputs import need_lines
from plmctl.text.tabular import kind_of

Turn = tuple[str, str]  # speaker, text
Located = tuple[Path, int, dict[str, Any]]  # file, line, a dialogue


@part_of("reader")
class Dialogues(Pairs):
    """JSON dialogues, `{"turns": [...]}` one a line or in one list; numbered lines; or a table of
    context and response, as `Pairs` reads it.

    A turn is a text, or an object with `columns.utterance` and perhaps `columns.speaker`. Every
    turn but the first is a response (with `reply`, those of that speaker alone) to the `turns`
    turns before it, joined by `joiner`. (Schema-Guided Dialogue's layout: Rastogi et al., 2020,
    arXiv:1909.05855; its own folders, `train/dialogues_001.json` and so on, too.) The folder of
    Cornell's movie dialogs is read as it was published. Numbered lines (Persona-Chat: Zhang et al.,
    2018, arXiv:1801.07243; ConvAI2) have the answer in the second column, or with `reply`:
    "partner" in the first one. The facts about the person who answers stand before the context.
    """

    def __init__(
        self,
        *,
        splits: Any,
        turns: int,
        joiner: str,
        reply: str | None = None,
        lenient: bool = False,
    ) -> None:
        super().__init__(splits=splits, lenient=lenient)
        if turns < 1:
            raise ConfigError(
                "turns", turns, "1 or more: a response answers an earlier turn", fix="turns=1"
            )
        self.turns, self.joiner, self.reply = turns, joiner, reply

    def has(self, path: Any, split: str, columns: Columns | None = None) -> bool:
        """Whether `path` has that split; Cornell's folder has all of them."""
        if cornell.is_cornell(path):
            return split in files.SPLITS
        return bool(_list_files(path, split)) or super().has(path, split, columns)

    def read(self, path: Any, split: str, columns: Columns) -> list[Example]:
        if several := _list_files(path, split):
            objects = [(file, line, each) for file in several for line, each in _objects(file)]
            return self._read_objects(objects, columns)
        if not cornell.is_cornell(path):
            return super().read(path, split, columns)
        folder = Path(path).expanduser()
        turns, what, who = (str(columns[name]) for name in ("turns", "utterance", "speaker"))
        examples = [
            example
            for number, conversation in enumerate(cornell.conversations(folder, split))
            for example in self._responses(
                {
                    turns: [{who: speaker, what: text} for speaker, text in conversation.turns],
                    str(columns.get("id")): conversation.name,
                },
                columns,
                folder / cornell.CONVERSATIONS,
                conversation.line,
                number,
            )
        ]
        if not examples:
            raise DataError(
                f"no response in the split '{split}'", file=folder / cornell.CONVERSATIONS
            )
        return examples

    def read_file(
        self, file: Path, columns: Columns, *, header: bool | None = None, labelled: bool = True
    ) -> list[Example]:
        if is_numbered(file):
            return self._read_numbered(file)
        if kind_of(file) not in (".json", ".jsonl"):
            return super().read_file(file, columns, header=header, labelled=labelled)
        objects = list(_objects(file))
        if not objects or str(columns["turns"]) not in objects[0][1]:
            return super().read_file(file, columns, header=header, labelled=labelled)
        return self._read_objects([(file, line, each) for line, each in objects], columns)

    def _read_objects(self, objects: Sequence[Located], columns: Columns) -> list[Example]:
        examples = [
            example
            for number, (file, line, dialogue) in enumerate(objects)
            for example in self._responses(dialogue, columns, file, line, number)
        ]
        if not examples:
            file = objects[0][0] if objects else Path()
            speakers = _find_repliers(objects, columns)
            if not speakers:
                raise DataError(
                    f"no '{columns['turns']}' has two turns,"
                    " and a response is a turn that answers one",
                    file=file,
                    fix="whole dialogues, or a table of context and response",
                )
            problem = f"no turn is a response of {self.reply}"
            raise DataError(problem, file=file, fix=f"task.reader.reply={' or '.join(speakers)}")
        return examples

    def _read_numbered(self, file: Path) -> list[Example]:
        speaker = self.reply or SELF
        if speaker not in (SELF, OTHER):
            allowed = f"{SELF} (the second column) or {OTHER} (the first)"
            raise ConfigError("task.reader.reply", speaker, allowed, fix="task.reader.reply=null")
        examples = []
        for number, dialogue in enumerate(read_numbered(file)):
            known = dialogue.persona if speaker == SELF else []
            for turn, (who, response) in enumerate(dialogue.turns):
                before = [text for _, text in dialogue.turns[max(0, turn - self.turns) : turn]]
                if who == speaker and (known or before):
                    fields = {"source": self.joiner.join([*known, *before])}
                    place = f"{file}:{dialogue.line}"
                    name = f"{number}:{turn}"
                    examples.append(Example(name, fields, (response,), place, document=number))
        if not examples:
            raise DataError(f"no response of {speaker}", file=file)
        return examples

    def _responses(
        self, dialogue: dict[str, Any], columns: Columns, file: Path, line: int, number: int
    ) -> Iterator[Example]:
        turns = _turns(dialogue, columns, file, line)
        name = str(dialogue.get(str(columns.get("id")), number))
        for turn, (speaker, response) in enumerate(turns):
            if turn and self.reply in (None, speaker):
                context = self.joiner.join(
                    text for _, text in turns[max(0, turn - self.turns) : turn]
                )
                yield Example(
                    f"{name}:{turn}",
                    {"source": context},
                    (response,),
                    f"{file}:{line}",
                    document=number,
                )


def _objects(file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line, object) of one JSON list, or of one object a line."""
    is_list = files.read_start(file).startswith("[")
    for line, text in [(1, files.read_text(file))] if is_list else need_lines(file):
        if not text.strip():
            continue
        value = parse_json_at(text, file=file, line=None if is_list else line)
        for item in value if is_list else [value]:
            if not isinstance(item, dict):
                raise DataError(
                    f"an object is needed, found {json.dumps(item)[:40]}", file=file, line=line
                )
            yield line, item


def _turns(dialogue: dict[str, Any], columns: Columns, file: Path, line: int) -> list[Turn]:
    spoken, turns = [], dialogue.get(str(columns["turns"]), [])
    if not isinstance(turns, list):
        problem = f"'{columns['turns']}' is no list of turns"
        raise DataError(problem, file=file, line=line, fix="task.columns.turns=<a list>")
    for turn in turns:
        text = (
            turn
            if isinstance(turn, str)
            else turn.get(columns["utterance"])
            if isinstance(turn, dict)
            else None
        )
        if not isinstance(text, str) or not text.strip():
            hint = (
                f" (it has {', '.join(turn)}{nearest(str(columns['utterance']), turn)})"
                if isinstance(turn, dict)
                else ""
            )
            problem = f"a turn without text in '{columns['utterance']}'{hint}"
            fix = "task.columns.utterance=<the field of what was said>"
            raise DataError(problem, file=file, line=line, fix=fix)
        spoken.append(
            (
                str(turn.get(columns["speaker"], "")) if isinstance(turn, dict) else "",
                " ".join(text.split()),
            )
        )
    return spoken


def _list_files(path: Any, split: str) -> list[Path]:
    """`dialogues_001.json` and so on in the folder of a split (Schema-Guided Dialogue)."""
    folder = Path(path).expanduser() / split if isinstance(path, str | Path) else None
    if folder is None or not folder.is_dir():
        return []
    return sorted(file for file in folder.glob("dialogues_*.json*") if file.is_file())


def _find_repliers(objects: Sequence[Located], columns: Columns) -> list[str]:
    """Who speaks after somebody else has."""
    return sorted(
        {
            speaker
            for file, line, dialogue in objects
            for speaker, _ in _turns(dialogue, columns, file, line)[1:]
        }
    )
