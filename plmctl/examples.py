"""The two command lines at the end of each command's --help; they run one after the other in one folder."""

EXAMPLES = {
    "tokenize": [
        "plmctl tokenize tokenizer.vocab_size=4096 out=tokens",
        "plmctl tokenize tokenizer=wordpiece tokenizer.vocab_size=4096 out=tokens-wordpiece",
    ],
    "data check": [
        "plmctl data check tokens format=blocks format.max_length=64",
        "plmctl data check README.md tokenizer.path=tokens --out checked.md",
    ],
    "pretrain": [
        "plmctl pretrain size=tiny train.steps=50 run.dir=runs/first",
        "plmctl pretrain gpt -m size=tiny train.steps=20 optim.lr=1e-3,1e-4 run.dir=runs/gpt",
    ],
    "finetune": [
        "plmctl finetune task=sst2 task.path=glue/SST-2 checkpoint=runs/first run.dir=runs/sst2",
        "plmctl finetune task=sst2 task.path=glue/SST-2 checkpoint=null size=tiny tokenizer.path=tokens train.steps=50",
    ],
    "eval": [
        "plmctl eval checkpoint=runs/sst2 --json",
        "plmctl eval checkpoint=runs/first task=lm data.path=README.md",
    ],
    "convert": [
        "plmctl convert runs/first exported --to hf",
        "plmctl convert exported imported --to plmctl",
    ],
    "ablate": [
        "plmctl ablate roberta_masking --dry-run",
        "plmctl ablate roberta_masking budget.steps=2 seeds=[0,1] out=studies/first",
    ],
    "report": [
        "plmctl report runs/first",
        "plmctl report runs/first runs/sst2 --out compared.md",
    ],
    "average": [
        "plmctl average runs/first --last 2",
        "plmctl average runs/gpt/0 --last 2 --out averaged",
    ],
    "generate": [
        'plmctl generate checkpoint=runs/gpt/0 prompt="Return the" search=sample search.top_p=0.9 max_new=20',
        'plmctl generate checkpoint=runs/first prompt="a [MASK] of strings" top=3',
    ],
    "embed": [
        "plmctl embed checkpoint=runs/first input=README.md out=vectors.npz",
        "plmctl embed checkpoint=exported input=README.md out=vectors.npz layers=-1 logits=true",
    ],
}  # fmt: skip
