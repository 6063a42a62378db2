"""Model, data, training and test, in PyTorch."""

from collections import OrderedDict

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 6, 3)
        self.norm = nn.BatchNorm2d(6)
        self.pool = nn.MaxPool2d(2, 2)
        self.fc = nn.Linear(6 * 3 * 3, 4)

    def forward(self, x):
        x = self.pool(torch.relu(self.norm(self.conv(x))))
        return self.fc(x.flatten(1))


def load_data(partition_id, num_partitions, batch_size):
    """Images of 8 x 8 with a bright corner, which is their class; a partition has more of one class than of others."""
    random = torch.Generator().manual_seed(partition_id)
    shares = torch.ones(4)
    shares[partition_id % 4] = 3.0
    labels = torch.multinomial(shares, 100, replacement=True, generator=random)
    images = torch.randn(100, 1, 8, 8, generator=random)
    for row, label in enumerate(labels.tolist()):
        images[row, 0, 4 * (label // 2) : 4 * (label // 2) + 4, 4 * (label % 2) : 4 * (label % 2) + 4] += 0.8
    train, test = random_split(TensorDataset(images, labels), [80, 20])
    return DataLoader(train, batch_size=batch_size, shuffle=True), DataLoader(test, batch_size=batch_size)


def train(net, trainloader, epochs, lr, device):
    net.to(device)
    criterion = nn.CrossEntropyLoss().to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=lr, momentum=0.9)
    net.train()
    running_loss = 0.0
    for _ in range(epochs):
        for images, labels in trainloader:
            optimizer.zero_grad()
            loss = criterion(net(images.to(device)), labels.to(device))
            loss.backward()
            optimizer.step()
            running_loss += loss.item()
    return running_loss / (epochs * len(trainloader))


def test(net, testloader, device):
    net.to(device)
    net.eval()
    criterion = nn.CrossEntropyLoss()
    correct, loss = 0, 0.0
    with torch.no_grad():
        for images, labels in testloader:
            outputs = net(images.to(device))
            loss += criterion(outputs, labels.to(device)).item()
            correct += (outputs.argmax(dim=1) == labels.to(device)).sum().item()
    return loss / len(testloader), correct / len(testloader.dataset)


def get_weights(net):
    return [value.cpu().numpy() for value in net.state_dict().values()]


def set_weights(net, parameters):
    pairs = zip(net.state_dict().keys(), parameters, strict=True)
    net.load_state_dict(OrderedDict({name: torch.tensor(value) for name, value in pairs}), strict=True)
