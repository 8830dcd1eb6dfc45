"""From config to data: token shards, formats, noise, and the loaders of training and validation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from plmctl.config.build import plain
from plmctl.core.errors import ConfigError, DataError, UsageError, find_meant, nearest, raise_all
from plmctl.core.progress import show_bytes
from plmctl.core.spelling import spell_setting
from plmctl.core.terminal import DETAIL, remark
from plmctl.data.held_out import HeldText
from plmctl.data.mixture import check_mixture
from plmctl.data.sample import sample_corpus
from plmctl.data.shards import SPLITS, Shards, is_tokens, read_manifest
from plmctl.data.sharing import share_tokenizer
from plmctl.data.text_stream import TextStream
from plmctl.data.tokenizing import TokenizingJob, open_or_tokenize
from plmctl.data.verified import verify_once
from plmctl.inputs.known_entities import refuse_other_entities, refuse_spare_entities
from plmctl.inputs.streaming import check_stream, open_stream
from plmctl.inputs.tokenize import make_job, show_progress
from plmctl.storage.paths import find_cache_folder
from plmctl.text.tokenizer import Tokenizer
from plmctl.text.unknown import refuse_unknown, unknown_share
from plmctl.text.vocab import Vocab

# of one of `data.sources`
SOURCE_KEYS = ("path", "target_path", "language", "mixture", "format", "noise", "weight")
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
    # {source: what is tokenized as it is read}; its first window is in `train`
    streams: Mapping[str, TextStream] = field(default_factory=dict)

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
        """{title: (source, corpus)} of what is held out; a title is the corpus, of several
        sources "source.corpus".
        """
        pairs = [(source, name) for source, parts in self.valid.items() for name in parts]
        several = len(self.valid) > 1
        return {
            f"{pair[0]}.{pair[1]}" if several and pair[0] != pair[1] else pair[1]: pair
            for pair in pairs
        }


def open_corpus(spec: Any, *, write: bool = True) -> Corpus:
    """Open the token directories of all sources and corpora; raw text is tokenized first, once, and
    where nothing may be written, DataError for what is not tokenized yet, and no window of a stream
    is read.
    """
    if spec.data.streaming:
        return _open_stream(spec, write=write)
    cache_dir = spec.data.cache_dir
    texts: dict[str, dict[str, Text]] = {
        source: {
            name: (_hashable(part.get("path")), _hashable(part.get("target_path")))
            for name, part in node["corpora"].items()
        }
        for source, node in sources(spec).items()
    }
    with show_progress() as say:
        jobs = {
            text: make_job(spec, text[0], target=text[1], say=say)
            for corpora in texts.values()
            for text in corpora.values()
        }
        shared = _shared_tokenizer(spec, jobs, write=write)
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
    tokenizer = _common_tokenizer(spec, folders.values(), shared)
    train, valid = (
        {
            source: {
                name: Shards.open(folders[text], split, given=text[0])
                for name, text in corpora.items()
            }
            for source, corpora in texts.items()
        }
        for split in SPLITS
    )
    with show_bytes() as say:
        for corpora in (*train.values(), *valid.values()):
            for shards in corpora.values():
                verify_once(shards, find_cache_folder(cache_dir), say=say)
    _refuse_unknown_text(folders, tokenizer)
    refuse_other_entities(spec, folders.values())
    refuse_spare_entities(spec, [each for parts in train.values() for each in parts.values()])
    held_out = {
        source: {name: shards for name, shards in corpora.items() if len(shards.ids)}
        for source, corpora in valid.items()
    }
    train = {
        source: {name: shards.first(spec.train.share) for name, shards in corpora.items()}
        for source, corpora in train.items()
    }
    return Corpus(train, held_out, tokenizer)


def _open_stream(spec: Any, *, write: bool) -> Corpus:
    """The stream of `data.path`, whose first window stands for its text where a run may train on
    it, and the tokens of `data.valid_path`.
    """
    (name,) = sources(spec)
    stream = open_stream(spec)
    valid: dict[str, dict[str, Shards]] = {name: {}}
    if (path := spec.data.valid_path) is not None:
        only = {"data.valid_path": None, "data.valid_share": 0.0, "data.path": path}
        with show_progress() as say:
            job = make_job(spec.replace(only), _hashable(path), say=say)
            folder = open_or_tokenize(job, cache_dir=spec.data.cache_dir, write=write)
        shards = Shards.open(folder, "train", tokenizer=stream.tokenizer, given=path)
        valid[name] = {name: shards}
    train: dict[str, dict[str, Shards]] = {name: {name: stream.first.shards} if write else {}}
    return Corpus(train, valid, stream.tokenizer, {name: stream})


def _common_tokenizer(spec: Any, folders: Iterable[Path], shared: Path | None) -> Tokenizer:
    """The tokenizer that all token directories were made with; DataError for another one."""
    stated = spec.tokenizer.get("path") if spec.tokenizer else None
    path = stated or shared or next(iter(folders))
    tokenizer = Tokenizer.load(path)
    which = "tokenizer.path" if stated else "that of the first corpus"
    which = "the one the model starts from" if spec.init else which
    for folder in folders:
        fingerprint = read_manifest(folder)["tokenizer"]["fingerprint"]
        if fingerprint != tokenizer.fingerprint:
            raise DataError(
                f"these tokens were made with another tokenizer than {which} ({path}):"
                f" {fingerprint}, not {tokenizer.fingerprint}",
                file=folder,
                fix=(
                    "give the text instead of its tokens,"
                    f" or tokenize it again with {spell_setting('tokenizer.path', path)}"
                ),
            )
    return tokenizer


def _refuse_unknown_text(folders: Mapping[Text, Path], tokenizer: Tokenizer) -> None:
    """DataError for a text of which the tokenizer knows too little."""
    for (path, _), home in folders.items():
        sample = sample_corpus(Shards.open(home, "train", given=path).ids)
        fix = (
            "a tokenizer of this text (no tokenizer.path,"
            " more tokenizer.vocab_size), or of any: tokenizer=byte_bpe"
        )
        refuse_unknown(unknown_share(sample, tokenizer.vocab), file=path or home, fix=fix)


def _shared_tokenizer(spec: Any, jobs: Mapping[Text, TokenizingJob], *, write: bool) -> Path | None:
    """What several texts share where no tokenizer is given: that of the first token directory,
    or one trained on all.
    """
    if len(jobs) == 1 or (spec.tokenizer and spec.tokenizer.get("path")):
        return None
    known = next((Path(path).expanduser() for path, _ in jobs if is_tokens(path)), None)
    if known:
        return known
    return share_tokenizer(
        list(jobs.values()),
        temperature=spec.data.vocab_temperature,
        cache_dir=spec.data.cache_dir,
        write=write,
    )


def sources(spec: Any) -> dict[str, dict[str, Any]]:
    """{name: {corpora, format, noise, weight}}; a run without `data.sources` has one source,
    called "text".
    """
    common = {"format": plain(spec.format), "noise": plain(spec.noise), "weight": 1.0}
    given = _mappings(plain(spec.data.sources)) or {"text": {}}
    return {
        name: {**common, **node, "corpora": _corpora(spec, name, node)}
        for name, node in given.items()
    }


def _corpora(spec: Any, source: str, node: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """{corpus: {path, target_path, language, weight}} of a source: its mixture, or its path as one
    corpus; by default those of `data`, where `data.target_path` goes with `data.path`.
    """
    if "mixture" in node or "path" in node:
        stated = {key: node[key] for key in ("path", "target_path", "language") if key in node}
        return _mappings(node.get("mixture") or {}) or {source: stated}
    own = plain(spec.data)
    stated = {"path": own["path"], "target_path": own["target_path"]}
    stated |= {"language": node["language"]} if "language" in node else {}
    return _mappings(own["mixture"]) or {source: stated}


def _mappings(nodes: Mapping[str, Any]) -> dict[str, Any]:
    """Without what is none: a mistake in the settings, which is reported beside others."""
    return {name: node for name, node in nodes.items() if isinstance(node, Mapping)}


def check_data(spec: Any) -> None:
    """The settings of sources and mixtures, before any data are read; all mistakes are raised
    together.
    """
    data = plain(spec.data)
    errors: list[UsageError] = list(check_stream(spec))
    mixtures = {"data.mixture": data["mixture"]}
    known = f"there is no such setting; there are {', '.join(SOURCE_KEYS)}"
    for name, node in data["sources"].items():
        path = f"data.sources.{name}"
        errors += [
            _refuse_key(path, key, value, known)
            for key, value in node.items()
            if key not in SOURCE_KEYS
        ]
        mixtures[f"{path}.mixture"] = node.get("mixture")
    mixtures = {path: mixture for path, mixture in mixtures.items() if mixture}
    for path, mixture in mixtures.items():
        errors += check_mixture(mixture, data["temperature"], path)
        if data["valid_path"] is not None:
            fix = "plmctl tokenize data.valid_path=..., and name the token directories"
            allowed = f"each corpus of {path} holds documents of its own out"
            errors.append(ConfigError("data.valid_path", data["valid_path"], allowed, fix=fix))
    errors += _check_targets(spec, data["target_path"])
    if data["temperature"] is not None and not mixtures:
        allowed = "has no effect without data.mixture"
        errors.append(ConfigError("data.temperature", data["temperature"], allowed))
    if data["path"] is not None and data["mixture"]:
        allowed, fix = "has no effect beside data.mixture", "make it one of the mixture's corpora"
        errors.append(ConfigError("data.path", data["path"], allowed, fix=fix))
    raise_all(errors)


def _check_targets(spec: Any, target: Any) -> list[ConfigError]:
    """The error of a `data.target_path` beside texts of their own, none of which is `data.path`."""
    read = [part for node in sources(spec).values() for part in node["corpora"].values()]
    if target is None or any(part.get("target_path") == target for part in read):
        return []
    allowed = "goes with data.path, which none of these texts is"
    fix = "the target_path of a corpus: data.sources.pairs.target_path=..."
    return [ConfigError("data.target_path", target, allowed, fix=fix)]


def _refuse_key(path: str, key: str, value: Any, known: str) -> ConfigError:
    """A setting that no source has."""
    meant = find_meant(key, SOURCE_KEYS)
    fix = spell_setting(f"{path}.{meant}", value) if meant else ""
    return ConfigError(f"{path}.{key}", value, known + nearest(key, SOURCE_KEYS), fix=fix)


def _hashable(path: Any) -> Any:
    return tuple(path) if isinstance(path, Sequence) and not isinstance(path, str) else path
