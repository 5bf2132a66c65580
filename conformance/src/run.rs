//! Runs checks on all lanes at the same time. Checks that can share a lane also run concurrently on that lane. Each check has a time limit,
//! and its objects are deleted afterwards.

mod queue;
mod words;

use std::{
    any::Any,
    collections::BTreeMap,
    hash::{BuildHasher as _, Hasher as _, RandomState},
    panic::{AssertUnwindSafe, resume_unwind},
    sync::Arc,
    time::Duration,
};

use futures::{FutureExt as _, future};
use tokio::{
    sync::RwLock,
    task::{JoinError, JoinSet},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use self::queue::{Queue, Task};
use crate::{
    check::{Check, Finding, Need, Stop, Tier, Verdict},
    checks,
    clean::clean,
    context::{Context, Run},
    hooks::Hook,
    lane::{FIRST_ANSWER, Kind, Lane, LaneError, kind},
    params::{LaneParams, Params},
    report::{Entry, Outcome, Report, progress::Progress},
};

/// The time limits of checks assume that load balancers converge within this time.
const QUICK: Duration = Duration::from_secs(30);

/// Which checks to run, and how.
#[derive(Clone, Debug)]
pub struct Selection {
    /// Run only these tiers. Empty: all tiers.
    pub tiers: Vec<Tier>,
    /// Run only these IDs and families. Empty: all checks.
    pub include: Vec<String>,
    /// Skip these IDs and families.
    pub skip: Vec<String>,
    /// Seed of all random choices. `None`: random.
    pub seed: Option<u64>,
    /// Maximum number of checks that share a lane at the same time.
    pub parallel: usize,
    /// Number of times that each check runs.
    pub repeat: u32,
    /// Maximum duration of a check. `None`: the limit of each check.
    pub limit: Option<Duration>,
}

impl Default for Selection {
    fn default() -> Self {
        Self {
            tiers: Vec::new(),
            include: Vec::new(),
            skip: Vec::new(),
            seed: None,
            parallel: 8,
            repeat: 1,
            limit: None,
        }
    }
}

/// The reason why a run cannot begin.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages describe the variants")]
pub enum RunError {
    #[error("{flag}: unknown check or family '{word}'{hint} (see --list)")]
    Unknown { flag: &'static str, word: String, hint: String },
    #[error("--tier, --include and --skip select no check; run --list without them to see all checks")]
    NoCheck,
    #[error("no adapter to test: set --endpoint, or lanes in --params")]
    NoLane,
    #[error(transparent)]
    Lane(#[from] LaneError),
}

impl RunError {
    /// Whether the cause is a flag or parameter, and not the adapter.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Unknown { .. } | Self::NoCheck | Self::NoLane => true,
            Self::Lane(error) => error.is_usage(),
        }
    }
}

impl Selection {
    /// The selected checks, in the order of the registry.
    /// Fails if a word matches no check and no family.
    pub fn checks(&self) -> Result<Vec<Check>, RunError> {
        let all = checks::all();
        words::known(&all, "--include", &self.include)?;
        words::known(&all, "--skip", &self.skip)?;
        let names = |words: &[String], check: &Check| {
            words
                .iter()
                .any(|word| word.eq_ignore_ascii_case(check.id) || word.eq_ignore_ascii_case(check.family()))
        };
        let chosen = all.into_iter().filter(|check| {
            (self.tiers.is_empty() || self.tiers.contains(&check.tier))
                && (self.include.is_empty() || names(&self.include, check))
                && !names(&self.skip, check)
        });
        Ok(chosen.collect())
    }
}

/// Runs the selected checks. If `stop` is cancelled, deletes the objects of the checks and ends early. Returns an error if no check can
/// run; see [`RunError`].
pub async fn run(
    params: Params,
    selection: &Selection,
    progress: Arc<dyn Progress>,
    stop: CancellationToken,
) -> Result<Report, RunError> {
    let begun = Instant::now();
    let chosen = selection.checks()?;
    if chosen.is_empty() {
        return Err(RunError::NoCheck);
    }
    let params = Arc::new(params);
    let lanes = open(&params, &chosen).await?;
    let nonce = RandomState::new().build_hasher().finish();
    let seed = selection.seed.unwrap_or(nonce >> 32);
    let mut entries = Vec::new();
    let mut tasks = Vec::new();
    for check in chosen {
        match skipped(&check, &lanes, &params) {
            Some(why) => entries.push(skip(check, why)),
            None => tasks.extend((1..=selection.repeat).map(|repetition| Task { check, repetition })),
        }
    }
    progress.begun(tasks.len(), seed);
    entries.iter().for_each(|entry| progress.ended(entry));
    let queue = Arc::new(Queue::new(tasks));
    let shared = Arc::new(Shared {
        params,
        selection: selection.clone(),
        seed,
        nonce,
        progress,
        stop,
        queue,
        replicas: RwLock::default(),
    });
    let mut workers = JoinSet::new();
    for (at, lane) in lanes.iter().enumerate() {
        workers.spawn(work(Arc::clone(lane), Arc::clone(&shared), at > 0));
    }
    while let Some(done) = workers.join_next().await {
        entries.extend(joined(done).unwrap_or_default());
    }
    let mut left = Vec::new();
    for lane in &lanes {
        left.extend(release(lane).await);
    }
    sort(&mut entries);
    let adapter =
        lanes.first().map(|lane| format!("{} {}", lane.info.adapter_name, lane.info.adapter_version));
    let interrupted = shared.stop.is_cancelled();
    Ok(Report {
        seed,
        adapter: adapter.unwrap_or_default(),
        took: begun.elapsed(),
        entries,
        left,
        interrupted,
    })
}

struct Shared {
    params: Arc<Params>,
    selection: Selection,
    seed: u64,
    nonce: u64,
    progress: Arc<dyn Progress>,
    stop: CancellationToken,
    queue: Arc<Queue>,
    /// Write-locked by checks that may stop replicas, read-locked by checks that call replicas.
    replicas: RwLock<()>,
}

async fn open(params: &Params, chosen: &[Check]) -> Result<Vec<Arc<Lane>>, RunError> {
    let Params { lanes, secured, replicas, .. } = params;
    let plain = lanes.iter().map(|lane| (Kind::Plain, lane));
    let special = [(Kind::Secured, secured), (Kind::Replicas, replicas)];
    let special = special.into_iter().filter_map(|(kind, lane)| Some((kind, lane.as_ref()?)));
    let all: Vec<(Kind, &LaneParams)> = plain.chain(special).collect();
    if all.is_empty() {
        return Err(RunError::NoLane);
    }
    let visited = chosen.iter().any(|check| check.visits_replicas);
    let wanted =
        |of: Kind| chosen.iter().any(|check| kind(check.needs) == of) || (of == Kind::Replicas && visited);
    let opening = all.into_iter().enumerate().filter(|(_, (of, _))| wanted(*of)).map(|(at, (of, lane))| {
        let name = match of {
            _ if !lane.name.is_empty() => lane.name.clone(),
            Kind::Plain => format!("lane-{at}"),
            Kind::Secured => "secured".to_owned(),
            Kind::Replicas => "replicas".to_owned(),
        };
        Lane::open(of, LaneParams { name, ..lane.clone() }, params)
    });
    let opened = future::try_join_all(opening).await?;
    Ok(opened.into_iter().map(Arc::new).collect())
}

/// The reason why a check runs on none of the lanes.
fn skipped(check: &Check, lanes: &[Arc<Lane>], params: &Params) -> Option<String> {
    let lacks =
        lanes.iter().filter(|lane| lane.suits(check.needs)).map(|lane| lane.lacks(check.needs, params));
    let Some(lacks) = lacks.min_by_key(Vec::len) else {
        let needs = check.needs.iter().filter(|need| matches!(need, Need::Secured | Need::Replicas));
        return Some(needs.map(Need::lack).collect::<Vec<_>>().join(", "));
    };
    let words: Vec<String> = lacks.iter().map(Need::lack).collect();
    (!words.is_empty()).then(|| words.join(", "))
}

fn skip(check: Check, why: String) -> Entry {
    Entry {
        check,
        repetition: 1,
        lane: String::new(),
        outcome: Outcome::Skipped(why),
        took: Duration::ZERO,
        transcript: Vec::new(),
        vendor_calls: String::new(),
        unseen: Vec::new(),
        left: Vec::new(),
    }
}

/// Takes checks from the queue until none is left for this lane. Runs checks with exclusive use one by one, and other checks concurrently.
async fn work(lane: Arc<Lane>, shared: Arc<Shared>, alone_first: bool) -> Vec<Entry> {
    let mut entries = Vec::new();
    let may = |check: &Check| lane.suits(check.needs) && lane.lacks(check.needs, &shared.params).is_empty();
    for alone in [alone_first, !alone_first] {
        let width = if alone { 1 } else { shared.selection.parallel.max(1) };
        let mut running = JoinSet::new();
        loop {
            while running.len() < width
                && !shared.stop.is_cancelled()
                && let Some(task) = shared.queue.take(|check| check.exclusive == alone && may(check))
            {
                running.spawn(one(task, Arc::clone(&lane), Arc::clone(&shared)));
            }
            match running.join_next().await {
                Some(done) => entries.extend(joined(done)),
                None => break,
            }
        }
    }
    entries
}

/// Runs one check, and deletes the objects of the check even if the check panics.
async fn one(task: Task, lane: Arc<Lane>, shared: Arc<Shared>) -> Entry {
    let Task { check, repetition } = task;
    let Check { id, visits_replicas, .. } = check;
    let run = Run { check: id, visits_replicas, seed: shared.seed, nonce: shared.nonce, repetition };
    let cx = Context::new(Arc::clone(&shared.params), Arc::clone(&lane), run);
    let (_stops, _looks) = match lane.kind {
        Kind::Replicas => (Some(shared.replicas.write().await), None),
        Kind::Plain | Kind::Secured if check.visits_replicas => (None, Some(shared.replicas.read().await)),
        Kind::Plain | Kind::Secured => (None, None),
    };
    shared.progress.started(&check, &lane.name);
    let mark = lane.proxy.as_ref().map(crate::proxy::Proxy::mark);
    let begun = Instant::now();
    let usual = check.limit.mul_f64(limit_factor(shared.params.timings.converge));
    let limit = shared.selection.limit.map_or(usual, |limit| limit.min(usual));
    let verdict = tokio::select! {
        verdict = guarded(&cx, &check, limit) => verdict,
        () = shared.stop.cancelled() => Err(Stop::skipped("the run was ended early")),
    };
    let took = begun.elapsed();
    let calls = lane.proxy.as_ref().zip(mark).map(|(proxy, mark)| proxy.since(mark).to_string());
    let transcript = cx.transcript().lines();
    let left = caught(clean(&cx, check.exclusive)).await;
    let left =
        left.unwrap_or_else(|panic| vec![format!("objects of the check: cleaning up panicked: {panic}")]);
    let outcome = judged(verdict, &left);
    let (vendor_calls, unseen, lane) = (calls.unwrap_or_default(), cx.unseen(), lane.name.clone());
    let entry = Entry { check, repetition, lane, outcome, took, transcript, vendor_calls, unseen, left };
    shared.progress.ended(&entry);
    entry
}

/// The result of a check after the clean-up. Objects that are left are a failure, even if the check was skipped half way.
fn judged(verdict: Verdict, left: &[String]) -> Outcome {
    let skipped = match verdict {
        Err(Stop::Failed(finding)) => return Outcome::Failed(finding),
        Ok(()) if left.is_empty() => return Outcome::Passed,
        Err(Stop::Skipped(why)) if left.is_empty() => return Outcome::Skipped(why),
        Ok(()) => None,
        Err(Stop::Skipped(why)) => Some(format!("(otherwise skipped: {why})")),
    };
    let came: Vec<String> = left.iter().cloned().chain(skipped).collect();
    let wants = "no object is left after the clean-up".to_owned();
    Outcome::Failed(Finding { wants, came: came.join("\n") })
}

/// Returns the factor by which the time limits of checks grow if load balancers converge slowly.
fn limit_factor(converge: Duration) -> f64 {
    converge.div_duration_f64(QUICK).max(1.0)
}

/// Runs the check's own function within its time limit, if the adapter answers. A panic is a failure.
async fn guarded(cx: &Context, check: &Check, limit: Duration) -> Verdict {
    if let Err(error) = cx.lane().ask(FIRST_ANSWER).await {
        let wants =
            format!("the adapter answers GetInfo within {} s before the check", FIRST_ANSWER.as_secs());
        return Err(Stop::failed(wants, error));
    }
    match tokio::time::timeout(limit, caught((check.run)(cx))).await {
        Ok(Ok(verdict)) => verdict,
        Ok(Err(panic)) => Err(Stop::failed("the check does not panic", format!("it panicked: {panic}"))),
        Err(_elapsed) => {
            let wants = format!("the check ends within {} s", limit.as_secs_f64());
            Err(Stop::failed(
                wants,
                "the check was still running; the last line above shows what it waited for",
            ))
        }
    }
}

/// Returns the output of a future, or the message of its panic.
async fn caught<T>(work: impl Future<Output = T>) -> Result<T, String> {
    AssertUnwindSafe(work).catch_unwind().await.map_err(|panic| text(&*panic))
}

fn text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned())).unwrap_or_default()
}

/// Returns the result of a task. Resumes a panic that was not caught, because otherwise the report would lack a check.
fn joined<T>(done: Result<T, JoinError>) -> Option<T> {
    match done.map_err(JoinError::try_into_panic) {
        Ok(answer) => Some(answer),
        Err(Ok(panic)) => resume_unwind(panic),
        // The run never cancels a task.
        Err(Err(_cancelled)) => None,
    }
}

/// Deletes the objects that the checks of a lane shared. Returns the objects that are left.
async fn release(lane: &Lane) -> Option<String> {
    let machines = std::mem::take(&mut *lane.machines.lock().await);
    if machines.is_empty() {
        return None;
    }
    let ids: Vec<&str> = machines.iter().map(|machine| machine.provider_id.as_str()).collect();
    let ids = ids.join(" ");
    let removed = lane.hooks.run(Hook::DeleteInstances, &[("PROVIDER_IDS", &ids)]).await;
    removed.err().map(|error| format!("instances {ids}: {error}"))
}

fn sort(entries: &mut [Entry]) {
    let order: BTreeMap<&str, usize> =
        checks::all().iter().enumerate().map(|(at, check)| (check.id, at)).collect();
    entries.sort_by_key(|entry| (order.get(entry.check.id).copied(), entry.repetition));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leftover_objects_fail_a_check() {
        let left = ["load balancer lb-1".to_owned()];
        for (verdict, reported) in [
            (Ok(()), "load balancer lb-1"),
            (
                Err(Stop::skipped("samples.machines is 10")),
                "load balancer lb-1\n(otherwise skipped: samples.machines is 10)",
            ),
            (Err(Stop::failed("it works", "it does not")), "it does not"),
        ] {
            let outcome = judged(verdict, &left);
            assert!(matches!(&outcome, Outcome::Failed(finding) if finding.came == reported), "{outcome:?}");
        }
        assert_eq!(judged(Ok(()), &[]), Outcome::Passed);
        assert_eq!(judged(Err(Stop::skipped("no")), &[]), Outcome::Skipped("no".to_owned()));
    }

    #[tokio::test]
    async fn panic_message_is_reported() {
        let panics = async {
            tokio::task::yield_now().await;
            panic!("cannot clean up {}", 7)
        };
        assert_eq!(caught::<()>(panics).await, Err("cannot clean up 7".to_owned()));
        assert_eq!(caught(async { 7 }).await, Ok(7));
    }

    #[tokio::test]
    #[should_panic(expected = "the panic was not caught")]
    async fn uncaught_panic_ends_the_run() {
        let mut tasks: JoinSet<()> = JoinSet::new();
        tasks.spawn(async { panic!("the panic was not caught") });
        joined(tasks.join_next().await.expect("one failed task"));
    }
}
