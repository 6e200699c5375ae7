"""An LSTM that reads, and one that writes with attention, a word at a time; gradients are clipped."""

import torch
from torch import nn
from torch.nn import functional as F

BATCH, SOURCE, TARGET, WIDTH, WORDS, STEPS = 64, 48, 40, 512, 12_000, 12


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.lstm = nn.Embedding(WORDS, WIDTH), nn.LSTM(WIDTH, WIDTH, num_layers=2, batch_first=True, dropout=0.2)

    def forward(self, text):
        return self.lstm(self.embedding(text))


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.lstm = nn.Embedding(WORDS, WIDTH), nn.LSTM(2 * WIDTH, WIDTH, num_layers=2, batch_first=True, dropout=0.2)
        self.query, self.out = nn.Linear(WIDTH, WIDTH), nn.Linear(2 * WIDTH, WORDS)

    def forward(self, word, states, memory):
        scores = torch.bmm(self.query(states[0][-1])[:, None], memory.transpose(1, 2))
        context = torch.bmm(scores.softmax(-1), memory)
        out, states = self.lstm(torch.cat([self.embedding(word)[:, None], context], -1), states)
        return self.out(torch.cat([out, context], -1)), states


class Seq2Seq(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = Encoder(), Decoder()

    def forward(self, source, target):
        memory, states = self.encoder(source)
        outputs = []
        for place in range(target.shape[1] - 1):
            out, states = self.decoder(target[:, place], states, memory)
            outputs.append(out)
        return torch.cat(outputs, 1)


model = Seq2Seq().to("cuda")
optimizer = torch.optim.Adam(model.parameters(), lr=3e-4)
for _step in range(STEPS):
    source, target = torch.randint(WORDS, (BATCH, SOURCE)).cuda(), torch.randint(WORDS, (BATCH, TARGET)).cuda()
    optimizer.zero_grad()
    loss = F.cross_entropy(model(source, target).flatten(0, 1), target[:, 1:].flatten())
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
