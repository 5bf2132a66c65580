//! One parser a type of value. Whatever is accepted prints as a text that reads the same; what is not is answered with what would be.

use std::{collections::BTreeMap, fmt, net::IpAddr, time::Duration};

/// The longest text. Source: the contract's bound on strings.
const TEXT_MAX: usize = 256;
/// The longest name of a load balancer. Source: contract, `LoadBalancerSpec`.
pub(crate) const NAME_MAX: usize = 255;
/// The longest DNS name, and the longest of its labels.
const HOSTNAME_MAX: usize = 253;
const LABEL_MAX: usize = 63;
/// How openstack-cloud-controller-manager begins its names. Source: its `GetLoadBalancerName`.
const GO_PREFIX: &str = "kube_service_";
/// Digits of a UID behind the `a` of a name in Go controllers. Source: cloud-provider, `DefaultLoadBalancerName`.
const GO_DIGITS: usize = 31;
/// Source: contract, `Listener`.
const LONGEST: Duration = Duration::from_hours(24);
/// Probes in a row: more is no threshold any more.
const PROBES_MAX: u32 = 100;
/// Entries of a list. Each is compared with all others.
const ENTRIES_MAX: usize = 500;
/// Certificates of one port.
const CERTIFICATES_MAX: usize = 100;

/// Why a value is not accepted, and what would be.
type Fault = String;

/// A type whose values are a few words.
pub(crate) trait Word: Copy + PartialEq + 'static {
    /// Each value and its word.
    const WORDS: &'static [(&'static str, Self)];

    /// The word of this value.
    fn word(self) -> &'static str {
        Self::WORDS.iter().find(|(_, value)| *value == self).map_or("", |(word, _)| word)
    }
}

/// Gives a type its words.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$of:meta])* $value:ident = $word:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum $name { $($(#[$of])* $value),+ }

        impl Word for $name {
            const WORDS: &'static [(&'static str, Self)] = &[$(($word, Self::$value)),+];
        }
    };
}

words! {
    /// A yes or a no.
    Switch { On = "true", Off = "false" }
}
words! {
    /// What becomes of a load balancer that is there.
    Adopt { None = "none", Owned = "owned", Shared = "shared" }
}
words! {
    /// What becomes of the addresses.
    OnDelete { Delete = "delete", KeepAddress = "keep-address" }
}
words! {
    /// Whether and how the client's address is sent ahead.
    ProxyProtocol { Off = "off", V1 = "v1", V2 = "v2" }
}
words! {
    /// How a node is chosen.
    Algorithm {
        RoundRobin = "round-robin",
        LeastConnections = "least-connections",
        SourceIp = "source-ip",
        SourceIpPort = "source-ip-port",
    }
}
words! {
    /// What the load balancer understands of what passes.
    ListenerProtocol { Tcp = "tcp", Udp = "udp", Http = "http", Https = "https", Tls = "tls" }
}
words! {
    /// What is probed.
    HealthMode { Auto = "auto", NodePort = "node-port", KubeProxy = "kube-proxy", Local = "local" }
}
words! {
    /// With what nodes are probed.
    HealthProtocol { Tcp = "tcp", Http = "http" }
}
words! {
    /// How packets arrive at the nodes.
    IpMode { Vip = "VIP", Proxy = "Proxy", Auto = "auto" }
}

impl Switch {
    pub(crate) fn is_on(self) -> bool {
        self == Self::On
    }
}

/// One of a few words.
pub(crate) fn word<T: Word>(value: &str) -> Result<T, Fault> {
    let found = T::WORDS.iter().find(|(word, _)| *word == value).map(|(_, value)| *value);
    found.ok_or_else(|| {
        let words: Vec<&str> = T::WORDS.iter().map(|(word, _)| *word).collect();
        let (last, others) = words.split_last().unwrap_or((&"", &[]));
        format!("{value:?} is not known: write {} or {last}, or remove it", others.join(", "))
    })
}

/// A time in whole seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Seconds(pub(crate) u32);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}s", self.0)
    }
}

impl From<Seconds> for prost_types::Duration {
    fn from(seconds: Seconds) -> Self {
        Self { seconds: seconds.0.into(), nanos: 0 }
    }
}

/// A whole number and its unit, from a second to a day.
pub(crate) fn duration(value: &str) -> Result<Seconds, Fault> {
    let wrong = || format!("{value:?} is not a duration from 1s to 24h: write one such as 90s, 5m or 1h");
    let split = value.find(|letter: char| !letter.is_ascii_digit()).ok_or_else(wrong)?;
    let (number, unit) = value.split_at_checked(split).ok_or_else(wrong)?;
    let seconds_each = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => return Err(wrong()),
    };
    let seconds = number.parse::<u32>().ok().and_then(|number| number.checked_mul(seconds_each));
    let fits = |seconds: &u32| *seconds > 0 && u64::from(*seconds) <= LONGEST.as_secs();
    seconds.filter(fits).map(Seconds).ok_or_else(wrong)
}

/// How many connections.
pub(crate) fn connections(value: &str) -> Result<u32, Fault> {
    number(value, 1, u32::MAX)
        .map_err(|_range| format!("{value:?} is not a number of connections: write 1 or more"))
}

/// How many probes.
pub(crate) fn probes(value: &str) -> Result<u32, Fault> {
    number(value, 1, PROBES_MAX)
}

/// A port's number.
pub(crate) fn port(value: &str) -> Result<u32, Fault> {
    number(value, 1, u16::MAX.into())
}

/// Decimal digits and nothing else: `+5` and `05` would not print as they were.
fn number(value: &str, least: u32, most: u32) -> Result<u32, Fault> {
    let plain = |number: &u32| number.to_string() == value && (least..=most).contains(number);
    let wrong = || format!("{value:?} is not a number from {least} to {most}");
    value.parse().ok().filter(plain).ok_or_else(wrong)
}

/// Something in the vendor's words.
pub(crate) fn text(value: &str) -> Result<String, Fault> {
    let good = !value.is_empty() && value.len() <= TEXT_MAX && value.trim() == value && is_printable(value);
    let wrong = || {
        format!(
            "{value:?} is not a text of 1 to {TEXT_MAX} bytes without blanks around it: write one, or remove it"
        )
    };
    if good { Ok(value.to_owned()) } else { Err(wrong()) }
}

/// The name of a load balancer.
pub(crate) fn name(value: &str) -> Result<String, Fault> {
    let edge = |letter: Option<char>| letter.is_some_and(|it| it.is_ascii_alphanumeric());
    let inner = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    let good = value.len() <= NAME_MAX
        && value.chars().all(inner)
        && edge(value.chars().next())
        && edge(value.chars().last());
    let wrong = || {
        format!(
            "{value:?} is not a name of 1 to {NAME_MAX} letters, digits, -, _ and ., the first and the last a letter or a digit: write \
             one such as shop-web"
        )
    };
    if good { Ok(value.to_owned()) } else { Err(wrong()) }
}

/// The name of a load balancer, where a Service chooses it. A Go cloud controller manager finds its load balancers by their names: it would
/// take the one of this name for that of another Service.
pub(crate) fn chosen_name(value: &str) -> Result<String, Fault> {
    let name = name(value)?;
    if is_of_go(&name) {
        let why = "a Go cloud controller manager would take this name (kube_service_..., a<uid>) for its own: write one such as shop-web";
        return Err(why.to_owned());
    }
    Ok(name)
}

/// Whether a Go cloud controller manager may give this name. Without regard to case, as databases compare by which vendors find names.
fn is_of_go(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let is_uid = |rest: &str| rest.len() == GO_DIGITS && rest.bytes().all(|byte| byte.is_ascii_hexdigit());
    name.starts_with(GO_PREFIX) || name.strip_prefix('a').is_some_and(is_uid)
}

fn is_printable(value: &str) -> bool {
    !value.chars().any(char::is_control)
}

/// What an adapter gets as it stands; it may be empty.
pub(crate) fn extra(value: &str) -> Result<String, Fault> {
    if value.len() <= TEXT_MAX {
        Ok(value.to_owned())
    } else {
        Err(format!("is longer than {TEXT_MAX} bytes"))
    }
}

/// Texts with commas between them, each once.
pub(crate) fn texts(value: &str) -> Result<Vec<String>, Fault> {
    list(value, text)
}

/// References of certificates with commas between them, each once: clouds take them with each listener.
pub(crate) fn certificates(value: &str) -> Result<Vec<String>, Fault> {
    let all = texts(value)?;
    if all.len() > CERTIFICATES_MAX {
        return Err(format!("{} certificates are more than {CERTIFICATES_MAX}: use fewer", all.len()));
    }
    Ok(all)
}

/// Names of namespaces with commas between them, each once.
pub(crate) fn namespaces(value: &str) -> Result<Vec<String>, Fault> {
    list(value, |entry| {
        let wrong = || format!("{entry:?} is not the name of a namespace: write one such as shop");
        if is_label(entry) { Ok(entry.to_owned()) } else { Err(wrong()) }
    })
}

/// Addresses with commas between them, each once.
pub(crate) fn addresses(value: &str) -> Result<Vec<IpAddr>, Fault> {
    list(value, |entry| {
        entry.parse().map_err(|_error| format!("{entry:?} is not an IP address: write one such as 192.0.2.7"))
    })
}

fn list<T: PartialEq>(value: &str, entry: impl Fn(&str) -> Result<T, Fault>) -> Result<Vec<T>, Fault> {
    let count = value.split(',').count();
    if count > ENTRIES_MAX {
        return Err(format!("{count} entries are more than {ENTRIES_MAX}: use fewer"));
    }
    let mut entries = Vec::new();
    for one in value.split(',').map(str::trim) {
        let read = entry(one)?;
        if entries.contains(&read) {
            return Err(format!("{one:?} is there twice: write it once"));
        }
        entries.push(read);
    }
    Ok(entries)
}

/// `key=value` with commas between them.
pub(crate) fn tags(value: &str) -> Result<BTreeMap<String, String>, Fault> {
    let mut tags = BTreeMap::new();
    for entry in value.split(',').map(str::trim) {
        let pair = entry.split_once('=').map(|(key, value)| (key.trim(), value.trim()));
        let good = |(key, value): &(&str, &str)| {
            !key.is_empty()
                && key.len().max(value.len()) <= TEXT_MAX
                && is_printable(key)
                && is_printable(value)
        };
        let Some((key, value)) = pair.filter(good) else {
            return Err(format!("{entry:?} is not a tag: write one such as team=shop"));
        };
        if tags.insert(key.to_owned(), value.to_owned()).is_some() {
            return Err(format!("{key:?} is there twice: write it once"));
        }
    }
    Ok(tags)
}

/// The path of a request.
pub(crate) fn path(value: &str) -> Result<String, Fault> {
    let good =
        value.starts_with('/') && value.len() <= TEXT_MAX && value.chars().all(|it| it.is_ascii_graphic());
    let wrong = || format!("{value:?} is not a path: write one such as /healthz, without blanks");
    if good { Ok(value.to_owned()) } else { Err(wrong()) }
}

/// A DNS name as the API server takes it for a status: lower case, no address.
pub(crate) fn hostname(value: &str) -> Result<String, Fault> {
    let good =
        value.len() <= HOSTNAME_MAX && value.parse::<IpAddr>().is_err() && value.split('.').all(is_label);
    let wrong = || format!("{value:?} is not a DNS name: write one such as shop.example.com, in lower case");
    if good { Ok(value.to_owned()) } else { Err(wrong()) }
}

fn is_label(label: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let dashed = label.starts_with('-') || label.ends_with('-');
    !label.is_empty() && label.len() <= LABEL_MAX && label.bytes().all(inner) && !dashed
}

#[cfg(test)]
mod tests;
