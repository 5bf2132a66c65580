//! Tests of errors for wrong usage, and of runs that find nothing to read. The tests need no cluster.

#![expect(clippy::expect_used, reason = "clippy knows tests, but not their helpers")]

use std::{
    io::Write as _,
    path::Path,
    process::{Command, Output, Stdio},
};

use cloudctl::{ClustersReport, StatusReport, VersionReport};

/// Port 9, on which no process listens.
const NOBODY: &str = "127.0.0.1:9";

/// Runs the program in an empty home directory, without a kubeconfig unless `args` name a file.
fn run(home: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cloudctl"));
    command.args(args).env_clear().env("HOME", home);
    command.output().expect("the program runs")
}

/// Runs the program, and returns its exit code, standard output and standard error.
fn said(args: &[&str]) -> (i32, String, String) {
    let home = tempfile::tempdir().expect("a directory");
    let kubeconfig = home.path().join("config");
    std::fs::write(&kubeconfig, kubeconfig_of(NOBODY)).expect("written");
    let kubeconfig = kubeconfig.display().to_string();
    let args: Vec<&str> =
        args.iter().map(|it| if *it == "CONFIG" { kubeconfig.as_str() } else { it }).collect();
    let output = run(home.path(), &args);
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(!err.contains("panicked") && !out.contains("panicked"), "{err}");
    (output.status.code().expect("the program ends by itself"), out, err)
}

fn kubeconfig_of(server: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: here\n\
         clusters: [{{name: c, cluster: {{server: 'http://{server}'}}}}]\n\
         users: [{{name: u, user: {{token: t}}}}]\n\
         contexts: [{{name: here, context: {{cluster: c, user: u}}}}, {{name: there, context: {{cluster: c, user: u}}}}]\n"
    )
}

#[test]
fn wrong_usage_exits_with_2_and_names_the_fix() {
    for (args, expected) in [
        (&[][..], "Usage: cloudctl"),
        (&["statsu"], "'status'"),
        (&["explain", "service"], "[NAMESPACE/]NAME"),
        (&["explain", "node", "a/b"], "lower case letters"),
        (&["status", "--url", "adapter=http://a:1"], "cloud-adapter, node-controller"),
        (&["status", "-o", "xml"], "table, wide, name, json, yaml"),
        (&["status", "--kubeconfig", "/nowhere/config"], "--kubeconfig /nowhere/config: cannot be read"),
        (&["status", "--kubeconfig", "CONFIG", "--context", "elsewhere"], "it has: here, there"),
        (&["status", "--release-namespace", ""], "--release-namespace <NAME>"),
        (&["status", "--namespace", "a b"], "--namespace <NAME>"),
        (&["-n", "shop", "explain", "service", "a/mine"], "invalid namespace 'shop': the Service is a/mine"),
        (&["explain", "pod/a"], "unknown type 'pod': use one of: node (no), service (svc)"),
        (&["explain", "web"], "to explain the object 'web', write svc/web or node/web"),
        (&["status", "-n", "ccm"], "--release-namespace is where the chart is installed"),
        (&["check", "-o", "name"], "contains no names of objects: use table, wide, json or yaml"),
        (&["version", "-o", "name"], "contains no names of objects"),
        (&["status", "--release", "a b"], "a name consists of"),
        (&["check", "--wait", "2"], "such as 90s"),
        (&["orphans", "some-uid"], "--delete"),
        (&["orphans", "--delete", "--kubeconfig", "CONFIG"], "or --all"),
        (&["orphans", "--delete", "--all", "--kubeconfig", "CONFIG"], "add --yes"),
        (&["orphans", "--delete", "--all", "--timeout", "5"], "such as 90s"),
    ] {
        let (code, out, err) = said(args);
        assert_eq!((code, out.as_str()), (2, ""), "{args:?}: {err}");
        assert!(err.contains(expected), "{args:?}: {err}");
    }
}

#[test]
fn missing_kubeconfig_files_are_skipped() {
    let home = tempfile::tempdir().expect("a directory");
    let there = home.path().join("config");
    std::fs::write(&there, kubeconfig_of(NOBODY)).expect("written");
    for (list, expected) in [
        (format!("/nowhere/config:{}", there.display()), "it has: here, there"),
        (format!("{}:/nowhere/config", there.display()), "it has: here, there"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cloudctl"));
        command.args(["status", "--context", "elsewhere"]).env_clear().env("KUBECONFIG", &list);
        let output = command.output().expect("the program runs");
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && err.contains(expected), "{list}: {err}");
    }
}

/// Invalid kubeconfigs: the text of the first one cannot be parsed, and the second one has a string in place of `users`.
const BROKEN: [(&str, &str); 2] = [
    ("users:\n- name: a\n  user:\n    password: hunter2\n   token: hunter2\n", "line 5"),
    ("kind: Config\nusers: hunter2\n", "line 2"),
];

#[test]
fn secrets_of_a_broken_kubeconfig_are_not_printed() {
    let home = tempfile::tempdir().expect("a directory");
    let [good, broken] = ["good", "broken"].map(|name| home.path().join(name).display().to_string());
    std::fs::write(&good, kubeconfig_of(NOBODY)).expect("written");
    for (text, place) in BROKEN {
        std::fs::write(&broken, text).expect("written");
        let list = format!("{good}:{broken}");
        for (args, kubeconfig) in [
            (&["status", "--kubeconfig", &broken][..], ""),
            (&["status"], &broken),
            (&["status", "-o", "json"], &broken),
            (&["status", "-o", "yaml"], &list),
            (&["explain", "service", "a"], &list),
        ] {
            let mut command = Command::new(env!("CARGO_BIN_EXE_cloudctl"));
            command.args(args).env_clear().env("KUBECONFIG", kubeconfig);
            let output = command.output().expect("the program runs");
            let said = [output.stdout, output.stderr].concat();
            let said = String::from_utf8_lossy(&said);
            let reported =
                said.contains(&format!("{broken}: is not a valid kubeconfig: see {place}, column"));
            assert!(reported && !said.contains("hunter2"), "{args:?}, KUBECONFIG={kubeconfig}: {said}");
        }
    }
}

/// The program prints no secrets of a credential plugin with invalid output, of a plugin that fails, or of a proxy.
#[test]
fn secrets_of_an_unusable_kubeconfig_are_not_printed() {
    let plugin = |script: &str| {
        format!(
            "{{exec: {{apiVersion: client.authentication.k8s.io/v1, command: /bin/sh, args: [-c, \"{script}\"], \
             env: [{{name: SECRET_KEY, value: hunter2}}], interactiveMode: Never}}}}"
        )
    };
    let proxy = format!("'http://{NOBODY}', proxy-url: 'http://me:hunter2@127.0.0.1:2/'");
    for (old, new, words) in [
        (
            "{token: t}",
            plugin(r#"echo '{\"status\": {\"token\": \"hunter2\" oops'"#),
            "the credential plugin of the kubeconfig printed no ExecCredential",
        ),
        (
            "{token: t}",
            plugin("echo hunter2; exit 7"),
            "the credential plugin of the kubeconfig failed: exit status: 7",
        ),
        (&format!("'http://{NOBODY}'"), proxy, "proxy-url http://127.0.0.1: proxies are not supported"),
    ] {
        let home = tempfile::tempdir().expect("a directory");
        let file = home.path().join("config");
        std::fs::write(&file, kubeconfig_of(NOBODY).replace(old, &new)).expect("written");
        let output = run(home.path(), &["status", "--kubeconfig", &file.display().to_string()]);
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        let line = said.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(line.contains(words) && !line.contains("hunter2"), "{said}");
    }
}

#[test]
fn a_kubeconfig_without_contexts_is_reported() {
    let home = tempfile::tempdir().expect("a directory");
    let file = home.path().join("config");
    let both = kubeconfig_of(NOBODY).replace("current-context: here", "current-context: ''");
    for (text, expected) in [
        ("", "the kubeconfig has no contexts, so it names no API server: choose another file"),
        (both.as_str(), "no current context: choose one with --context; it has: here, there"),
    ] {
        std::fs::write(&file, text).expect("written");
        let output = run(home.path(), &["status", "--kubeconfig", &file.display().to_string()]);
        let out = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.code() == Some(1) && out.contains(expected), "{expected}: {out}");
    }
}

#[test]
fn a_missing_kubeconfig_names_the_flag() {
    for command in [
        &["status"][..],
        &["check"],
        &["plan"],
        &["adopt"],
        &["orphans"],
        &["clusters"],
        &["explain", "node", "a"],
    ] {
        let (code, out, err) = said(command);
        assert_eq!((code, err.as_str()), (1, ""), "{command:?}: {out}");
        assert!(out.contains("choose a kubeconfig with --kubeconfig or KUBECONFIG"), "{command:?}: {out}");
    }
}

#[test]
fn an_unreachable_server_is_reported_once_and_urls_are_read() {
    let place = format!("cloud-adapter=http://{NOBODY}");
    let (code, out, err) = said(&["status", "--kubeconfig", "CONFIG", "--url", &place, "-o", "json"]);
    assert_eq!(code, 1, "{err}");
    let report: StatusReport = serde_json::from_str(&out).expect("JSON");
    let sources: Vec<&str> = report.missing.iter().map(|it| it.source.as_str()).collect();
    assert_eq!(sources, ["API server", "cloud-adapter, 127.0.0.1:9"], "{out}");
    assert!(report.missing.iter().all(|it| it.why.contains("refused")), "{out}");
}

#[test]
fn yaml_output_is_valid() {
    let (code, out, _) = said(&["clusters", "-o", "yaml"]);
    let report: ClustersReport = serde_saphyr::from_str(&out).expect("YAML");
    assert_eq!((code, report.missing.len()), (1, 1), "{out}");
}

/// Without a cluster, each command reports what is missing: in the report, or on standard error if the output is a list of names.
#[test]
fn every_report_has_a_wide_form_and_reports_of_objects_have_names() {
    for command in [
        &["status"][..],
        &["plan"],
        &["adopt"],
        &["orphans"],
        &["clusters"],
        &["explain", "svc/web"],
        &["explain", "node/a"],
    ] {
        let (code, out, err) = said(&[command, &["-o", "name"]].concat());
        assert_eq!((code, out.as_str()), (1, ""), "{command:?}: {err}");
        assert!(err.starts_with("error: "), "{command:?}: {err}");
        let (code, out, err) = said(&[command, &["-o", "wide"]].concat());
        assert_eq!((code, err.as_str()), (1, ""), "{command:?}: {out}");
        assert!(out.contains("Missing"), "{command:?}: {out}");
    }
    let (code, out, _) = said(&["check", "-o", "wide"]);
    assert!(code == 1 && out.contains("Missing"), "{out}");
}

#[test]
fn the_version_is_printed_without_a_cluster() {
    let version = format!("cloudctl {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(said(&["version", "--client"]), (0, version.clone(), String::new()));
    assert_eq!(said(&["--version"]), (0, version.clone(), String::new()));
    let (code, out, _) = said(&["version"]);
    assert!(code == 1 && out.starts_with(&version) && out.contains("Missing"), "{out}");
    let (code, out, _) = said(&["version", "-o", "json"]);
    let report: VersionReport = serde_json::from_str(&out).expect("JSON");
    assert_eq!((code, report.client.as_str()), (1, env!("CARGO_PKG_VERSION")));
}

#[test]
fn common_options_are_printed() {
    let (code, out, _) = said(&["options"]);
    assert!(
        code == 0 && out.contains("-o, --output <FORMAT>") && out.contains("--release-namespace"),
        "{out}"
    );
}

#[test]
fn completion_scripts_contain_the_commands() {
    for (command, shell) in
        [("completions", "bash"), ("completions", "zsh"), ("completions", "fish"), ("completion", "bash")]
    {
        let (code, out, _) = said(&[command, shell]);
        assert!(code == 0 && out.contains("orphans"), "{shell}: {out}");
    }
}

#[test]
fn limits_are_read_from_standard_input() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cloudctl"));
    let args = ["limits", "simulate", "--nodes", "1", "--services", "0", "--limits", "-"];
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    let written = child.stdin.take().expect("a pipe").write_all(b"limits: {mode: shadow}");
    written.expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    let out = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && out.contains("limits.mode: enforce"), "{out}");
}

#[test]
fn colours_can_be_disabled() {
    let (_, out, _) = said(&["status"]);
    assert!(!out.contains('\u{1b}'), "{out}");
    let (_, out, _) = said(&["status", "--color", "always"]);
    assert!(out.contains('\u{1b}'), "{out}");
}
