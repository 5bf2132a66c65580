//! `cargo xtask test`: everything that must pass. The tiers are told apart by what they need: `unit` needs cargo only,
//! `e2e` runs our own binaries on real control planes. `cluster` needs root; `openstack` and `openstack-e2e` need a cloud: these are
//! run when they are named.

mod cluster;
mod lanes;

use clap::ValueEnum;

use crate::cargo;
use crate::openstack;
use crate::step::{Outcome, Step, Summary};
use crate::tools;

const REPAIR: &str = "read the failure above; one test again: `cargo test -p <crate> <test>`";
const REPAIR_E2E: &str =
    "read the failure above, which names the logs it kept; one test again: `cargo xtask test e2e -- <test>`";
const REPAIR_OPENSTACK_E2E: &str = "read the failure above, which names the logs it kept; one test again: \
                                    `cargo xtask test openstack-e2e -- <test>`";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only this tier; without it, `unit` and `e2e`
    tier: Option<Tier>,
    /// Handed to `cargo test`, and from `openstack` to `adapter-conformance`
    #[arg(last = true)]
    args: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Tier {
    /// Unit and integration tests, which need nothing but cargo
    Unit,
    /// The scenarios on real control planes
    E2e,
    /// The scenarios on nodes that run pods, with images of ours, as root; also one: `cargo xtask test cluster -- <test>`
    Cluster,
    /// The conformance suite, on the adapter for OpenStack and the cloud of `cargo xtask openstack`
    Openstack,
    /// Some minutes of that hour, a little of each part; `.ci/run` has it
    OpenstackPart,
    /// The scenarios on a real control plane with that adapter and that cloud
    OpenstackE2e,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    match args.tier {
        Some(Tier::Openstack) => return openstack::test(&args.args),
        Some(Tier::OpenstackPart) => return openstack::test(&[&part(), args.args.as_slice()].concat()),
        Some(Tier::Cluster) => return cluster::run(&args.args),
        Some(Tier::Unit | Tier::E2e | Tier::OpenstackE2e) | None => (),
    }
    let mut summary = Summary::default();
    if args.tier == Some(Tier::OpenstackE2e) {
        run_openstack_e2e(&mut summary, &args.args);
        return summary.close();
    }
    if args.tier != Some(Tier::E2e) {
        let step = Step::cargo("unit and integration tests", unit(&args.args), REPAIR);
        summary.run(step.name, || step.run());
    }
    if args.tier != Some(Tier::Unit) {
        run_e2e(&mut summary, &args.args);
    }
    summary.close()
}

fn run_e2e(summary: &mut Summary, args: &[String]) {
    let name = "end-to-end tests";
    if args.is_empty() {
        let folder = cargo::root().join("e2e");
        run_scenarios(summary, cargo::build_servers(), name, || lanes::run("e2e", &folder, REPAIR_E2E));
    } else {
        let step = Step::cargo(name, e2e(args), REPAIR_E2E);
        run_scenarios(summary, cargo::build_servers(), name, || step.run());
    }
}

fn run_openstack_e2e(summary: &mut Summary, args: &[String]) {
    let build = [cargo::build_servers(), strings(&["--package", "adapter-openstack"])].concat();
    let cargo = cargo::program().to_string_lossy().into_owned();
    let test = strings(&["test", "--package", "e2e", "--features", "openstack", "--test", "openstack"]);
    let step = Step {
        name: "end-to-end tests on OpenStack",
        program: openstack::script("run.sh").get_program().to_owned(),
        args: [&[cargo], test.as_slice(), args].concat(),
        repair: REPAIR_OPENSTACK_E2E,
    };
    run_scenarios(summary, build, step.name, || step.run());
}

fn run_scenarios(
    summary: &mut Summary,
    build: Vec<String>,
    name: &'static str,
    run: impl FnOnce() -> Outcome,
) {
    let build = Step::cargo("build the binaries", build, "mend what cargo names above");
    let built = summary.run(build.name, || build.run());
    let got = summary.run("etcd, kube-apiserver, kubectl, helm", || match tools::get(false) {
        Ok(_) => Outcome::Passed,
        Err(error) => Outcome::Failed(format!("{error:#}")),
    });
    if built && got {
        summary.run(name, run);
    } else {
        summary.skip(name, "they need the binaries and the tools");
    }
}

/// All of them, whatever became of the first: a run takes minutes.
fn unit(args: &[String]) -> Vec<String> {
    [&strings(&["test", "--workspace", "--exclude", "e2e", "--no-fail-fast"]), args].concat()
}

fn e2e(args: &[String]) -> Vec<String> {
    [&strings(&["test", "--package", "e2e", "--no-fail-fast"]), args].concat()
}

/// What shows in some minutes whether the adapter, its chains of vendor calls and the cloud still fit.
fn part() -> Vec<String> {
    const CHECKS: [&str; 14] = [
        "ID", "ERR", "INS-02", "INS-03", "LB-01", "LB-08", "LB-14", "LB-18", "RT-01", "RT-02", "RT-03",
        "RT-04", "RT-05", "SEC-01",
    ];
    CHECKS.iter().map(|check| format!("--include={check}")).collect()
}

fn strings(list: &[&str]) -> Vec<String> {
    list.iter().map(|&arg| arg.to_owned()).collect()
}
