"""Dialogues turn by turn: the turns before are the source, the next turn is the target."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from plmctl.core.errors import ConfigError, DataError, nearest
from plmctl.core.parts import part_of
from plmctl.storage.reading import parse_json_at
from plmctl.tasks import cornell, files
from plmctl.tasks.base import Example
from plmctl.tasks.pairs import Columns, Pairs

Turn = tuple[str, str]  # speaker, text


@part_of("reader")
class Dialogues(Pairs):
    """JSON dialogues, `{"turns": [...]}` one a line or in one list; or a table of context and
    response, as `Pairs` reads it.

    A turn is a text, or an object with `columns.utterance` and perhaps `columns.speaker`. Every
    turn but the first is a response (with `reply`, those of that speaker alone) to the `turns`
    turns before it, joined by `joiner`. (Schema-Guided Dialogue's layout: Rastogi et al., 2020,
    arXiv:1909.05855.) The folder of Cornell's movie dialogs is read as it was published, too.
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
                "turns", turns, "1 or more: a response answers what was said before", fix="turns=1"
            )
        self.turns, self.joiner, self.reply = turns, joiner, reply

    def has(self, path: Any, split: str, columns: Columns | None = None) -> bool:
        """Whether `path` has that split; Cornell's folder has all of them."""
        return (
            split in files.SPLITS if cornell.is_cornell(path) else super().has(path, split, columns)
        )

    def read(self, path: Any, split: str, columns: Columns) -> list[Example]:
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
        if files.suffix(file) not in (".json", ".jsonl"):
            return super().read_file(file, columns, header=header, labelled=labelled)
        objects = list(_objects(file))
        if not objects or str(columns["turns"]) not in objects[0][1]:
            return super().read_file(file, columns, header=header, labelled=labelled)
        examples = [
            example
            for number, (line, dialogue) in enumerate(objects)
            for example in self._responses(dialogue, columns, file, line, number)
        ]
        if not examples:
            speakers = _find_repliers(objects, columns, file)
            if not speakers:
                raise DataError(
                    f"no '{columns['turns']}' has two turns,"
                    " and a response is a turn that answers one",
                    file=file,
                    fix="whole dialogues, or a table of context and response",
                )
            raise DataError(
                f"no turn is a response of {self.reply}",
                file=file,
                fix=f"task.reader.reply=<one of {', '.join(speakers)}>",
            )
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
    for line, text in [(1, files.read_text(file))] if is_list else files.lines(file):
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
        raise DataError(
            f"'{columns['turns']}' is no list of turns",
            file=file,
            line=line,
            fix="task.columns.turns=<a list>",
        )
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
            raise DataError(
                f"a turn without text in '{columns['utterance']}'{hint}",
                file=file,
                line=line,
                fix="task.columns.utterance=<the field of what was said>",
            )
        spoken.append(
            (
                str(turn.get(columns["speaker"], "")) if isinstance(turn, dict) else "",
                " ".join(text.split()),
            )
        )
    return spoken


def _find_repliers(
    objects: list[tuple[int, dict[str, Any]]], columns: Columns, file: Path
) -> list[str]:
    """Who speaks after somebody else has."""
    return sorted(
        {
            speaker
            for line, dialogue in objects
            for speaker, _ in _turns(dialogue, columns, file, line)[1:]
        }
    )
