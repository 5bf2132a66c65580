//! Liveness, readiness and metrics over plain HTTP: `/livez` (`/healthz`), `/readyz`, `/metrics`. With `?verbose`, `/livez` and `/readyz`
//! list every check, as in Kubernetes' own programs.
//!
//! A process is ready if its mirrors are synced and connected, or if the process is a standby. A process is alive if its work makes
//! progress. An unreachable peer makes a process unready, but does not fail liveness, because a restart would not make the peer reachable.

use std::{
    fmt::{self, Write as _},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use axum::{
    Router,
    extract::{RawQuery, State},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};

use crate::{
    metrics::{self, Registry},
    mirror::Mirror,
    queue::{Key, Queue},
};

/// A worker that has processed one key for this time counts as stuck. A queue whose keys no worker has taken for this time counts as stuck,
/// too. Every call that a worker makes has a much shorter limit.
const STUCK: Duration = Duration::from_mins(5);

type Judge = Box<dyn Fn() -> Result<(), String> + Send + Sync>;

/// The conditions for readiness and liveness. Clones share the state.
#[derive(Clone, Default)]
pub struct Health {
    checks: Arc<Mutex<Checks>>,
}

#[derive(Default)]
struct Checks {
    ready: Vec<Check>,
    alive: Vec<Check>,
    /// The only readiness check while another process works.
    standby: Option<Check>,
}

struct Check {
    name: &'static str,
    judge: Judge,
}

impl fmt::Debug for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Health").finish_non_exhaustive()
    }
}

impl Health {
    /// Adds a readiness check; its error says what is missing.
    pub fn ready_if(
        &self,
        name: &'static str,
        judge: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) {
        self.checks().ready.push(Check { name, judge: Box::new(judge) });
    }

    /// Adds a liveness check; its error says what is stuck.
    pub fn alive_if(
        &self,
        name: &'static str,
        judge: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) {
        self.checks().alive.push(Check { name, judge: Box::new(judge) });
    }

    /// Adds a readiness check that this mirror is synced and connected.
    pub fn needs<K, T>(&self, mirror: &Mirror<K, T>)
    where
        K: Ord + Clone + Send + Sync + 'static,
        T: Send + Sync + 'static,
    {
        let mirror = mirror.clone();
        self.ready_if(mirror.what(), move || mirror.readiness());
    }

    /// Adds a liveness check that no worker of this queue is stuck, and that workers take its keys.
    pub fn watches<K: Key>(&self, queue: &Queue<K>) {
        let queue = queue.clone();
        self.alive_if(queue.name(), move || match (queue.longest_running(), queue.stalled()) {
            (Some(time), _) if time > STUCK => {
                Err(format!("a worker has worked on one key for {} s", time.as_secs()))
            }
            (_, Some(time)) if time > STUCK => {
                Err(format!("keys are due, and no worker has taken one for {} s", time.as_secs()))
            }
            (_, _) => Ok(()),
        });
    }

    /// Declares that another process works. Until [`Health::works`] is called, this is the only readiness check.
    pub(crate) fn stands_by(&self, judge: impl Fn() -> Result<(), String> + Send + Sync + 'static) {
        self.checks().standby = Some(Check { name: "leaderElection", judge: Box::new(judge) });
    }

    /// Declares that this process works: all readiness checks apply.
    pub(crate) fn works(&self) {
        self.checks().standby = None;
    }

    /// Runs all readiness checks.
    pub fn readiness(&self) -> Result<(), String> {
        missing(&self.ready())
    }

    /// Runs all liveness checks.
    pub fn liveness(&self) -> Result<(), String> {
        missing(&self.alive())
    }

    fn ready(&self) -> Vec<Verdict> {
        let checks = self.checks();
        match &checks.standby {
            Some(standby) => judge(std::slice::from_ref(standby)),
            None => judge(&checks.ready),
        }
    }

    fn alive(&self) -> Vec<Verdict> {
        judge(&self.checks().alive)
    }

    fn checks(&self) -> MutexGuard<'_, Checks> {
        self.checks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Verdict {
    name: &'static str,
    result: Result<(), String>,
}

fn judge(checks: &[Check]) -> Vec<Verdict> {
    checks.iter().map(|check| Verdict { name: check.name, result: (check.judge)() }).collect()
}

fn missing(verdicts: &[Verdict]) -> Result<(), String> {
    let line = |verdict: &Verdict| Some(named(verdict.name, verdict.result.as_ref().err()?));
    let lines: Vec<String> = verdicts.iter().filter_map(line).collect();
    if lines.is_empty() { Ok(()) } else { Err(lines.join("\n")) }
}

/// Prefixes the error with the name of the check, unless the error already begins with this name, as the error of a mirror does.
fn named(name: &str, error: &str) -> String {
    if error.starts_with(name) { error.to_owned() } else { format!("{name}: {error}") }
}

struct Exposed {
    health: Health,
    registry: Registry,
}

pub(crate) fn routes(health: Health, registry: Registry) -> Router {
    Router::new()
        .route("/healthz", get(alive))
        .route("/livez", get(alive))
        .route("/readyz", get(ready))
        .route("/metrics", get(async |State(it): State<Arc<Exposed>>| exposition(&it.registry)))
        .with_state(Arc::new(Exposed { health, registry }))
}

async fn alive(State(it): State<Arc<Exposed>>, query: RawQuery) -> Response {
    answer(&it.health.alive(), query)
}

async fn ready(State(it): State<Arc<Exposed>>, query: RawQuery) -> Response {
    answer(&it.health.ready(), query)
}

fn answer(verdicts: &[Verdict], RawQuery(query): RawQuery) -> Response {
    let checked = missing(verdicts);
    let status = if checked.is_ok() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let verbose = query.unwrap_or_default().split('&').any(|word| matches!(word, "verbose" | "verbose=true"));
    let text = match checked {
        _ if verbose => table(verdicts),
        Ok(()) => "ok\n".to_owned(),
        Err(missing) => format!("{missing}\n"),
    };
    (status, text).into_response()
}

/// Returns one line per check, in the format of Kubernetes' own programs.
fn table(verdicts: &[Verdict]) -> String {
    let mut text = String::new();
    for Verdict { name, result } in verdicts {
        let written = match result {
            Ok(()) => writeln!(text, "[+]{name} ok"),
            Err(error) => writeln!(text, "[-]{name} failed: {error}"),
        };
        // Writing to a string cannot fail.
        debug_assert!(written.is_ok(), "{name}");
    }
    let all = if verdicts.iter().all(|verdict| verdict.result.is_ok()) { "passed" } else { "failed" };
    text + "check " + all + "\n"
}

fn exposition(registry: &Registry) -> Response {
    match metrics::render(registry) {
        Ok(text) => ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use axum::body::{Body, to_bytes};
    use tokio_util::sync::CancellationToken;
    use tower::ServiceExt as _;

    use super::*;
    use crate::{Clock, queue::Backoff};

    async fn page(health: &Health, path: &str) -> (u16, String) {
        let request = http::Request::get(path).body(Body::empty()).expect("a good request");
        let answer = routes(health.clone(), Registry::default()).oneshot(request).await.expect("infallible");
        let status = answer.status().as_u16();
        let body = to_bytes(answer.into_body(), usize::MAX).await.expect("a body");
        (status, String::from_utf8_lossy(&body).into_owned())
    }

    // Behaviour: P5, W21
    #[tokio::test]
    async fn the_page_says_what_is_missing() {
        let health = Health::default();
        let nodes: Mirror<String, u32> = Mirror::new("nodes", Clock::system());
        health.needs(&nodes);
        health.ready_if("adapter", || Err("not reached yet".to_owned()));
        let (status, body) = page(&health, "/readyz").await;
        assert_eq!(status, 503);
        assert_eq!(body, "nodes: not listed yet, not reached yet\nadapter: not reached yet\n");
        for path in ["/healthz", "/livez"] {
            assert_eq!(page(&health, path).await, (200, "ok\n".to_owned()), "{path}");
        }
    }

    #[tokio::test]
    async fn verbose_pages_list_each_check() {
        let health = Health::default();
        health.ready_if("nodes", || Ok(()));
        health.ready_if("adapter", || Err("not reached yet".to_owned()));
        let (status, body) = page(&health, "/readyz?verbose").await;
        assert_eq!(status, 503);
        assert_eq!(body, "[+]nodes ok\n[-]adapter failed: not reached yet\ncheck failed\n");
        assert_eq!(page(&health, "/livez?verbose").await, (200, "check passed\n".to_owned()));
    }

    #[tokio::test]
    async fn a_standby_is_ready_without_mirrors() {
        let health = Health::default();
        health.ready_if("nodes", || Err("not listed yet".to_owned()));
        health.stands_by(|| Ok(()));
        assert_eq!(health.readiness(), Ok(()));
        let (_, body) = page(&health, "/readyz?verbose").await;
        assert_eq!(body, "[+]leaderElection ok\ncheck passed\n");
        health.works();
        assert!(health.readiness().is_err());
    }

    /// Starts a controller with this number of workers. A worker takes as many seconds for a key as the key says.
    fn working(health: &Health, workers: usize) -> (Queue<u32>, tokio::task::JoinSet<()>, CancellationToken) {
        let second = Duration::from_secs(1);
        let queue = Queue::new("Nodes", Backoff { first: second, longest: second });
        health.watches(&queue);
        let (stop, mut tasks, runs) = (CancellationToken::new(), tokio::task::JoinSet::new(), queue.clone());
        let token = stop.clone();
        tasks.spawn(async move {
            let work = |key: u32, _| async move {
                tokio::time::sleep(Duration::from_secs(key.into())).await;
                crate::Again::Done
            };
            runs.run(workers, token, work).await;
        });
        (queue, tasks, stop)
    }

    // Behaviour: P6, W21
    #[tokio::test(start_paused = true)]
    async fn a_stuck_worker_fails_liveness() {
        let health = Health::default();
        let (queue, _tasks, _stop) = working(&health, 2);
        queue.add(1000);
        tokio::time::sleep(STUCK).await;
        assert_eq!(health.liveness(), Ok(()), "within the limit for one key");
        queue.add(1);
        tokio::time::sleep(Duration::from_secs(2)).await;
        let error = health.liveness().expect_err("one worker works, the other is stuck");
        assert_eq!(error, "Nodes: a worker has worked on one key for 302 s");
        tokio::time::sleep(Duration::from_secs(700)).await;
        assert_eq!(health.liveness(), Ok(()), "the worker has finished");
    }

    // Behaviour: P6
    #[tokio::test(start_paused = true)]
    async fn a_queue_without_working_workers_fails_liveness() {
        let health = Health::default();
        // The worker hangs and takes no key.
        let (queue, _tasks, _stop) = working(&health, 0);
        tokio::time::sleep(2 * STUCK).await;
        assert_eq!(health.liveness(), Ok(()), "no key is queued");
        queue.after(1, STUCK);
        tokio::time::sleep(2 * STUCK).await;
        assert_eq!(health.liveness(), Ok(()), "the key is not due yet");
        tokio::time::sleep(Duration::from_secs(2)).await;
        let error = health.liveness().expect_err("no worker takes the key");
        assert_eq!(error, "Nodes: keys are due, and no worker has taken one for 302 s");
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_queue_that_proceeds_is_alive() {
        let health = Health::default();
        let (queue, _tasks, _stop) = working(&health, 1);
        for seconds in 200..230 {
            queue.add(seconds);
        }
        for _ in 0..100 {
            tokio::time::sleep(Duration::from_secs(60)).await;
            assert_eq!(health.liveness(), Ok(()));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_queue_that_has_not_begun_is_alive() {
        let health = Health::default();
        let second = Duration::from_secs(1);
        let queue = Queue::new("service", Backoff { first: second, longest: second });
        health.watches(&queue);
        queue.add(1_u32);
        tokio::time::sleep(100 * STUCK).await;
        assert_eq!(health.liveness(), Ok(()), "the mirrors are missing, which only readiness reports");
    }

    #[tokio::test]
    async fn metrics_are_open_metrics() {
        let (status, body) = page(&Health::default(), "/metrics").await;
        assert_eq!((status, body.as_str()), (200, "# EOF\n"));
    }
}
