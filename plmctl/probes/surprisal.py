"""The surprisal of each word of a text, and how well it predicts reading times (eval only)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from plmctl.core.errors import ConfigError, DataError, find_alike, nearest
from plmctl.core.parts import part_of
from plmctl.core.progress import ProgressLine
from plmctl.core.spelling import spell_setting
from plmctl.core.terminal import WARN, counted, remark
from plmctl.core.values import Count, Whole
from plmctl.models.base import Model
from plmctl.probes.base import Opened, Probe, tell_unknown
from plmctl.tasks.intervals import NORMAL
from plmctl.tasks.predictions import write_rows
from plmctl.tasks.readers import files
from plmctl.tasks.readers.read_score import put_point, spell_point
from plmctl.text.reader import read_sentences
from plmctl.text.separators import has_decimal_commas
from plmctl.text.tabular import named_rows
from plmctl.text.tokenizer import Tokenizer
from plmctl.use.likelihood import Likelihood, Way, choose_way, find_ways, make_scoring
from plmctl.use.predict import ScoreTable, Told

UNKNOWN = (None, "", "NA", "NaN", "nan")  # cells without a time
# words for each predictor of a regression, at least (Harrell, 2015, sec. 4.4: 10 to 20)
EACH = 10
CENTRED = 0.25  # the share of negative times from which all are differences from a mean
COLUMNS = {name: name for name in ("word", "sentence", "time")}


@dataclass(frozen=True)
class TimedWord:
    """A word of a sentence.

    Args:
        place: Its number in the sentence, from 1.
        time: Its reading time; None: unknown.
        tokens: Its pieces: the number in the sentence, from 1, the id, and `log p` in nats, which
            is None for a piece that is not scored.
    """

    sentence: str
    place: int
    text: str
    time: float | None = None
    bits: float = 0.0
    tokens: Sequence[tuple[int, int, float | None]] = ()


@part_of("probe")
@dataclass(frozen=True, kw_only=True)
class Surprisal(Probe):
    """`- log2 p(word | context)` of each word, the sum over its pieces; and where the file has
    reading times, their prediction by it.

    `delta_log_likelihood` is the mean log-likelihood of a word's time in nats by a linear
    regression with surprisal, minus that of the same regression without it. Neither was fitted to
    these words. Both have length in characters, log frequency, their product and the number in
    the sentence; both have the same of the `spillover` words before. (Goodkind and Bicknell, 2018,
    W18-0102; Wilcox et al., 2020, arXiv:2006.01912.) Differs: one time a word, the mean over
    readers, and no random effects; the mass of "a word ends here" stays with the next word, as the
    tokenizer divides it.

    Args:
        path: Lines with a table of words in reading order: .tsv, .csv or .jsonl with `word`,
            `sentence` (words with the same value in a row are one sentence) and `time`; a file of
            another kind is a text with words between spaces, a sentence a line.
        columns: {word, sentence, time: the name of this column in the file}. A sentence of None:
            all words are one; a time of None: no times.
        score: The way to score a token, as of `task=minimal_pairs`.
        frequencies: A text whose words are counted: log2(1 + count) is the log frequency. None:
            the regressions have none.
        spillover: Words before a word that count, too.
        folds: Parts of the words, each predicted by regressions on the others.
        unit: The rows of `out`: "word", with its bits; or "token", with its word, its id and
            `log_prob`, the natural logarithm. The sum of a word is `- ln 2` times its bits.
    """

    path: str | None = None
    columns: Mapping[str, str | None] = field(default_factory=dict)
    score: Way | None = None
    frequencies: str | None = None
    spillover: Whole = 1
    folds: Count = 10
    unit: Literal["word", "token"] = "word"

    def __post_init__(self) -> None:
        if self.folds < 2:
            raise ConfigError("task.folds", self.folds, "2 or more", fix="task.folds=10")
        for name in self.columns:
            if name not in COLUMNS:
                allowed = f"there is no such column{nearest(name, COLUMNS)}: {', '.join(COLUMNS)}"
                raise ConfigError(f"task.columns.{name}", ..., allowed)

    def read(self) -> list[TimedWord]:
        """The words of the file.

        Raises:
            DataError: A line has no word, no sentence, or a time that is no number.
        """
        if self.path is None:
            fix = "task.path=<a text>"
            raise ConfigError("task.path", None, "a text, or a table with a column word", fix=fix)
        file = files.existing(self.path)
        columns = {**COLUMNS, **self.columns}
        words = list(_read_table(file, columns) if self._is_table else _read_text(file))
        if not words:
            raise DataError("no words", file=file, fix="another file")
        return words

    @property
    def _is_table(self) -> bool:
        return bool({".tsv", ".csv", ".jsonl"} & set(Path(self.path or "").suffixes))

    def _describe_unit(self) -> str:
        """The rule by which the file is divided into sentences, each read alone."""
        if not self._is_table:
            return "one a line, each read alone"
        column = {**COLUMNS, **self.columns}["sentence"]
        return f"by task.columns.sentence={column or 'null'}, each read alone"

    def list_scores(self) -> frozenset[str]:
        """The names of all scores; the second one needs reading times."""
        timed = any(word.time is not None for word in self.read())
        return frozenset({"bits_per_word", *(["delta_log_likelihood"] if timed else [])})

    def measure(self, opened: Opened) -> ScoreTable:
        """The surprisals of a model, written to `out`, and their use for reading times."""
        loaded, device = opened.loaded, opened.precision.device
        out = opened.claim_file("surprisals.jsonl")
        words = self.read()
        model = loaded.model.to(device).eval()
        way, _ = choose_way(find_ways(model, loaded.vocab), self.score)
        with torch.no_grad(), opened.precision.autocast():
            words = self.find_surprisal(model, loaded.tokenizer, words, way, device)
        read = (number for word in words for _, number, _ in word.tokens)
        unknown = tell_unknown(read, loaded.vocab, self.path)
        bits = np.array([word.bits for word in words])
        scores: dict[str, float] = {"bits_per_word": float(bits.mean())}
        extra: dict[str, Any] = {"checkpoint": opened.folder, "score": way}
        sentences = sum(1 for _ in groupby(words, lambda word: word.sentence))
        extra["sentences"] = Told(f"{sentences:,}, {self._describe_unit()}", sentences)
        extra |= unknown
        intervals, compared = {}, len(words)
        timed = sum(word.time is not None for word in words)
        if timed:
            gains = self.compare(words)
            gain, spread = float(gains.mean()), float(gains.std()) / len(gains) ** 0.5
            scores["delta_log_likelihood"] = gain
            intervals["delta_log_likelihood"] = (gain - NORMAL * spread, gain + NORMAL * spread)
            compared = len(gains)
            extra["words"] = Told(f"{len(words):,}, {timed:,} with a time", len(words))
            extra["times"] = Told(self._describe_times(compared, timed), compared)
            if few := self._remark_few(words):
                extra["too few words"] = Told(few)
        if out is not None:
            rows = [row for word in words for row in ROWS[self.unit](word, loaded.tokenizer)]
            extra["surprisals"] = str(write_rows(out, rows))
        name = Path(self.path or "").name
        return ScoreTable("surprisal", {name: scores}, extra, {name: intervals}, {name: compared})

    def find_surprisal(
        self,
        model: Model,
        tokenizer: Tokenizer,
        words: Sequence[TimedWord],
        way: Way,
        device: torch.device,
    ) -> list[TimedWord]:
        """The words with their surprisals."""
        vocab = tokenizer.vocab
        sentences = [list(own) for _, own in groupby(words, lambda word: word.sentence)]
        divided = [_divide(tokenizer, [word.text for word in own]) for own in sentences]
        longest = model.backbone.max_length
        for own, (ids, _) in zip(sentences, divided, strict=True):
            if longest is not None and len(ids) > longest - 2:
                why = f"sentence {own[0].sentence} has {len(ids):,} tokens"
                raise DataError(f"{why}; the model reads {longest - 2:,}", fix="shorter sentences")
        head = find_ways(model, vocab)[way]
        scoring = make_scoring(way, model, head, tokenizer)
        done = ProgressLine("sentences", len(sentences))
        logs = Likelihood(model, scoring, device, done=done).score_tokens(
            [ids for ids, _ in divided]
        )
        found: list[TimedWord] = []
        for own, (ids, owner), values in zip(sentences, divided, logs, strict=True):
            bits = np.bincount(owner, weights=-values / np.log(2), minlength=len(own))
            scored = {number for row in scoring.rows(ids) for number in row.numbers}
            known = [float(value) if n in scored else None for n, value in enumerate(values)]
            pieces = [*zip(range(1, len(ids) + 1), ids, known, strict=True)]
            for number, word in enumerate(own):
                mine = [pieces[n] for n in np.flatnonzero(owner == number)]
                found.append(replace(word, bits=float(bits[number]), tokens=mine))
        return found

    def compare(self, words: Sequence[TimedWord]) -> np.ndarray:
        """[n] the gain in log-likelihood by surprisal, of each word that has a time and whose
        `spillover` words before are in its sentence.

        Raises:
            DataError: too few words have a time.
        """
        base, bits, times = self._predictors(words)
        if lacking := self._count_lacking(words):
            most = base.shape[1] + bits.shape[1]
            why = (
                f"{counted(len(times), 'word')} with a time (and {self.spillover} before it in the"
                f" sentence) for {most} predictors in {self.folds} parts"
            )
            fix = f"{counted(lacking, 'more word')} with a time"
            if self.spillover and not replace(self, spillover=0)._count_lacking(words):
                fix = f"task.spillover=0, or {fix}"
            raise DataError(why, file=self.path, fix=fix)
        if np.ptp(times) == 0:
            what = f"all {len(times):,} times are {times[0]:g}: there is nothing to predict"
            raise DataError(what, file=self.path, fix="task.columns.time=<the column of times>")
        both = np.concatenate([base, bits], 1)
        part = np.arange(len(times)) * self.folds // len(times)
        gains = np.zeros(len(times))
        for number in range(self.folds):
            out = part == number
            gains[out] = _predict(both, times, out) - _predict(base, times, out)
        return gains

    def _describe_times(self, compared: int, timed: int) -> str:
        """The number of words whose times are predicted, and why others are left out."""
        line = f"{counted(compared, 'word')} of {timed:,}"
        if compared == timed:
            return line
        why = f"the others have too few words before them (task.spillover={self.spillover})"
        return f"{line}; {why}"

    def _remark_few(self, words: Sequence[TimedWord]) -> str:
        """A line where regressions have too few words for their predictors; else ""."""
        base, bits, times = self._predictors(words)
        most, fitted = base.shape[1] + bits.shape[1], len(times) - -(-len(times) // self.folds)
        if fitted >= EACH * most:
            return ""
        return (
            f"delta_log_likelihood is not to be read: {most} predictors are fitted to"
            f" {counted(fitted, 'word')}; {EACH * most:,} are the least that is usual"
        )

    def _count_lacking(self, words: Sequence[TimedWord]) -> int:
        """The words with a time that are lacking for the regressions."""
        base, bits, times = self._predictors(words)
        return max(0, self.folds + base.shape[1] + bits.shape[1] - len(times))

    def _predictors(self, words: Sequence[TimedWord]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """([n, k] the baseline, [n, 1 + spillover] surprisals, [n] times)."""
        length = np.array([len(word.text) for word in words], np.float64)
        place = np.array([word.place for word in words], np.float64)
        columns = [length]
        if self.frequencies is not None:
            counts = Counter(_plain(w) for s in read_sentences(self.frequencies) for w in s.split())
            often = np.log2(1 + np.array([counts[_plain(word.text)] for word in words]))
            columns += [often, length * often]
        times = np.array([np.nan if w.time is None else w.time for w in words], np.float64)
        used = np.flatnonzero(np.isfinite(times) & (place > self.spillover))
        behind = [used - step for step in range(self.spillover + 1)]
        base = [np.ones(len(used)), place[used], *(own[at] for own in columns for at in behind)]
        bits = np.array([word.bits for word in words])
        return np.stack(base, 1), np.stack([bits[at] for at in behind], 1), times[used]


def _spell_word(word: TimedWord, tokenizer: Tokenizer) -> Iterator[dict[str, Any]]:
    named = {"sentence": word.sentence, "place": word.place, "word": word.text}
    yield {**named, "bits": round(word.bits, 6)}


def _spell_tokens(word: TimedWord, tokenizer: Tokenizer) -> Iterator[dict[str, Any]]:
    for place, number, log in word.tokens:
        named = {"sentence": word.sentence, "place": place, "word": word.text}
        (token,) = tokenizer.show([number])
        yield {**named, "token": token, "id": number, "log_prob": log}


ROWS: Mapping[str, Callable[[TimedWord, Tokenizer], Iterator[dict[str, Any]]]] = {
    "word": _spell_word,
    "token": _spell_tokens,
}


def _predict(x: np.ndarray, y: np.ndarray, out: np.ndarray) -> np.ndarray:
    """[m] the log-likelihood of each y that is `out`, by the regression on the others."""
    weights = np.linalg.lstsq(x[~out], y[~out], rcond=None)[0]
    variance = np.mean((y[~out] - x[~out] @ weights) ** 2)
    away = y[out] - x[out] @ weights
    density: np.ndarray = -0.5 * (np.log(2 * np.pi * variance) + away**2 / variance)
    return density


def _divide(tokenizer: Tokenizer, words: Sequence[str]) -> tuple[list[int], np.ndarray]:
    """(the ids of a sentence, [T] the number of the word of each)."""
    ids, spans = tokenizer.encode_offsets(" ".join(words))
    ends = np.cumsum([len(word) + 1 for word in words]) - 1
    starts = np.array([start for start, _ in spans], np.int64)
    return ids, np.minimum(np.searchsorted(ends, starts, side="right"), len(words) - 1)


def _plain(word: str) -> str:
    """A word as it is counted: in lower case, without punctuation around it."""
    return word.strip(".,;:!?\"'()[]“”‘’").lower()


def _read_text(file: Path) -> Iterator[TimedWord]:
    for number, line in enumerate(read_sentences(file, lines="sentence"), start=1):
        for place, word in enumerate(line.split(), start=1):
            yield TimedWord(str(number), place, word)


def _read_table(file: Path, columns: Mapping[str, str | None]) -> Iterator[TimedWord]:
    sentence, place, timed, skipped = "", 0, False, 0
    rows = list(named_rows(file))
    times = [str(time) for _, row in rows if (time := row.get(columns["time"])) not in UNKNOWN]
    commas = has_decimal_commas(times)
    negative = sum(time.strip().startswith("-") for time in times)
    centred = negative > CENTRED * len(times)  # 0 is a time among others
    if commas:
        remark(f"{file}: times have a comma before their decimals")
    for line, row in rows:
        text = str(_take(row, "word", columns, file, line) or "").strip()
        if not text or " " in text:
            fix = "one word a line"
            raise DataError(f"no word, but {text!r}", file=file, line=line, fix=fix)
        name = str(_take(row, "sentence", columns, file, line) or "1")
        sentence, place = name, place + 1 if name == sentence else 1
        timed = timed or columns["time"] in row
        time = _read_time(row.get(columns["time"]), commas, file, line)
        if time is not None and time < 0 and not centred:
            fix = "write the time, or leave the cell empty"
            raise DataError(f"the time {time:g} is negative", file=file, line=line, fix=fix)
        if time == 0 and not centred:  # as eye trackers write of a word without a look
            time, skipped = None, skipped + 1
        yield TimedWord(name, place, text, time)
    if skipped:
        remark(f"{file}: {counted(skipped, 'word')} with the time 0 were skipped: left out", WARN)
    if columns["time"] is not None and place and not timed:
        missing = _explain_missing(row, "time", columns, file, line)
        if columns["time"] != COLUMNS["time"]:
            raise missing
        if _find_others(row, columns):
            remark(f"bits alone: {missing}", WARN)


def _take(
    row: Mapping[Any, Any], name: str, columns: Mapping[str, str | None], file: Path, line: int
) -> Any:
    """The value of a column; None where the column is left out."""
    column = columns[name]
    if column is not None and column not in row:
        raise _explain_missing(row, name, columns, file, line)
    return None if column is None else row[column]


def _find_others(row: Mapping[Any, Any], columns: Mapping[str, str | None]) -> list[str]:
    """The columns of a file that nothing reads."""
    return [str(name) for name in row if name not in columns.values()]


def _explain_missing(
    row: Mapping[Any, Any], name: str, columns: Mapping[str, str | None], file: Path, line: int
) -> DataError:
    others = _find_others(row, columns)
    meant = find_alike(str(columns[name]), others, least=0.5) or others[:1]
    known = ", ".join(map(str, row)) or "nothing"
    value = meant[0] if meant else None if name == "sentence" else "<a column>"
    fix = spell_setting(f"task.columns.{name}", value)
    if value is None:
        fix += ", all words are one sentence"
    return DataError(
        f"no {name}: no column {columns[name]!r}; it has {known}", file=file, line=line, fix=fix
    )


def _read_time(value: Any, commas: bool, file: Path, line: int) -> float | None:
    """A reading time, with `commas` before its decimals; None for an empty cell."""
    if value in UNKNOWN:
        return None
    try:
        return float(put_point(str(value)) if commas else value)
    except (TypeError, ValueError):
        fix = spell_point(str(value)) or "write a number, or leave the cell empty"
        raise DataError(f"the time {value!r} is no number", file=file, line=line, fix=fix) from None
