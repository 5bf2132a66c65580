//! Parses flags and the configuration file into a checked [`Config`].

mod cache;
mod limits;
mod live;
mod replicas;
mod section;
#[cfg(test)]
mod tests;

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use clap::Args;
use jiff::fmt::friendly::SpanParser;
use telemetry::logging::{LogFormat, check_filter};

pub use self::cache::{BatchWindow, CacheSettings, CollectionSettings};
pub(crate) use self::live::LiveConfig;
pub use self::replicas::{ReplicaMode, ReplicaOptions};
use crate::{access_control::SecurityOptions, auth::Address, driver::VendorLimit, grants::Grant};

const CONNECTION_AGE_MIN: Duration = Duration::from_secs(1);
const CONNECTION_AGE_MAX: Duration = Duration::from_hours(24);

/// The flags that all adapters share.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// Address of the gRPC server (contract, health and reflection): an IP address and a port, or unix:/path.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8443", help_heading = "Adapter")]
    pub grpc_address: Address,

    /// Address of /metrics, /healthz and /readyz (plain HTTP, no API).
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:10273", value_parser = address, help_heading = "Adapter")]
    pub http_address: SocketAddr,

    /// Maximum age of a gRPC connection, such as 30m. The adapter then asks the client to reconnect, so that its credentials are checked
    /// again. Running calls end normally.
    #[arg(long, value_name = "TIME", default_value = "30m", value_parser = connection_age, help_heading = "Adapter")]
    pub max_connection_age: Duration,

    /// YAML file with the vendor call limits: `limits: {buckets: {compute: {rate: 20, burst: 40}}}`. Rates are calls a second. Families:
    /// compute, network, loadbalancer, identity. Changes are applied within seconds unless the file is invalid.
    #[arg(long, value_name = "FILE", help_heading = "Adapter")]
    pub config: Option<PathBuf>,

    /// Allow the Services of a namespace to use something beyond their own objects, as NAMESPACE:KIND=VALUE; repeatable. * means any
    /// namespace or any value. Kinds: adopt (take over the load balancer with this vendor ID, which has no owner; it is released with its
    /// Service), adopt-and-delete (the same, but it is deleted with its Service), share (use the load balancer with this vendor ID beside
    /// its owner), parameter (set this vendor parameter), pool, subnet, certificate (use this value in address-pool, subnet,
    /// tls-cert-refs), addresses (request addresses of this range, which is then reserved for the namespaces that have the grant), former
    /// (take over by name what another cloud controller manager created in a cluster with this name).
    #[arg(long, value_name = "GRANT", help_heading = "Tenants")]
    pub grant: Vec<Grant>,

    /// Flags for callers and their authentication.
    #[command(flatten)]
    pub security: SecurityOptions,

    /// Flags for the replicas of this adapter.
    #[command(flatten)]
    pub replicas: ReplicaOptions,

    /// Format of log lines.
    #[arg(long, value_enum, default_value_t = LogFormat::Auto, help_heading = "Log")]
    pub log_format: LogFormat,

    /// Log filter: error, warn, info, debug, trace, or directives such as `info,cloud_adapter=debug`.
    #[arg(long, value_name = "FILTER", default_value = "info", value_parser = filter, help_heading = "Log")]
    pub log_level: String,
}

fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|error| format!("{error}: use an IP address and a port, such as 0.0.0.0:10273"))
}

/// Checks the maximum age of connections. If the value is too small, connections would be closed at once.
fn connection_age(text: &str) -> Result<Duration, String> {
    let age = SpanParser::new().parse_unsigned_duration(text);
    let age = age.map_err(|_error| "use a number with its unit, such as 90s, 30m, 2h".to_owned())?;
    if (CONNECTION_AGE_MIN..=CONNECTION_AGE_MAX).contains(&age) {
        Ok(age)
    } else {
        Err("use at least 1s and at most 24h".to_owned())
    }
}

/// Checks a log filter when flags are parsed, so that an invalid filter is refused at the start.
fn filter(text: &str) -> Result<String, String> {
    check_filter(text, "info,cloud_adapter=debug").map(|()| text.to_owned())
}

/// The checked configuration file.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Limits of vendor calls, and their priorities.
    pub limits: cloud_budget::Config,
    /// How listings and look-ups are cached and batched.
    pub cache: CacheSettings,
    /// This cluster's share of the account's limits; rates and bursts in the file are multiplied by this share.
    pub share: f64,
    /// The families whose limits are neither in the file nor in the driver. Each of these families gets 5 calls a second.
    pub assumed: Vec<&'static str>,
    /// Digest of the file, which identifies the version of the configuration.
    pub revision: String,
}

/// Why a configuration file is refused.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("--config {path}: cannot be read")]
    Read {
        /// The path of the file.
        path: String,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The file is invalid. The error lists all faults.
    #[error("--config {path}: {faults}")]
    Invalid {
        /// The path of the file.
        path: String,
        /// The faults with their keys, separated by semicolons.
        faults: String,
    },
}

impl Config {
    /// Parses the text of a file. `usual` are the driver's limits, for buckets that the file does not contain.
    ///
    /// # Errors
    /// Returns all faults, each with the path of its key and the fix, separated by semicolons.
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
