"""Learning curves as a picture: metric against virtual time and against bytes."""

from __future__ import annotations

from pathlib import Path

from async_hfl.journal.run_directory import RunDirectory

# Okabe and Ito's colours: distinct for colour-blind readers and in print.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_STYLES = ("-", "-", "-", "-", "--", "--", "--")


def learning_curves(runs: list[RunDirectory], path: Path, title: str) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4.4), layout="constrained")
    by_time, by_bytes = figure.subplots(1, 2, sharey=True)
    target = None
    for number, run in enumerate(runs):
        manifest, rows = run.read_manifest(), list(run.read_epochs())
        if not rows:
            continue
        target = manifest["settings"]["task"]["target"]
        style = {"color": COLOURS[number % len(COLOURS)], "linestyle": _STYLES[number % len(_STYLES)], "linewidth": 1.6}
        metric = [row["metric"] for row in rows]
        summary = run.read_summary()
        # Where the warm-up is free, the curve begins when it ends, as the figures beside it count.
        free = summary if summary and not manifest["settings"]["warmup"]["charge"] else None
        hours = [(row["at"] - (free["warmup_s"] if free else 0.0)) / 3600 for row in rows]
        megabytes = [(row["bytes_total"] - (free["warmup_bytes"] if free else 0)) / 1e6 for row in rows]
        by_time.plot(hours, metric, label=manifest["method"], **style)
        by_bytes.plot(megabytes, metric, label=manifest["method"], **style)
        if summary and summary["time_to_target_s"] is not None:
            by_time.plot([summary["time_to_target_s"] / 3600], [target], "o", color=style["color"], markersize=5)
            by_bytes.plot([summary["bytes_to_target"] / 1e6], [target], "o", color=style["color"], markersize=5)
    for axes, label in ((by_time, "virtual time (hours)"), (by_bytes, "bytes sent, all links and kinds (MB)")):
        if target is not None:
            axes.axhline(target, color="#888888", linewidth=0.8, linestyle=":")
        axes.set_xlabel(label)
        axes.grid(alpha=0.25)
        axes.set_xlim(left=0)
        axes.spines[["top", "right"]].set_visible(False)
    by_time.set_ylabel("accuracy on the test set")
    if target is not None:
        by_time.legend(loc="lower right", frameon=False)
    figure.suptitle(title, fontsize=11)
    figure.savefig(path, dpi=150)
