"""The allocators that the tables of bench/results/evaluation.md compare: `stalloc simulate`'s name of each, and what its column is called."""

ALLOCATORS = {
    "pytorch": "PyTorch",
    "pytorch-expandable": "expandable",
    "gmlake": "GMLake",
    "stalloc-open": "stalloc, open",
    "stalloc": "stalloc, planned",
    "stalloc-auto": "stalloc, auto",
}
