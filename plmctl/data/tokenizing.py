"""From text to token directories, which are resumable, appear when they are complete, and are
cached by content.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from plmctl.core.errors import DataError, UsageError
from plmctl.core.machine import count_processors
from plmctl.core.progress import Say
from plmctl.core.terminal import counted
from plmctl.data.encoding import COLUMNS, Labelled, encode_documents
from plmctl.data.located import locate
from plmctl.data.shard_files import cut_shards
from plmctl.data.shards import FORMAT, MANIFEST, SPLITS, VERSION, is_tokens, read_manifest
from plmctl.data.split_writer import SplitWriter
from plmctl.data.survey import Survey, TextSource, ignore_progress, survey_text
from plmctl.knowledge.directory import find_knowledge
from plmctl.storage.atomic import write_text
from plmctl.storage.gate import admit, open_file
from plmctl.storage.journal import Journal, Tell, ignore_line, open_journal
from plmctl.storage.paths import find_cache_folder
from plmctl.text.annotate import Wanted, choose_tracks
from plmctl.text.document import Document
from plmctl.text.letters import LOOKED, measure_changed
from plmctl.text.segment import identify
from plmctl.text.tokenizer import Tokenizer
from plmctl.text.train import Recipe

SAMPLE = "sample.jsonl"  # in the scratch folder: the text that a tokenizer is trained on
# characters between two commits to disk: seconds of work, and of waiting for a slow disk
EVERY = 1 << 27
STEP = 1 << 16  # bytes of text that a tokenizer reads between two reports
# bytes of raw text that are hashed on each start; for more text, size and time of change count
_EXACT = 1 << 28


@dataclass(frozen=True)
class TokenizingJob:
    """Everything that decides the tokens: text, tokenizer, and what is held out."""

    source: TextSource
    recipe: Recipe  # with `path`, the tokenizer there
    valid: TextSource | None = None  # held-out text of its own
    valid_share: float = 0.01
    segment: str | None = None
    at_most: bool = False  # the vocabulary is smaller where the text yields fewer tokens
    processes: int | None = None  # changes nothing but the time
    shard_tokens: int | None = None  # tokens of a shard; None: one array for all
    say: Say = field(default=ignore_progress, compare=False)
    tell: Tell = field(default=ignore_line, compare=False)

    @property
    def wanted(self) -> Wanted:
        """The tracks that are stored in addition to the ids."""
        return Wanted(self.segment, self.source.spans, self.source.tags)

    @cached_property
    def knowledge(self) -> dict[str, str]:
        """The knowledge directory to which the ids of marks refer; {} without one."""
        if not self.source.spans and not self.source.tags:
            return {}
        sources = [source for source in (self.source, self.valid) if source]
        return find_knowledge(file for source in sources for file in source.files())

    def settings(self) -> dict[str, Any]:
        """The settings that decide the tokens, for the manifest and the cache."""
        named = {
            "spans": self.source.spans,
            "tags": self.source.tags,
            "fields": self.source.fields,
            "pairs": self.source.pairs,
            "bytes": self.source.span,
            "valid_bytes": self.valid.span if self.valid else None,
            "knowledge": self.knowledge.get("fingerprint"),
        }
        further = {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in named.items()
            if value
        }
        return further | {
            "field": self.source.field,
            "lines": self.source.lines,
            "segment": identify(self.segment) if self.segment else None,
            "valid_share": 0 if self.valid else self.valid_share,
            "tokenizer": self.recipe.settings(),
        }


def tokenize(job: TokenizingJob, out: str | os.PathLike[str]) -> dict[str, Any]:
    """Write the token directory `out`, or replace an existing one.

    Returns:
        Its manifest.
    """
    folder = Path(out).expanduser().absolute()
    refuse_folder(folder)
    with open_journal(folder, _identity(job), tell=job.tell) as journal:
        manifest = _write(job, journal)
        journal.finish(folder)
    return manifest


def open_or_tokenize(
    job: TokenizingJob, *, cache_dir: str | os.PathLike[str] | None = None, write: bool = True
) -> Path:
    """The token directory of `job`: its path if that is one already, else the cached one, else a
    new one in the cache. If nothing may be written, it raises DataError.
    """
    if is_tokens(job.source.path):
        return locate(job.source.path)
    identity = _identity(job)
    key = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:24]
    folder = find_cache_folder(cache_dir) / key
    if _is_sound(folder):
        if not job.at_most:
            job.recipe.check_size(read_manifest(folder)["tokenizer"]["size"])
        return folder
    if not write:
        raise DataError("this text is not tokenized", file=job.source.path)
    with open_journal(folder, identity, wait=True, tell=job.tell) as journal:
        if not _is_sound(folder):  # no other process has made it meanwhile
            _write(job, journal)
            journal.finish(folder)
    return folder


def _identity(job: TokenizingJob) -> dict[str, Any]:
    """Everything that decides the tokens, as JSON: two jobs with equal identities write the same
    files.
    """
    tokenizer = Tokenizer.load(job.recipe.path).fingerprint if job.recipe.path else None
    texts = [source.content(_EXACT) for source in (job.source, job.valid) if source]
    for entry in (entry for content in texts for entry in content):
        if "sha256" in entry:
            # the same content elsewhere has the same tokens
            entry["path"] = Path(entry["path"]).name
    settings = job.settings()
    known = {"version": VERSION, "text": texts, "settings": settings, "tokenizer": tokenizer}
    # by what rule a share is held out; tokens of before had held out documents of any length
    cut = {"shard_tokens": job.shard_tokens} if job.shard_tokens else {}
    return {**known, **cut, **({"held out": 2} if settings["valid_share"] else {})}


def _is_sound(folder: Path) -> bool:
    with contextlib.suppress(DataError):
        return is_tokens(folder) and bool(read_manifest(folder))
    return False


def _write(job: TokenizingJob, journal: Journal) -> dict[str, Any]:
    """Write survey, tokenizer, arrays and manifest, or read them from the journal if they are
    finished.
    """
    survey, held = _survey(job, journal)
    tokenizer = _tokenizer(job, journal)
    size = survey.bytes + (held.bytes if held else 0)
    surveys, home = (survey, held), journal.folder / "tokenizer"
    entries, left, dropped = encode_arrays(job, journal, surveys, tokenizer, home, size)
    sample = _read_sample(journal.scratch / SAMPLE)
    return finish_tokens(job, journal.folder, tokenizer, entries, surveys, sample, (left, dropped))


def finish_tokens(
    job: TokenizingJob,
    folder: Path,
    tokenizer: Tokenizer,
    entries: dict[str, Any],
    surveys: tuple[Survey, Survey | None],
    sample: Iterable[str],
    missing: tuple[Counter[str], int],
) -> dict[str, Any]:
    """Write the manifest of arrays that are complete.

    Args:
        entries: The manifest's entry of each split.
        surveys: The surveys of the text and of the held-out text.
        sample: The texts of the tokenizer.
        missing: The counts of marks and pairs that were left out, and of dropped documents.
    """
    if not entries["train"]["tokens"]:
        what, fix = "no text is left to train on", "more text, or a smaller data.valid_share"
        if missing[1] and job.valid:
            what += f": {counted(missing[1], 'document')} of it are in {job.valid.path}, too"
            fix = "data.valid_path=null"
        raise DataError(what, file=job.source.path, fix=fix)
    survey, held = surveys
    manifest = _manifest(job, tokenizer, entries, survey, held)
    manifest["text"] = {
        "joined": survey.joined + (held.joined if held else 0),
        "html": survey.html,
        "letters": measure_changed(tokenizer.normalize, iter(sample)).settings(),
    }
    manifest |= {
        "tracks": [*choose_tracks(tokenizer, job.wanted)],
        "left_out": dict(missing[0]),
        "dropped_from_train": missing[1],
    }
    if job.shard_tokens is not None:
        cut_shards(folder, manifest, job.shard_tokens)
    text = json.dumps(manifest, indent=1, ensure_ascii=False) + "\n"
    write_text(folder / MANIFEST, text)
    return manifest


def _survey(job: TokenizingJob, journal: Journal) -> tuple[Survey, Survey | None]:
    """The surveys of both texts; the text to train a tokenizer on is written to the scratch
    folder.
    """
    held_file, sample = journal.scratch / "held.npy", journal.scratch / SAMPLE
    if saved := journal.state.get("survey"):
        held = (
            Survey.from_json(saved["held"], np.load(held_file, allow_pickle=False))
            if saved["held"]
            else None
        )
        return Survey.from_json(saved["text"], np.zeros(0, np.uint64)), held
    sample_bytes = LOOKED if job.recipe.path else job.recipe.sample_bytes
    survey = survey_text(
        job.source,
        valid_share=0 if job.valid else job.valid_share,
        sample_bytes=sample_bytes,
        say=job.say,
    )
    held = survey_text(job.valid, valid_share=0, sample_bytes=0, say=job.say) if job.valid else None
    np.save(admit(held_file), held.identities if held else np.zeros(0, np.uint64))
    with open_file(sample, "w") as lines:
        lines.writelines(
            json.dumps(text) + "\n" for text in choose_training_texts(survey.sample, job.recipe)
        )
    journal.commit(survey={"text": survey.to_json(), "held": held.to_json() if held else None})
    return replace(survey, sample=[], identities=np.zeros(0, np.uint64)), held


def _tokenizer(job: TokenizingJob, journal: Journal) -> Tokenizer:
    """Load the given tokenizer, or train one on the sample; save it in the folder."""
    folder = journal.folder / "tokenizer"
    if "tokenizer" in journal.state:
        return Tokenizer.load(folder)
    tokenizer = learn_tokenizer(job, partial(_read_sample, journal.scratch / SAMPLE))
    tokenizer.save(folder)
    journal.commit(tokenizer=tokenizer.fingerprint)
    return tokenizer


def learn_tokenizer(job: TokenizingJob, texts: Callable[[], Iterator[str]]) -> Tokenizer:
    """The tokenizer that is given, or one that is trained on texts."""
    if job.recipe.path:
        return Tokenizer.load(job.recipe.path)
    total = sum(map(_count_bytes, texts()))
    return Tokenizer.learn_most(
        lambda: _say_reading(job.say, texts(), total), job.recipe, job.tell if job.at_most else None
    )


def _say_reading(say: Say, texts: Iterable[str], total: int) -> Iterator[str]:
    """The texts, with the bytes that a tokenizer has read: to find words may take most of it."""
    done = said = 0
    for text in texts:
        yield text
        done += _count_bytes(text)
        if done >= said + STEP:
            say("reading text for the tokenizer", done, total)
            said = done
    say("training the tokenizer", 0, 0)


def _count_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _read_sample(file: Path) -> Iterator[str]:
    with file.open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def encode_arrays(
    job: TokenizingJob,
    journal: Journal,
    surveys: tuple[Survey, Survey | None],
    tokenizer: Tokenizer,
    home: Path,
    total: int,
) -> tuple[dict[str, Any], Counter[str], int]:
    """Encode the documents that the journal does not have yet.

    Args:
        surveys: The surveys of the text and of the held-out text.
        home: The folder of the tokenizer.
        total: characters of the documents.

    Returns:
        The manifest's entry of each split, how much was left out, by reason, and how many
        documents were dropped.
    """
    divided = _SplitDocuments(*surveys)
    kinds = {"ids": tokenizer.dtype, **choose_tracks(tokenizer, job.wanted)}
    done = journal.state.get("done", {"documents": 0, "characters": 0, "splits": {}})
    count, size = done["documents"], done["characters"]
    splits = {
        name: SplitWriter(journal.folder, name, kinds, job.source.spans, done["splits"].get(name))
        for name in SPLITS
    }
    documents, safe = islice(divided.documents(job), count, None), size
    for chunk in encode_documents(documents, home, job.wanted, job.processes or count_processors()):
        for name, encoded in chunk.items():
            splits[name].append(encoded)
            count += encoded.read
            size += int(encoded.documents[:, COLUMNS.index("characters")].sum())
        job.say("tokenizing characters", size, total)
        if size - safe >= EVERY:
            states = {name: split.state() for name, split in splits.items()}
            journal.commit(done={"documents": count, "characters": size, "splits": states})
            safe = size
    left = sum((split.left for split in splits.values()), Counter[str]())
    return {name: split.close() for name, split in splits.items()}, left, divided.dropped


class _SplitDocuments:
    """The documents in order, each with its split; documents of train that are also held out are
    dropped.
    """

    def __init__(self, survey: Survey, held: Survey | None) -> None:
        self._survey = survey
        self._held = memoryview(held.identities) if held else ()  # type: ignore[arg-type]
        self.dropped = 0

    def documents(self, job: TokenizingJob) -> Iterator[Labelled]:
        for document in job.source.documents():
            if self._is_held(document.identity):
                self.dropped += not document.continues
            else:
                yield document, "valid" if self._survey.holds(document.identity) else "train"
        for document in job.valid.documents() if job.valid else ():
            yield document, "valid"

    def _is_held(self, identity: int) -> bool:
        index = bisect_left(self._held, identity)
        return index < len(self._held) and self._held[index] == identity


def _manifest(
    job: TokenizingJob,
    tokenizer: Tokenizer,
    entries: dict[str, Any],
    survey: Survey,
    held: Survey | None,
) -> dict[str, Any]:
    layouts = {**survey.layouts, **(held.layouts if held else {})}
    files = [entry for source in (job.source, job.valid) if source for entry in source.content()]
    for entry in files:
        if entry["path"] in layouts:
            entry |= layouts[entry["path"]].settings()
    origin: dict[str, Any] = {"path": str(job.recipe.path)} if job.recipe.path else {}
    origin |= {"trained_on": tokenizer.sampled} if tokenizer.sampled else {}
    known = {
        "fingerprint": tokenizer.fingerprint,
        "kind": tokenizer.kind,
        "size": tokenizer.vocab.size,
        **origin,
    }
    return {
        "format": FORMAT,
        "version": VERSION,
        "tokenizer": known,
        "settings": job.settings(),
        "files": files,
        "splits": entries,
        "spans": list(job.source.spans),
        "pairs": job.source.pairs,
        "duplicates": survey.duplicates,
        **({"knowledge": job.knowledge} if job.knowledge else {}),
    }


def choose_training_texts(documents: Iterable[Document], recipe: Recipe) -> Iterator[str]:
    """Yield the texts that a tokenizer is trained on; one document may be larger than the
    sample.
    """
    room = recipe.sample_bytes
    for document in documents:
        for text in (
            document.segments if recipe.kind in ("byte_bpe", "char") else document.sentences
        ):
            if room <= 0:
                return
            room -= len(text)
            yield text


def refuse_folder(folder: Path) -> None:
    """UsageError for a folder that holds other things than tokens."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"out={str(folder)!r}: is a file\n  fix: out=<new folder>")
    if folder.is_dir() and any(folder.iterdir()) and not is_tokens(folder):
        raise UsageError(
            f"out={str(folder)!r}: is not empty and holds no tokens of plmctl\n"
            "  fix: out=<new folder>"
        )
