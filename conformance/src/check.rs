//! What a check is, what it needs, and how it ends.

use std::{fmt, time::Duration};

use futures::future::BoxFuture;

use crate::{context::Context, hooks::Hook};

/// How a check's function ends: `Ok` has passed.
pub type Verdict = Result<(), Stop>;

/// A check's function. An `async fn check(cx: &Context) -> Verdict` becomes one by `|cx| Box::pin(check(cx))`.
pub type Run = for<'a> fn(&'a Context) -> BoxFuture<'a, Verdict>;

/// The time that a check has unless it asks for more. What it made is removed after that, in time of its own.
const USUAL_LIMIT: Duration = Duration::from_secs(60);

/// One check.
#[derive(Clone, Copy, Debug)]
pub struct Check {
    /// Family and number, such as `LB-02`. Never reused.
    pub id: &'static str,
    /// What is claimed, in words with dashes.
    pub name: &'static str,
    /// What is needed beside the adapter.
    pub tier: Tier,
    /// Whether an adapter may do without.
    pub standing: Standing,
    /// Where the contract says so, such as `load_balancer_service.proto, EnsureLoadBalancer`.
    pub section: &'static str,
    /// Without these it is skipped.
    pub needs: &'static [Need],
    /// Whether it has its adapter and vendor to itself: because it injects faults, counts calls, or stops the adapter.
    pub exclusive: bool,
    /// Whether it also looks at the replicas, if there are some: none of them is stopped meanwhile.
    pub visits_replicas: bool,
    /// The longest that it takes, where load balancers are quick.
    pub limit: Duration,
    /// The check itself.
    pub run: Run,
}

/// What a check acts on; each tier has a verdict of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tier {
    /// The contract alone.
    T1,
    /// A proxy between adapter and vendor counts and disturbs calls.
    T2,
    /// The adapter's process is killed, restarted, reconfigured.
    T3,
}

/// Whether an adapter may do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// An adapter that fails it does not conform.
    Mandatory,
    /// Only for adapters that say that they can.
    Capability,
}

/// Something that a check cannot do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// A capability of `GetInfo`.
    Capability(&'static str),
    /// A command of the parameter file.
    Hook(Hook),
    /// The suite's own proxy between adapter and vendor.
    Proxy,
    /// An adapter that authenticates callers, and an identity for each role.
    Secured,
    /// Two replicas of one adapter.
    Replicas,
    /// Something else of the parameter file that may be left out, by its key, such as `vendor.lists`.
    Param(&'static str),
}

/// Why a check's function ended early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The adapter does not do what the contract wants.
    Failed(Finding),
    /// It cannot be told here, and why.
    Skipped(String),
}

/// What a failed check says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What the contract wants, one sentence.
    pub wants: String,
    /// What came instead.
    pub came: String,
}

impl Check {
    /// A mandatory check of the first tier that shares its adapter with others.
    #[must_use]
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

    /// A mandatory check of the second tier: alone with its adapter, behind the proxy.
    #[must_use]
    pub const fn t2(id: &'static str, name: &'static str, run: Run) -> Self {
        Self { tier: Tier::T2, needs: &[Need::Proxy], exclusive: true, ..Self::t1(id, name, run) }
    }

    /// A mandatory check of the third tier: alone with its adapter, which it may kill and start.
    #[must_use]
    pub const fn t3(id: &'static str, name: &'static str, run: Run) -> Self {
        const PROCESS: &[Need] = &[Need::Hook(Hook::KillAdapter), Need::Hook(Hook::StartAdapter)];
        Self { tier: Tier::T3, needs: PROCESS, exclusive: true, ..Self::t1(id, name, run) }
    }

    /// Where the contract says so. Every check has this.
    #[must_use]
    pub const fn section(self, section: &'static str) -> Self {
        Self { section, ..self }
    }

    /// Everything that it needs, in place of what its tier needs as a rule.
    #[must_use]
    pub const fn needs(self, needs: &'static [Need]) -> Self {
        Self { needs, ..self }
    }

    /// Only for adapters that say that they can: a lack of any need skips it without harm to the verdict.
    #[must_use]
    pub const fn optional(self) -> Self {
        Self { standing: Standing::Capability, ..self }
    }

    /// Alone with its adapter.
    #[must_use]
    pub const fn alone(self) -> Self {
        Self { exclusive: true, ..self }
    }

    /// Together with others, in spite of its tier.
    #[must_use]
    pub const fn shared(self) -> Self {
        Self { exclusive: false, ..self }
    }

    /// Looks at the replicas, too, if the parameter file names some.
    #[must_use]
    pub const fn visits_replicas(self) -> Self {
        Self { visits_replicas: true, ..self }
    }

    /// The longest that it takes, in seconds.
    #[must_use]
    pub const fn within(self, seconds: u64) -> Self {
        Self { limit: Duration::from_secs(seconds), ..self }
    }

    /// The letters of its ID, such as `LB`.
    #[must_use]
    pub fn family(&self) -> &'static str {
        self.id.split_once('-').map_or(self.id, |(family, _number)| family)
    }
}

impl Stop {
    /// The adapter does not do what the contract wants.
    pub fn failed(wants: impl Into<String>, came: impl Into<String>) -> Self {
        Self::Failed(Finding { wants: wants.into(), came: came.into() })
    }

    /// It cannot be told here.
    pub fn skipped(why: impl Into<String>) -> Self {
        Self::Skipped(why.into())
    }
}

impl Need {
    /// What is said where it is missing.
    #[must_use]
    pub fn lack(&self) -> String {
        match self {
            Self::Capability(name) => format!("the adapter does not have the capability {name}"),
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
