//! The address of an adapter. Parses the value of a flag into a valid [`Target`], without connecting or resolving names.

use std::{fmt, net::Ipv6Addr, path::PathBuf, str::FromStr};

/// The valid forms, for error messages.
#[cfg(feature = "kubernetes")]
const FORMS: &str = "use http://cloud-adapter:8443, https://cloud-adapter:8443, kubernetes:///NAMESPACE/SERVICE[:PORTNAME], \
                     dns:///HOST:PORT, static:///HOST:PORT,HOST:PORT or unix:/PATH";

/// The valid forms for a program without a client of the API server.
#[cfg(not(feature = "kubernetes"))]
const FORMS: &str = "use http://cloud-adapter:8443, https://cloud-adapter:8443, dns:///HOST:PORT, static:///HOST:PORT,HOST:PORT or \
                     unix:/PATH";

/// The address of an adapter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// One endpoint: `http://HOST:PORT`, or `https://HOST:PORT` with TLS.
    Single {
        /// The host and port.
        host: HostPort,
        /// Whether TLS is used.
        tls: bool,
    },
    /// A Unix socket on this host: `unix:/PATH`. The connection uses no TLS; the permissions of the socket decide which processes may call.
    Unix(PathBuf),
    /// A fixed list of replicas: `static:///HOST:PORT,HOST:PORT`.
    Static(Vec<HostPort>),
    /// All addresses of a name: `dns:///HOST:PORT`.
    Dns(HostPort),
    /// All endpoints of a Service: `kubernetes:///NAMESPACE/SERVICE[:PORTNAME]`.
    #[cfg(feature = "kubernetes")]
    Kubernetes(ServicePort),
}

/// A host, which may be a name or an IP address, and a port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostPort {
    /// A name or an IP address, without brackets.
    pub host: String,
    /// Never 0.
    pub port: u16,
}

/// A port of a Kubernetes Service.
#[cfg(feature = "kubernetes")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServicePort {
    /// The Service's namespace.
    pub namespace: String,
    /// The Service's name.
    pub service: String,
    /// The port's name. `None`: the Service's only port, or the port named `grpc`.
    pub port: Option<String>,
}

/// Why a string is not a valid address, and how to fix it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem}: {fix}")]
pub struct TargetError {
    problem: String,
    fix: &'static str,
}

impl Target {
    /// Whether the target may have several replicas, only one of which serves.
    #[must_use]
    pub fn has_replicas(&self) -> bool {
        match self {
            Self::Single { .. } | Self::Unix(_) => false,
            Self::Static(_) | Self::Dns(_) => true,
            #[cfg(feature = "kubernetes")]
            Self::Kubernetes(_) => true,
        }
    }
}

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Self, TargetError> {
        let (scheme, rest) = text.split_once(':').ok_or_else(|| error("the address has no scheme", FORMS))?;
        match scheme {
            "http" | "https" => single(rest, scheme == "https"),
            "unix" => unix(rest),
            "static" => addresses(rest),
            "dns" => dns(rest),
            "kubernetes" => kubernetes(rest),
            _ => Err(error(format!("unknown scheme '{scheme}'"), FORMS)),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Single { host, tls: false } => write!(f, "http://{host}"),
            Self::Single { host, tls: true } => write!(f, "https://{host}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Static(hosts) => {
                let hosts: Vec<String> = hosts.iter().map(ToString::to_string).collect();
                write!(f, "static:///{}", hosts.join(","))
            }
            Self::Dns(host) => write!(f, "dns:///{host}"),
            #[cfg(feature = "kubernetes")]
            Self::Kubernetes(ServicePort { namespace, service, port: None }) => {
                write!(f, "kubernetes:///{namespace}/{service}")
            }
            #[cfg(feature = "kubernetes")]
            Self::Kubernetes(ServicePort { namespace, service, port: Some(port) }) => {
                write!(f, "kubernetes:///{namespace}/{service}:{port}")
            }
        }
    }
}

impl FromStr for HostPort {
    type Err = TargetError;

    /// Parses `HOST:PORT`; an IPv6 address is in brackets.
    fn from_str(text: &str) -> Result<Self, TargetError> {
        const FIX: &str = "use HOST:PORT, such as cloud-adapter:8443 or [fd00::1]:8443";
        let (host, port) =
            text.rsplit_once(':').ok_or_else(|| error(format!("'{text}' has no port"), FIX))?;
        let port = port
            .parse()
            .ok()
            .filter(|&port| port != 0)
            .ok_or_else(|| error(format!("'{port}' is not a port"), FIX))?;
        let bracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let host = match bracketed {
            Some(address) if address.parse::<Ipv6Addr>().is_ok() => address,
            None if is_host(host) => host,
            Some(_) | None => return Err(error(format!("'{host}' is not a host"), FIX)),
        };
        Ok(Self { host: host.to_owned(), port })
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

fn error(problem: impl Into<String>, fix: &'static str) -> TargetError {
    TargetError { problem: problem.into(), fix }
}

/// Accepts names and IPv4 addresses: letters, digits, `-`, `.` and `_`, which some resolvers accept.
fn is_host(text: &str) -> bool {
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    !text.is_empty() && text.len() <= 253 && text.chars().all(good)
}

fn single(rest: &str, tls: bool) -> Result<Target, TargetError> {
    const FIX: &str = "use a URL such as http://cloud-adapter:8443 or https://cloud-adapter:8443";
    let authority =
        rest.strip_prefix("//").ok_or_else(|| error("two slashes must follow the scheme", FIX))?;
    let authority = authority.strip_suffix('/').unwrap_or(authority);
    if authority.contains(['/', '?', '#', '@']) {
        return Err(error("only a host and a port may follow the slashes", FIX));
    }
    let has_port = authority.contains(':') && !authority.ends_with(']');
    let default = if tls { 443 } else { 80 };
    let host = if has_port { authority.to_owned() } else { format!("{authority}:{default}") };
    Ok(Target::Single { host: host.parse()?, tls })
}

fn unix(path: &str) -> Result<Target, TargetError> {
    // The alternative form `unix:///path` is valid, too.
    let path = PathBuf::from(path.strip_prefix("//").unwrap_or(path));
    let has_name = path.file_name().is_some();
    if path.is_absolute() && has_name {
        Ok(Target::Unix(path))
    } else {
        Err(error("the path is not absolute", "use unix:/run/cloud-adapter.sock"))
    }
}

fn addresses(rest: &str) -> Result<Target, TargetError> {
    let list = after_slashes(rest, "use static:///HOST:PORT,HOST:PORT")?;
    Ok(Target::Static(list.split(',').map(str::parse).collect::<Result<_, _>>()?))
}

fn dns(rest: &str) -> Result<Target, TargetError> {
    Ok(Target::Dns(after_slashes(rest, "use dns:///HOST:PORT")?.parse()?))
}

#[cfg(feature = "kubernetes")]
fn kubernetes(rest: &str) -> Result<Target, TargetError> {
    const FIX: &str = "use kubernetes:///NAMESPACE/SERVICE or kubernetes:///NAMESPACE/SERVICE:PORTNAME";
    let path = after_slashes(rest, FIX)?;
    let (namespace, rest) = path.split_once('/').ok_or_else(|| error("the address names no Service", FIX))?;
    let (service, port) = match rest.split_once(':') {
        Some((service, port)) => (service, Some(port)),
        None => (rest, None),
    };
    for label in [namespace, service].into_iter().chain(port) {
        if !is_label(label) {
            return Err(error(format!("'{label}' is not a valid Kubernetes name"), FIX));
        }
    }
    let (namespace, service) = (namespace.to_owned(), service.to_owned());
    Ok(Target::Kubernetes(ServicePort { namespace, service, port: port.map(str::to_owned) }))
}

#[cfg(not(feature = "kubernetes"))]
fn kubernetes(_rest: &str) -> Result<Target, TargetError> {
    Err(error("this program cannot watch EndpointSlices", "use dns:///HOST:PORT with a headless Service"))
}

/// Whether this is a DNS label, as the names of namespaces, Services and ports must be. Source: RFC 1123.
#[cfg(feature = "kubernetes")]
fn is_label(text: &str) -> bool {
    let good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    !text.is_empty()
        && text.len() <= 63
        && text.chars().all(good)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

/// Parses the part after the scheme, which must start with three slashes. A name between the second and the third slash would be a DNS
/// server, but the system resolver is used.
fn after_slashes<'a>(rest: &'a str, fix: &'static str) -> Result<&'a str, TargetError> {
    rest.strip_prefix("///").ok_or_else(|| error("three slashes must follow the scheme", fix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_targets_are_written_as_they_are_read() {
        for text in [
            "http://cloud-adapter:8443",
            "https://10.0.0.1:8443",
            "https://[fd00::1]:8443",
            "unix:/run/adapter.sock",
            "static:///10.0.0.1:8443,b.example:8443,[fd00::1]:1",
            "dns:///cloud-adapter.kube-system.svc:8443",
            #[cfg(feature = "kubernetes")]
            "kubernetes:///kube-system/cloud-adapter",
            #[cfg(feature = "kubernetes")]
            "kubernetes:///kube-system/cloud-adapter:grpc",
        ] {
            assert_eq!(text.parse::<Target>().expect(text).to_string(), text);
        }
        let same =
            [("http://a", "http://a:80"), ("https://a/", "https://a:443"), ("unix:///a/b", "unix:/a/b")];
        for (text, meant) in same {
            assert_eq!(text.parse::<Target>().expect(text).to_string(), meant);
        }
    }

    #[test]
    fn only_what_this_program_can_do_is_offered() {
        let offered = "adapter".parse::<Target>().unwrap_err().to_string();
        assert_eq!(offered.contains("kubernetes:///"), cfg!(feature = "kubernetes"), "{offered}");
    }

    #[test]
    fn a_bad_target_is_answered_with_the_right_form() {
        for (text, problem, form) in [
            ("", "the address has no scheme", "http://cloud-adapter:8443"),
            ("adapter", "the address has no scheme", "http://cloud-adapter:8443"),
            ("ftp://a:1", "unknown scheme 'ftp'", "unix:/PATH"),
            ("http:a:1", "two slashes", "http://cloud-adapter:8443"),
            ("http://", "'' is not a host", "HOST:PORT"),
            ("http://a:1/path", "only a host", "http://cloud-adapter:8443"),
            ("http://a:99999", "'99999' is not a port", "HOST:PORT"),
            ("https://user@a:1", "only a host", "https://cloud-adapter:8443"),
            ("unix:relative.sock", "not absolute", "unix:/run/"),
            ("unix:/", "not absolute", "unix:/run/"),
            ("static://a:1", "three slashes", "static:///HOST:PORT,HOST:PORT"),
            ("static:///a:1,", "'' has no port", "HOST:PORT"),
            ("static:///a:1,b", "'b' has no port", "HOST:PORT"),
            ("dns:///a:0", "'0' is not a port", "HOST:PORT"),
            ("dns:///fd00::1:8443", "'fd00::1' is not a host", "[fd00::1]:8443"),
            #[cfg(feature = "kubernetes")]
            (
                "kubernetes:///cloud-adapter",
                "the address names no Service",
                "kubernetes:///NAMESPACE/SERVICE",
            ),
            #[cfg(feature = "kubernetes")]
            ("kubernetes:///a/B", "'B' is not a valid", "kubernetes:///NAMESPACE/SERVICE"),
            #[cfg(feature = "kubernetes")]
            ("kubernetes:///a/b:", "'' is not a valid", ":PORTNAME"),
            #[cfg(not(feature = "kubernetes"))]
            ("kubernetes:///a/b", "cannot watch EndpointSlices", "dns:///HOST:PORT"),
        ] {
            let error = text.parse::<Target>().expect_err(text).to_string();
            assert!(error.contains(problem) && error.contains(form), "{text}: {error}");
        }
    }
}
