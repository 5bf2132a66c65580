//! Tests any cloud adapter, in any language, against the contract.
//!
//! In reading order: [`params`] (the file that describes a setting), [`check`] and [`checks`] (what is checked), [`mod@run`] and [`report`];
//! what a check works with: [`context`], [`api`], [`cluster`], [`proxy`], [`hooks`], [`expect`].
//!
//! # How to write a check
//! One file a family, `checks/<family>.rs`; one function a check, whose doc comment begins with the contract's section. Sections are those
//! of the `.proto` files (`load_balancer_service.proto, EnsureLoadBalancer`), which are what authors of adapters read.
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
//!     let cluster = cx.cluster();                               // a virtual cluster that nobody else uses
//!     let web = cluster.balancer("web").fence(cluster.fence_of(7, 1));
//!     cx.converge(&web).await?;                                 // puts the set, repeats Ensure until ACTIVE
//!     let mark = cx.proxy()?.mark();
//!     let old = web.fence(cluster.fence_of(6, 9)).listeners([tcp(81)]);
//!     expect::refused(cx.ensure(&old).await?, Reason::StaleFence)?;
//!     let writes = cx.proxy()?.since(mark).writes();
//!     expect::that(writes.is_empty(), "a stale writer writes nothing", || writes.to_string())
//! }
//! ```
//!
//! - `Check::t1` shares its adapter with others, `t2` and `t3` have it alone; `.alone()` and `.shared()` change that. Whoever injects, counts
//!   calls, stops the adapter or changes settings of the vendor must be alone. Whoever is not alone tells its own things from others' by
//!   its cluster, and never counts calls.
//! - `.needs(..)` replaces what the tier needs as a rule (proxy for T2; `killAdapter` and `startAdapter` for T3): list all. What is missing
//!   skips the check, with the reason. [`Need::Param`](check::Need) names keys that [`lane`] knows; add yours there.
//! - Nothing passes in silence that nobody looked at: a part that lacks a hook or a key is left out with `cx.without(Need::..)`, and the report
//!   names it. What an injection shall do must have happened: `fired() > 0`, or `reached(limit)`.
//! - A claim is `expect::that(holds, "the contract's sentence", || what_came)`. `?` on an [`api`] answer claims that the call succeeds.
//!   The sentence is for whoever writes an adapter in another language: no word of this repository's code.
//! - Callers: `cx.service()?`, `cx.node()?`, `cx.route()?`, `cx.api(Role::Operator)?`; `.within(time)` sets the deadline. Everything sent and
//!   received is on record and shown when the check fails; `cx.note(..)` adds to it. [`api::Api::raw`] sends any bytes.
//! - Watches: `cx.service()?.watch_load_balancers(..)`, then `.event(limit)` (a [`api::Mirror`], the same for all three) or `.listing(limit)`.
//!   `cx.instances()`, `cx.load_balancers(&cluster)`, `cx.routes(&cluster)` list live.
//! - Machines: `cx.machines(n)` are shared, never change them; `cx.new_machines(n)` are yours. Routes: `cluster.routes(vec![cluster.route(0, &machine)])`
//!   for [`api::Api::apply_routes`].
//! - Nothing needs cleaning: load balancers and routes that were sent are removed, machines too, injections end, a stopped adapter is started.
//!   For what a command made: `cx.undo_by(Hook::DeleteRoute, ..)`. What is left after that fails the check.
//! - Injections end when dropped: `let _down = cx.proxy()?.inject(Rule::writes().next(1), Action::ResetAfter);`. To act at a certain call:
//!   `let held = inject(Rule::writes().nth(3), Action::HoldAfter); held.reached(limit).await?; cx.process().kill().await?; drop(held);`.
//! - What an adapter remembers of a fault (rejected credentials, an open breaker, a pause, a lowered rate) is over after `cx.heal()`; after a
//!   check that is alone that is done for you.
//! - Replicas: `.needs(&[Need::Replicas, ..])`, then `cx.replicas(Role::Operator)?` is each alone and `cx.replica_process(1)` a process. A plain
//!   check that looks at them, too, if there are some: `.visits_replicas()`. Callers with identities: `Need::Secured`.
//! - What a change does to calls that go on meanwhile: [`load::Load`].
//! - No sleep in place of a condition: `cx.until(limit, "sentence", || async { Ok(Some(..)) })`. Times of the setting are in `cx.params().timings`;
//!   what is long for a real vendor is a timing. Chance comes from `cx.random()`.
//! - The suite knows no vendor. What differs between vendors is a hook or a key of [`params`]; add what is missing, documented at its field.
//! - Failing needs proof: see your check fail against an adapter with that fault, and name it in the table of faults.
//!
//! To run one: build the bins of `adapter-sim` and `conformance-sim`, then `conformance-sim run --lanes 1 -- --include LB-06`; against anything else:
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
mod tracker;
pub mod transcript;

pub use self::{
    options::Options,
    params::Params,
    run::{Selection, run},
};
