//! Tests a cloud adapter in any language against the contract.
//!
//! Read the modules in this order: [`params`] (the parameter file), [`check`] and [`checks`] (the checks), [`mod@run`] and [`report`].
//! These modules are the environment of a check: [`context`], [`api`], [`cluster`], [`proxy`], [`hooks`], [`expect`].
//!
//! # How to write a check
//! Each family of checks has a file, `checks/<family>.rs`. Each check is a function. Its doc comment begins with the section of the
//! contract that it verifies, as named in the `.proto` files (`load_balancer_service.proto, EnsureLoadBalancer`), because authors of
//! adapters read these files. The names that most checks use are in `checks/prelude.rs`.
//!
//! ```ignore
//! pub(super) const CHECKS: &[Check] = &[
//!     Check::t2("LB-06", "stale-fence-is-refused-and-writes-nothing", |cx| Box::pin(stale_fence(cx)))
//!         .section("common.proto, Fence")
//!         .needs(&[Need::Proxy, Need::Capability("loadbalancers")])
//!         .within(30),
//! ];
//!
//! /// common.proto, `Fence`: an older epoch is refused with STALE_FENCE, and the vendor sees no write.
//! async fn stale_fence(cx: &Context) -> Verdict {
//!     let cluster = cx.cluster();                               // a virtual cluster that no other check uses
//!     let web = cluster.balancer("web").fence(cluster.fence_of(7, 1));
//!     cx.converge(&web).await?;                                 // puts the set, repeats Ensure until ACTIVE
//!     let mark = cx.proxy()?.mark();
//!     let old = web.fence(cluster.fence_of(6, 9)).listeners([tcp(81)]);
//!     expect::refused(cx.ensure(&old).await?, Reason::StaleFence)?;
//!     cx.proxy()?.since(mark).writes().must_be_none("a stale writer writes nothing")
//! }
//! ```
//!
//! - Checks by `Check::t1` share their adapter with other checks; those by `t2` and `t3` have exclusive use of it; `.alone()` and
//!   `.shared()` change that. A check that injects faults, counts calls, stops the adapter or changes settings of the vendor must have
//!   exclusive use. A check without exclusive use recognises its own objects by its cluster, and never counts calls.
//! - `.needs(..)` replaces the default prerequisites of the tier (proxy for T2; `killAdapter` and `startAdapter` for T3), so list all of
//!   them. If one is missing, the check is skipped, and the report names the reason. [`Need::Param`](check::Need) takes keys that [`lane`]
//!   knows; add new ones there.
//! - The report must show what was not tested: if a part of a check lacks a hook or a key, call `cx.without(Need::..)` instead, and the
//!   report names the missing prerequisite. Assert that an injected fault happened: `must_have_fired(..)`, or `reached(limit)`.
//! - An assertion is `expect::that(holds, "the contract's sentence", || what_came)`, or `expect::shown(holds, sentence, &value)`. `?` on an
//!   [`api`] answer asserts that the call succeeds. The sentence is for authors of adapters in other languages: it must not use names of
//!   this repository's code.
//! - Callers: `cx.service()?`, `cx.node()?`, `cx.route()?`, `cx.api(Role::Operator)?`; `.within(time)` sets the deadline. All requests and
//!   responses are recorded and printed if the check fails; `cx.note(..)` adds a line. [`api::Api::raw`] sends any bytes.
//! - Watches: `cx.service()?.watch_load_balancers(..)`, then `.event(limit)` (a [`api::Mirror`], the same for all three) or
//!   `.listing(limit)`. `cx.instances()`, `cx.load_balancers(&cluster)`, `cx.routes(&cluster)` return fresh listings.
//! - Instances: `cx.machines(n)` are shared and must not be changed; `cx.new_machines(n)` belong to the check. `cx.web(n)` is a load
//!   balancer with n shared instances as backends. Routes: `cluster.routes(vec![cluster.route(0, &machine)])` for
//!   [`api::Api::apply_routes`].
//! - The suite cleans up: it deletes load balancers and routes that the check requested, and the check's instances, ends injections, and
//!   starts a stopped adapter. Register what a command created with `cx.undo_by(Hook::DeleteRoute, ..)`. The check fails if anything is
//!   left.
//! - Injections end when dropped: `let _down = cx.proxy()?.inject(Rule::writes().next(1), Action::ResetAfter);`. To act at a certain call:
//!   `let held = inject(Rule::writes().nth(3), Action::HoldAfter); held.reached(limit).await?; cx.process().kill().await?; drop(held);`.
//! - `cx.heal()` waits until the adapter has recovered from faults that it remembers (rejected credentials, an open breaker, a pause, a
//!   lowered rate); the suite calls it after each check with exclusive use.
//! - Replicas: `.needs(&[Need::Replicas, ..])`, then `cx.replicas(Role::Operator)?` returns a client for each replica and
//!   `cx.replica_process(1)` a process. A plain check that also calls each replica, if there are replicas, uses `.visits_replicas()`.
//!   Callers with identities need `Need::Secured`.
//! - Calls in the background, to test whether a change interrupts them: [`load::Load`].
//! - Wait for a condition, do not sleep: `cx.until(limit, "sentence", || async { Ok(Some(..)) })`. Durations that depend on the vendor are
//!   in `cx.params().timings`. Random values come from `cx.random()`.
//! - The suite is independent of vendors. Each difference between vendors is a hook or a key of [`params`]. Add a hook or key
//!   that is missing, and document it at its variant or field.
//! - Prove that a check can fail: run it against an adapter with that fault, and add the fault to the table `tests/broken.table`.
//!
//! To run a check on the simulated cloud: `cargo xtask conformance -- --include LB-06`; against any other adapter:
//! `adapter-conformance --params FILE --include LB-06`.

pub mod api;
pub mod check;
pub mod checks;
mod clean;
pub mod cluster;
pub mod context;
pub mod expect;
pub mod hooks;
pub mod lane;
pub mod load;
mod options;
pub mod params;
pub mod program;
pub mod proxy;
mod relay;
pub mod report;
pub mod run;
#[cfg(feature = "sim")]
pub mod sim;
mod tracker;
pub mod transcript;
mod verdict;

pub use self::{
    options::Options,
    params::Params,
    run::{Selection, run},
};
