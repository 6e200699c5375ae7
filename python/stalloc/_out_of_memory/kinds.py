"""What holds memory can be: the names that the report knows (`Role` in `crates/report/src/facts.rs`)."""

from __future__ import annotations

import enum


class Kind(str, enum.Enum):
    """What a holder is; the comments there say more."""

    PARAMETERS = "parameters"
    GRADIENTS = "gradients"
    BUFFER = "buffer"
    OPTIMIZER_STATES = "optimizer_states"
    MODELS = "models"
    EXCEPTION = "exception"
    KEPT_EXCEPTION = "kept_exception"
    GARBAGE = "garbage"
    GRADIENT_CYCLE = "gradient_cycle"
    FUNCTION_CYCLE = "function_cycle"
    HOOK = "hook"
    GRAPH = "graph"
    GRAPH_OF_MANY = "graph_of_many"
    VARIABLE = "variable"
    LOCAL = "local"
    UNNAMED = "unnamed"
    OTHER_STATES = "other_states"
    CONTAINER = "container"
    ATTRIBUTE = "attribute"
    DATASET = "dataset"
    QUEUE = "queue"
    CACHE = "cache"
    ITERATOR = "iterator"
    CLOSURE = "closure"
    GENERATOR = "generator"
    COROUTINE = "coroutine"
    ASYNC_GENERATOR = "async_generator"
