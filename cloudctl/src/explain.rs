//! `cloudctl explain`: shows the desired state of one object, its state in the cloud, and what the object waits for.

mod args;
mod table;
#[cfg(test)]
mod tests;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use telemetry::report::{
    AdapterStatus, Breaker, BreakerState, Budget, ControllerStatus, Explanation, Queue, State, Task,
};

pub(crate) use self::args::ExplainArgs;
use crate::{
    missing::Missing,
    objects::{self, Object, ObjectEvent, endpoints},
    options::{Common, Component},
    output::Format,
    session::{Page, Session, Usage},
    status::ProcessReport,
};

/// Maximum number of Events shown, unless the user wants all.
const EVENTS: usize = 5;
/// Beginning of the text about a wait for the budget. Numbers that change follow after a colon.
const BUDGET: &str = "waits for the call budget of bucket ";
/// Reasons that the adapter's budget or the vendor's rate limit causes.
const OF_BUDGET: [&str; 3] = ["BUDGET_EXHAUSTED", "VENDOR_THROTTLED", "VENDOR_UNAVAILABLE"];

/// Everything known about an object.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExplainReport {
    /// `Node` or `Service`.
    pub kind: String,
    /// `NAMESPACE/NAME` for a Service, the name for a Node.
    pub key: String,
    /// Time at which the status pages were read.
    pub at: Timestamp,
    /// The answers of all controllers, each from the replica that holds the object's shard if possible.
    pub explanations: Vec<ProcessReport<Explanation>>,
    /// Why the load balancer serves no traffic, although it is in sync.
    pub serves_nothing: Option<String>,
    /// The progress of the load balancer, if it is converging.
    pub task: Option<Task>,
    /// The part of the budget that delays the object.
    pub budget: Option<OfBudget>,
    /// The latest Events of the controllers about the object, oldest first.
    pub events: Vec<ObjectEvent>,
    /// Why no controller knows the object, with suggestions of similar names.
    pub unknown: Option<String>,
    /// What could not be read.
    pub missing: Vec<Missing>,
}

/// The part of the adapter's budget that delays an object.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OfBudget {
    /// Queued calls of the controller that manages the object.
    pub queues: Vec<Queue>,
    /// The buckets that the calls wait for, and buckets that are throttled or paused. The history of the buckets is left out.
    pub budgets: Vec<Budget>,
    /// Circuit breakers that are not closed.
    pub breakers: Vec<Breaker>,
}

/// Reads the pages of all replicas and of the adapter, and objects from the API server.
pub(crate) async fn read(
    common: &Common,
    args: &ExplainArgs,
    now: Timestamp,
) -> Result<ExplainReport, Usage> {
    let asked = args.asked(common.namespace.as_deref()).map_err(Usage)?;
    let controllers = asked.controllers();
    let components = [&[Component::CloudAdapter][..], controllers].concat();
    let mut session = Session::open(common, &components, now).await?;
    let home = session.cluster.as_ref().map(|cluster| cluster.home.as_str());
    let object = asked.object(home.unwrap_or("default"));
    let path = format!("/explain?key={}", object.key());
    let pages = session.pages::<Explanation>(controllers, &path).await;
    let adapters = session.pages::<AdapterStatus>(&[Component::CloudAdapter], "/status.json").await;
    let mut report = report(&object, now, pages, adapters);
    let failing = match report.is_known() {
        true => None,
        false => failing_watch(session.pages::<ControllerStatus>(controllers, "/status").await),
    };
    if let Some(cluster) = &session.cluster {
        match objects::events(cluster, &object).await {
            Ok(events) => {
                let shown = if common.output == Format::Wide { events.len() } else { EVENTS };
                let first = events.len().saturating_sub(shown);
                report.events = events.into_iter().skip(first).collect();
            }
            Err(why) => session.missing.push(why),
        }
        if !report.is_known() && report.unknown.is_none() {
            report.unknown = Some(objects::why_unknown(cluster, &object, failing).await);
        }
        if let (Object::Service { namespace, name }, true) = (&object, report.has_backends()) {
            match endpoints::any_ready(cluster, namespace, name).await {
                Ok(true) => (),
                Ok(false) => report.serves_nothing = Some(format!("no endpoint of {object} is ready")),
                Err(why) => session.missing.push(why),
            }
        }
    }
    // A list of names has no place for the cause.
    if common.output == Format::Name && !report.is_known() {
        session.missing.extend(report.unknown.clone().map(|why| Missing::new(object.to_string(), why)));
    }
    report.missing = session.lacks();
    Ok(report)
}

impl ExplainReport {
    fn is_known(&self) -> bool {
        self.explanations.iter().any(|it| it.page.known)
    }

    /// Whether the load balancer is in sync and forwards to nodes, so that it serves traffic if the Service has endpoints.
    fn has_backends(&self) -> bool {
        let in_sync = |it: &Explanation| it.state == State::Settled && !wants_none(it);
        self.serves_nothing.is_none() && self.explanations.iter().any(|it| in_sync(&it.page))
    }
}

/// Returns the first failing watch, because of which a controller may not know an object.
fn failing_watch(pages: Vec<Page<ControllerStatus>>) -> Option<String> {
    let mut failing = pages.into_iter().filter_map(|page| {
        let why = page.content.failing_watches.into_iter().next()?;
        Some(format!("{} {}: {why}", page.content.controller, page.process.name))
    });
    failing.next()
}

/// Whether the Service no longer needs a load balancer.
fn wants_none(page: &Explanation) -> bool {
    page.wanted.iter().any(|it| it == "no load balancer")
}

fn report(
    object: &Object,
    now: Timestamp,
    pages: Vec<Page<Explanation>>,
    adapters: Vec<Page<AdapterStatus>>,
) -> ExplainReport {
    let unknown = pages
        .is_empty()
        .then(|| "none of the controllers that may have this object could be read".to_owned());
    let mut explanations = by_who_knows(pages);
    let key = object.key();
    let leader = adapters.into_iter().map(|it| it.content).find(|it| it.leader);
    let service = object.kind() == "Service";
    let task = leader.iter().flat_map(|it| &it.tasks).find(|it| service && it.name == key).cloned();
    if let Some(task) = &task {
        explanations.iter_mut().for_each(|it| newer_words(&mut it.page, task));
    }
    let budget = leader.and_then(|leader| of_budget(&explanations, task.as_ref(), leader));
    let kind = object.kind().to_owned();
    let serves_nothing = explanations.iter().filter(|_| service).find_map(|it| serves_nothing(&it.page));
    ExplainReport {
        kind,
        key,
        at: now,
        explanations,
        serves_nothing,
        task,
        budget,
        unknown,
        ..ExplainReport::default()
    }
}

/// Returns why a load balancer that is in sync serves no traffic. Recognises the lines that `service-controller/src/reconcile/describe.rs`
/// writes.
fn serves_nothing(page: &Explanation) -> Option<String> {
    if page.state != State::Settled || wants_none(page) {
        return None;
    }
    if let Some(nodes) = page.wanted.iter().find_map(|it| it.strip_prefix("0 nodes")) {
        return Some(format!("no node can serve it{nodes}"));
    }
    if page.cloud.is_empty() {
        return Some("the cloud lists no load balancer of this Service".to_owned());
    }
    // Details of a load balancer are indented.
    let balancers = page.cloud.iter().filter(|it| !it.starts_with(' '));
    let mut backends = balancers.filter(|it| it.contains(" backend")).peekable();
    let none = backends.peek().is_some() && backends.all(|it| it.contains(", 0 backends"));
    none.then(|| "its load balancer has no backends".to_owned())
}

/// Replaces a controller's text about a wait for the budget by the adapter's text. The adapter knows the current length of its queue; a
/// controller knows only the length at its last request.
fn newer_words(page: &mut Explanation, task: &Task) {
    let waits = page.waits_for.as_deref().is_some_and(|it| it.starts_with(BUDGET));
    if waits && task.waits_for.starts_with(BUDGET) {
        page.waits_for = Some(task.waits_for.clone());
    }
}

/// Returns one answer for each controller: from the replica that holds the shard, otherwise from a replica that knows the object.
fn by_who_knows(pages: Vec<Page<Explanation>>) -> Vec<ProcessReport<Explanation>> {
    let mut best: Vec<Page<Explanation>> = Vec::new();
    for page in pages.into_iter().filter(|page| page.content.known) {
        match best.iter_mut().find(|it| it.process.component == page.process.component) {
            None => best.push(page),
            Some(before) if page.content.held && !before.content.held => *before = page,
            Some(_) => (),
        }
    }
    best.into_iter().map(|it| ProcessReport { process: it.process.name, page: it.content }).collect()
}

/// Returns the adapter's lines about the cause of the wait.
fn of_budget(
    explanations: &[ProcessReport<Explanation>],
    task: Option<&Task>,
    leader: AdapterStatus,
) -> Option<OfBudget> {
    let waiting: Vec<&Explanation> = explanations
        .iter()
        .map(|it| &it.page)
        .filter(|it| !matches!(it.state, State::Settled | State::NotOurs))
        .collect();
    let by_reason = |it: &&Explanation| it.reason.as_deref().is_some_and(|it| OF_BUDGET.contains(&it));
    let by_words = task.is_some_and(|task| task.waits_for.contains("budget"));
    if !by_words && !waiting.iter().any(by_reason) {
        return None;
    }
    let of_it = |queue: &Queue| waiting.iter().any(|it| it.controller == queue.controller);
    let queues: Vec<Queue> = leader.queues.into_iter().filter(of_it).collect();
    let concerned = |it: &Budget| {
        queues.iter().any(|queue| queue.bucket == it.bucket)
            || it.rate < it.ceiling
            || it.paused_until.is_some_and(|until| until > leader.at)
    };
    let budgets = leader.budgets.into_iter().filter(concerned);
    let budgets = budgets.map(|it| Budget { history: Vec::new(), ..it }).collect();
    let breakers = leader.breakers.into_iter().filter(|it| it.state != BreakerState::Closed).collect();
    Some(OfBudget { queues, budgets, breakers })
}
