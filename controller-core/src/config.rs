//! The flags that the three controllers share, and how flags become a checked configuration.
//!
//! Parsing and validation are two steps: clap parses all flags as strings, and [`Faults`] collects the invalid values, so that the user
//! sees all mistakes at once. An invalid value ends the process with exit code 2, as clap's own errors do.

mod adapter;
mod duration;
mod election;
mod http;
mod moved;

use std::{ffi::OsString, fmt::Display, net::SocketAddr, ops::RangeInclusive, path::PathBuf, time::Duration};

use adapter_client::Connection;
use clap::{Arg, ArgAction, Parser, builder::BoolishValueParser, error::ErrorKind};
use telemetry::{
    http::Readers,
    logging::{LogFormat, check_filter},
};

pub use self::{
    adapter::AdapterArgs,
    duration::duration,
    election::{Election, ElectionArgs},
    http::{HttpArgs, HttpsEndpoints, MinVersion},
};
/// Flags that every controller has. Flatten this struct into the controller's own arguments.
#[derive(Clone, Debug, clap::Args)]
#[command(mut_args(switches))]
pub struct CommonArgs {
    /// UID of the namespace kube-system, which identifies this cluster in the cloud [default: read from the API server]
    #[arg(long, value_name = "UID", help_heading = "Cluster")]
    pub cluster_id: Option<String>,

    /// Display name of this cluster: part of names and descriptions in the cloud. While load balancers are taken over from the former cloud
    /// controller manager, use the name configured there, by which the load balancers are found
    #[arg(long, value_name = "NAME", default_value = "kubernetes", help_heading = "Cluster")]
    pub cluster_name: String,

    /// Kubeconfig file; by default, the pod's service account is used
    #[arg(long, value_name = "FILE", env = "KUBECONFIG", help_heading = "API server")]
    pub kubeconfig: Option<OsString>,

    /// Maximum rate of requests to the API server, per second, watches and the Lease excluded. 0 or less: unlimited
    #[arg(
        long,
        value_name = "N",
        default_value = "400",
        allow_negative_numbers = true,
        help_heading = "API server"
    )]
    pub kube_api_qps: String,

    /// Maximum burst of requests to the API server after a pause
    #[arg(
        long,
        value_name = "N",
        default_value = "800",
        allow_negative_numbers = true,
        help_heading = "API server"
    )]
    pub kube_api_burst: String,

    /// Get the initial objects from the watch, one at a time, instead of pages of 100: uses less memory on both sides. Needs an API server
    /// with the feature WatchList
    #[arg(long, default_value = "false", help_heading = "API server")]
    pub streaming_lists: bool,

    /// Address of the cloud adapter, and how its connection is secured.
    #[command(flatten, next_help_heading = "Adapter")]
    pub adapter: AdapterArgs,

    /// Plan, but change nothing in the cluster and in the cloud; the plans are at /plan. The controller still acquires its own Leases
    #[arg(long, default_value = "false", help_heading = "Work")]
    pub dry_run: bool,

    /// How replicas elect a leader.
    #[command(flatten, next_help_heading = "Leader election")]
    pub election: ElectionArgs,

    /// Port and certificate of the pages over TLS.
    #[command(flatten, next_help_heading = "Pages")]
    pub http: HttpArgs,

    /// Format of log lines
    #[arg(long, value_name = "FORMAT", default_value = "auto", help_heading = "Log")]
    pub log_format: LogFormat,

    /// Log level, or directives such as `info,node_controller=debug`
    #[arg(long, value_name = "FILTER", default_value = "info", help_heading = "Log")]
    pub log_level: String,
}

/// Boolean flags. As with Go's boolean flags, the flag without a value means true, and `=true` and `=false` are accepted.
const SWITCHES: [&str; 3] = ["streaming_lists", "dry_run", "leader_elect"];

/// Turns a flag listed in [`SWITCHES`] into a boolean flag. Other flags are returned unchanged.
fn switches(flag: Arg) -> Arg {
    if !SWITCHES.contains(&flag.get_id().as_str()) {
        return flag;
    }
    flag.value_name("BOOL")
        .action(ArgAction::Set)
        .value_parser(BoolishValueParser::new())
        .num_args(0..=1)
        .require_equals(true)
        .default_missing_value("true")
}

/// The shared flags after validation.
#[derive(Clone, Debug)]
pub struct CommonConfig {
    /// The identity of this cluster in the cloud. `None`: the UID of the namespace kube-system, read from the API server at start.
    pub cluster_id: Option<String>,
    /// The display name of this cluster.
    pub cluster_name: String,
    /// Kubeconfig files, which are merged in this order. Empty: in-cluster configuration.
    pub kubeconfig: Vec<PathBuf>,
    /// Rate limit for requests to the API server. `None`: unlimited.
    pub kube_api_rate: Option<Rate>,
    /// How caches of the API server get their initial objects.
    pub listing: Listing,
    /// Whether this is a dry run.
    pub dry_run: bool,
    /// How to reach the adapter.
    pub adapter: Connection,
    /// The Lease that replicas compete for. `None`: this is the only replica.
    pub election: Option<Election>,
    /// Address of `/metrics`, `/healthz`, `/livez` and `/readyz`.
    pub http_address: SocketAddr,
    /// Address and certificate of the same pages over TLS.
    pub https: Option<HttpsEndpoints>,
    /// Which callers may read the status pages, on both ports.
    pub readers: Readers,
    /// Format of log lines.
    pub log_format: LogFormat,
    /// Log filter that [`check_filter`] accepts.
    pub log_level: String,
}

/// A rate limit. `None` in the configuration: unlimited.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// Requests per second; above 0.
    pub qps: f64,
    /// Number of requests that may be sent at once after a pause; at least 1.
    pub burst: u32,
}

/// How a mirror gets the initial objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Listing {
    /// The mirror lists the objects in pages.
    #[default]
    Pages,
    /// The mirror gets the objects one by one from the watch, which needs less memory on both sides. Source: Kubernetes' API concepts,
    /// «Streaming lists».
    Stream,
}

/// The identity of this cluster in the cloud.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// The UID of the namespace `kube-system`.
    pub id: String,
    /// The display name.
    pub name: String,
}

impl CommonArgs {
    /// Validates the shared flags. `http_address` comes from a flag of each binary, because its default differs between binaries.
    ///
    /// Returns `None` if a flag is invalid. `faults` then contains the reasons.
    pub fn check(&self, http_address: &str, faults: &mut Faults) -> Option<CommonConfig> {
        let id = self.cluster_id.as_ref();
        let cluster_id = id.map(|id| faults.check("--cluster-id <UID>", id, cluster_id(id)));
        let name = faults.check("--cluster-name <NAME>", &self.cluster_name, word(&self.cluster_name));
        let adapter = self.adapter.check(faults);
        let election = self.election.check(faults);
        let http_address = faults.check("--http-address <ADDRESS>", http_address, listen(http_address));
        let https = self.http.check(faults);
        let level = faults.check(
            "--log-level <FILTER>",
            &self.log_level,
            check_filter(&self.log_level, "info,kube=debug"),
        );
        let kubeconfig = self.kubeconfig(faults);
        let kube_api_rate = self.rate(faults);
        level?;
        let cluster_id = match cluster_id {
            Some(checked) => Some(checked?),
            None => None,
        };
        Some(CommonConfig {
            cluster_id,
            cluster_name: name?,
            kubeconfig: kubeconfig?,
            kube_api_rate,
            listing: if self.streaming_lists { Listing::Stream } else { Listing::Pages },
            dry_run: self.dry_run,
            adapter: adapter?,
            election,
            http_address: http_address?,
            https,
            readers: self.http.status_pages,
            log_format: self.log_format,
            log_level: self.log_level.clone(),
        })
    }

    /// Returns `None` if there is no limit, or if a flag is invalid. In the latter case, `faults` contains the reason.
    fn rate(&self, faults: &mut Faults) -> Option<Rate> {
        let (qps, burst) = (&self.kube_api_qps, &self.kube_api_burst);
        let fix = "use 0.01 to 1000000 per second, or 0 for no limit";
        // A limit below 0.01 would in effect stop all requests, and a limit above 1000000 would have no effect.
        let judged = match qps.parse::<f64>() {
            Ok(none) if none <= 0.0 => Ok(None),
            Ok(qps) if (0.01..=1e6).contains(&qps) => Ok(Some(qps)),
            Ok(_) | Err(_) => Err(fix),
        };
        let qps = faults.check("--kube-api-qps <N>", qps, judged);
        let judged = match burst.parse::<u32>() {
            Ok(burst) if burst > 0 || qps == Some(None) => Ok(burst),
            Ok(_) => Err("use 1 or more: with 0 no request is ever sent"),
            Err(_) => Err("use a whole number of 1 or more"),
        };
        let burst = faults.check("--kube-api-burst <N>", burst, judged);
        Some(Rate { qps: qps.flatten()?, burst: burst? })
    }

    /// Parses `KUBECONFIG`, which may list several paths. Missing files are skipped, as in kubectl, unless all of them are missing.
    fn kubeconfig(&self, faults: &mut Faults) -> Option<Vec<PathBuf>> {
        let Some(value) = self.kubeconfig.as_ref().filter(|value| !value.is_empty()) else {
            return Some(Vec::new());
        };
        let files: Vec<PathBuf> = std::env::split_paths(value).filter(|path| path.is_file()).collect();
        let found = if files.is_empty() {
            Err("no such file: name a kubeconfig file, or remove the flag to use the pod's service account")
        } else {
            Ok(files)
        };
        faults.check("--kubeconfig <FILE>", &value.to_string_lossy(), found)
    }
}

/// All errors found in the flags.
#[derive(Debug, Default)]
pub struct Faults(Vec<String>);

impl Faults {
    /// Records that `value` is invalid for `flag`. `reason` states how to fix the value.
    pub fn add(&mut self, flag: &str, value: &str, reason: impl Display) {
        self.0.push(format!("invalid value '{value}' for '{flag}': {reason}"));
    }

    /// Returns a valid value, or records why it is invalid.
    pub fn check<T>(&mut self, flag: &str, value: &str, judged: Result<T, impl Display>) -> Option<T> {
        judged.map_err(|reason| self.add(flag, value, reason)).ok()
    }

    /// Parses a number within a range, or records why it is invalid.
    pub fn in_range(&mut self, flag: &str, text: &str, range: RangeInclusive<usize>) -> Option<usize> {
        let (first, last) = (range.start(), range.end());
        let judged = match (text.parse::<usize>(), text.parse::<i128>()) {
            (Ok(number), _) if range.contains(&number) => Ok(number),
            (_, Ok(number)) => Err(format!("{number} is not in {first}..={last}")),
            (_, Err(_)) => Err(format!("use a whole number in {first}..={last}")),
        };
        self.check(flag, text, judged)
    }

    /// Parses a duration of at least `shortest`, or records why it is invalid.
    pub fn at_least(&mut self, flag: &str, text: &str, shortest: Duration) -> Option<Duration> {
        self.check(flag, text, duration::at_least(text, shortest))
    }
}

/// Parses and validates the flags. As in Kubernetes' own programs, the last of several values for a flag wins, and an underscore in a
/// flag's name is read as a dash.
pub fn read<A: Parser, C>(
    arguments: impl IntoIterator<Item = impl Into<OsString> + Clone>,
    judge: impl FnOnce(&A, &mut Faults) -> Option<C>,
) -> Result<C, clap::Error> {
    let arguments: Vec<OsString> =
        arguments.into_iter().map(|argument| with_dashes(argument.into())).collect();
    let mut command = A::command().args_override_self(true);
    let matches = command.try_get_matches_from_mut(&arguments);
    let args =
        matches.and_then(|matches| A::from_arg_matches(&matches).map_err(|error| error.format(&mut command)));
    let args = args.map_err(|error| answered::<A>(error, &arguments))?;
    let mut faults = Faults::default();
    match judge(&args, &mut faults) {
        Some(config) if faults.0.is_empty() => Ok(config),
        Some(_) | None => Err(A::command().error(ErrorKind::ValueValidation, faults.0.join("\nerror: "))),
    }
}

/// Replaces underscores: `--cluster_name=a_b` becomes `--cluster-name=a_b`.
fn with_dashes(argument: OsString) -> OsString {
    match argument.to_str().map(|text| text.split_once('=').map_or((text, None), |(a, b)| (a, Some(b)))) {
        Some((name, value)) if name.starts_with("--") && name.contains('_') => {
            let name = name.replace('_', "-");
            value.map_or_else(|| name.clone(), |value| format!("{name}={value}")).into()
        }
        Some(_) | None => argument,
    }
}

/// Explains all flags of the former cloud controller manager that this program does not have, if one of them caused the error.
fn answered<A: Parser>(error: clap::Error, arguments: &[OsString]) -> clap::Error {
    if error.kind() != ErrorKind::UnknownArgument {
        return error;
    }
    let mut command = A::command();
    let known = |flag: &str| command.get_arguments().any(|arg| arg.get_long() == Some(flag));
    let moved = moved::named(arguments, known);
    if moved.is_empty() {
        return error;
    }
    command.error(ErrorKind::UnknownArgument, moved.join("\nerror: "))
}

fn cluster_id(value: &str) -> Result<String, &'static str> {
    let fix = "use the UID of the namespace kube-system: kubectl get namespace kube-system -o jsonpath='{.metadata.uid}'";
    word(value).map_err(|_error| fix)
}

/// Accepts 1 to 256 printable bytes without blanks. Source: the contract's limit for strings.
fn word(value: &str) -> Result<String, &'static str> {
    let good = !value.is_empty() && value.len() <= 256 && value.chars().all(|c| c.is_ascii_graphic());
    if good { Ok(value.to_owned()) } else { Err("use 1 to 256 printable characters without blanks") }
}

fn listen(value: &str) -> Result<SocketAddr, String> {
    value.parse().map_err(|error| format!("{error}: use an IP address and a port, such as 0.0.0.0:8080"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Parser)]
    struct Args {
        #[command(flatten)]
        common: CommonArgs,
        #[arg(long, default_value = "127.0.0.1:0")]
        http_address: String,
        #[arg(long, default_value = "10", allow_negative_numbers = true)]
        workers: String,
    }

    fn parse(flags: &[&str]) -> Result<CommonConfig, String> {
        let arguments = ["controller"].iter().chain(flags);
        read(arguments, |args: &Args, faults| {
            let workers = faults.in_range("--workers <N>", &args.workers, 1..=100);
            let common = args.common.check(&args.http_address, faults);
            workers.and(common)
        })
        .map_err(|error| {
            assert_eq!(error.exit_code(), 2);
            error.to_string()
        })
    }

    #[test]
    fn no_flag_must_be_given() {
        let config = parse(&[]).expect("the defaults are valid");
        assert_eq!((config.cluster_id, config.cluster_name.as_str()), (None, "kubernetes"));
        assert_eq!(config.adapter.target().to_string(), "http://cloud-adapter:8443");
    }

    // Behaviour: P1
    #[test]
    fn all_faults_are_reported_at_once() {
        let error = parse(&[
            "--cluster-id=",
            "--adapter-endpoint=adapter",
            "--http-address=:80",
            "--log-level=inf",
            "--workers=0",
            "--kubeconfig=/nowhere/at/all",
        ])
        .expect_err("every value is invalid");
        for flag in ["cluster-id", "adapter-endpoint", "http-address", "log-level", "workers", "kubeconfig"] {
            assert!(error.contains(&format!("for '--{flag}")), "{flag} is missing in:\n{error}");
        }
        assert!(error.contains("http://cloud-adapter:8443"), "the error has no fix:\n{error}");
        assert!(error.contains("did you mean 'info'?"), "the error suggests no level:\n{error}");
    }

    // Behaviour: P26
    #[test]
    fn all_flags_of_the_former_ccm_are_explained_at_once() {
        let error = parse(&["--cluster-id=u", "--cloud-provider=x", "--controllers=*", "--kube-api-qps=20"]);
        let error = error.expect_err("two flags are unknown");
        for words in [
            "--cloud-provider': belongs to the adapter",
            "--controllers': each controller is a separate program",
        ] {
            assert!(error.contains(words), "{words} is missing in:\n{error}");
        }
        assert!(!error.contains("kube-api-qps"), "{error}");
    }

    #[test]
    fn requests_to_the_api_server_are_limited_by_default() {
        let rate = |flags: &[&str]| parse(&[&["--cluster-id=u"], flags].concat()).map(|it| it.kube_api_rate);
        assert_eq!(rate(&[]), Ok(Some(Rate { qps: 400.0, burst: 800 })));
        assert_eq!(
            rate(&["--kube-api-qps=20", "--kube-api-burst=30"]),
            Ok(Some(Rate { qps: 20.0, burst: 30 }))
        );
        for none in ["--kube-api-qps=0", "--kube-api-qps=-1"] {
            assert_eq!(rate(&[none]), Ok(None), "{none}");
        }
        for wrong in ["--kube-api-burst=0", "--kube-api-qps=NaN", "--kube-api-qps=1e9"] {
            assert!(rate(&[wrong]).is_err(), "{wrong}");
        }
    }

    // Behaviour: P1
    #[test]
    fn invalid_numbers_are_reported_with_all_other_faults() {
        let error = parse(&[
            "--cluster-id=u",
            "--workers=-5",
            "--kube-api-qps=many",
            "--kube-api-burst=-1",
            "--secure-port=https",
            "--leader-elect-retry-period=soon",
        ]);
        let error = error.expect_err("every value is invalid");
        for words in [
            "'-5' for '--workers <N>': -5 is not in 1..=100",
            "'many' for '--kube-api-qps <N>': use 0.01 to 1000000",
            "'-1' for '--kube-api-burst <N>': use a whole number of 1 or more",
            "'https' for '--secure-port <PORT>': use a port from 1 to 65535",
            "'soon' for '--leader-elect-retry-period <DURATION>': write a duration",
        ] {
            assert!(error.contains(words), "{words} is missing in:\n{error}");
        }
        for number in ["many", "", "1.5", "0x10"] {
            let error = parse(&["--cluster-id=u", "--workers", number]).expect_err(number);
            let words = format!("'{number}' for '--workers <N>': use a whole number in 1..=100");
            assert!(error.contains(&words), "{error}");
        }
        let error = parse(&["--cluster-id=u", "--workers", "-5"]).expect_err("flag and value as two words");
        assert!(error.contains("-5 is not in 1..=100"), "{error}");
    }

    // Behaviour: P24
    #[test]
    fn the_last_value_of_a_flag_counts() {
        let flags = ["--cluster-id=u", "--cluster-name=a", "--cluster-name=b", "--cluster-id", "v"];
        let config = parse(&flags).expect("as with the flags of Kubernetes' own programs");
        assert_eq!((config.cluster_id.as_deref(), config.cluster_name.as_str()), (Some("v"), "b"));
    }

    // Behaviour: P24
    #[test]
    fn an_underscore_in_the_name_of_a_flag_is_a_dash() {
        let config = parse(&["--cluster_id", "u_1", "--cluster_name=a_b=c_d"]).expect("good");
        assert_eq!((config.cluster_id.as_deref(), config.cluster_name.as_str()), (Some("u_1"), "a_b=c_d"));
        let error = parse(&["--cluster_id=u", "--cloud_provider=gce"]).expect_err("an unknown flag");
        assert!(error.contains("--cloud-provider': belongs to the adapter"), "{error}");
    }

    #[test]
    fn an_unknown_flag_suggests_the_nearest() {
        let error = parse(&["--cluster-id=u", "--adapter-endpont=x"]).expect_err("misspelt");
        assert!(error.contains("--adapter-endpoint"), "{error}");
    }
}
