//! The adapter's reports about a load balancer: items of the watch, and answers to ensure and delete calls. They are reduced to the fields
//! in use.

use std::{collections::BTreeMap, fmt, time::Duration};

use cloud_api_proto::v1alpha1::{
    DeleteLoadBalancerResponse, EnsureLoadBalancerResponse, Listener, LoadBalancer, LoadBalancerAddress,
    LoadBalancerCondition, LoadBalancerSpec, LoadBalancerState, PortStatus, Protocol,
    load_balancer_address::{IpMode, Value},
};
use jiff::Timestamp;

use super::service::{Ingress, IngressPort, Transport};

/// Type of the condition of a load balancer that waits for the call budget.
const WAITING_FOR_BUDGET: &str = "WaitingForBudget";
/// Type of the condition of a load balancer for which a vendor write fails repeatedly and is tried again.
const WRITE_FAILED: &str = "WriteFailed";

/// State of a load balancer. A state that this version does not know is `Unknown`, which means neither success nor absence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Unknown,
    Pending,
    Active,
    /// The load balancer serves traffic, but some parts of the load balancer do not work.
    Degraded,
    Error,
    Deleting,
    Absent,
}

impl From<LoadBalancerState> for State {
    fn from(state: LoadBalancerState) -> Self {
        match state {
            LoadBalancerState::Unspecified => Self::Unknown,
            LoadBalancerState::Pending => Self::Pending,
            LoadBalancerState::Active => Self::Active,
            LoadBalancerState::Degraded => Self::Degraded,
            LoadBalancerState::Error => Self::Error,
            LoadBalancerState::Deleting => Self::Deleting,
            LoadBalancerState::Absent => Self::Absent,
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unknown => "in an unknown state",
            Self::Pending => "pending",
            Self::Active => "active",
            Self::Degraded => "degraded",
            Self::Error => "in error",
            Self::Deleting => "being deleted",
            Self::Absent => "absent",
        })
    }
}

/// A load balancer in the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Balancer {
    pub(crate) vendor_id: String,
    pub(crate) state: State,
    pub(crate) applied_hash: String,
    pub(crate) ingress: Vec<Ingress>,
    /// Listeners in the form `tcp/443`, sorted. Empty: the adapter does not report listeners.
    pub(crate) listeners: Vec<String>,
    /// Number of backends over all listeners. The driver decides how many backends a node needs.
    pub(crate) backends: u32,
    pub(crate) details: Details,
}

/// What the status page shows of a load balancer, and no plan depends on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Details {
    pub(crate) name: String,
    /// Time of the creation. `None`: the adapter does not report it.
    pub(crate) created_at: Option<Timestamp>,
    /// The vendor's IDs of the parts, by kind, such as `listener/tcp/443`.
    pub(crate) parts: BTreeMap<String, String>,
}

impl From<&LoadBalancer> for Details {
    fn from(item: &LoadBalancer) -> Self {
        let ids = item.vendor_ids.iter().flat_map(|it| &it.ids);
        let created_at = item.created_at.and_then(|at| Timestamp::new(at.seconds, at.nanos).ok());
        Self {
            name: item.name.clone(),
            created_at,
            parts: ids.map(|(kind, id)| (kind.clone(), id.clone())).collect(),
        }
    }
}

impl From<&LoadBalancer> for Balancer {
    fn from(item: &LoadBalancer) -> Self {
        Self {
            vendor_id: item.vendor_id.clone(),
            state: item.state().into(),
            applied_hash: item.applied_hash.clone(),
            ingress: ingress(&item.addresses),
            listeners: sorted(item.listeners.clone()),
            backends: item.backends,
            details: item.into(),
        }
    }
}

/// Listeners of a specification, in the form that the cache uses.
pub(crate) fn listeners(spec: &LoadBalancerSpec) -> Vec<String> {
    let word = |it: &Listener| {
        let protocol = it.protocol().as_str_name().trim_start_matches("PROTOCOL_").to_lowercase();
        format!("{protocol}/{}", it.port)
    };
    sorted(spec.listeners.iter().map(word).collect())
}

fn sorted(mut words: Vec<String>) -> Vec<String> {
    words.sort();
    words
}

/// A vendor write that failed several times, or for ten seconds, and is tried again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WriteFailure {
    /// The step with its object, and the vendor's error.
    pub(crate) error: String,
    /// When the adapter tries again. May be empty.
    pub(crate) next: String,
}

impl fmt::Display for WriteFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { error, next } = self;
        if next.is_empty() { f.write_str(error) } else { write!(f, "{error}; {next}") }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EnsureResult {
    pub(crate) state: State,
    /// Number of vendor writes of the change that this answer reports.
    pub(crate) steps: u32,
    pub(crate) applied_hash: String,
    pub(crate) ingress: Vec<Ingress>,
    /// What the load balancer waits for, or why it is out of sync. Users see this text, which is a single line.
    pub(crate) why: String,
    /// The part of the message that does not change during the wait, if the load balancer waits for the call budget.
    pub(crate) budget: Option<String>,
    pub(crate) failure: Option<WriteFailure>,
    pub(crate) retry_after: Option<Duration>,
}

impl EnsureResult {
    /// Whether the adapter changed the load balancer. `seen` is what the cache showed before.
    ///
    /// `steps` alone is not sufficient, because an adapter may count the steps of a convergence that ended long ago.
    pub(crate) fn worked(&self, seen: Option<&[Balancer]>) -> bool {
        let same = |it: &Balancer| it.state == self.state && it.applied_hash == self.applied_hash;
        let as_before = seen.is_some_and(|seen| seen.iter().any(same));
        self.state == State::Pending || (self.steps > 0 && !as_before)
    }
}

impl From<EnsureLoadBalancerResponse> for EnsureResult {
    fn from(answer: EnsureLoadBalancerResponse) -> Self {
        Self {
            state: answer.state().into(),
            steps: answer.steps,
            ingress: ingress(&answer.addresses),
            why: words(&answer.conditions),
            budget: budget(&answer.conditions),
            failure: failure(&answer.conditions),
            retry_after: answer.retry_after.and_then(|delay| delay.try_into().ok()),
            applied_hash: answer.applied_hash,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Removal {
    pub(crate) state: State,
    pub(crate) why: String,
    /// The part of the message that does not change during the wait, if the deletion waits for the call budget.
    pub(crate) budget: Option<String>,
    pub(crate) failure: Option<WriteFailure>,
    pub(crate) retry_after: Option<Duration>,
}

impl From<DeleteLoadBalancerResponse> for Removal {
    fn from(answer: DeleteLoadBalancerResponse) -> Self {
        Self {
            state: answer.state().into(),
            why: words(&answer.conditions),
            budget: budget(&answer.conditions),
            failure: failure(&answer.conditions),
            retry_after: answer.retry_after.and_then(|delay| delay.try_into().ok()),
        }
    }
}

/// The text before the colon is used, because the text after the colon contains changing numbers. Source: docs/reference/driver.md.
fn budget(conditions: &[LoadBalancerCondition]) -> Option<String> {
    let LoadBalancerCondition { message, .. } =
        conditions.iter().find(|it| it.r#type == WAITING_FOR_BUDGET)?;
    let words = message.split_once(": ").map_or(message.as_str(), |(words, _numbers)| words);
    Some(words.to_owned()).filter(|words| !words.is_empty())
}

/// The text before the last semicolon identifies the failure. Source: docs/reference/driver.md.
fn failure(conditions: &[LoadBalancerCondition]) -> Option<WriteFailure> {
    let LoadBalancerCondition { message, .. } = conditions.iter().find(|it| it.r#type == WRITE_FAILED)?;
    let (error, next) = message.rsplit_once("; ").unwrap_or((message, ""));
    let failure = WriteFailure { error: error.to_owned(), next: next.to_owned() };
    Some(failure).filter(|it| !it.error.is_empty())
}

fn words(conditions: &[LoadBalancerCondition]) -> String {
    let line = |it: &LoadBalancerCondition| match it.message.as_str() {
        "" => it.r#type.clone(),
        message => message.to_owned(),
    };
    conditions.iter().map(line).collect::<Vec<_>>().join("; ")
}

fn ingress(addresses: &[LoadBalancerAddress]) -> Vec<Ingress> {
    addresses.iter().filter_map(one).collect()
}

/// Converts an address. The API server accepts a mode only with an IP address. Addresses of unknown kinds are dropped.
fn one(address: &LoadBalancerAddress) -> Option<Ingress> {
    let ports = address.ports.iter().filter_map(port).collect();
    match address.value.clone()? {
        Value::Hostname(name) => Some(Ingress { hostname: Some(name), ports, ..Ingress::default() }),
        Value::Ip(ip) => {
            let mode = match address.ip_mode() {
                IpMode::Unspecified | IpMode::Vip => "VIP",
                IpMode::Proxy => "Proxy",
            };
            Some(Ingress { ip: Some(ip), ip_mode: Some(mode.to_owned()), ports, ..Ingress::default() })
        }
    }
}

fn port(status: &PortStatus) -> Option<IngressPort> {
    let transport = match status.protocol() {
        Protocol::Unspecified => return None,
        Protocol::Tcp => Transport::Tcp,
        Protocol::Udp => Transport::Udp,
        Protocol::Sctp => Transport::Sctp,
    };
    let port = u16::try_from(status.port).ok()?;
    Some(IngressPort { port, transport, error: status.error.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budget_wait_text_omits_changing_numbers() {
        let answer = |word: &str, message: &str| EnsureLoadBalancerResponse {
            conditions: vec![LoadBalancerCondition { r#type: word.to_owned(), message: message.to_owned() }],
            ..EnsureLoadBalancerResponse::default()
        };
        let kept = |word, message| EnsureResult::from(answer(word, message)).budget;
        let sentence = "waits for the call budget of bucket loadbalancer: 37 calls ahead at 5 a second, next call in about 8 s";
        let words = Some("waits for the call budget of bucket loadbalancer".to_owned());
        assert_eq!(kept(WAITING_FOR_BUDGET, sentence), words);
        assert_eq!(kept("WaitingFor", sentence), None, "another condition has the same message");
        assert_eq!(kept(WAITING_FOR_BUDGET, ""), None, "empty message");
        assert_eq!(EnsureResult::from(answer(WAITING_FOR_BUDGET, sentence)).why, sentence);
    }

    #[test]
    fn text_before_the_last_semicolon_identifies_a_failed_write() {
        let read = |word: &str, message: &str| {
            let condition = LoadBalancerCondition { r#type: word.to_owned(), message: message.to_owned() };
            failure(&[condition]).map(|it| (it.error.clone(), it.next.clone(), it.to_string()))
        };
        let parts =
            |error: &str, next: &str, all: &str| Some((error.to_owned(), next.to_owned(), all.to_owned()));
        let all = "create failed (503): a; b; next try in about 3 s";
        assert_eq!(read(WRITE_FAILED, all), parts("create failed (503): a; b", "next try in about 3 s", all));
        assert_eq!(read(WRITE_FAILED, "no"), parts("no", "", "no"));
        assert_eq!((read(WRITE_FAILED, ""), read("WaitingFor", all)), (None, None));
    }
}
