"""The two command lines at the end of each command's --help; they run one after the other in one
folder.
"""

EXAMPLES = {
    "tokenize": [
        "plmctl tokenize tokenizer.vocab_size=4096 out=tokens",
        "plmctl tokenize tokenizer=wordpiece tokenizer.vocab_size=4096 out=tokens-wordpiece",
    ],
    "data check": [
        "plmctl data check tokens format=blocks format.max_length=64",
        "plmctl data check README.md tokenizer.path=tokens --out checked.md",
    ],
    "data augment": [
        (
            "plmctl data augment task=sst2 task.path=glue/SST-2 checkpoint=runs/first copies=2"
            " out=augmented"
        ),
        (
            "plmctl data augment task=sst2 task.path=glue/SST-2 checkpoint=runs/first rate=0.2"
            " candidates=5 out=augmented-less"
        ),
    ],
    "data rewrite": [
        "plmctl data rewrite checkpoint=runs/en-de out=en-de-rewritten",
        (
            "plmctl data rewrite checkpoint=runs/en-de pick=nearest search.width=3 search.count=3"
            " out=en-de-nearest"
        ),
    ],
    "pretrain": [
        "plmctl pretrain size=tiny train.steps=50 run.dir=runs/first",
        "plmctl pretrain gpt -m size=tiny train.steps=20 optim.lr=1e-3,1e-4 run.dir=runs/gpt",
    ],
    "finetune": [
        "plmctl finetune task=sst2 task.path=glue/SST-2 checkpoint=runs/first run.dir=runs/sst2",
        (
            "plmctl finetune task=sst2 task.path=glue/SST-2 checkpoint=null size=tiny"
            " tokenizer.path=tokens train.steps=50"
        ),
    ],
    "distill": [
        (
            "plmctl distill task=sst2 task.path=glue/SST-2 teacher=runs/sst2 kept_layers=first1"
            " run.dir=runs/small"
        ),
        (
            "plmctl distill bert teacher=runs/first size=tiny size.num_layers=1 train.steps=10"
            " run.dir=runs/student"
        ),
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
        "plmctl report runs/first runs/sst2 --out compared.md",
        "plmctl report studies/first --out study.html",
    ],
    "recipes ls": ["plmctl recipes ls --json", "plmctl recipes ls --studies"],
    "recipes show": ["plmctl recipes show bert", "plmctl recipes show simcse data.path=tokens"],
    "recipes cp": ["plmctl recipes cp bert", "plmctl recipes cp gpt2 mine.yaml"],
    "recipes run": [
        "plmctl recipes run gpt size=tiny train.steps=20 finetune.train.steps=20 out=chains/first",
        (
            "plmctl recipes run bert size=small data.path=README.md train.minutes=60"
            " tasks.sst2=glue/SST-2 --dry-run"
        ),
    ],
    "help": ["plmctl help noise", "plmctl help span_mask"],
    "average": [
        "plmctl average runs/first --last 2",
        "plmctl average runs/gpt/0 --last 2 --out averaged",
    ],
    "generate": [
        (
            'plmctl generate checkpoint=runs/gpt/0 prompt="Return the" search=sample'
            " search.top_p=0.9 max_new=20"
        ),
        'plmctl generate checkpoint=runs/first prompt="a [MASK] of strings" top=3',
    ],
    "embed": [
        "plmctl embed checkpoint=runs/first input=README.md out=vectors.npz",
        (
            "plmctl embed checkpoint=exported input=glue/SST-2/dev.tsv field=sentence out=means.npz"
            " layers=-1 pooling=mean"
        ),
    ],
}
