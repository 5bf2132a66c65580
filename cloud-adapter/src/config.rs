//! Flags and the configuration file, to a checked [`Config`].

mod log_level;

use std::{collections::BTreeMap, fs, net::SocketAddr, path::PathBuf};

use clap::{Args, ValueEnum};
use serde::Deserialize;

use crate::vendor::{BucketLimits, Family};

/// The flags that every adapter has.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// Where the contract is served (plaintext gRPC, with health and reflection).
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:8443", value_parser = address, help_heading = "Adapter")]
    pub grpc_address: SocketAddr,

    /// Where /metrics, /healthz and /readyz are served (plain HTTP, no API).
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:10273", value_parser = address, help_heading = "Adapter")]
    pub http_address: SocketAddr,

    /// A YAML file with the vendor call limits: `limits: {buckets: {compute: {rate: 20, burst: 40}}}`. Rates are calls a second.
    /// Families: compute, network, loadbalancer, identity. A family that is not named gets rate 5, burst 10.
    #[arg(long, value_name = "FILE", help_heading = "Adapter")]
    pub config: Option<PathBuf>,

    /// How log lines are written.
    #[arg(long, value_enum, default_value_t = LogFormat::Text, help_heading = "Log")]
    pub log_format: LogFormat,

    /// What is logged: error, warn, info, debug, trace, or directives such as `info,cloud_adapter=debug`.
    #[arg(long, value_name = "FILTER", default_value = "info", value_parser = filter, help_heading = "Log")]
    pub log_level: String,
}

fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|error| format!("{error}: use an IP address and a port, such as 0.0.0.0:8443"))
}

/// Checks a log filter, so that a wrong one is refused as a flag and not after the start.
fn filter(text: &str) -> Result<String, String> {
    log_level::check(text).map(|()| text.to_owned())
}

/// How log lines are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// The checked configuration file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Config {
    /// What each family may spend.
    pub buckets: BTreeMap<Family, BucketLimits>,
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

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct File {
    limits: Limits,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Limits {
    buckets: BTreeMap<String, RawBucket>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawBucket {
    rate: f64,
    burst: u32,
}

impl Config {
    /// Reads the file that `--config` names; without one, all families get the default limits.
    ///
    /// # Errors
    /// If it cannot be read, or names unknown keys or impossible limits.
    pub fn load(options: &Options) -> Result<Self, ConfigError> {
        let Some(path) = &options.config else { return Ok(Self::default()) };
        let shown = path.display().to_string();
        let text =
            fs::read_to_string(path).map_err(|source| ConfigError::Read { path: shown.clone(), source })?;
        parse(&text).map_err(|faults| ConfigError::Invalid { path: shown, faults: faults.join("; ") })
    }
}

fn parse(text: &str) -> Result<Config, Vec<String>> {
    let file: File = if text.trim().is_empty() {
        File::default()
    } else {
        serde_saphyr::from_str(text).map_err(|error| vec![error.to_string()])?
    };
    let (mut buckets, mut faults) = (BTreeMap::new(), Vec::new());
    for (name, RawBucket { rate, burst }) in file.limits.buckets {
        let Some(family) = Family::ALL.into_iter().find(|family| family.word() == name) else {
            faults.push(format!(
                "limits.buckets.{name}: no such family: use {}",
                Family::ALL.map(Family::word).join(", ")
            ));
            continue;
        };
        if !(rate.is_finite() && rate > 0.0) {
            faults
                .push(format!("limits.buckets.{name}.rate: {rate} is no rate: use calls a second, above 0"));
        }
        if burst == 0 {
            faults.push(format!("limits.buckets.{name}.burst: 0 lets no call through: use 1 or more"));
        }
        buckets.insert(family, BucketLimits { rate, burst });
    }
    if faults.is_empty() { Ok(Config { buckets, revision: revision(text) }) } else { Err(faults) }
}

fn revision(text: &str) -> String {
    use sha2::Digest as _;
    sha2::Sha256::digest(text).iter().take(6).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_by_family() {
        let config = parse("limits: {buckets: {compute: {rate: 20, burst: 40}}}").expect("valid");
        assert_eq!(config.buckets[&Family::Compute], BucketLimits { rate: 20.0, burst: 40 });
        assert_eq!(config.buckets.len(), 1);
        assert_eq!(parse("").expect("empty is valid").buckets.len(), 0);
    }

    #[test]
    fn each_fault_names_its_key() {
        for (name, text, wanted) in [
            ("unknown family", "limits: {buckets: {gpu: {rate: 1, burst: 1}}}", "limits.buckets.gpu"),
            ("zero rate", "limits: {buckets: {compute: {rate: 0, burst: 1}}}", "compute.rate"),
            ("zero burst", "limits: {buckets: {compute: {rate: 1, burst: 0}}}", "compute.burst"),
            ("unknown key", "limit: {}", "limit"),
            ("missing burst", "limits: {buckets: {compute: {rate: 1}}}", "burst"),
            ("no number", "limits: {buckets: {compute: {rate: fast, burst: 1}}}", "fast"),
        ] {
            let faults = parse(text).expect_err(name).join("; ");
            assert!(faults.contains(wanted), "{name}: {faults}");
        }
    }
}
