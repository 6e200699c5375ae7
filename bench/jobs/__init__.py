"""The jobs that allocators are judged on: what each is, and how much of it is recorded."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Job:
    """A training script and how it is recorded.

    ``kind`` says how much of a step's requests differ from those of another step: ``repeating`` none, ``between`` some
    (1 to 20 %, or all of a step that comes now and then), ``varying`` most. Jobs that are ``held_out`` are for judging
    alone: no choice is made by looking at them.
    """

    script: str
    kind: str
    #: How many steps are recorded for the plan, and how many, of another seed, it is judged on.
    recorded: int = 4
    judged: int = 28
    options: tuple[str, ...] = ()
    #: Options of `stalloc trace`, for one rank of several.
    launch: tuple[str, ...] = ()
    held_out: bool = False


def varying(script: str, recorded: int, *options: str, held_out: bool = False) -> Job:
    return Job(f"bench/jobs/{script}.py", "varying", recorded, options=options, held_out=held_out)


def between(script: str, *options: str, recorded: int = 6) -> Job:
    return Job(f"bench/jobs/{script}.py", "between", recorded, options=options)


def repeating(script: str, *options: str) -> Job:
    return Job(f"bench/jobs/{script}.py", "repeating", 4, 12, options)


MEGATRON = (
    *("--layers", "4", "--hidden", "1024", "--feed-forward", "4096", "--vocabulary", "32000"),
    *("--length", "1024", "--micro-batch", "4"),
)
SMALL = ("--width", "1024", "--heads", "16", "--layers", "8", "--length", "1024")
BUCKETS = "512,768,1024,1280,1536,1792,2048,2304"


def moe(experts: int, choices: int, micro_batches: int, *more: str) -> Job:
    """A mixture of experts of Megatron's."""
    options = (*MEGATRON, "--experts", str(experts), "--top-k", str(choices), "--micro-batches", str(micro_batches), *more)
    return Job("examples/megatron_gpt.py", "varying", 4, options=options)


def pipeline(*more: str) -> Job:
    """The first rank of a pipeline of four stages, which holds the most micro-batches."""
    options = (*MEGATRON, "--layers", "16", "--micro-batches", "8", "--pipeline", "4", *more)
    return Job("examples/megatron_gpt.py", "repeating", 10, 10, options, ("--world-size", "4", "--rank", "0"))


def llama(batch: int, lengths: str, recorded: int) -> Job:
    options = ("--layers", "6", "--batch", str(batch), "--lengths", lengths)
    return Job("examples/llama.py", "varying", recorded, options=options)


JOBS = {
    "moe8-recompute": moe(8, 2, 4, "--recompute", "full"),
    "moe60-recompute": moe(60, 4, 2, "--recompute", "full"),
    "moe8": moe(8, 2, 4),
    "moe60": moe(60, 4, 2),
    "buckets-batch4": llama(4, BUCKETS, 16),
    "buckets-batch3": llama(3, BUCKETS, 16),
    "any-length": llama(4, "256-2304", 4),
    "offload": Job("examples/offload.py", "varying", 5, options=SMALL),
    "evaluation": Job("examples/evaluation.py", "repeating", 10, options=SMALL),
    "translation": varying("translation", 6),
    "detection": varying("detection", 4),
    "gan": varying("gan", 4),
    "lora-packed": varying("lora", 3),
    "lora-padded": varying("lora", 6, "--padded", "1", "--width", "1536", "--layers", "10"),
    "diffusion": varying("diffusion", 8),
    "moe-drift": varying("moe", 4),
    "vit-any": varying("vit_any", 5),
    "curriculum": varying("curriculum", 6),
    "unfreeze": varying("unfreeze", 6),
    "change-optimizer": varying("change_optimizer", 6),
    "replay": varying("replay", 10),
    "accumulate-evaluate": between("evaluation", recorded=8),
    "giant": varying("giant", 8),
    "preference": varying("preference", 4),
    "micro-batches": varying("micro_batches", 3),
    "recommendation": varying("recommendation", 5),
    "video": varying("video", 6),
    "convnet": repeating("convnet"),
    "gpt-recompute": repeating("gpt", "--recompute", "1", "--batch", "16"),
    "gpt-accumulate": repeating("gpt", "--micro-batches", "4"),
    "vit": repeating("vit"),
    "lstm": repeating("lstm"),
    "encoder-decoder": repeating("encoder_decoder"),
    "pipeline": pipeline(),
    "pipeline-virtual-recompute": pipeline("--chunks", "2", "--recompute", "full"),
    "boxes": between("vit", "--boxes", "1"),
    "metric": between("vit", "--metric", "1"),
    "moe-last": between("moe", "--last", "1"),
    "last-batch": between("convnet", "--epoch", "5"),
    "pointers": between("encoder_decoder", "--pointers", "1"),
    "speech": varying("speech", 6, held_out=True),
    "ppo": varying("ppo", 3, held_out=True),
    "graph": varying("graph", 6, held_out=True),
    "crops": varying("crops", 5, held_out=True),
    "multitask": varying("multitask", 8, held_out=True),
    "contrastive": varying("contrastive", 5, held_out=True),
    "activation-offload": varying("activation_offload", 4, held_out=True),
    "sharded": varying("sharded", 4, held_out=True),
    "sharded-recorded": varying("sharded", 4, "--recorded", "1", "--ahead", "1", held_out=True),
    "buckets-reduced": varying("buckets", 4, held_out=True),
    "loader": varying("loader", 6, held_out=True),
    "one-forward-one-backward": varying("one_forward_one_backward", 4, held_out=True),
    "recorded-storm": varying("recorded_storm", 4, held_out=True),
    "graph-and-eager": varying("graph_and_eager", 6, held_out=True),
    "states-on-host": varying("states_on_host", 4, held_out=True),
}
#: The kinds of jobs.
KINDS = ("varying", "between", "repeating")
