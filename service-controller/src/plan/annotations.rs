//! The annotations of ours on a Service: documented constants, one parser each, nothing about vendors.
//!
//! A key with our prefix that is not in [`KNOWN`] is refused, never ignored: a misspelt `internal` that is ignored puts a
//! private service on the internet.

use std::time::Duration;

use super::{Refusal, service::Service};

/// Every key of ours begins with this: the contract's domain and a slash.
pub(crate) const PREFIX: &str = "cloudadapter.dev/";

/// From where the load balancer can be reached.
///
/// Type: `internet` or `internal`.  Default: `internet`.  Unit: -.  Needs: capability `lb.internal` for `internal`.
pub(crate) const SCHEME: &str = "cloudadapter.dev/load-balancer-scheme";

/// After how long without data a connection is closed. Applies to every listener.
///
/// Type: whole number with unit `s`, `m` or `h`.  Default: the vendor's.  Unit: time, 1s to 24h.
pub(crate) const IDLE_TIMEOUT: &str = "cloudadapter.dev/load-balancer-idle-timeout";

/// The PROXY protocol header that is sent ahead of each TCP connection, so that pods learn the client's address.
///
/// Type: `v1` or `v2`.  Default: no header.  Unit: -.  Needs: capability `lb.proxy-protocol` and a TCP port.
pub(crate) const PROXY_PROTOCOL: &str = "cloudadapter.dev/load-balancer-proxy-protocol";

/// All keys of ours.
pub(crate) const KNOWN: [&str; 3] = [SCHEME, IDLE_TIMEOUT, PROXY_PROTOCOL];

const LONGEST_IDLE: Duration = Duration::from_hours(24);

/// From where a load balancer can be reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Scheme {
    #[default]
    Internet,
    Internal,
}

/// A PROXY protocol version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProxyProtocol {
    V1,
    V2,
}

/// What the annotations ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wishes {
    pub(crate) scheme: Scheme,
    pub(crate) idle_timeout: Option<Duration>,
    pub(crate) proxy_protocol: Option<ProxyProtocol>,
}

/// Reads all annotations of ours.
///
/// # Errors
/// Every fault, not the first: unknown keys with the nearest known one, and wrong values with the right ones.
pub(crate) fn wishes(service: &Service) -> Result<Wishes, Vec<Refusal>> {
    let mut wishes = Wishes::default();
    let mut refusals = Vec::new();
    for (key, value) in service.annotations.iter().filter(|(key, _)| key.starts_with(PREFIX)) {
        let read = match key.as_str() {
            SCHEME => scheme(value).map(|it| wishes.scheme = it),
            IDLE_TIMEOUT => duration(value).map(|it| wishes.idle_timeout = Some(it)),
            PROXY_PROTOCOL => proxy_protocol(value).map(|it| wishes.proxy_protocol = Some(it)),
            unknown => Err(format!("no such annotation, did you mean {}?", nearest(unknown))),
        };
        if let Err(why) = read {
            refusals.push(Refusal::new(format!("annotation {key}"), why));
        }
    }
    if refusals.is_empty() { Ok(wishes) } else { Err(refusals) }
}

fn scheme(value: &str) -> Result<Scheme, String> {
    match value {
        "internet" => Ok(Scheme::Internet),
        "internal" => Ok(Scheme::Internal),
        other => Err(format!("{other:?} is not known: write internet or internal")),
    }
}

fn proxy_protocol(value: &str) -> Result<ProxyProtocol, String> {
    match value {
        "v1" => Ok(ProxyProtocol::V1),
        "v2" => Ok(ProxyProtocol::V2),
        other => Err(format!("{other:?} is not known: write v1 or v2, or remove the annotation")),
    }
}

fn duration(value: &str) -> Result<Duration, String> {
    let wrong = || format!("{value:?} is not a duration from 1s to 24h: write one such as 90s, 5m or 1h");
    let split = value.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
    let (number, unit) = value.split_at_checked(split).ok_or_else(wrong)?;
    let seconds_each = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => return Err(wrong()),
    };
    let seconds = number.parse::<u64>().ok().and_then(|n| n.checked_mul(seconds_each));
    seconds.map(Duration::from_secs).filter(|it| !it.is_zero() && *it <= LONGEST_IDLE).ok_or_else(wrong)
}

/// The known key that takes the fewest edits.
fn nearest(key: &str) -> &'static str {
    KNOWN.into_iter().min_by_key(|known| strsim::levenshtein(known, key)).unwrap_or(SCHEME)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(annotations: &[(&str, &str)]) -> Result<Wishes, String> {
        let annotations =
            annotations.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect();
        wishes(&Service { annotations, ..Service::default() })
            .map_err(|refusals| refusals.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
    }

    #[test]
    fn the_prefix_is_the_contract_s_domain() {
        assert_eq!(PREFIX, format!("{}/", cloud_api_proto::DOMAIN));
        assert!(KNOWN.iter().all(|key| key.starts_with(PREFIX)));
    }

    #[test]
    fn no_annotation_means_the_defaults() {
        assert_eq!(read(&[("example.com/load-balancer-scheme", "internal")]), Ok(Wishes::default()));
    }

    #[test]
    fn each_annotation_is_read() {
        let wishes = read(&[(SCHEME, "internal"), (IDLE_TIMEOUT, "5m"), (PROXY_PROTOCOL, "v2")]).unwrap();
        assert_eq!(wishes.scheme, Scheme::Internal);
        assert_eq!(wishes.idle_timeout, Some(Duration::from_mins(5)));
        assert_eq!(wishes.proxy_protocol, Some(ProxyProtocol::V2));
    }

    #[test]
    fn every_fault_is_told_with_its_repair() {
        let faults = read(&[
            ("cloudadapter.dev/load-balancer-schema", "internal"),
            (IDLE_TIMEOUT, "fast"),
            (PROXY_PROTOCOL, "3"),
        ]);
        insta::assert_snapshot!(faults.unwrap_err(), @r#"
        annotation cloudadapter.dev/load-balancer-idle-timeout: "fast" is not a duration from 1s to 24h: write one such as 90s, 5m or 1h
        annotation cloudadapter.dev/load-balancer-proxy-protocol: "3" is not known: write v1 or v2, or remove the annotation
        annotation cloudadapter.dev/load-balancer-schema: no such annotation, did you mean cloudadapter.dev/load-balancer-scheme?
        "#);
    }

    #[test]
    fn durations_need_a_unit_and_a_sane_size() {
        for good in ["1s", "90s", "5m", "24h"] {
            assert!(duration(good).is_ok(), "{good}");
        }
        for bad in ["", "s", "5", "0s", "-5s", "1.5h", "25h", "5 m", "5d", "99999999999999999999h"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }
}
