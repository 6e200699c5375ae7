"""Tensors without memory that may be read, or with memory that must not be: a GPU does not crash at any, and a dry run does not either."""

import ctypes
import mmap
import os
import signal
import tempfile

import warnings

import torch
from torch._subclasses import FakeTensorMode


warnings.simplefilter("ignore")


class Wrapper(torch.Tensor):
    @classmethod
    def __torch_dispatch__(cls, function, types, arguments=(), named=None):
        return torch.ones(1)


device = torch.zeros(8, dtype=torch.int64).to("cuda")


def fake():
    with FakeTensorMode():
        for where in ("cpu", "cuda", "meta"):
            def scalars():
                return [torch.empty((), device=where)] * 2

            torch.stack(scalars()), torch.hstack(scalars()), torch._refs.stack(scalars()), torch.cat([torch.empty(3, device=where)] * 2)
            torch._refs.where(torch.empty(3, device=where) > 0, *scalars()), torch.clamp(torch.empty(3, device=where), max=scalars()[0])
            torch._foreach_add([torch.empty(3, device=where)], 1)


def kinds():
    whole = torch.arange(4).to("cuda")
    torch.vmap(lambda row: torch.stack([row, row + whole]).sum(0).argmax())(whole.repeat(3, 1))
    torch.func.grad(lambda x: torch.cat([x, x]).sum())(torch.ones(3, device="cuda"))
    sparse = torch.sparse_coo_tensor(torch.tensor([[0, 2]]).cuda(), torch.ones(2).cuda(), (4,))
    (sparse + sparse).to_dense()
    torch.sparse_csr_tensor(torch.tensor([0, 1, 2]), torch.tensor([0, 1]), torch.ones(2), (2, 2)).cuda().to_dense()
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], device="cuda")
    (nested + nested).mul_(2)
    number = torch.ones(3, dtype=torch.complex64, device="cuda")
    (number.conj() + 1).imag.neg() + number.conj().imag, torch.cat([number.conj(), number]), number.conj().zero_()
    torch._efficientzerotensor((3,), device="cuda") + torch.ones(3, device="cuda")
    torch.quantize_per_tensor(torch.ones(4), 0.1, 0, torch.quint8).cuda().int_repr().sum()
    meta = torch.empty(4, 4, device="meta", dtype=torch.int64)
    torch.cat([meta, meta]).sum(), meta.sort(), torch.take(meta, torch.empty(0, dtype=torch.int64, device="meta"))
    wrapped = torch.Tensor._make_wrapper_subclass(Wrapper, (3,), device="cuda", dtype=torch.float32)
    assert (wrapped + 1).device.type == torch.cat([wrapped, wrapped]).device.type == "cpu"


def released():
    for where in ("cpu", "cuda"):
        lost = torch.arange(8).to(where)
        lost.untyped_storage().resize_(0)
        torch.take(lost, torch.empty(0, dtype=torch.int64, device=where)), lost.view(2, 4)
    device.copy_(torch.arange(8))


def cut_off():
    with tempfile.NamedTemporaryFile() as file:
        os.truncate(file.name, 1 << 16)
        mapped = torch.from_file(file.name, shared=True, size=1 << 13, dtype=torch.int64)
        os.truncate(file.name, 0)
        torch.take(mapped, torch.empty(0, dtype=torch.int64))
        device[:0].copy_(mapped[:0])


def protected():
    page = mmap.PAGESIZE
    memory = mmap.mmap(-1, 3 * page)
    rows = torch.frombuffer(memory, dtype=torch.int64).as_strided((2,), (2 * page // 8,))
    rows += torch.tensor([3, 5])
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(address + page), ctypes.c_size_t(page), 0) == 0
    there = torch.zeros(2, dtype=torch.int64, device="cuda")
    there.copy_(rows)
    assert there.tolist() in ([3, 5], [0, 0]), there
    assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(address + page), ctypes.c_size_t(page), 3) == 0


def stale():
    """A block that is used again as another type holds none of its old values; nor does what a view of another kind writes to."""
    types = sorted({value for value in vars(torch).values() if isinstance(value, torch.dtype)}, key=str)
    for dtype in types:
        known = torch.arange(1, 65).to("cuda")
        del known
        try:
            again = torch.zeros(64 * 8 // dtype.itemsize, dtype=dtype, device="cuda")
        except (RuntimeError, NotImplementedError):
            continue  # a type that cannot be made so
        assert not any(again.view(torch.uint8).tolist()), dtype
        numbers = torch.arange(1, 17).to("cuda")
        try:
            numbers.view(dtype).zero_()
        except (RuntimeError, NotImplementedError):
            continue
        assert not any(numbers.tolist()), dtype
    numbers = torch.arange(1, 17).to("cuda")
    numbers.view(torch.float32).view(torch.complex64).conj().zero_()
    assert not any(numbers.tolist())


def draws():
    def route(logits):
        return logits.softmax(-1).topk(2)[1]

    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    logits = torch.randn(64, 8, device="cuda", requires_grad=True)
    route(logits)
    assert torch.rand(3).equal(expected), "the program's own numbers are what they are on a GPU"
    routes = []

    def layer(x):
        routes.append(route(x).tolist())
        return x * x

    torch.utils.checkpoint.checkpoint(layer, logits, use_reentrant=False).sum().backward()
    assert routes[0] == routes[1] and route(logits).tolist() != routes[0], "recomputed as it was"


def children():
    """A program that waits for all its children meets none of ours: cuDNN's process."""
    torch.nn.Conv2d(3, 7, 3).cuda()(torch.ones(1, 3, 41, 43, device="cuda"))
    mine = [os.fork() or os._exit(0) for _ in range(2)]
    signal.alarm(60)
    reaped = []
    try:
        while True:
            reaped.append(os.wait()[0])
    except ChildProcessError:
        signal.alarm(0)
    assert sorted(reaped) == sorted(mine), (reaped, mine)


for program in (fake, kinds, released, cut_off, protected, stale, draws, children):
    program()
    print(program.__name__, "passed", flush=True)
