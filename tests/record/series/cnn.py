"""A convolutional network with batch norm, as on CIFAR-10: cnn.py BATCH."""

import sys

import torch
from torch import nn
from torch.nn import functional as F

batch = int(sys.argv[1])


def block(inputs, outputs):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(), nn.MaxPool2d(2)
    )


model = nn.Sequential(block(3, 64), block(64, 128), block(128, 256), nn.Flatten(), nn.Linear(256 * 16, 10)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for step in range(3):
    images, labels = torch.randn(batch, 3, 32, 32).cuda(), torch.randint(10, (batch,)).cuda()
    loss = F.cross_entropy(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
