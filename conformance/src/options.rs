//! The command-line flags.

use std::{path::PathBuf, time::Duration};

use clap::{Args, Parser};
use jiff::fmt::friendly::SpanParser;

use crate::{
    check::Tier,
    params::{IdentityParams, LaneParams, Params, ParamsError},
    run::Selection,
};

const EXAMPLES: &str = "Examples:
  List the checks:
    adapter-conformance --list
  Only the calls of the contract, on an adapter on this host:
    adapter-conformance --endpoint http://127.0.0.1:8443 --tier T1
  All checks, with the proxy, commands and lanes of a parameter file:
    adapter-conformance --params params.yaml --junit report.xml
  One check ten times, with the seed of an earlier run:
    adapter-conformance --params params.yaml --include LB-04 --repeat 10 --seed 4711

Exit codes:
  0    all mandatory checks that ran passed, and all others that ran; a skipped check did not run
  1    a check failed, or the adapter does not answer at all
  2    a flag or the parameter file is invalid
  130  ended by Ctrl-C; objects that the checks created have been deleted

The verdict of a tier:
  conformant  all its mandatory checks passed
  incomplete  none failed, but some mandatory ones were skipped or left out
  failed      a check failed
  not tested  no check of the tier was selected";

/// Check whether a cloud adapter, in any language, conforms to the contract
#[derive(Clone, Debug, Parser)]
#[command(name = "adapter-conformance", version, after_help = EXAMPLES)]
pub struct Options {
    #[command(flatten)]
    pub(crate) adapter: Adapter,
    #[command(flatten)]
    pub(crate) choice: Choice,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Adapter")]
pub(crate) struct Adapter {
    /// YAML file with lanes, identities, commands, the vendor's API and timings; its keys are in the crate's documentation
    #[arg(long, value_name = "FILE")]
    params: Option<PathBuf>,
    /// Endpoint of the adapter, instead of the lanes of the file: `http://HOST:PORT`, `https://HOST:PORT`, `dns:///HOST:PORT`,
    /// `static:///HOST:PORT,HOST:PORT` or `unix:/PATH`
    #[arg(long, value_name = "TARGET")]
    endpoint: Option<String>,
    /// PEM file with the CA of the adapter's certificate
    #[arg(long, value_name = "FILE", requires = "endpoint")]
    tls_ca_cert: Option<PathBuf>,
    /// Name in the adapter's certificate [default: the host of an https URL, else cloud-adapter]
    #[arg(long, value_name = "NAME", requires = "endpoint")]
    tls_server_name: Option<String>,
    /// File with a bearer token for all roles
    #[arg(long, value_name = "FILE", requires = "endpoint")]
    token_file: Option<PathBuf>,
    /// PEM file with a client certificate for all roles
    #[arg(long, value_name = "FILE", requires_all = ["client_key", "endpoint"])]
    client_cert: Option<PathBuf>,
    /// PEM file with the key of the client certificate
    #[arg(long, value_name = "FILE", requires = "client_cert")]
    client_key: Option<PathBuf>,
    /// ID of the only cluster that the adapter serves [default: the adapter serves any cluster]
    #[arg(long, value_name = "UID", requires = "endpoint")]
    cluster_id: Option<String>,
}

#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Choice")]
pub(crate) struct Choice {
    /// Run only this tier; may be repeated
    #[arg(long, value_enum, ignore_case = true)]
    tier: Vec<Tier>,
    /// Run only this check or family, such as LB-02 or LB; may be repeated
    #[arg(long, value_name = "ID|FAMILY", value_delimiter = ',')]
    include: Vec<String>,
    /// Skip this check or family; may be repeated
    #[arg(long, value_name = "ID|FAMILY", value_delimiter = ',')]
    skip: Vec<String>,
    /// Print the selected checks with their prerequisites, and exit
    #[arg(long)]
    pub(crate) list: bool,
    /// Seed of all random choices; printed by each run [default: random]
    #[arg(long)]
    seed: Option<u64>,
    /// Maximum number of checks that use an adapter at the same time; checks that need exclusive use always run alone
    #[arg(long, default_value_t = 8, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    parallel: u16,
    /// Number of times that each check runs
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,
    /// Maximum duration of a check, such as 90s [default: the limit of each check]
    #[arg(long, value_name = "TIME", value_parser = time)]
    check_timeout: Option<Duration>,
    /// Maximum duration of the run, such as 30m; after this time, the run ends as after Ctrl-C
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) timeout: Option<Duration>,
}

#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Output")]
pub(crate) struct Output {
    /// Write a JUnit report to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) junit: Option<PathBuf>,
    /// Write a JSON report to this file, with the requests and responses of failed checks
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

fn time(text: &str) -> Result<Duration, String> {
    let parsed = SpanParser::new().parse_unsigned_duration(text);
    parsed.map_err(|_error| "write a number with its unit, such as 90s, 5m, 1h".to_owned())
}

impl Options {
    /// Reads the parameter file; flags replace its lanes.
    /// Fails if the file cannot be read or is invalid.
    pub fn params(&self) -> Result<Params, ParamsError> {
        let mut params = self.adapter.params.as_deref().map(Params::load).transpose()?.unwrap_or_default();
        if let Some(lane) = self.adapter.lane() {
            params.lanes = vec![lane];
        }
        Ok(params)
    }

    /// Returns which checks to run, and how.
    pub fn selection(&self) -> Selection {
        let Choice { tier, include, skip, seed, parallel, repeat, check_timeout, .. } = self.choice.clone();
        let (parallel, limit) = (usize::from(parallel), check_timeout);
        Selection { tiers: tier, include, skip, seed, parallel, repeat, limit }
    }
}

impl Adapter {
    fn lane(&self) -> Option<LaneParams> {
        let mut lane = LaneParams { endpoint: self.endpoint.clone()?, ..LaneParams::default() };
        lane.tls.ca_file.clone_from(&self.tls_ca_cert);
        lane.tls.server_name.clone_from(&self.tls_server_name);
        lane.cluster_id.clone_from(&self.cluster_id);
        let identity = IdentityParams {
            token_file: self.token_file.clone(),
            certificate_file: self.client_cert.clone(),
            key_file: self.client_key.clone(),
        };
        if identity != IdentityParams::default() {
            let all = &mut lane.identities;
            all.node_controller = Some(identity.clone());
            all.service_controller = Some(identity.clone());
            all.route_controller = Some(identity.clone());
            all.operator = Some(identity);
        }
        Some(lane)
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn help_has_examples_and_exit_codes() {
        Options::command().debug_assert();
        let help = Options::command().render_help().to_string();
        for reported in [
            "--params <FILE>",
            "adapter-conformance --list",
            "Exit codes",
            "[possible values: T1, T2, T3]",
            "all mandatory checks that ran passed",
            "incomplete  none failed",
        ] {
            assert!(help.contains(reported), "{reported}: {help}");
        }
    }

    #[test]
    fn refusal_of_a_flag_shows_the_valid_form() {
        for (flags, named) in [
            (&["--check-timeout", "5"][..], "such as 90s"),
            (&["--tls-ca-cert", "ca.pem"], "--endpoint"),
            (&["--repeat", "0"], "1.."),
        ] {
            let flags = [&["adapter-conformance"], flags].concat();
            let error = Options::try_parse_from(flags).expect_err("is wrong");
            assert_eq!(error.exit_code(), 2);
            assert!(error.to_string().contains(named), "{error}");
        }
    }
}
