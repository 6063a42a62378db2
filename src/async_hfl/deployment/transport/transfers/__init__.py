"""Transfers of packets within a session: sending, receiving, the spool, the send window and the bandwidth limit."""
