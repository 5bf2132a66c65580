//! Counts requests by operation, and keeps a log of the last requests.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use super::Moment;
use super::operation::{Access, Family, Operation};

const LOG_MAX: usize = 10_000;

/// The numbers of requests since the last reset. Each request is counted when it arrives, whether or not it succeeds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Number of all requests.
    pub total: u64,
    /// Number of reads.
    pub reads: u64,
    /// Number of writes.
    pub writes: u64,
    /// Counts by family; families without requests are absent.
    pub by_family: BTreeMap<Family, u64>,
    /// Counts by operation; operations without requests are absent.
    pub by_operation: BTreeMap<Operation, u64>,
    /// Counts by HTTP status of the response; the key is `closed` if the connection was closed instead.
    pub by_status: BTreeMap<String, u64>,
}

impl Counts {
    /// Returns the number of requests of one operation.
    pub fn of(&self, operation: Operation) -> u64 {
        self.by_operation.get(&operation).copied().unwrap_or_default()
    }

    pub(super) fn arrived(&mut self, operation: Operation) {
        self.total = self.total.saturating_add(1);
        match operation.access() {
            Access::Read => self.reads = self.reads.saturating_add(1),
            Access::Write => self.writes = self.writes.saturating_add(1),
        }
        increment(&mut self.by_family, operation.family());
        increment(&mut self.by_operation, operation);
    }

    pub(super) fn answered(&mut self, status: Option<u16>) {
        increment(
            &mut self.by_status,
            status.map_or_else(|| "closed".to_owned(), |status| status.to_string()),
        );
    }
}

fn increment<K: Ord>(counts: &mut BTreeMap<K, u64>, key: K) {
    let count = counts.entry(key).or_default();
    *count = count.saturating_add(1);
}

/// One request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogEntry {
    /// The request ID, the same as in the response header `X-Request-Id`.
    pub request_id: String,
    /// The time of arrival, in milliseconds since the cloud was switched on.
    pub at_ms: u64,
    /// The operation.
    pub operation: Operation,
    /// Whether the operation is a write.
    pub access: Access,
    /// The ID in the path, or the ID of the created object.
    pub object: Option<String>,
    /// The HTTP status of the response. Unset if the connection was closed instead.
    pub status: Option<u16>,
    /// The error code, if the request was refused.
    pub code: Option<String>,
    /// Whether a fault rule affected the request.
    pub fault: bool,
}

/// The last requests, oldest first.
#[derive(Debug, Default)]
pub(super) struct Log {
    entries: VecDeque<LogEntry>,
}

impl Log {
    pub(super) fn add(&mut self, entry: LogEntry) {
        if self.entries.len() >= LOG_MAX {
            self.entries.pop_front();
        }
        self.entries.push_back(entry);
    }

    pub(super) fn tail(&self, limit: usize) -> impl Iterator<Item = &LogEntry> {
        self.entries.iter().skip(self.entries.len().saturating_sub(limit))
    }

    pub(super) fn clear(&mut self) {
        self.entries.clear();
    }
}

pub(super) fn millis(moment: Moment) -> u64 {
    u64::try_from(moment.as_millis()).unwrap_or(u64::MAX)
}
