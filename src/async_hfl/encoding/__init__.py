"""The encoding of messages as bytes, as a deployment sends and a simulation counts them. No I/O, no pickle."""
