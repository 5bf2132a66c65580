//! The answers of each binary to wrong usage and to `--help`. No cluster is needed.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use anyhow::ensure;
use e2e::{Launch, WITHIN, binaries, eventually};
use serde_json::Value;

const COMMON: [&str; 13] = [
    "--cluster-id",
    "--cluster-name",
    "--kubeconfig",
    "--adapter-endpoint",
    "--adapter-ca-file",
    "--adapter-server-name",
    "--adapter-token-file",
    "--adapter-client-cert",
    "--adapter-client-key",
    "--http-address",
    "--secure-port",
    "--tls-min-version",
    "--log-format",
];

/// The controllers, each with a flag that only it has.
const OWN: [(&str, &str); 3] = [
    ("node-controller", "--concurrent-node-syncs"),
    ("service-controller", "--orphans"),
    ("route-controller", "--cluster-cidr"),
];

/// A program, its wrong flags, and the texts that the error must contain.
type Case<'a> = (&'a str, &'a [&'a str], &'a [&'a str]);

// Behaviour: R20, P1, P2, P24, W20
#[test]
fn controllers_exit_with_code_2_and_suggest_a_fix() {
    let cases: &[Case<'_>] = &[
        ("node-controller", &["--cluster-idd=u"], &["'--cluster-id'"]),
        (
            "node-controller",
            &["--cluster-id=u", "--concurrent-node-syncs=0"],
            &["--concurrent-node-syncs", "1..="],
        ),
        (
            "node-controller",
            &["--cluster-id=u", "--concurrent-node-syncs=-5", "--node-monitor-period=soon"],
            &["-5 is not in 1..=1000", "'soon' for '--node-monitor-period"],
        ),
        (
            "node-controller",
            &["--cluster_id=u", "--cloud_provider=gce", "--node-monitor-period=1.5h30m"],
            &["belongs to the adapter"],
        ),
        ("node-controller", &["--cluster-id=u", "--log-format=jso"], &["--log-format", "'json'"]),
        (
            "node-controller",
            &["--cluster-id=u", "--leader-elect-lease-duration=5s"],
            &["--leader-elect-renew-deadline", "less than the lease's duration"],
        ),
        ("node-controller", &["--cluster-id=u", "--log-level=inf"], &["--log-level", "did you mean 'info'?"]),
        (
            "node-controller",
            &["--cluster-id=u", "--adapter-endpoint=adapter"],
            &["http://cloud-adapter:8443"],
        ),
        (
            "service-controller",
            &["--cluster-id=u", "--concurrent-syncs=3"],
            &["'--concurrent-service-syncs'"],
        ),
        (
            "service-controller",
            &["--cluster-id=u", "--http-address=:80"],
            &["--http-address", "0.0.0.0:8080"],
        ),
        (
            "service-controller",
            &["--cluster-id=u", "--kubeconfig=/nowhere"],
            &["--kubeconfig", "no such file"],
        ),
        ("route-controller", &["--cluster-id=u"], &["--cluster-cidr"]),
        (
            "route-controller",
            &["--cluster-id=u", "--cluster-cidr=10.0.0.0"],
            &["--cluster-cidr", "10.244.0.0/16"],
        ),
        (
            "route-controller",
            &["--cluster-id=u", "--cluster-cidr=10.0.0.0/8", "--route-reconciliation-period=often"],
            &["--route-reconciliation-period", "5m"],
        ),
    ];
    refused(cases);
}

/// The controllers run on a workstation, or in a pod without a ServiceAccount.
// Behaviour: P27
#[test]
fn a_start_outside_a_cluster_names_what_is_missing() {
    for (program, _) in OWN {
        let flags = ["--cluster-id=u", "--http-address=127.0.0.1:0", "--cluster-cidr=10.244.0.0/16"];
        let n_flags = if program == "route-controller" { 3 } else { 2 };
        let output = run(program, &flags[..n_flags]);
        // The error may be a log line, on standard output.
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        assert_eq!(output.status.code(), Some(1), "{program}: {said}");
        let words =
            ["KUBERNETES_SERVICE_HOST is not set", "name a kubeconfig file with --kubeconfig or KUBECONFIG"];
        assert!(words.iter().all(|it| said.contains(it)), "{program}: {said}");
    }
}

/// The flags for the adapter's endpoint are checked before any connection.
#[test]
fn invalid_adapter_connection_flags_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let empty = dir.path().join("empty");
    fs::write(&empty, "").unwrap();
    let (ca, token) = (flag("--adapter-ca-file", &empty), flag("--adapter-token-file", &empty));
    let id = "--cluster-id=u";
    let cases: &[Case<'_>] = &[
        (
            "node-controller",
            &[id, "--adapter-endpoint=ftp://a:1"],
            &["'ftp'", "kubernetes:///NAMESPACE/SERVICE"],
        ),
        (
            "node-controller",
            &[id, "--adapter-endpoint=kubernetes:///a"],
            &["kubernetes:///NAMESPACE/SERVICE"],
        ),
        ("service-controller", &[id, "--adapter-endpoint=dns://a:1"], &["dns:///HOST:PORT"]),
        ("service-controller", &[id, "--adapter-endpoint=static:///a"], &["'a' has no port", "HOST:PORT"]),
        ("service-controller", &[id, "--adapter-endpoint=unix:a.sock"], &["unix:/run/"]),
        (
            "node-controller",
            &[id, "--adapter-endpoint=https://a:1"],
            &["--adapter-endpoint", "--adapter-ca-file"],
        ),
        (
            "node-controller",
            &[id, "--adapter-endpoint=https://a:1", &ca],
            &["--adapter-ca-file", "no certificate"],
        ),
        ("node-controller", &[id, &ca], &["--adapter-ca-file", "https://cloud-adapter:8443"]),
        ("node-controller", &[id, &token], &["--adapter-token-file", "--adapter-ca-file"]),
        ("node-controller", &[id, "--adapter-endpoint=unix:/a", &token], &["--adapter-token-file", "empty"]),
        (
            "node-controller",
            &[id, "--adapter-server-name=a"],
            &["--adapter-server-name", "--adapter-ca-file"],
        ),
        (
            "node-controller",
            &[id, "--adapter-client-key=/nowhere"],
            &["--adapter-client-key", "--adapter-client-cert"],
        ),
        (
            "node-controller",
            &[id, "--adapter-client-cert=/nowhere"],
            &["--adapter-client-cert", "--adapter-client-key"],
        ),
    ];
    refused(cases);
}

fn flag(name: &str, path: &Path) -> String {
    format!("{name}={}", path.display())
}

#[test]
fn other_programs_exit_with_code_2_and_suggest_a_fix() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("config.yaml");
    fs::write(&file, "limits: {buckets: {gpu: {rate: 1, burst: 1}}}").unwrap();
    let file = format!("--config={}", file.display());
    let cases: &[Case<'_>] = &[
        ("adapter-sim", &["--grpc=1"], &["'--grpc-address'"]),
        ("adapter-sim", &["--endpoint=127.0.0.1:9797"], &["--endpoint", "http://127.0.0.1:9797"]),
        ("adapter-sim", &["--config=/nowhere"], &["--config", "/nowhere"]),
        ("adapter-sim", &[&file], &["--config", "limits.buckets.gpu", "compute"]),
        (
            "route-controller",
            &["--cluster-id=u", "--cluster-cidr=10.0.0.0/8", "--tls-cert-file=/a"],
            &["--tls-cert-file", "set --secure-port=10258"],
        ),
        ("adapter-sim", &["--log-level=cloud_adapter=debg"], &["--log-level", "did you mean 'debug'?"]),
        ("adapter-sim", &["--token-file=/nowhere"], &["--token-file", "/nowhere"]),
        ("simcloud", &["--listen=foo"], &["--listen", "127.0.0.1:9797"]),
        ("simcloud", &["--lisen=127.0.0.1:0"], &["'--listen'"]),
        ("demo", &["--onc"], &["'--once'"]),
        ("demo", &["--nodes=0"], &["--nodes", "1..=1000"]),
    ];
    refused(cases);
}

/// The help is the reference of the flags.
#[test]
fn help_describes_every_flag() {
    let own: [(&str, &[&str]); 6] = [
        ("node-controller", &["--concurrent-node-syncs", "--log-level"]),
        ("service-controller", &["--concurrent-service-syncs", "--log-level"]),
        ("route-controller", &["--cluster-cidr", "--route-reconciliation-period", "--log-level"]),
        (
            "adapter-sim",
            &["--grpc-address", "--http-address", "--config", "--endpoint", "--token-file", "--log-level"],
        ),
        ("simcloud", &["--listen", "--token"]),
        ("demo", &["--nodes"]),
    ];
    for (program, flags) in own {
        let output = run(program, &["--help"]);
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{program}: {}", output.status);
        let common = if program.ends_with("-controller") { COMMON.as_slice() } else { &[] };
        for flag in flags.iter().chain(common) {
            assert!(said.contains(&format!("{flag} <")), "{program} --help does not describe {flag}: {said}");
        }
    }
}

#[test]
fn the_help_of_controllers_is_grouped_and_ends_with_an_example() {
    for (program, own) in OWN {
        let output = run(program, &["--help"]);
        let said = String::from_utf8_lossy(&output.stdout);
        for (group, flag) in [
            ("Work", own),
            ("Cluster", "--cluster-id"),
            ("API server", "--kube-api-qps"),
            ("Adapter", "--adapter-endpoint"),
            ("Leader election", "--leader-elect-lease-duration"),
            ("Pages", "--http-address"),
            ("Log", "--log-format"),
        ] {
            let found = flags_under(group, &said).contains(&flag);
            assert!(found, "{program}: {flag} is not under {group}: {said}");
        }
        let of_pages = |flag: &&str| {
            ["--http-address", "--status-pages", "--secure-port", "--bind-address", "--cert-dir"]
                .contains(flag)
                || flag.starts_with("--tls-")
        };
        let pages = flags_under("Pages", &said);
        assert!(
            pages.iter().all(of_pages),
            "{program}: a flag that is not about pages is under Pages: {pages:?}"
        );
        let own: Vec<&str> = said.lines().filter(|line| line.ends_with("Options:")).collect();
        assert_eq!(own, ["Options:"], "{program}: only --help and --version are under Options");
        assert!(said.contains(&format!("\n  {program} --kubeconfig")), "{program} has no example: {said}");
    }
}

fn flags_under<'a>(group: &str, said: &'a str) -> Vec<&'a str> {
    let (_, rest) = said.split_once(&format!("\n{group}:\n")).unwrap();
    let of_group = rest.lines().take_while(|line| line.is_empty() || line.starts_with(' '));
    let flags = of_group.filter(|line| line.trim_start().starts_with("--"));
    flags.filter_map(|line| line.split_whitespace().next()).collect()
}

/// The example fits into a terminal of 80 columns. A command that is broken in the middle of a word would fail when it is copied.
#[test]
fn the_example_of_the_help_can_be_copied() {
    for (program, _) in OWN {
        let mut help = program_of(program);
        let output = help.arg("--help").env("COLUMNS", "80").output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        let (_, example) = said.split_once("\nExample, ").expect("an example");
        let (_, command) = example.split_once('\n').expect("a command");
        let (command, _) = command.split_once("\n\n").expect("an end of the command");
        let lines: Vec<&str> = command.lines().collect();
        let (last, others) = lines.split_last().expect("a line");
        assert!(others.len() > 1 && others.iter().all(|line| line.ends_with(" \\")), "{command}");
        assert!(lines.iter().all(|line| line.len() <= 76 && line.starts_with("  ")), "{command}");
        assert!(last.ends_with('"'), "{command}");
    }
}

/// Logs are JSON objects by default and text on request, never mixed.
// Behaviour: P25
#[tokio::test]
async fn log_lines_are_json_by_default() {
    let dir = tempfile::tempdir().unwrap();
    let kubeconfig = dir.path().join("kubeconfig");
    // No server listens at this address; only the warnings matter.
    let api_server = "{clusters: [{name: a, cluster: {server: 'http://127.0.0.1:1'}}], users: [{name: a, user: {}}], \
                      contexts: [{name: a, context: {cluster: a, user: a}}], current-context: a}";
    fs::write(&kubeconfig, api_server).unwrap();
    for (format, is_json) in [(None, true), (Some("json"), true), (Some("text"), false)] {
        let flags = ["--cluster-id=u", "--leader-elect=false", "--http-address=127.0.0.1:0"];
        let ways = ["--adapter-endpoint=http://127.0.0.1:1".to_owned(), flag("--kubeconfig", &kubeconfig)];
        let format_flag = format.map(|format| format!("--log-format={format}"));
        let launch = Launch {
            name: format!("node-controller-{}", format.unwrap_or("auto")),
            program: binaries().unwrap().join("node-controller"),
            args: flags.map(str::to_owned).into_iter().chain(ways).chain(format_flag).collect(),
            env: BTreeMap::new(),
            log_dir: dir.path().to_owned(),
        };
        let mut process = launch.start().unwrap();
        let log = || fs::read_to_string(launch.log()).unwrap_or_default();
        let spoken = eventually("the controller starts and cannot reach its API server", WITHIN, || async {
            let said = log();
            let warns = said.lines().any(|line| line.contains("WARN"));
            ensure!(said.contains("Starting the controller") && warns, "{said}");
            Ok(())
        });
        spoken.await.unwrap();
        process.terminate(WITHIN).await.unwrap();
        let said = log();
        for line in said.lines() {
            let read = serde_json::from_str::<Value>(line).ok().filter(|line| line["level"].is_string());
            assert_eq!(read.is_some(), is_json, "{format:?}: {line}");
        }
        assert!(said.contains("Stopped the controller"), "{said}");
    }
}

/// A user that migrates the flags of a former cloud controller manager gets all replacements in one error.
// Behaviour: P26
#[test]
fn former_flags_are_answered_with_replacements() {
    let classic = [
        "--cluster-id=u",
        "--cloud-provider=openstack",
        "--cloud-config=/etc/cloud.conf",
        "--controllers=*,-route",
        "--use-service-account-credentials",
        "--v=2",
        "--concurrent-service-syncs=5",
        "--leader-elect=true",
        "--kube-api-qps=20",
    ];
    let output = run("node-controller", &classic);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    for words in [
        "'--cloud-provider': belongs to the adapter",
        "'--cloud-config': belongs to the adapter",
        "'--controllers': each controller is a separate program",
        "'--use-service-account-credentials': each controller has a ServiceAccount",
        "'--v': set --log-level",
        "'--concurrent-service-syncs': belongs to service-controller",
    ] {
        assert!(said.contains(words), "{words} is missing in: {said}");
    }
    assert!(!said.contains("'--leader-elect") && !said.contains("'--kube-api-qps"), "{said}");
}

fn refused(cases: &[Case<'_>]) {
    for &(program, args, named) in cases {
        let output = run(program, args);
        let said = String::from_utf8_lossy(&output.stderr);
        let what = format!("{program} {args:?} said: {said}");
        assert_eq!(output.status.code(), Some(2), "{what}");
        assert!(named.iter().all(|words| said.contains(words)), "{what}");
    }
}

fn run(program: &str, args: &[&str]) -> Output {
    program_of(program).args(args).output().unwrap()
}

/// The program without the user's environment, because KUBECONFIG is the default of a flag.
fn program_of(name: &str) -> Command {
    let mut command = Command::new(binaries().unwrap().join(name));
    command.env_clear();
    command
}
