"""The fault simulation: nodes on machines and links that fail, with all invariants checked after every event.

simulator      the shell: virtual time, crashes and recoveries, lost and repeated messages
profile        the faults of one simulation, as rates and durations
hosts          machines and their disks
sessions       links that fail, sessions and transfers, as a deployment has them
history        the messages and records of a simulation, in the form that the checks below need
invariants     properties of the protocol that hold under every aggregation rule
loss_audit     the fate of every acknowledged update
checkers/      one independent second computation for each built-in aggregation rule
"""
