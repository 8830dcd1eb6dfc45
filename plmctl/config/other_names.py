"""Names of settings in other trainers, and frequent mistakes, each with our name."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable

from plmctl.core.errors import find_alike, find_meant, find_meant_beside

SPELT_ALIKE = 0.7  # least likeness of two last words; less is another word
MISSPELT = 0.93  # least likeness of a whole key; a letter is wrong
# least likeness of a last word whose setting stands in the same group as the wrong one
BESIDE = 0.85
SHOWN = 3  # settings of one name that a message lists

# ours -> theirs; a name with a dot is meant with it
OURS = {
    "optim.lr": "learning_rate lr max_lr peak_lr base_lr init_lr",
    "optim.weight_decay": "weight_decay wd",
    "optim.betas": "betas adam_betas",
    "optim.betas.0": "adam_beta1 beta1",
    "optim.betas.1": "adam_beta2 beta2",
    "optim.eps": "adam_epsilon adam_eps epsilon",
    "optim": "optimizer",
    "schedule": "lr_scheduler lr_scheduler_type scheduler",
    "schedule.warmup_steps": "warmup warmup_steps warmup_updates warmup_iters num_warmup_steps",
    "schedule.warmup_share": "warmup_ratio warmup_proportion warmup_fraction warmup_prop",
    "train.clip": (
        "max_grad_norm grad_clip clip_grad clip_grad_norm clip_norm gradient_clip_val"
        " gradient_clipping"
    ),
    "train.batch_size": (
        "train_batch_size per_device_train_batch_size per_gpu_train_batch_size train.batch"
    ),
    "train.batch_tokens": "max_tokens tokens_per_batch batch_tokens",
    "train.micro_batch_size": (
        "gradient_accumulation_steps gradient_accumulation accumulate_grad_batches update_freq"
    ),
    "eval.batch_size": "eval_batch_size per_device_eval_batch_size per_gpu_eval_batch_size",
    # for plmctl eval, embed and generate
    "batch_size": (
        "eval_batch_size per_device_eval_batch_size per_gpu_eval_batch_size train_batch_size"
    ),
    "train.epochs": "epochs num_epochs n_epochs max_epoch max_epochs num_train_epochs",
    "train.steps": (
        "steps max_steps num_steps total_steps train_steps num_train_steps max_update max_updates"
        " max_iters updates num_updates total_num_update"
    ),
    "train.precision": "fp16 half bf16 amp mixed_precision dtype torch_dtype precision",
    "precision": ("fp16 half bf16 mixed_precision dtype torch_dtype fp16_full_eval bf16_full_eval"),
    "train.compile": "torch_compile",
    "train.device": "no_cuda use_cpu",
    "device": "no_cuda use_cpu",
    "train.processes": "n_gpu num_gpus devices world_size nproc_per_node",
    "train.timeout": "ddp_timeout",
    "train.save_every": "save_steps save_interval save_interval_updates checkpoint_every",
    "train.save_async": "async_save async_checkpoint use_async_checkpoint async_mode",
    "train.log_every": "logging_steps log_interval",
    "train.eval_every": "eval_steps eval_interval validate_interval val_check_interval",
    "train.keep_last": "save_total_limit keep_last_epochs keep_interval_updates",
    "train.keep_best": "load_best_model_at_end",
    "size.width": "hidden_size d_model n_embd embed_dim hidden_dim model_dim",
    "size.num_layers": "num_hidden_layers n_layer n_layers num_layers encoder_layers",
    "size.num_heads": "num_attention_heads n_head n_heads nhead attention_heads",
    "size.inner_width": "intermediate_size d_ff ffn_dim n_inner",
    "model.stack.cells.f.activation": "activation activation_function activation_fn hidden_act",
    "model.embedding.dropout": "dropout hidden_dropout_prob hidden_dropout resid_pdrop embd_pdrop",
    "model.stack.cells.a.dropout": "attention_dropout attention_probs_dropout_prob attn_pdrop",
    "heads.class.dropout": "classifier_dropout",
    "pattern.reach": "pattern.width pattern.window attention_window sliding_window window_size",
    "noise.rate": "mlm_probability mlm_prob mask_prob mask_ratio masking_ratio masked_lm_prob",
    "tokenizer.vocab_size": "vocab_size",
    "tokenizer.path": "tokenizer_name tokenizer_path",
    "format.max_length": (
        "max_length max_len max_seq_len max_seq_length seq_len seq_length block_size"
        " tokens_per_sample"
    ),
    "task.max_length": (
        "max_length max_len max_seq_len max_seq_length seq_len seq_length max_source_length"
    ),
    "task.max_target": "max_target_length generation_max_length",
    "task.path": (
        "train_file train_data train_path data_path data_dir dataset dataset_path dataset_name"
        " validation_file valid_file valid_path val_path eval_data_file test_file"
    ),
    "task": "task_name",
    "task.columns.text": "text_column_name text_column_names text_column sentence1_key",
    "task.columns.text2": "sentence2_key",
    "task.columns.label": "label_column_name label_column",
    "data.path": (
        "train_file train_data train_path train_data_file data_path data_dir dataset dataset_path"
        " dataset_name"
    ),
    "data.valid_path": "validation_file valid_file valid_path val_path eval_data_file",
    "data.field": "text_column_name text_column",
    "run.dir": "out output_dir out_dir save_dir",
    "out": "run.dir output_dir out_dir save_dir",
    "checkpoint": (
        "run.dir ckpt model_name_or_path model_name model_path pretrained pretrained_model"
        " from_pretrained"
    ),
    "init": (
        "model_name_or_path model_name model_path pretrained pretrained_model from_pretrained"
        " finetune_from_model"
    ),
    "teacher": "teacher_model teacher_path teacher_name_or_path",
    "search.width": "num_beams beam_size beam generation_num_beams",
    "search.alpha": "length_penalty lenpen",
    "search.no_repeat_ngram": "no_repeat_ngram_size",
    "search.excluded": "bad_words_ids suppress_tokens",
    "search.last": "forced_eos_token_id",
    "max_new": "max_new_tokens",
    "normalize": "normalize_embeddings",
    "dimensions": "truncate_dim",
    "prompt": "prompt_name",
    "seed": "random_seed manual_seed data_seed seed_everything",
    "train.checkpoint_activations": (
        "gradient_checkpointing activation_checkpointing checkpoint_activations"
    ),
    "train.patience": "early_stopping_patience patience",
    "train.best_metric": "metric_for_best_model best_checkpoint_metric monitor",
    "train.deterministic": "full_determinism deterministic",
    "train.minutes": "max_time max_minutes time_limit stop_time_hours",
    "train.share": "limit_train_batches max_train_samples train_subset_fraction",
    "task.label_smoothing": "label_smoothing label_smoothing_factor",
    "task.class_weights": "class_weight class_weights",
    "task.label_names": "label_names id2label label2id label_list",
    "run.name": "run_name experiment_name",
    "run.trackers": ("trackers report_to wandb use_wandb logger loggers"),
}
THEIRS = frozenset(name for theirs in OURS.values() for name in theirs.split())


def ours(key: str, known: Callable[[str], bool]) -> str:
    """Our name for a setting of another trainer, the first one that `known` accepts."""
    names = (key, key.rpartition(".")[2])
    return next(
        (name for name, theirs in OURS.items() if {*names} & {*theirs.split()} and known(name)), ""
    )


def guess(key: str, known: Iterable[str]) -> list[str]:
    """The `known` settings that a wrong key may mean: one of its group that is spelt alike, or has
    its name as a word; those of its last word, the nearest ones in the tree; else another one that
    is spelt alike.

    The group of a key is not compared letter by letter: `train.` would make all of its settings
    look alike.
    """
    keys = list(known)
    group, dot, name = key.rpartition(".")
    if alike := find_alike(key, keys, least=MISSPELT):
        return alike
    if meant := find_meant_beside(key, keys, least=BESIDE):
        return [meant]
    swapped = [other for other in keys if sorted(other) == sorted(key)]  # `tpo`, too short above
    if len(swapped) == 1:
        return swapped
    fellows = [other for other in keys if dot and other.rpartition(".")[0] == group]
    longer = [other for other in fellows if name in other.rpartition(".")[2].split("_")]
    first = [other for other in longer if other.startswith(f"{key}_")]
    if longer:  # `size.heads` is size.num_heads, whatever heads there are elsewhere
        return first if len(first) == 1 else longer[:SHOWN]
    same = [other for other in keys if other.endswith(f".{key}")]
    same = same or [other for other in keys if other.rpartition(".")[2] == name]
    nearest = max((_count_shared(key, other) for other in same), default=0)
    same = [other for other in same if _count_shared(key, other) == nearest]
    if len(same) > SHOWN:
        least = min(other.count(".") for other in same)
        same = [other for other in same if other.count(".") == least]
    if same:
        return same[:SHOWN]
    beside: dict[str, str] = {}
    for other in keys:
        if other.startswith(f"{group}{dot}"):
            beside.setdefault(other.rpartition(".")[2], other)
    if meant := find_meant(name, beside, least=SPELT_ALIKE):
        return [beside[meant]]
    return find_alike(key, keys, least=0.85)


def _count_shared(key: str, other: str) -> int:
    """How many groups, from the top, both stand in."""
    pairs = zip(key.split("."), other.split("."), strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
