"""The check of a token directory: its files against the manifest, its tokens, and what a format
loses of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from plmctl.core.errors import DataError
from plmctl.core.progress import Say
from plmctl.core.terminal import counted
from plmctl.data.baseline import measure_unigram_baseline
from plmctl.data.check.characters import describe_shares, judge_forms, measure_scripts
from plmctl.data.check.finding import Finding, LengthHistogram, Report, format_percent, judge
from plmctl.data.check.hashes import Repeats, hash_stretches
from plmctl.data.check.mentions import check_mentions
from plmctl.data.check.overlap import OverlapCounter, report_overlap
from plmctl.data.formats.base import count_lost
from plmctl.data.shards import Shards
from plmctl.data.survey import ignore_progress
from plmctl.text.frequencies import count_tokens
from plmctl.text.letters import ChangedLetters, has_unspaced
from plmctl.text.tokenizer import Tokenizer
from plmctl.text.unknown import list_characters

if TYPE_CHECKING:
    from plmctl.data.formats.base import Format

MUCH = 0.3  # a share of lost tokens that the ends of sentences alone do not explain
KEEP = "A longer format.max_length, or a format that packs (format=blocks), keeps more."
LONG = 8  # a sentence of so many tokens is not a heading
_GROUP = 1 << 22  # tokens that are checked together


class TokenCounts:
    """The counts of one pass over a split."""

    def __init__(self) -> None:
        self.lengths, self.documents, self.sentences = LengthHistogram(), Repeats(), Repeats()

    def add(self, ids: np.ndarray, sentences: np.ndarray, documents: np.ndarray) -> None:
        """Count complete documents.

        Args:
            ids: [n] their tokens.
            sentences: offsets of the sentences in `ids`.
            documents: offsets of the documents in `sentences`.
        """
        parts = hash_stretches(ids, sentences[:-1], sentences[1:])
        self.sentences.add(parts[np.diff(sentences) >= LONG])
        self.documents.add(hash_stretches(parts, documents[:-1], documents[1:]))
        self.lengths.add(np.diff(sentences[documents]))


def check(
    train: Shards,
    valid: Shards,
    tokenizer: Tokenizer,
    format_: Format,
    *,
    say: Say = ignore_progress,
) -> Report:
    """Check both splits of a token directory.

    Raises:
        DataError: if the files are not those of the manifest, or there is nothing to train on.
    """
    for shards in (train, valid):
        say(f"comparing {shards.split} with the manifest", 0, 0)
        shards.verify()
    if not len(train.ids):
        raise DataError(
            "there are no tokens to train on", file=train.folder, fix="tokenize more text"
        )
    counts_of_train, counts_of_valid, runs = TokenCounts(), TokenCounts(), OverlapCounter()
    for ids, sentences, documents in _groups(valid):
        counts_of_valid.add(ids, sentences, documents)
        runs.add_held_out(ids, sentences[documents])
    done = 0
    for ids, sentences, documents in _groups(train):
        counts_of_train.add(ids, sentences, documents)
        if len(valid.ids):
            runs.add_training(ids, sentences[documents])
        say("reading", done := done + ids.nbytes, train.ids.nbytes)
    counts = count(train, tokenizer)
    findings = [
        *_sizes(counts_of_train, train),
        *_repeats(counts_of_train),
        *check_fit(train, valid, counts, tokenizer),
        cut(train, format_),
        *check_mentions(train),
    ]
    if len(valid.ids):
        same = (
            (counts_of_valid.documents, counts_of_train.documents),
            (counts_of_valid.sentences, counts_of_train.sentences),
        )
        findings += report_overlap(*same, runs, "sentence")
    return Report(str(train.folder), "tokens", findings, counts_of_train.lengths, "tokens")


def count(train: Shards, tokenizer: Tokenizer) -> np.ndarray:
    """[V]: how often each id occurs."""
    return count_tokens(train.ids, tokenizer.vocab.size)


def check_fit(
    train: Shards,
    valid: Shards,
    counts: np.ndarray,
    tokenizer: Tokenizer,
    characters: Counter[str] | None = None,
) -> list[Finding]:
    """Findings on how the tokenizer fits the text: unknown tokens, size of tokens, unused
    vocabulary, scripts, entropy; `characters`: unknown ones of the text, as far as it is at hand.
    """
    vocab, total = tokenizer.vocab, max(1, int(counts.sum()))
    unknown = int(counts[vocab.unk]) / total if vocab.unk is not None else 0.0
    unused = float((counts[~vocab.special] == 0).mean())
    size = {
        name: int(train.counts[name].sum()) / total for name in ("bytes", "characters", "words")
    }
    per_word = 1 / size["words"] if size["words"] else 0.0
    used = _characters(counts, tokenizer)
    shares = measure_scripts(used)
    unspaced = sum(n for letter, n in used.items() if has_unspaced(letter)) > used.total() / 2
    per_unit = (
        f"{1 / size['characters'] if size['characters'] else 0:.2f} tokens a character"
        if unspaced
        else f"{per_word:.2f} tokens a word"
    )
    return [
        _judge_unknown(unknown, characters or Counter()),
        judge(
            "size of a token",
            f"{size['bytes']:.2f} bytes, {size['characters']:.2f} characters; {per_unit}",
            -size["bytes"],
            look=-2.5,
            bad=-1.2,
            advice="The text falls into small pieces: train a tokenizer on it.",
            numbers={**size, **({} if unspaced else {"tokens per word": per_word})},
        ),
        judge(
            "unused vocabulary",
            f"{format_percent(unused)} of {vocab.size:,} tokens never occur",
            unused,
            look=0.2,
            bad=0.6,
            advice=(
                "Train a smaller vocabulary on this text,"
                " unless the weights to start from ask for this one."
            ),
            numbers={"share": unused},
        ),
        *_judge_letters(train),
        Finding("scripts", "ok", describe_shares(shares), numbers={"shares": shares}),
        *judge_forms(used),
        _measure_frequencies(train, valid, vocab.special),
    ]


def _judge_letters(train: Shards) -> list[Finding]:
    known = train.manifest.get("text", {}).get("letters")  # tokens of before have none
    if known is None:
        return []
    letters = ChangedLetters(**known)
    return [
        judge(
            "letters",
            str(letters),
            letters.share,
            look=0.001,
            bad=0.05,
            advice="tokenizer.strip_accents=false keeps them.",
            numbers={**known, "share": letters.share},
        )
    ]


def _measure_frequencies(train: Shards, valid: Shards, special: np.ndarray) -> Finding:
    """The loss of a model of single tokens on the held-out text, or without one, in training."""
    validation = valid.ids if len(valid.ids) else train.ids
    baseline = measure_unigram_baseline(train.ids, validation, ignored=special)
    return Finding(
        "unigram entropy",
        "ok",
        f"{baseline.entropy:.3f} nats; token frequencies alone reach a loss of"
        f" {baseline.unigram_loss:.3f} and an accuracy of"
        f" {format_percent(baseline.frequent_accuracy)}: training has to beat that",
        numbers={
            "entropy": baseline.entropy,
            "loss": baseline.unigram_loss,
            "accuracy": baseline.frequent_accuracy,
        },
    )


def cut(train: Shards, format_: Format) -> Finding:
    """The tokens that the format's plan of the first epoch loses."""
    plan = format_.plan(train, seed=0, epoch=0, input_length=format_.max_length)
    report, total = plan.report, max(1, len(train.ids))
    share = count_lost(plan) / total
    padding = int(report.get("padding", 0)) / max(1, plan.rows * plan.width)
    return judge(
        "rows",
        f"{plan.rows:,} rows of {format_.max_length}: {format_percent(share)} of the tokens are"
        f" lost, {format_percent(padding)} is padding",
        max(share, padding / 2),
        look=0.05,
        bad=MUCH,
        advice=KEEP,
        numbers={"rows": plan.rows, "lost": share, "padding": padding, **report},
    )


def _groups(shards: Shards) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Complete documents, about `_GROUP` tokens of them: their ids, sentence offsets and document
    offsets from 0.
    """
    edges = np.asarray(shards.sentences)[np.asarray(shards.documents)]
    first = 0
    while first < len(edges) - 1:
        last = max(first + 1, int(np.searchsorted(edges, edges[first] + _GROUP, side="right")) - 1)
        documents = np.asarray(shards.documents[first : last + 1])
        sentences = np.asarray(shards.sentences[documents[0] : documents[-1] + 1])
        yield (
            np.asarray(shards.ids[sentences[0] : sentences[-1]]),
            sentences - sentences[0],
            documents - documents[0],
        )
        first = last


def _judge_unknown(share: float, characters: Counter[str]) -> Finding:
    listed = f": {list_characters(characters)}" if characters else ""
    return judge(
        "unknown tokens",
        f"{format_percent(share)} of the tokens are unknown{listed}",
        share,
        look=0.001,
        bad=0.02,
        advice=(
            "The tokenizer lacks characters of this text: train one on it, or raise"
            " tokenizer.character_coverage. Full-width letters and digits:"
            " tokenizer.normalize=nfkc (wordpiece, word)."
        ),
        numbers={"share": share},
    )


def _characters(counts: np.ndarray, tokenizer: Tokenizer) -> Counter[str]:
    """The characters of the pieces, counted as often as these occur; pieces that are not complete
    characters are skipped.
    """
    characters = Counter[str]()
    for token in np.flatnonzero(counts * ~tokenizer.vocab.special):
        text = tokenizer.decode([int(token)])
        if "\ufffd" not in text:
            for character in text:
                characters[character] += int(counts[token])
    return characters


def _sizes(counts: TokenCounts, train: Shards) -> list[Finding]:
    lengths = counts.lengths
    quantiles = {f"{share:.0%}": lengths.quantile(share) for share in (0.05, 0.5, 0.95)}
    numbers = {
        "documents": lengths.count,
        "sentences": len(train.sentences) - 1,
        "tokens": lengths.total,
    }
    return [
        judge(
            "size",
            f"{counted(lengths.count, 'document')}, {counted(numbers['sentences'], 'sentence')},"
            f" {counted(lengths.total, 'token')} to train on",
            -lengths.total,
            look=-300_000,
            bad=-5_000,
            numbers=numbers,
            advice="Little text for pretraining: a model will soon have memorised it.",
        ),
        Finding(
            "lengths",
            "ok",
            f"5% below {quantiles['5%']:,} tokens, half below {quantiles['50%']:,}, 95% below "
            f"{quantiles['95%']:,}, the longest {lengths.largest:,}",
            numbers={**quantiles, "largest": lengths.largest},
        ),
    ]


def _repeats(counts: TokenCounts) -> list[Finding]:
    documents, sentences = counts.documents.share, counts.sentences.share
    return [
        judge(
            "duplicate documents",
            f"{format_percent(documents)} are copies of an earlier one",
            documents,
            look=0.001,
            bad=0.05,
            advice=(
                "Remove copies from the text and tokenize it again:"
                " each is read as often as it occurs."
            ),
            numbers={"share": documents},
        ),
        judge(
            "duplicate sentences",
            f"{format_percent(sentences)} of the longer sentences repeat an earlier one",
            sentences,
            look=0.05,
            bad=0.3,
            advice=(
                "Remove what repeats (menus, notices, licences): a model learns it first and best."
            ),
            numbers={"share": sentences},
        ),
    ]
