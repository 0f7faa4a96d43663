//! One page of figures: the counters of requests, and what log and groups say of themselves at this moment.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use cutwater_partition_log::{ClientPhase, PartitionOffsets, Topic, TopicId, TopicPartition, TxnPhase};
use kafka_protocol::ResponseError;
use kafka_protocol::error::ParseResponseErrorCode;

use super::exposition::{Kind, Page};
use super::lag::{Lag, Lags};
use crate::service::{LATE_MS, Service};

/// The page, with room for so many series of topics, partitions and groups.
pub(super) fn page(service: &Arc<Service>, lags: &mut Lags, room: usize) -> String {
    let mut page = Page::new(room);
    requests(&mut page, service);
    connections(&mut page, service);
    sessions(&mut page, service);
    log(&mut page, service);
    janitor(&mut page, service);
    transactions(&mut page, service);
    // The short lists first: they say the most with the fewest series.
    let behind = behind(service, lags, room);
    groups(&mut page, service, &behind);
    let topics = service.log.topics();
    partitions(&mut page, service, &topics);
    lag(&mut page, &behind, &topics);
    page.family("cutwater_metrics_series_left_out", Kind::Gauge, "Series that this page has no room for.");
    let left_out = page.left_out();
    page.sample(&[], left_out);
    page.finish()
}

fn requests(page: &mut Page, service: &Service) {
    let counted = service.counters.read();
    let name = |of: &super::counters::Counted| of.name.clone();
    page.family("cutwater_requests_total", Kind::Counter, "Requests that have come, by API.");
    for of in &counted {
        page.sample(&[("api", &name(of))], of.requests);
    }
    let help = "Error codes in answers, by API; one request for several topics may bring several.";
    page.family("cutwater_response_errors_total", Kind::Counter, help);
    for of in &counted {
        for (code, times) in &of.errors {
            let error = match code.err() {
                Some(ResponseError::Unknown(_)) | None => "other".to_string(),
                Some(error) => format!("{error:?}"),
            };
            page.sample(&[("api", &name(of)), ("error", &error)], *times);
        }
    }
    page.family("cutwater_received_bytes_total", Kind::Counter, "Bytes of requests, by API.");
    for of in &counted {
        page.sample(&[("api", &name(of))], of.received);
    }
    page.family("cutwater_sent_bytes_total", Kind::Counter, "Bytes of answers, by API.");
    for of in &counted {
        page.sample(&[("api", &name(of))], of.sent);
    }
    let help = "From a request's last byte to its answer's last byte handed to the system: waits for the disk, for records and \
                for other members are in it.";
    page.family("cutwater_request_seconds", Kind::Histogram, help);
    for of in &counted {
        page.histogram(&[("api", &name(of))], &of.times);
    }
}

fn connections(page: &mut Page, service: &Service) {
    let counters = &service.counters;
    page.family("cutwater_open_connections", Kind::Gauge, "Open connections.");
    page.sample(&[], counters.open());
    page.family(
        "cutwater_connections_total",
        Kind::Counter,
        "Connections that clients asked for, by what became of it.",
    );
    page.sample(&[("outcome", "accepted")], counters.accepted.load(Ordering::Relaxed));
    page.sample(&[("outcome", "refused")], counters.refused.load(Ordering::Relaxed));
    page.family(
        "cutwater_malformed_requests_total",
        Kind::Counter,
        "Connections closed because what came was no request.",
    );
    page.sample(&[], counters.malformed.load(Ordering::Relaxed));
    let help = "Connections closed because it wasn't proved who connects, by listener, means and cause.";
    page.family("cutwater_failed_authentications_total", Kind::Counter, help);
    for ((listener, mechanism, cause), times) in service.access.failures.read() {
        page.sample(&[("listener", &listener), ("mechanism", mechanism), ("cause", cause)], times);
    }
    if let Some(certificates) = &service.certificates {
        let help = "How often a changed certificate or key was taken over.";
        page.family("cutwater_certificate_changes_total", Kind::Counter, help);
        page.sample(&[], certificates.taken());
        let help =
            "1 while the files of certificate and key hold what can't be used, and what was in force before stays.";
        page.family("cutwater_certificate_unusable", Kind::Gauge, help);
        page.sample(&[], u64::from(certificates.is_unusable()));
    }
    page.family("cutwater_pool_bytes", Kind::Gauge, "Memory pools: what is in use, and how large they are.");
    for (name, pool) in [("requests", &service.requests), ("answers", &service.answers)] {
        page.sample(&[("pool", name), ("of", "used")], pool.used());
        page.sample(&[("pool", name), ("of", "size")], pool.size());
    }
}

fn sessions(page: &mut Page, service: &Service) {
    let (sessions, partitions) = service.fetch_sessions.size();
    page.family("cutwater_fetch_sessions", Kind::Gauge, "Fetch sessions that are remembered.");
    page.sample(&[], sessions);
    page.family("cutwater_fetch_session_partitions", Kind::Gauge, "Partitions of all fetch sessions together.");
    page.sample(&[], partitions);
}

fn log(page: &mut Page, service: &Service) {
    let status = service.log.status();
    page.family(
        "cutwater_log_up",
        Kind::Gauge,
        "1 while the log takes requests, 0 after its disk has failed or it was closed.",
    );
    page.sample(&[], u64::from(status.down.is_none()));
    let help = "1 while the disk has no room: what makes the log larger is refused, reading goes on.";
    page.family("cutwater_log_without_room", Kind::Gauge, help);
    page.sample(&[], u64::from(status.no_room.is_some()));
    let help = "Synced writes of the write-ahead log since it was opened: each makes one group of requests durable with one sync.";
    page.family("cutwater_log_synced_write_seconds", Kind::Histogram, help);
    page.histogram(&[], &service.log.write_times());
    page.family(
        "cutwater_log_written_bytes_total",
        Kind::Counter,
        "Bytes ever written to the write-ahead log, padding included.",
    );
    page.sample(&[], status.position);
    let gauges = [
        ("cutwater_log_write_ahead_bytes", "Bytes of the write-ahead files on the disk.", status.wal_bytes),
        ("cutwater_log_write_ahead_files", "Write-ahead files that a recovery would need.", status.wal_files as u64),
        ("cutwater_log_queued_bytes", "Bytes accepted that wait for the disk.", status.queued_bytes as u64),
        (
            "cutwater_log_unmaterialised_bytes",
            "Bytes durable that aren't in segments yet.",
            status.unmaterialised_bytes as u64,
        ),
        ("cutwater_log_dirty_bytes", "Bytes in segments that aren't synced there yet.", status.dirty_bytes),
        ("cutwater_topics", "Topics.", status.topics as u64),
        ("cutwater_partitions", "Partitions of all topics.", status.partitions as u64),
    ];
    for (name, help, value) in gauges {
        page.family(name, Kind::Gauge, help);
        page.sample(&[], value);
    }
}

/// What retention and compaction have done.
fn janitor(page: &mut Page, service: &Service) {
    let tidied = service.log.tidied();
    let counters = [
        ("cutwater_log_janitor_passes_total", "Looks for what retention and compaction may take.", tidied.passes),
        (
            "cutwater_log_removed_segments_total",
            "Segments removed below their partition's start.",
            tidied.segments_removed,
        ),
        ("cutwater_log_removed_bytes_total", "Bytes of log files removed with them.", tidied.bytes_removed),
        ("cutwater_log_compacted_segments_total", "Segments that compaction has replaced.", tidied.segments_compacted),
        ("cutwater_log_compacted_bytes_total", "Bytes that compaction has given back.", tidied.bytes_compacted),
        ("cutwater_log_compacted_records_total", "Records that compaction has taken away.", tidied.records_removed),
    ];
    for (name, help, value) in counters {
        page.family(name, Kind::Counter, help);
        page.sample(&[], value);
    }
    let help = "Partitions that the newest pass couldn't tidy; the log says why.";
    page.family("cutwater_log_janitor_failed_partitions", Kind::Gauge, help);
    page.sample(&[], tidied.failed.len() as u64);
}

/// Counts and ages by state and by whose they are.
fn transactions(page: &mut Page, service: &Service) {
    let clients = service.log.clients().into_iter().filter(|client| client.phase == ClientPhase::Ongoing);
    let clients = clients.map(|client| (("open", "client"), client.open_since));
    let jobs = service.log.transactions().into_iter().map(|txn| {
        let state = if txn.state == TxnPhase::Prepared { "prepared" } else { "open" };
        ((state, "job"), Some(txn.since))
    });
    let kinds = [("open", "client"), ("open", "job"), ("prepared", "job")];
    let mut live: BTreeMap<_, (u64, Duration)> = kinds.into_iter().map(|kind| (kind, Default::default())).collect();
    let now = service.platform.clock.wall().0;
    let mut late = 0;
    for (kind, since) in clients.chain(jobs) {
        let age = since.map_or(0, |since| now.saturating_sub(since.0));
        late += u64::from(age > LATE_MS);
        let (count, oldest) = live.entry(kind).or_default();
        *count += 1;
        *oldest = (*oldest).max(Duration::from_millis(u64::try_from(age).unwrap_or(0)));
    }
    page.family("cutwater_transactions", Kind::Gauge, "Live transactions, by state and by whose they are.");
    for ((state, whose), (count, _)) in &live {
        page.sample(&[("state", state), ("whose", whose)], *count);
    }
    let help = "Live transactions that were begun, or prepared, more than 15 minutes ago: readers of committed records wait for them.";
    page.family("cutwater_late_transactions", Kind::Gauge, help);
    page.sample(&[], late);
    let help = "Age of the oldest live transaction of its kind, since it was begun or, once prepared, since then; 0 if there is none.";
    page.family("cutwater_oldest_transaction_seconds", Kind::Gauge, help);
    for ((state, whose), (_, oldest)) in &live {
        page.sample(&[("state", state), ("whose", whose)], *oldest);
    }
}

/// A group, and how far it is behind in each partition that it has committed; none of those that weren't looked up.
struct Behind {
    group: String,
    lags: Vec<(TopicPartition, Lag)>,
    not_looked_up: u64,
}

/// How far all groups are behind: at most `limit` partitions are looked at.
fn behind(service: &Service, lags: &mut Lags, mut limit: usize) -> Vec<Behind> {
    // A log that is down knows no groups; the page says that it is down.
    let mut names = service.log.groups().unwrap_or_default();
    names.extend(service.groups.names());
    names.sort_unstable();
    names.dedup();
    let now = service.platform.clock.wall().0;
    let mut all = Vec::with_capacity(names.len());
    for group in names {
        let committed = service.log.group_offsets(&group).map(|known| known.offsets).unwrap_or_default();
        let looked_up = committed.len().min(limit);
        limit -= looked_up;
        let not_looked_up = (committed.len() - looked_up) as u64;
        // A partition whose topic has just gone, or whose files can't be read, has no lag to tell.
        let lag = |(at, kept): (TopicPartition, cutwater_partition_log::GroupOffset)| {
            Some((at, lags.of(&service.log, at, kept.offset, now).ok()?))
        };
        let lags = committed.into_iter().take(looked_up).filter_map(lag).collect();
        all.push(Behind { group, lags, not_looked_up });
    }
    lags.end_round();
    all
}

fn groups(page: &mut Page, service: &Service, behind: &[Behind]) {
    let looks: Vec<_> = behind.iter().map(|of| (of, service.groups.summary(&of.group))).collect();
    let mut by_state: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for (_, look) in &looks {
        *by_state.entry((look.kind, look.state)).or_default() += 1;
    }
    page.family("cutwater_groups", Kind::Gauge, "Groups, by protocol and state.");
    for ((kind, state), count) in by_state {
        page.sample(&[("protocol", kind), ("state", state)], count);
    }
    page.family("cutwater_group_members", Kind::Gauge, "Members of a group.");
    for (of, look) in &looks {
        page.detail(&[("group", &of.group)], look.members);
    }
    page.family("cutwater_group_state", Kind::Gauge, "1 for the state that a group is in.");
    for (of, look) in &looks {
        page.detail(&[("group", &of.group), ("protocol", look.kind), ("state", look.state)], 1u64);
    }
    page.family(
        "cutwater_group_epoch",
        Kind::Gauge,
        "The generation (classic) or epoch (consumer) of a group: it rises with each rebalance.",
    );
    for (of, look) in &looks {
        page.detail(&[("group", &of.group)], look.epoch);
    }
    page.family(
        "cutwater_group_total_lag_records",
        Kind::Gauge,
        "Records that a group hasn't committed, over all its partitions.",
    );
    for of in behind.iter().filter(|of| !of.lags.is_empty()) {
        page.detail(&[("group", &of.group)], of.lags.iter().map(|(_, lag)| lag.records).sum::<u64>());
    }
    let help = "Age of the oldest record that a group hasn't committed, over all its partitions.";
    page.family("cutwater_group_longest_lag_seconds", Kind::Gauge, help);
    for of in behind.iter().filter(|of| !of.lags.is_empty()) {
        page.detail(&[("group", &of.group)], of.lags.iter().map(|(_, lag)| lag.time).max().unwrap_or_default());
    }
}

/// A partition as it is shown.
struct Shown<'a> {
    topic: &'a str,
    partition: String,
    offsets: PartitionOffsets,
    bytes: u64,
}

fn partitions(page: &mut Page, service: &Service, topics: &[Topic]) {
    let log = &service.log;
    let all = || topics.iter().flat_map(|topic| (0..topic.partitions).map(move |partition| (topic, partition)));
    let mut segments = 0;
    let mut shown = Vec::new();
    for (topic, partition) in all() {
        let at = TopicPartition::new(topic.id, partition);
        let bytes = log.partition_bytes(at).unwrap_or(0);
        segments += bytes;
        // Four series each; a topic that has just gone has none.
        if shown.len() < page.room() / 4
            && let Ok(offsets) = log.offsets(topic.id, partition)
        {
            shown.push(Shown { topic: &topic.name, partition: partition.to_string(), offsets, bytes });
        } else {
            page.leave_out(4);
        }
    }
    page.family("cutwater_log_segment_bytes", Kind::Gauge, "Bytes of the log files of all partitions.");
    page.sample(&[], segments);
    type Value = fn(&Shown<'_>) -> u64;
    let families: [(&'static str, &str, Value); 4] = [
        ("cutwater_partition_log_start_offset", "The first offset that can be read.", |p| p.offsets.log_start.0),
        ("cutwater_partition_high_watermark", "The offset behind the last durable record.", |p| {
            p.offsets.high_watermark.0
        }),
        ("cutwater_partition_last_stable_offset", "Read-committed readers see what is below.", |p| {
            p.offsets.last_stable.0
        }),
        ("cutwater_partition_bytes", "Bytes of a partition's log files.", |p| p.bytes),
    ];
    for (name, help, value) in families {
        page.family(name, Kind::Gauge, help);
        for partition in &shown {
            page.detail(&[("topic", partition.topic), ("partition", &partition.partition)], value(partition));
        }
    }
}

fn lag(page: &mut Page, behind: &[Behind], topics: &[Topic]) {
    let names: BTreeMap<TopicId, &str> = topics.iter().map(|topic| (topic.id, topic.name.as_str())).collect();
    page.leave_out(behind.iter().map(|of| 2 * of.not_looked_up).sum());
    let all = || {
        let all = behind.iter().flat_map(|of| of.lags.iter().map(move |(at, lag)| (of.group.as_str(), *at, *lag)));
        all.filter_map(|(group, at, lag)| Some((group, *names.get(&at.topic)?, at.partition.to_string(), lag)))
    };
    page.family("cutwater_group_lag_records", Kind::Gauge, "The high watermark minus the committed offset of a group.");
    for (group, topic, partition, lag) in all() {
        page.detail(&[("group", group), ("topic", topic), ("partition", &partition)], lag.records);
    }
    let help = "Age of the first record that a group hasn't committed, by its own timestamp; 0 if there is none.";
    page.family("cutwater_group_lag_seconds", Kind::Gauge, help);
    for (group, topic, partition, lag) in all() {
        page.detail(&[("group", group), ("topic", topic), ("partition", &partition)], lag.time);
    }
}
