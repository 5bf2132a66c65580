//! The definition of a check: its prerequisites, its function and its result.

use std::{fmt, time::Duration};

use clap::ValueEnum;
use futures::future::BoxFuture;

pub use crate::verdict::{Finding, Need, Stop, Verdict};
use crate::{context::Context, hooks::Hook};

/// A check's function. `run!(check)` turns an `async fn check(cx: &Context) -> Verdict` into this type.
pub type Run = for<'a> fn(&'a Context) -> BoxFuture<'a, Verdict>;

macro_rules! run {
    ($check:path) => {
        |cx| Box::pin($check(cx))
    };
}
pub(crate) use run;

/// Default time limit of a check. The clean-up after a check has its own limit.
const USUAL_LIMIT: Duration = Duration::from_secs(60);

/// One check.
#[derive(Clone, Copy, Debug)]
pub struct Check {
    /// The family and the number, such as `LB-02`. An ID is never reused.
    pub id: &'static str,
    /// What the check asserts, as words joined by dashes.
    pub name: &'static str,
    /// Prerequisites apart from the adapter.
    pub tier: Tier,
    /// Whether an adapter may fail the check and still conform.
    pub standing: Standing,
    /// The section of the contract, such as `load_balancer_service.proto, EnsureLoadBalancer`.
    pub section: &'static str,
    /// The prerequisites: the check is skipped if one of them is missing.
    pub needs: &'static [Need],
    /// Whether the check needs exclusive use of its adapter and vendor, because it injects faults, counts calls or stops the adapter.
    pub exclusive: bool,
    /// Whether the check also calls each replica, if the parameter file names replicas. No replica is stopped while the check runs.
    pub visits_replicas: bool,
    /// The time limit. It is meant for vendors whose load balancers become ready quickly.
    pub limit: Duration,
    /// The function of the check.
    pub run: Run,
}

/// Prerequisites of a check, in three levels. Each level has its own verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Tier {
    /// The check needs only the adapter and makes only calls to it.
    #[value(name = "T1", help = "Only calls of the contract")]
    T1,
    /// A proxy between adapter and vendor counts calls and injects faults.
    #[value(name = "T2", help = "With a proxy between adapter and vendor")]
    T2,
    /// The check kills, restarts or reconfigures the adapter's process.
    #[value(name = "T3", help = "With an adapter that the suite kills and starts")]
    T3,
}

/// Whether an adapter may fail a check and still conform.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// An adapter that fails the check does not conform.
    Mandatory,
    /// The check applies only to adapters that report the capability.
    Capability,
}

impl Check {
    /// Creates a mandatory check of the first tier. It runs concurrently with other checks on the same adapter.
    pub const fn t1(id: &'static str, name: &'static str, run: Run) -> Self {
        Self {
            id,
            name,
            tier: Tier::T1,
            standing: Standing::Mandatory,
            section: "",
            needs: &[],
            exclusive: false,
            visits_replicas: false,
            limit: USUAL_LIMIT,
            run,
        }
    }

    /// Creates a mandatory check of the second tier, with exclusive use of an adapter behind the proxy.
    pub const fn t2(id: &'static str, name: &'static str, run: Run) -> Self {
        Self { tier: Tier::T2, needs: &[Need::Proxy], exclusive: true, ..Self::t1(id, name, run) }
    }

    /// Creates a mandatory check of the third tier, with exclusive use of an adapter that the check may kill and start.
    pub const fn t3(id: &'static str, name: &'static str, run: Run) -> Self {
        const PROCESS: &[Need] = &[Need::Hook(Hook::KillAdapter), Need::Hook(Hook::StartAdapter)];
        Self { tier: Tier::T3, needs: PROCESS, exclusive: true, ..Self::t1(id, name, run) }
    }

    /// Sets the section of the contract. Every check must have one.
    pub const fn section(self, section: &'static str) -> Self {
        Self { section, ..self }
    }

    /// Sets all prerequisites, and replaces the defaults of the tier.
    pub const fn needs(self, needs: &'static [Need]) -> Self {
        Self { needs, ..self }
    }

    /// Makes the check optional. If a prerequisite is missing, the check is skipped and the verdict is still complete.
    pub const fn optional(self) -> Self {
        Self { standing: Standing::Capability, ..self }
    }

    /// Requires exclusive use of the adapter.
    pub const fn alone(self) -> Self {
        Self { exclusive: true, ..self }
    }

    /// Lets the check run concurrently with other checks, regardless of its tier.
    pub const fn shared(self) -> Self {
        Self { exclusive: false, ..self }
    }

    /// Lets the check also call each replica, if the parameter file names replicas.
    pub const fn visits_replicas(self) -> Self {
        Self { visits_replicas: true, ..self }
    }

    /// Sets the time limit, in seconds.
    pub const fn within(self, seconds: u64) -> Self {
        Self { limit: Duration::from_secs(seconds), ..self }
    }

    /// The letters of the ID, such as `LB`.
    pub fn family(&self) -> &'static str {
        self.id.split_once('-').map_or(self.id, |(family, _number)| family)
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}
