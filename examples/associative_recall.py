"""Train a gated delta layer to recall: it reads pairs of a key and a value, and is then asked for the values of keys.

Keys come again with other values, and the last one counts. The delta rule can replace a value, which plain linear
attention cannot. It needs PyTorch (``pip install ".[torch]"``).
"""

import torch
from torch import nn

from gpuscan.torch import gated_delta_rule

KEYS, VALUES, PAIRS, QUESTIONS, WIDTH = 6, 8, 12, 4, 16
ROUNDS, BATCH = 45, 32


class DeltaLayer(nn.Module):
    """A head of the gated delta rule between embeddings of keys and values and the values' scores."""

    def __init__(self):
        super().__init__()
        self.keys, self.values = nn.Embedding(KEYS, WIDTH), nn.Embedding(VALUES + 1, WIDTH)
        self.q, self.k, self.v = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.weights, self.scores = nn.Linear(WIDTH, 2), nn.Linear(WIDTH, VALUES)

    def forward(self, keys, values):
        of_keys, of_values = self.keys(keys), self.values(values)
        q, k = (nn.functional.normalize(project(of_keys), dim=-1)[:, :, None] for project in (self.q, self.k))
        keep, write = self.weights(of_values).unbind(-1)
        g, beta = nn.functional.logsigmoid(keep + 4)[..., None], write.sigmoid()[..., None]
        o = gated_delta_rule(q, k, self.v(of_values)[:, :, None], g, beta, scale=1.0)
        return self.scores(o[:, :, 0])


def examples(count):
    """Return the keys and values of pairs, followed by questions with a blank as their value, and the answers."""
    keys, values = torch.randint(KEYS, (count, PAIRS)), torch.randint(VALUES, (count, PAIRS))
    asked = keys.gather(1, torch.randint(PAIRS, (count, QUESTIONS)))
    places = (asked[:, :, None] == keys[:, None]) * torch.arange(1, PAIRS + 1)
    answers = values.gather(1, places.argmax(-1))
    blanks = torch.full((count, QUESTIONS), VALUES)
    return torch.cat([keys, asked], 1), torch.cat([values, blanks], 1), answers


def draw_bars(losses):
    """Return losses as a row of bars."""
    bars = " ▁▂▃▄▅▆▇█"
    return "".join(bars[round(8 * loss / max(losses))] for loss in losses)


torch.manual_seed(0)
model = DeltaLayer()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-2)
losses = []
for _ in range(ROUNDS):
    keys, values, answers = examples(BATCH)
    loss = nn.functional.cross_entropy(model(keys, values)[:, -QUESTIONS:].flatten(0, 1), answers.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
keys, values, answers = examples(200)
right = (model(keys, values)[:, -QUESTIONS:].argmax(-1) == answers).float().mean()
print(f"the loss, from {losses[0]:.2f} to {losses[-1]:.3f}: {draw_bars(losses)}")
print(f"{right:.1%} of the answers are right")
assert right > 0.95
