"""Names of other trainers that are no setting here, and their replacements."""

from __future__ import annotations

from typing import NamedTuple

OF_TRAINERS = ("", "train", "run", "data", "optim")  # groups in which such a name is looked for


class Instead(NamedTuple):
    """The part or setting that replaces a name of another trainer.

    Args:
        words: A sentence on the behaviour here.
        typed: A setting, with {} for the value, or a command of this meaning; "" where none is
            needed.
    """

    words: str
    typed: str = ""


_NO_LORA = "plmctl has none; weights of LoRA are drawn as published, in all layers alike"
_BY_NAMES = {
    "wandb_project project trackio_space_id trackio_bucket_id": Instead(
        "the service reads it from a variable, such as WANDB_PROJECT", "run.trackers=[wandb]"
    ),
    "tensorboard_logdir logging_dir log_dir": Instead(
        "metrics.jsonl and TensorBoard's files lie in the folder of the run", "run.dir={}"
    ),
    "evaluation_strategy eval_strategy": Instead(
        "validation comes every so many updates; null is the usual number", "train.eval_every"
    ),
    "save_strategy": Instead(
        "checkpoints come every so many updates; null is the usual number", "train.save_every"
    ),
    "logging_strategy": Instead("a line of the log comes every so many updates", "train.log_every"),
    "check_val_every_n_epoch validate_after_updates eval_delay eval_on_start": Instead(
        "validation comes every so many updates", "train.eval_every=<updates>"
    ),
    "do_eval save_on_each_node enable_checkpointing save_only_model enable_jit_checkpoint": (
        Instead("a run validates and saves, with the optimizer's state, by itself")
    ),
    "log_format disable_tqdm logging_first_step logging_nan_inf_filter": Instead(
        "the log has its first update, and metrics.jsonl has every number of it"
    ),
    "fsdp fsdp_config deepspeed zero_stage zero accelerator ddp ddp_backend tpu_num_cores"
    " model_parallel_size pipeline_model_parallel_size ddp_find_unused_parameters"
    " accelerator_config parallelism_config": Instead(
        "several devices share the rows, and with train.parallel=sharded also weights, gradients"
        " and the optimizer's state, by torch's FSDP2",
        "train.processes=<devices> train.parallel=sharded",
    ),
    "local_rank ddp_bucket_cap_mb ddp_broadcast_buffers ddp_static_graph"
    " average_tokens_across_devices": Instead("processes divide the work by themselves"),
    "push_to_hub hub_model_id hub_token hub_strategy hub_private_repo hub_always_push hub_revision"
    " upload_repo": Instead(
        "training sends nothing: convert writes a model in Hugging Face's layout, and sends it",
        "plmctl convert <a run> --to hf --push <owner/name>",
    ),
    "resume_from_checkpoint ckpt_path continue_from restore_step restore_file": Instead(
        "a run goes on where it was", "plmctl <command> --resume run.dir={}"
    ),
    "overwrite_output_dir reset_optimizer reset_dataloader reset_lr_scheduler": Instead(
        "a run is never written over: a new one begins, from trained weights with init=",
        "run.dir=<a new folder>",
    ),
    "ignore_data_skip restore_callback_states_from_checkpoint": Instead(
        "a resumed run goes on behind the last row that it has read"
    ),
    "do_train do_predict stage": Instead(
        "commands say it: plmctl pretrain, finetune, eval, generate", "plmctl --help"
    ),
    "dataloader_num_workers num_workers preprocessing_num_workers dataloader_pin_memory"
    " dataloader_persistent_workers dataloader_prefetch_factor dataloader_in_order"
    " dataloader_multiprocessing_context prefetch_factor pin_memory overwrite_cache": Instead(
        "rows are read from tokens on disk while the device computes; `wait` in the log is what"
        " the device waits"
    ),
    "dataloader_drop_last train_sampling_strategy length_column_name sortish_sampler"
    " batch_sampler multi_dataset_batch_sampler": Instead(
        "each epoch has every example once, in an order of its own; train.batch_tokens sorts rows"
        " by length"
    ),
    "group_by_length": Instead(
        "a limit of tokens sorts rows by length", "train.batch_tokens=<tokens of an update>"
    ),
    "pad_to_max_length padding": Instead(
        "a batch is padded to its longest row, or has no padding at all"
    ),
    "truncation": Instead("rows that are too long are cut, and the run counts them"),
    "remove_unused_columns": Instead("a task reads the columns that it names"),
    "greater_is_better maximize_best_checkpoint_metric": Instead(
        "each metric knows which values are better"
    ),
    "compute_metrics eval_metric": Instead(
        "a task has the metrics of its publication", "task.metrics=[{}]"
    ),
    "predict_with_generate prediction_loss_only include_for_metrics batch_eval_metrics"
    " eval_accumulation_steps eval_do_concat_batches eval_use_gather_object": Instead(
        "a task computes its metrics, and generates where they need it"
    ),
    "max_eval_samples max_predict_samples max_val_samples": Instead(
        "all examples are evaluated; a smaller file has fewer"
    ),
    "arch architectures model_type backbone config_name config_overrides": Instead(
        "a recipe names one part for each slot of a model", "plmctl recipes ls"
    ),
    "criterion loss_function loss_fn": Instead(
        "an objective is what a pretraining learns, a task what a fine-tuning learns",
        "plmctl help objective",
    ),
    "user_dir": Instead("code of your own is a plug-in that you name", "--plugin {}"),
    "trust_remote_code": Instead("code in the folder of a checkpoint never runs"),
    "use_fast_tokenizer use_fast": Instead("there is one tokenizer of each kind"),
    "model_revision revision": Instead(
        "nothing is downloaded: a folder is read as it lies there",
        "hf download <a name> --revision {} --local-dir <a folder>",
    ),
    "token use_auth_token dataset_config_name": Instead(
        "nothing is downloaded: a folder is read as it lies there"
    ),
    "ignore_mismatched_sizes from_tf": Instead(
        "a head that a checkpoint lacks begins new, and a line says so"
    ),
    "bpe sentencepiece_model tokenizer_type spm_model": Instead(
        "a part makes the tokenizer from the text", "tokenizer=<a kind>"
    ),
    "sample_break_mode line_by_line packing": Instead(
        "a format makes rows of documents", "format=<a format>"
    ),
    "nodes num_nodes nnodes num_machines distributed_world_size": Instead(
        "a launcher has several machines", "launcher=slurm nodes={}"
    ),
    "callbacks hooks": Instead(
        "parts of your own replace them, such as a tracker", "run.trackers=[<module>.<Class>]"
    ),
    "quantization load_in_8bit load_in_4bit bnb_4bit_compute_dtype quantization_config": Instead(
        "weights stay in fp32, and passes run in bf16 where that is fast", "train.precision=bf16"
    ),
    "auto_find_batch_size find_batch_size scale_batch_size": Instead(
        "a dry run says what memory a batch takes", "--dry-run"
    ),
    "fp16_opt_level half_precision_backend fp16_backend fp16_init_scale fp16_scale_window"
    " min_loss_scale loss_scale memory_efficient_fp16 tf32": Instead(
        "fp16 has a loss scale that adapts, and weights stay in fp32"
    ),
    "lora_r r lora_rank lora_alpha lora_dropout use_lora use_peft peft_type use_dora use_rslora"
    " target_modules lora_target_modules": Instead(
        "methods of fine-tuning few parameters are parts", "peft=[lora]"
    ),
    "peft_config lora_config": Instead(
        "methods of fine-tuning few parameters are parts", "peft=[lora]"
    ),
    "modules_to_save": Instead("new heads are always trained, and kept with the adapter"),
    "init_lora_weights layers_to_transform layers_pattern rank_pattern alpha_pattern"
    " exclude_modules fan_in_fan_out loftq_config eva_config corda_config layer_replication"
    " lora_bias target_parameters trainable_token_indices use_qalora": Instead(_NO_LORA),
    "neftune_noise_alpha": Instead(
        "plmctl has no NEFTune; regulariser=freelb learns from changed vectors of words, too"
    ),
    "use_liger_kernel liger_kernel_config torch_compile_backend torch_compile_mode jit_mode_eval"
    " use_ipex torch_empty_cache_steps use_cache": Instead(
        "kernels are chosen by the device and the pattern: plmctl help kernel"
    ),
    "lr_scheduler_kwargs optim_args optim_target_modules learning_rate_mapping": Instead(
        "each number of an optimizer or a schedule is a setting of its own", "plmctl help optim"
    ),
    "prompts router_mapping": Instead(
        "plmctl has none in training; embed reads the prompts of a published model"
    ),
    "early_stopping": Instead(
        "a run ends where so many validations bring no new best", "train.patience=<validations>"
    ),
    "early_stopping_threshold": Instead("any better score is a new best"),
    "log_level verbose": Instead("options decide how much is printed", "-v"),
    "quiet": Instead("options decide how much is printed", "-q"),
    "log_on_each_node log_level_replica debug skip_memory_metrics include_num_input_tokens_seen": (
        Instead("process 0 prints the log; -v prints more")
    ),
}
INSTEAD = {name: said for names, said in _BY_NAMES.items() for name in names.split()}
