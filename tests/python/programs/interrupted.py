"""Interrupted as Ctrl-C and alarms do, while it trains: no exception of a handler may be lost."""

import signal
import time

import torch

model = torch.nn.Sequential(torch.nn.Embedding(100, 8), torch.nn.Linear(8, 100)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def step():
    torch.set_grad_enabled(True)  # who is interrupted where PyTorch gives it back leaves it off
    ids = torch.randint(0, 100, (4, 16)).cuda()
    mask = ids != 0
    lengths = mask.sum(1)
    seen = torch.arange(16, device="cuda")[None, :] < lengths[:, None]
    assert ids[seen].numel() == lengths.sum().item(), "what was interrupted is computed all the same"
    loss = torch.nn.functional.cross_entropy(model(ids).transpose(1, 2), ids.masked_fill(~seen, -100))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()


def alarm(_number, _frame):
    raise RuntimeError("an alarm")


def interrupt(_number, _frame):
    raise KeyboardInterrupt


step()
for handler, error in ((alarm, RuntimeError), (interrupt, KeyboardInterrupt)):
    signal.signal(signal.SIGALRM, handler)
    lost = 0
    for _ in range(25):
        started = time.monotonic()
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.005)
            while time.monotonic() - started < 0.5:
                step()
            lost += 1
        except error:
            pass
    print(error.__name__, "lost", lost, flush=True)
