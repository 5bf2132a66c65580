//! The sections of the page, in this order: the state, the queues, then details.

use std::fmt::{self, Display};

use jiff::Timestamp;
use telemetry::report::{
    AdapterStatus, Breaker, BreakerState, BucketSample, Budget, ClusterObjects, Snapshot, VendorWrite,
    grouped,
};

use super::{
    sparkline::{Used, Waited},
    table::{Cell, Table, long, markup, name, number, state, text, words},
    text::{Count, Escaped, Number, Seconds},
};

/// The length of a step of the charts, in seconds.
const STEP: f64 = 5.0;
/// The multiple of its target age above which a listing is marked as old.
const OLD: f64 = 3.0;

const BUDGETS: &str = "Rate limits of calls to the cloud. The charts show the last 10 minutes; the thin line is the granted rate.";

pub(super) fn sections(status: &AdapterStatus) -> String {
    let parts: [String; 8] = [
        Head(status).to_string(),
        budgets(status).to_string(),
        tasks(status).to_string(),
        queues(status).to_string(),
        breakers(status).to_string(),
        snapshots(status).to_string(),
        clusters(status).to_string(),
        writes(status).to_string(),
    ];
    let [head, rest @ ..] = parts;
    format!("{head}<main>\n{}</main>\n", rest.concat())
}

struct Head<'a>(&'a AdapterStatus);

impl Display for Head<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AdapterStatus { at, adapter, version, cluster_id, instance_id, config_revision, .. } = self.0;
        writeln!(f, "<header>\n<h1>{} <small>{}</small></h1>", Escaped(adapter), Escaped(version))?;
        self.part(f)?;
        if let Some(trouble) = &self.0.trouble {
            writeln!(
                f,
                "<p class=\"notice bad\"><strong>The cloud cannot be used:</strong> {}</p>",
                Escaped(trouble)
            )?;
        }
        if let Some(why) = &self.0.config_refused {
            writeln!(
                f,
                "<p class=\"notice bad\"><strong>The new configuration is refused, and a restart would fail:</strong> {}</p>",
                Escaped(why)
            )?;
        }
        f.write_str("<dl>\n")?;
        let scope = self.0.scope.as_deref().unwrap_or("not known yet");
        let cluster = if cluster_id.is_empty() { "no controller has called yet" } else { cluster_id };
        for (name, value) in [
            ("Cloud", scope),
            ("Cluster", cluster),
            ("Process", instance_id),
            ("Configuration", config_revision),
        ] {
            if !value.is_empty() {
                writeln!(f, "<div><dt>{name}</dt><dd>{}</dd></div>", Escaped(value))?;
            }
        }
        let clock = at.strftime("%Y-%m-%d %H:%M:%S UTC");
        writeln!(
            f,
            "<div><dt>As of</dt><dd><time datetime=\"{at}\">{clock}</time></dd></div>\n</dl>\n</header>"
        )
    }
}

impl Head<'_> {
    fn part(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AdapterStatus { leader, leader_address, trouble, .. } = self.0;
        if *leader {
            let (class, word) = if trouble.is_none() { ("good", "Serving") } else { ("bad", "In trouble") };
            return writeln!(
                f,
                "<p><span class=\"state {class}\">{word}</span>: this replica leads and calls the cloud.</p>"
            );
        }
        let leads = match leader_address {
            Some(address) => format!("The leader is at <strong>{}</strong>.", Escaped(address)),
            None => "The leader is unknown.".to_owned(),
        };
        writeln!(
            f,
            "<p><span class=\"state none\">Standing by</span>: another replica leads and calls the \
             cloud; its page shows the queues and load balancers. {leads}</p>"
        )
    }
}

fn budgets(status: &AdapterStatus) -> Table<7> {
    let row = |budget: &Budget| {
        let Budget { bucket, rate, ceiling, tokens, queued, calls, throttled, history, .. } = budget;
        let newest = history.first();
        let used = newest.map_or(0.0, |step: &BucketSample| step.calls as f64 / STEP);
        let granted = if (rate - ceiling).abs() < f64::EPSILON {
            format!("{} a second", Number(*rate))
        } else {
            format!("{} of {} a second", Number(*rate), Number(*ceiling))
        };
        [
            text(bucket),
            budget_state(budget, status.at),
            text(granted),
            chart(Number(used), Used(history)),
            chart(Count(*queued), Waited(history)),
            text(Number(*tokens)),
            markup(match throttled {
                0 => Count(*calls).to_string(),
                _ => {
                    format!("{}, <span class=\"warn\">{} throttled</span>", Count(*calls), Count(*throttled))
                }
            }),
        ]
    };
    Table::new(
        "budgets",
        "Budgets",
        "The cloud was not called yet.",
        [
            words("Bucket"),
            words("State"),
            words("Granted"),
            number("Calls a second"),
            number("Waiting"),
            number("Tokens"),
            number("Calls so far"),
        ],
        trouble_first(&status.budgets, |it| it.paused_until.is_some() || it.rate < it.ceiling).map(row),
    )
    .note(BUDGETS)
}

fn chart(now: impl Display, sparkline: impl Display) -> Cell {
    markup(format!("<span class=\"chart\">{sparkline}<b>{now}</b></span>"))
}

fn budget_state(budget: &Budget, at: Timestamp) -> Cell {
    if let Some(until) = budget.paused_until {
        return state("bad", "paused", &format!("by the cloud, for {}", Seconds(between(at, until))));
    }
    if budget.rate < budget.ceiling {
        return state("warn", "slowed", "after throttling");
    }
    if budget.queued > 0 && budget.tokens < 1.0 {
        return state("warn", "spent", "");
    }
    state("good", "free", "")
}

fn tasks(status: &AdapterStatus) -> Table<4> {
    let rows = status.tasks.iter().map(|task| {
        let name = if task.name.is_empty() { &task.key } else { &task.name };
        let progress = match task.total {
            0 => "not known yet".to_owned(),
            total => format!("{} of {total}", task.done),
        };
        [text(name), text(&task.waits_for), text(Seconds(task.since_seconds)), text(progress)]
    });
    Table::new(
        "tasks",
        "Load balancers in progress",
        "No load balancer is being changed.",
        [name("Service"), long("Waits for"), number("For"), number("Changes made")],
        rows,
    )
    .note(under_way(status))
}

/// Renders the load balancers in progress, counted by what they wait for. Only the oldest load balancers are listed.
fn under_way(status: &AdapterStatus) -> String {
    let causes: Vec<&str> = status.tasks.iter().map(|it| it.waits_for.as_str()).collect();
    let listed = u64::try_from(causes.len()).unwrap_or(u64::MAX);
    let of = match status.more_tasks {
        0 => String::new(),
        _ => format!("of the oldest {}, which are shown, ", Count(listed)),
    };
    let all = Count(listed.saturating_add(status.more_tasks));
    format!("{all} under way: {of}{}", Escaped(&grouped(&causes)))
}

fn queues(status: &AdapterStatus) -> Table<5> {
    let row = |queue: &telemetry::report::Queue| {
        [
            text(&queue.bucket),
            text(queue.class.to_lowercase()),
            text(&queue.controller),
            text(Count(queue.queued)),
            text(Seconds(queue.oldest_seconds)),
        ]
    };
    Table::new(
        "queues",
        "Queued calls",
        "No call is queued.",
        [words("Bucket"), words("Class"), words("Controller"), number("Waiting"), number("Oldest for")],
        status.queues.iter().map(row),
    )
}

fn breakers(status: &AdapterStatus) -> Table<2> {
    let row = |Breaker { family, state: now, retry_at }: &Breaker| {
        let again = retry_at.map(|at| format!("retried in {}", Seconds(between(status.at, at))));
        let cell = match now {
            BreakerState::Closed => state("good", "closed", "calls pass"),
            BreakerState::HalfOpen => state("warn", "half open", "one test call at a time"),
            BreakerState::Open => state("bad", "open", &again.unwrap_or_default()),
        };
        [text(family), cell]
    };
    Table::new(
        "breakers",
        "Breakers",
        "The cloud was not called yet.",
        [words("Family"), words("State")],
        trouble_first(&status.breakers, |it| it.state != BreakerState::Closed).map(row),
    )
}

fn snapshots(status: &AdapterStatus) -> Table<5> {
    let row = |snapshot: &Snapshot| {
        let Snapshot { collection, age_seconds, target_age_seconds, items, revision, error } = snapshot;
        let cell = match (age_seconds, error) {
            (_, Some(error)) => state("bad", "failed", error),
            (None, None) => state("none", "not listed yet", ""),
            (Some(age), None) if *age > OLD * target_age_seconds => state("warn", "old", ""),
            (Some(_), None) => state("good", "fresh", ""),
        };
        let target = Seconds(*target_age_seconds);
        let age = match age_seconds {
            Some(age) => format!("{} of {target}", Seconds(age.floor())),
            None => "-".to_owned(),
        };
        [text(collection), cell, text(age), text(Count(*items)), text(Count(*revision))]
    };
    Table::new(
        "snapshots",
        "Listings",
        "There are none.",
        [words("Collection"), long("State"), number("Age"), number("Items"), number("Revision")],
        trouble_first(&status.snapshots, |it| it.error.is_some()).map(row),
    )
    .note("Cached listings. While controllers watch, each is refreshed at its target age.")
}

fn clusters(status: &AdapterStatus) -> Table<4> {
    let row = |cluster: &ClusterObjects| {
        let ClusterObjects { cluster_id, own, load_balancers, routes } = cluster;
        let (id, whose) = match (own, cluster_id.as_str()) {
            (true, id) => (id, "this cluster"),
            (false, "") => ("-", "untagged"),
            (false, id) => (id, "another cluster"),
        };
        [text(id), text(whose), text(Count(*load_balancers)), text(Count(*routes))]
    };
    Table::new(
        "clusters",
        "Clusters",
        "No load balancer and no route is known.",
        [name("Cluster"), words("Whose"), number("Load balancers"), number("Routes")],
        status.clusters.iter().map(row),
    )
    .note("Owners of the listed load balancers and routes, according to their tags.")
}

fn writes(status: &AdapterStatus) -> Table<5> {
    let row = |write: &VendorWrite| {
        let VendorWrite { at, operation, object, controller, outcome } = write;
        let outcome = if outcome == "ok" { state("good", "ok", "") } else { state("bad", "failed", outcome) };
        let ago = format!(
            "<time datetime=\"{at}\">{} <small>{} ago</small></time>",
            at.strftime("%H:%M:%S"),
            Seconds(between(*at, status.at).floor())
        );
        [markup(ago), text(operation), text(object.as_deref().unwrap_or("-")), text(controller), outcome]
    };
    Table::new(
        "writes",
        "Recent changes in the cloud",
        "This process has changed nothing.",
        [words("When"), words("Operation"), name("About"), words("Requested by"), long("Outcome")],
        status.writes.iter().map(row),
    )
    .note(failed(status))
}

fn failed(status: &AdapterStatus) -> String {
    let failed = status.writes.iter().filter(|it| it.outcome != "ok");
    let failed: Vec<&str> = failed.map(|it| it.operation.as_str()).collect();
    if failed.is_empty() {
        return String::new();
    }
    format!("{} of {} failed: {}", failed.len(), status.writes.len(), Escaped(&grouped(&failed)))
}

fn trouble_first<T>(all: &[T], is_trouble: impl Fn(&T) -> bool + Copy) -> impl Iterator<Item = &T> {
    all.iter().filter(move |it| is_trouble(it)).chain(all.iter().filter(move |it| !is_trouble(it)))
}

/// Returns the number of seconds from one time to another. Returns 0 if `to` is earlier.
fn between(from: Timestamp, to: Timestamp) -> f64 {
    to.duration_since(from).as_secs_f64().max(0.0)
}
