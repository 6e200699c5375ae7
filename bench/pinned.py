"""Pinned memory of jobs that offload: what is held for what they have, by PyTorch's allocator of pinned memory and by stalloc's.

    PYTHONPATH=$(scripts/python-package) $(scripts/python-env) bench/pinned.py [--write]      # on the stand-in GPU

What a job has is counted by the job: the bytes of each pinned tensor from when it is made until it is gone.
"""

import random
import threading
import weakref

from lib import processes

WAYS = ("PyTorch", "stalloc")
STEPS = 6


class Counted:
    """Counts the bytes of pinned tensors that are alive."""

    def __init__(self) -> None:
        import torch

        self.live = self.peak = self.made = 0
        self.lock = threading.RLock()  # a tensor may go while another is counted
        for owner, name in ((torch, "empty"), (torch.Tensor, "pin_memory")):
            self.count(owner, name)

    def count(self, owner, name: str) -> None:
        function = getattr(owner, name)

        def counted(*arguments, **options):
            tensor = function(*arguments, **options)
            if name == "pin_memory" or options.get("pin_memory"):
                self.change(tensor.nbytes)
                weakref.finalize(tensor, self.change, -tensor.nbytes)
            return tensor

        setattr(owner, name, counted)

    def change(self, bytes: int) -> None:
        with self.lock:
            self.made += bytes > 0
            self.live += bytes
            self.peak = max(self.peak, self.live)


def model():
    return processes.model(length=1024, width=1280, heads=20)


def to_host(tensor):
    import torch

    return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True).copy_(tensor, non_blocking=True)


def optimizer():
    """Optimizer states of fp32 and gradients on the host, one tensor for each parameter."""
    import torch

    net = model()
    kept = [[torch.empty(p.shape, dtype=torch.float32, pin_memory=True) for _ in range(3)] for p in net.parameters()]
    for _ in range(STEPS):
        net(torch.zeros(4, 513, dtype=torch.long, device="cuda")).backward()
        gradients = [to_host(p.grad) for p in net.parameters()]
        torch.cuda.synchronize()
        for p, (weight, *_), _gradient in zip(net.parameters(), kept, gradients):
            p.data.copy_(weight, non_blocking=True)
        net.zero_grad()
        del gradients
    return kept


def activations(lengths=(513, 777, 300, 1000)):
    """Activations on the host (`save_on_cpu`), texts of four lengths."""
    import torch

    net = model()
    for step in range(STEPS):
        with torch.autograd.graph.save_on_cpu(pin_memory=True):
            loss = net(torch.zeros(2, lengths[step % len(lengths)], dtype=torch.long, device="cuda"))
        loss.backward()
        net.zero_grad()


class Images:
    """Images of a size of their own, in bytes."""

    def __len__(self) -> int:
        return 240

    def __getitem__(self, index: int):
        import torch

        height, width = 200 + index * 37 % 300, 220 + index * 53 % 280
        return torch.zeros(3, height, width), torch.tensor(index)


def loader():
    """A data loader with `pin_memory`, images of many sizes."""
    from torch.utils.data import DataLoader

    for _ in range(2):
        for batch in DataLoader(Images(), batch_size=12, num_workers=2, pin_memory=True, collate_fn=list):
            for image, _label in batch:
                image.to("cuda", non_blocking=True)


def weights():
    """Weights of a model kept on the host, layer by layer to the GPU and back."""
    import torch

    net = model()
    kept = {name: to_host(p) for name, p in net.named_parameters()}
    for _ in range(STEPS):
        for name, p in net.named_parameters():
            p.data = kept[name].to("cuda", non_blocking=True)
            changed = to_host(p.data)
            torch.cuda.current_stream().synchronize()
            kept[name] = changed
    return kept


def checkpoints():
    """Checkpoints copied to the host while the one before is still being written, weights and states of AdamW."""
    import torch

    net = model()
    adam = torch.optim.AdamW(net.parameters())
    written = None
    for step in range(2 * STEPS):
        net(torch.zeros(4, 257, dtype=torch.long, device="cuda")).backward()
        adam.step()
        adam.zero_grad()
        if step % 2:
            states = [value for state in adam.state.values() for value in state.values() if value.is_cuda]
            staged = [to_host(value) for value in (*net.state_dict().values(), *states)]
            torch.cuda.synchronize()
            written = staged  # those of the one before go one after the other
            del staged
    return written


def caches():
    """Key-value caches of 8 layers, of texts of many lengths, sent to the host and fetched again in any order."""
    import torch

    draw = random.Random(1)
    waiting = []
    for _ in range(300):
        length = draw.randrange(100, 3000)
        waiting.append([to_host(torch.empty(2, length, 20, 64, dtype=torch.bfloat16, device="cuda")) for _ in range(8)])
        if len(waiting) > draw.randrange(10, 20):
            for cache in waiting.pop(draw.randrange(len(waiting))):
                cache.to("cuda", non_blocking=True)
            torch.cuda.synchronize()


def experts():
    """Experts of many sizes kept on the host, fetched in any order and sent back changed."""
    import torch

    draw = random.Random(2)
    kept = [to_host(torch.empty(draw.randrange(500, 6000), 1024, dtype=torch.bfloat16, device="cuda")) for _ in range(200)]
    for _ in range(2000):
        index = draw.randrange(len(kept))
        changed = to_host(kept[index].to("cuda", non_blocking=True))
        torch.cuda.synchronize()
        kept[index] = changed
    return kept


class Speech:
    """Sound of a length of its own."""

    def __init__(self, many: int, seed: int) -> None:
        draw = random.Random(seed)
        self.lengths = [draw.randrange(20_000, 500_000) for _ in range(many)]

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: int):
        import torch

        return torch.zeros(self.lengths[index])


def padded(sounds: list):
    import torch

    return torch.nn.utils.rnn.pad_sequence(sounds, batch_first=True), torch.tensor([len(sound) for sound in sounds])


def speech():
    """Two data loaders with `pin_memory`, for training and evaluation in turns: sound padded to the longest of its batch."""
    from torch.utils.data import DataLoader

    for _ in range(2):
        for many, seed, batch in ((320, 1, 16), (96, 2, 24)):
            for sounds, lengths in DataLoader(Speech(many, seed), batch_size=batch, num_workers=2, pin_memory=True, collate_fn=padded):
                sounds.to("cuda", non_blocking=True), lengths.to("cuda", non_blocking=True)


def together():
    """Optimizer states, activations and a data loader in one job."""
    held = optimizer()
    activations()
    loader()
    return held


WORKLOADS = (optimizer, activations, loader, weights, checkpoints, speech, caches, experts, together)


def start():
    import torch

    counted = Counted()
    torch.cuda.init()

    def figures() -> dict[str, int]:
        torch.cuda.synchronize()
        stats = torch.cuda.host_memory_stats()
        return {
            "live": counted.peak,
            "tensors": counted.made,
            "reserved": stats["allocated_bytes.peak"],
            "calls": stats["num_host_alloc"] + stats["num_host_free"],
            "taken": stats["allocated_bytes.allocated"],
        }

    return figures


def row(workload) -> list[str]:
    found = {way: processes.measure(workload, "run", STALLOC_PINNED=str(int(way == "stalloc"))) for way in WAYS}
    ours = found["stalloc"]
    return [
        f"{ours['tensors']:,}",
        f"{ours['live'] >> 20:,}",
        *(f"{figures['reserved'] / figures['live']:.3f}" for figures in found.values()),
        *(f"{figures['calls']:,} · {figures['taken'] / figures['live']:.1f}" for figures in found.values()),
    ]


if __name__ == "__main__":
    processes.main(WORKLOADS, start, row, ["job", "tensors", "live, MiB", *WAYS, *(f"calls, {way}" for way in WAYS)], "pinned")
