//! Metrics of callers and connections.

use std::fmt;

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

use crate::auth::Role;

/// Metrics of callers and connections. Clones share their state.
#[derive(Clone, Default)]
pub struct Metrics {
    refused: Family<RefusedLabels, Counter>,
    ended: Family<EndedLabels, Counter>,
    pub(crate) connections: Gauge,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RefusedLabels {
    role: &'static str,
    reason: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct EndedLabels {
    why: &'static str,
}

/// Why the server closed a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Handshake,
    SlowHandshake,
    /// No call was admitted on the connection in time.
    Silent,
    Aged,
    /// The peer violated the protocol, or exceeded its limits.
    Broken,
}

impl Ended {
    const fn word(self) -> &'static str {
        match self {
            Self::Handshake => "handshake",
            Self::SlowHandshake => "slow_handshake",
            Self::Silent => "silent",
            Self::Aged => "aged",
            Self::Broken => "broken",
        }
    }
}

impl Metrics {
    /// Registers all metrics.
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "calls_refused",
            "Calls refused because of the caller's identity, by role and reason",
            metrics.refused.clone(),
        );
        registry.register(
            "connections_ended",
            "gRPC connections closed by the server",
            metrics.ended.clone(),
        );
        registry.register("connections", "Open gRPC connections", metrics.connections.clone());
        metrics
    }

    pub(crate) fn refused(&self, role: Option<Role>, reason: &'static str) {
        let role = role.map_or("none", Role::word);
        self.refused.get_or_create(&RefusedLabels { role, reason }).inc();
    }

    pub(crate) fn ended(&self, why: Ended) {
        self.ended.get_or_create(&EndedLabels { why: why.word() }).inc();
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metrics")
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;

    use super::*;

    #[test]
    fn metrics_of_the_port_are_in_the_reference() {
        let mut registry = Registry::with_prefix("cloud_adapter");
        let metrics = Metrics::register(&mut registry);
        metrics.refused(None, "NO_TOKEN");
        metrics.ended(Ended::Aged);
        let mut page = String::new();
        encode(&mut page, &registry).expect("a page");
        test_support::reference::assert_up_to_date("cloud-adapter, its port", &[], &page);
    }
}
