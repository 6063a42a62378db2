"""The deployment shell: nodes as real processes over gRPC, with their state on disk. Only this package uses gRPC."""
