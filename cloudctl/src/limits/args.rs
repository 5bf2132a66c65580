//! The question that the user asks: flags, and the file that they name.

use std::path::PathBuf;

use clap::builder::RangedU64ValueParser;

use super::Cloud;
use crate::session::Usage;

/// Largest accepted number. Larger ones are assumed to be typing mistakes.
const NODES_MAX: u64 = 10_000;
const SERVICES_MAX: u64 = 5_000;

/// The flags of `limits simulate`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct SimulateArgs {
    /// Nodes of the cluster, at most 10,000
    #[arg(long, value_name = "N", value_parser = up_to(NODES_MAX))]
    pub(crate) nodes: u32,

    /// Services of type LoadBalancer, with one port each, at most 5,000
    #[arg(long, value_name = "S", value_parser = up_to(SERVICES_MAX))]
    pub(crate) services: u32,

    /// Routes to the nodes' pods, at most 20,000; 0 if the pod network needs no routes in the cloud [default: one per node]
    #[arg(long, value_name = "R", value_parser = up_to(2 * NODES_MAX))]
    pub(crate) routes: Option<u32>,

    /// The adapter's configuration file, as for the adapter's flag --config. `-` reads standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) limits: PathBuf,

    /// Cloud whose calls are simulated, and whose default limits apply where the file sets none
    #[arg(long, value_enum, default_value_t)]
    pub(crate) cloud: Cloud,
}

fn up_to(most: u64) -> RangedU64ValueParser<u32> {
    RangedU64ValueParser::new().range(..=most)
}

impl SimulateArgs {
    pub(crate) fn question(&self) -> Result<Question, Usage> {
        let path = self.limits.display();
        let text = if self.limits.as_os_str() == "-" {
            std::io::read_to_string(std::io::stdin())
        } else {
            std::fs::read_to_string(&self.limits)
        };
        let text = text.map_err(|error| Usage(format!("--limits {path}: cannot be read: {error}")))?;
        let question = Question::new(self.nodes, self.services, &text, self.cloud)
            .map_err(|faults| Usage(format!("--limits {path}: {faults}")))?;
        Ok(Question { routes: self.routes.unwrap_or(self.nodes), ..question })
    }
}

/// The input of one simulation: the size of the cluster, the cloud, and the adapter's settings with their limits on vendor calls.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    pub(crate) nodes: u32,
    /// Number of Services of type LoadBalancer, with one port each.
    pub(crate) services: u32,
    pub(crate) routes: u32,
    pub(crate) cloud: Cloud,
    pub(crate) config: cloud_adapter::Config,
}

impl Question {
    /// Parses the text of the adapter's file with the adapter's own code. The cluster has one route per node.
    pub(crate) fn new(nodes: u32, services: u32, text: &str, cloud: Cloud) -> Result<Self, String> {
        // The adapter also refuses an empty file, because an editor that writes a file in place truncates it first.
        if text.trim().is_empty() {
            return Err("the file is empty: write {} to use the adapter's own limits".to_owned());
        }
        let config = cloud_adapter::Config::parse(text, cloud.model().call_limits)?;
        Ok(Self { nodes, services, routes: nodes, cloud, config })
    }
}
