"""Trains models on the CPU: plain, recorded, served from the plan of what was recorded, and served by an arena that learns; two of them by one
that sleeps between operations, too, in pages that come and go.

numerics.py FOLDER STALLOC: leaves FOLDER/MODEL/{plain,record,serve}.json with every loss, a digest of the final weights and the
share of each step's requests that came from the plan, and FOLDER/MODEL/log/rank0_dev0.trace, every address of the served run.
Each run is a forked child, since importing PyTorch is what takes long.
"""

import contextlib
import hashlib
import json
import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path

os.environ["OMP_WAIT_POLICY"] = "passive"  # PyTorch's threads spin else, and this is one of several tests on few cores
import torch
import torch._dynamo  # as optimizers do
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
import host_memory
from stalloc import _native

RECORDED, STEPS = 6, 20
#: Seconds after each step: what learns in a thread of its own would be too late for steps as short as these.
PAUSE = 0.0
#: How many pauses the step before the smaller one is waited for a plan at most, however busy the machine is.
PATIENCE = 0
ANOTHER_SIZE = 12  # the step whose batch is smaller


def digest(*modules):
    """Of the bytes of all weights and buffers."""
    sha = hashlib.sha256()
    for module in modules:
        for name, tensor in module.state_dict().items():
            sha.update(name.encode() + tensor.contiguous().numpy().tobytes())
    return sha.hexdigest()


def rows(step, usual):
    return usual // 3 if step == ANOTHER_SIZE else usual


class Images(torch.utils.data.Dataset):
    """Made by the data loader's forked workers, which inherit tensors of the arena."""

    def __init__(self, length):
        self.length = length
        self.mean = torch.randn(3, 32, 32)

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        return self.mean + torch.randn(3, 32, 32, generator=generator), index % 10


def train(net, optimizer, loss_of, batches, shares=None):
    """Losses, exactly; and the share of each step's requests that came from the plan."""
    losses, before = [], host_memory.stats()
    for batch in batches:
        optimizer.zero_grad()
        loss = loss_of(net, *batch)
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item().hex())
        time.sleep(PAUSE)
        for _ in range(PATIENCE if len(losses) == ANOTHER_SIZE else 0):
            if host_memory.stats()["plans"]:
                break
            time.sleep(PAUSE)
        after = host_memory.stats()
        if before and shares is not None:
            shares.append((after["planned"] - before["planned"]) / (after["requests"] - before["requests"]))
        before = after
    return losses


def mlp(width):
    net = nn.Sequential(nn.Linear(256, width), nn.GELU(), nn.Linear(width, width), nn.Dropout(0.1), nn.Linear(width, 10))
    return net, torch.optim.Adam(net.parameters(), lr=1e-3)


def square(net, x, y):
    return nn.functional.mse_loss(net(x), y)


def random_batches(steps, shapes_of, generator):
    for step in range(steps):
        yield [torch.randn(shape, generator=generator) for shape in shapes_of(step)]


def run_mlp(steps, shares):
    net, optimizer = mlp(512)
    batches = random_batches(steps, lambda step: ((rows(step, 48), 256), (rows(step, 48), 10)), torch.Generator())
    return train(net, optimizer, square, batches, shares), digest(net)


def run_transformer(steps, shares):
    layer = nn.TransformerEncoderLayer(96, 4, 256, batch_first=True, dropout=0.1, activation="gelu")
    net = nn.Sequential(nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(96, 96))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    batches = random_batches(steps, lambda step: 2 * ((rows(step, 6), 32, 96),), torch.Generator())
    return train(net, optimizer, square, batches, shares), digest(net)


def run_convolutions(steps, shares):
    def block(inputs, outputs):
        return [nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(), nn.MaxPool2d(2)]

    net = nn.Sequential(*block(3, 16), *block(16, 32), nn.Flatten(), nn.Linear(32 * 64, 10))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    loader = torch.utils.data.DataLoader(Images(16 * steps), batch_size=16, num_workers=2)
    batches = ((x[: rows(step, 16)], labels[: rows(step, 16)]) for step, (x, labels) in enumerate(loader))
    return train(net, optimizer, lambda net, x, labels: nn.functional.cross_entropy(net(x), labels), batches, shares), digest(net)


def run_threads(steps, _shares):
    """Three models, each trained by a thread of its own; without dropout, whose random numbers they would share."""
    nets = [mlp(width) for width in (256, 320, 512)]
    losses = [None] * len(nets)

    def work(index):
        net, optimizer = nets[index]
        net.eval()
        batches = random_batches(steps, lambda step: ((rows(step, 24), 256), (rows(step, 24), 10)), torch.Generator())
        losses[index] = train(net, optimizer, square, batches)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(len(nets))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return losses, digest(*(net for net, _ in nets))


class Sleeps(TorchDispatchMode):
    """Before some operations all memory goes away, where an access would end the process, and comes back."""

    count, draw = 0, random.Random(3)

    def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
        if self.draw.random() < 0.02:
            for moved in _native.serve_sleep(-1, [], []), _native.serve_wake(-1, []):
                assert moved["bytes"] > 0
            Sleeps.count += 1
        return function(*arguments, **(keywords or {}))


def child(run, how, folder):
    """One run, from the first tensor on."""
    global PAUSE, PATIENCE
    context = contextlib.nullcontext()
    if how == "record":
        host_memory.record(folder)
    elif how == "serve":
        host_memory.serve(folder / "rank0_dev0.plan", folder / "log")
    elif how == "learn":
        PAUSE = 0.05
        PATIENCE = 6000 if run in (run_mlp, run_transformer) else 0  # those whose steps repeat
        host_memory.learn(folder / "learned")
    elif how == "sleep":
        os.environ["STALLOC_HOST_PAGES"] = "1"
        host_memory.learn()
        context = Sleeps()
    torch.manual_seed(1)
    torch.set_num_threads(2)
    shares = []
    with context:
        losses, weights = run(RECORDED if how == "record" else STEPS, shares)
    figures = {"losses": losses, "weights": weights, "shares": shares, "stats": host_memory.stats(), "sleeps": Sleeps.count}
    (folder / f"{how}.json").write_text(json.dumps(figures))


if __name__ == "__main__":
    base, stalloc = Path(sys.argv[1]), sys.argv[2]
    for run in (run_mlp, run_transformer, run_convolutions, run_threads):
        folder = base / run.__name__.removeprefix("run_")
        folder.mkdir()
        sleeps = ("sleep",) if run in (run_mlp, run_transformer) else ()
        for how in ("plain", "record", "serve", "learn", *sleeps):
            pid = os.fork()
            if pid == 0:
                child(run, how, folder)
                sys.exit()  # as any program ends
            if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) != 0:
                sys.exit(f"{folder.name}: {how} failed")
            if how == "record":
                trace = folder / "rank0_dev0.trace"
                subprocess.run([stalloc, "plan", trace, "-o", trace.with_suffix(".plan")], check=True, capture_output=True)
