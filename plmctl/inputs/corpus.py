"""Texts as tokens: the token directories of a run, and the one tokenizer that they share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from plmctl.config.groups import Corpora
from plmctl.config.texts import Texts
from plmctl.core.errors import ConfigError, DataError
from plmctl.core.progress import show_bytes
from plmctl.core.spelling import spell_setting
from plmctl.core.terminal import DETAIL, remark
from plmctl.data.held_out import HeldText
from plmctl.data.located import locate
from plmctl.data.sample import sample_corpus
from plmctl.data.shard_files import list_shards
from plmctl.data.shard_stream import ShardStream
from plmctl.data.shards import SPLITS, Shards, is_tokens, read_manifest
from plmctl.data.sharing import share_tokenizer
from plmctl.data.text_stream import TextStream
from plmctl.data.tokenizing import TokenizingJob, open_or_tokenize
from plmctl.data.verified import verify_once
from plmctl.inputs.known_entities import refuse_other_entities, refuse_spare_entities
from plmctl.inputs.sharded import open_held_out_shard, open_shards
from plmctl.inputs.streaming import open_stream
from plmctl.inputs.tokenize import make_job, show_progress
from plmctl.storage.paths import find_cache_folder
from plmctl.storage.remote import is_url
from plmctl.text.tokenizer import Tokenizer
from plmctl.text.unknown import refuse_unknown, unknown_share
from plmctl.text.vocab import Vocab

Text = tuple[Any, Any]  # the path of a text, and that of the lines that belong to its own


@dataclass(frozen=True)
class Corpus:
    """The tokens of a run, {source: {corpus: tokens}}, and the one tokenizer they share; a
    source that is no mixture has one corpus, called as itself.
    """

    train: Mapping[str, Mapping[str, Shards]]
    # without the corpora that are too small to hold a document out
    valid: Mapping[str, Mapping[str, Shards]]
    tokenizer: Tokenizer
    # {source: what is read window by window}; its first window is in `train`
    streams: Mapping[str, TextStream | ShardStream] = field(default_factory=dict)

    @property
    def vocab(self) -> Vocab:
        return self.tokenizer.vocab

    def count_documents(self) -> int:
        """How many documents are trained on; one that several sources share counts for each."""
        parts = (part for parts in self.train.values() for part in parts.values())
        return sum(len(part.documents) - 1 for part in parts)

    def count_held_out(self) -> HeldText:
        """The size of all held-out text; one that several sources share counts once."""
        parts = {
            (str(part.folder), part.split): part
            for parts in self.valid.values()
            for part in parts.values()
        }
        documents = sum(len(part.documents) - 1 for part in parts.values())
        return HeldText(documents, sum(len(part.ids) for part in parts.values()))

    def held_out(self) -> dict[str, tuple[str, str]]:
        """{title: (source, corpus)} of the held-out corpora; a title is the corpus, of several
        sources "source.corpus".
        """
        pairs = [(source, name) for source, parts in self.valid.items() for name in parts]
        several = len(self.valid) > 1
        return {
            f"{pair[0]}.{pair[1]}" if several and pair[0] != pair[1] else pair[1]: pair
            for pair in pairs
        }


def open_corpus(given: Texts, *, write: bool = True) -> Corpus:
    """Open the token directories of all sources and corpora; raw text is tokenized first, once.
    Where nothing may be written, text that is not tokenized yet raises DataError, and no window of
    a stream is read.
    """
    if isinstance(given.data, Corpora) and given.data.streaming:
        return _open_stream(given, given.data, write=write)
    cache_dir = given.data.cache_dir
    texts: dict[str, dict[str, Text]] = {
        source: {
            name: (_hashable(part.get("path")), _hashable(part.get("target_path")))
            for name, part in node["corpora"].items()
        }
        for source, node in given.sources.items()
    }
    with show_progress() as say:
        jobs = {
            text: make_job(given, text[0], target=text[1], say=say)
            for corpora in texts.values()
            for text in corpora.values()
        }
        shared = _shared_tokenizer(given, jobs, write=write)
        if shared is not None:
            jobs = {
                text: replace(each, recipe=replace(each.recipe, path=str(shared)))
                for text, each in jobs.items()
            }
        folders = {
            text: open_or_tokenize(each, cache_dir=cache_dir, write=write)
            for text, each in jobs.items()
        }
    for (path, _), folder in folders.items():
        remark(f"tokens of {path or 'the text that comes with Python'}: {folder}", DETAIL)
    tokenizer = _common_tokenizer(given, folders.values(), shared)
    streams = _open_shards(given, texts, folders)
    whole = {source: corpora for source, corpora in texts.items() if source not in streams}
    train, valid = (_open_split(whole, folders, split) for split in SPLITS)
    every = [each for parts in train.values() for each in parts.values()]
    with show_bytes() as say:
        for shards in (*every, *(each for parts in valid.values() for each in parts.values())):
            verify_once(shards, find_cache_folder(cache_dir), say=say)
    train = {
        source: {name: shards.first(given.share) for name, shards in corpora.items()}
        for source, corpora in train.items()
    }
    for source, stream in streams.items():
        ((name, text),) = texts[source].items()
        read = write or not is_url(text[0])  # else no window of a stream is read
        train[source] = {name: stream.first.shards} if read else {}
        held = open_held_out_shard(folders[text], text[0], given.data) if read else None
        valid[source] = {name: held} if held else {}
        every += train[source].values()
    _refuse_unknown_text(every, tokenizer)
    refuse_other_entities(given.knowing, folders.values())
    refuse_spare_entities(given.knowing.get("model"), every)
    held_out = {
        source: {name: shards for name, shards in corpora.items() if len(shards.ids)}
        for source, corpora in valid.items()
    }
    return Corpus(train, held_out, tokenizer, streams)


def _open_shards(
    given: Texts, texts: Mapping[str, Mapping[str, Text]], folders: Mapping[Text, Path]
) -> dict[str, ShardStream]:
    """{source: the stream of its tokens} of the sources whose tokens are in shards."""
    found: dict[str, ShardStream] = {}
    for source, corpora in texts.items():
        for text in corpora.values():
            path, folder = text[0], folders[text]
            if not list_shards(read_manifest(folder), "train"):
                continue
            if len(corpora) > 1:
                allowed = f"tokens in one piece: {path} is in shards, and they are read alone"
                raise ConfigError("data.mixture", list(corpora), allowed, fix=f"data.path={path}")
            window = given.data.window if isinstance(given.data, Corpora) else 1
            stream = open_shards(folder, path, given.data, window=window, share=given.share)
            found[source] = stream
    return found


def _open_split(
    texts: Mapping[str, Mapping[str, Text]], folders: Mapping[Text, Path], split: str
) -> dict[str, dict[str, Shards]]:
    """{source: {corpus: the tokens of one split}}."""
    return {
        source: {
            name: Shards.open(folders[text], split, given=text[0]) for name, text in corpora.items()
        }
        for source, corpora in texts.items()
    }


def _open_stream(given: Texts, data: Corpora, *, write: bool) -> Corpus:
    """The stream of `data.path`, whose first window stands for its text where a run may train on
    it, and the tokens of `data.valid_path`.
    """
    (name,) = given.sources
    stream = open_stream(data, Path(str(given.tokenizer)))
    valid: dict[str, dict[str, Shards]] = {name: {}}
    if (path := data.valid_path) is not None:
        held = data.replace({"valid_path": None, "valid_share": 0.0, "path": path})
        with show_progress() as say:
            job = make_job(replace(given, data=held), _hashable(path), say=say)
            folder = open_or_tokenize(job, cache_dir=data.cache_dir, write=write)
        shards = Shards.open(folder, "train", tokenizer=stream.tokenizer, given=path)
        valid[name] = {name: shards}
    train: dict[str, dict[str, Shards]] = {name: {name: stream.first.shards} if write else {}}
    return Corpus(train, valid, stream.tokenizer, {name: stream})


def _common_tokenizer(given: Texts, folders: Iterable[Path], shared: Path | None) -> Tokenizer:
    """The tokenizer that all token directories were made with; DataError for another one."""
    path = given.tokenizer or shared or next(iter(folders))
    tokenizer = Tokenizer.load(path)
    which = "tokenizer.path" if given.tokenizer else "the tokenizer of the first corpus"
    which = "the one the model starts from" if given.starts else which
    for folder in folders:
        fingerprint = read_manifest(folder)["tokenizer"]["fingerprint"]
        if fingerprint != tokenizer.fingerprint:
            raise DataError(
                f"these tokens were made with another tokenizer than {which} ({path}):"
                f" {fingerprint}, not {tokenizer.fingerprint}",
                file=folder,
                fix=(
                    f"data.path=<text> {spell_setting('tokenizer.path', path)},"
                    " which tokenizes it again"
                ),
            )
    return tokenizer


def _refuse_unknown_text(texts: Iterable[Shards], tokenizer: Tokenizer) -> None:
    """DataError for a text of which the tokenizer knows too little."""
    for shards in texts:
        fix = (
            "a tokenizer of this text (no tokenizer.path,"
            " more tokenizer.vocab_size), or of any: tokenizer=byte_bpe"
        )
        unknown = unknown_share(sample_corpus(shards.ids), tokenizer.vocab)
        refuse_unknown(unknown, file=shards.given, fix=fix)


def _shared_tokenizer(
    given: Texts, jobs: Mapping[Text, TokenizingJob], *, write: bool
) -> Path | None:
    """The tokenizer that several texts share without a tokenizer of their own: that of the first
    token directory, or one trained on all.
    """
    if len(jobs) == 1 or given.tokenizer:
        return None
    known = next((locate(path) for path, _ in jobs if is_tokens(path)), None)
    if known:
        return known
    return share_tokenizer(
        list(jobs.values()),
        temperature=given.data.vocab_temperature if isinstance(given.data, Corpora) else None,
        cache_dir=given.data.cache_dir,
        write=write,
    )


def _hashable(path: Any) -> Any:
    return tuple(path) if isinstance(path, Sequence) and not isinstance(path, str) else path
