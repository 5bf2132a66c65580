//! What the adapter says of a load balancer, trimmed: an item of its mirror and the answer to an ensure.

use std::{fmt, time::Duration};

use cloud_api_proto::v1alpha1::{
    DeleteLoadBalancerResponse, EnsureLoadBalancerResponse, Listener, LoadBalancer, LoadBalancerAddress,
    LoadBalancerCondition, LoadBalancerSpec, LoadBalancerState, PortStatus, Protocol,
    load_balancer_address::{IpMode, Value},
};

use super::service::{Ingress, IngressPort, Transport};

/// The type of the condition of what waits for its turn at the cloud.
const WAITING_FOR_BUDGET: &str = "WaitingForBudget";

/// How a load balancer does. An unknown word of a newer adapter is `Unknown`: neither success nor absence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Unknown,
    Pending,
    Active,
    /// Serves, but not all parts do.
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

/// One item of the adapter's mirror.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Balancer {
    pub(crate) vendor_id: String,
    pub(crate) state: State,
    pub(crate) applied_hash: String,
    pub(crate) ingress: Vec<Ingress>,
    /// As `tcp/443`, sorted. Empty: the adapter does not tell.
    pub(crate) listeners: Vec<String>,
    /// Over all listeners. How many a node counts for is the driver's business.
    pub(crate) backends: u32,
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
        }
    }
}

/// The listeners of a specification, in the words of the mirror.
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

/// What the adapter answers to an ensure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) state: State,
    /// Vendor writes of this convergence.
    pub(crate) steps: u32,
    pub(crate) applied_hash: String,
    pub(crate) ingress: Vec<Ingress>,
    /// What it waits for, or why it is not as desired: one line, for people.
    pub(crate) why: String,
    /// It waits for its turn at the cloud: what of these words stays the same meanwhile.
    pub(crate) budget: Option<String>,
    pub(crate) retry_after: Option<Duration>,
}

impl Answer {
    /// Whether there was something to do, given what the mirror showed before.
    ///
    /// Steps alone do not tell: an adapter may count those of a convergence that has ended long ago.
    pub(crate) fn worked(&self, seen: Option<&[Balancer]>) -> bool {
        let same = |it: &Balancer| it.state == self.state && it.applied_hash == self.applied_hash;
        let as_before = seen.is_some_and(|seen| seen.iter().any(same));
        self.state == State::Pending || (self.steps > 0 && !as_before)
    }
}

impl From<EnsureLoadBalancerResponse> for Answer {
    fn from(answer: EnsureLoadBalancerResponse) -> Self {
        Self {
            state: answer.state().into(),
            steps: answer.steps,
            ingress: ingress(&answer.addresses),
            why: words(&answer.conditions),
            budget: budget(&answer.conditions),
            retry_after: answer.retry_after.and_then(|delay| delay.try_into().ok()),
            applied_hash: answer.applied_hash,
        }
    }
}

/// What the adapter answers to a delete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Removal {
    pub(crate) state: State,
    pub(crate) why: String,
    /// As in [`Answer`].
    pub(crate) budget: Option<String>,
    pub(crate) retry_after: Option<Duration>,
}

impl From<DeleteLoadBalancerResponse> for Removal {
    fn from(answer: DeleteLoadBalancerResponse) -> Self {
        Self {
            state: answer.state().into(),
            why: words(&answer.conditions),
            budget: budget(&answer.conditions),
            retry_after: answer.retry_after.and_then(|delay| delay.try_into().ok()),
        }
    }
}

/// Numbers that change all the time follow a colon. Source: docs/write-an-adapter.md.
fn budget(conditions: &[LoadBalancerCondition]) -> Option<String> {
    let LoadBalancerCondition { message, .. } =
        conditions.iter().find(|it| it.r#type == WAITING_FOR_BUDGET)?;
    let words = message.split_once(": ").map_or(message.as_str(), |(words, _numbers)| words);
    Some(words.to_owned()).filter(|words| !words.is_empty())
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

/// The API server takes a mode beside an IP only; an address of a kind that we do not know is left out.
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
    fn of_a_wait_for_the_budget_the_words_are_kept_that_stay() {
        let answer = |word: &str, message: &str| EnsureLoadBalancerResponse {
            conditions: vec![LoadBalancerCondition { r#type: word.to_owned(), message: message.to_owned() }],
            ..EnsureLoadBalancerResponse::default()
        };
        let kept = |word, message| Answer::from(answer(word, message)).budget;
        let sentence =
            "waits for the budget of loadbalancer: 37 calls ahead at 5 a second, its next call in about 8 s";
        let words = Some("waits for the budget of loadbalancer".to_owned());
        assert_eq!(kept(WAITING_FOR_BUDGET, sentence), words);
        assert_eq!(kept("WaitingFor", sentence), None, "it says that it waits for something else");
        assert_eq!(kept(WAITING_FOR_BUDGET, ""), None, "nothing to tell");
        assert_eq!(Answer::from(answer(WAITING_FOR_BUDGET, sentence)).why, sentence);
    }
}
