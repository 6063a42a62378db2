"""What travels between processes: wire.proto, and the code made of it (`make protocol`)."""
