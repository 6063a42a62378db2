"""Metrics of a node for Prometheus, served on loopback by default.

They are counted from the records of the journal alone, so the same numbers can be computed afterwards. Counters start
at 0 with every process, as Prometheus expects.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, start_http_server
from prometheus_client.process_collector import ProcessCollector

from async_hfl.core.errors import SettingsError
from async_hfl.core.protocol.records import (
    DEVICE_UPDATE,
    AssociationRecord,
    EpochRecord,
    FoundRecord,
    JobRecord,
    LateRecord,
    LifecycleRecord,
    LostRecord,
    Record,
    SelectionRecord,
    SentRecord,
    UploadRecord,
)
from async_hfl.core.protocol.traffic import KINDS
from async_hfl.deployment.transport.limits import PACKAGE

_SECONDS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000)
_STALENESS = (1, 2, 3, 5, 10, 20, 50, 100, 200)


class Metrics:
    def __init__(self, role: str, node: str) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        Info("async_hfl", "Identity of the node.", registry=registry).info(
            {"role": role, "node": node, "version": PACKAGE}
        )

        def counter(name: str, about: str, *labels: str) -> Counter:
            return Counter(f"async_hfl_{name}", about, labels, registry=registry)

        def gauge(name: str, about: str) -> Gauge:
            return Gauge(f"async_hfl_{name}", about, registry=registry)

        def histogram(name: str, about: str, label: str, buckets: tuple[float, ...]) -> Histogram:
            return Histogram(f"async_hfl_{name}", about, [label], buckets=buckets, registry=registry)

        self._jobs = counter("jobs", "Jobs that ended here, by reason.", "reason")
        self._uploads = counter("uploads", "Uploads that ended here, by reason.", "reason")
        self._lost = counter("updates_lost", "Acknowledged updates that were listed as lost.")
        self._found = counter("updates_found", "Lost updates that were recovered when their gateway returned.")
        self._late = counter("updates_late", "Acknowledged updates that came too late for the model.")
        self._sent = counter("sent_bytes", "Bytes sent, by message and content.", "message", "kind")
        self._messages = counter("sent_messages", "Messages sent.", "message")
        self._selections = counter("selections", "Selections; bound: the bandwidth excluded a device.", "bound")
        self._life = counter("life", "Changes of membership and phase.", "what")
        self._epoch = gauge("cloud_epoch", "Newest epoch that was evaluated.")
        self._updates = gauge("updates_in_model", "Device updates inside the global model.")
        self._metric = gauge("metric", "Metric of the newest evaluation.")
        self._version = gauge("association_version", "Version of the association in force.")
        self._seconds = histogram("job_seconds", "Duration of completed jobs, by part.", "part", _SECONDS)
        self._staleness = histogram("staleness", "Staleness of aggregated updates and uploads.", "tier", _STALENESS)
        self._notes: dict[type, Callable[[Any], None]] = {
            JobRecord: self._note_job,
            UploadRecord: self._note_upload,
            SentRecord: self._note_sent,
            EpochRecord: self._note_epoch,
            SelectionRecord: lambda record: self._selections.labels(str(record.bound).lower()).inc(),
            LifecycleRecord: lambda record: self._life.labels(record.what).inc(),
            AssociationRecord: lambda record: self._version.set(record.version),
            LostRecord: lambda record: self._lost.inc(),
            FoundRecord: lambda record: self._found.inc(),
            LateRecord: lambda record: self._late.inc(),
        }

    def wrote(self, record: Record) -> None:
        self._notes[type(record)](record)

    def serve(self, address: str) -> Callable[[], None]:
        """Serve on PORT (loopback) or HOST:PORT; return a function that closes the server."""
        host, _, port = address.rpartition(":")
        if not port.isdigit() or int(port) > 65535:
            raise SettingsError(f"--metrics {address}: write it as 9100 (loopback only) or 0.0.0.0:9100")
        try:
            server, thread = start_http_server(int(port), host or "127.0.0.1", self.registry)
        except OSError as error:
            raise SettingsError(f"--metrics {address}: cannot listen there ({error.strerror})") from error
        self.port = int(server.server_address[1])

        def close() -> None:
            server.shutdown()
            server.server_close()
            thread.join()

        return close

    def _note_job(self, record: JobRecord) -> None:
        self._jobs.labels(record.reason).inc()
        if record.download_s > 0 or record.training_s > 0:
            self._seconds.labels("download").observe(record.download_s)
            self._seconds.labels("training").observe(record.training_s)
            self._seconds.labels("round").observe(max(record.at - record.sent_at, 0.0))
        if record.reason == DEVICE_UPDATE:
            self._staleness.labels("gateway").observe(record.staleness)

    def _note_upload(self, record: UploadRecord) -> None:
        self._uploads.labels(record.reason).inc()
        if record.reason == "mixed":
            self._staleness.labels("cloud").observe(record.staleness)

    def _note_sent(self, record: SentRecord) -> None:
        self._messages.labels(record.message).inc()
        for kind in KINDS:
            if size := getattr(record, kind):
                self._sent.labels(record.message, kind).inc(size)

    def _note_epoch(self, record: EpochRecord) -> None:
        self._epoch.set(record.epoch)
        self._updates.set(record.updates)
        self._metric.set(record.metric)
