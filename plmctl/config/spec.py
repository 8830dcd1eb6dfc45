"""A run as it was decided: frozen records and parts, in which a change makes a new value.

A `Record` is a dataclass of settings (`spec.train.steps`), a `Part` a node of a config that names a
class (`spec.optim["_target_"]`). Both are read like mappings, too: `spec["train"]["steps"]`.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from plmctl.config.decision import Decision
from plmctl.config.walks import select


class Keyed(Mapping[str, Any]):
    """A base for groups of settings, which are found by dotted keys."""

    __slots__ = ()

    def select(self, path: str) -> Any:
        """The value at a dotted key, or None where there is nothing."""
        key, _, rest = path.partition(".")
        return select(self.get(key), rest) if rest else self.get(key)


class Part(Keyed):
    """A group of settings that no class of ours lists, read-only at every depth."""

    __slots__ = ("_items",)

    def __init__(self, items: Mapping[str, Any]) -> None:
        object.__setattr__(self, "_items", {key: freeze(value) for key, value in items.items()})

    def __getitem__(self, key: str) -> Any:
        return self._items[key]

    def __getattr__(self, name: str) -> Any:
        if name == "_items" or (name.startswith("__") and name.endswith("__")):
            raise AttributeError(name)
        try:
            return self._items[name]
        except KeyError:
            raise AttributeError(f"there is no setting '{name}'") from None

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{name}: a spec is never written to; `replace` makes a new one")

    __delattr__ = __setattr__  # type: ignore[assignment]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __repr__(self) -> str:
        return repr(self._items)

    def __hash__(self) -> int:
        return hash(tuple(self._items.items()))

    def __reduce__(self) -> tuple[Any, ...]:
        return Part, (self._items,)

    def with_value(self, path: str, value: Any) -> Part:
        """This part with another value at a dotted key, which need not be there yet."""
        key, _, rest = path.partition(".")
        return Part({**self._items, key: _within(self._items.get(key), rest, value)})


class Record(Keyed):
    """A base for frozen dataclasses of settings, whose fields are also the keys of a mapping."""

    instead_of_null = "leave it out"  # the fix where a group of settings is null

    def __getitem__(self, key: str) -> Any:
        if key not in self._keys():
            raise KeyError(key)
        return getattr(self, key)

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys())

    def __len__(self) -> int:
        return len(self._keys())

    def with_value(self, path: str, value: Any) -> Self:
        """This record with another value at a dotted key; KeyError where it has no such field."""
        key, _, rest = path.partition(".")
        changed = {key: _within(self[key], rest, value)}
        return dataclasses.replace(self, **changed)  # type: ignore[type-var]

    def replace(self, changes: Mapping[str, Any]) -> Self:
        """This record with the values of {dotted key: value}."""
        changed = self
        for path, value in changes.items():
            changed = changed.with_value(path, value)
        return changed

    @classmethod
    @functools.cache
    def _keys(cls) -> tuple[str, ...]:
        fields = dataclasses.fields(cls)  # type: ignore[arg-type]
        return tuple(field.name for field in fields if not field.metadata.get("beside"))


# words about a launcher without the prefix `launcher.`
SHORT_LAUNCHER = {"launcher": "launcher.cluster", "nodes": "launcher.nodes"}
VERSION = "version"  # the key of a saved spec that says how it is read
OF_HYDRA = ("hydra/launcher=", "hydra.launcher.")  # beginnings of the words about one of Hydra
_OF_LAUNCHERS = (*(f"{word}=" for word in SHORT_LAUNCHER), "launcher.", *OF_HYDRA)


@dataclass(frozen=True)
class Provenance:
    """The command line: the source of a spec, and the options of its command."""

    verb: str  # the command whose settings these are
    recipe: str | None = None
    overrides: tuple[str, ...] = ()
    config_dirs: tuple[str, ...] = ()
    plugins: tuple[str, ...] = ()
    dry_run: bool = False
    resume: bool = False
    preview: int = 0  # rows to show
    json: bool = False
    submission: bool = False
    within: bool = False  # a job of a sweep, study or chain, which says how to go on with all of it
    launcher: tuple[str, ...] = ()  # for a study's jobs: hydra/launcher=... and its settings
    changes: tuple[str, ...] = ()  # settings that --resume was allowed to change: "key: old -> new"
    # the command that was typed, where its settings are those of another, `verb`: distill
    front: str = ""
    removed: tuple[str, ...] = ()  # settings of parts that are not chosen: "noise.x.rate=0.15"
    decision: Decision | None = None  # the settings that follow from train.minutes
    # the settings with their references (${size.width}), before these were worked out
    written: Part = field(default_factory=lambda: Part({}), repr=False, compare=False)

    @property
    def launched(self) -> bool:
        """Whether a word may be about a launcher."""
        return any(word.startswith(_OF_LAUNCHERS) for word in (*self.overrides, *self.launcher))

    @property
    def command(self) -> str:
        """The name of the command behind `plmctl`."""
        return self.front or self.verb

    @property
    def keys(self) -> frozenset[str]:
        """The settings that the command line names."""
        return frozenset(map(key_of, self.overrides))


# setting -> (the setting that leaves it without effect, with this value; the words that change it)
SPARE: Mapping[str, tuple[str, str | None, str]] = {
    "train.spike_window": ("train.spikes", "off", "train.spikes=skip"),
    "train.spike_deviations": ("train.spikes", "off", "train.spikes=skip"),
    "train.frozen_limit": ("train.frozen_outputs", "batch", "train.frozen_outputs=once"),
    "teacher_weights": ("teacher", None, "teacher=[<a run>,<another run>]"),
}


@dataclass(frozen=True)
class RunSpec(Record):
    """The input of every command: its settings (the subclasses of config/schema.py), checked, and
    their source.
    """

    idle: ClassVar[tuple[str, ...]] = ()  # slots that part files state and the command leaves
    optional: ClassVar[tuple[str, ...]] = ("origin",)  # settings that are saved where they are set

    provenance: Provenance = field(
        default=Provenance(""), repr=False, compare=False, kw_only=True, metadata={"beside": True}
    )

    @property
    def plugins(self) -> tuple[str, ...]:
        """The packages outside plmctl whose parts may be named."""
        return self.provenance.plugins

    def find_unread(self, typed: Collection[str]) -> dict[str, tuple[str, str]]:
        """{setting or group: (why it has no effect, what to type instead)} as this spec stands; an
        empty text is "leave it out". Single settings are checked where they were typed.
        """
        unread = dict.fromkeys(self.idle, ("this command trains nothing", ""))
        for key, (other, value, fix) in SPARE.items():
            if key in typed and self.select(other) == value:
                unread[key] = (f"{other} is {'null' if value is None else value}", fix)
        return unread

    def used(self) -> dict[str, Any]:
        """The settings that have an effect, as plain values: what is saved and printed."""
        return {
            key: thaw(value)
            for key, value in self.items()
            if key not in self.idle and (value is not None or key not in self.optional)
        }

    def asked(self, **wishes: Any) -> Self:
        """This spec with other values in its provenance: `asked(dry_run=True)`."""
        known = dataclasses.replace(self.provenance, **wishes)
        return dataclasses.replace(self, provenance=known)


def key_of(word: str) -> str:
    """The setting that an override names: `optim.lr` of `+optim.lr=1`."""
    return word.lstrip("+~").partition("=")[0]


def all_parts_in(node: Any, path: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """(dotted key, part) of every part in settings, also inside of others and of lists."""
    if isinstance(node, Mapping) and "_target_" in node:
        yield path, node
    items = node.items() if isinstance(node, Mapping) else ()
    for key, value in enumerate(node) if isinstance(node, (list, tuple)) else items:
        yield from all_parts_in(value, f"{path}.{key}" if path else str(key))


def freeze(value: Any) -> Any:
    """`value` with parts for mappings and tuples for lists, at every depth."""
    if isinstance(value, (Part, Record)):
        return value
    if isinstance(value, Mapping):
        return Part(value)
    return tuple(map(freeze, value)) if isinstance(value, (list, tuple)) else value


def thaw(value: Any) -> Any:
    """`value` as plain dicts and lists, which the caller may change."""
    if isinstance(value, Mapping):
        return {key: thaw(item) for key, item in value.items()}
    return [thaw(item) for item in value] if isinstance(value, (list, tuple)) else value


def _within(node: Any, path: str, value: Any) -> Any:
    """`node` with another value at a dotted key; the value itself without one."""
    if not path:
        return freeze(value)
    if isinstance(node, tuple):
        place, _, rest = path.partition(".")
        inner = _within(node[int(place)], rest, value)
        return (*node[: int(place)], inner, *node[int(place) + 1 :])
    return (node if isinstance(node, (Part, Record)) else Part({})).with_value(path, value)
