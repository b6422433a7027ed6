"""Train a small mamba block to remember: it reads digits at any places among blanks, and then writes them in order.

It needs PyTorch (``pip install ".[torch]"``).
"""

import torch
from torch import nn

from gpuscan.torch import selective_scan

DIGITS, COUNT, GAP, WIDTH, STATES = 4, 2, 3, 32, 8


class Block(nn.Module):
    """A mamba block: gates that depend on the input decide what the states keep."""

    def __init__(self):
        super().__init__()
        self.inward, self.outward = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.near = nn.Conv1d(WIDTH, WIDTH, 4, padding=3, groups=WIDTH)
        self.step, self.weights = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 2 * STATES)
        self.decay = nn.Parameter(torch.log(torch.arange(1.0, STATES + 1)).repeat(WIDTH, 1))
        self.skip = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x):
        u, z = self.inward(x).chunk(2, -1)
        u = nn.functional.silu(self.near(u.mT)[..., : x.shape[1]]).mT
        b, c = self.weights(u).mT.chunk(2, 1)
        y = selective_scan(u.mT, self.step(u).mT, -self.decay.exp(), b, c, self.skip, z.mT, delta_softplus=True)
        return x + self.outward(y.mT)


def examples(count):
    """Return inputs with COUNT digits among blanks and then as many questions, and the digits as answers."""
    digits = torch.randint(DIGITS, (count, COUNT))
    places = torch.rand(count, COUNT + GAP).argsort(1)[:, :COUNT].sort(1).values
    blanks, questions = torch.full((count, COUNT + GAP), DIGITS), torch.full((count, COUNT), DIGITS + 1)
    return torch.cat([blanks.scatter(1, places, digits), questions], 1), digits


def draw_bars(losses):
    """Return losses as a row of bars."""
    bars = " ▁▂▃▄▅▆▇█"
    return "".join(bars[round(8 * loss / max(losses))] for loss in losses)


torch.manual_seed(0)
model = nn.Sequential(nn.Embedding(DIGITS + 2, WIDTH), Block(), nn.LayerNorm(WIDTH), Block(), nn.Linear(WIDTH, DIGITS))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
losses = []
for _ in range(80):
    inputs, answers = examples(48)
    loss = nn.functional.cross_entropy(model(inputs)[:, -COUNT:].flatten(0, 1), answers.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
inputs, answers = examples(500)
right = (model(inputs)[:, -COUNT:].argmax(-1) == answers).float().mean()
print(f"the loss, from {losses[0]:.2f} to {losses[-1]:.3f}: {draw_bars(losses)}")
print(f"{right:.1%} of the digits are right")
assert right > 0.95
