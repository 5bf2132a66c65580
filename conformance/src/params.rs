//! The parameter file: where the adapter is, who calls it, what stands behind it, and what only its owner knows.
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

use crate::hooks::Hook;

/// What clap takes for a slip of the finger.
const SIMILAR: f64 = 0.7;

/// The whole file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Params {
    /// Adapters that share nothing: checks run on all of them at once. The flag `--endpoint` stands for one.
    pub lanes: Vec<LaneParams>,
    /// An adapter that authenticates callers, for the checks of identities.
    pub secured: Option<LaneParams>,
    /// Two replicas of one adapter, for the checks of standby and failover; `endpoint` names both, `replicas` each.
    pub replicas: Option<LaneParams>,
    /// Commands, by the names of [`Hook`]. Those of a lane come first.
    pub hooks: BTreeMap<Hook, String>,
    /// What the vendor's API looks like.
    pub vendor: VendorParams,
    /// What is asked for in checks.
    pub samples: Samples,
    /// What the adapter is configured to keep to.
    pub limits: Limits,
    /// How long checks wait and disturb.
    pub timings: Timings,
}

/// One adapter and what is around it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct LaneParams {
    /// For people, and in `LANE` of commands. Default: its number.
    pub name: String,
    /// Where the adapter is: `http://h:p`, `https://h:p`, `dns:///h:p`, `static:///a:p,b:p`, `unix:/path`.
    pub endpoint: String,
    /// Each replica on its own, where there are several.
    pub replicas: Vec<String>,
    /// TLS towards the adapter.
    pub tls: TlsParams,
    /// The one cluster that the adapter serves. Default: it serves any, and each check makes up its own.
    pub cluster_id: Option<String>,
    /// Who calls, by role. What is missing calls without an identity.
    pub identities: Identities,
    /// The proxy between adapter and vendor.
    pub proxy: Option<ProxyParams>,
    /// Where metrics and probes are served, such as `http://127.0.0.1:10273`.
    pub http: Option<String>,
    /// The file that the adapter's log goes to.
    pub log: Option<PathBuf>,
    /// Commands of this lane alone.
    pub hooks: BTreeMap<Hook, String>,
    /// Variables of all commands that are run for this lane.
    pub env: BTreeMap<String, String>,
}

/// TLS towards the adapter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct TlsParams {
    /// PEM file with the CA of the adapter's certificate.
    pub ca_file: Option<PathBuf>,
    /// The name that the certificate must carry.
    pub server_name: Option<String>,
}

/// One identity a role.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Identities {
    /// The node-controller's.
    pub node_controller: Option<IdentityParams>,
    /// The service-controller's.
    pub service_controller: Option<IdentityParams>,
    /// The route-controller's.
    pub route_controller: Option<IdentityParams>,
    /// An operator's: watches and dry runs.
    pub operator: Option<IdentityParams>,
    /// A valid one that has no role.
    pub stranger: Option<IdentityParams>,
}

/// How a caller proves who it is: by a token, or by a certificate with its key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct IdentityParams {
    /// File with a bearer token; read again when it changes.
    pub token_file: Option<PathBuf>,
    /// PEM file with a client certificate.
    pub certificate_file: Option<PathBuf>,
    /// PEM file with its key.
    pub key_file: Option<PathBuf>,
}

/// The suite's own proxy between adapter and vendor. It takes requests for its own address (the adapter's base URL of the vendor is
/// overridden), and as an HTTP proxy: absolute URLs and CONNECT, whose TLS it ends with certificates of its own CA.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProxyParams {
    /// Where the adapter finds it.
    pub listen: SocketAddr,
    /// The vendor's base URL, for requests to the proxy's own address.
    #[serde(default, deserialize_with = "uri")]
    pub upstream: Option<Uri>,
    /// Of a vendor with several services: base URLs by the first part of the path, such as `/compute`, which is cut off. What begins with
    /// none of them goes to `upstream`.
    #[serde(default, deserialize_with = "uris")]
    pub upstreams: BTreeMap<String, Uri>,
    /// Whether `listen` itself speaks TLS, with a certificate of the proxy's CA.
    #[serde(default)]
    pub tls: bool,
    /// PEM file of the proxy's CA. Made, with its key beside it (`.key`), if it is not there; the adapter must trust it.
    #[serde(default)]
    pub ca_file: Option<PathBuf>,
    /// PEM file with the CA of the vendor's certificate. Default: the system's.
    #[serde(default)]
    pub upstream_ca_file: Option<PathBuf>,
}

impl ProxyParams {
    /// Where a request for the proxy's own address goes.
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
    /// Calls that list, and how an empty page looks.
    pub lists: Vec<ListParams>,
    /// Calls that read although their method is not GET or HEAD.
    pub reads: Vec<Pattern>,
    /// The response header in which the vendor tells the ID of a request.
    pub request_id_header: Option<String>,
}

/// A call that lists.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListParams {
    /// `instances`, `load-balancers` or `routes`.
    pub collection: String,
    /// Which calls: matched against `GET /path?query`.
    pub call: Pattern,
    /// The body of an empty page.
    pub empty_body: String,
}

/// What is asked for in checks.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Samples {
    /// `spec.class` of load balancers. Default: unset.
    pub class: Option<String>,
    /// What every load balancer's `spec.parameters` must hold.
    pub parameters: BTreeMap<String, String>,
    /// An address that is reserved and free, for `lb.reserved-ip`.
    pub reserved_address: Option<String>,
    /// How many machines one check may make: 10,000 for INS-16, and listings of several pages with fewer. Default: 10.
    pub machines: Option<usize>,
    /// A provider ID of another provider or region. Default: of a provider that nobody has.
    pub foreign_provider_id: Option<String>,
    /// A provider ID in the vendor's form, of an instance that never was.
    pub missing_provider_id: Option<String>,
    /// Text that stands in the adapter's vendor credentials and must never show.
    pub canary: Option<String>,
}

/// What the adapter is configured to keep to, in vendor calls.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Limits {
    /// By bucket.
    pub buckets: BTreeMap<String, BucketParams>,
}

/// A token bucket of the adapter.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BucketParams {
    /// Calls a second.
    pub rate: f64,
    /// Calls at once.
    pub burst: f64,
    /// The calls that it covers: matched against `METHOD /path?query`.
    pub calls: Pattern,
}

/// How long checks wait and disturb. Full length by default; a simulated cloud makes it shorter.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Timings {
    /// The longest that an adapter takes for an answer which needs the vendor's.
    #[serde(deserialize_with = "duration")]
    pub answer: Duration,
    /// The longest that a command takes.
    #[serde(deserialize_with = "duration")]
    pub hook: Duration,
    /// The longest that a load balancer takes to be ACTIVE, or ABSENT. Beyond 30 s the limits of checks grow with it.
    #[serde(deserialize_with = "duration")]
    pub converge: Duration,
    /// The longest that a started adapter takes to be ready, or a killed one to be replaced.
    #[serde(deserialize_with = "duration")]
    pub ready: Duration,
    /// The longest that an adapter takes to try again after the vendor rejected its credentials, or failed.
    #[serde(deserialize_with = "duration")]
    pub heal: Duration,
    /// The longest that the vendor's reads lag behind its writes. Default: what `GetInfo` says.
    #[serde(deserialize_with = "some_duration")]
    pub consistency: Option<Duration>,
    /// How long the vendor is away in FLT-04.
    #[serde(deserialize_with = "duration")]
    pub outage: Duration,
    /// How long a learned rate has to settle in BUD-05.
    #[serde(deserialize_with = "duration")]
    pub settle: Duration,
    /// How long calls are counted against buckets in BUD-01, BUD-02 and BUD-08.
    #[serde(deserialize_with = "duration")]
    pub load: Duration,
    /// The drift period: the longest that a change by hand stays, or a change at the vendor stays unseen.
    #[serde(deserialize_with = "duration")]
    pub drift: Duration,
    /// The longest that an adapter takes to use new credentials, certificates or a new configuration file.
    #[serde(deserialize_with = "duration")]
    pub reload: Duration,
    /// The longest that a connection to the secured adapter lives, for LIF-02. Configure it short while the suite runs.
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
    /// Whether a call is meant.
    #[must_use]
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

/// Why a parameter file is refused.
#[derive(Debug, thiserror::Error)]
pub enum ParamsError {
    /// It cannot be read.
    #[error("--params {path}")]
    Read {
        /// The file.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// It is not what is expected.
    #[error("--params {path}: {fault}")]
    Invalid {
        /// The file.
        path: String,
        /// What is wrong, with line and key, and the nearest right key.
        fault: String,
    },
}

impl Params {
    /// Reads a file.
    ///
    /// # Errors
    /// The first fault, with line and key.
    pub fn load(path: &Path) -> Result<Self, ParamsError> {
        let name = || path.display().to_string();
        let text = fs::read_to_string(path).map_err(|source| ParamsError::Read { path: name(), source })?;
        Self::parse(&text).map_err(|fault| ParamsError::Invalid { path: name(), fault })
    }

    /// Reads the text of a file.
    ///
    /// # Errors
    /// The first fault, with line and key.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        serde_saphyr::from_str(text).map_err(|error| with_nearest(&error.to_string()))
    }
}

/// Adds what was probably meant to what is said of an unknown key: "unknown field `x`, expected one of y, z".
fn with_nearest(text: &str) -> String {
    let unknown = ["unknown field `", "unknown variant `"].iter().find_map(|words| text.split_once(words));
    let Some((word, known)) = unknown.and_then(|(_before, rest)| rest.split_once('`')) else {
        return text.to_owned();
    };
    // The text's own lines follow after the first.
    let known = known.lines().next().unwrap_or_default();
    let nearest = known
        .split(|letter: char| !letter.is_alphanumeric())
        .map(|known| (strsim::jaro_winkler(word, known), known))
        .filter(|(similarity, _known)| *similarity > SIMILAR)
        .max_by(|(a, _), (b, _)| a.total_cmp(b));
    match nearest {
        Some((_similarity, known)) => format!("{text}\nis `{known}` meant?"),
        None => text.to_owned(),
    }
}

fn duration<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(from)?;
    SpanParser::new()
        .parse_unsigned_duration(&text)
        .map_err(|_error| D::Error::custom(format!("{text} is no length of time: write it as 20ms, 30s, 2m")))
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
            return Err(D::Error::custom(format!("{prefix} is no path: write it as /{prefix}")));
        }
        Ok((prefix, base_url(&text)?))
    };
    texts.into_iter().map(read).collect()
}

fn base_url<E: serde::de::Error>(text: &str) -> Result<Uri, E> {
    let uri: Uri = text.parse().map_err(E::custom)?;
    if uri.scheme().is_none() || uri.authority().is_none() {
        return Err(E::custom(format!("{text}: write it as http://127.0.0.1:9797")));
    }
    Ok(uri)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_key_is_answered_with_the_nearest_one() {
        for (text, meant) in [
            ("lnaes: []", "`lanes`"),
            ("timings: {otage: 3s}", "`outage`"),
            ("hooks: {createInstance: x}", "`createInstances`"),
            ("lanes: [{endpont: x}]", "`endpoint`"),
        ] {
            let fault = Params::parse(text).expect_err(text);
            assert!(fault.contains(&format!("is {meant} meant?")), "{text}: {fault}");
        }
    }

    #[test]
    fn a_file_says_what_it_says() {
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
        let params = Params::parse(text).expect("is right");
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
    fn each_service_of_the_vendor_has_a_path_of_its_own() {
        let text = "{listen: '127.0.0.1:2', upstreams: {/compute: 'http://nova:1', /compute/old: 'http://nova:2/v1'}}";
        let mut proxy: ProxyParams = serde_saphyr::from_str(text).expect("is right");
        assert_eq!(proxy.target("/compute/v2?a=/b").as_deref(), Some("http://nova:1/v2?a=/b"));
        assert_eq!(proxy.target("/compute?a").as_deref(), Some("http://nova:1?a"));
        assert_eq!(proxy.target("/compute/old/x").as_deref(), Some("http://nova:2/v1/x"), "the longest");
        assert_eq!(proxy.target("/computers"), None);
        proxy.upstream = Some(Uri::from_static("http://rest:3/api/"));
        assert_eq!(proxy.target("/computers").as_deref(), Some("http://rest:3/api/computers"));
    }
}
