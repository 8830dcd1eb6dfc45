"""Text to ids and back: one class for all kinds, trained here or loaded from a plmctl or Hugging
Face folder.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import numpy as np

from plmctl.core.errors import ConfigError, DataError, UsageError, nearest
from plmctl.core.values import Whole
from plmctl.storage.atomic import write_bytes, write_text
from plmctl.storage.gate import admit
from plmctl.storage.paths import refuse_links
from plmctl.storage.reading import read_bytes, read_json, read_text
from plmctl.text import (
    hugging_face,
    injected,
    numbered,
    numbered_files,
    rust,
    segmented,
    sentence_piece,
    whole_words,
)
from plmctl.text.backend import Backend, Span, replace_surrogates
from plmctl.text.extended import extend_backend
from plmctl.text.injected import InjectedBackend, InjectedToken, read_added
from plmctl.text.languages import name_languages
from plmctl.text.numbered import NumberedBackend
from plmctl.text.recipe import SMALLEST, TooLittleText
from plmctl.text.roles import SHOWN, Roles, make_vocabulary, order_appended
from plmctl.text.rust import blame_tokenizer
from plmctl.text.segmented import SegmentedBackend
from plmctl.text.train import KINDS, Recipe
from plmctl.text.vocab import Vocab
from plmctl.text.whole_words import WholeWordBackend

META = "plmctl_tokenizer.json"
VERSION = 1
WORD = (
    1 << 10
)  # a tokenizer learns its pieces from runs of at most so many characters without a space
_RUN = re.compile(rf"\S{{{WORD}}}")


class Tokenizer:
    """A trained vocabulary. It encodes each word once and caches it: a word has the same ids
    wherever it stands.

    A `lossless` kind (byte_bpe, char) keeps white space: its ids decode to the text itself.
    """

    def __init__(self, *, backend: Backend, roles_: Roles, kind: str) -> None:
        backend.reserve(roles_.tokens)
        self.kind, self.roles, self._backend = kind, roles_, backend
        self.lossless = kind in ("byte_bpe", "char")
        self.dtype = np.dtype(np.uint16 if len(backend.tokens) <= 1 << 16 else np.uint32)
        # sentences and bytes that the vocabulary was learnt from, where that is known
        self.sampled: dict[str, int] = {}
        self._ids = _Cache(
            lambda text: np.array(backend.encode(replace_surrogates(text)), self.dtype).tobytes()
        )
        self._offsets = _Cache(lambda text: backend.encode_offsets(replace_surrogates(text)))

    @cached_property
    def vocab(self) -> Vocab:
        """The ids, roles and tables that other parts read."""
        return make_vocabulary(self._backend.tokens, self.roles, self.kind, self._backend.special)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of everything that decides ids; shards store it."""
        digest = hashlib.sha256(json.dumps(self._meta(), sort_keys=True).encode())
        for name, content in sorted(self._backend.files().items()):
            digest.update(name.encode() + b"\0" + content)
        return digest.hexdigest()[:32]

    @cached_property
    def is_uncased(self) -> bool:
        """Whether it reads capital letters as small ones."""
        return self.normalize("A") == self.normalize("a")

    def encode(self, text: str) -> list[int]:
        """The ids of `text`, without any special token."""
        return np.frombuffer(self._encode(text), self.dtype).tolist()

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text."""
        return [self.encode(text) for text in texts]

    def encode_flat(self, texts: Iterable[str]) -> tuple[np.ndarray, np.ndarray]:
        """All ids in one array [N] of `dtype`, and the number of ids of each text."""
        encoded = [self._encode(text) for text in texts]
        lengths = np.array([len(part) // self.dtype.itemsize for part in encoded], np.int64)
        return np.frombuffer(b"".join(encoded), self.dtype), lengths

    def encode_offsets(self, text: str) -> tuple[list[int], list[Span]]:
        """Ids, and for each the span of characters of the original `text` that it covers, without
        outer white space.
        """
        parts = self._backend.cut(text)
        if parts is None:
            return self._backend.encode_offsets(replace_surrogates(text))
        ids: list[int] = []
        spans: list[Span] = []
        offset = 0
        for part in parts:
            offset = text.index(part, offset)
            part_ids, part_spans = self._offsets[part]
            ids += part_ids
            spans += [(start + offset, end + offset) for start, end in part_spans]
            offset += len(part)
        return ids, spans

    @cached_property
    def for_targets(self) -> Tokenizer:
        """The tokenizer of targets. It differs only where files of their own cut them."""
        own = self._backend
        other = own.of_targets if isinstance(own, NumberedBackend) else None
        if other is None:
            return self
        return Tokenizer(backend=other, roles_=self.roles, kind=self.kind)

    def decode(self, ids: Iterable[int], *, skip_special: bool = True) -> str:
        """The text of `ids`; special tokens are left out by default."""
        special = self.vocab.special
        return self._backend.decode([int(i) for i in ids if not (skip_special and special[i])])

    def find_parts(self, ids: np.ndarray) -> np.ndarray:
        """[N] bool: the tokens of a text that begin a part, as a byte-level tokenizer cuts it
        before its pieces; a tokenizer with tokens for whole names knows only words.
        """
        own = self._backend
        whole = self.vocab.word_start[ids]
        return own.find_parts(ids) if isinstance(own, rust.Rust) else whole

    def normalize(self, text: str) -> str:
        """`text` as it is before it is split: in lower case, without accents, ..."""
        return self._backend.normalize(text)

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """The tokens as they stand in the vocabulary."""
        return [self._backend.tokens[i] for i in ids]

    def show(self, ids: Iterable[int]) -> list[str]:
        """The tokens as people read them: those of bytes as text."""
        return [SHOWN.get(self.kind, str)(piece) for piece in self.pieces(ids)]

    @classmethod
    def train(cls, texts: Iterable[str], *, kind: str, **numbers: Any) -> Tokenizer:
        """Learn a vocabulary.

        Args:
            texts: sentences or lines.
            kind: wordpiece, byte_bpe, unigram, bpe, char or word.
            numbers: The settings, as in `conf/tokenizer/<kind>.yaml` (vocab_size, lowercase, ...).
        """
        if kind not in KINDS:
            raise ConfigError("tokenizer", kind, f"one of {', '.join(KINDS)}{nearest(kind, KINDS)}")
        return cls.learn(texts, KINDS[kind](**numbers))

    @classmethod
    def learn(cls, texts: Iterable[str], recipe: Recipe) -> Tokenizer:
        """Learn a vocabulary by a recipe."""
        amount = {"sentences": 0, "bytes": 0}
        backend, special = recipe.train(_count(texts, amount))
        tokenizer = cls(backend=backend, roles_=special, kind=recipe.kind)
        tokenizer.sampled = amount
        return tokenizer

    @classmethod
    def learn_most(
        cls,
        texts: Callable[[], Iterable[str]],
        recipe: Recipe,
        tell: Callable[[str], object] | None,
    ) -> Tokenizer:
        """As `learn`, with as many tokens as the texts yield where the recipe asks for more.

        Args:
            texts: The same texts at each call.
            tell: A function that receives a smaller size; None: the size may not be smaller, as in
                `learn`.
        """
        try:
            return cls.learn(texts(), recipe)
        except TooLittleText as most:
            if tell is None or most.size < SMALLEST:
                raise
            size = most.size
        tell(f"tokenizer.vocab_size={size} instead of {recipe.vocab_size}: the text yields no more")
        return cls.learn(texts(), replace(recipe, vocab_size=size))

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the folder that `load` reads."""
        path = Path(folder)
        admit(path).mkdir(parents=True, exist_ok=True)
        for name, content in self._backend.files().items():
            write_bytes(path / name, content)
        meta = {**self._meta(), "fingerprint": self.fingerprint} | (
            {"trained_on": self.sampled} if self.sampled else {}
        )
        write_text(path / META, json.dumps(meta, indent=1, ensure_ascii=False) + "\n")

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Tokenizer:
        """Read a folder of `save`, or a Hugging Face folder or file (tokenizer.json, vocab.txt,
        vocab.json + merges.txt, *.model).

        Raises:
            DataError: if there is no tokenizer, or its files are damaged or do not belong together.
        """
        path = Path(folder).expanduser()
        if not path.exists():
            problem = "there is no such tokenizer folder"
            raise DataError(problem, file=path, fix="tokenizer.path=<folder with a tokenizer>")
        path = _within(path)
        if path.is_dir():
            refuse_links(path)
        if not (path / META).exists():
            with blame_tokenizer(path):
                backend, special, kind = hugging_face.read(path)
                tokenizer = cls(backend=backend, roles_=special, kind=kind)
                # computed now, so that special tokens that do not fit are reported here
                assert tokenizer.vocab
            return tokenizer
        meta = _read_meta(path / META)
        with blame_tokenizer(path):
            tokenizer = cls._restore(path, meta)
        tokenizer.sampled = meta.get("trained_on", {})
        if meta["fingerprint"] != tokenizer.fingerprint:
            problem = "the files do not belong together (fingerprint)"
            raise DataError(problem, file=path, fix="copy the whole folder again")
        return tokenizer

    @classmethod
    def _restore(cls, folder: Path, meta: _Meta) -> Tokenizer:
        backend: Backend
        special = Roles.read(dict(meta["roles"]))
        if (folder / sentence_piece.FILE).exists():
            backend = sentence_piece.SentencePiece(
                read_bytes(folder / sentence_piece.FILE), special
            )
        elif (folder / sentence_piece.GIVEN).exists():
            added = order_appended(special.further)
            backend = sentence_piece.SentencePiece(
                read_bytes(folder / sentence_piece.GIVEN), added=added
            )
        elif (folder / numbered.NUMBERS).exists():
            numbers = read_json(folder / numbered.NUMBERS, dict[str, Whole])
            there = [name for name in numbered.PARTS if (folder / name).exists()]
            parts = {name: read_bytes(folder / name) for name in there}
            backend = NumberedBackend(numbers, parts, str(special.unk))
        elif (folder / rust.FILE).exists():
            backend = inner = rust.Rust.read(read_bytes(folder / rust.FILE), folder / rust.FILE)
            if (folder / segmented.FILE).exists():
                name = read_text(folder / segmented.FILE)
                whole = name == whole_words.NAME
                backend = WholeWordBackend(inner) if whole else SegmentedBackend(inner, name)
        else:
            problem = f"neither {sentence_piece.FILE} nor {rust.FILE} next to {META}"
            raise DataError(problem, file=folder, fix="copy the whole folder")
        if (folder / injected.FILE).exists():
            content = read_bytes(folder / injected.FILE)
            backend = InjectedBackend(backend, read_added(content, folder / injected.FILE))
        return cls(backend=backend, roles_=special, kind=meta["kind"])

    def inject(self, added: Sequence[InjectedToken]) -> Tokenizer:
        """This tokenizer with tokens of whole words or names, whose ids follow its own."""
        own = self._backend
        if isinstance(own, InjectedBackend):
            backend = InjectedBackend(own.inner, [*own.added, *added])
        else:
            backend = InjectedBackend(own, added)
        return Tokenizer(backend=backend, roles_=self.roles, kind=self.kind)

    def extend(
        self, texts: Iterable[str], *, tokens: int, least: int
    ) -> tuple[Tokenizer, list[list[int]]]:
        """This tokenizer with new tokens that it learns from a text, whose ids follow its own. With
        them, for each new token the old ids of its parts.

        Args:
            texts: sentences or lines.
            tokens: new tokens, at most.
        """
        texts = (part for text in texts for part in _cut_long_runs(text))
        backend, pieces = extend_backend(
            self._backend, self.roles, self.kind, texts, tokens=tokens, least=least
        )
        return Tokenizer(backend=backend, roles_=self.roles, kind=self.kind), pieces

    def export_hf(
        self,
        folder: str | os.PathLike[str],
        *,
        model_max_length: int,
        framed: bool = False,
        segments: bool = False,
        single: Sequence[str] | None = None,
        languages: tuple[str | None, str | None] = (None, None),
    ) -> None:
        """Write a folder that `transformers.AutoTokenizer` reads, with the same ids.

        Args:
            model_max_length: tokens of the longest row of the model.
            framed: put special tokens around a text.
            segments: Whether the model tells the texts of a pair apart.
            single: the roles around a text, where a model was trained with others than the
                tokenizer's.
            languages: The languages of sources and targets, where they are others than the
                tokenizer's.

        Raises:
            UsageError: if the tokenizer segments Chinese words, or has tokens for whole names in
                addition to its pieces. A tokenizer.json can hold neither.
        """
        named = dict(zip(("src_lang", "tgt_lang"), languages, strict=True))
        roles = name_languages(self.roles, named, self._backend.tokens)
        if isinstance(self._backend, InjectedBackend):
            raise UsageError(
                "a tokenizer.json cannot add tokens to words,"
                " so this tokenizer cannot be written to a Hugging Face folder"
            )
        if isinstance(self._backend, WholeWordBackend):
            hugging_face.write_whole_words(
                Path(folder), self._backend.inner, self.roles, model_max_length
            )
            return
        if isinstance(self._backend, NumberedBackend):
            numbered_files.write(Path(folder), self._backend, roles, model_max_length)
            return
        if isinstance(self._backend, SegmentedBackend):
            raise UsageError(
                "a tokenizer.json cannot segment Chinese words,"
                " so this tokenizer cannot be written to a Hugging Face folder"
            )
        special = replace(roles, single=tuple(single)) if single else roles
        hugging_face.write(
            Path(folder),
            self._backend,
            special,
            self.kind,
            model_max_length,
            framed=framed or bool(single),
            segments=segments,
        )

    def _meta(self) -> dict[str, Any]:
        return {"version": VERSION, "kind": self.kind, "roles": self.roles.settings()}

    def _encode(self, text: str) -> bytes:
        parts = self._backend.cut(text)
        return b"".join(map(self._ids.__getitem__, parts if parts is not None else (text,)))


class _Cache(dict[str, Any]):
    """The results of `work` for short texts, as long as there is room."""

    ROOM = 1 << 17  # words; about 30 MB of ids

    def __init__(self, work: Callable[[str], Any]) -> None:
        super().__init__()
        self._work = work

    def __missing__(self, text: str) -> Any:
        result = self._work(text)
        if len(self) < self.ROOM and len(text) <= 32:
            self[text] = result
        return result


def _within(path: Path) -> Path:
    """The folder with our files, which may be further inside: in a token directory, a checkpoint,
    or a run's checkpoints.
    """
    inner = [path, path / "tokenizer", *path.glob("checkpoints/step-*/tokenizer")]
    return next((folder for folder in inner if (folder / META).exists()), path)


def _count(texts: Iterable[str], amount: dict[str, int]) -> Iterator[str]:
    for text in texts:
        amount["sentences"] += 1
        amount["bytes"] += (
            len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
        )
        yield from _cut_long_runs(replace_surrogates(text))


def _cut_long_runs(text: str) -> Iterator[str]:
    """`text`, cut after `WORD` characters without a space: the time of learning grows with the
    square of the longest word.
    """
    start = 0
    for run in _RUN.finditer(text) if len(text) > WORD else ():
        yield text[start : run.end()]
        start = run.end()
    if start < len(text) or not text:
        yield text[start:]


class _Roles(TypedDict):
    pad: str
    single: list[str]
    pair: list[str]
    sentinels: NotRequired[list[str]]
    unused: NotRequired[list[str]]
    target: NotRequired[list[str]]


class _Meta(TypedDict):
    version: Whole
    kind: str
    roles: _Roles
    fingerprint: str
    trained_on: NotRequired[dict[str, int]]


def _read_meta(file: Path) -> _Meta:
    try:
        meta: _Meta = read_json(file, _Meta)
    except DataError as error:
        what = f"damaged tokenizer description: {error.message}"
        raise DataError(what, file=file, fix="copy the whole folder again") from error
    if meta["version"] > VERSION:
        what = f"written by a newer plmctl (format {meta['version']}, this one reads {VERSION})"
        raise DataError(what, file=file, fix="update plmctl")
    return meta


def read_size(run: Path) -> int | None:
    """The size of the vocabulary of a run, by a tokenizer in its folder; None without one."""
    places = (f"tokenizer/{META}", f"checkpoints/step-*/tokenizer/{META}")
    found = next((file for place in places for file in run.glob(place)), None)
    return _count_tokens(found.parent) if found else None


@cache
def _count_tokens(folder: Path) -> int:
    return Tokenizer.load(folder).vocab.size
