"""Values of other trainers in our words: `fp16=false` is `train.precision=fp32`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

Look = Callable[[str], Any]
"""A setting of the command line, by our name or another one; else as it is composed; else None."""
Say = Callable[[str, str, Look], str]
"""Our setting, the typed value, the other settings -> our words; "": none is needed."""

UNSAID = "..."  # the value of an option without one
NO = ("false", "no", "none", "null", "off", "0", "[]", "")


def say(name: str, form: str, typed: str, look: Look) -> str:
    """Spell `name=typed` of another trainer in our words; "" where none is needed.

    Args:
        name: The last word of their setting.
        form: Our setting, `optim.lr`, or our words, with {} for the value.
    """
    special = _BY_NAME.get(name)
    if special:
        return special(form, typed, look)
    # Python's None is the default of the other trainer
    return "" if typed.lower() in ("none", "null") else _fill(form, typed)


def say_instead(name: str, form: str, typed: str, look: Look) -> str:
    """As `say`, for a name that is no setting here; "" also for a value that says no."""
    special = _BY_NAME.get(name)
    if special:
        return special(form, typed, look)
    return "" if _read(typed).lower() in NO else form.replace("{}", typed)


def _fill(form: str, typed: str) -> str:
    return form.replace("{}", typed) if "{}" in form else f"{form}={typed}"


def _read(typed: str) -> str:
    """A value without quotes."""
    return typed.strip("'\"")


def _list(typed: str) -> list[str]:
    """The items of a list or of a tuple, as typed."""
    items = _read(typed).strip("[]()").split(",")
    return [_read(item.strip()) for item in items if item.strip()]


def _number(typed: Any) -> float | None:
    try:
        return float(_read(str(typed)))
    except ValueError:
        return None


def _cases(**ours: str) -> Say:
    """Values by name, `true` also for an option without one; "" for one that says nothing; others
    as typed.
    """

    def choose(form: str, typed: str, _: Look) -> str:
        stated = "true" if typed == UNSAID and "true" in ours else _read(typed).lower()
        value = ours.get(stated, typed)
        return _fill(form, value) if value else ""

    return choose


def _words(**ours: str) -> Say:
    """Whole words by the name of a value; nothing for others that say no, else our usual words."""

    def choose(form: str, typed: str, _: Look) -> str:
        stated = "true" if typed == UNSAID else _read(typed).lower()
        return ours.get(stated, "" if stated in NO else form.replace("{}", typed))

    return choose


def _bracket(form: str, typed: str, _: Look) -> str:
    return _fill(form, f"[{','.join(_list(typed))}]")


def _share_or_steps(form: str, typed: str, _: Look) -> str:
    """Warm-up, of which transformers 5 reads a number below 1 as a share."""
    number = _number(typed)
    share = number is not None and 0 < number < 1
    return f"{'schedule.warmup_share' if share else form}={typed}"


def _updates(form: str, typed: str, look: Look) -> str:
    """A number of updates, which may be a share of all of them."""
    number = _number(typed)
    if number is None or not 0 < number < 1:
        return _cases(none="", null="")(form, typed, look)
    total = _number(look("train.steps") or look("max_steps"))
    return f"{form}={round(number * total) if total else f'<updates, {typed} of all>'}"


def _all_but_negative(form: str, typed: str, look: Look) -> str:
    """A length, of which -1 means that another one counts."""
    number = _number(typed)
    unused = number is not None and number < 0
    return "" if unused else _cases(none="", null="")(form, typed, look)


def _batch(form: str, typed: str, look: Look) -> str:
    """Rows of an update, of rows of one pass of one process."""
    rows, passes = _number(typed), _number(look("gradient_accumulation_steps")) or 1
    whole = typed if rows is None else _count_rows(rows * passes, look)
    return f"{form}={whole}, rows of all processes"


def _count_rows(rows: float, look: Look) -> int:
    """Rows of all processes, of those of one."""
    return round(rows * (_number(look("train.processes")) or 1))


def _accumulate(form: str, typed: str, look: Look) -> str:
    """Rows of one pass, of the number of passes of an update."""
    passes = _number(typed.strip("[]"))
    rows = _number(look("per_device_train_batch_size"))
    if passes == 1:
        return ""
    if not passes or passes < 1:
        return f"{form}=<rows of a pass>"
    if rows:
        return f"train.batch_size={_count_rows(rows * passes, look)} {form}={round(rows)}"
    rows = _number(look("train.batch_size"))
    return f"{form}={-int(-rows // passes)}" if rows else f"{form}=<rows of a pass>"


def _devices(form: str, typed: str, _: Look) -> str:
    """A number of devices, which may be a list of them."""
    number = len(_list(typed)) if typed.startswith("[") else _number(typed)
    if number == 0:
        return "train.device=cpu"
    return f"{form}={int(number) if number and number > 0 else '<devices>'}"


def _strategy(setting: str) -> Say:
    """When something is done: `no`, `epoch`, `steps` or `best`, with our setting in updates, and
    `setting`, their number of them.
    """

    def choose(form: str, typed: str, look: Look) -> str:
        stated = _read(typed).lower()
        if stated in NO:
            return f"{form}=0"
        if stated == "epoch" and form != "train.log_every" and look("task") is not None:
            return f"{form}=null"
        if stated == "best":
            return "train.keep_best=true"
        updates = look(setting)
        if stated == "epoch" or updates is None:
            return f"{form}=<updates{' of an epoch' * (stated == 'epoch')}>"
        return _updates(form, str(updates), look)

    return choose


def _metric(form: str, typed: str, _: Look) -> str:
    return f"{form}={re.sub('^(eval|valid|val|dev)_', '', _read(typed))}"


def _samples(what: str) -> Say:
    """A share of the rows, of a number of `what`."""

    def choose(form: str, typed: str, look: Look) -> str:
        number = _number(typed)
        if number is None:
            return _cases(none="", null="")(form, typed, look)
        return f"{form}={typed if 0 < number < 1 else f'<share of {typed} {what}>'}"

    return choose


def _minutes(form: str, typed: str, _: Look) -> str:
    """Minutes, of days, hours, minutes and seconds between colons."""
    parts = [_number(part) for part in _read(typed).split(":")]
    if len(parts) != 4 or None in parts:
        return f"{form}=<minutes>"
    days, hours, minutes, seconds = (part or 0 for part in parts)
    return f"{form}={(days * 24 + hours) * 60 + minutes + seconds / 60:g}"


def _hours(form: str, typed: str, _: Look) -> str:
    hours = _number(typed)
    return "" if not hours or hours < 0 else f"{form}={60 * hours:g}"


def _names(form: str, typed: str, _: Look) -> str:
    """Names of labels: a list, or a mapping from their numbers, either way round."""
    pairs = [
        [_read(side.strip()) for side in item.split(":")] for item in typed.strip("{}").split(",")
    ]
    if any(len(pair) != 2 for pair in pairs):
        return f"{form}={typed}"
    named = [(one, other) if one.isdigit() else (other, one) for one, other in pairs]
    return f"{form}={{{','.join(f'{number}:{name}' for number, name in sorted(named))}}}"


def _trackers(form: str, typed: str, _: Look) -> str:
    """Services that receive the numbers; TensorBoard's files are written anyway."""
    own = {"all": "wandb,mlflow,trackio", "true": "wandb", UNSAID: "wandb"}
    named = own.get(_read(typed).lower(), ",".join(_list(typed))).split(",")
    named = [name for name in named if name.lower() not in (*NO, "tensorboard")]
    return f"{form}=[{','.join(named)}]"


def _files(form: str, typed: str, look: Look) -> str:
    """The files of a task in one list, which other trainers name one by one; a text elsewhere."""
    if form != "task.path" or look("split") is not None:
        return f"{form}={typed}"
    trained = [look(name) for name in ("task.path", *_TRAINING)]
    stated = [name for name in trained if isinstance(name, str) and "?" not in name]
    others = [name for name in map(look, _HELD_OUT) if isinstance(name, str)]
    files = [*_list(stated[0] if stated else "<the training file>"), *map(_read, others)]
    return f"{form}=[{','.join(files)}]" if others else f"{form}={typed}"


_TRAINING = ("train_file", "train_data", "train_path")
_HELD_OUT = (
    "validation_file",
    "valid_file",
    "valid_path",
    "val_path",
    "eval_data_file",
    "test_file",
)
_MAPS: Mapping[str, str] = {
    our: name
    for name, theirs in {
        "query": "query q_proj q_lin q query_proj",
        "key": "key k_proj k_lin k key_proj",
        "value": "value v_proj v_lin v value_proj",
        "output": "output o_proj out_proj out_lin o attention.output.dense",
        "up": "up up_proj fc1 lin1 wi intermediate.dense",
        "gate": "gate gate_proj",
        "down": "down down_proj fc2 lin2 wo output.dense",
    }.items()
    for our in theirs.split()
}


def _maps(typed: str) -> str:
    """The names of maps, of those of layers of transformers."""
    if _read(typed) == "all-linear":
        return "[query,key,value,output,up,down]"
    return f"[{','.join(dict.fromkeys(_MAPS.get(name, name) for name in _list(typed)))}]"


def _low_rank(field: str, convert: Callable[[str], str] = str) -> Say:
    """A setting of LoRA, or of the chosen method that has it."""

    def choose(_: str, typed: str, look: Look) -> str:
        chosen = look("peft")
        parts = chosen if isinstance(chosen, Mapping) else {}
        own = next((name for name, part in parts.items() if field in part), "")
        before = "" if own else f"peft=[{','.join([*parts, 'lora'])}] "
        return f"{before}peft.{own or 'lora'}.{field}={convert(typed)}"

    return choose


# methods of peft, and ours
_METHODS = {
    **{name: f"peft=[{name}]" for name in ("lora", "adalora", "vera", "ia3")},
    **{"prefix_tuning": "peft=[prefix]", "prompt_tuning": "peft=[prompt]"},
    **{"true": "peft=[lora]"},
}
_FORMATS = {
    "none": "format=blocks format.crossing=true",
    "complete": "format=full_sentences",
    "complete_doc": "format=doc_sentences",
    "eos": "format=sentences",
}
_LOUD = {"debug": "-v", "info": "-v", "true": "-v", "warning": "", "passive": ""}
_LOUD |= {"error": "-q", "critical": "-q"}
_PRECISIONS = {
    **dict.fromkeys(["no", "float32", "float", "32", "32-true"], "fp32"),
    **dict.fromkeys(["float16", "half", "16", "16-mixed", "16-true"], "fp16"),
    **dict.fromkeys(["bfloat16", "bf16-mixed", "bf16-true"], "bf16"),
    **{"true": "auto", "false": "fp32", "none": "", "null": ""},
}
_OPTIMIZERS = {
    **{name: "adamw" for name in ("adam", "adamw_torch", "adamw_torch_fused", "adamw_hf")},
    **{"sgd": "momentum", "none": ""},
}
_SCHEDULES = {
    **dict.fromkeys(["constant_with_warmup", "fixed"], "constant"),
    **dict.fromkeys(["polynomial", "polynomial_decay"], "linear"),
    **{"warmup_stable_decay": "wsd", "none": ""},
}
# theirs end at 0
_WAVES = dict.fromkeys(["cosine", "cosine_with_restarts"], "cosine schedule.min_ratio=0")
_YES = _cases(true="true")

# names of theirs -> our words for a value
_VALUES: Mapping[str, Say] = {
    "fp16 half fp16_full_eval": _cases(true="fp16", false="fp32"),
    "bf16 bf16_full_eval": _cases(true="bf16", false="fp32"),
    "amp mixed_precision dtype torch_dtype precision": _cases(**_PRECISIONS),
    "no_cuda use_cpu": _cases(true="cpu", false="auto"),
    "gradient_checkpointing activation_checkpointing checkpoint_activations": _YES,
    "torch_compile load_best_model_at_end full_determinism deterministic": _YES,
    "async_save async_checkpoint use_async_checkpoint async_mode": _YES,
    "optimizer": _cases(**_OPTIMIZERS),
    "lr_scheduler lr_scheduler_type scheduler": _cases(**_SCHEDULES, **_WAVES),
    "betas adam_betas": _bracket,
    "warmup warmup_steps warmup_updates warmup_iters num_warmup_steps": _share_or_steps,
    "per_device_train_batch_size per_gpu_train_batch_size": _batch,
    "gradient_accumulation_steps gradient_accumulation accumulate_grad_batches update_freq": (
        _accumulate
    ),
    "max_steps num_steps total_steps train_steps max_update max_updates max_iters": (
        _all_but_negative
    ),
    "num_train_steps num_updates updates epochs num_epochs n_epochs max_epoch max_epochs": (
        _all_but_negative
    ),
    "num_train_epochs total_num_update": _all_but_negative,
    "save_total_limit keep_last_epochs keep_interval_updates": _all_but_negative,
    "save_steps eval_steps logging_steps val_check_interval": _updates,
    "n_gpu num_gpus devices world_size nproc_per_node": _devices,
    "eval_strategy evaluation_strategy": _strategy("eval_steps"),
    "save_strategy": _strategy("save_steps"),
    "logging_strategy": _strategy("logging_steps"),
    "metric_for_best_model best_checkpoint_metric monitor": _metric,
    "max_train_samples": _samples("rows"),
    "limit_train_batches": _samples("batches"),
    "max_time time_limit": _minutes,
    "stop_time_hours": _hours,
    "id2label label2id label_list label_names": _names,
    "trackers report_to wandb use_wandb logger loggers": _trackers,
    "lora_r r lora_rank": _low_rank("rank"),
    "lora_alpha": _low_rank("alpha"),
    "lora_dropout": _low_rank("dropout"),
    "use_rslora": _low_rank("root"),
    "target_modules lora_target_modules": _low_rank("maps", _maps),
    "use_lora use_peft peft_type": _words(**_METHODS),
    "use_dora": _words(true="peft=[dora]"),
    "sample_break_mode": _words(**_FORMATS),
    "resume_from_checkpoint": _words(true="plmctl <command> --resume run.dir=<its folder>"),
    "line_by_line": _words(true="format=sentences"),
    " ".join((*_TRAINING, *_HELD_OUT)): _files,
    "log_level verbose": _words(**_LOUD),
}
_BY_NAME = {name: each for names, each in _VALUES.items() for name in names.split()}


def find_option(slot: str, name: str) -> str:
    """The part of a slot that has another name in other trainers, or ""."""
    return {"optim": _OPTIMIZERS, "schedule": _SCHEDULES}.get(slot, {}).get(name.lower(), "")
