//! `cargo xtask test`: what must hold at each commit. The tiers differ in what they need: `unit` needs cargo only, `e2e` runs the programs
//! on real control planes, `cluster` needs root, `openstack` and `openstack-e2e` need a cloud. `deep` runs all of them, and at length.

mod cluster;
mod control_planes;
mod nextest;
mod programs;
mod since;

use anyhow::bail;
use clap::ValueEnum;

use self::nextest::Run;
use self::since::Affected;
use crate::images::Linked;
use crate::step::{Outcome, Step, Summary, say};
use crate::{cargo, openstack, tools};

const REPAIR_OPENSTACK_E2E: &str = "read the failure above, which names the logs that it kept; one test again: \
                                    `cargo xtask test openstack-e2e -- <test>`";
/// Of `.config/nextest.toml`.
const USUAL: &str = "default";
const DEEP: &str = "deep";
/// Cases of a property where its test sets no number.
const CASES: &str = "PROPTEST_CASES";
const FEW_CASES: &str = "64";
/// In the deep run: 20 times as many cases of each property, whether its test sets a number or not, and all rows of the table.
const DEEPLY: [(&str, &str); 3] =
    [("PROPTEST_CASES", "1280"), ("PROPERTY_FACTOR", "20"), ("BROKEN_ADAPTERS", "all")];

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    cargo xtask test                           what must hold at each commit\n  \
    cargo xtask test --since main              only what the changes since main can affect\n  \
    cargo xtask test -- node_costs             tests whose name contains this\n  \
    cargo xtask test -- -E 'package(cloudctl)' tests that an expression of nextest's chooses\n  \
    cargo xtask test cluster -- routes         one subject of the scenarios on nodes\n  \
    cargo xtask test deep                      everything, for hours\n\n\
    Exit codes:\n  \
    0  all passed\n  \
    1  a test failed, or could not be run; the last lines have the command that repeats each\n  \
    2  the command line is wrong")]
pub(crate) struct Args {
    /// Only this tier; without it, `unit` and `e2e`
    tier: Option<Tier>,
    /// Only tests that the changes since this revision can affect, committed or not; of `unit` and `e2e`
    #[arg(long, value_name = "REVISION")]
    since: Option<String>,
    /// Handed to nextest; from `cluster` and `openstack-e2e` to the test program, from `openstack` to `adapter-conformance`
    #[arg(last = true)]
    args: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Tier {
    /// Unit and integration tests, which need cargo only
    Unit,
    /// The scenarios on real control planes
    E2e,
    /// Everything: all tiers, all rows of the table of broken adapters, long property tests; as root
    Deep,
    /// The scenarios on nodes that run pods, with images built here, as root
    Cluster,
    /// The scenarios on nodes that `.ci/run` plays: installation, routes and rights
    ClusterPart,
    /// The conformance suite, on the adapter for OpenStack and the cloud of `cargo xtask openstack`
    Openstack,
    /// A few checks of each part of it, as in `.ci/run`
    OpenstackPart,
    /// The scenarios on a real control plane with that adapter and that cloud
    OpenstackE2e,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let of_nextest = matches!(args.tier, None | Some(Tier::Unit | Tier::E2e));
    if args.since.is_some() && !of_nextest {
        bail!("--since chooses among `unit` and `e2e`: leave it out, or name one of these tiers");
    }
    match args.tier {
        Some(Tier::Openstack) => openstack::test(&args.args),
        Some(Tier::OpenstackPart) => openstack::test(&[&openstack_part(), args.args.as_slice()].concat()),
        Some(Tier::Cluster) => cluster::run(&args.args, Linked::AsReleased),
        Some(Tier::ClusterPart) => {
            cluster::run(&[&cluster_part(), args.args.as_slice()].concat(), Linked::AsBuilt)
        }
        Some(Tier::OpenstackE2e) => openstack_e2e(&args.args),
        Some(Tier::Deep) => deep(&args.args),
        Some(Tier::Unit) => usual(Some("not package(=e2e)"), args),
        Some(Tier::E2e) => usual(Some("package(=e2e)"), args),
        None => usual(None, args),
    }
}

/// The tests of the default profile that `tier` and the arguments choose.
fn usual(tier: Option<&str>, args: &Args) -> anyhow::Result<()> {
    let affected = args.since.as_deref().map(since::affected).transpose()?;
    let changed = match &affected {
        None => None,
        Some(Affected::Some(filter)) => Some(filter.as_str()),
        Some(Affected::All(file)) => {
            say(&format!("{file} has changed, which can affect any test"));
            None
        }
        Some(Affected::Nothing) => {
            say("no test reads what has changed");
            return Ok(());
        }
    };
    let (chosen, others) = chosen(&args.args);
    let filter = all_of([tier, changed, chosen]);
    if let Some(filter) = &filter {
        say(&format!("tests: {filter}"));
    }
    let mut summary = Summary::default();
    // What the user sets is for a test that failed with it.
    let cases =
        std::env::var_os(CASES).map_or_else(|| FEW_CASES.to_owned(), |it| it.to_string_lossy().into_owned());
    let env = vec![(CASES, cases)];
    let scenarios = tier != Some("not package(=e2e)");
    let run = Run { profile: USUAL, filter, args: &others, env, scenarios };
    programs_and_tests(&mut summary, &run);
    summary.close()
}

/// The expression of nextest's among the arguments, and the others.
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

/// Of several expressions nextest runs what any of them chooses; this chooses what all do.
fn all_of(expressions: [Option<&str>; 3]) -> Option<String> {
    let all: Vec<_> = expressions.into_iter().flatten().map(|it| format!("({it})")).collect();
    (!all.is_empty()).then(|| all.join(" & "))
}

/// Builds everything, then runs tests.
fn programs_and_tests(summary: &mut Summary, run: &Run<'_>) {
    const TESTS: &str = "tests";
    let build = Step::cargo("build", cargo::build_all(), "fix what cargo names above");
    let built = summary.run(build.name, || build.run());
    let got = !run.scenarios || get_tools(summary);
    if built && got {
        summary.run(TESTS, || run.start());
    } else {
        summary.skip(TESTS, "they need the programs and the tools");
    }
}

fn get_tools(summary: &mut Summary) -> bool {
    summary.run("etcd, kube-apiserver, kubectl, helm", || match tools::get(false) {
        Ok(_) => Outcome::Passed,
        Err(error) => Outcome::Failed(format!("{error:#}")),
    })
}

/// All there is, one after the other, whatever fails.
fn deep(args: &[String]) -> anyhow::Result<()> {
    let mut summary = Summary::default();
    let env = DEEPLY.map(|(name, value)| (name, value.to_owned())).to_vec();
    programs_and_tests(&mut summary, &Run { profile: DEEP, filter: None, args, env, scenarios: true });
    for (name, words) in [
        ("conformance suite on the simulated cloud", &["conformance"][..]),
        ("conformance suite on the adapter in Python", &["conformance", "--python"]),
        ("scenarios on nodes", &["test", "cluster"]),
        ("conformance suite on OpenStack", &["test", "openstack"]),
        ("scenarios on OpenStack", &["test", "openstack-e2e"]),
    ] {
        summary.run(name, || ourselves(words));
    }
    summary.close()
}

/// Another command of `cargo xtask`, in a process of its own: some of them become another program.
fn ourselves(words: &[&str]) -> Outcome {
    let args = words.iter().map(|&word| word.to_owned()).collect();
    let program = cargo::built("xtask").into();
    let step = Step { name: "xtask", program, args, repair: "read the failure above" };
    match step.run() {
        Outcome::Failed(why) => Outcome::Failed(format!("{why}; again: `cargo xtask {}`", words.join(" "))),
        done @ (Outcome::Passed | Outcome::Skipped(_)) => done,
    }
}

fn openstack_e2e(args: &[String]) -> anyhow::Result<()> {
    let mut summary = Summary::default();
    let got = get_tools(&mut summary);
    summary.run("end-to-end tests on OpenStack", || {
        if !got {
            return Outcome::Skipped("they need the tools".to_owned());
        }
        match programs::build("openstack") {
            Ok(program) => Step {
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

/// What shows in some minutes whether the adapter, its chains of vendor calls and the cloud still fit.
fn openstack_part() -> Vec<String> {
    const CHECKS: [&str; 14] = [
        "ID", "ERR", "INS-02", "INS-03", "LB-01", "LB-08", "LB-14", "LB-18", "RT-01", "RT-02", "RT-03",
        "RT-04", "RT-05", "SEC-01",
    ];
    CHECKS.iter().map(|check| format!("--include={check}")).collect()
}

/// What needs kubelets and images to show, and is the path of each user: a tainted cluster comes up, pods reach each other by routes,
/// `cloudctl` and the pages reach pods, and each container has its rights and no more.
fn cluster_part() -> Vec<String> {
    const SCENARIOS: [&str; 7] = [
        "bootstrap::a_tainted_node_is_initialised_by_pods_that_run_on_it",
        "cloudctl_reads_the_pages_of_pods_with_the_rights_of_its_page",
        "what_pages_say_of_pods_works",
        "routes::",
        "rights::",
        "chart::helm_test_passes_and_else_says_what_is_wrong",
        "uninstall::nothing_is_left_in_the_cluster_and_load_balancers_serve_on_and_are_found_again",
    ];
    SCENARIOS.map(str::to_owned).to_vec()
}

#[cfg(test)]
mod tests {
    use super::{all_of, chosen};

    #[test]
    fn a_tier_a_change_and_an_expression_choose_together() {
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
