//! Flags and the configuration file, to a checked [`Config`].

mod cache;
mod limits;
mod live;
mod log_level;
mod section;
#[cfg(test)]
mod tests;

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use clap::{Args, ValueEnum};
use cloud_adapter_security::Address;
use jiff::fmt::friendly::SpanParser;

pub use self::cache::{BatchWindow, CacheSettings, CollectionSettings};
pub(crate) use self::live::LiveConfig;
use crate::{driver::VendorLimit, grants::Grant, replica::ReplicaOptions, security::SecurityOptions};

const CONNECTION_AGE_MIN: Duration = Duration::from_secs(1);
const CONNECTION_AGE_MAX: Duration = Duration::from_hours(24);

/// The flags that every adapter has.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// Where the contract is served (gRPC, with health and reflection): an IP address and a port, or unix:/path.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8443", help_heading = "Adapter")]
    pub grpc_address: Address,

    /// Where /metrics, /healthz and /readyz are served (plain HTTP, no API).
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:10273", value_parser = address, help_heading = "Adapter")]
    pub http_address: SocketAddr,

    /// For how long a connection of the contract lasts before its client is asked to connect anew, such as 30m: what was proved once
    /// does not count for ever. Calls under way end normally.
    #[arg(long, value_name = "TIME", default_value = "30m", value_parser = connection_age, help_heading = "Adapter")]
    pub max_connection_age: Duration,

    /// A YAML file with the vendor call limits: `limits: {buckets: {compute: {rate: 20, burst: 40}}}`. Rates are calls a second.
    /// Families: compute, network, loadbalancer, identity. A changed file is taken over within seconds, unless it has faults.
    #[arg(long, value_name = "FILE", help_heading = "Adapter")]
    pub config: Option<PathBuf>,

    /// Allow the Services of a namespace something that reaches beyond them, as NAMESPACE:KIND=VALUE; repeatable. * is any namespace or
    /// any value. Kinds: adopt (take over the load balancer of this vendor ID, which has no owner; it is released with its Service),
    /// adopt-and-delete (the same, deleted with its Service), share (use the load balancer of this vendor ID beside its owner), parameter
    /// (set this vendor parameter), pool, subnet, certificate (name this one in address-pool, subnet, tls-cert-refs), addresses (ask for
    /// addresses of this range, which is then reserved for the namespaces that have it).
    #[arg(long, value_name = "GRANT", help_heading = "Tenants")]
    pub grant: Vec<Grant>,

    /// Who may call, and how.
    #[command(flatten)]
    pub security: SecurityOptions,

    /// Whether this adapter is one of several.
    #[command(flatten)]
    pub replicas: ReplicaOptions,

    /// How log lines are written.
    #[arg(long, value_enum, default_value_t = LogFormat::Auto, help_heading = "Log")]
    pub log_format: LogFormat,

    /// What is logged: error, warn, info, debug, trace, or directives such as `info,cloud_adapter=debug`.
    #[arg(long, value_name = "FILTER", default_value = "info", value_parser = filter, help_heading = "Log")]
    pub log_level: String,
}

fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|error| format!("{error}: use an IP address and a port, such as 0.0.0.0:10273"))
}

/// Checks the age of connections: one that ends at once serves nobody.
fn connection_age(text: &str) -> Result<Duration, String> {
    let age = SpanParser::new().parse_unsigned_duration(text);
    let age = age.map_err(|_error| "use a number with its unit, such as 90s, 30m, 2h".to_owned())?;
    if (CONNECTION_AGE_MIN..=CONNECTION_AGE_MAX).contains(&age) {
        Ok(age)
    } else {
        Err("use at least 1s and at most 24h".to_owned())
    }
}

/// Checks a log filter, so that a wrong one is refused as a flag and not after the start.
fn filter(text: &str) -> Result<String, String> {
    log_level::check(text).map(|()| text.to_owned())
}

/// How log lines are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Text on a terminal, JSON elsewhere.
    Auto,
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// The checked configuration file.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// What may be asked of the vendor, and in which order.
    pub limits: cloud_budget::Config,
    /// How vendor calls are saved.
    pub cache: CacheSettings,
    /// This cluster's part of the account: what the file says of rates and bursts is taken times that.
    pub share: f64,
    /// Families that neither the file nor the driver has limits for: they get 5 calls a second.
    pub assumed: Vec<&'static str>,
    /// A digest of the file: tells replicas and reloads apart.
    pub revision: String,
}

/// Why a configuration file is refused.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It cannot be read.
    #[error("--config {path}: cannot be read")]
    Read {
        /// The file.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// It is not what is expected. All faults are named.
    #[error("--config {path}: {faults}")]
    Invalid {
        /// The file.
        path: String,
        /// What is wrong, with the keys, separated by semicolons.
        faults: String,
    },
}

impl Config {
    /// Reads the text of a file. `usual`: the driver's limits, for what the file does not name.
    ///
    /// # Errors
    /// All faults, each with the path of its key and the fix, separated by semicolons.
    pub fn parse(text: &str, usual: &[(&'static str, VendorLimit)]) -> Result<Self, String> {
        let (limits, cache) = section::read(text, |file| {
            let limits = file.section("limits", |limits| limits::read(limits, usual));
            (limits, file.section("cache", cache::read))
        })
        .map_err(|faults| faults.join("; "))?;
        let limits::Limits { scheduler, share, assumed } = limits;
        Ok(Self { limits: scheduler, cache, share, assumed, revision: revision(text) })
    }
}

fn revision(text: &str) -> String {
    use sha2::Digest as _;
    sha2::Sha256::digest(text).iter().take(6).map(|byte| format!("{byte:02x}")).collect()
}
