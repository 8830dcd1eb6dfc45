"""A trained model from wherever it lies: a run, a checkpoint, or a Hugging Face folder."""

from __future__ import annotations

import functools
import glob
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from torch import Tensor

from plmctl.artifacts.assemble import NODES, build_model, settle_lengths, without_weights
from plmctl.artifacts.model_facts import stated_pooling
from plmctl.artifacts.peft import adapterhub
from plmctl.artifacts.peft import reading as peft_reading
from plmctl.artifacts.trained_ranges import find_ranges
from plmctl.config.plugins import confirm, named
from plmctl.config.run_name import RUNS
from plmctl.config.saved import CONFIG, read_spec, refuse_former_settings, refuse_references
from plmctl.config.schema import Converted, Graph
from plmctl.config.spec import Provenance, thaw
from plmctl.core.errors import DataError, UsageError, did_you_mean, list_some
from plmctl.core.spelling import spell_line, spell_setting
from plmctl.core.terminal import DETAIL, WARN, counted, remark, remark_once
from plmctl.interop import elmo, fairseq, google, hf, sentence_folder, weights
from plmctl.interop.elmo import make_tokenizer
from plmctl.interop.family import find_token_tables
from plmctl.interop.sizes import Explain
from plmctl.knowledge.vectors import find_vectors
from plmctl.models.base import Model
from plmctl.nn.tables import token_rows
from plmctl.runtime.base import Runtime
from plmctl.storage.gate import own
from plmctl.storage.hub import PREFIX, HubName, find_hub_model
from plmctl.storage.parts.kinds import has_weights, read_at_once
from plmctl.storage.paths import find_near, refuse_links
from plmctl.storage.reading import blame_file, fit_stored, read_json
from plmctl.tasks.linear_model import is_linear
from plmctl.tasks.scores.below import find_run
from plmctl.text.characters import Spelling
from plmctl.text.tokenizer import META, Tokenizer
from plmctl.text.vocab import Vocab
from plmctl.training.checkpoint import (
    BASE,
    Base,
    Checkpoints,
    damage,
    fingerprint_tensors,
    load_exactly,
    load_tensors,
    progress_of,
    read_base,
)
from plmctl.training.device.precision import Precision, choose
from plmctl.training.processes.world import device_of
from plmctl.training.rundir import describe_training

# how names on Hugging Face's hub look: google-bert/bert-base-cased; old ones have no owner
_HUB = re.compile(
    r"[\w-][\w.-]*/[\w-][\w.-]*"
    r"|(albert|bart|bert|camembert|distilbert|distilroberta|electra)(-[\w.-]+)?"
    r"|(gpt2|roberta|t5|transfo|xlm|xlnet)(-[\w.-]+)?"
)
BESIDE = "beside"  # folder of a run: a checkpoint of each side task in addition to its own
CARD = "model.json"  # the file of an exported folder that says what its graph is
SPARE = 1024  # rows at most by which a published table is longer than its tokenizer, for speed
# files of which one has the tokens
VOCABULARIES = ("tokenizer.json", "vocab.txt", "vocab.json", "encoder.json", "*.model", "*.spm")
FOREIGN = (elmo, google, fairseq)  # layouts other than that of transformers
ADAPTERS: tuple[Any, ...] = (adapterhub, peft_reading)  # layouts of libraries of adapters
SHOWN = 3  # folders that a message lists


@dataclass(frozen=True)
class Source:
    """Weights and what is needed to use them, before a model is built."""

    folder: Path  # the checkpoint or Hugging Face folder itself
    config: dict[str, Any] = field(repr=False)  # resolved; its position states its own max_length
    tensors: Mapping[str, Tensor] = field(repr=False)  # by our names
    unused: Sequence[str] = ()  # tensors of a published model that ours cannot hold
    plugins: Sequence[str] = ()  # packages outside plmctl that may be imported for it
    published: bool = False  # a Hugging Face folder
    beside: Path | None = None  # for an adapter: the folder of its base, which has the tokenizer

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """DataError where the folder has none, or one with more tokens than the table has rows."""
        if elmo.is_checkpoint(self.folder):
            return make_tokenizer()
        if not self.has_tokenizer:
            files = "tokenizer.json, vocab.txt, vocab.json with merges.txt, or *.model"
            fix = f"copy its files into this folder: {files}"
            raise DataError("no tokenizer here", file=self.folder, fix=fix)
        tokenizer = Tokenizer.load(self._words)
        rows = sum(map(len, find_token_tables(self.tensors)))
        if 0 < rows < tokenizer.vocab.size or self._is_too_small(tokenizer, rows):
            raise DataError(
                f"its tokenizer has {tokenizer.vocab.size:,} tokens, and the table of its model"
                f" {rows:,} rows",
                file=self.folder,
                fix="put the files of the tokenizer there that the model was trained with",
            )
        if self.published and rows > tokenizer.vocab.size:
            _warn_of_spare_rows(self.folder, self._words, rows, tokenizer.vocab.size)
        rows_asked = not {"class", "score"}.isdisjoint(self.config.get("heads") or {})
        if self.published and rows_asked and stated_pooling(self.config) == "last":
            _warn_of_other_end(self.folder, tokenizer.vocab.eos)
        return tokenizer

    def _is_too_small(self, tokenizer: Tokenizer, rows: int) -> bool:
        """Whether a published table has more rows than are added to one for speed."""
        return self.published and rows - tokenizer.vocab.size > SPARE

    @property
    def _words(self) -> Path:
        """The folder of the tokenizer."""
        return (self.beside or self.folder) if self.published else self.folder / "tokenizer"

    @property
    def vocab(self) -> Vocab | None:
        """None where there is no tokenizer; DataError for one that cannot be read."""
        return self.tokenizer.vocab if self.has_tokenizer else None

    @cached_property
    def spelling(self) -> Spelling | None:
        """How new text is written, word by word; None without a tokenizer of words."""
        return (
            Spelling(self.tokenizer)
            if self.has_tokenizer and self.tokenizer.vocab.spellings
            else None
        )

    @property
    def has_tokenizer(self) -> bool:
        """Whether there are files of one (readable or not)."""
        if not self.published:
            return (self._words / META).is_file()
        if elmo.is_checkpoint(self.folder):
            return True
        return any(file for name in VOCABULARIES for file in self._words.glob(name))

    @property
    def run(self) -> Path | None:
        """The directory of the run that the checkpoint is in, where its results go."""
        above = self.folder.parent
        if above.name == BESIDE or is_linear(self.folder):  # it stands alone in the run
            return self.folder
        return above.parent if above.name == "checkpoints" else None

    @property
    def home(self) -> Path:
        """The directory of its run, which knows the training texts, else its own folder."""
        simple = find_run(self.folder) if is_linear(self.folder) else None
        return simple or self.run or self.folder

    def own_task(self) -> dict[str, Any]:
        """The config of the task that it was fine-tuned on, {} without one; UsageError where that
        needs a plug-in that is not named.
        """
        node: dict[str, Any] = self.config.get("task") or {}
        confirm(named(node), self.plugins, of=self.folder)
        return node

    @property
    def vocab_size(self) -> int:
        """Rows of the token table, which may be more than the tokenizer has tokens."""
        tables = find_token_tables(self.tensors)
        return sum(map(len, tables)) or self.tokenizer.vocab.size


@dataclass(frozen=True)
class Loaded:
    """A trained model in evaluation mode, its tokenizer, and the config it was made from."""

    model: Model
    source: Source
    # the only one that computes its answers, for an exported folder
    runtime: Runtime | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        source = self.source
        # a function, which a copy of the model shares
        self.model.find_ranges = lambda: find_ranges(source)

    @property
    def config(self) -> dict[str, Any]:
        return self.source.config

    @property
    def tokenizer(self) -> Tokenizer:
        return self.source.tokenizer

    @property
    def vocab(self) -> Vocab:
        return self.tokenizer.vocab

    def own_task(self) -> dict[str, Any]:
        """The task of its source."""
        return self.source.own_task()


@functools.cache  # a command opens a folder several times
def _warn_of_spare_rows(folder: Path, words: Path, rows: int, tokens: int) -> None:
    file = next((name for name in weights.FILES if (folder / name).is_file()), "its weights")
    known = next((one for name in VOCABULARIES for one in words.glob(name)), words)
    line = f"the table of {file} has {rows:,} rows, and {known} {tokens:,} tokens"
    more = f"the last {rows - tokens:,} rows count as padding; if that is another model's"
    remark(f"{folder}: {line}: {more}, put the files of its own tokenizer there", WARN)


@functools.cache
def _warn_of_other_end(folder: Path, eos: int | None) -> None:
    """A remark where a published classifier reads another token than the last one of a text."""
    file = folder / "config.json"
    stated = read_json(file, fix=weights.AGAIN).get("eos_token_id") if file.is_file() else None
    if isinstance(stated, int) and stated != eos:
        line = f"{file}: the classifier reads the token {stated} (eos_token_id)"
        more = "the tokenizer ends texts with another one, so answers differ from those published"
        remark(f"{line}; {more}: put the files of its own tokenizer there", WARN)


def load(path: str | os.PathLike[str], *, plugins: Sequence[str] = ()) -> Loaded:
    """The model at `path`: a run (its best checkpoint, else the newest), a checkpoint `step-N`, or
    a Hugging Face folder.

    `plugins`: the packages outside plmctl that it may be made of; UsageError for any other.
    """
    return load_source(open_source(path, plugins=plugins))


def load_source(source: Source) -> Loaded:
    """The model of an opened source."""
    source = without_spare_rows(source)
    if not source.published:
        _refuse_misfit(source, again="use another checkpoint of the run")
    model = build_model(
        source.config, vocab_size=source.vocab_size, vocab=source.vocab, plugins=source.plugins
    )
    refuse_infinite(source.tensors, file=source.folder)
    load_exactly(model, source.tensors, file=source.folder)
    remark(f"loaded {source.folder}: {len(source.tensors)} tensors", DETAIL)
    return Loaded(model.eval(), source)


def load_for(
    checkpoint: str, device: str, precision: str, plugins: Sequence[str] = ()
) -> tuple[Loaded, Precision]:
    """The model of a checkpoint on a device, and the precision in which it is used."""
    chosen = choose(precision, device_of(device, "device"))
    loaded = load(checkpoint, plugins=plugins)
    loaded.model.to(chosen.device)
    return loaded, chosen


def without_spare_rows(source: Source) -> Source:
    """`source` without rows beyond the tokens of its tokenizer. Published tables often have such
    rows for speed: they are no tokens, so nothing predicts or counts them.
    """
    tables = find_token_tables(source.tensors)
    if not source.published or len(tables) != 1 or not source.has_tokenizer:
        return source
    rows, known = len(tables[0]), source.tokenizer.vocab.size
    if rows == known:
        return source
    with without_weights():
        model = build_model(source.config, vocab_size=rows, plugins=source.plugins)
    padded = [name for name, count in token_rows(model).items() if count == rows]
    cut = {name: source.tensors[name][:known] for name in padded if name in source.tensors}
    trimmed = replace(source, tensors={**source.tensors, **cut})
    trimmed.__dict__["tokenizer"] = source.tokenizer
    return trimmed


def refuse_infinite(tensors: Mapping[str, Tensor], *, file: object) -> None:
    """DataError naming every tensor with NaN or infinity in it: a damaged model is not passed on
    silently.
    """
    broken = [
        name
        for name, tensor in tensors.items()
        if tensor.is_floating_point() and not tensor.isfinite().all()
    ]
    if broken:
        fix = "use a checkpoint from before it diverged"
        raise DataError(f"not finite: {list_some(broken)}", file=file, fix=fix)


def open_source(
    path: str | os.PathLike[str], layers: Any = None, *, plugins: Sequence[str] = ()
) -> Source:
    """Config and tensors at `path`, without building anything.

    Args:
        layers: keep only these of its layers (`shrinking.pick_layers`).

    Raises:
        UsageError: if its model is made with a package outside plmctl that is none of `plugins`.
    """
    if layers is not None:
        from plmctl.artifacts.shrinking import shrink_source

        return shrink_source(open_source(path, plugins=plugins), layers)
    folder = find(path)
    refuse_links(own(folder))
    if not (folder / "config.yaml").is_file():
        model, beside = _read_published(folder)
        refuse_references(model.config, file=folder)
        source = Source(
            folder,
            model.config,
            model.tensors,
            model.unused,
            plugins,
            published=True,
            beside=beside,
        )
        _refuse_misfit(source, again="download it again", explain=model.explain)
        return source
    problem = damage(folder)
    if problem:
        fix = "put its files back as they were, or use another checkpoint of the run"
        raise DataError(problem, file=folder, fix=fix)
    config = read_config(folder, path, plugins=plugins)
    tensors = _with_base(read_at_once(folder), folder, plugins)
    return Source(folder, config, tensors, plugins=plugins)


def _read_published(folder: Path) -> tuple[hf.Imported, Path | None]:
    """The model of a published folder, and the folder of its tokenizer where that is another."""
    if adapter := next((each for each in ADAPTERS if each.is_adapter(folder)), None):
        return adapter.read(folder)
    if sentence_folder.is_sentence_folder(folder):
        return sentence_folder.read(folder)
    layout: Any = next((each for each in FOREIGN if each.is_checkpoint(folder)), hf)
    return layout.read(folder), None


def read_config(
    folder: Path, path: str | os.PathLike[str] | None = None, *, plugins: Sequence[str] = ()
) -> dict[str, Any]:
    """The config in the folder of a checkpoint, with all lengths.

    Args:
        path: The folder as the user names it; None: the same.
    """
    path = folder if path is None else path
    spec = read_spec(folder, Provenance("", plugins=tuple(plugins)))
    if isinstance(spec, Graph):
        what = "a run of plmctl graph, which has vectors of entities and no language model"
        if find_vectors(folder) or find_vectors(Path(path)):
            fix = f"plmctl eval {spell_setting('checkpoint', path)}, or another checkpoint"
        else:
            what = f"{what}; its vectors are written at its end"
            fix = f"plmctl graph --resume {spell_setting('run.dir', path)}"
        raise UsageError(f"{path}: {what}\n  fix: {fix}")
    stated = thaw(spec or {})
    if isinstance(spec, Converted):
        stated = {key: value for key, value in stated.items() if value is not None}
    file = folder / CONFIG
    config = fit_stored(stated, _Saved, file=file)
    confirm(named([config.get(name) for name in NODES]), plugins, of=path)
    refuse_former_settings({"model": config.get("model")}, plugins, file=file)
    return settle_lengths(config, plugins=plugins)


def _with_base(own: dict[str, Tensor], folder: Path, plugins: Sequence[str]) -> dict[str, Tensor]:
    """The tensors of a checkpoint and those of its base, another model.

    Raises:
        DataError: That model is missing, or is another one.
    """
    base = read_base(folder)
    if base is None:
        return own
    place = find_base(folder, base)
    found = find_base_tensors(base, open_source(place, plugins=plugins))
    if found is None:
        what = f"{place} is not the base model of its training: its weights differ"
        raise DataError(what, file=folder, fix="put the former model back there")
    return found | own


def find_base_tensors(base: Base, source: Source) -> dict[str, Tensor] | None:
    """The tensors of `source` that a checkpoint needs from its base model; None where they are
    others.
    """
    # the whole tables: of runs from before they lost their spare rows
    for tensors in (without_spare_rows(source).tensors, source.tensors):
        found = {name: tensors[name] for name in base["tensors"] if name in tensors}
        if fingerprint_tensors(found) == base["fingerprint"]:
            return found
    return None


def find_base(folder: Path, base: Base) -> Path:
    """The folder of the model that a checkpoint was trained beside.

    Raises:
        DataError: It is missing, or has weights of another model itself, or of this one.
    """
    run = folder.parent.parent if folder.parent.name == "checkpoints" else folder
    places = (Path(base["path"]), run / base["relative"])
    place = next((path for path in places if path.is_dir()), None)
    if place is None:
        what = f"its base model is missing: {base['path']}"
        fix = f"put it back, or at {base['relative']}, as seen from {run}"
        raise DataError(what, file=folder, fix=fix)
    if (find(place) / BASE).is_file():
        what = f"it names {place}, which has its weights from another model itself"
        raise DataError(what, file=folder / BASE, fix="copy the checkpoint again")
    return place


class _Saved(TypedDict):
    """The fields of a saved config that are read; each may be missing."""

    size: NotRequired[dict[str, Any]]
    pattern: NotRequired[dict[str, Any]]
    position: NotRequired[dict[str, Any]]
    model: NotRequired[dict[str, Any]]
    heads: NotRequired[dict[str, Any] | None]
    peft: NotRequired[dict[str, Any] | None]
    format: NotRequired[dict[str, Any] | None]
    task: NotRequired[dict[str, Any] | None]
    objective: NotRequired[dict[str, Any] | None]
    train: NotRequired[dict[str, Any] | None]
    data: NotRequired[dict[str, Any] | None]
    origin: NotRequired[dict[str, Any] | None]
    labels: NotRequired[list[str] | None]
    sentence: NotRequired[dict[str, Any] | None]


def _refuse_misfit(source: Source, *, again: str, explain: Explain | None = None) -> None:
    """DataError where the numbers of a config are not those of its tensors, found without room
    for a model.

    Args:
        again: The fix.
        explain: Finds the settings that differ.
    """
    names = ("config.yaml", "config.json")
    file = next((file for name in names if (file := source.folder / name).is_file()), source.folder)
    with blame_file(file, "describes no model that can be built", fix=again), without_weights():
        try:
            model = build_model(source.config, vocab_size=source.vocab_size, plugins=source.plugins)
        except UsageError as error:
            raise ValueError(str(error)) from error
    fit = load_tensors(model, source.tensors)
    if explain is not None and (fit.reshaped or fit.unexpected):
        own = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
        shapes = {
            name: (tuple(tensor.shape), own[name])
            for name, tensor in source.tensors.items()
            if name in own
        }
        problem, fix = explain(shapes, source.tensors, own)
        if problem:
            raise DataError(problem, file=source.folder, fix=fix)
    if wrong := fit.reshaped:
        problem = f"its config and its weights disagree: {'; '.join(wrong[:3])}"
        raise DataError(problem, file=source.folder, fix=again)


def find(path: str | os.PathLike[str]) -> Path:
    """The checkpoint or Hugging Face folder that `path` means, of `hf:<name>[@revision]` in the
    local cache of the hub; DataError naming what was looked for.
    """
    named = str(path)
    place = find_hub_model(named) if named.startswith(PREFIX) else Path(path).expanduser()
    if not place.exists():
        raise _explain_missing(str(path).rstrip("/"), place)
    if not place.is_dir():
        inside = any((place.parent / name).is_file() for name in ("config.yaml", "config.json"))
        what, fix = "is a file, but a folder is needed", "give the folder of a run or a model"
        meant = place.parent if inside else None
        raise DataError(what, file=place, fix="" if meant else fix, meant=meant)
    if has_weights(place) and (place / "config.yaml").is_file():
        return place
    if (place / "checkpoints").is_dir():
        return _best(place / "checkpoints")
    if any(place.glob("step-*")):
        return _best(place)
    if is_linear(place):
        what = "a linear model of words has no states, no layers and no tokens"
        fix = "give the run that it is from; predict, eval and serve open the folder alone"
        raise UsageError(f"{path}: {what}\n  fix: {fix}")
    if is_deployed(place):
        what = "an exported folder has no weights that PyTorch reads"
        fix = "give the run that it is from; eval and predict read the folder as it is"
        raise UsageError(f"{path}: {what}\n  fix: {fix}")
    published = (place / "config.json").is_file() or sentence_folder.is_sentence_folder(place)
    published = published or any(each.is_checkpoint(place) for each in FOREIGN)
    if published or any(each.is_adapter(place) for each in ADAPTERS):
        return place
    if (place / "config.yaml").is_file():
        raise DataError(
            "this run has no checkpoint yet", file=place, fix="train it until the first save"
        )
    if (run := find_run(place)) is not None:
        what = "this simple model has answers alone; linear models of words can be opened"
        raise UsageError(f"{path}: {what}\n  fix: {spell_line('compare', run, place)}")
    if alone := next((name for name in weights.FILES if (place / name).is_file()), None):
        raise DataError(f"{alone} without its config.json", file=place, fix=weights.CONFIG)
    if runs := list(place.glob("*/checkpoints")):
        newest = max(runs, key=lambda each: each.stat().st_mtime).parent
        what = f"a folder of {counted(len(runs), 'run')}, the newest is {newest.name}"
        raise DataError(what, file=place, meant=newest)
    wanted = (
        "checkpoints/ of a run, config.yaml and model.safetensors of a checkpoint,"
        " config.json of a Hugging Face folder, adapter_config.json of peft or adapters"
    )
    raise DataError(f"neither {wanted}", file=place, fix="give the folder of a run or a model")


def is_deployed(place: Path) -> bool:
    """Whether a folder is one that `plmctl convert --to onnx` or another library has."""
    return (place / CARD).is_file() and (place / CONFIG).is_file()


def _explain_missing(path: str, place: Path) -> DataError:
    """The message for a missing model: a near name, else a download of a name on the hub."""
    near, folder = find_near(place), place.parent
    of_here = folder.name and (folder.exists() or place.parts[0] == RUNS.name)
    of_hub = not of_here and _HUB.fullmatch(path)
    bare = len(place.parts) == 1 and path == place.name  # imported, not ./imported
    nearby = folder if of_here else Path(RUNS) if bare and not of_hub else None
    others = sorted(nearby.glob("*/"))[:SHOWN] if nearby else []
    problem, fix = "there is no such run, checkpoint or Hugging Face folder", "check the path"
    if matches := glob.glob(path):
        several = f"a pattern of {counted(len(matches), 'folder')}, and one is read"
        fix = "add -m to the command: a job for each of them"
        return DataError(several, file=place, fix=fix, exact=True)
    if of_hub and HubName.parse(path).folder is not None:
        fix = f"give {PREFIX}{path}, which is in the local cache of the hub"
    elif near:
        problem = f"{problem}{did_you_mean([near])}"
        return DataError(problem, file=place, meant=near, exact=True)
    elif others:
        fix = f"give one that exists, such as {', '.join(map(str, others))}"
    elif of_hub:
        fix = f"download it first: hf download {path} --local-dir {path}"
    return DataError(problem, file=place, fix=fix, exact=bool(near or of_hub))


def _best(checkpoints: Path) -> Path:
    """The checkpoint that validated best where the run kept one, otherwise the newest."""
    damaged: list[str] = []
    newest = Checkpoints(checkpoints, say=damaged.append).newest()
    if newest is None:
        broken = [
            f"{folder.name}: {damage(folder)}" for folder in sorted(checkpoints.glob("step-*"))
        ]
        detail = f" ({'; '.join(broken)})" if broken else ""
        fix = "copy the whole run again" if broken else "train until the first save"
        raise DataError(f"no complete checkpoint here{detail}", file=checkpoints, fix=fix)
    progress = progress_of(newest)
    best = progress.best_step
    folder, chosen = checkpoints / f"step-{best}", newest
    if best is not None and folder.is_dir():
        problem = damage(folder)
        if not problem:
            chosen = folder
        elif not any(folder.name in line for line in damaged):
            damaged.append(f"{folder}: {problem}")
    for line in damaged:
        remark(f"{line}; {chosen.name} is taken", WARN)
    if training := describe_training(checkpoints.parent):
        line = f"{checkpoints.parent}: {training}; {chosen.name} is read, a later save is not"
        remark_once(line, WARN)
    if chosen != newest:
        value = "" if progress.best is None else f", {progress.best:.4g}"
        line = f"{chosen} is taken: it validated best{value} ({newest.name} is the newest)"
        remark_once(line)
    return chosen
