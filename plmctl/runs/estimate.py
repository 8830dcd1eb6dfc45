"""`--dry-run` of pretrain and finetune: what a run would cost, from its config and a vocabulary
alone; nothing is written.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from rich.table import Table

from plmctl.artifacts.activations import count_activations
from plmctl.artifacts.assemble import without_weights
from plmctl.artifacts.cost import Cost, cost
from plmctl.artifacts.exportable import explain_classless
from plmctl.artifacts.loading import open_source
from plmctl.artifacts.model_facts import pattern_of
from plmctl.config.build import build
from plmctl.config.groups import Train
from plmctl.config.model_settings import model_settings
from plmctl.config.schema import Finetune, Pretrain
from plmctl.config.stage_settings import count_stages, share_of, stage_config, stage_pattern
from plmctl.core.machine import find_memory
from plmctl.core.progress import clock
from plmctl.core.terminal import screen, tell
from plmctl.data.loader import row_lengths
from plmctl.data.shards import is_tokens
from plmctl.data.survey import BEGINNING
from plmctl.models.base import Model
from plmctl.models.remarks import remark_on_model
from plmctl.nn.narrow import narrow_streams
from plmctl.nn.stack import checkpoint_stacks
from plmctl.nn.tables import Padded, count, real
from plmctl.noise.base import Chain
from plmctl.runs.check import Outline, count_vocabulary, outline_pretraining, vocabulary_size
from plmctl.runs.contract.stand_in import TINY
from plmctl.runs.device_speed import Speed
from plmctl.runs.memory import count_optimizer, divide, divide_cells
from plmctl.runs.overview import remark_on_rows
from plmctl.runs.side_tasks import count_updates
from plmctl.runs.spacing import count_validations, space_scorings
from plmctl.runs.stage_costs import Spent, StageCost, spend
from plmctl.runs.task_fit import count_outputs
from plmctl.runs.word_ratio import (
    WordRatio,
    count_held_out,
    count_text,
    describe_passes,
    find_word_ratio,
)
from plmctl.tasks import batches, inference
from plmctl.tasks.task import Task
from plmctl.text.tokenizer import Tokenizer
from plmctl.training.device.precision import choose
from plmctl.training.processes.parallel import count_shares, count_teams
from plmctl.training.processes.world import device_of, environment
from plmctl.use.predict import ScoreTable

FEWER = "the text yields no more"
FEW = 1_000  # examples whose rows are made
SEVERAL = 8  # processes that could divide the model of a run with one


def show(spec: Pretrain, outline: Outline) -> dict[str, float]:
    """Print parameters by part, multiply-adds by module, FLOPs, memory, tokens, updates and time
    (`--json`: as one object). Returns the costs, for the sum of a sweep.
    """
    if (size := count_vocabulary(spec)) < (most := vocabulary_size(spec)):
        outline = outline_pretraining(spec, vocab_size=size)
        found = {"tokens of the vocabulary": f"{size:,} instead of {most:,}: {FEWER}"}
    else:
        found = {}
    counted = count_text(spec)
    report = estimate(spec, outline, checks=_foresee_validation(spec, counted[0]))
    report["run"] = found | report["run"]
    tokens = report["run"]["tokens"]
    if isinstance(tokens, int) and (passes := describe_passes(spec, tokens, counted)):
        report["run"]["passes over the text"] = passes
    settings, tensors = model_settings(spec), outline.model.state_dict()
    if why := explain_classless(settings, tensors):
        report["run"]["transformers"] = f"{why}: convert --to hf cannot export it"
    if decision := spec.provenance.decision:
        report["minutes"] = decision.describe()
    if spec.provenance.json:
        tell(json.dumps(report, indent=1))
    else:
        _print_tables(report, spec.train)
    return report["costs"]


def show_task(spec: Finetune, outline: Outline, task: Task) -> dict[str, float]:
    """The same of a fine-tuning, with its examples, labels and updates."""
    as_json, model = spec.provenance.json, outline.model
    examples = len(inference.take_share(task.read("train"), spec.train.share))
    updates = count_updates(spec, examples, max(task.lengths.sides))
    bound = "least" if spec.train.batch_tokens is None else "most"
    parts = {"backbone": model.backbone, **{f"heads.{n}": head for n, head in model.heads.items()}}
    labels = {"labels": outputs} if (outputs := count_outputs(task)) else {}
    numbers = {"examples": examples, **labels, f"updates an epoch, at {bound}": updates}
    numbers |= {f"parameters of {name}": count(part) for name, part in parts.items()}
    checks, fill = _foresee_scoring(task, updates), _measure_fill(spec, task)
    report = estimate_task(spec, outline, task, updates=updates, checks=checks, fill=fill)
    remarks = remark_on_model(
        model.backbone,
        pattern_of(model_settings(spec), spec.plugins),
        task.lengths.longest,
        trained=spec.checkpoint is not None,
    )
    extra = remarks | (report if as_json else {})
    ScoreTable(f"finetune task={task.name}", {"train": numbers}, extra).show(as_json=as_json)
    if not as_json:
        _print_tables(report, spec.train)
    return report["costs"]


@dataclass(frozen=True)
class Checks:
    """The validations of a run, each of so many rows.

    Args:
        rows: The rows of one, at most; None: not known.
        length: The tokens of a row.
        epoch: The updates of an epoch of a fine-tuning, which scores dev once more at its end;
            None: a pretraining.
    """

    rows: int | None = None
    length: int = 0
    epoch: int | None = None

    def count(self, train: Train, steps: int) -> int:
        """All validations and scorings of a run of so many updates."""
        if self.epoch is None:
            return count_validations(train, steps)
        every = space_scorings(self.epoch, steps, stable=bool(train.least_steps))
        return count_validations(train, steps, every) + 1

    @property
    def left_out(self) -> str:
        """The work of the run that its time does not count."""
        unknown = ", validation" if self.rows is None else ""
        simple = "" if self.epoch is None else ", models without pretraining"
        return f"start, tokenizing{unknown}{simple}"


def _foresee_validation(spec: Pretrain, words: int) -> Checks:
    """The validations of a pretraining: held-out rows of its text where its words are known."""
    known = count_held_out(spec, words)
    length = sum(count_row(spec)[:2])
    bounds = [spec.eval.rows, None if known is None else -(-known // length)]
    return Checks(min((rows for rows in bounds if rows is not None), default=None), length)


def _foresee_scoring(task: Task, updates: int) -> Checks:
    """The validations of a fine-tuning, and its last scores of dev."""
    rows = sum(len(task.read(name)) for name in task.splits.devs)
    return Checks(rows, sum(task.lengths.sides), updates)


def _measure_fill(spec: Finetune, task: Task) -> float:
    """The share of their longest length that rows have with their padding, of a few examples; 1
    where the tokenizer is not there yet, or the length is that of an update.
    """
    path: Any = (spec.tokenizer or {}).get("path")
    if spec.train.batch_tokens or task.requires.new_tokens or not (spec.checkpoint or path):
        return 1.0
    source = spec.checkpoint and open_source(spec.checkpoint, plugins=spec.plugins)
    tokenizer = source.tokenizer if source else Tokenizer.load(path)
    examples = inference.take_some(task.read("train"), FEW)
    rows = inference.encode_piece(task, "train", examples, tokenizer).rows
    length, size = batches.BatchUnits.of(rows).length, spec.train.batch_size
    planned = batches.plan(length, batch_size=size, seed=spec.seed, epoch=0)
    padded = sum(len(batch) * length[batch].max() for batch in planned)
    return min(1.0, float(padded) / (len(length) * sum(task.lengths.sides)))


def estimate(
    spec: Pretrain,
    outline: Outline | None = None,
    *,
    traced: bool = True,
    checks: Checks | None = None,
) -> dict[str, dict[str, Any]]:
    """The numbers that `show` prints.

    Args:
        outline: The outline, if it is built already.
        traced: Whether a pass is traced for the bytes that it keeps; else a formula counts them.
        checks: The validations that the time counts; None: none.
    """
    outline = outline or outline_pretraining(spec)
    _prepare(spec.train, outline)
    numbers = range(count_stages(spec))
    stages = [_measure_stage(spec, outline, number, traced=traced) for number in numbers]
    remarks = remark_on_rows(spec, outline.model)
    first = _vocabulary(outline.model) | remarks
    ratio = find_word_ratio(spec) if spec.train.get("words") else None
    return _report(spec, outline, stages, spec.train, first=first, ratio=ratio, checks=checks)


def _prepare(train: Train, outline: Outline) -> None:
    """Let the outline keep what the run keeps."""
    if train.checkpoint_activations:
        checkpoint_stacks(*outline)
    if train.stream == "bf16":
        narrow_streams(*outline)


def count_row(spec: Pretrain) -> tuple[int, int, Chain]:
    """(tokens of a row that are read, tokens that are written, the noise that divides it so)."""
    with without_weights():
        format = build(spec.format, {"vocab": TINY}, spec.plugins, path="format")
        noises = build(spec.noise or {}, {"vocab": TINY}, spec.plugins, path="noise")
    noise = Chain(list(noises.values()))
    return (*row_lengths(format, noise), noise)


def _measure_stage(spec: Pretrain, outline: Outline, number: int, *, traced: bool) -> StageCost:
    """The cost of a stage, by its rows, its noise and its pattern."""
    staged = stage_config(spec, number)
    length, target, noise = count_row(staged)
    nodes = (staged.noise or {}).values()
    rates = [node["rate"] for node in nodes if node.get("rate") is not None]
    asked = rates[0] if rates else 1.0
    if target:
        asked = noise.capacity(length).get("seq2seq", target) / (length + target)
    with stage_pattern(spec, outline.model, number):
        costs = _measure(outline, (length, target), asked)
        stage = StageCost.of(staged.train, costs, (length, target), share_of(spec, number))
        if not traced:
            return stage
        return _count_kept(outline, stage, (length, target), asked, staged.train)


def estimate_task(
    spec: Finetune,
    outline: Outline,
    task: Task,
    *,
    updates: int,
    traced: bool = True,
    checks: Checks | None = None,
    fill: float = 1.0,
) -> dict[str, dict[str, Any]]:
    """The same of a fine-tuning of so many updates an epoch, whose rows are at most as long as
    the task allows.

    Args:
        fill: The share of that length which rows have with their padding, for the time.
    """
    tensors = real(outline.model, dict(outline.model.named_parameters())).values()
    trained = sum(tensor.numel() for tensor in tensors if tensor.requires_grad)
    train, stage = _measure_task(spec, outline, task, updates, traced=traced)
    first = {"parameters that are trained": trained}
    how: Any = {"trained": trained, "checks": checks, "fill": fill}
    return _report(spec, outline, [stage], train, first=first, **how)


def count_work(spec: Finetune, task: Task, outline: Outline) -> tuple[float, int]:
    """(training FLOPs, updates) of a whole fine-tuning, at most; 0 where no length is given."""
    examples = len(inference.take_share(task.read("train"), spec.train.share))
    updates = count_updates(spec, examples, max(task.lengths.sides))
    train, stage = _measure_task(spec, outline, task, updates, traced=False)
    spent = spend([stage], train)
    rate = spent.flops_per_token + spent.recomputed_flops_per_token
    return rate * (spent.tokens or 0), spent.updates or 0


def _measure_task(
    spec: Finetune, outline: Outline, task: Task, updates: int, *, traced: bool
) -> tuple[Train, StageCost]:
    """The length of a fine-tuning of so many updates an epoch, and what an update costs."""
    train, lengths = spec.train, task.lengths.sides
    if train.epochs and not train.steps:
        train = replace(train, steps=max(train.least_steps, math.ceil(train.epochs * updates)))
    _prepare(train, outline)
    asked = task.lengths.written / sum(lengths)
    stage = StageCost.of(train, _measure(outline, lengths, asked), lengths)
    kept = _count_kept(outline, stage, lengths, asked, train) if traced else stage
    return train, kept


def _count_kept(
    outline: Outline, stage: StageCost, lengths: tuple[int, int], asked: float, train: Train
) -> StageCost:
    """The stage with the bytes that one of its passes keeps."""
    kept = count_activations(
        *outline,
        rows=stage.rows,
        lengths=lengths,
        predicted=dict.fromkeys(outline.model.heads, asked),
        precision=choose(train.precision, device_of(train.device)).name,
    )
    return replace(stage, activations=kept)


def _measure(outline: Outline, lengths: tuple[int, int], asked: float) -> Cost:
    """The cost of a token.

    Args:
        lengths: Tokens of a row that are read, and tokens that are written.
        asked: The share of the positions that language-model heads read.
    """
    model, objective = outline
    helped = {name for _, names in objective.facts.helpers for name in names}
    predicted = dict.fromkeys([*model.heads, *helped], asked)
    length, target = lengths
    return cost(
        model, length=length, target_length=target, predicted=predicted, objective=objective
    )


def _count_shares(train: Train) -> int:
    """The shares into which the processes of a run divide weights and all that belongs to them."""
    processes = max(environment()[2], train.processes)
    teams = count_teams(processes, train.tensor_parallel)
    return count_shares(train.parallel, teams, train.shard_size)


def _divide(
    memory: dict[str, float], outline: Outline, train: Train
) -> tuple[dict[str, float], dict[str, float], int]:
    """(the memory of a process of the run, that of one of several which divide the model, how
    many these are).
    """
    if (team := train.tensor_parallel) > 1:
        memory = divide_cells(memory, outline, team)
    shares, teams = _count_shares(train), count_teams(train.processes, team)
    several = shares if shares > 1 else teams if teams > 1 else SEVERAL
    divided = divide(memory, outline, several, team)
    if team > 1:  # torch's engine copies weights for a pass, too
        memory = divide(memory, outline, 1, team)
    return divided if shares > 1 else memory, divided, several * team


def _report(
    spec: Pretrain | Finetune,
    outline: Outline,
    stages: Sequence[StageCost],
    train: Train,
    *,
    first: Mapping[str, Any],
    trained: int | None = None,
    ratio: WordRatio | None = None,
    checks: Checks | None = None,
    fill: float = 1.0,
) -> dict[str, dict[str, Any]]:
    """The numbers of a run.

    Args:
        train: its length.
        first: Further facts of the run.
        trained: The number of weights that are trained; None: all.
        ratio: Tokens a word; None: no length in words.
        checks: The validations that the time counts; None: none.
        fill: The share of their longest length which rows have.
    """
    precision = choose(train.precision, device_of(train.device))
    size = 4 if precision.name == "fp32" else 2
    memories = [stage.memory(size) for stage in stages]
    memory = max(memories, key=lambda memory: sum(memory.values()))
    if trained is not None:
        memory |= {"gradients": 4 * trained, "optimizer": 8 * trained}
    if (state := count_optimizer(spec, outline)) is not None:
        memory["optimizer"] = state
    memory, divided, several = _divide(memory, outline, train)
    decided = {"precision": spec.train.precision, "run.dir": spec.run.dir}
    spent = spend(stages, train, ratio.tokens if ratio else 1.0)
    speed = Speed.find(train.device, train.precision, outline.model.backbone.width)
    costs = _sum_up(train, spent, speed, checks or Checks(), fill)
    how: Any = {"unknown": _explain_unknown(spec), "checks": checks or Checks()}
    if ratio:
        first = {**first, "words": f"{train.get('words'):,}, at {ratio.describe()}"}
    report: dict[str, dict[str, Any]] = {
        "parameters": stages[0].costs.parameters,
        "macs_per_token": {name: round(value) for name, value in spent.macs_per_token.items()},
        "memory": {name: round(value) for name, value in memory.items()},
        "divided": {
            "processes": several,
            **{name: round(value) for name, value in divided.items()},
        },
        "run": {
            **first,
            **{name: value for name, value in decided.items() if value not in (None, "auto")},
            **_run(train, stages, spent, speed, costs, **how),
        },
        "costs": {**costs, "bytes": round(sum(memory.values()))},
    }
    if len(stages) > 1:
        parts = zip(stages, spent.shares, strict=True)
        lines = [stage.describe(share, spent.tokens) for stage, share in parts]
        report["stages"] = {f"stage {number}": line for number, line in enumerate(lines, start=1)}
    return report


def _vocabulary(model: Model) -> dict[str, str]:
    """The share of the tables of tokens in all parameters; published models have larger ones."""
    table = model.backbone.token_embedding
    parts = (model if table is None else table).modules()
    clusters = [part for part in parts if isinstance(part, Padded)]
    tokens = sum(part.vocab_size for part in clusters)
    weights = [next(part.parameters(recurse=False)) for part in clusters]
    if not tokens:
        return {}
    rows = sum(map(len, weights))
    size = sum(weight.numel() for weight in weights) * tokens // rows
    said = f"{size:,} parameters for {tokens:,} tokens, {size / count(model):.0%} of the model"
    spare = f"; tables of {rows:,} rows, spare ones are not counted above" if rows > tokens else ""
    return {"vocabulary": f"{said}{spare}"}


def _explain_unknown(spec: Pretrain | Finetune) -> str:
    """Why the number of updates is not known."""
    if spec.train.minutes:
        return "as many as fit"
    if is_tokens(spec.data.path):
        return "known once the tokens are cut into rows"
    return (
        f"known once the corpus is tokenized; now at most {BEGINNING:,} characters of it are read"
    )


def _sum_up(
    train: Train, spent: Spent, speed: Speed, checks: Checks, fill: float
) -> dict[str, float]:
    """{seconds, flops: those of the whole run on a processor alone; busy_seconds: as busy as now},
    as far as they are known.
    """
    if train.minutes:
        return {"seconds": 60 * train.minutes, "busy_seconds": 60 * train.minutes}
    if not spent.tokens:
        return {}
    updates = spent.updates or 0
    # forward only
    checked = checks.count(train, updates) * (checks.rows or 0) * checks.length / 3
    again = spent.recomputed_flops_per_token * spent.tokens
    work = spent.flops_per_token * (spent.tokens + checked) + again
    seconds = speed.count_seconds(fill * work, updates, train.processes)
    flops = fill * spent.flops_per_token * spent.tokens
    return {"seconds": seconds, "flops": flops, "busy_seconds": seconds / speed.own}


def _run(
    train: Train,
    stages: Sequence[StageCost],
    spent: Spent,
    speed: Speed,
    costs: Mapping[str, float],
    *,
    unknown: str,
    checks: Checks,
) -> dict[str, Any]:
    """The numbers of all updates together."""
    numbers: dict[str, Any] = {
        "training FLOPs per token": round(spent.flops_per_token),
        "tokens per update, at most": max(stage.tokens for stage in stages),
        "updates": spent.updates or unknown,
        "tokens": spent.tokens or unknown,
    }
    if train.minutes:
        numbers["time"] = clock(costs["seconds"])
    elif spent.tokens:
        numbers["training FLOPs"] = f"{costs['flops']:.3g}"
        if checks.rows:
            times = checks.count(train, spent.updates or 0)
            numbers["validations"] = f"{times:,}, of at most about {checks.rows:,} rows each"
        time = f"time, estimated at {speed.describe()}"
        numbers[time] = speed.spell_time(costs["seconds"])
        numbers["not in this time"] = checks.left_out
    return numbers


def _is_divided(train: Train, memory: int) -> bool:
    """Whether the user asks for several processes, or one of them takes over half of the memory
    that there is.
    """
    room = find_memory()
    if torch.cuda.is_available():
        room = min(room, torch.cuda.get_device_properties(0).total_memory)
    asked = (train.processes, train.parallel, train.tensor_parallel) != (1, "replicated", 1)
    return asked or memory > room / 2


def _print_tables(report: Mapping[str, dict[str, Any]], train: Train) -> None:
    console = screen()
    console.print(_table("Parameters", report["parameters"], total=True))
    console.print(_table("Multiply-adds per token, forward", report["macs_per_token"], total=True))
    console.print(_table("Memory of one process, bytes (estimated)", report["memory"], total=True))
    if _is_divided(train, sum(report["memory"].values())):
        several, *divided = report["divided"].items()
        title = f"Memory of each of {several[1]} processes that divide the model (sharded), bytes"
        console.print(_table(title, dict(divided), total=True))
    console.print(_table("The run", report["run"]))
    if "stages" in report:
        console.print(_table("Its stages", report["stages"]))
    if "minutes" in report:
        console.print(_table("Decided by train.minutes", report["minutes"]))


def _table(title: str, rows: dict[str, Any], *, total: bool = False) -> Table:
    table = Table(title=title, title_justify="left", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for name, value in rows.items():
        table.add_row(name, f"{value:,}" if isinstance(value, int) else str(value))
    if total:
        table.add_section()
        table.add_row("total", f"{sum(rows.values()):,}")
    return table
