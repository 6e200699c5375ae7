"""Functions give global names their model and optimizer; indents are tabs."""

import torch
from nets import Text, batch, text_loss, values

model = optimizer = None


def setup():
	global model, optimizer
	torch.manual_seed(0)
	model = Text()
	optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)


def fit(steps):
	losses = []
	for step in range(steps):
		x, y = batch(step)
		loss = text_loss(model(x), y)
		loss.backward()
		optimizer.step()
		losses.append(loss.item())
		optimizer.zero_grad()
	return losses


def main():
	setup(); losses = fit(4)  # noqa: E702
	return values(losses, model, optimizer)


if __name__ == "__main__":
	RESULT = main()
