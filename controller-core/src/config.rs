//! The flags that the three controllers share, and how flags become a checked configuration.
//!
//! Reading and judging are two steps: clap reads all flags as they are, and [`Faults`] collects what is wrong with them, so
//! that a person hears of all mistakes at once. A bad value ends the process with exit code 2, as clap's own errors do.

mod adapter;
mod duration;
mod election;
mod log_level;
mod moved;
mod pages;

use std::{ffi::OsString, fmt::Display, net::SocketAddr, ops::RangeInclusive, path::PathBuf, time::Duration};

use ::pages::Readers;
use adapter_client::Connection;
use clap::{Arg, ArgAction, Parser, ValueEnum, builder::BoolishValueParser, error::ErrorKind};

pub use self::{
    adapter::AdapterArgs,
    duration::duration,
    election::{Election, ElectionArgs},
    pages::{MinVersion, PagesArgs, SecurePages},
};
use crate::{kube_api::Rate, mirror::kubernetes::Listing};

/// Flags that every controller has. Flatten them into the controller's own.
#[derive(Clone, Debug, clap::Args)]
#[command(mut_args(switches))]
pub struct CommonArgs {
    /// UID of the namespace kube-system: the identity of this cluster at the cloud.
    #[arg(long, value_name = "UID", help_heading = "Cluster")]
    pub cluster_id: String,

    /// Name of this cluster, for people: part of names and descriptions at the cloud. While load balancers are taken over from a Go
    /// controller, the name that it had: they are found by that.
    #[arg(long, value_name = "NAME", default_value = "kubernetes", help_heading = "Cluster")]
    pub cluster_name: String,

    /// Kubeconfig file; without it the pod's own service account is used.
    #[arg(long, value_name = "FILE", env = "KUBECONFIG", help_heading = "API server")]
    pub kubeconfig: Option<OsString>,

    /// How many requests the API server gets a second, watches and the Lease left out. 0 or less: as many as there are.
    #[arg(
        long,
        value_name = "N",
        default_value = "400",
        allow_negative_numbers = true,
        help_heading = "API server"
    )]
    pub kube_api_qps: String,

    /// How many it may get at once, after a pause.
    #[arg(
        long,
        value_name = "N",
        default_value = "800",
        allow_negative_numbers = true,
        help_heading = "API server"
    )]
    pub kube_api_burst: String,

    /// Whether all objects come at the start from the watch itself, one at a time, and not in pages of 500: less memory on both sides.
    /// Needs an API server with the feature WatchList.
    #[arg(long, default_value = "false", help_heading = "API server")]
    pub streaming_lists: bool,

    /// Where the cloud adapter is, and how it is called safely.
    #[command(flatten, next_help_heading = "Adapter")]
    pub adapter: AdapterArgs,

    /// Looks and plans, and changes nothing: neither in the cluster nor at the cloud. What would be done is at /plan. Leases of its own are
    /// taken all the same.
    #[arg(long, default_value = "false", help_heading = "Work")]
    pub dry_run: bool,

    /// Which of several replicas works.
    #[command(flatten, next_help_heading = "Leader election")]
    pub election: ElectionArgs,

    /// The same pages over TLS.
    #[command(flatten, next_help_heading = "Pages")]
    pub pages: PagesArgs,

    /// How log lines look.
    #[arg(long, value_name = "FORMAT", default_value = "auto", help_heading = "Log")]
    pub log_format: LogFormat,

    /// What is logged: a level, or directives such as `info,node_controller=debug`.
    #[arg(long, value_name = "FILTER", default_value = "info", help_heading = "Log")]
    pub log_level: String,
}

/// The flags that are on by their name alone and say with `=true` and `=false` which they are, as those of Go.
const SWITCHES: [&str; 3] = ["streaming_lists", "dry_run", "leader_elect"];

/// Makes a flag one of them, if it is. All others stay.
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

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Text on a terminal, JSON elsewhere.
    Auto,
    /// One line for people, coloured on a terminal.
    Text,
    /// One JSON object a line.
    Json,
}

/// The shared flags, checked.
#[derive(Clone, Debug)]
pub struct CommonConfig {
    /// Who this cluster is.
    pub cluster: Cluster,
    /// Kubeconfig files, merged in this order. Empty: in-cluster configuration.
    pub kubeconfig: Vec<PathBuf>,
    /// How many requests the API server gets. `None`: as many as there are.
    pub kube_api_rate: Option<Rate>,
    /// How mirrors of the API server begin.
    pub listing: Listing,
    /// Nothing is changed.
    pub dry_run: bool,
    /// The way to the adapter.
    pub adapter: Connection,
    /// The Lease that replicas compete for. `None`: this is the only one.
    pub election: Option<Election>,
    /// Where `/metrics`, `/healthz`, `/livez` and `/readyz` are served.
    pub http_address: SocketAddr,
    /// Where they are served over TLS, too.
    pub secure_pages: Option<SecurePages>,
    /// Who may read the status pages, at both.
    pub readers: Readers,
    /// How log lines look.
    pub log_format: LogFormat,
    /// What is logged; a valid [`EnvFilter`](tracing_subscriber::EnvFilter).
    pub log_level: String,
}

/// Who this cluster is, for the cloud.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// The UID of the namespace `kube-system`.
    pub id: String,
    /// For people.
    pub name: String,
}

impl CommonArgs {
    /// Judges the shared flags. `http_address` is each binary's own flag, since its default differs.
    ///
    /// `None` if anything is wrong; what, stands in `faults`.
    pub fn check(&self, http_address: &str, faults: &mut Faults) -> Option<CommonConfig> {
        let id = faults.check("--cluster-id <UID>", &self.cluster_id, cluster_id(&self.cluster_id));
        let name = faults.check("--cluster-name <NAME>", &self.cluster_name, word(&self.cluster_name));
        let adapter = self.adapter.check(faults);
        let election = self.election.check(faults);
        let http_address = faults.check("--http-address <ADDRESS>", http_address, listen(http_address));
        let secure_pages = self.pages.check(faults);
        let level = faults.check("--log-level <FILTER>", &self.log_level, log_level::check(&self.log_level));
        let kubeconfig = self.kubeconfig(faults);
        let kube_api_rate = self.rate(faults);
        level?;
        Some(CommonConfig {
            cluster: Cluster { id: id?, name: name? },
            kubeconfig: kubeconfig?,
            kube_api_rate,
            listing: if self.streaming_lists { Listing::Stream } else { Listing::Pages },
            dry_run: self.dry_run,
            adapter: adapter?,
            election,
            http_address: http_address?,
            secure_pages,
            readers: self.pages.status_pages,
            log_format: self.log_format,
            log_level: self.log_level.clone(),
        })
    }

    /// `None`: there is no limit, or something is wrong, which stands in `faults`.
    fn rate(&self, faults: &mut Faults) -> Option<Rate> {
        let (qps, burst) = (&self.kube_api_qps, &self.kube_api_burst);
        let fix = "use 0.01 to 1000000 a second, or 0 for no limit";
        // One a day is none, and nobody counts in nanoseconds.
        let judged = match qps.parse::<f64>() {
            Ok(none) if none <= 0.0 => Ok(None),
            Ok(qps) if (0.01..=1e6).contains(&qps) => Ok(Some(qps)),
            Ok(_) | Err(_) => Err(fix),
        };
        let qps = faults.check("--kube-api-qps <N>", qps, judged);
        let judged = match burst.parse::<u32>() {
            Ok(burst) if burst > 0 || qps == Some(None) => Ok(burst),
            Ok(_) => Err("use 1 or more: with 0 nothing is ever sent"),
            Err(_) => Err("use a whole number of 1 or more"),
        };
        let burst = faults.check("--kube-api-burst <N>", burst, judged);
        Some(Rate { qps: qps.flatten()?, burst: burst? })
    }

    /// `KUBECONFIG` may hold several paths; those that do not exist are skipped as kubectl does, but not all of them.
    fn kubeconfig(&self, faults: &mut Faults) -> Option<Vec<PathBuf>> {
        let Some(value) = self.kubeconfig.as_ref().filter(|value| !value.is_empty()) else {
            return Some(Vec::new());
        };
        let files: Vec<PathBuf> = std::env::split_paths(value).filter(|path| path.is_file()).collect();
        let found = if files.is_empty() {
            Err("no such file: name a kubeconfig file, or unset the flag to use the pod's service account")
        } else {
            Ok(files)
        };
        faults.check("--kubeconfig <FILE>", &value.to_string_lossy(), found)
    }
}

/// What is wrong with the flags, all of it.
#[derive(Debug, Default)]
pub struct Faults(Vec<String>);

impl Faults {
    /// Notes that `value` cannot be used for `flag`; `reason` names the fix.
    pub fn add(&mut self, flag: &str, value: &str, reason: impl Display) {
        self.0.push(format!("invalid value '{value}' for '{flag}': {reason}"));
    }

    /// Passes a good value on and notes a bad one.
    pub fn check<T>(&mut self, flag: &str, value: &str, judged: Result<T, impl Display>) -> Option<T> {
        judged.map_err(|reason| self.add(flag, value, reason)).ok()
    }

    /// Passes a number on that lies in a range, and notes one that does not, and what is no number.
    pub fn in_range(&mut self, flag: &str, text: &str, range: RangeInclusive<usize>) -> Option<usize> {
        let (first, last) = (range.start(), range.end());
        let judged = match (text.parse::<usize>(), text.parse::<i128>()) {
            (Ok(number), _) if range.contains(&number) => Ok(number),
            (_, Ok(number)) => Err(format!("{number} is not in {first}..={last}")),
            (_, Err(_)) => Err(format!("use a whole number in {first}..={last}")),
        };
        self.check(flag, text, judged)
    }

    /// Passes a duration on that is no shorter than that, and notes one that is, and what is none.
    pub fn at_least(&mut self, flag: &str, text: &str, shortest: Duration) -> Option<Duration> {
        self.check(flag, text, duration::at_least(text, shortest))
    }
}

/// Reads the flags and judges them. As with the flags of Kubernetes' own programs, the last of several words for one flag counts, and
/// an underscore in a flag's name is a dash.
///
/// # Errors
/// What clap says of unknown flags and missing values, or every fault that `judge` found. `clap::Error::exit` prints it and ends
/// the process with code 2 (0 for `--help` and `--version`).
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

/// `--cluster_name=a_b` to `--cluster-name=a_b`.
fn with_dashes(argument: OsString) -> OsString {
    match argument.to_str().map(|text| text.split_once('=').map_or((text, None), |(a, b)| (a, Some(b)))) {
        Some((name, value)) if name.starts_with("--") && name.contains('_') => {
            let name = name.replace('_', "-");
            value.map_or_else(|| name.clone(), |value| format!("{name}={value}")).into()
        }
        Some(_) | None => argument,
    }
}

/// An unknown flag that the classic cloud controller manager has is answered with where it went, and so are all others of its kind.
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

/// Non-empty, printable, without blanks, at most 256 bytes: the contract's limit for strings.
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
    fn only_the_cluster_id_must_be_given() {
        let config = parse(&["--cluster-id", "u-1"]).expect("defaults are good");
        assert_eq!(config.cluster, Cluster { id: "u-1".to_owned(), name: "kubernetes".to_owned() });
        assert_eq!(config.adapter.target().to_string(), "http://cloud-adapter:8443");
        let error = parse(&[]).expect_err("no cluster ID");
        assert!(error.contains("--cluster-id <UID>"), "{error}");
    }

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
        .expect_err("all of it is wrong");
        for flag in ["cluster-id", "adapter-endpoint", "http-address", "log-level", "workers", "kubeconfig"] {
            assert!(error.contains(&format!("for '--{flag}")), "{flag} is missing in:\n{error}");
        }
        assert!(error.contains("http://cloud-adapter:8443"), "names no fix:\n{error}");
        assert!(error.contains("did you mean info?"), "names no level:\n{error}");
    }

    #[test]
    fn flags_of_the_classic_controller_are_all_answered_at_once() {
        let error = parse(&["--cluster-id=u", "--cloud-provider=x", "--controllers=*", "--kube-api-qps=20"]);
        let error = error.expect_err("two are none of ours");
        for words in
            ["--cloud-provider': belongs to the adapter", "--controllers': each controller is a program"]
        {
            assert!(error.contains(words), "{words} is missing in:\n{error}");
        }
        assert!(!error.contains("kube-api-qps"), "{error}");
    }

    #[test]
    fn requests_to_the_api_server_are_limited_unless_somebody_says_no() {
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

    #[test]
    fn numbers_that_are_none_are_told_together_with_everything_else() {
        let error = parse(&[
            "--cluster-id=u",
            "--workers=-5",
            "--kube-api-qps=many",
            "--kube-api-burst=-1",
            "--secure-port=https",
            "--leader-elect-retry-period=soon",
        ]);
        let error = error.expect_err("all of it is wrong");
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
        let error = parse(&["--cluster-id=u", "--workers", "-5"]).expect_err("as two words");
        assert!(error.contains("-5 is not in 1..=100"), "{error}");
    }

    #[test]
    fn of_several_words_for_one_flag_the_last_one_counts() {
        let flags = ["--cluster-id=u", "--cluster-name=a", "--cluster-name=b", "--cluster-id", "v"];
        let config = parse(&flags).expect("as with the flags of Kubernetes' own programs");
        assert_eq!(config.cluster, Cluster { id: "v".to_owned(), name: "b".to_owned() });
    }

    #[test]
    fn an_underscore_in_the_name_of_a_flag_is_a_dash() {
        let config = parse(&["--cluster_id", "u_1", "--cluster_name=a_b=c_d"]).expect("good");
        assert_eq!(config.cluster, Cluster { id: "u_1".to_owned(), name: "a_b=c_d".to_owned() });
        let error = parse(&["--cluster_id=u", "--cloud_provider=gce"]).expect_err("none of ours");
        assert!(error.contains("--cloud-provider': belongs to the adapter"), "{error}");
    }

    #[test]
    fn an_unknown_flag_is_answered_with_the_nearest() {
        let error = parse(&["--cluster-id=u", "--adapter-endpont=x"]).expect_err("misspelt");
        assert!(error.contains("--adapter-endpoint"), "{error}");
    }
}
