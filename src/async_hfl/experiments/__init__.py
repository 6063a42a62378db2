"""Many runs: plans, sweeps that survive anything, comparisons of methods, the paper's tables and figures."""
