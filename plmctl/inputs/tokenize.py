"""The job of turning text into tokens, as the `data` and `tokenizer` settings describe it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from plmctl.config.build import plain
from plmctl.config.plugins import as_words
from plmctl.config.spec import Provenance
from plmctl.config.texts import Texts
from plmctl.core.errors import ConfigError
from plmctl.core.progress import Say, show_bytes
from plmctl.core.terminal import remark
from plmctl.data.survey import TextSource
from plmctl.data.tokenizing import TokenizingJob
from plmctl.text import segment
from plmctl.text.inputs import find_all
from plmctl.text.running import check_span


def make_job(
    texts: Texts, path: Any, *, say: Say, target: Any = ..., processes: int | None = None
) -> TokenizingJob:
    """The job of the text at `path`, with the settings and the tokenizer of `texts`.

    Args:
        target: the lines that belong to those of `path`, None for text that is not parallel; by
            default `data.target_path`.
    """
    data = plain(texts.data)
    assert texts.recipe is not None
    if data["segment"] is not None:
        segment.find(data["segment"], texts.plugins)
    source, valid = find_sources(data, plain(path), target=plain(target))
    return TokenizingJob(
        source,
        texts.recipe,
        valid=valid,
        valid_share=data["valid_share"],
        segment=data["segment"],
        at_most=texts.at_most,
        processes=processes,
        say=say,
        tell=remark,
    )


def find_sources(
    data: dict[str, Any], path: Any, *, target: Any = ...
) -> tuple[TextSource, TextSource | None]:
    """The text at `path` and that of data.valid_path.

    Args:
        target: The lines that belong to those of `path`, as for `make_job`.
    """
    if target is not ...:
        data = {**data, "target_path": target}

    def wrong(name: str, allowed: str, fix: str = "") -> ConfigError:
        return ConfigError(f"data.{name}", data[name], allowed, fix=fix)

    if data["valid_target_path"] is not None and data["valid_path"] is None:
        raise wrong("valid_target_path", "goes with data.valid_path, which is not set")
    # before work; the reader looks for data.path itself
    for name in ("target_path", "valid_path", "valid_target_path"):
        if data[name] is not None:
            find_all(data[name], f"data.{name}")
    marked: dict[str, Any] = {
        name: tuple(map(str, data[name])) for name in ("spans", "tags", "fields")
    }
    lines = data["lines"]
    spans = [
        check_span(data[name], lines, setting=f"data.{name}") for name in ("bytes", "valid_bytes")
    ]
    source = TextSource(
        path, data["field"], lines, target=data["target_path"], span=spans[0], **marked
    )
    if data["valid_path"] is None:
        if spans[1] is not None:
            raise wrong("valid_bytes", "goes with data.valid_path, which is not set")
        return source, None
    valid = replace(
        source, path=data["valid_path"], target=data["valid_target_path"], span=spans[1]
    )
    if source.pairs and not valid.pairs:
        fix = "data.valid_target_path=<the translations of data.valid_path>"
        raise wrong("valid_target_path", "must be given too: data.path is parallel text", fix)
    if valid.pairs and not source.pairs:
        fix = "leave it out, or data.target_path=<the translations of data.path>"
        raise wrong("valid_target_path", "data.path is not parallel text", fix)
    return source, valid


def spell_command(given: Provenance, *verb: str) -> str:
    """The command line that `given` comes from; `verb`: of a command that is called otherwise."""
    recipe = [given.recipe] if given.recipe else []
    words = [*recipe, *given.overrides, *as_words(given.plugins, given.config_dirs)]
    return shlex.join(["plmctl", *(verb or (given.verb,)), *words])


@contextmanager
def show_progress(command: str = "", doing: str = "tokenizing") -> Iterator[Say]:
    """Its progress, and, if it is stopped, the command that goes on; by default the command as
    typed.
    """
    try:
        with show_bytes() as say:
            yield say
    except KeyboardInterrupt:
        again = f". To go on:\n  {command}" if command else "; the same command goes on with them"
        remark(f"{doing} was stopped, its finished parts are kept{again}")
        raise
