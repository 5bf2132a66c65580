//! The question that the user asks: flags, and the file that they name.

use std::path::PathBuf;

use clap::builder::RangedU64ValueParser;

use crate::Cloud;

/// Largest accepted number. Larger ones are assumed to be typing mistakes.
const NODES_MAX: u64 = 10_000;
const SERVICES_MAX: u64 = 5_000;

/// The flags of `limits simulate`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Nodes of the cluster, at most 10,000
    #[arg(long, value_name = "N", value_parser = up_to(NODES_MAX))]
    pub nodes: u32,

    /// Services of type LoadBalancer, with one port each, at most 5,000
    #[arg(long, value_name = "S", value_parser = up_to(SERVICES_MAX))]
    pub services: u32,

    /// Routes to the nodes' pods, at most 20,000; 0 if the pod network needs no routes in the cloud [default: one per node]
    #[arg(long, value_name = "R", value_parser = up_to(2 * NODES_MAX))]
    pub routes: Option<u32>,

    /// The adapter's configuration file, as for the adapter's flag --config. `-` reads standard input
    #[arg(long, value_name = "FILE")]
    pub limits: PathBuf,

    /// Cloud whose calls are simulated, and whose default limits apply where the file sets none
    #[arg(long, value_enum, default_value_t)]
    pub cloud: Cloud,
}

fn up_to(most: u64) -> RangedU64ValueParser<u32> {
    RangedU64ValueParser::new().range(..=most)
}

impl Args {
    /// Reads the file.
    pub fn question(&self) -> Result<Question, Error> {
        let path = || self.limits.display().to_string();
        let text = if self.limits.as_os_str() == "-" {
            std::io::read_to_string(std::io::stdin())
        } else {
            std::fs::read_to_string(&self.limits)
        };
        let text = text.map_err(|source| Error::Read { path: path(), source })?;
        Question::new((self.nodes, self.services, self.routes), &text, self.cloud)
            .map_err(|faults| Error::Invalid { path: path(), faults })
    }
}

/// A cluster, a cloud, and the limits on vendor calls.
#[derive(Clone, Debug)]
pub struct Question {
    /// Number of nodes.
    pub nodes: u32,
    /// Number of Services of type LoadBalancer, with one port each.
    pub services: u32,
    /// Number of routes to the nodes' pods.
    pub routes: u32,
    /// The cloud whose calls are simulated.
    pub cloud: Cloud,
    /// The adapter's settings.
    pub config: cloud_adapter::Config,
}

impl Question {
    /// Parses the text of the adapter's file with the adapter's own code. `routes`: `None` means one route per node.
    pub fn new(
        (nodes, services, routes): (u32, u32, Option<u32>),
        text: &str,
        cloud: Cloud,
    ) -> Result<Self, String> {
        // The adapter also refuses an empty file: an editor that writes a file in place truncates it first.
        if text.trim().is_empty() {
            return Err("the file is empty: write {} to use the adapter's own limits".to_owned());
        }
        let config = cloud_adapter::Config::parse(text, cloud.call_limits())?;
        Ok(Self { nodes, services, routes: routes.unwrap_or(nodes), cloud, config })
    }
}

/// Why the question cannot be answered.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read.
    #[error("--limits {path}: cannot be read: {source}")]
    Read {
        /// The path of the file.
        path: String,
        /// The cause.
        source: std::io::Error,
    },
    /// The adapter would refuse the file. The message names all faults.
    #[error("--limits {path}: {faults}")]
    Invalid {
        /// The path of the file.
        path: String,
        /// The faults, with the paths of their keys, separated by semicolons.
        faults: String,
    },
}
