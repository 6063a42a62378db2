"""Shell 2: the nodes as real processes, over gRPC, with state on disk. The only place that knows gRPC."""
