//! One parser for each type of value. A valid value is printed as text that parses to the same value. The error for an invalid value lists
//! the expected values.

use std::{collections::BTreeMap, fmt, net::IpAddr, time::Duration};

/// Maximum length of a text. Source: the contract's limit on strings.
const TEXT_MAX: usize = 256;
/// Maximum length of a load balancer's name. Source: contract, `LoadBalancerSpec`.
pub(crate) const NAME_MAX: usize = 255;
/// Maximum length of a DNS name, and of each of its labels.
const HOSTNAME_MAX: usize = 253;
const LABEL_MAX: usize = 63;
/// Prefix of the load balancer names of openstack-cloud-controller-manager. Source: its `GetLoadBalancerName`.
const GO_PREFIX: &str = "kube_service_";
/// Number of digits of a UID after the `a` in a name from Go controllers. Source: cloud-provider, `DefaultLoadBalancerName`.
const GO_DIGITS: usize = 31;
/// The longest timeout of a listener. Source: contract, `Listener`.
const MAX_TIMEOUT: Duration = Duration::from_hours(24);
/// Maximum threshold of health checks. A larger threshold would have no practical use.
const PROBES_MAX: u32 = 100;
/// Maximum number of entries of a list. Each entry is compared with all others.
const ENTRIES_MAX: usize = 500;
/// Maximum number of certificates of one port.
const CERTIFICATES_MAX: usize = 100;

/// Why a value is invalid, and what is expected.
type Fault = String;

/// A type with a fixed set of words.
pub(crate) trait Word: Copy + 'static {
    const WORDS: &'static [(&'static str, Self)];
}

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
    Switch { On = "true", Off = "false" }
}
words! {
    /// How an existing load balancer is used.
    Adopt { None = "none", Owned = "owned", Shared = "shared" }
}
words! {
    /// What happens to the addresses on deletion.
    OnDelete { Delete = "delete", KeepAddress = "keep-address" }
}
words! {
    /// Whether and in which version the client's address is sent at the start of a connection.
    ProxyProtocol { Off = "off", V1 = "v1", V2 = "v2" }
}
words! {
    Algorithm {
        RoundRobin = "round-robin",
        LeastConnections = "least-connections",
        SourceIp = "source-ip",
        SourceIpPort = "source-ip-port",
    }
}
words! {
    /// The application protocol that the load balancer handles.
    ListenerProtocol { Tcp = "tcp", Udp = "udp", Http = "http", Https = "https", Tls = "tls" }
}
words! {
    HealthMode { Auto = "auto", NodePort = "node-port", KubeProxy = "kube-proxy", Local = "local" }
}
words! {
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

pub(crate) fn word<T: Word>(value: &str) -> Result<T, Fault> {
    let found = T::WORDS.iter().find(|(word, _)| *word == value).map(|(_, value)| *value);
    found.ok_or_else(|| {
        let words: Vec<&str> = T::WORDS.iter().map(|(word, _)| *word).collect();
        let (last, others) = words.split_last().unwrap_or((&"", &[]));
        format!("{value:?} is not known: write {} or {last}, or remove it", others.join(", "))
    })
}

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

/// Parses a whole number with a unit, from one second to one day.
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
    let fits = |seconds: &u32| *seconds > 0 && u64::from(*seconds) <= MAX_TIMEOUT.as_secs();
    seconds.filter(fits).map(Seconds).ok_or_else(wrong)
}

pub(crate) fn connections(value: &str) -> Result<u32, Fault> {
    number(value, 1, u32::MAX)
        .map_err(|_range| format!("{value:?} is not a number of connections: write 1 or more"))
}

pub(crate) fn probes(value: &str) -> Result<u32, Fault> {
    number(value, 1, PROBES_MAX)
}

pub(crate) fn port(value: &str) -> Result<u32, Fault> {
    number(value, 1, u16::MAX.into())
}

/// Parses decimal digits. Forms such as `+5` and `05` are refused, because they would be printed differently.
fn number(value: &str, least: u32, most: u32) -> Result<u32, Fault> {
    let plain = |number: &u32| number.to_string() == value && (least..=most).contains(number);
    let wrong = || format!("{value:?} is not a number from {least} to {most}");
    value.parse().ok().filter(plain).ok_or_else(wrong)
}

/// Parses a string whose meaning is vendor-specific.
pub(crate) fn text(value: &str) -> Result<String, Fault> {
    let good = !value.is_empty() && value.len() <= TEXT_MAX && value.trim() == value && is_printable(value);
    let wrong = || {
        format!(
            "{value:?} is not a text of 1 to {TEXT_MAX} bytes without surrounding blanks: correct or remove it"
        )
    };
    if good { Ok(value.to_owned()) } else { Err(wrong()) }
}

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

/// Parses a name that a Service sets. Names that a Go cloud controller manager may use are refused. Such a manager finds its load balancers
/// by name, and would mistake this load balancer for that of another Service.
pub(crate) fn chosen_name(value: &str) -> Result<String, Fault> {
    let name = name(value)?;
    if is_of_go(&name) {
        let why = "this name is reserved for former cloud controller managers (kube_service_..., a<uid>): write one such as shop-web";
        return Err(why.to_owned());
    }
    Ok(name)
}

/// Whether a Go cloud controller manager may use this name. Case is ignored, as in the databases in which vendors look up names.
fn is_of_go(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let is_uid = |rest: &str| rest.len() == GO_DIGITS && rest.bytes().all(|byte| byte.is_ascii_hexdigit());
    name.starts_with(GO_PREFIX) || name.strip_prefix('a').is_some_and(is_uid)
}

fn is_printable(value: &str) -> bool {
    !value.chars().any(char::is_control)
}

/// Parses a value that is passed unchanged to the adapter. The value may be empty.
pub(crate) fn extra(value: &str) -> Result<String, Fault> {
    if value.len() <= TEXT_MAX {
        Ok(value.to_owned())
    } else {
        Err(format!("is longer than {TEXT_MAX} bytes"))
    }
}

/// Parses a comma-separated list of strings without duplicates.
pub(crate) fn texts(value: &str) -> Result<Vec<String>, Fault> {
    list(value, text)
}

/// Parses a comma-separated list of certificate references without duplicates. Their number is limited, because each listener that is sent
/// to the cloud contains the list.
pub(crate) fn certificates(value: &str) -> Result<Vec<String>, Fault> {
    let all = texts(value)?;
    if all.len() > CERTIFICATES_MAX {
        return Err(format!("{} certificates exceed the limit of {CERTIFICATES_MAX}: use fewer", all.len()));
    }
    Ok(all)
}

/// Parses a comma-separated list of namespaces without duplicates.
pub(crate) fn namespaces(value: &str) -> Result<Vec<String>, Fault> {
    list(value, |entry| {
        let wrong = || format!("{entry:?} is not the name of a namespace: write one such as shop");
        if is_label(entry) { Ok(entry.to_owned()) } else { Err(wrong()) }
    })
}

/// Parses a comma-separated list of addresses without duplicates.
pub(crate) fn addresses(value: &str) -> Result<Vec<IpAddr>, Fault> {
    list(value, |entry| {
        entry.parse().map_err(|_error| format!("{entry:?} is not an IP address: write one such as 192.0.2.7"))
    })
}

fn list<T: PartialEq>(value: &str, entry: impl Fn(&str) -> Result<T, Fault>) -> Result<Vec<T>, Fault> {
    check_length(value)?;
    let mut entries = Vec::new();
    for one in value.split(',').map(str::trim) {
        let read = entry(one)?;
        if entries.contains(&read) {
            return Err(format!("duplicate entry {one:?}: write it once"));
        }
        entries.push(read);
    }
    Ok(entries)
}

fn check_length(list: &str) -> Result<(), Fault> {
    let count = list.split(',').count();
    if count > ENTRIES_MAX {
        return Err(format!("{count} entries exceed the limit of {ENTRIES_MAX}: use fewer"));
    }
    Ok(())
}

/// Parses a comma-separated list of `key=value`.
pub(crate) fn tags(value: &str) -> Result<BTreeMap<String, String>, Fault> {
    check_length(value)?;
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
            return Err(format!("duplicate key {key:?}: write it once"));
        }
    }
    Ok(tags)
}

pub(crate) fn path(value: &str) -> Result<String, Fault> {
    let good =
        value.starts_with('/') && value.len() <= TEXT_MAX && value.chars().all(|it| it.is_ascii_graphic());
    let wrong = || format!("{value:?} is not a path: write one such as /healthz, without blanks");
    if good { Ok(value.to_owned()) } else { Err(wrong()) }
}

/// Parses a DNS name in the form that the API server accepts in a status: in lower case, and not an IP address.
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
