"""Who decides: which idle devices a gateway triggers, and which device belongs to which gateway.

Policies are pure: a problem in (`core.policies`), an answer out, the same answer for the same problem anywhere. This is
the only package that knows a solver, and `solver` the only file in it that does.
"""
