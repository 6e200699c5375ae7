"""What a training script may call, one function each; prints which of them failed, and how.

Each function that is decorated runs on its own; what it returns must be true. With `compiled` as argument, those that need a compiler.
"""
import io
import json
import sys
import traceback

import torch
import torch.nn.functional as F
from torch import nn

CASES = {"plain": [], "compiled": []}
D = "cuda"


def case(function, kind="plain"):
    CASES[kind].append(function)
    return function


def compiled(function):
    return case(function, "compiled")


def trains(model, *inputs):
    """One step: the gradients have the shapes of the parameters."""
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    output = model(*inputs)
    output = output[0] if isinstance(output, tuple) else output
    output.float().sum().backward()
    optimizer.step()
    return all(p.grad.shape == p.shape for p in model.parameters())


def attention(backend):
    from torch.nn.attention import SDPBackend, sdpa_kernel

    q = torch.randn(2, 8, 128, 64, device=D, dtype=torch.bfloat16, requires_grad=True)
    with sdpa_kernel(getattr(SDPBackend, backend)):
        F.scaled_dot_product_attention(q, q, q).sum().backward()
    return q.grad.shape == q.shape


@case
def convolutions():
    image = torch.randn(2, 4, 16, 16, device=D)
    return (
        trains(nn.Conv2d(4, 8, 3, stride=2, padding=1).to(D), image)
        and trains(nn.Conv2d(4, 4, 3, groups=4).to(D), image)
        and trains(nn.Conv2d(4, 8, 3).to(D, torch.bfloat16, memory_format=torch.channels_last), image.bfloat16().to(memory_format=torch.channels_last))
        and trains(nn.ConvTranspose2d(4, 2, 2, stride=2).to(D), image)
        and trains(nn.Conv1d(4, 8, 3).to(D), image[:, :, 0])
        and trains(nn.Conv3d(4, 8, 3).to(D), image.unsqueeze(2).repeat(1, 1, 4, 1, 1))
    )


@case
def convolutions_that_are_timed_first():
    torch.backends.cudnn.benchmark = True
    try:
        return trains(nn.Conv2d(4, 8, 3).to(D), torch.randn(2, 4, 16, 16, device=D))
    finally:
        torch.backends.cudnn.benchmark = False


@case
def a_residual_network():
    model = nn.Sequential(nn.Conv2d(3, 8, 7, 2, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(3, 2, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10))
    with torch.autocast("cuda", torch.float16):
        return trains(model.to(D), torch.randn(2, 3, 64, 64, device=D))


@case
def recurrent_networks():
    x = torch.randn(4, 10, 16, device=D)
    return (
        trains(nn.LSTM(16, 32, 2, batch_first=True).to(D), x)
        and trains(nn.LSTM(16, 32, 2, batch_first=True, proj_size=8, bidirectional=True).to(D), x)
        and trains(nn.GRU(16, 32, 2, bidirectional=True, dropout=0.1).to(D), x)
        and trains(nn.RNN(16, 32, bias=False).to(D), x)
    )


@case
def attention_by_default():
    q = torch.randn(2, 8, 128, 64, device=D, dtype=torch.bfloat16, requires_grad=True)
    F.scaled_dot_product_attention(q, q, q, is_causal=True).sum().backward()
    return trains(nn.MultiheadAttention(64, 4).to(D), *[torch.randn(16, 2, 64, device=D)] * 3) or q.grad is not None


@case
def attention_flash():
    return attention("FLASH_ATTENTION")


@case
def attention_efficient():
    return attention("EFFICIENT_ATTENTION")


@case
def attention_cudnn():
    return attention("CUDNN_ATTENTION")


@case
def attention_math():
    return attention("MATH")


@case
def transformer_in_training_and_evaluation():
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(64, 4, batch_first=True), 2).to(D)
    x = torch.randn(2, 16, 64, device=D)
    trained = trains(model, x)
    with torch.no_grad():
        return trained and model.eval()(x).shape == x.shape


@case
def products_of_many_kinds():
    a, b = torch.randn(4, 8, 8, device=D), torch.randn(8, 8, device=D)
    e = b.to(torch.float8_e4m3fn)
    eights = torch.zeros(32, 32, dtype=torch.int8, device=D)
    one = torch.ones(1, device=D)
    wide = torch.randn(64, 64, device=D).to(torch.float8_e4m3fn)
    return (
        torch.bmm(a, a).shape == a.shape
        and (b.double() @ b.double()[0]).shape == (8,)
        and torch.einsum("bij,jk->bik", a, b).shape == a.shape
        and torch._int_mm(eights, eights).shape == (32, 32)
        and torch._scaled_mm(wide, wide.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16).shape == (64, 64)
        and e.dtype == torch.float8_e4m3fn
    )


@case
def sparse_matrices():
    coo = torch.sparse_coo_tensor(torch.tensor([[0, 1], [1, 0]]), torch.ones(2), (4, 4)).to(D)
    csr = torch.sparse_csr_tensor(torch.tensor([0, 1, 2]), torch.tensor([0, 1]), torch.ones(2), (2, 2)).to(D)
    return torch.sparse.mm(coo, torch.randn(4, 5, device=D)).shape == (4, 5) and (csr @ torch.randn(2, 3, device=D)).shape == (2, 3)


@case
def fourier_transforms():
    x = torch.randn(2, 4000, device=D)
    return torch.fft.rfft(x).shape == (2, 2001) and torch.fft.irfft(torch.fft.rfft(x)).shape == x.shape and torch.stft(x, 400, return_complex=True).shape[1] == 201


@case
def linear_algebra():
    a, many = torch.randn(64, 64, device=D), torch.randn(3, 40, 40, device=D)
    for matrix in (a, many):
        torch.linalg.svd(matrix), torch.linalg.qr(matrix), torch.linalg.eigh(matrix), torch.linalg.inv(matrix), torch.linalg.solve(matrix, matrix)
    torch.linalg.cholesky(a @ a.T), torch.linalg.lstsq(a, a), torch.linalg.det(a), torch.linalg.matrix_norm(a, 2), torch.linalg.pinv(a)
    return True


@case
def optimizers():
    for name, options in [("Adam", {"fused": True}), ("AdamW", {"foreach": True}), ("AdamW", {"capturable": True}), ("Adagrad", {}), ("RMSprop", {}), ("Adafactor", {}), ("LBFGS", {}), ("Muon", {})]:
        parameter = nn.Parameter(torch.randn(8, 8, device=D))
        optimizer = getattr(torch.optim, name)([parameter], lr=1e-3, **options)

        def closure(optimizer=optimizer, parameter=parameter):
            optimizer.zero_grad()
            loss = (parameter * parameter).sum()
            loss.backward()
            return loss

        optimizer.step(closure)
        optimizer.step(closure)
    return True


@case
def mixed_precision_with_a_scaler():
    model = nn.Linear(8, 8).to(D)
    optimizer, scaler = torch.optim.Adam(model.parameters()), torch.amp.GradScaler("cuda")
    for _ in range(3):
        with torch.autocast("cuda", torch.float16):
            loss = model(torch.randn(4, 8, device=D)).sum()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    return True


@case
def indexing_and_sorting():
    x, i = torch.randn(10, 10, device=D), torch.tensor([1, 2], device=D)
    x[i] = 0
    x[x > 0], torch.nonzero(x), x.masked_select(x > 0), x.unique(), x.sort(), x.topk(3), x.cumsum(0), x.median(), torch.histc(x)
    torch.multinomial(torch.ones(10, device=D), 2), torch.bincount(i), torch.repeat_interleave(i, i), x.index_add(0, i, x[:2])
    return F.ctc_loss(torch.randn(20, 2, 5, device=D).log_softmax(2), torch.ones(2, 5, dtype=torch.long, device=D), torch.tensor([20, 20]), torch.tensor([5, 5])).shape == ()


@case
def printing_and_checks():
    x = torch.randn(1000, 1000, device=D)
    finite = torch.isfinite(x.sum()) and torch.isfinite(x).all() and not torch.isinf(x).any() and not (~torch.isfinite(x)).any()
    close = torch.allclose(x, x) and torch.equal(x, x) and not (x > 0).any()
    torch.linalg.eig(x[:8, :8])  # refuses what is not finite
    torch.testing.assert_close(x, x)
    return "device='cuda:0'" in str(x) and not torch.isnan(x).any() and repr(x.bfloat16()) and finite and close


@case
def streams_and_events():
    stream, x = torch.cuda.Stream(priority=-1), torch.randn(100, device=D)
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    with torch.cuda.stream(stream):
        x.mul_(2).record_stream(stream)
    torch.cuda.current_stream().wait_event(stream.record_event())
    end.record()
    torch.cuda.synchronize()
    return stream.query() and end.query() and start.elapsed_time(end) > 0 and stream.priority == -1


@case
def graphs():
    model = nn.Linear(16, 16).to(D)
    x = torch.randn(4, 16, device=D, requires_grad=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = model(x).sum()
    graph.replay()
    torch.cuda.make_graphed_callables(nn.Linear(16, 16).to(D), (x,))(x).sum().backward()
    return y.shape == ()


@case
def a_graph_that_waits_fails_and_the_next_one_works():
    try:
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            torch.ones(1, device=D).item()
    except RuntimeError as error:
        return "captur" in str(error) and graphs()
    return False


@case
def pools_snapshots_and_history():
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        torch.empty(1000, device=D)
    torch.cuda.memory._record_memory_history()
    x = torch.randn(1 << 20, device=D)
    trace = torch.cuda.memory._snapshot()["device_traces"][0]
    torch.cuda.memory._record_memory_history(enabled=None)
    return trace[-1]["size"] == x.nbytes and torch.cuda.memory_snapshot() and torch.cuda.memory_summary()


@case
def page_locked_memory():
    x = torch.arange(1000.0).pin_memory()
    y = torch.empty(1000, pin_memory=True).copy_(x.to(D, non_blocking=True), non_blocking=True)
    return x.is_pinned() and torch.equal(x, y) and not torch.empty(3).is_pinned()


@case
def an_offload_of_four_gibibytes_takes_no_memory():
    import resource

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for pinned in (False, True):
        x = torch.empty(2 << 30, dtype=torch.uint8, device=D)
        x.copy_(torch.empty(2 << 30, dtype=torch.uint8, pin_memory=pinned).copy_(x))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000


@case
def data_loader_workers():
    from torch.utils.data import DataLoader, TensorDataset

    loader = DataLoader(TensorDataset(torch.arange(100.0)), 10, num_workers=2, pin_memory=True)
    return sum(batch.to(D, non_blocking=True).shape[0] for (batch,) in loader) == 100


@case
def threads():
    from concurrent.futures import ThreadPoolExecutor

    def work(_):
        with torch.cuda.stream(torch.cuda.Stream()):
            return trains(nn.Linear(64, 64).to(D), torch.randn(8, 64, device=D))

    with ThreadPoolExecutor(8) as pool:
        return all(pool.map(work, range(64)))


@case
def saving_and_loading():
    file = io.BytesIO()
    torch.save(nn.Linear(3, 3).to(D).state_dict(), file)
    file.seek(0)
    return torch.load(file)["weight"].shape == (3, 3)


@case
def the_profiler():
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], profile_memory=True) as recorded:
        torch.randn(100, 100, device=D) @ torch.randn(100, 100, device=D)
    return len(recorded.key_averages()) > 0


@case
def handles_of_tensors_for_other_processes():
    first, second = (torch.empty(10, device=D).untyped_storage()._share_cuda_() for _ in range(2))
    return first[0] == 0 and len(first[1]) >= 64 and first[1:4] != second[1:4]


@case
def a_collective_of_one_rank():
    import torch.distributed as dist

    dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
    x = torch.tensor([1.0, 2.0], device=D)
    dist.all_reduce(x)
    same = x.tolist() == [1, 2]
    wrapped = trains(nn.parallel.DistributedDataParallel(nn.Linear(8, 8).to(D), device_ids=[0]), torch.randn(2, 8, device=D))
    from torch.distributed.fsdp import fully_shard

    sharded = nn.Linear(8, 8).to(D)
    fully_shard(sharded)
    sharded(torch.randn(2, 8, device=D)).sum().backward()
    dist.destroy_process_group()
    return same and wrapped


@compiled
def compiled_code():
    function = torch.compile(lambda x: torch.relu(x @ x) + 1)
    x = torch.randn(64, 64, device=D, requires_grad=True)
    function(x).sum().backward()
    return x.grad.shape == x.shape


@compiled
def compiled_code_in_graphs():
    function = torch.compile(lambda x: torch.relu(x @ x) + 2, mode="reduce-overhead")
    x = torch.randn(64, 64, device=D)
    for _ in range(4):
        y = function(x)
    return y.shape == x.shape


failures = {}
for function in CASES[sys.argv[1]]:
    try:
        passed = function()
        torch.cuda.synchronize()
        if not passed:
            failures[function.__name__] = f"returned {passed!r}"
    except Exception:
        failures[function.__name__] = traceback.format_exc()
print(json.dumps({"ran": [function.__name__ for function in CASES[sys.argv[1]]], "failures": failures}))
