"""A frozen feature network in the loss: its activations are needed, for the generator is trained through it."""
import torch


def block(i, o):
    return torch.nn.Sequential(torch.nn.Conv2d(i, o, 3, padding=1), torch.nn.ReLU())


generator = torch.nn.Conv2d(3, 3, 3, padding=1).cuda()
features = torch.nn.Sequential(block(3, 64), block(64, 64), block(64, 64), block(64, 64)).cuda().eval().requires_grad_(False)
optimizer = torch.optim.Adam(generator.parameters())
for step in range(4):
    image = torch.randn(8, 3, 256, 256, device="cuda")
    loss = (features(generator(image)) - features(image)).square().mean()  # named
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
