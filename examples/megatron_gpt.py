"""Trains a GPT or a mixture of experts with megatron-core: pipeline, recomputation, distributed optimizer.

    python examples/megatron_gpt.py --layers 4                                   # on a GPU
    torchrun --nproc-per-node 8 examples/megatron_gpt.py --pipeline 4 --data 2    # on eight
    stalloc trace --dry-run a100-80gb --world-size 32 --ranks 0,8 -o traces -- \\
        python examples/megatron_gpt.py --pipeline 4 --chunks 2 --data 8 --distributed-optimizer --recompute full
"""

import argparse
import os
import warnings
from functools import partial

warnings.filterwarnings("ignore")

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from megatron.core import parallel_state
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads
from megatron.core.enums import ModelType
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.pipeline_parallel.schedules import get_forward_backward_func
from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed
from megatron.core.transformer.moe import moe_utils
from megatron.core.transformer.transformer_block import TransformerBlockSubmodules, get_num_layers_to_build
from megatron.core.transformer.transformer_config import TransformerConfig

#: Named sizes: layers, hidden, feed-forward, heads, key-value heads, vocabulary, length, gated.
MODELS = {
    "gpt2-345m": (24, 1024, 4096, 16, 16, 50304, 1024, False),
    "llama2-7b": (32, 4096, 11008, 32, 32, 32000, 4096, True),
    "qwen2.5-7b": (28, 3584, 18944, 28, 4, 152064, 4096, True),
    "qwen2.5-14b": (48, 5120, 13824, 40, 8, 152064, 4096, True),
    "qwen2.5-32b": (64, 5120, 27648, 40, 8, 152064, 4096, True),
    "qwen2.5-72b": (80, 8192, 29568, 64, 8, 152064, 4096, True),
    "qwen1.5-moe-a2.7b": (24, 2048, 5632, 16, 16, 151936, 4096, True),
}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=MODELS, help="a named size; the options below replace parts of it")
    for name, what in dict(
        layers="layers of the whole model", hidden="width", feed_forward="width between", heads="attention heads",
        key_value_heads="key-value heads", vocabulary="tokens known", length="tokens in a row",
    ).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, help=what)
    parser.add_argument("--micro-batch", type=int, default=1, help="rows of a micro-batch")
    parser.add_argument("--micro-batches", type=int, default=8, help="micro-batches of a step")
    parser.add_argument("--tensor", type=int, default=1, help="tensor parallel ranks")
    parser.add_argument("--pipeline", type=int, default=1, help="pipeline stages")
    parser.add_argument("--chunks", type=int, help="model chunks of a stage: virtual pipeline")
    parser.add_argument("--data", type=int, default=1, help="data parallel ranks")
    parser.add_argument("--expert", type=int, default=1, help="expert parallel ranks, out of the data parallel ones")
    parser.add_argument("--flash", action="store_true", help="attention in one kernel, without the matrix of scores")
    parser.add_argument("--recompute", choices=("full", "selective"), help="what to recompute in the backward pass")
    parser.add_argument("--distributed-optimizer", action="store_true", help="ZeRO: states shared out over data ranks")
    parser.add_argument("--offload", action="store_true", help="the optimizer's states and its work on the host")
    parser.add_argument("--offload-modules", nargs="*", help="what of a layer is offloaded to the host, such as core_attn and attn_proj")
    parser.add_argument("--dispatcher", default="alltoall", choices=("alltoall", "allgather"), help="how tokens get to their experts")
    parser.add_argument("--experts", type=int, help="experts of a layer, as 8 or 60")
    parser.add_argument("--top-k", type=int, default=2, help="experts that a token goes to")
    parser.add_argument("--seed", type=int, default=1234, help="of what is random, such as where tokens are routed")
    parser.add_argument("--steps", type=int, default=3)
    options = parser.parse_args()
    sizes = MODELS.get(options.model or "", (8, 1024, 4096, 16, 16, 50304, 1024, False))
    names = ("layers", "hidden", "feed_forward", "heads", "key_value_heads", "vocabulary", "length")
    for name, size in zip(names, sizes):
        if getattr(options, name) is None:
            setattr(options, name, size)
    options.gated = sizes[-1]
    return options


def configure(options: argparse.Namespace) -> TransformerConfig:
    """Megatron's view of the options."""
    more: dict = {}
    if options.recompute == "full":
        more |= dict(recompute_granularity="full", recompute_method="uniform", recompute_num_layers=1)
    elif options.recompute:
        more |= dict(recompute_granularity="selective")
    if options.offload_modules:
        more |= dict(fine_grained_activation_offloading=True, offload_modules=options.offload_modules)
    if options.experts:
        more |= dict(
            num_moe_experts=options.experts,
            moe_router_topk=options.top_k,
            moe_token_dispatcher_type=options.dispatcher,
            moe_router_load_balancing_type="aux_loss",
            moe_aux_loss_coeff=1e-2,
            moe_ffn_hidden_size=options.feed_forward if options.experts < 16 else options.feed_forward // 4,
            expert_model_parallel_size=options.expert,
        )
    if options.gated:
        more |= dict(gated_linear_unit=True, activation_func=torch.nn.functional.silu, normalization="RMSNorm")
    return TransformerConfig(
        num_layers=options.layers,
        hidden_size=options.hidden,
        ffn_hidden_size=options.feed_forward,
        num_attention_heads=options.heads,
        num_query_groups=options.key_value_heads,
        add_bias_linear=not (options.gated or options.experts),
        tensor_model_parallel_size=options.tensor,
        sequence_parallel=options.tensor > 1,
        pipeline_model_parallel_size=options.pipeline,
        virtual_pipeline_model_parallel_size=options.chunks,
        bf16=True,
        params_dtype=torch.bfloat16,
        pipeline_dtype=torch.bfloat16,
        attention_dropout=0.0 if options.gated else 0.1,
        hidden_dropout=0.0 if options.gated else 0.1,
        masked_softmax_fusion=False,
        gradient_accumulation_fusion=False,
        bias_activation_fusion=False,
        bias_dropout_fusion=False,
        persist_layer_norm=False,
        deallocate_pipeline_outputs=True,
        **more,
    )


class Norm:
    """Makes PyTorch's normalisation; Megatron's own maker of it knows no sequence parallelism."""

    def __new__(cls, config: TransformerConfig, hidden_size: int, eps: float = 1e-5) -> nn.Module:
        layer = (nn.RMSNorm if config.normalization == "RMSNorm" else nn.LayerNorm)(hidden_size, eps=eps)
        for parameter in layer.parameters():
            parameter.sequence_parallel = config.sequence_parallel
        return layer


class FlashAttention(nn.Module):
    """PyTorch's attention in the place of Megatron's: no matrix of scores in memory, as with TransformerEngine."""

    def __init__(self, config: TransformerConfig, **_more) -> None:
        super().__init__()
        self.dropout = config.attention_dropout

    def forward(self, query, key, value, *_masks, **_more) -> torch.Tensor:
        rows = [tensor.permute(1, 2, 0, 3) for tensor in (query, key, value)]  # [length, batch, heads, width] before
        dropout = self.dropout if self.training else 0.0
        out = functional.scaled_dot_product_attention(*rows, dropout_p=dropout, is_causal=True, enable_gqa=True)
        return out.permute(2, 0, 1, 3).flatten(2)


def layers(options: argparse.Namespace, config: TransformerConfig, chunk: int | None) -> TransformerBlockSubmodules:
    """What the layers of a chunk are made of."""
    layer = get_gpt_layer_local_spec(num_experts=options.experts, normalization=config.normalization)
    layer.submodules.input_layernorm = layer.submodules.pre_mlp_layernorm = Norm
    if options.flash:
        layer.submodules.self_attention.submodules.core_attention = FlashAttention
    return TransformerBlockSubmodules([layer] * get_num_layers_to_build(config, vp_stage=chunk), layer_norm=Norm)


def build(options: argparse.Namespace, config: TransformerConfig) -> list[DistributedDataParallel]:
    """This rank's chunks of the model."""
    wrap = DistributedDataParallelConfig(
        grad_reduce_in_fp32=True,
        overlap_grad_reduce=False,
        use_distributed_optimizer=options.distributed_optimizer,
    )
    chunks = []
    for chunk in range(options.chunks or 1):
        stage = dict(ignore_virtual=False, vp_stage=chunk) if options.chunks else {}
        model = GPTModel(
            config=config,
            transformer_layer_spec=layers(options, config, chunk if options.chunks else None),
            vocab_size=options.vocabulary,
            max_sequence_length=options.length,
            pre_process=parallel_state.is_pipeline_first_stage(**stage),
            post_process=parallel_state.is_pipeline_last_stage(**stage),
            share_embeddings_and_output_weights=False,
            position_embedding_type="rope" if options.gated else "learned_absolute",
            vp_stage=chunk if options.chunks else None,
        )
        model = model.cuda().bfloat16()
        model.model_type = ModelType.encoder_or_decoder
        chunks.append(DistributedDataParallel(config=config, ddp_config=wrap, module=model))
    return chunks


def texts(options: argparse.Namespace):
    """Endless random micro-batches."""
    generator = torch.Generator().manual_seed(0)
    while True:
        yield torch.randint(options.vocabulary, (options.micro_batch, options.length + 1), generator=generator)


def forward_step(options: argparse.Namespace, batches, model):
    """One micro-batch's forward pass and its loss, as Megatron's schedules want them."""
    text = next(batches).cuda(non_blocking=True)
    places = torch.arange(options.length, device="cuda").unsqueeze(0).expand(options.micro_batch, -1)
    hidden = None
    if not options.flash:
        hidden = torch.tril(torch.ones((1, 1, options.length, options.length), device="cuda")) < 0.5
    output = model(text[:, :-1].contiguous(), places, hidden, labels=text[:, 1:].contiguous())
    return output, lambda losses: (losses.float().mean(), {"loss": losses.detach().float().mean()})


def main() -> None:
    options = parse()
    if not hasattr(moe_utils, "te_general_gemm"):
        moe_utils.te_general_gemm = None  # megatron-core 0.16 without TransformerEngine looks for it
    ranks = dict(rank=int(os.environ.get("RANK", "0")), world_size=int(os.environ.get("WORLD_SIZE", "1")))
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29501")
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    dist.init_process_group("nccl", **ranks)
    parallel_state.initialize_model_parallel(
        options.tensor,
        options.pipeline,
        options.chunks,
        expert_model_parallel_size=options.expert,
        create_gloo_process_groups=False,
    )
    model_parallel_cuda_manual_seed(1234)
    torch.manual_seed(options.seed)
    config = configure(options)
    chunks = build(options, config)
    optimizer = get_megatron_optimizer(
        OptimizerConfig(
            optimizer="adam",
            lr=1e-4,
            bf16=True,
            params_dtype=torch.bfloat16,
            use_distributed_optimizer=options.distributed_optimizer,
            optimizer_cpu_offload=options.offload,
            optimizer_offload_fraction=1.0 if options.offload else 0.0,
            clip_grad=1.0,
        ),
        chunks,
        use_gloo_process_groups=False,
    )
    config.finalize_model_grads_func = finalize_model_grads
    config.grad_scale_func = optimizer.scale_loss
    schedule = get_forward_backward_func()
    data = [texts(options) for _ in chunks]
    for step in range(options.steps):
        for chunk in chunks:
            chunk.zero_grad_buffer()
        optimizer.zero_grad()
        schedule(
            forward_step_func=partial(forward_step, options),
            data_iterator=data if options.chunks else data[0],
            model=chunks if options.chunks else chunks[0],
            num_microbatches=options.micro_batches,
            seq_length=options.length,
            micro_batch_size=options.micro_batch,
            decoder_seq_length=options.length,
            forward_only=False,
        )
        optimizer.step()
        peak, reserved = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
        print(f"step {step}: peak allocated {peak >> 20} MiB, reserved {reserved >> 20} MiB, {peak / reserved:.3f}")


if __name__ == "__main__":
    main()
