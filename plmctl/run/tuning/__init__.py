"""`plmctl finetune`: a task, and those beside it."""
