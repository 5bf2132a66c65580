//! The definition of a check: its prerequisites, its function and its result.

use std::{fmt, time::Duration};

use futures::future::BoxFuture;

use crate::{context::Context, hooks::Hook};

/// Result of a check's function; `Ok` means that the check passed.
pub type Verdict = Result<(), Stop>;

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
    /// Family and number, such as `LB-02`. Never reused.
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
    /// Whether the check also calls each replica, if the parameter file names replicas. No replica is stopped while it runs.
    pub visits_replicas: bool,
    /// Time limit, for vendors whose load balancers become ready quickly.
    pub limit: Duration,
    /// The function of the check.
    pub run: Run,
}

/// Prerequisites of a check, in three levels. Each level has its own verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tier {
    /// The check only makes calls to the adapter.
    T1,
    /// A proxy between adapter and vendor counts calls and injects faults.
    T2,
    /// The check kills, restarts or reconfigures the adapter's process.
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

/// A prerequisite of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// A capability of `GetInfo`.
    Capability(&'static str),
    /// A command in the parameter file.
    Hook(Hook),
    /// The suite's own proxy between adapter and vendor.
    Proxy,
    /// An adapter that authenticates callers, and an identity for each role.
    Secured,
    /// Two replicas of one adapter.
    Replicas,
    /// Another optional key of the parameter file, such as `vendor.lists`.
    Param(&'static str),
}

/// Why a check's function ended early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The adapter does not meet a requirement of the contract.
    Failed(Finding),
    /// The check cannot decide in this environment; holds the cause.
    Skipped(String),
}

/// The report of a failed check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The requirement of the contract, as one sentence.
    pub wants: String,
    /// The observation that contradicts the requirement.
    pub came: String,
}

impl Check {
    /// Creates a mandatory check of the first tier, which runs concurrently with others on the same adapter.
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

    /// Sets all prerequisites; replaces the defaults of the tier.
    pub const fn needs(self, needs: &'static [Need]) -> Self {
        Self { needs, ..self }
    }

    /// Makes the check optional: a missing prerequisite skips it without making the verdict incomplete.
    pub const fn optional(self) -> Self {
        Self { standing: Standing::Capability, ..self }
    }

    /// Requires exclusive use of the adapter.
    pub const fn alone(self) -> Self {
        Self { exclusive: true, ..self }
    }

    /// Lets the check run concurrently with others, regardless of its tier.
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

impl Stop {
    /// Reports that the adapter does not meet a requirement of the contract.
    pub fn failed(wants: impl Into<String>, came: impl Into<String>) -> Self {
        Self::Failed(Finding { wants: wants.into(), came: came.into() })
    }

    /// Reports that the check cannot decide in this environment.
    pub fn skipped(why: impl Into<String>) -> Self {
        Self::Skipped(why.into())
    }
}

impl Need {
    /// The reason that is reported when the prerequisite is missing.
    pub fn lack(&self) -> String {
        match self {
            Self::Capability(name) => format!("the adapter does not report the capability {name}"),
            Self::Hook(_) | Self::Proxy | Self::Secured | Self::Replicas | Self::Param(_) => {
                format!("{self} is not set")
            }
        }
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::T1 => "T1",
            Self::T2 => "T2",
            Self::T3 => "T3",
        })
    }
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Capability(name) => write!(f, "capability {name}"),
            Self::Hook(hook) => write!(f, "hooks.{hook}"),
            Self::Proxy => f.write_str("lanes[].proxy"),
            Self::Secured => f.write_str("secured"),
            Self::Replicas => f.write_str("replicas"),
            Self::Param(key) => f.write_str(key),
        }
    }
}
