//! `cargo xtask test`: all tests that must pass at each commit. The tiers have different requirements: `unit` needs only cargo, `e2e` runs
//! the programs on real control planes, `cluster` needs root, `openstack` and `openstack-e2e` need a cloud, `release` builds two releases. `deep` runs all tiers, with
//! longer property tests.

mod cluster;
mod control_planes;
mod nextest;
mod programs;
mod release;
mod since;

use anyhow::bail;
use clap::ValueEnum;

use self::nextest::Run;
use self::since::Affected;
use crate::images::Linked;
use crate::step::{NamedCommand, Outcome, Summary, say};
use crate::{cargo, openstack, tools};

const REPAIR_OPENSTACK_E2E: &str = "see the failure above, which names the logs; to repeat one test: \
                                    `cargo xtask test openstack-e2e -- <test>`";
/// The profiles of `.config/nextest.toml`.
const USUAL: &str = "default";
const DEEP: &str = "deep";
/// The environment variable with the number of cases of a property test, and its default value.
const CASES: &str = "PROPTEST_CASES";
const FEW_CASES: &str = "64";
/// Variables of the deep run: 20 times as many cases of each property test, even of tests that set a number, and all rows of the table of
/// broken adapters.
const DEEPLY: [(&str, &str); 3] =
    [("PROPTEST_CASES", "1280"), ("PROPERTY_FACTOR", "20"), ("BROKEN_ADAPTERS", "all")];

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
                        cargo xtask test                           all tests that must pass at each commit\n  \
                        cargo xtask test --since main              only what the changes since main can affect\n  \
                        cargo xtask test -- node_faults            tests whose name contains this\n  \
                        cargo xtask test -- -E 'package(cloudctl)' tests that an expression of nextest's chooses\n  \
                        cargo xtask test cluster -- routes         one subject of the scenarios on nodes\n  \
                        cargo xtask test release -- --arch amd64   a rehearsal of two releases, for one architecture\n  \
                        cargo xtask test deep                      everything, for hours\n\n\
                        Exit codes:\n  \
                        0  all passed\n  \
                        1  a test failed, or could not be run; the last lines have the command that repeats each\n  \
                        2  the command line is wrong")]
pub(crate) struct Args {
    /// Run only this tier; without it, `unit` and `e2e`
    tier: Option<Tier>,
    /// Run only tests that the changes since this revision can affect, whether committed or not; for `unit` and `e2e`
    #[arg(long, value_name = "REVISION")]
    since: Option<String>,
    /// Arguments for nextest; with `cluster` and `openstack-e2e` for the test program, with `openstack` for `adapter-conformance`, with
    /// `release` for `cargo xtask release build`
    #[arg(last = true)]
    args: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Tier {
    /// Unit and integration tests, which need only cargo
    Unit,
    /// The scenarios on real control planes
    E2e,
    /// Everything: all tiers, all rows of the table of broken adapters, and long property tests; needs root
    Deep,
    /// The scenarios on nodes that run pods, with images built for them; needs root
    Cluster,
    /// The part of the scenarios on nodes that `.ci/run` runs: installation, routes and permissions
    ClusterPart,
    /// A rehearsal of two releases: build, sign, verify, install from a registry, upgrade and roll back; needs root
    Release,
    /// The conformance suite on the adapter for OpenStack and the cloud of `cargo xtask openstack`
    Openstack,
    /// The part of the conformance checks that `.ci/run` runs, some of each area
    OpenstackPart,
    /// The scenarios on a real control plane with the adapter for OpenStack and the cloud of `cargo xtask openstack`
    OpenstackE2e,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let of_nextest = matches!(args.tier, None | Some(Tier::Unit | Tier::E2e));
    if args.since.is_some() && !of_nextest {
        bail!("--since applies to `unit` and `e2e`: omit it, or name one of these tiers");
    }
    match args.tier {
        Some(Tier::Openstack) => openstack::test(&args.args),
        Some(Tier::OpenstackPart) => openstack::test(&[&openstack_part(), args.args.as_slice()].concat()),
        Some(Tier::Cluster) => cluster::run(&args.args, Linked::AsReleased),
        Some(Tier::ClusterPart) => {
            cluster::run(&[&cluster_part(), args.args.as_slice()].concat(), Linked::AsBuilt)
        }
        Some(Tier::Release) => release::run(&args.args),
        Some(Tier::OpenstackE2e) => openstack_e2e(&args.args),
        Some(Tier::Deep) => deep(&args.args),
        Some(Tier::Unit) => usual(Some("not package(=e2e)"), args),
        Some(Tier::E2e) => usual(Some("package(=e2e)"), args),
        None => usual(None, args),
    }
}

fn usual(tier: Option<&str>, args: &Args) -> anyhow::Result<()> {
    let affected = args.since.as_deref().map(since::affected).transpose()?;
    let changed = match &affected {
        None => None,
        Some(Affected::Some(filter)) => Some(filter.as_str()),
        Some(Affected::All(file)) => {
            say(&format!("{file} has changed, which can affect every test"));
            None
        }
        Some(Affected::Nothing) => {
            say("no test reads the changed files");
            return Ok(());
        }
    };
    let (chosen, others) = chosen(&args.args);
    let filter = all_of([tier, changed, chosen]);
    if let Some(filter) = &filter {
        say(&format!("tests: {filter}"));
    }
    let mut summary = Summary::default();
    // A number of cases that the user sets takes precedence, so that the user can repeat a failed property test.
    let cases =
        std::env::var_os(CASES).map_or_else(|| FEW_CASES.to_owned(), |it| it.to_string_lossy().into_owned());
    let env = vec![(CASES, cases)];
    let scenarios = tier != Some("not package(=e2e)");
    let run = Run { profile: USUAL, filter, args: &others, env, scenarios };
    programs_and_tests(&mut summary, &run);
    summary.close()
}

/// Separates the nextest expression from the other arguments.
fn chosen(args: &[String]) -> (Option<&str>, Vec<String>) {
    let (mut chosen, mut others, mut rest) = (None, Vec::new(), args.iter());
    while let Some(arg) = rest.next() {
        if chosen.is_none() && ["-E", "--filterset"].contains(&arg.as_str()) {
            chosen = rest.next().map(String::as_str);
        } else {
            others.push(arg.clone());
        }
    }
    (chosen, others)
}

/// Returns an expression for the tests that all these expressions select. nextest itself would run the tests that any of several
/// expressions selects.
fn all_of(expressions: [Option<&str>; 3]) -> Option<String> {
    let all: Vec<_> = expressions.into_iter().flatten().map(|it| format!("({it})")).collect();
    (!all.is_empty()).then(|| all.join(" & "))
}

fn programs_and_tests(summary: &mut Summary, run: &Run<'_>) {
    const TESTS: &str = "tests";
    let build = NamedCommand::cargo("build", cargo::build_all(), "fix what cargo reports above");
    let built = summary.run(build.name, || build.run());
    let got = !run.scenarios || get_tools(summary);
    if built && got {
        summary.run(TESTS, || run.start());
    } else {
        summary.skip(TESTS, "the programs and the tools are required");
    }
}

fn get_tools(summary: &mut Summary) -> bool {
    summary.run("etcd, kube-apiserver, kubectl, helm", || match tools::get(false) {
        Ok(_) => Outcome::Passed,
        Err(error) => Outcome::Failed(format!("{error:#}")),
    })
}

/// Runs all tiers in order, even if one of them fails.
fn deep(args: &[String]) -> anyhow::Result<()> {
    let mut summary = Summary::default();
    let env = DEEPLY.map(|(name, value)| (name, value.to_owned())).to_vec();
    programs_and_tests(&mut summary, &Run { profile: DEEP, filter: None, args, env, scenarios: true });
    for (name, words) in [
        ("conformance suite on the simulated cloud", &["conformance"][..]),
        ("conformance suite on the Python adapter", &["conformance", "--python"]),
        ("scenarios on nodes", &["test", "cluster"]),
        ("rehearsal of a release", &["test", "release"]),
        ("conformance suite on OpenStack", &["test", "openstack"]),
        ("scenarios on OpenStack", &["test", "openstack-e2e"]),
    ] {
        summary.run(name, || ourselves(words));
    }
    summary.close()
}

/// Runs another `cargo xtask` command in a separate process, because some commands `exec` another program.
fn ourselves(words: &[&str]) -> Outcome {
    let args = words.iter().map(|&word| word.to_owned()).collect();
    let program = cargo::built("xtask").into();
    let step = NamedCommand { name: "xtask", program, args, repair: "see the failure above" };
    match step.run() {
        Outcome::Failed(why) => {
            Outcome::Failed(format!("{why}; to repeat: `cargo xtask {}`", words.join(" ")))
        }
        done @ (Outcome::Passed | Outcome::Skipped(_)) => done,
    }
}

fn openstack_e2e(args: &[String]) -> anyhow::Result<()> {
    let mut summary = Summary::default();
    let got = get_tools(&mut summary);
    summary.run("end-to-end tests on OpenStack", || {
        if !got {
            return Outcome::Skipped("the tools are required".to_owned());
        }
        match programs::build("openstack") {
            Ok(program) => NamedCommand {
                name: "end-to-end tests on OpenStack",
                program: openstack::script("run.sh").get_program().to_owned(),
                args: [&[program.to_string_lossy().into_owned()], args].concat(),
                repair: REPAIR_OPENSTACK_E2E,
            }
            .run(),
            Err(error) => Outcome::Failed(format!("{error:#}")),
        }
    });
    summary.close()
}

/// Selects checks that show within some minutes whether the adapter and its sequences of vendor calls still match the cloud.
fn openstack_part() -> Vec<String> {
    const CHECKS: [&str; 14] = [
        "ID", "ERR", "INS-02", "INS-03", "LB-01", "LB-08", "LB-14", "LB-18", "RT-01", "RT-02", "RT-03",
        "RT-04", "RT-05", "SEC-01",
    ];
    CHECKS.iter().map(|check| format!("--include={check}")).collect()
}

/// Selects the scenarios that need kubelets and images, for each kind of use. They start a tainted cluster, and check routes, permissions,
/// `cloudctl`, commands of the documentation, `helm test` and the uninstallation.
fn cluster_part() -> Vec<String> {
    const SCENARIOS: [&str; 7] = [
        "bootstrap::a_tainted_node_is_initialised_by_pods_that_run_on_it",
        "cloudctl_reads_pages_of_pods_with_the_documented_rights",
        "commands_of_pages_about_pods_work",
        "routes::",
        "rights::",
        "chart::helm_test_passes_or_reports_the_cause",
        "uninstall::uninstall_leaves_only_load_balancers_for_a_reinstall",
    ];
    SCENARIOS.map(str::to_owned).to_vec()
}

#[cfg(test)]
mod tests {
    use super::{all_of, chosen};

    #[test]
    fn tier_change_and_expression_are_combined() {
        let args = ["--no-capture", "-E", "test(a) | test(b)", "routes"].map(str::to_owned);
        let (expression, others) = chosen(&args);
        assert_eq!(
            (expression, others),
            (Some("test(a) | test(b)"), vec!["--no-capture".into(), "routes".into()])
        );
        let filter = all_of([Some("package(=e2e)"), None, expression]);
        assert_eq!(filter.as_deref(), Some("(package(=e2e)) & (test(a) | test(b))"));
        assert_eq!(all_of([None; 3]), None);
    }
}
