"""The settings of a `config.json`, each stated once for both ways: `n_embd <-> width`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Annotated, Any, NotRequired, TypedDict

from plmctl.core import values
from plmctl.core.errors import ConfigError, DataError, nearest
from plmctl.core.values import Count

Config = Mapping[str, Any]  # settings of a config.json, or a config of plmctl
REQUIRED: Any = object()  # a default that says that every file has the setting
LARGEST = 1 << 26  # the largest number of a config.json that `MOST` does not name
MOST = {
    "num_layers": 2500,
    "decoder_layers": 2500,
    "num_heads": 1 << 12,
    "decoder_heads": 1 << 12,
    "width": 1 << 16,
    "table_width": 1 << 16,
    "head_width": 1 << 16,
    "segments": 1 << 12,
    "languages": 1 << 12,
}


class Numbers(SimpleNamespace):
    """The numbers in which members of a family differ: its table of settings names them, and it may
    add others.
    """

    num_layers: int
    width: int
    num_heads: int
    inner_width: int
    vocab_size: int
    dropout: float
    attention_dropout: float
    activation: str
    max_length: int = 0
    segments: int = 0
    eps: float = 0.0
    tied: bool = True
    pad: int = 0  # id of the padding token, on which RoBERTa's positions depend
    # columns of the tables, which may be narrower than the width (ALBERT, ELECTRA)
    table_width: int = 0
    groups: int = 0  # ALBERT: sets of weights that its layers share; 0: each layer has its own
    # XLNet: tokens of the memory, and how many of each row are added to it; null: all
    memory: int = 0
    reuse: int | None = None

    @property
    def blocks(self) -> int:
        """Layers with weights of their own."""
        return self.groups or self.num_layers

    def but(self, **others: Any) -> Numbers:
        """These numbers, some of them changed or added."""
        return Numbers(**vars(self) | others)


def refuse_huge(numbers: Numbers, file: object) -> None:
    """Raise DataError for numbers that no model has, before any memory is allocated."""
    wrong = [
        f"{name} is {value}, and may be {MOST.get(name, LARGEST):,} at most"
        for name, value in vars(numbers).items()
        if isinstance(value, int | float) and not abs(value) <= MOST.get(name, LARGEST)
    ]
    if wrong:
        raise DataError("; ".join(wrong), file=file, fix="download it again")


def _same(value: Any) -> Any:
    return value


@dataclass(frozen=True)
class Key:
    """A published setting and our name of it.

    Args:
        key: Its name in a `config.json`.
        name: Ours, of `Numbers`.
        kind: The annotation of its value.
        default: The value where a file lacks it; REQUIRED: every file has it.
        written: Export writes it.
    """

    key: str
    name: str
    kind: Any
    default: Any = REQUIRED
    read: Callable[[Any], Any] = _same
    write: Callable[[Any], Any] = _same
    written: bool = True

    def check(self, settings: Config) -> None:
        """ConfigError for a value that our parts cannot express."""

    def take(self, settings: Config) -> dict[str, Any]:
        """{our name: our value}."""
        return {self.name: self.read(settings.get(self.key, self.default))}

    def state(self, numbers: Numbers) -> dict[str, Any]:
        """{their name: their value}."""
        return {self.key: self.write(getattr(numbers, self.name))} if self.written else {}


@dataclass(frozen=True)
class Activation(Key):
    """The activation, by a table of names: theirs -> ours. The first name of ours is written; with
    the key "" none is.
    """

    names: Mapping[Any, str] = field(default_factory=dict)

    def take(self, settings: Config) -> dict[str, Any]:
        theirs = settings.get(self.key, self.default)
        if theirs not in self.names:
            allowed = f"one of {', '.join(self.names)}{nearest(theirs, self.names)}"
            raise ConfigError(f"config.json: {self.key}", theirs, allowed)
        return {self.name: self.names[theirs]}

    def state(self, numbers: Numbers) -> dict[str, Any]:
        theirs = {ours: name for name, ours in reversed(list(self.names.items()))}
        return {self.key: theirs[numbers.activation]} if self.key else {}


def activation(key: str, names: Mapping[str, str], default: str | None = None) -> Activation:
    """The setting of an activation; without a default the first name."""
    return Activation(key, "activation", str, default or next(iter(names)), names=names)


@dataclass(frozen=True)
class Only:
    """A published setting with one value that our parts have.

    Args:
        key: Its name in a `config.json`.
        why: The end of the message about another one.
        written: Export writes it.
        ignored: The published code ignores what a file says.
    """

    key: str
    value: Any
    why: str = " (nothing else is supported)"
    written: bool = False
    ignored: bool = False

    def check(self, settings: Config) -> None:
        """ConfigError for another value."""
        if (found := settings.get(self.key, self.value)) != self.value:
            fix = f'"{self.key}": {json.dumps(self.value)} in this file' if self.ignored else ""
            raise ConfigError(f"config.json: {self.key}", found, f"{self.value}{self.why}", fix=fix)

    def take(self, settings: Config) -> dict[str, Any]:
        """{}: none of our numbers."""
        return {}

    def state(self, numbers: Numbers) -> dict[str, Any]:
        """{their name: the one value}."""
        return {self.key: self.value} if self.written else {}


@dataclass(frozen=True)
class Written(Only):
    """A setting that export writes with one value, and import does not read."""

    written: bool = True

    def check(self, settings: Config) -> None:
        """Nothing."""


@dataclass(frozen=True)
class Also(Key):
    """A second published name of a number; import does not read it."""

    kind: Any = None

    def take(self, settings: Config) -> dict[str, Any]:
        return {}


Settings = Sequence[Key | Only]


def change(stated: Settings, *others: Key | Only) -> Settings:
    """The settings with `others`, which replace settings of the same name or follow all."""
    new = {each.key: each for each in others}
    known = {each.key for each in stated}
    kept = [new.get(each.key, each) for each in stated]
    return (*kept, *(each for each in others if each.key not in known))


def _has_default_names(labels: Mapping[str, str]) -> bool:
    return all(key.isdecimal() and key.isascii() for key in labels)


_Labels = Annotated[
    dict[str, str], values.Rule(_has_default_names, "numbers from 0 on, each with a name")
]
_LABELS = {"problem_type": NotRequired[str | None], "id2label": NotRequired[_Labels | None]}


def make_schema(stated: Settings) -> Any:
    """The annotations of a `config.json`, as a TypedDict: these settings and the labels."""
    own = {
        each.key: each.kind if each.default is REQUIRED else NotRequired[each.kind]
        for each in stated
        if isinstance(each, Key) and each.key and each.kind is not None
    }
    record: Any = TypedDict
    return record("PublishedConfig", {**own, **_LABELS})


VOCAB = Key("vocab_size", "vocab_size", Count)
TIED = Key("tie_word_embeddings", "tied", bool, True)


def pad(*, written: bool) -> Key:
    """The setting of the padding token; null is 0."""
    kind = int | None
    return Key("pad_token_id", "pad", kind, None, read=lambda id: id or 0, written=written)
