//! Runs the commands of the documentation: each block that is marked `run`, page by page, and compares the output with the text below the
//! command. Commands that need nodes with pods run in the scenarios of `cargo xtask test cluster`.

use std::fs;
use std::path::Path;

use adapter_conformance::Options;
use clap::Parser as _;
use e2e::docs::{Command, Page, Terminal, pages, select};
use e2e::{ControlPlane, Release, Simcloud, Values, binaries, node, tools};
use e2e_tools::pages::How;
use serde_json::json;

use super::demo::Staying;

const NODE: &str = "node-1";
/// Programs of this repository that pages start, besides `cargo xtask`, whose commands `cargo xtask check` parses.
const PROGRAMS: [&str; 6] =
    ["adapter-sim", "cloudctl", "node-controller", "route-controller", "service-controller", "simcloud"];
const SUITE: &str = "adapter-conformance ";
const MONITORING: [(&str, &str); 2] =
    [("prometheusrules", "PrometheusRule"), ("servicemonitors", "ServiceMonitor")];

fn terminal(kubeconfig: &Path) -> Terminal {
    let tools = tools().unwrap();
    Terminal::new(kubeconfig, &tools.helm.path, &tools.kubectl.path).unwrap()
}

async fn all(pages: &[Page], terminal: &Terminal) -> Vec<String> {
    let mut faults = Vec::new();
    for page in pages {
        faults.extend(terminal.type_in(page).await.unwrap());
    }
    faults
}

/// The commands for installing, scaling and upgrading work. Each page has its own API server.
#[tokio::test]
async fn commands_of_guides_work_on_a_cluster() {
    let pages = pages("").unwrap();
    assert!(pages.len() >= 3, "number of pages with commands: {}", pages.len());
    let mut faults = Vec::new();
    for page in pages {
        let control_plane = ControlPlane::shared(&tools().unwrap()).await.unwrap();
        faults.extend(all(&[page], &terminal(control_plane.kubeconfig())).await);
    }
    assert!(faults.is_empty(), "{}", faults.join("\n\n"));
}

/// The commands that change a release or call its API server, and need no pod, work. The chart is installed, with the CRDs of the
/// Prometheus operator.
#[tokio::test]
async fn commands_of_pages_work_where_the_chart_is_installed() {
    let pages = pages("installed").unwrap();
    assert!(pages.len() >= 5, "number of pages with commands: {}", pages.len());
    let control_plane = ControlPlane::shared(&tools().unwrap()).await.unwrap();
    knows_monitoring(&control_plane).await;
    let values = Values::new().unwrap().render();
    Release::install(&control_plane, &values).await.unwrap();
    let mut faults = Vec::new();
    for page in pages {
        // The previous page may have deleted the node.
        control_plane.kubectl(&["delete", "node", NODE, "--ignore-not-found"]).await.unwrap();
        node(NODE).register(&control_plane.client()).await.unwrap();
        faults.extend(all(&[page], &terminal(control_plane.kubeconfig()).with("NODE", NODE)).await);
    }
    assert!(faults.is_empty(), "{}", faults.join("\n\n"));
}

/// Minimal CRDs of the Prometheus operator, which accept any fields.
async fn knows_monitoring(control_plane: &ControlPlane) {
    let group = "monitoring.coreos.com";
    let anything = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    let kinds = MONITORING.map(|(plural, kind)| {
        json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": { "name": format!("{plural}.{group}") },
            "spec": {
                "group": group,
                "names": { "plural": plural, "kind": kind },
                "scope": "Namespaced",
                "versions": [{ "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": anything } }],
            },
        })
    });
    let file = control_plane.dir().join("monitoring.json");
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": kinds });
    fs::write(&file, list.to_string()).unwrap();
    control_plane.kubectl(&["create", "--filename", &file.display().to_string()]).await.unwrap();
    let established = ["wait", "--for=condition=Established", "--timeout=60s", "crd", "--all"];
    control_plane.kubectl(&established).await.unwrap();
}

/// The commands of the tutorial and of the pages on troubleshooting work in a terminal beside the demo.
#[tokio::test]
async fn commands_of_the_tutorial_work_beside_the_demo() {
    let mut demo = std::process::Command::new(env!("CARGO_BIN_EXE_demo"));
    let mut demo = Staying::start(demo.args(["--json", "--nodes=3"]));
    let mut lines = demo.lines();
    let stay = lines.find(|line| line["event"] == "stay").expect("the demo stays up");
    let terminal = terminal(Path::new(stay["kubeconfig"].as_str().unwrap()));
    terminal.alias("cloudctl", stay["cloudctl"].as_str().unwrap()).unwrap();
    let pages = pages("demo").unwrap();
    assert!(pages.len() >= 2, "number of pages with commands: {}", pages.len());
    let faults = all(&pages, &terminal).await;
    assert!(faults.is_empty(), "{}", faults.join("\n\n"));
}

/// The commands for the simulated cloud work. The page uses the cloud's default port, but the test uses a free port.
#[tokio::test]
async fn commands_for_the_simulated_cloud_work() {
    let control_plane = ControlPlane::shared(&tools().unwrap()).await.unwrap();
    let cloud = Simcloud::start(&control_plane).await.unwrap();
    let terminal = terminal(control_plane.kubeconfig());
    let address = cloud.url().strip_prefix("http://").unwrap();
    let there = format!("${{@//localhost:9797/{address}}}");
    terminal.alias("curl", &format!("bash -c 'command -p curl --fail-with-body \"{there}\"' curl")).unwrap();
    let pages = pages("simcloud").unwrap();
    assert!(!pages.is_empty(), "no page has commands");
    let faults = all(&pages, &terminal).await;
    assert!(faults.is_empty(), "{}", faults.join("\n\n"));
}

/// Some commands are not run, because they do not end, build something or need more than this host has. Their flags exist.
#[tokio::test]
async fn commands_that_are_not_run_have_known_flags() {
    let kubeconfig = Path::new("/dev/null");
    let mut terminal = terminal(kubeconfig);
    // The pages set these variables in blocks that are not typed in here.
    for (name, value) in [("REGISTRY", "registry.example"), ("VERSION", "0.1.0"), ("IP", "10.0.0.1")] {
        terminal = terminal.with(name, value);
    }
    for program in PROGRAMS {
        terminal.alias(program, &binaries().unwrap().join(program).display().to_string()).unwrap();
    }
    let mut pages = select(|block| !matches!(block.how, Some(How::Run(_)))).unwrap();
    for page in &mut pages {
        page.commands = page.commands.drain(..).filter_map(asked_for_help).collect();
    }
    let asked: usize = pages.iter().map(|page| page.commands.len()).sum();
    assert!(asked >= 10, "{asked} commands checked");
    let faults = all(&pages, &terminal).await;
    assert!(faults.is_empty(), "{}", faults.join("\n\n"));
}

/// The commands of the conformance suite are parsed by its library, so its program need not be built.
#[test]
fn commands_of_the_conformance_suite_have_known_flags() {
    let commands = select(|_| true).unwrap().into_iter().flat_map(|page| page.commands);
    let suite_commands: Vec<_> = commands.filter(|command| command.text.contains(SUITE)).collect();
    assert!(suite_commands.len() >= 3, "{suite_commands:?}");
    for command in suite_commands {
        let (_, flags) = command.text.split_once(SUITE).unwrap();
        let words = [SUITE].into_iter().chain(flags.split_whitespace().filter(|word| *word != "--"));
        if let Err(error) = Options::try_parse_from(words) {
            panic!("{}: {}: {error}", command.place, command.text);
        }
    }
}

/// Replaces a command by its `--help`, which refuses unknown flags, too.
fn asked_for_help(mut command: Command) -> Option<Command> {
    if command.shown.iter().any(|line| line.starts_with("error:")) {
        return None;
    }
    let text = command.text.split(" #").next()?;
    let text = text.split_once(" -- ").filter(|_| text.starts_with("cargo run ")).map_or_else(
        || text.to_owned(),
        |(cargo, args)| format!("{} {args}", cargo.rsplit(' ').next().unwrap_or_default()),
    );
    let program = text.split(' ').next()?;
    command.text = format!("{text} --help");
    command.shown.clear();
    [&PROGRAMS[..], &["helm"]].concat().contains(&program).then_some(command)
}
