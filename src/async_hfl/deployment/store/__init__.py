"""What a deployed node keeps on its disk: its log, its snapshots, its journal, and the models they speak of."""
