"""Small programs of kinds that nobody listed: what each reads on the stand-in is what it reads on the host, or not known there.

Its arguments are the programs to run, else all. A program is a function of a device that gives tensors and numbers.
"""

import contextlib
import ctypes
import gc
import os
import sys
import tempfile
import threading
import traceback
import warnings

import numpy
import torch
from torch import nn
from torch.utils._pytree import tree_flatten, tree_map

warnings.simplefilter("ignore")
programs = []


def program(function):
    programs.append(function)
    return function


def judged(got, expected):
    """What is wrong, in words; numbers that a dry run does not know are zero or small."""
    got, expected = tree_flatten(got)[0], tree_flatten(expected)[0]
    for index, (one, other) in enumerate(zip(got, expected, strict=True)):
        one, other = (torch.as_tensor(value).detach().cpu().resolve_conj().resolve_neg() for value in (one, other))
        if one.shape != other.shape:
            return f"{index} is of {tuple(one.shape)}, not {tuple(other.shape)}"
        one, other = (torch.view_as_real(value) if value.is_complex() else value for value in (one, other))
        one, other = one.double(), other.double()
        unknown = (one == 0) | (one > 0.0055) & (one < 0.0151)
        if not (torch.isclose(one, other, rtol=1e-3, atol=1e-5) | unknown).all():
            return f"{index} is {one.flatten()[:8].tolist()}, not {other.flatten()[:8].tolist()}"
    return None


def ints(device, *sizes):
    return torch.arange(1, 1 + int(numpy.prod(sizes))).reshape(sizes).to(device, copy=True)


def numbers(device, *values):
    return torch.tensor(values).to(device)


class Wrapped(torch.Tensor):
    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, device=inner.device, strides=inner.stride())

    def __init__(self, inner):
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, function, types, arguments=(), named=None):
        arguments, named = tree_map(lambda value: value.inner if isinstance(value, Wrapped) else value, (arguments, named or {}))
        return tree_map(lambda value: Wrapped(value) if isinstance(value, torch.Tensor) else value, function(*arguments, **named))


@program
def dispatching_subclass(device):
    inner = ints(device, 4)
    wrapped = Wrapped(inner)
    wrapped.add_(3)
    twice = torch.cat([wrapped, wrapped]) * 2
    Wrapped(inner[1:]).zero_()
    return inner, twice.inner, torch.stack([Wrapped(inner), wrapped]).sum().inner


@program
def subclass_of_functions(device):
    class Named(torch.Tensor):
        pass

    base = ints(device, 6)
    named = base.as_subclass(Named)
    named.add_(1).clamp_(max=4)
    return base, [value.as_subclass(torch.Tensor) for value in (named.sum(), (named > 3).nonzero())]


class Looked(nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.register_buffer("table", torch.arange(4) * factor)

    def forward(self, index):
        return self.table[index] + index


@program
def vmapped(device):
    models = [Looked(factor).to(device) for factor in (1, 2, 3)]
    _, buffers = torch.func.stack_module_state(models)
    index = numbers(device, 0, 3, 1)
    out = torch.func.vmap(lambda held: torch.func.functional_call(models[0], held, (index,)))(buffers)
    rows, marked = ints(device, 3, 4), ints(device, 3, 4)
    torch.func.vmap(lambda row: row.add_(row[0].clone()))(rows)
    torch.func.vmap(lambda row, at: row.scatter_(0, at[None], 77))(marked, numbers(device, 0, 2, 3))
    return out, rows, marked


class Scaled(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x, number):
        return x * number

    @staticmethod
    def setup_context(context, inputs, output):
        context.save_for_backward(inputs[1])

    @staticmethod
    def backward(context, gradient):
        (number,) = context.saved_tensors
        return gradient * (number + 1), None


@program
def differentiated(device):
    x, number = numbers(device, 1.0, -2.0, 3.0), numbers(device, 1, 2, 3)
    gradient = torch.func.grad(lambda x: Scaled.apply(x, number).sum())(x)
    each = torch.func.vmap(torch.func.grad(Scaled.apply))(x, number)
    pushed = torch.func.jvp(lambda x: torch.where(x > 0, x * 2, x * 0), (x,), (torch.ones_like(x),))
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, torch.ones_like(x)) * 3
        dual.add_(1)
        both = [value.clone() for value in torch.autograd.forward_ad.unpack_dual(dual)]
    return gradient, each, pushed, both, torch.func.hessian(lambda x: (x**3).sum())(x)


@program
def functionalized(device):
    def change(x):
        x.view(-1)[1:3].add_(10)
        x.view(2, 2)[0] = 7
        return x + 1

    x = ints(device, 4)
    return torch.func.functionalize(change)(x), x


@program
def compiled(device):
    torch._dynamo.reset()

    @torch.compile(backend="eager", dynamic=True)
    def pick(x, number):
        x.add_(number)
        return x[x % 2 == 0] * 2

    @torch.compile(backend="aot_eager")
    def weigh(x, weight, index):
        index.add_(1)
        return (weight[index] * x).sum(), index * 2

    a, b = ints(device, 6), ints(device, 9)
    index = numbers(device, 0, 3, 3)
    weight = torch.ones(8, 2).to(device).requires_grad_()
    loss, twice = weigh(numbers(device, 2.0, 3.0), weight, index)
    loss.backward()
    picked = pick(a, 1), pick(b, 2)
    assert [one.tolist() for one in picked] == [[4, 8, 12], [8, 12, 16, 20]], "nothing of ours is compiled along"
    return picked, a, b, loss, twice, index, weight.grad


@program
def exported(device):
    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.zeros(3, dtype=torch.int64))

        def forward(self, x):
            self.count.add_(x.sum())
            return self.count + x, x.cumsum(0)

    x = numbers(device, 1, 2, 3)
    module = torch.export.export(Counts().to(device), (x,)).module()
    return module(x), module(x), [buffer for _, buffer in module.named_buffers()]


@program
def traced(device):
    from torch.fx.experimental.proxy_tensor import make_fx

    def grow(x):
        y = x.clone()
        y[: x.shape[0] // 2] += 1
        return torch.cat([y, x]).cumsum(0)

    x = ints(device, 6)
    symbolic, fake = (make_fx(grow, tracing_mode=mode)(x) for mode in ("symbolic", "fake"))
    old = torch.jit.trace(lambda x: (x * 2).cumsum(0), ints(device, 3))
    return symbolic(x), symbolic(ints(device, 8)), fake(x), x, old(ints(device, 5))


@program
def scripted(device):
    @torch.jit.script
    def add(x, times: int):
        for number in range(times):
            x.add_(number)
        return x.sum()

    x = ints(device, 5)
    return add(x, 3), add(x, 2), x


@program
def nested(device):
    values, offsets = torch.arange(10.0).reshape(10, 1).to(device), numbers(device, 0, 3, 4, 10)
    jagged = torch.nested.nested_tensor_from_jagged(values, offsets)
    strided = torch.nested.nested_tensor([torch.arange(2.0), torch.arange(3.0)], device=device)
    zeros = strided.clone()
    zeros.zero_()
    padded = [torch.nested.to_padded_tensor(value, 0.0) for value in (jagged, strided, zeros)]
    return (jagged * 2).values(), offsets.diff(), list(jagged.unbind()), padded, values, strided._nested_tensor_size()


@program
def sharded(device):
    import torch.distributed
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    if not torch.distributed.is_initialized():
        store = torch.distributed.HashStore()
        torch.distributed.init_process_group("cpu:gloo,cuda:nccl", store=store, rank=0, world_size=1)
    mesh = init_device_mesh(device, (1,))
    whole = distribute_tensor(torch.arange(8).to(device), mesh, [Shard(0)])
    whole.add_(2)
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)).to(device)
    for part in (*model, model):
        fully_shard(part, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    for _ in range(2 if device == "cuda" else 0):  # PyTorch 2.6 cannot on the host
        model(torch.ones(2, 8, device=device)).sum().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    both = torch.stack([whole, whole]).sum(0)
    return whole.to_local(), both.full_tensor(), whole.redistribute(mesh, [Replicate()]).to_local(), whole.max().full_tensor()


@program
def sparse(device):
    dense = torch.tensor([[0.0, 2, 0], [3, 0, 4]]).to(device)
    rows = dense.to_sparse_csr()
    places = torch.sparse_coo_tensor(torch.tensor([[1, 0, 0, 1], [2, 1, 1, 0]]), torch.tensor([1, 2, 5, 3]), (2, 3)).to(device)
    once = places.coalesce()
    once.values().add_(1)
    table = nn.Embedding(10, 2, sparse=True).to(device)
    table(numbers(device, 5, 1, 5)).sum().backward()
    optimizer = torch.optim.SparseAdam(table.parameters())
    optimizer.step()
    blocks = torch.ones(4, 4).to(device).to_sparse_bsr((2, 2))
    gradient = table.weight.grad.coalesce()
    shapes = [list(value.shape) for value in (once.values(), gradient.values())]
    return once.indices(), gradient.indices(), shapes, rows.crow_indices(), rows.to_dense(), places.to_dense(), blocks.crow_indices()


@program
def lazily_negated(device):
    flat = torch.arange(1.0, 9).to(device)
    number = torch.view_as_complex(flat.view(4, 2))
    other = number.conj()
    before = other.imag.clone()
    other.imag.mul_(2)
    other.add_(1)
    other[1:2] = 3 + 4j
    negated = torch._neg_view(ints(device, 3))
    more = negated + 1
    negated.add_(5)
    return before, flat, torch.cat([other, number]).sum(), more, negated, numbers(device, 1, 2).to(torch.complex64).conj().real.long()


@program
def memory_of_numpy(device):
    array = numpy.arange(64)
    mask = torch.from_numpy(array % 3 == 0).to(device, non_blocking=True)
    copied = torch.from_numpy(array).to(device, copy=True)
    array[:] = 0
    gc.collect()
    odd = torch.tensor([2, 0, 255], dtype=torch.uint8).view(torch.bool).to(device)  # truth values that are neither 0 nor 1
    turned = torch.from_numpy(numpy.arange(6).reshape(2, 3).T).to(device)
    return mask, copied, mask.sum(), copied[mask], odd.any(), turned


@program
def pinned(device):
    def page_locked(tensor):
        return tensor.pin_memory() if device == "cuda" else tensor

    host = page_locked(torch.arange(8))
    there = host.to(device, non_blocking=True, copy=True)
    torch.cuda.synchronize()
    host.zero_()
    back = page_locked(torch.empty(8, dtype=torch.int64))
    back.copy_(there * 2, non_blocking=True)
    torch.cuda.synchronize()
    return there, back, (back + 1).to(device)


class Interface:
    def __init__(self, address, count):
        shape = {"shape": (count,), "typestr": "<i8", "strides": None}
        self.__cuda_array_interface__ = {**shape, "data": (address, False), "version": 3}


@program
def mapped_for_both(device):
    """Memory of the host that is a tensor of the device as well."""
    host = torch.arange(1, 9)
    there = host
    if device == "cuda":
        host = host.pin_memory()
        there = torch.as_tensor(Interface(host.data_ptr(), 8), device="cuda")
    there.add_(1)
    first = there.clone()
    host.copy_(torch.arange(20, 28))
    second = there + 0
    host[0] = 50
    return first if device == "cpu" else first * 0, second, there.sum(), (there > 21).sum()


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return torch.arange(index, index + 4), torch.tensor(index % 2 == 0)


@program
def shared_memory(device):
    loaded = []
    for numbers, mask in torch.utils.data.DataLoader(Data(), 4, num_workers=2, pin_memory=device == "cuda"):
        numbers, mask = numbers.to(device, non_blocking=True), mask.to(device, non_blocking=True)
        loaded += [numbers, numbers[mask], mask.sum()]
    shared = torch.arange(16).share_memory_().to(device, copy=True)
    own = torch.tensor([], dtype=torch.int64).set_(torch.UntypedStorage._new_shared(64), 0, (8,)).copy_(torch.arange(8))
    return loaded, shared, torch.cat([own.to(device), shared]).cumsum(0)


@program
def mapped_file(device):
    with tempfile.TemporaryDirectory() as folder:
        torch.save({"numbers": torch.arange(1000), "mask": torch.arange(1000) % 7 == 0}, f"{folder}/saved.pt")
        host = torch.load(f"{folder}/saved.pt", mmap=True)
        there = torch.load(f"{folder}/saved.pt", mmap=True, map_location=device)
        os.unlink(f"{folder}/saved.pt")
        return host["numbers"].to(device)[host["mask"].to(device)], there["numbers"][there["mask"]], there["numbers"].sum()


@program
def made_later(device):
    from torch._subclasses import FakeTensorMode

    real = ints(device, 6)
    with FakeTensorMode() as mode:
        fake = mode.from_tensor(real)
        fake.zero_().add_(3)
        torch.cat([fake, fake])[1:3].fill_(9)
        weight = torch.ones(4, device=device).requires_grad_()
        (weight * weight).sum().backward()
    with torch.device("meta"):
        models = Looked(2), Looked(3)
    models[0].to_empty(device=device).table.copy_(torch.arange(4))
    models[1].load_state_dict({"table": torch.arange(4, 8).to(device)}, assign=True)
    return real, real.sum(), [model.table for model in models], models[0].table + models[1].table


@program
def swapped(device):
    a, b = ints(device, 4), ints(device, 3) * 10
    torch.utils.swap_tensors(a, b)
    a.add_(1)
    x, y = ints(device, 4), ints(device, 4) + 100
    x.data = y
    x.add_(1)
    return a, b, y, x


@program
def storages(device):
    a = ints(device, 8)
    part = torch.zeros(2, dtype=torch.int64).to(device).set_(a.untyped_storage(), 2, (3,), (2,))
    twice = part * 2
    part.fill_(0)
    half = torch.empty(0, dtype=torch.int32, device=device).set_(a.untyped_storage(), 0, (16,), (1,))
    half[0] = 500
    states = [twice, a.clone(), half.clone()]
    storage = a.untyped_storage()
    for change in (
        lambda: storage.fill_(0),
        lambda: storage.__setitem__(0, 5),
        lambda: storage.copy_((ints(device, 8) * 3).untyped_storage()),
        lambda: torch.storage.TypedStorage(wrap_storage=storage, dtype=torch.int64, _internal=True).fill_(4),
    ):
        change()
        states.append(a + 1)
    gone = ints(device, 1024)
    gone.untyped_storage().resize_(0)
    ints(device, 1024).mul_(7)  # may take the same memory
    gone.untyped_storage().resize_(8 * 1024)
    gone.copy_(torch.arange(1024))
    longer = ints(device, 8)
    longer.untyped_storage().resize_(64 * 8)
    return states, gone.sum(), longer, torch.tensor([], dtype=torch.int64).set_(storage.cpu(), 0, (8,))


@program
def few_bits(device):
    quantized = torch.quantize_per_tensor(torch.arange(4.0), 1.0, 0, torch.quint8).to(device)
    packed = (ints(device, 4) & 0xF | ints(device, 4) << 4).to(torch.uint8)
    looked_up = torch.arange(16, dtype=torch.int8).to(device)[(packed & 0xF).long()]
    bits = numbers(device, 1.5, -2.0).view(torch.int32)
    small = torch.arange(4.0).to(device).to(torch.float8_e4m3fn).view(torch.uint8)
    whole = ints(device, 4)
    whole.view(torch.int32)[::2] = 9
    halves = ints(device, 4)
    halves.view(torch.float16)[:4].fill_(0)
    ones = torch.zeros(2).to(device)
    ones.view(torch.int32).fill_(0x3F800000)
    number = ints(device, 4)
    number.view(torch.complex64).zero_()
    number.view(torch.uint8)[8] = 3
    return quantized.int_repr(), quantized.dequantize(), packed, packed >> 4, looked_up, bits, small, whole, halves, ones, number


@program
def aliases(device):
    a = ints(device, 6)
    torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(a)).add_(1)
    torch.from_dlpack(a[2:]).zero_()
    alias = torch.as_tensor(Interface(a.data_ptr(), 6), device="cuda") if device == "cuda" else a.view(-1)
    alias[0] = 42
    turned = ints(device, 3, 3)
    turned.t().diagonal().zero_()
    turned.unfold(0, 2, 1)[0].mul_(-1)
    row = ints(device, 2, 3)
    row.transpose_(0, 1)[0] = 0
    deep = ints(device, 2, 1, 2, 1, 2, 1, 2)
    turned_deep = deep.permute(6, 5, 4, 3, 2, 1, 0).add(1)
    deep[..., 0].zero_()
    return a, alias, a.as_strided((3, 2), (1, 1)) * 10, turned, row, deep, turned_deep, deep.sum((0, 2)), ints(device, 1).expand(5) + 1


@program
def captured(device):
    """What is captured is not done before it is replayed."""
    a, b, x = ints(device, 4), torch.zeros(4, dtype=torch.int64).to(device), torch.zeros(4, dtype=torch.int64).to(device)

    def work():
        a.add_(1)
        b.copy_(a * 2)
        return x * 2 + 1

    graph = torch.cuda.CUDAGraph()
    if device == "cuda":
        with torch.cuda.graph(graph):
            y = work()
    seen = []
    for number in (1, 2, 3):
        x.copy_(torch.arange(4) * number)
        if device == "cuda":
            graph.replay()
        else:
            y = work()
        seen += [y.clone(), y.sum(), a.clone()]
    return seen, a, b, (b > 10).sum()


@program
def copied_by_hand(device):
    """The runtime's own functions, that a library calls."""
    a, b = ints(device, 8), ints(device, 8) * 3
    if device == "cpu":
        a[:4], a[6:] = b[:4].clone(), torch.tensor([70, 80])
        b[:2] = 0
        return a, b, a + b
    runtime = ctypes.CDLL(None)
    place, size = ctypes.c_void_p, ctypes.c_size_t
    assert runtime.cudaMemcpy(place(a.data_ptr()), place(b.data_ptr()), size(32), 3) == 0
    assert runtime.cudaMemcpy(place(a.data_ptr() + 48), (ctypes.c_int64 * 2)(70, 80), size(16), 1) == 0
    assert runtime.cudaMemset(place(b.data_ptr()), 0, size(16)) == 0
    return a, b, a + b


@program
def operations_of_its_own(device):
    if "any_kind_bump" not in globals():

        @torch.library.custom_op("any_kind::bump", mutates_args=("x",))
        def bump(x: torch.Tensor, number: int) -> torch.Tensor:
            x.add_(number)
            return x * 2

        def hidden(x):
            x.mul_(2)  # which its schema does not say
            return x.sum()

        library = torch.library.Library("any_kind", "FRAGMENT")
        library.define("hidden(Tensor x) -> Tensor")
        library.impl("hidden", hidden, "CompositeExplicitAutograd")
        globals().update(any_kind_bump=bump, any_kind_library=library)
    a, b = ints(device, 4), ints(device, 4)
    return torch.ops.any_kind.bump(a, 3), a, torch.ops.any_kind.hidden(b), b


@program
def lists(device):
    many = [ints(device, 3), ints(device, 2, 2)]
    torch._foreach_add_(many, 2)
    products = torch._foreach_mul(many, 3)
    kept = [one.clone() for one in products]
    torch._foreach_copy_(many, [torch.zeros_like(one) for one in many])
    torch._foreach_zero_(products)
    weight = nn.Parameter(torch.ones(3).to(device))
    steps = []
    for optimizer in (torch.optim.Adam([weight], fused=True), torch.optim.AdamW([weight], foreach=True, capturable=device == "cuda")):
        for _ in range(3):
            weight.grad = torch.ones_like(weight)
            optimizer.step()
        steps.append(optimizer.state[weight]["step"])
    return many, products, kept, steps


@program
def placed(device):
    """Tensors that are made empty and written to, element by element."""
    order = numbers(device, 2, 0, 3, 1)
    inverse, other, rows = (torch.empty_like(order) for _ in range(3))
    inverse[order] = torch.arange(4, device=device)
    other.scatter_(0, order, torch.arange(4, device=device))
    rows.index_copy_(0, order, torch.arange(4, device=device))
    half = torch.full((4,), 9, device=device).float().sigmoid().long() + 0
    half[order[:2]] = 5
    lengths = torch.tensor([3, 1, 2])
    packed = nn.utils.rnn.pack_padded_sequence(torch.arange(9.0).reshape(3, 3, 1).to(device), lengths, batch_first=True, enforce_sorted=False)
    unpacked, back = nn.utils.rnn.pad_packed_sequence(packed, batch_first=True)
    assert inverse.tolist() == [1, 3, 0, 2] and back.equal(lengths), (inverse, back)
    return inverse, other, rows, packed.batch_sizes, packed.sorted_indices, unpacked, back


@program
def drawn(device):
    generator = torch.Generator(device).manual_seed(3)
    alone = torch.randint(5, 6, (4,), generator=generator, device=device)
    ones = torch.multinomial(torch.ones(1, 1).to(device), 1), torch.bernoulli(torch.ones(3).to(device))
    return alone, torch.randperm(6, device=device).sort()[0], ones, generator.get_state().dtype == torch.uint8


@program
def conditions(device):
    torch._dynamo.reset()
    x = ints(device, 4)
    return torch.cond(x.sum() > 5, lambda x: x + 1, lambda x: x - 1, (x,))


@program
def saved_elsewhere(device):
    mask, index = ints(device, 4) % 2 == 0, numbers(device, 0, 2)
    x = torch.ones(4).to(device).requires_grad_()
    with torch.autograd.graph.save_on_cpu(pin_memory=device == "cuda"):
        (torch.where(mask, x, 0 * x).sum() * ints(device, 1).float()[0]).backward()
    torch.utils.checkpoint.checkpoint(lambda x: x[index] * 3, x, use_reentrant=True).sum().backward()
    with torch.autograd.graph.saved_tensors_hooks(lambda one: (one.device, one.cpu()), lambda both: both[1].to(both[0])):
        (x[index] * index).sum().backward()
    return mask, x.grad, index


@program
def inferred(device):
    with torch.inference_mode():
        a = ints(device, 4)
        a.add_(1)
        a[1:].zero_()
    with torch.inference_mode():
        a.add_(3)
    with torch.autocast(device, dtype=torch.bfloat16):
        product = nn.Linear(4, 4).to(device)(torch.ones(2, 4).to(device))
        back = (ints(device, 4) * 2)[1:].to(torch.bfloat16).long()
    lazy = nn.LazyLinear(3).to(device)
    lazy(torch.ones(2, 5).to(device))
    return a, (a > 3).nonzero(), back, product.dtype == torch.bfloat16, tuple(lazy.weight.shape)


@program
def threads(device):
    """Memory of the host that is being written while it is looked at."""
    host = torch.zeros(1 << 16, dtype=torch.int64)
    is_over = threading.Event()

    def write():
        while not is_over.is_set():
            host.numpy()[:] = 1
            host.numpy()[:] = 0

    def add(number):
        x = ints(device, 4) * number
        for _ in range(20):
            x.add_(1)
        sums[number] = x

    sums = {}
    workers = [threading.Thread(target=write), *(threading.Thread(target=add, args=(number,)) for number in range(4))]
    for worker in workers:
        worker.start()
    with contextlib.ExitStack() as stack:
        stack.callback(is_over.set)
        for _ in range(20):
            there = host.to(device)
            sure = ((there >= 0) & torch.cat([there, there]).max().le(1)).all()
    for worker in workers:
        worker.join()
    return sure, [sums[number] for number in range(4)]


@program
def streams(device):
    a = ints(device, 1 << 12)
    stream = torch.cuda.Stream() if device == "cuda" else None
    with torch.cuda.stream(stream):
        b = a * 2
        chosen = b[b % 4 == 0]
    torch.cuda.synchronize()
    return b, chosen, chosen.sum()


@program
def used_again(device):
    """A block that held known numbers, taken by what is not computed."""
    out = []
    for dtype in (torch.float32, torch.float64, torch.complex64):
        known = torch.arange(1, 513).to(device)
        del known
        out.append(torch.empty(512, dtype=dtype, device=device).fill_(0) * 0)
    known = torch.arange(1, 513).to(device)
    del known
    out.append(nn.Linear(16, 16, bias=False).to(device)(torch.zeros(8, 16).to(device)))
    return out


failed = 0
for function in programs:
    if not sys.argv[1:] or function.__name__ in sys.argv[1:]:
        print("begins", function.__name__, file=sys.stderr, flush=True)  # the last one, where it crashes
        try:
            torch.manual_seed(1)
            expected = tree_map(lambda one: one.clone() if isinstance(one, torch.Tensor) else one, function("cpu"))
            torch.manual_seed(1)
            wrong = judged(function("cuda"), expected)
        except Exception:
            wrong = traceback.format_exc()
        failed += wrong is not None
        print(function.__name__, wrong or "passed", file=sys.stderr, flush=True)
print(len(programs), "programs,", failed, "failed", file=sys.stderr)
