//! The parameter file: the adapter's endpoint, its callers, the vendor behind it, and facts that only the operator of the adapter knows.
//!
//! Every key is documented at its field; durations are written as `30s` or `5m`. Unknown keys are refused.

use std::{
    collections::BTreeMap,
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use http::Uri;
use jiff::fmt::friendly::SpanParser;
use regex::Regex;
use serde::{Deserialize, Deserializer, de::Error as _};
use telemetry::nearest;

use crate::hooks::Hook;

/// The content of the parameter file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Params {
    /// Independent adapters, on all of which checks run concurrently. The flag `--endpoint` replaces them by one lane.
    pub lanes: Vec<LaneParams>,
    /// An adapter that authenticates callers, for the checks of identities.
    pub secured: Option<LaneParams>,
    /// Two replicas of one adapter, for the checks of standby and failover. `endpoint` contains the addresses of both replicas, and
    /// `replicas` lists the endpoint of each replica.
    pub replicas: Option<LaneParams>,
    /// Commands, by the names of [`Hook`]. Those of a lane take precedence.
    pub hooks: BTreeMap<Hook, String>,
    /// What the vendor's API looks like.
    pub vendor: VendorParams,
    /// Values to use in requests.
    pub samples: Samples,
    /// The configured limits of the adapter.
    pub limits: Limits,
    /// How long checks wait, and how long injected faults last.
    pub timings: Timings,
}

/// One adapter with its environment.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct LaneParams {
    /// Name in reports and in the variable `LANE` of commands. Default: the number of the lane.
    pub name: String,
    /// Endpoint of the adapter: `http://h:p`, `https://h:p`, `dns:///h:p`, `static:///a:p,b:p`, `unix:/path`.
    pub endpoint: String,
    /// Endpoint of each replica, if there are several.
    pub replicas: Vec<String>,
    /// The TLS settings of connections to the adapter.
    pub tls: TlsParams,
    /// ID of the only cluster that the adapter serves. Default: the adapter serves any cluster, and each check uses a new one.
    pub cluster_id: Option<String>,
    /// Identities, by role. A role that is not set calls without an identity.
    pub identities: Identities,
    /// The proxy between adapter and vendor.
    pub proxy: Option<ProxyParams>,
    /// Base URL of metrics and probes, such as `http://127.0.0.1:10273`.
    pub http: Option<String>,
    /// The adapter's log file.
    pub log: Option<PathBuf>,
    /// Commands of this lane only.
    pub hooks: BTreeMap<Hook, String>,
    /// Environment variables of all commands that run for this lane.
    pub env: BTreeMap<String, String>,
}

/// The TLS settings of connections to the adapter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct TlsParams {
    /// PEM file with the CA of the adapter's certificate.
    pub ca_file: Option<PathBuf>,
    /// The server name that the adapter's certificate must contain.
    pub server_name: Option<String>,
}

/// One identity per role.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Identities {
    /// Identity of the node-controller.
    pub node_controller: Option<IdentityParams>,
    /// Identity of the service-controller.
    pub service_controller: Option<IdentityParams>,
    /// Identity of the route-controller.
    pub route_controller: Option<IdentityParams>,
    /// Identity of an operator, for watches and dry runs.
    pub operator: Option<IdentityParams>,
    /// A valid identity without a role.
    pub stranger: Option<IdentityParams>,
}

/// The credentials of a caller: a token, or a certificate with its key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct IdentityParams {
    /// File with a bearer token, which is read again when it changes.
    pub token_file: Option<PathBuf>,
    /// PEM file with a client certificate.
    pub certificate_file: Option<PathBuf>,
    /// PEM file with the key of the certificate.
    pub key_file: Option<PathBuf>,
}

/// The suite's own proxy between adapter and vendor. It serves requests for its own address, if the adapter uses this address as the
/// vendor's base URL. It is also an HTTP proxy for absolute URLs and CONNECT, and terminates the TLS of CONNECT with certificates of its
/// own CA.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProxyParams {
    /// Listen address.
    pub listen: SocketAddr,
    /// The vendor's base URL, for requests to the proxy's own address.
    #[serde(default, deserialize_with = "uri")]
    pub upstream: Option<Uri>,
    /// For a vendor with several services: the base URL of each service, keyed by a path prefix such as `/compute`. The proxy removes the
    /// prefix. Requests with another path go to `upstream`.
    #[serde(default, deserialize_with = "uris")]
    pub upstreams: BTreeMap<String, Uri>,
    /// Whether the proxy uses TLS on its own address `listen`, with a certificate of the proxy's CA.
    #[serde(default)]
    pub tls: bool,
    /// PEM file of the proxy's CA, which the adapter must trust. If the file does not exist, the proxy creates it, with the CA's key beside
    /// it (`.key`).
    #[serde(default)]
    pub ca_file: Option<PathBuf>,
    /// PEM file with the CA of the vendor's certificate. Default: the CAs of the system.
    #[serde(default)]
    pub upstream_ca_file: Option<PathBuf>,
}

impl ProxyParams {
    /// The upstream URL of a request for the proxy's own address.
    pub(crate) fn target(&self, path: &str) -> Option<String> {
        let below = |prefix: &str| {
            let rest = path.strip_prefix(prefix.trim_end_matches('/'))?;
            (rest.is_empty() || rest.starts_with(['/', '?'])).then_some(rest)
        };
        let services = self.upstreams.iter().filter_map(|(prefix, base)| Some((base, below(prefix)?)));
        let nearest = services.min_by_key(|(_base, rest)| rest.len());
        let (base, rest) = nearest.or_else(|| Some((self.upstream.as_ref()?, path)))?;
        Some(format!("{}{rest}", base.to_string().trim_end_matches('/')))
    }
}

/// What the vendor's API looks like.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct VendorParams {
    /// The list requests of the vendor's API, each with the body of an empty page.
    pub lists: Vec<ListParams>,
    /// Patterns of requests that only read although their method is not GET or HEAD.
    pub reads: Vec<Pattern>,
    /// Response header with the vendor's request ID.
    pub request_id_header: Option<String>,
}

/// A list request of the vendor's API.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListParams {
    /// `instances`, `load-balancers` or `routes`.
    pub collection: String,
    /// Pattern of the requests, matched against `GET /path?query`.
    pub call: Pattern,
    /// The body of an empty page.
    pub empty_body: String,
}

/// Values to use in requests.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Samples {
    /// `spec.class` of load balancers. Default: unset.
    pub class: Option<String>,
    /// Values that `spec.parameters` of every load balancer must have.
    pub parameters: BTreeMap<String, String>,
    /// An address that is reserved and free, for `lb.reserved-ip`.
    pub reserved_address: Option<String>,
    /// Number of instances that one check may create. INS-16 needs 10,000; checks of listings with several pages need fewer. Default: 10.
    pub machines: Option<usize>,
    /// A provider ID of another provider or region. Default: a provider ID of a fictitious provider.
    pub foreign_provider_id: Option<String>,
    /// A provider ID in the vendor's form, of an instance that never existed.
    pub missing_provider_id: Option<String>,
    /// A part of the adapter's vendor credentials, which must never appear in the adapter's output.
    pub canary: Option<String>,
}

/// The configured limits of the adapter, in vendor calls.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Limits {
    /// The limits of each bucket, keyed by the bucket's name.
    pub buckets: BTreeMap<String, BucketParams>,
}

/// A token bucket of the adapter.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BucketParams {
    /// Calls per second.
    pub rate: f64,
    /// Burst.
    pub burst: f64,
    /// Pattern of the calls that the bucket limits, matched against `METHOD /path?query`.
    pub calls: Pattern,
}

/// How long checks wait, and how long injected faults last. The defaults suit a real vendor; shorten them for a simulated cloud.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Timings {
    /// Maximum duration of a call that needs the vendor.
    #[serde(deserialize_with = "duration")]
    pub answer: Duration,
    /// Maximum duration of a command.
    #[serde(deserialize_with = "duration")]
    pub hook: Duration,
    /// Maximum time until a load balancer is ACTIVE, or ABSENT. If this time exceeds 30 s, the limits of checks grow accordingly.
    #[serde(deserialize_with = "duration")]
    pub converge: Duration,
    /// Maximum time until a started adapter is ready, or until another replica has replaced a killed one.
    #[serde(deserialize_with = "duration")]
    pub ready: Duration,
    /// Maximum time until an adapter retries after the vendor failed or rejected its credentials.
    #[serde(deserialize_with = "duration")]
    pub heal: Duration,
    /// Maximum lag of the vendor's reads behind its writes. Default: the value of `GetInfo`.
    #[serde(deserialize_with = "some_duration")]
    pub consistency: Option<Duration>,
    /// Duration of the vendor outage in FLT-04.
    #[serde(deserialize_with = "duration")]
    pub outage: Duration,
    /// Time in which a learned rate settles in BUD-05.
    #[serde(deserialize_with = "duration")]
    pub settle: Duration,
    /// Time during which BUD-01, BUD-02 and BUD-08 count calls.
    #[serde(deserialize_with = "duration")]
    pub load: Duration,
    /// Drift period: the maximum time until the adapter corrects a change by hand, or notices a change in the cloud.
    #[serde(deserialize_with = "duration")]
    pub drift: Duration,
    /// Maximum time until an adapter uses new credentials, certificates or a new configuration file.
    #[serde(deserialize_with = "duration")]
    pub reload: Duration,
    /// Maximum age of a connection to the secured adapter, for LIF-02. Set a short time in the adapter for the run of the suite.
    #[serde(deserialize_with = "some_duration")]
    pub connection_age: Option<Duration>,
}

impl Default for Timings {
    fn default() -> Self {
        Self {
            answer: Duration::from_secs(10),
            hook: Duration::from_mins(1),
            converge: Duration::from_mins(5),
            ready: Duration::from_secs(30),
            heal: Duration::from_mins(2),
            consistency: None,
            outage: Duration::from_mins(10),
            settle: Duration::from_mins(2),
            load: Duration::from_secs(30),
            drift: Duration::from_mins(6),
            reload: Duration::from_mins(1),
            connection_age: None,
        }
    }
}

/// A regular expression over `METHOD /path?query`.
#[derive(Clone, Debug)]
pub struct Pattern(Regex);

impl Pattern {
    /// Whether the pattern matches a request.
    pub fn matches(&self, method: &http::Method, path: &str) -> bool {
        self.0.is_match(&format!("{method} {path}"))
    }
}

impl From<Regex> for Pattern {
    fn from(regex: Regex) -> Self {
        Self(regex)
    }
}

impl<'de> Deserialize<'de> for Pattern {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        Regex::new(&text).map(Self).map_err(D::Error::custom)
    }
}

/// The reason why a parameter file is refused.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages describe the variants")]
pub enum ParamsError {
    #[error("--params {path}")]
    Read { path: String, source: std::io::Error },
    #[error("--params {path}: {fault}")]
    Invalid { path: String, fault: String },
}

impl Params {
    /// Reads a file.
    /// Returns the first fault, with line and key.
    pub fn load(path: &Path) -> Result<Self, ParamsError> {
        let name = || path.display().to_string();
        let text = fs::read_to_string(path).map_err(|source| ParamsError::Read { path: name(), source })?;
        Self::parse(&text).map_err(|fault| ParamsError::Invalid { path: name(), fault })
    }

    /// Reads the text of a file.
    /// Returns the first fault, with line and key.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        serde_saphyr::from_str(text).map_err(|error| with_nearest(&error.to_string()))
    }
}

/// Adds a suggestion to serde's error about an unknown key: "unknown field `x`, expected one of y, z".
fn with_nearest(text: &str) -> String {
    let unknown = ["unknown field `", "unknown variant `"].iter().find_map(|words| text.split_once(words));
    let Some((word, known)) = unknown.and_then(|(_before, rest)| rest.split_once('`')) else {
        return text.to_owned();
    };
    // The following lines of the error show its position in the file.
    let known = known.lines().next().unwrap_or_default();
    match nearest(word, known.split(|letter: char| !letter.is_alphanumeric())) {
        Some(known) => format!("{text}\ndid you mean '{known}'?"),
        None => text.to_owned(),
    }
}

fn duration<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(from)?;
    SpanParser::new()
        .parse_unsigned_duration(&text)
        .map_err(|_error| D::Error::custom(format!("invalid duration {text}: write it as 20ms, 30s, 2m")))
}

fn some_duration<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    duration(from).map(Some)
}

fn uri<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Uri>, D::Error> {
    base_url(&String::deserialize(from)?).map(Some)
}

fn uris<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<String, Uri>, D::Error> {
    let texts = BTreeMap::<String, String>::deserialize(from)?;
    let read = |(prefix, text): (String, String)| {
        if !prefix.starts_with('/') {
            return Err(D::Error::custom(format!("invalid path prefix {prefix}: write it as /{prefix}")));
        }
        Ok((prefix, base_url(&text)?))
    };
    texts.into_iter().map(read).collect()
}

fn base_url<E: serde::de::Error>(text: &str) -> Result<Uri, E> {
    let uri: Uri = text.parse().map_err(E::custom)?;
    if uri.scheme().is_none() || uri.authority().is_none() {
        return Err(E::custom(format!("invalid URL {text}: write it as http://127.0.0.1:9797")));
    }
    Ok(uri)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_key_gets_a_suggestion() {
        for (text, meant) in [
            ("lnaes: []", "'lanes'"),
            ("timings: {otage: 3s}", "'outage'"),
            ("hooks: {createInstance: x}", "'createInstances'"),
            ("lanes: [{endpont: x}]", "'endpoint'"),
        ] {
            let fault = Params::parse(text).expect_err(text);
            assert!(fault.contains(&format!("did you mean {meant}?")), "{text}: {fault}");
        }
    }

    #[test]
    fn parameter_file_is_parsed() {
        let text = "
lanes:
- endpoint: http://127.0.0.1:1
  proxy: {listen: '127.0.0.1:2', upstream: 'http://127.0.0.1:3'}
  env: {CLOUD: 'http://127.0.0.1:3'}
vendor:
  lists: [{collection: instances, call: '^GET /v1/instances(\\?|$)', emptyBody: '{}'}]
hooks: {killAdapter: kill -9 $(cat pid)}
timings: {outage: 3s}
";
        let params = Params::parse(text).expect("is valid");
        assert_eq!(params.timings.outage, Duration::from_secs(3));
        assert_eq!(params.timings.ready, Timings::default().ready);
        let list = &params.vendor.lists[0];
        assert!(list.call.matches(&http::Method::GET, "/v1/instances?limit=5"));
        assert!(!list.call.matches(&http::Method::GET, "/v1/instances/i-1"));
        assert!(params.hooks.contains_key(&Hook::KillAdapter));
        for wrong in [
            "timings: {outage: 3}",
            "lanes: [{proxy: {listen: '127.0.0.1:2', upstream: cloud}}]",
            "lanes: [{proxy: {listen: '127.0.0.1:2', upstreams: {compute: 'http://127.0.0.1:3'}}}]",
        ] {
            assert!(Params::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn requests_are_routed_by_path_prefix() {
        let text = "{listen: '127.0.0.1:2', upstreams: {/compute: 'http://nova:1', /compute/old: 'http://nova:2/v1'}}";
        let mut proxy: ProxyParams = serde_saphyr::from_str(text).expect("is valid");
        assert_eq!(proxy.target("/compute/v2?a=/b").as_deref(), Some("http://nova:1/v2?a=/b"));
        assert_eq!(proxy.target("/compute?a").as_deref(), Some("http://nova:1?a"));
        assert_eq!(proxy.target("/compute/old/x").as_deref(), Some("http://nova:2/v1/x"), "the longest");
        assert_eq!(proxy.target("/computers"), None);
        proxy.upstream = Some(Uri::from_static("http://rest:3/api/"));
        assert_eq!(proxy.target("/computers").as_deref(), Some("http://rest:3/api/computers"));
    }
}
