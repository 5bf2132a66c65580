//! Makes one call to the replica of the adapter that serves, and repeats the call on another replica if that is safe and useful.

mod method;
mod outcome;
mod timeout;

use std::{collections::BTreeSet, time::Duration};

use bytes::Bytes;
use http::{Request, request::Parts};
use http_body_util::{BodyExt as _, Full};
use tokio::time::{Instant, sleep_until, timeout_at};
use tonic::{Status, TimeoutExpired, body::Body};
use tracing::debug;

use self::{
    method::Method,
    outcome::{Outcome, Verdict, is_starting, judge},
};
use crate::{
    connector::{Address, Line},
    failure::Replaced,
    replicas::{Pick, Rank, Table, Tried},
};

/// How long a call waits for a replica that serves. A failover takes at most 12 s.
pub const REPLICA_TIMEOUT: Duration = Duration::from_secs(15);
/// How long a call waits before it is sent to replicas that report that they do not serve, because their refusals may name the cause. The
/// time is longer than a leader's first check of its cloud.
const ASK_CAUSE_AFTER: Duration = Duration::from_secs(5);
/// Pause before the same replica is called again after it reported that it does not serve. Each further pause is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Sends a request to the first replica that serves, and returns its answer.
pub(crate) async fn once(request: Request<Body>, table: &Table, max_wait: Duration) -> Outcome {
    let mut search = Search::new(table, max_wait, timeout::read(request.headers()));
    search.asks_cause = false;
    match search.next().await {
        Some(pick) => pick.line.send(request).await.map_err(Into::into),
        None => search.end(),
    }
}

/// Sends a request, repeats it on other replicas if necessary, and returns the final answer.
pub(crate) async fn call(request: Request<Body>, table: &Table, max_wait: Duration) -> Outcome {
    let Some(method) = method::of(request.uri().path()) else { return once(request, table, max_wait).await };
    let (parts, body) = request.into_parts();
    let mut search = Search::new(table, max_wait, timeout::read(&parts.headers));
    let body = body.collect().await?.to_bytes();
    while let Some(pick) = search.next().await {
        let Some(request) = search.request(&parts, &body) else { break };
        let answer = tokio::select! {
            biased;
            answer = attempt(pick.line.clone(), request, method, search.deadline) => answer,
            () = replaced(&pick, table, &search.tried) => Err(Replaced.into()),
        };
        match judge(&answer) {
            Verdict::Final => return answer,
            // A replica that starts is the leader, so no other replica will serve soon.
            Verdict::Elsewhere if pick.rank == Rank::NotServing && is_starting(&answer) => return answer,
            verdict @ (Verdict::Elsewhere | Verdict::Broken) => search.failed(&pick, verdict, answer),
        }
    }
    search.end()
}

/// Returns the answer of one replica. The answer to a unary call is read completely. If the connection breaks while the answer is read,
/// there is no answer.
async fn attempt(line: Line, request: Request<Body>, method: Method, deadline: Option<Instant>) -> Outcome {
    let exchange = async {
        let answer = line.send(request).await?;
        match method {
            Method::Stream => Ok(answer),
            Method::Unary => outcome::whole(answer).await,
        }
    };
    match deadline {
        // The deadline limits only the start of a stream. A started stream has no deadline.
        Some(deadline) => match timeout_at(deadline, exchange).await {
            Ok(answer) => answer,
            Err(_elapsed) => Err(Box::new(TimeoutExpired(()))),
        },
        None => exchange.await,
    }
}

/// Waits until another replica serves although the called replica has not reported that it stopped serving. In that case the called replica
/// has failed without a message, and the connection to it hangs.
async fn replaced(pick: &Pick, table: &Table, tried: &Tried) {
    let mut state = table.watch();
    if state.wait_for(|state| state.has_replaced(pick, tried)).await.is_err() {
        // The sender lives at least as long as this borrow.
        std::future::pending::<()>().await;
    }
}

/// The search for a replica, during one call.
struct Search<'a> {
    table: &'a Table,
    max_wait: Duration,
    deadline: Option<Instant>,
    /// When the search began to wait for a replica. `None`: it has not had to wait yet.
    waits_since: Option<Instant>,
    pause: Duration,
    tried: Tried,
    /// Whether replicas that do not serve are asked for the cause.
    asks_cause: bool,
    /// The replicas that do not serve and that were asked for the cause. Each is asked once for each call.
    asked: BTreeSet<Address>,
    /// Whether a connection broke during the call.
    broken: bool,
    /// The answer to return if no replica gives a better answer: the first failure after which the call may have been carried out. If every
    /// failure proves that the call was not carried out, this is the last failure.
    answer: Option<Outcome>,
}

impl<'a> Search<'a> {
    fn new(table: &'a Table, max_wait: Duration, limit: Option<Duration>) -> Self {
        let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
        Self {
            table,
            max_wait,
            deadline,
            waits_since: None,
            pause: FIRST_PAUSE,
            tried: Tried::new(),
            asks_cause: true,
            asked: BTreeSet::new(),
            broken: false,
            answer: None,
        }
    }

    /// Waits for a replica that can be called. Returns `None` if the time is up.
    async fn next(&mut self) -> Option<Pick> {
        let mut state = self.table.watch();
        loop {
            if let Some(pick) = state.borrow_and_update().pick(&self.tried) {
                return Some(pick);
            }
            let now = Instant::now();
            let since = *self.waits_since.get_or_insert(now);
            let latest = since + self.max_wait;
            let give_up = self.deadline.map_or(latest, |deadline| deadline.min(latest));
            if now >= give_up {
                return None;
            }
            let ask = since + ASK_CAUSE_AFTER;
            if self.asks_cause
                && now >= ask
                && let Some(pick) = state.borrow().pick_not_serving(&self.asked)
            {
                self.asked.insert(pick.address.clone());
                return Some(pick);
            }
            let until = if self.tried.is_empty() { give_up } else { give_up.min(now + self.pause) };
            tokio::select! {
                // The sender lives at least as long as this borrow.
                _changed = state.changed() => (),
                () = sleep_until(ask), if now < ask && ask < until => (),
                () = sleep_until(until) => {
                    self.tried.clear();
                    self.pause = self.pause.saturating_mul(2).min(LONGEST_PAUSE);
                }
            }
        }
    }

    /// Copies the request, with the remaining time as its timeout. Returns `None` if no time is left.
    fn request(&self, parts: &Parts, body: &Bytes) -> Option<Request<Body>> {
        let mut request = Request::from_parts(parts.clone(), Body::new(Full::new(body.clone())));
        if let Some(deadline) = self.deadline {
            let left = deadline.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())?;
            timeout::write(request.headers_mut(), left);
        }
        Some(request)
    }

    /// Records a failed attempt. After the first broken connection, the same replica may be called again over a new connection.
    fn failed(&mut self, pick: &Pick, verdict: Verdict, answer: Outcome) {
        debug!(replica = %pick.address, ?verdict, "Repeating the call to the cloud adapter");
        let for_cause = pick.rank == Rank::NotServing;
        let once_more = verdict == Verdict::Broken && !self.broken;
        if !once_more && !for_cause {
            self.tried.insert(pick.address.clone(), pick.rank);
        }
        // The refusal of a standby says less than the states of all replicas.
        let says_less = for_cause && verdict == Verdict::Elsewhere;
        if !self.broken && !says_less {
            self.answer = Some(answer);
        }
        self.broken |= verdict == Verdict::Broken;
    }

    fn end(self) -> Outcome {
        self.answer
            .unwrap_or_else(|| Err(Box::new(Status::unavailable(self.table.watch().borrow().to_string()))))
    }
}
