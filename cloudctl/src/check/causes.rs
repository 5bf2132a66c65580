//! Finds the checks that fail only because another check fails. Pure functions.

use std::collections::{BTreeMap, BTreeSet};

use super::{Check, CheckResult};
use crate::options::Component;

/// What a check needs, and what is lacking while another check fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// A replica of the component is available.
    Runs(Component),
    /// The component has its ClusterRole.
    Rights(Component),
    /// The controller reaches the adapter.
    Adapter(Component),
    /// Each shard of the component has a holder.
    Holder(Component),
    /// A replica of the adapter leads.
    Leader,
    /// The adapter can use the cloud.
    Cloud,
    /// The controller holds back no changes.
    Released(Component),
    /// The adapter works in the part of the cloud in which the controller has worked so far.
    Scope(Component),
    /// The Secret of the certificate authority exists.
    Authority,
}

/// How a check depends on others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Links {
    /// For each fault that the check found: while one of these is lacking, the fault has no other cause. Empty: the fault has its own cause.
    pub(super) faults: Vec<Vec<Need>>,
    /// What is lacking while this check fails.
    pub(super) lacking: Vec<Need>,
}

impl Check {
    /// Returns the check with what each of its faults follows from.
    pub(super) fn following(mut self, faults: Vec<Vec<Need>>) -> Self {
        self.links.faults = faults;
        self
    }

    /// Returns the check with what is lacking while it fails.
    pub(super) fn without(mut self, lacking: Vec<Need>) -> Self {
        self.links.lacking = lacking;
        self
    }
}

/// What an object needs so that its controller can reconcile it.
pub(super) fn to_reconcile(by: Component) -> Vec<Need> {
    vec![Need::Runs(by), Need::Rights(by), Need::Scope(by), Need::Holder(by), Need::Adapter(by), Need::Cloud]
}

/// Turns each failed check whose faults all follow from other checks into one that waits for these checks.
pub(super) fn marked(mut checks: Vec<Check>) -> Vec<Check> {
    let names: Vec<String> = checks.iter().map(|it| it.name.clone()).collect();
    let mut roots = roots(&checks);
    let found: Vec<String> = checks.iter().map(|it| it.found.clone()).collect();
    for (n, check) in checks.iter_mut().enumerate() {
        let Some(roots) = roots.remove(&n).filter(|it| !it.contains(&n)) else { continue };
        check.because = roots.iter().filter_map(|root| names.get(*root)).cloned().collect();
        // The cause has the same text in its own line.
        let has_same =
            |root: &usize| found.get(*root).is_some_and(|it| !it.is_empty() && check.found.contains(it));
        if roots.iter().any(has_same) {
            check.found.clear();
        }
        check.hint = Some(format!("first fix: {}", check.because.join(", ")));
        check.result = CheckResult::Waiting;
    }
    checks
}

/// For each failed check, by its position, the checks in which its faults begin: itself, or others that it follows from.
fn roots(checks: &[Check]) -> BTreeMap<usize, BTreeSet<usize>> {
    let failed = checks.iter().enumerate().filter(|(_, it)| it.result == CheckResult::Failed);
    let failed: BTreeMap<usize, &Check> = failed.collect();
    let faults = failed.iter().map(|(&n, check)| (n, blockers(&failed, n, check)));
    let has_own = |faults: &[Vec<usize>]| faults.is_empty() || faults.iter().any(Vec::is_empty);
    let (own, mut open): (BTreeMap<_, _>, BTreeMap<_, _>) = faults.partition(|(_, it)| has_own(it));
    let itself = |n: usize| (n, BTreeSet::from([n]));
    let mut roots: BTreeMap<usize, BTreeSet<usize>> = own.into_keys().map(itself).collect();
    while let Some((n, its)) = open.iter().find_map(|(&n, faults)| Some((n, traced(faults, &roots)?))) {
        open.remove(&n);
        roots.insert(n, its);
    }
    // Checks that follow only from each other.
    roots.extend(open.into_keys().map(itself));
    roots
}

/// For each fault of a check, the other failed checks that it follows from.
fn blockers(failed: &BTreeMap<usize, &Check>, n: usize, check: &Check) -> Vec<Vec<usize>> {
    let lacks = |by: &Check, needs: &[Need]| needs.iter().any(|it| by.links.lacking.contains(it));
    let of_fault = |needs: &Vec<Need>| {
        let by = failed.iter().filter(|(by, it)| **by != n && lacks(it, needs));
        by.map(|(by, _)| *by).collect()
    };
    check.links.faults.iter().map(of_fault).collect()
}

/// Returns the roots of all faults, or `None` if those of a fault are not known yet.
fn traced(faults: &[Vec<usize>], roots: &BTreeMap<usize, BTreeSet<usize>>) -> Option<BTreeSet<usize>> {
    let of_fault = |by: &Vec<usize>| by.iter().find_map(|it| roots.get(it));
    let all: Option<Vec<&BTreeSet<usize>>> = faults.iter().map(of_fault).collect();
    Some(all?.into_iter().flatten().copied().collect())
}

/// The failed checks, each with the number of checks that fail because of it. Empty if all failed checks are independent.
pub(super) fn causes(checks: &[Check]) -> Vec<(&Check, usize)> {
    if checks.iter().all(|it| it.because.is_empty()) {
        return Vec::new();
    }
    let failed = checks.iter().filter(|it| it.result == CheckResult::Failed);
    let following = |cause: &Check| checks.iter().filter(|it| it.because.contains(&cause.name)).count();
    failed.map(|it| (it, following(it))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODES: Component = Component::NodeController;

    fn failed(name: &str, faults: &[&[Need]], lacking: &[Need]) -> Check {
        let check = Check { name: name.to_owned(), result: CheckResult::Failed, ..Check::default() };
        check.following(faults.iter().map(|it| it.to_vec()).collect()).without(lacking.to_vec())
    }

    fn because(checks: &[Check]) -> Vec<String> {
        let shown = |it: Check| format!("{} {:?} {}", it.name, it.result, it.because.join("+"));
        marked(checks.to_vec()).into_iter().map(shown).collect()
    }

    #[test]
    fn checks_wait_for_the_one_in_which_their_faults_begin() {
        let pods = failed("pods", &[&[]], &[Need::Runs(NODES)]);
        let leases = failed("leases", &[&[Need::Runs(NODES)]], &[Need::Holder(NODES)]);
        let nodes = failed("nodes", &[&[Need::Holder(NODES), Need::Cloud]], &[]);
        let all = [nodes.clone(), pods, leases.clone()];
        assert_eq!(because(&all), ["nodes Waiting pods", "pods Failed ", "leases Waiting pods"]);
        let all = marked(all.to_vec());
        assert_eq!(all[0].hint.as_deref(), Some("first fix: pods"));
        let causes: Vec<_> = causes(&all).into_iter().map(|(it, n)| (it.name.as_str(), n)).collect();
        assert_eq!(causes, [("pods", 2)]);
        assert_eq!(because(&[nodes, leases]), ["nodes Waiting leases", "leases Failed "], "the pods run");
    }

    #[test]
    fn a_check_with_a_fault_of_its_own_fails() {
        let cloud = failed("cloud", &[], &[Need::Cloud]);
        let mixed = failed("services", &[&[Need::Cloud], &[]], &[]);
        let other = failed("other", &[], &[]);
        assert_eq!(
            because(&[cloud.clone(), mixed, other.clone()]),
            ["cloud Failed ", "services Failed ", "other Failed "]
        );
        assert!(causes(&marked(vec![cloud, other])).is_empty(), "no check fails because of another");
        let fine = Check { name: "cloud".to_owned(), ..Check::default() }.without(vec![Need::Cloud]);
        let nodes = failed("nodes", &[&[Need::Cloud]], &[]);
        assert_eq!(because(&[fine, nodes]), ["cloud Ok ", "nodes Failed "], "only a failed check is a cause");
    }

    #[test]
    fn a_check_with_two_causes_names_both() {
        let pods = failed("pods", &[], &[Need::Runs(NODES)]);
        let cloud = failed("cloud", &[], &[Need::Cloud]);
        let status = failed("status", &[&[Need::Cloud], &[Need::Runs(NODES)]], &[]);
        assert_eq!(because(&[pods, cloud, status])[2], "status Waiting pods+cloud");
    }

    #[test]
    fn checks_that_wait_only_for_each_other_fail() {
        let one = failed("one", &[&[Need::Leader]], &[Need::Cloud]);
        let two = failed("two", &[&[Need::Cloud]], &[Need::Leader]);
        assert_eq!(because(&[one, two]), ["one Failed ", "two Failed "]);
    }
}
