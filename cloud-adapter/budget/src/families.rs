//! State per family: calls in flight and the circuit breaker.

use std::collections::BTreeMap;

use crate::{BreakerState, Config, Time, breaker::Breaker};

/// Maximum number of calls in flight for a family that is not configured.
const IN_FLIGHT: u32 = 16;

#[derive(Clone, Debug, Default)]
pub(crate) struct Families(BTreeMap<&'static str, Family>);

#[derive(Clone, Debug)]
struct Family {
    in_flight: u32,
    most: u32,
    breaker: Breaker,
}

impl Families {
    pub(crate) fn know(&mut self, name: &'static str, config: &Config) {
        self.0.entry(name).or_insert_with(|| Family {
            in_flight: 0,
            most: most(name, config),
            breaker: Breaker::new(config.breaker),
        });
    }

    pub(crate) fn configure(&mut self, config: &Config) {
        for (name, family) in &mut self.0 {
            family.most = most(name, config);
            family.breaker.configure(config.breaker);
        }
    }

    /// Time at which a call may be sent. `None` if a call can be sent only after another call returns.
    pub(crate) fn ready_at(&self, now: Time, name: &str) -> Option<Time> {
        let Some(family) = self.0.get(name) else { return Some(now) };
        if let BreakerState::Open { retry_at } = family.breaker.state(now) {
            return Some(retry_at);
        }
        (family.in_flight < family.most && family.breaker.admits(now)).then_some(now)
    }

    /// `None` if the breaker is not open.
    pub(crate) fn open_until(&self, now: Time, name: &str) -> Option<Time> {
        match self.0.get(name)?.breaker.state(now) {
            BreakerState::Open { retry_at } => Some(retry_at),
            BreakerState::Closed | BreakerState::HalfOpen => None,
        }
    }

    /// Number of further calls that may be in flight.
    pub(crate) fn room(&self, now: Time, name: &str) -> u32 {
        match self.0.get(name) {
            Some(family) if family.breaker.state(now) == BreakerState::HalfOpen => 1,
            Some(family) => family.most.saturating_sub(family.in_flight),
            None => u32::MAX,
        }
    }

    /// The maximum number of calls in flight, if that many are in flight now.
    pub(crate) fn full(&self, name: &str) -> Option<u32> {
        self.0.get(name).filter(|family| family.in_flight >= family.most).map(|family| family.most)
    }

    pub(crate) fn sent(&mut self, name: &str) {
        if let Some(family) = self.0.get_mut(name) {
            family.in_flight += 1;
            family.breaker.sent();
        }
    }

    /// Records that a call returned. `failed` says whether the call ended with a 5xx status, a timeout or a failed connection.
    pub(crate) fn record_result(&mut self, now: Time, name: &str, failed: bool) {
        if let Some(family) = self.0.get_mut(name) {
            family.in_flight = family.in_flight.saturating_sub(1);
            family.breaker.record_result(now, failed);
        }
    }

    pub(crate) fn report(&self, now: Time) -> Vec<(String, BreakerState)> {
        self.0.iter().map(|(name, family)| ((*name).to_owned(), family.breaker.state(now))).collect()
    }
}

fn most(name: &str, config: &Config) -> u32 {
    config.concurrency.get(name).copied().unwrap_or(IN_FLIGHT).max(1)
}
