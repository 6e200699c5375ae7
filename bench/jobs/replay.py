"""Off-policy reinforcement learning with a replay buffer on the GPU, which grows by episodes of drawn length.

The buffer grows piece by piece between the tensors of the steps, and old episodes are freed in any order.
"""

import copy

import torch
from torch import nn
from torch.nn import functional
from training import conv, indices, on_gpu, skewed, start, values


def main() -> None:
    options, draw = start(__doc__, batch=512, width=64, actions=18, episodes=80)

    def make() -> nn.Module:
        width = options.width
        layers = [conv(12, width, 2, 7), conv(width, 2 * width, 2), conv(2 * width, 4 * width, 2), nn.Flatten()]
        layers += [nn.Linear(4 * width * 144, 512), nn.ReLU(), nn.Linear(512, options.actions)]
        return nn.Sequential(*layers)

    network = on_gpu(make)
    target = copy.deepcopy(network).requires_grad_(False)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-4)
    episodes: list[torch.Tensor] = []
    for step in range(options.steps):
        for _ in range(draw.randint(1, 4)):
            with torch.no_grad():
                seen = []
                for _ in range(skewed(draw, 10, 120)):
                    seen.append(values(12, 96, 96, dtype=torch.uint8))
                    if len(seen) % 8 == 0:
                        network(torch.stack(seen[-8:]).float() / 255).argmax(1)
                episodes.append(torch.stack(seen))
        while len(episodes) > options.episodes:
            episodes.pop(draw.randrange(len(episodes)))
        for _ in range(draw.randint(1, 4)):
            picked = draw.choices(episodes, k=8)
            batch = torch.cat([episode[indices(len(episode), options.batch // 8)] for episode in picked]).float() / 255
            with torch.no_grad():
                best = target(batch).gather(1, network(batch).argmax(1, keepdim=True))[:, 0]
            taken = network(batch).gather(1, indices(options.actions, len(batch))[:, None])[:, 0]
            functional.smooth_l1_loss(taken, 0.99 * best).backward()
            optimizer.step()
            optimizer.zero_grad()
        if step % 10 == 9:
            target.load_state_dict(network.state_dict())
        print(f"step {step}: {sum(map(len, episodes))} frames in {len(episodes)} episodes")


if __name__ == "__main__":
    main()
