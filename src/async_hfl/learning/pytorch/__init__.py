"""Tasks in PyTorch (`async-hfl[torch]`): an nn.Module trained by one single-threaded process per core."""
