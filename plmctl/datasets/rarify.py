"""`plmctl data rarify`: from a labelled set, one whose labels depend on rare words, in two calls.

    out/substitutes.tsv   frequent words and the rare ones that may stand for them
    out/baseline/train    the training part, with some of these words hidden; a baseline learns it
    out/tested/train      the same, with some of them replaced; what is compared learns it
    out/candidates        the other examples

and, with the baseline as `checkpoint`,

    out/tested/dev        the rarified examples; by-kind/<kind>: those of one kind of substitutes
    out/rarified.jsonl    what was replaced in each
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from plmctl.artifacts.loading import load
from plmctl.artifacts.model_facts import reading
from plmctl.config.build import build
from plmctl.config.writing import Rarify
from plmctl.core.errors import ConfigError, DataError
from plmctl.core.spelling import spell_setting
from plmctl.core.terminal import tell
from plmctl.distill.rarification import Rarified, Texts, rarify, replace_share
from plmctl.knowledge.substitutes import (
    MISSPELLING,
    Substitute,
    Substitutes,
    find_synonyms,
    misspell,
    read_substitutes,
    write_substitutes,
)
from plmctl.knowledge.wordnet import WordNet
from plmctl.knowledge.words import WordCounts
from plmctl.storage.atomic import open_folder, write_text
from plmctl.storage.gate import admit
from plmctl.storage.resumable import new_folder
from plmctl.tasks import inference
from plmctl.tasks.readers import files
from plmctl.tasks.record import Example
from plmctl.tasks.sheet import Sheet
from plmctl.tasks.task import as_task
from plmctl.training.device.precision import choose
from plmctl.training.processes.world import device_of
from plmctl.use.predict import predict

SUBSTITUTES, CANDIDATES, RECORD = "substitutes.tsv", "candidates", "rarified.jsonl"


def rarify_files(spec: Rarify) -> int:
    """Write the parts of the set, or with a baseline the rarified examples."""
    return _split(spec) if spec.checkpoint is None else _select(spec, Path(spec.out))


def _split(spec: Rarify) -> int:
    out = new_folder(spec.out)
    if spec.task is None:
        fix = "task=classification task.path=<folder>"
        raise ConfigError("task", ..., "whose training set is it?", fix=fix)
    task = build(spec.task, {"pooling": "first"}, spec.plugins, path="task")
    sheet = _open_sheet(task)
    known = _find_substitutes(spec)
    rows = [row for row in sheet.rows if sheet.texts(row)]
    order = np.random.default_rng(spec.seed).permutation(len(rows))
    cut = round(spec.candidates * len(rows))
    candidates, training = sorted(order[:cut].tolist()), sorted(order[cut:].tolist())
    if not candidates or not training:
        allowed = f"a share of the {len(rows)} examples that leaves some on both sides"
        raise ConfigError("candidates", spec.candidates, allowed)
    head = "" if sheet.header is None else sheet.line(sheet.header)
    with open_folder(out) as folder:
        for name, hidden, share in (
            ("baseline", spec.hidden, spec.hidden_share),
            ("tested", None, spec.replaced_share),
        ):
            lines = [
                sheet.line(
                    rows[n],
                    replace_share(
                        sheet.texts(rows[n]),
                        known,
                        share,
                        np.random.default_rng([spec.seed, n]),
                        hidden,
                    ),
                )
                for n in training
            ]
            admit(folder / name).mkdir(parents=True)
            write_text(folder / name / f"train{sheet.kind}", head + "".join(lines))
        write_text(
            folder / f"{CANDIDATES}{sheet.kind}",
            head + "".join(sheet.line(rows[n]) for n in candidates),
        )
        write_substitutes(folder / SUBSTITUTES, known)
    if spec.provenance.json:
        counts = {"training": len(training), "candidates": len(candidates)}
        tell(json.dumps({"out": spec.out, **counts, "words with substitutes": len(known)}))
        return 0
    tell(
        f"{spec.out}: {len(training):,} examples to train on, {len(candidates):,} candidates;"
        f" {len(known):,} words have substitutes"
    )
    files = spell_setting("task.path", out / "baseline")
    tell(f"next: plmctl finetune {files} task.dev_share=0.1 ...")
    tell(f"then: plmctl data rarify checkpoint=<that run> {spell_setting('out', spec.out)}")
    return 0


def _select(spec: Rarify, out: Path) -> int:
    found = sorted(out.glob(f"{CANDIDATES}.*"))
    if not found or not (out / SUBSTITUTES).is_file():
        fix = "plmctl data rarify task=<name> task.path=<folder> out=<folder>, without checkpoint"
        raise DataError("no candidates here", file=out, fix=fix)
    assert spec.checkpoint is not None
    loaded = load(spec.checkpoint, plugins=spec.plugins)
    node, precision = loaded.own_task(), choose("fp32", device_of(spec.device, "device"))
    if not node:
        raise ConfigError("checkpoint", spec.checkpoint, "a model that was fine-tuned on the task")
    loaded.model.to(precision.device)
    given = {"vocab": loaded.vocab, **reading(loaded.config, spec.plugins)}
    task = build({**node, "path": str(found[0])}, given, spec.plugins, path="task")
    task.dev_share = 0
    sheet, examples = _open_sheet(task), task.read("train")
    rows = [row for row in sheet.rows if sheet.texts(row)]
    if len(rows) != len(examples):
        raise DataError("some candidates cannot be read", file=found[0])

    def ask(some: list[Example], key: str) -> list[str]:
        split = inference.encode_split(task, "candidates", some, loaded.tokenizer)
        predictions, _ = predict(
            loaded.model, task, split, precision=precision, batch_size=spec.batch_size
        )
        return [str(prediction[key]) for prediction in predictions]

    def guess(texts: Sequence[Texts]) -> list[str]:
        return ask([Example(str(n), dict(own)) for n, own in enumerate(texts)], "guess")

    known = read_substitutes(out / SUBSTITUTES, {})
    made = rarify(
        [example.fields for example in examples],
        ask(examples, "gold"),
        guess,
        known,
        hidden=spec.hidden,
        most=spec.most_words,
        seed=spec.seed,
    )
    _write_rarified(out, sheet, rows, made)
    share = len(made) / len(rows)
    if spec.provenance.json:
        counts = {"rarified": len(made), "candidates": len(rows)}
        tell(json.dumps({"out": spec.out, **counts, "share": round(share, 6)}))
        return 0
    tell(f"{out / 'tested'}: {len(made):,} rarified examples, {share:.1%} of the candidates")
    if made:
        files = spell_setting("task.path", out / "tested")
        tell(f"next: plmctl finetune {files} checkpoint=<model> ...")
    return 0


def _write_rarified(out: Path, sheet: Sheet, rows: Sequence[Any], made: Sequence[Rarified]) -> None:
    head = "" if sheet.header is None else sheet.line(sheet.header)
    lines = [sheet.line(rows[one.number], one.texts) for one in made]
    write_text(out / "tested" / f"dev{sheet.kind}", head + "".join(lines))
    kinds: dict[str, list[str]] = defaultdict(list)
    records = []
    for one, line in zip(made, lines, strict=True):
        own = {substitute.kind for substitute in one.substitutes.values()}
        kinds["-".join(sorted(own))].append(line)
        words = {word: substitute.word for word, substitute in one.substitutes.items()}
        records.append(json.dumps({"number": one.number, "words": words, "kinds": sorted(own)}))
    for kind, some in kinds.items():
        admit(out / "by-kind").mkdir(exist_ok=True)
        write_text(out / "by-kind" / f"{kind}{sheet.kind}", head + "".join(some))
    write_text(out / RECORD, "".join(f"{record}\n" for record in records))


def _find_substitutes(spec: Rarify) -> Substitutes:
    """Those of a file, else those of WordNet; and misspellings of the same words."""
    table = None if spec.counts is None else WordCounts.read(spec.counts)
    counts: Mapping[str, int] = (
        {} if table is None else dict(zip(table.spellings, table.counts, strict=True))
    )
    known: dict[str, tuple[Substitute, ...]]
    if spec.substitutes is not None:
        known = read_substitutes(files.existing(spec.substitutes), counts)
    elif not counts:
        fix = "counts=<folder of plmctl data contexts least=10>, or substitutes=<file>"
        raise ConfigError("counts", None, "says which words are rare", fix=fix)
    else:
        pairs = WordNet.open(spec.wordnet).pairs("synonym")
        synonyms = find_synonyms(pairs, counts, least=spec.least, below=spec.below)
        known = {word: tuple(own) for word, own in synonyms.items()}
    draws = np.random.default_rng(spec.seed)
    for word in known if spec.misspellings else ():
        slips = misspell(word, spec.misspellings, counts.keys(), draws)
        known[word] += tuple(Substitute(slip, MISSPELLING, 0) for slip in slips)
    if not known:
        raise DataError("no word has a substitute", fix="counts of a larger text, or substitutes=")
    return known


def _open_sheet(task: Any) -> Sheet:
    known = as_task(task)
    sheet = Sheet.of(known, "train") if known and known.answer == "class" else None
    if sheet is None:
        allowed = "classes of texts in columns of a table: classification, sst2, mnli"
        raise ConfigError("task", getattr(task, "name", None), allowed)
    return sheet
