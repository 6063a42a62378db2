"""The wire protocol: wire.proto, and the code generated from it (`make protocol`)."""
