"""Shares tensors that lie on handles of several lengths with another process; prints what is wrong, and what PyTorch's own allocator holds."""

import json

import torch
import torch.multiprocessing as multiprocessing

#: Elements of a tensor of 5.3 MiB: of more the stand-in keeps no content.
MANY = 700_000


def receive(given, answers):
    tensor = given.get(timeout=300)
    answers.put(tensor[:10].tolist() + tensor[-10:].tolist())
    tensor[-10:].copy_(torch.arange(10))
    torch.cuda.synchronize()
    answers.put("written")
    given.get(timeout=300)


def main():
    context = multiprocessing.get_context("spawn")
    given, answers = context.Queue(), context.Queue()
    child = context.Process(target=receive, args=(given, answers))
    child.start()
    wrong = []
    ballast = torch.empty(6 << 30, dtype=torch.uint8, device="cuda")  # from such a need on there are large handles
    before = torch.arange(1000, dtype=torch.int64).cuda()
    numbers = torch.arange(MANY)
    tensor = numbers.cuda()
    after = torch.arange(1000, dtype=torch.int64).cuda()
    view = tensor.view(2, -1)
    address = tensor.data_ptr()
    given.put(tensor)
    if answers.get(timeout=300) != [*range(10), *range(MANY - 10, MANY)]:
        wrong.append("the other process reads what was written here")
    if answers.get(timeout=300) != "written" or view[1, -10:].tolist() != [*range(10)]:
        wrong.append("what it writes is read here, by way of a view, too")
    if not torch.equal(tensor[:-10].cpu(), numbers[:-10]) or before.tolist() + after.tolist() != [*range(1000)] * 2:
        wrong.append("nothing else is changed")
    later = torch.zeros(MANY, dtype=torch.int64, device="cuda")
    there = later.data_ptr()
    later.untyped_storage()._share_cuda_()
    if later.data_ptr() != there:
        wrong.append("what is allocated after that lies on handles of one length")
    del ballast
    given.put(None)
    child.join(120)
    print(json.dumps({"wrong": wrong, "is elsewhere": tensor.data_ptr() != address, "exit": child.exitcode}))


if __name__ == "__main__":
    main()
