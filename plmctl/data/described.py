"""Descriptions of token directories for the user, and the check that a new one equals an old
one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from plmctl.core.errors import DataError, UsageError
from plmctl.core.pasted import spell_fix
from plmctl.core.rounding import spell_size
from plmctl.core.terminal import counted
from plmctl.data.sample import sample_corpus
from plmctl.data.shards import Shards, read_manifest
from plmctl.data.tokenizing import TokenizingJob
from plmctl.storage.journal import differences
from plmctl.text.letters import ChangedLetters
from plmctl.text.markup import MANY, spell_remedy
from plmctl.text.sentences import CHINESE
from plmctl.text.tokenizer import Tokenizer
from plmctl.text.unknown import describe_unknown, unknown_share
from plmctl.text.vocab import Vocab

FEW_CHANGED = 0.001  # share of the letters: fewer are those of foreign names
MUCH_UNKNOWN = 0.05  # share of the tokens: more than a tokenizer of this kind of text has
# tokens a character: those of a tokenizer of this kind of text have one character or more each
MANY_PIECES = 1.2
# share of the Chinese characters that are words of their own: about 0.26 of modern text by jieba
MANY_ALONE, FEW_CHINESE = 0.45, 200


def describe_tokens(manifest: dict[str, Any], out: object) -> list[str]:
    """Describe the manifest of a token directory, one fact a line."""
    kind = manifest["tokenizer"]
    lines = [
        f"{out}: {kind['kind']} tokenizer with {kind['size']:,} tokens ({kind['fingerprint'][:8]})"
    ]
    if sample := kind.get("trained_on"):
        lines.append(
            f"  the tokenizer was trained on {sample['sentences']:,} sentences,"
            f" {spell_size(sample['bytes'])}"
        )
    for name, split in manifest["splits"].items():
        if not split["tokens"]:
            asked = manifest["settings"]["valid_share"]
            few = "too few documents to hold one out" if asked else "data.valid_share=0"
            lines.append(f"  {name}: nothing, {few} (data.valid_path=... gives some)")
            continue
        ratio = split["bytes"] / max(1, split["tokens"])
        lines.append(
            f"  {name}: {counted(split['documents'], 'document')},"
            f" {counted(split['sentences'], 'sentence')},"
            f" {counted(split['tokens'], 'token')} of text, {ratio:.2f} bytes a token"
        )
    lines += [*warn_of_large_share(manifest), *warn_of_text(manifest)]
    readings = sorted({entry["lines"] for entry in manifest["files"] if entry.get("found")})
    if readings:
        lines.append(f"  lines are read as: {', '.join(readings)} (data.lines=auto)")
    for name in manifest["spans"]:
        count = sum(
            split["arrays"][f"{name}.start"]["length"] for split in manifest["splits"].values()
        )
        lines.append(f"  spans of '{name}': {count:,}")
    lines += [
        f"  left out: {count:,} {what}" for what, count in manifest["left_out"].items() if count
    ]
    if manifest["dropped_from_train"]:
        lines.append(
            f"  {manifest['dropped_from_train']:,} documents are in data.valid_path too and were"
            " left out of train"
        )
    return lines


def sum_up_tokens(manifest: Mapping[str, Any], out: object) -> dict[str, Any]:
    """The numbers of `describe_tokens`, for programs."""
    counts = ("documents", "sentences", "tokens", "bytes")
    kind = {name: manifest["tokenizer"][name] for name in ("kind", "size", "fingerprint")}
    spans = {
        name: sum(own["arrays"][f"{name}.start"]["length"] for own in manifest["splits"].values())
        for name in manifest["spans"]
    }
    return {
        "out": str(out),
        "tokenizer": kind,
        "splits": {
            name: {count: split[count] for count in counts}
            for name, split in manifest["splits"].items()
        },
        "spans": spans,
        "left_out": dict(manifest["left_out"]),
        "dropped_from_train": manifest["dropped_from_train"],
    }


def warn_of_text(manifest: Mapping[str, Any]) -> list[str]:
    """Lines on changes of the text, and on content of it, that nobody may have wanted."""
    text: Mapping[str, Any] = manifest.get("text") or {}  # tokens of before have none
    settings, lines = manifest["settings"], []
    if joined := text.get("joined"):
        why = (
            "the text looks broken at a width (data.lines=auto); data.lines=paragraph keeps each"
            if settings["lines"] == "auto"
            else f"data.lines={settings['lines']}"
        )
        were = "was" if joined == 1 else "were"
        lines.append(f"  {counted(joined, 'line')} {were} joined to the line before: {why}")
    letters = ChangedLetters(**text["letters"]) if "letters" in text else None
    if letters and letters.share > FEW_CHANGED:
        trained = "path" not in manifest["tokenizer"]
        fix = "tokenizer.strip_accents=false" if trained else "a tokenizer with strip_accents=false"
        lines.append(f"  {letters}; {fix} keeps them")
    if (share := text.get("html", 0.0)) > MANY:
        remedy = spell_remedy(manifest["files"][0]["path"], settings["field"])
        lines.append(f"  {share:.0%} of the documents have HTML in them; fix: {spell_fix(remedy)}")
    return lines


def warn_of_large_share(manifest: Mapping[str, Any]) -> list[str]:
    """A warning if so few documents exist that validation takes far more than its share."""
    tokens = {name: split["tokens"] for name, split in manifest["splits"].items()}
    share = tokens["valid"] / max(1, sum(tokens.values()))
    valid_share = manifest["settings"]["valid_share"]
    if not valid_share or share < max(0.2, 2 * valid_share):
        return []
    few = manifest["splits"]["train"]["documents"] + manifest["splits"]["valid"]["documents"]
    return [
        f"  {share:.0%} of the text is held out, because there are only {few:,} documents: put"
        " blank lines between documents, or give data.valid_path=..."
    ]


def warn_of_poor_fit(shards: Shards, vocab: Vocab) -> list[str]:
    """A warning if the tokenizer knows little of the text, or spells its characters in bytes, as
    an English one does with Chinese.
    """
    unknown = unknown_share(sample_corpus(shards.ids), vocab)
    pieces = len(shards.ids) / max(1, int(shards.counts["characters"].sum()))
    given = "path" in shards.manifest["tokenizer"]
    fix = "train one on it (without tokenizer.path=)" if given else "more tokenizer.vocab_size="
    if unknown > MUCH_UNKNOWN:
        why, fix = describe_unknown(unknown), f"{fix}, or tokenizer=byte_bpe, which knows any text"
    elif pieces > MANY_PIECES:
        why = f"{pieces:.1f} tokens a character"
    else:
        return []
    why = f"{why}: the tokenizer does not fit this text"
    return [f"  {shards.split}: {why}; fix: {spell_fix(fix)}"]


def warn_of_lone_characters(shards: Shards, vocab: Vocab) -> list[str]:
    """A warning if a segmenter finds few words of several characters in a Chinese text. One with a
    dictionary of simplified words does so in traditional text.
    """
    segmenter = shards.manifest["settings"].get("segment")
    if segmenter is None:
        return []
    begins = sample_corpus(shards.tracks["word_start"]).astype(bool)
    chinese = np.array([CHINESE.fullmatch(text) is not None for text in vocab.texts])
    own = chinese[sample_corpus(shards.ids)]
    ends = np.append(begins[1:], True)
    alone = (begins & ends & own).sum() / max(1, own.sum())
    if own.sum() < FEW_CHINESE or alone < MANY_ALONE:
        return []
    return [
        f"  {shards.split}: {alone:.0%} of the Chinese characters are words of one character by"
        f" data.segment={segmenter} (usual: 25%): it knows few words of this text; in traditional"
        " text data.segment=jieba_hmm finds more"
    ]


def refuse_other_tokens(job: TokenizingJob, out: Path) -> None:
    """Raise UsageError if `out` holds sound tokens of another text, tokenizer or setting: they are
    not overwritten.
    """
    try:
        old = read_manifest(out)
    except DataError:
        return
    files = [entry for source in (job.source, job.valid) if source for entry in source.content()]
    fingerprint = Tokenizer.load(job.recipe.path).fingerprint if job.recipe.path else None
    known = old["tokenizer"]["fingerprint"] if fingerprint or "path" in old["tokenizer"] else None
    before = {"text": _hashes(old["files"]), "tokenizer": known, "settings": old["settings"]}
    now = {
        "text": _hashes(files),
        "tokenizer": fingerprint,
        "settings": json.loads(json.dumps(job.settings())),
    }
    if changed := differences(before, now):
        shown = "; ".join(changed[:3])
        raise UsageError(
            f"out={out}: holds tokens already, and these would be others ({shown})\n"
            "  fix: out=<new folder>"
        )


def _hashes(files: Sequence[Mapping[str, Any]]) -> list[str]:
    """The content of each file, wherever it is."""
    return [entry.get("sha256", entry["path"]) for entry in files]
