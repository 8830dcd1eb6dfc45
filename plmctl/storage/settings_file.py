"""Settings in YAML: plain values, read and written without any evaluation."""

from __future__ import annotations

import contextlib
import functools
import pickle
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from plmctl.core.errors import DataError, UsageError
from plmctl.storage.reading import COPY, read_text

CHARACTERS, VALUES = 1 << 22, 1 << 18  # limits of a file of settings: characters, and values in it
DEPTH = 100  # groups and lists inside each other: the parser in C ends the process at some 10,000
DIGITS = 40  # digits of a number, in whatever base: 64 bits take 20
# patterns that may stand for more of these: a long line, or many brackets, or a long number
_LONG_LINE, _LONG_NUMBER = re.compile(r"[^\n]{500}"), re.compile(r"[0-9a-fA-FxX_:]{40}")
# 1e-3, which YAML 1.1 takes for a text
_EXPONENT = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+")
# objective=[mlm] in a list, where its brackets are the grammar of YAML
_UNQUOTED = re.compile(r"(?<=[\[,\s])[\w.@/+]+=(\[[^\[\]]*\]|\{[^{}]*\})")
_NUMBER = re.compile(  # whole ones in YAML 1.1, and those in base 60: 1:59:59
    r"[-+]?(0b[01_]+|0[0-7_]+|0x[0-9a-fA-F_]+|[1-9][0-9_]*(:[0-5]?[0-9])*"
    r"|[0-9][0-9_]*(:[0-5]?[0-9])+\.[0-9_]*)"
)
_PLAIN = (str, int, float, bool, type(None))


def read_settings(file: Path, *, fix: str = COPY) -> dict[str, Any]:
    """The group of settings in a YAML file.

    Raises:
        DataError: It is not readable, holds something else, or more than settings need.
    """
    import yaml

    text = read_text(file, fix=fix)
    try:
        refuse_endless(text, file=file, fix=fix)
        settings = pickle.loads(_parse(text))
    except RecursionError:
        raise DataError("nested too deeply, or a group holds itself", file=file, fix=fix) from None
    except (yaml.YAMLError, ValueError, TypeError) as error:
        reason = " ".join(str(error).split())
        mark = getattr(error, "problem_mark", None)
        if mark is not None and not text.endswith("\n") and mark.line >= text.count("\n"):
            reason = f"cut off in line {mark.line + 1}, which is no whole setting"
        fix = _find_unquoted(text, getattr(error, "problem_mark", None)) or fix
        raise DataError(f"not readable as YAML ({reason[:300]})", file=file, fix=fix) from error
    if settings is None:
        return {}
    if not isinstance(settings, dict) or any(not isinstance(key, str) for key in settings):
        raise DataError("not a group of settings", file=file, fix=fix)
    return settings


def _find_unquoted(text: str, mark: Any) -> str:
    """The spelling of an override with brackets in a list without quotes, in the line of a mistake;
    empty if the line has none.
    """
    lines = text.splitlines()
    line = lines[mark.line] if mark is not None and mark.line < len(lines) else ""
    bare = _UNQUOTED.search(line)
    return f'in quotes: "{bare[0]}"' if bare else ""


@functools.lru_cache(maxsize=1024)
def _parse(text: str) -> bytes:
    """The values of a text, which is parsed once; pickled, so that each reader has its own."""
    import yaml

    try:
        settings = yaml.load(text, _loader(find_fast_loader()))
    except yaml.YAMLError:  # the slow one says more of a mistake
        settings = yaml.load(text, _loader(yaml.SafeLoader))
    _refuse_objects(settings)
    return pickle.dumps(settings)


def to_yaml(settings: Mapping[str, Any]) -> str:
    """Plain settings as YAML, from which `read_settings` reads the same values."""
    import yaml

    return yaml.dump(settings, Dumper=_dumper(), allow_unicode=True, sort_keys=False)


def refuse_endless(text: str, *, file: object, fix: str = COPY) -> None:
    """Raise DataError for more YAML than settings need, before or after its aliases are expanded:
    before the parser, which would end the process, sees it.
    """
    if len(text) > CHARACTERS:
        raise DataError(f"more than {CHARACTERS:,} characters of settings", file=file, fix=fix)
    brackets = text.count("[") + text.count("{")
    long = _LONG_LINE.search(text) or _LONG_NUMBER.search(text)
    if "&" not in text and brackets <= DEPTH and not long:
        return
    if (size := _count_values(text, file, fix)) > VALUES:
        what = f"{size:,} values, once its aliases (*name) are filled in"
        raise DataError(what, file=file, fix=fix)


def read_part_text(file: Path) -> str:
    """The text of a part file, which is no more than settings need."""
    text = read_text(file)
    refuse_endless(text, file=file, fix="write it as plain key: value")
    return text


@contextlib.contextmanager
def refuse_bad_yaml(file: object) -> Iterator[None]:
    """UsageError with the line, where a part file is no YAML."""
    import yaml

    try:
        yield
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark is not None else ""
        why = getattr(error, "problem", None) or " ".join(str(error).split())
        fix = f"correct it in {file}{line}, or in the lines before"
        raise UsageError(f"{file}{line}: not readable as YAML ({why})\n  fix: {fix}") from None


def refuse_endless_files(folder: Path) -> None:
    """UsageError for a file of parts that Hydra would read without end; all other errors appear
    when a part is chosen.
    """
    import yaml

    for file in (file for depth in range(4) for file in folder.glob(f"{'*/' * depth}*.yaml")):
        try:
            refuse_endless(
                file.read_text(encoding="utf-8", errors="replace"),
                file=file,
                fix="write it as plain key: value",
            )
        except DataError as error:
            raise UsageError(str(error)) from None
        except (yaml.YAMLError, OSError, RecursionError):
            continue


def _count_values(text: str, file: object, fix: str) -> int:
    """The number of values of a YAML text with expanded aliases; DataError for one that is nested
    too deeply, or has a number of too many digits.

    It follows the events of the parser, so that it needs no stack, and no more time than a file
    takes without its aliases.
    """
    import yaml

    named: dict[str, int] = {}
    open_groups: list[tuple[str | None, int]] = []  # (name, values before it)
    size = 0
    for event in yaml.parse(text, find_fast_loader()):
        line = event.start_mark.line + 1
        if isinstance(event, yaml.CollectionStartEvent):
            open_groups.append((event.anchor, size))
            size += 1
            if len(open_groups) > DEPTH:
                raise DataError(
                    f"nested too deeply, over {DEPTH} levels", file=file, line=line, fix=fix
                )
        elif isinstance(event, yaml.CollectionEndEvent):
            name, before = open_groups.pop()
            if name is not None:
                named[name] = size - before
        elif isinstance(event, yaml.ScalarEvent):
            size += 1
            if event.anchor is not None:
                named[event.anchor] = 1
            if event.implicit[0] and len(event.value) > DIGITS and _NUMBER.fullmatch(event.value):
                what = f"a number of {len(event.value):,} characters"
                raise DataError(what, file=file, line=line, fix=fix)
        elif isinstance(event, yaml.AliasEvent):
            size += named.get(event.anchor, 1)
    return size


def _refuse_objects(value: Any) -> None:
    """ValueError for YAML values that settings cannot be: sets, bytes."""
    if isinstance(value, (dict, list)):
        for item in value.values() if isinstance(value, dict) else value:
            _refuse_objects(item)
    elif not isinstance(value, _PLAIN):
        raise ValueError(f"a {type(value).__name__} is no setting")


@functools.cache
def _loader(base: Any) -> Any:
    """A reader of plain values: no dates, 1e-3 is a number, and no key stands twice."""
    import yaml

    class Loader(base):  # type: ignore[misc]
        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            keys: set[str] = set()
            for key, _ in node.value:
                if key.value in keys and isinstance(key, yaml.ScalarNode):
                    raise yaml.constructor.ConstructorError(
                        None, None, f"found duplicate key {key.value}", key.start_mark
                    )
                keys |= {key.value} if isinstance(key, yaml.ScalarNode) else set()
            return super().construct_mapping(node, deep=deep)

    Loader.yaml_implicit_resolvers = {
        letter: [(tag, words) for tag, words in known if not tag.endswith(":timestamp")]
        for letter, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    Loader.add_implicit_resolver(
        "tag:yaml.org,2002:float", _whole(_EXPONENT), list("-+0123456789.")
    )
    return Loader


def find_fast_loader() -> Any:
    """The reader in C, several times as fast, where it was built."""
    import yaml

    return getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@functools.cache
def _dumper() -> Any:
    """A writer that quotes texts which `_loader` would read as numbers; the one in C, where it was
    built, takes a quarter of the time.
    """
    import yaml

    plain: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)

    class Dumper(plain):
        pass

    Dumper.add_implicit_resolver(
        "tag:yaml.org,2002:float", _whole(_EXPONENT), list("-+0123456789.")
    )
    return Dumper


def _whole(words: re.Pattern[str]) -> re.Pattern[str]:
    return re.compile(f"^(?:{words.pattern})$")
