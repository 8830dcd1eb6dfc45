"""Names of other trainers that are no setting here, and their replacements."""

from __future__ import annotations

from typing import NamedTuple

OF_TRAINERS = ("", "train", "run", "data", "optim")  # groups in which such a name is looked for


class Instead(NamedTuple):
    """The part or setting that replaces a name of another trainer.

    Args:
        words: A sentence on the behaviour here.
        typed: A setting or a command of this meaning; "" where none is needed.
    """

    words: str
    typed: str = ""


_BY_NAMES = {
    "report_to wandb_project wandb use_wandb logger loggers project_name": Instead(
        "numbers go to metrics.jsonl and TensorBoard, and to other services by trackers",
        "run.trackers=[wandb]",
    ),
    "tensorboard_logdir logging_dir log_dir": Instead(
        "metrics.jsonl and TensorBoard's files lie in the folder of the run", "run.dir=<a folder>"
    ),
    "evaluation_strategy eval_strategy do_eval validate_after_updates check_val_every_n_epoch": (
        Instead("validation comes every so many updates", "train.eval_every=<updates>")
    ),
    "save_strategy save_on_each_node enable_checkpointing": Instead(
        "checkpoints come every so many updates, the best one stays", "train.save_every=<updates>"
    ),
    "logging_strategy log_format disable_tqdm logging_first_step": Instead(
        "a line of the log comes every so many updates", "train.log_every=<updates>"
    ),
    "fsdp fsdp_config deepspeed zero_stage zero accelerator ddp ddp_backend tpu_num_cores"
    " model_parallel_size pipeline_model_parallel_size ddp_find_unused_parameters": Instead(
        "several devices share the rows, and with train.parallel=sharded also weights, gradients"
        " and the optimizer's state, by torch's FSDP2",
        "train.processes=<devices> train.parallel=sharded",
    ),
    "push_to_hub hub_model_id hub_token hub_strategy hub_private_repo upload_repo": Instead(
        "nothing is sent: a model is written in Hugging Face's layout, and `hf upload` sends it",
        "plmctl convert <a run> --to hf --out <a folder>",
    ),
    "resume_from_checkpoint ckpt_path continue_from restore_step": Instead(
        "a run goes on where it was", "plmctl pretrain --resume run.dir=<its folder>"
    ),
    "overwrite_output_dir reset_optimizer reset_dataloader reset_lr_scheduler": Instead(
        "a run is never written over: a new one begins, from trained weights with init=",
        "run.dir=<a new folder>",
    ),
    "do_train do_predict stage": Instead(
        "commands say it: plmctl pretrain, finetune, eval, generate", "plmctl --help"
    ),
    "dataloader_num_workers num_workers preprocessing_num_workers dataloader_pin_memory"
    " prefetch_factor pin_memory": Instead(
        "rows are read from tokens on disk while the device computes; `wait` in the log is what"
        " the device waits"
    ),
    "remove_unused_columns text_column_name label_column_name sentence1_key sentence2_key": Instead(
        "a task reads the columns that it names", "task.columns.text=<a column>"
    ),
    "greater_is_better maximize_best_checkpoint_metric": Instead(
        "each metric knows which values are better", "train.best_metric=<a metric>"
    ),
    "compute_metrics eval_metric predict_with_generate": Instead(
        "a task has the metrics of its publication", "task.metrics=[<a metric>]"
    ),
    "arch architectures model_type backbone config_name": Instead(
        "a recipe names one part for each slot of a model", "plmctl recipes ls"
    ),
    "criterion loss_function loss_fn": Instead(
        "an objective is what a pretraining learns, a task what a fine-tuning learns",
        "plmctl help objective",
    ),
    "user_dir trust_remote_code": Instead(
        "code of your own is a plug-in that you name", "--plugin <a package>"
    ),
    "bpe sentencepiece_model tokenizer_type spm_model": Instead(
        "a part makes the tokenizer from the text", "tokenizer=<a kind>"
    ),
    "sample_break_mode line_by_line group_by_length packing": Instead(
        "a format makes rows of documents", "format=<a format>"
    ),
    "nodes num_nodes nnodes num_machines": Instead(
        "a launcher has several machines", "launcher=slurm nodes=<machines>"
    ),
    "callbacks hooks": Instead(
        "parts of your own replace them, such as a tracker", "run.trackers=[<module>.<Class>]"
    ),
    "quantization load_in_8bit load_in_4bit bnb_4bit_compute_dtype quantization_config": Instead(
        "weights stay in fp32, and passes run in bf16 where that is fast", "train.precision=bf16"
    ),
    "auto_find_batch_size find_batch_size scale_batch_size": Instead(
        "a dry run says what memory a batch takes", "plmctl pretrain --dry-run"
    ),
    "lora_r lora_alpha lora_dropout use_lora use_peft peft_config": Instead(
        "methods of fine-tuning few parameters are parts", "peft=[lora]"
    ),
    "early_stopping early_stopping_threshold": Instead(
        "a run ends where so many validations bring no new best", "train.patience=<validations>"
    ),
    "log_level verbose quiet log_on_each_node debug": Instead(
        "options decide how much is printed", "-v, or -q"
    ),
}
INSTEAD = {name: said for names, said in _BY_NAMES.items() for name in names.split()}
