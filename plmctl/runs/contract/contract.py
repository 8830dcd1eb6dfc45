"""Do the parts of a run fit together? Asked before any data is touched, answered with every
mismatch at once.

    format.provides | noise.writes | what objective.labels derives
        must cover  noise.reads | objective.needs | model.needs

in the words of `plmctl help fields`. Formats, noises and objectives are built for this (cheap),
the model on the meta device.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from plmctl.artifacts.assemble import (
    build_model,
    known_to_objectives,
    row_lengths,
    texts_in_rows,
    without_weights,
)
from plmctl.artifacts.places import Places
from plmctl.config.build import build, class_of, entry
from plmctl.config.glossary import fields_in, known_fields
from plmctl.config.spec import thaw
from plmctl.core.batch import IGNORE, Rows, Seq
from plmctl.core.errors import ConfigError, PlmctlError, collect, raise_all
from plmctl.core.fields import Fields, glossary, held_by_data, sequences
from plmctl.core.problems import PartContext, find_problems
from plmctl.data.shards import is_tokens
from plmctl.runs.contract.alone import check_milestones, find_unwritten, find_wrong_numbers
from plmctl.runs.contract.peeking import (
    find_altered,
    find_answered_elsewhere,
    find_peeking,
    find_unheard,
)
from plmctl.runs.contract.remedies import (
    SHOWN,
    explain_field,
    find_formats,
    find_objectives,
    find_providers,
    report_lack,
)
from plmctl.runs.contract.stage_contract import find_in_stages, find_wrong_freezing
from plmctl.runs.contract.stand_in import TINY
from plmctl.text.vocab import TokenLack

if TYPE_CHECKING:
    from plmctl.data.formats.base import Format
    from plmctl.models.base import Model
    from plmctl.noise.base import Noise
    from plmctl.objectives.base import Objective
    from plmctl.text.vocab import Vocab


# stands for the size of a vocabulary that is not known yet: larger than any id or number of tokens
# in a setting; tables without weights cost nothing
ANY_SIZE = 1 << 20


def check_contract(
    cfg: Any,
    plugins: Sequence[str] = (),
    config_dirs: Sequence[str] = (),
    *,
    vocab_size: int = ANY_SIZE,
    vocab: Vocab = TINY,
) -> Model:
    """Build the parts of a pretraining config without weights, raise every mismatch among them, and
    return the model.

    Args:
        vocab: Stands in for the vocabulary: `stand_in_for` one that is known.
    """
    config = thaw(cfg)
    errors: list[PlmctlError] = []
    objectives: dict[str, Objective] = {}
    source_of: dict[str, str | None] = {}  # the source that an objective looks at
    with collect(errors), without_weights():
        model = build_model(config, vocab_size=vocab_size, vocab=TINY, plugins=plugins)
        places = Places(model.backbone.max_length, model.backbone.max_target)
        errors += find_too_long(config, places, plugins)
        given = known_to_objectives(model, TINY, vocab_size=vocab_size)
        for name, node in (config["objective"] or {}).items():  # some are built around the model
            path = f"objective.{name}"
            with collect(errors):
                part, _, source_of[name] = entry(node, path)
                objectives[name] = build(part, given, plugins, path=path)
                errors += find_unwritten(path, objectives[name])
        errors += find_wrong_freezing(config, model)

    sources, wrong = _build_sources(config, plugins, vocab)
    errors += wrong
    looking = {name: (objective, source_of[name]) for name, objective in objectives.items()}

    def check_rows(config: Mapping[str, Any]) -> list[PlmctlError]:
        sources, wrong = _build_sources(config, plugins, vocab)
        return wrong or _check_sources(config, sources, looking, model, config_dirs, plugins)

    if not errors:
        errors += _check_sources(config, sources, looking, model, config_dirs, plugins)
    elif objectives:  # the model could be built
        errors += find_problems(_name_modules(model), _surround(config, model, plugins))
    errors += find_peeking(objectives, model.backbone) if objectives else []
    if not errors:
        errors += find_in_stages(cfg, objectives, model, plugins, check_rows)
    errors += find_nothing_to_learn(config)
    errors += find_wrong_numbers(config, plugins)
    with collect(errors):
        check_milestones(config)
    errors += find_too_few_rows(config, objectives)
    if config.get("init"):
        errors = [each.of_init() if isinstance(each, TokenLack) else each for each in errors]
    raise_all(errors)
    return model


def _build_sources(
    config: Mapping[str, Any], plugins: Sequence[str], vocab: Vocab
) -> tuple[dict[str | None, dict[str, Any]], list[PlmctlError]]:
    """({source: its "format" and "noise"}, what is wrong with them); None is the only source."""
    errors: list[PlmctlError] = []
    sources: dict[str | None, dict[str, Any]] = {}
    for source, node in ((config["data"] or {}).get("sources") or {None: {}}).items():
        sources[source] = {}
        for slot in ("format", "noise"):
            with collect(errors):
                part = node.get(slot, config[slot]) or {}
                sources[source][slot] = build(part, {"vocab": vocab}, plugins, path=slot)
    return sources, errors


def _check_sources(
    config: Mapping[str, Any],
    sources: Mapping[str | None, Mapping[str, Any]],
    objectives: Mapping[str, tuple[Objective, str | None]],
    model: Model,
    config_dirs: Sequence[str],
    plugins: Sequence[str],
) -> list[PlmctlError]:
    """Misfits between the rows of `sources` and the parts that read them; each objective comes with
    the source that it looks at, None: all.
    """
    errors: list[PlmctlError] = []
    for source, read in sources.items():
        looking = {
            name: objective
            for name, (objective, own) in objectives.items()
            if source is None or own in (None, source)
        }
        with collect(errors):
            errors += _check_source(
                config,
                **read,
                objectives=looking,
                model=model,
                config_dirs=config_dirs,
                plugins=plugins,
            )
    return errors


def _check_source(
    config: Mapping[str, Any],
    format: Format,
    noise: Mapping[str, Noise],
    objectives: Mapping[str, Objective],
    model: Model,
    config_dirs: Sequence[str],
    plugins: Sequence[str],
) -> list[ConfigError]:
    """Misfits between the rows of one source and the parts that read them."""
    heads, backbone = dict(model.heads), {"model": model.backbone}
    around = replace(_surround(config, model, plugins), format=format)
    parts = {"format": format, **{f"noise.{name}": part for name, part in noise.items()}}
    parts |= {f"objective.{name}": part for name, part in objectives.items()}
    parts |= _name_modules(model)
    errors = [
        *find_mismatches(format, noise, objectives, list(heads), backbone, config_dirs, plugins),
        *find_altered(format, noise, objectives, "noise"),
        *find_unheard(format, objectives, model.backbone),
        *find_miscounts(format, objectives, heads, config_dirs, plugins),
        *find_answered_elsewhere(objectives, heads),
        *find_problems(parts, around),
    ]
    if not errors and "eval" in config:
        nodes = config["eval"]["noise"] or {}
        quiet = build(nodes, {"vocab": TINY}, plugins, path="eval.noise")
        errors += find_unmeasured(format, quiet, objectives, trained=noise)
        errors += find_altered(format, quiet, objectives, "eval.noise")
    return errors


def _name_modules(model: Model) -> dict[str, Any]:
    """{config path: module} of a model and of its heads."""
    modules = {f"model.{name}".strip("."): part for name, part in model.backbone.named_modules()}
    return modules | {f"heads.{name}": head for name, head in model.heads.items()}


def _surround(config: Mapping[str, Any], model: Model, plugins: Sequence[str]) -> PartContext:
    """The surroundings of all parts, without rows."""
    data, node = config.get("data") or {}, config.get("tokenizer") or {}
    tokens = is_tokens(data.get("path"))
    new = "_target_" in node and not (node.get("path") or tokens)
    kind = getattr(class_of(node, plugins), "kind", None) if new else None
    paired = any(data.get(key) for key in ("sources", "mixture", "target_path", "fields"))
    begun = bool(config.get("init"))
    return PartContext(
        backbone=model.backbone, tokenizer=kind, paired=paired or tokens, begun=begun
    )


def find_nothing_to_learn(config: Mapping[str, Any]) -> Iterator[ConfigError]:
    """A run with neither an objective nor a teacher."""
    if not config["objective"] and not config.get("distill"):
        alone = "distill=minilm teacher=runs/<run>, whose student learns of layers alone"
        allowed = "something to learn: without an objective there is no loss"
        yield ConfigError("objective", [], allowed, fix=f"objective=[mlm], or {alone}")


def find_mismatches(
    format: Format,
    noise: Mapping[str, Noise],
    objectives: Mapping[str, Objective],
    heads: Iterable[str],
    model: Mapping[str, Any],
    config_dirs: Sequence[str] = (),
    plugins: Sequence[str] = (),
) -> Iterator[ConfigError]:
    """Every field that a part asks for and nothing gives, and every head that an objective looks
    up and nobody made.
    """
    own = glossary([format, *noise.values(), *objectives.values(), *model.values()])
    there = set(format.provides)
    lacks: list[tuple[str, str]] = []  # (config path of the asker, field)
    taken: dict[str, str] = {}  # field -> the noise that took it away
    for name, part in noise.items():
        inputs = {"input"} if any(own[field].input for field in there if field in own) else set()
        lacks += [(f"noise.{name}", field) for field in sorted(part.reads - there - inputs)]
        taken |= dict.fromkeys(part.removes & there, name)
        there = (there - part.removes) | part.writes
    for name, objective in objectives.items():
        have = there | derive_targets(objective, there, own)
        lacks += [(f"objective.{name}", field) for field in sorted(objective.facts.needs - have)]
    for path, part in model.items():
        lacks += [(path, field) for field in sorted(getattr(part, "needs", frozenset()) - there)]
    # the reader of the text checks the fields that the text itself may hold
    known = fields_in(known_fields(config_dirs, plugins)) | own if lacks else own
    lacks = [(asker, field) for asker, field in lacks if not held_by_data(field, known)]
    givers = find_providers(config_dirs, plugins) if lacks else {}
    # the labels that are derived from these fields come with them
    helped = {asker for asker, field in lacks if field in givers}
    for asker, field in lacks:
        if field in givers or field in taken or asker not in helped:
            yield report_lack(asker, field, known, givers, taken.get(field))
    made = sorted(heads)
    for name, objective in objectives.items():
        allowed = f"objective.{name} looks up this head; there are {', '.join(made) or 'none'}"
        fix = f"conf/objective/{name}.yaml shows how it is made"
        for head in sorted(objective.facts.heads - set(made)):
            yield ConfigError(f"heads.{head}", ..., allowed, fix=fix)


def find_unmeasured(
    format: Format,
    noise: Mapping[str, Noise],
    objectives: Mapping[str, Objective],
    trained: Mapping[str, Noise],
) -> Iterator[ConfigError]:
    """Every field of an objective that training gives and validation, which has a noise of its
    own, does not.

    Args:
        trained: The noise of training, which may introduce the field.
    """
    there = set(format.provides)
    for part in noise.values():
        there = (there - part.removes) | part.writes
    known = glossary([format, *noise.values(), *objectives.values()])
    told = glossary(trained.values()) | known
    for name, objective in objectives.items():
        lacks = objective.facts.needs - there - derive_targets(objective, there, known)
        for field in sorted(lacks):
            if not held_by_data(field, known):
                needed = f"needs '{field}'{explain_field(field, told)} in validation too"
                allowed = f"{needed}, and eval.noise does not give it"
                yield ConfigError(f"objective.{name}", ..., allowed, fix="eval.noise='${noise}'")


def find_miscounts(
    format: Format,
    objectives: Mapping[str, Objective],
    heads: Mapping[str, Any],
    config_dirs: Sequence[str] = (),
    plugins: Sequence[str] = (),
) -> Iterator[ConfigError]:
    """Every head with more or fewer outputs than the format has numbers for the label that it
    answers.
    """
    for name, objective in objectives.items():
        for label, head in objective.facts.label_heads.items():
            words = format.meanings.get(label)
            outputs = getattr(heads.get(head), "num_classes", None)
            if words is None or outputs in (None, len(words)):
                continue
            meant = "; ".join(f"{number} = {meaning}" for number, meaning in enumerate(words))
            numbers = f"{len(words)}, as many as the format tells apart (labels.{label} {meant})"
            path = f"heads.{head}.num_classes"
            fitting = find_objectives(len(words), config_dirs)
            others = [other for other in fitting if other not in objectives][:SHOWN]
            swaps = (
                ",".join(other if own == name else own for own in objectives) for other in others
            )
            fixes = [f"objective=[{swap}]" for swap in swaps]
            fixes = [f"{path}={len(words)}"] if name in fitting else fixes
            formats = find_formats(label, outputs, config_dirs, plugins)[:SHOWN]
            fix = " or ".join([*fixes, *(f"format={other}" for other in formats)])
            yield ConfigError(path, outputs, f"{numbers}, which objective.{name} asks", fix=fix)


def find_too_long(
    config: Mapping[str, Any], places: Places, plugins: Sequence[str] = ()
) -> Iterator[ConfigError]:
    """Every length of a row, read or written, beyond the positions of the model."""
    texts = texts_in_rows(config, plugins)
    for path, length in row_lengths(config).items():
        most = places.at(path)
        if most is not None and length > most * texts[path]:
            allowed = f"at most {most * texts[path]}, the positions of the model"
            needed = -(-length // texts[path])
            yield ConfigError(path, length, allowed, fix=f"position.max_length={needed}")


def find_too_few_rows(
    config: Mapping[str, Any], objectives: Mapping[str, Objective]
) -> Iterator[ConfigError]:
    """Every stage whose updates have fewer rows than an objective compares. Those of
    `train.batch_tokens` differ in their rows.
    """
    train, key = config.get("train") or {}, "train.batch_size"
    tokens = train.get("batch_tokens")
    for number, stage in enumerate(train.get("stages") or [{}]):
        rows = stage.get(key, None if tokens else train.get("batch_size"))
        where = f"train.stages.{number}.{key}" if key in stage else key
        for name, objective in objectives.items():
            least = objective.facts.least_rows
            if rows is not None and rows < least:
                allowed = f"at least {least}: objective.{name} compares the rows of an update"
                yield ConfigError(where, rows, allowed, fix=f"{where}={least}")


def derive_targets(objective: Objective, there: Iterable[str], known: Fields) -> set[str]:
    """The targets that `objective.labels` makes out of a row by itself, found by showing it one
    row of zeros.
    """
    held = {field for field in objective.facts.needs if held_by_data(field, known)}
    fields = {*there, *held}
    absent = objective.facts.needs - fields
    if _names(absent, "tracks") or _names(absent, "values") or sequences(absent, known):
        return set()  # it would not find what it reads: reported as lacking
    zeros = np.zeros((1, 4), np.int64)
    tracks = {name: zeros.copy() for name in _names(fields, "tracks") if name != "real"}
    targets = {name: np.full_like(zeros, IGNORE) for name in _names(fields, "targets")}
    spans = {name: np.zeros((0, 4), np.int64) for name in _names(held, "spans")}
    seq = Seq(zeros, np.full(1, zeros.shape[1]), tracks)
    seqs = dict.fromkeys(sequences(fields, known), seq)
    values = {name: np.zeros(1, np.int64) for name in _names(fields, "values")}
    rows = Rows(np.zeros(1, np.int64), seqs, targets, spans=spans, values=values)
    return {f"targets.{name}" for name in objective.labels(rows)}


def _names(fields: Iterable[str], group: str) -> list[str]:
    """`segment` of `tracks.segment`, for the fields of a group."""
    return [field.partition(".")[2] for field in fields if field.startswith(f"{group}.")]
