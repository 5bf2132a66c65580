//! The corridor: takes one Service through the four rooms. Decides nothing itself.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use controller_core::{Again, Clock, Link};
use jiff::SignedDuration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, warn};

use crate::{
    execute::{Executor, Job},
    mirror::Mirrors,
    plan::{
        Facts, Wait,
        annotations::node_selector,
        memory::{Memory, Next},
        orphans, plan,
        service::{Role, ServiceId},
    },
    requeue::Error,
};

/// More rounds than any Service needs: finalizer and ensure, status, and a look that finds nothing left.
const ROUNDS: usize = 5;
/// After that, others get their turn.
const BREATH: Duration = Duration::from_secs(1);
/// So long nobody needs to hear that the adapter is away.
const PATIENCE: SignedDuration = SignedDuration::from_secs(10);

/// Takes Services through the four rooms.
pub(crate) struct Reconciler {
    mirrors: Mirrors,
    executor: Executor,
    clock: Clock,
    /// Ends the process when a newer one is at work.
    stop: CancellationToken,
    started: Instant,
    /// One worker at a time has a key: it takes the memory out and puts it back.
    memories: Mutex<BTreeMap<ServiceId, Memory>>,
}

impl Reconciler {
    pub(crate) fn new(mirrors: Mirrors, executor: Executor, clock: Clock, stop: CancellationToken) -> Self {
        Self { mirrors, executor, clock, stop, started: Instant::now(), memories: Mutex::default() }
    }

    /// Looks at one Service until nothing is left to do, or until it has to wait.
    pub(crate) async fn reconcile(&self, id: &ServiceId) -> Again {
        let mut memory = self.memories().remove(id).unwrap_or_default();
        let again = match self.rounds(id, &mut memory).await {
            Ok(again) => again,
            Err(error) => self.report(id, &mut memory, &error),
        };
        // What exists nowhere needs no memory; an orphan's keeps it from being told again and again.
        if memory != Memory::default() && (self.mirrors.service(id).is_some() || memory.is_of_an_orphan()) {
            self.memories().insert(id.clone(), memory);
        }
        again
    }

    async fn rounds(&self, id: &ServiceId, memory: &mut Memory) -> Result<Again, Error> {
        for _ in 0..ROUNDS {
            match self.round(id, memory).await? {
                None => return Ok(Again::Done),
                Some(Next::Now) => (),
                Some(Next::After(delay)) => return Ok(Again::After(delay)),
                Some(Next::Backoff) => return Ok(Again::Backoff),
            }
        }
        Ok(Again::After(BREATH))
    }

    /// One look. `None`: nothing is left to do.
    async fn round(&self, id: &ServiceId, memory: &mut Memory) -> Result<Option<Next>, Error> {
        let seen = self.mirrors.balancers(&id.uid);
        let Some(service) = self.mirrors.service(id) else {
            let orphans = orphans(seen.as_deref().unwrap_or_default());
            return Ok(report_orphans(id, memory, &orphans, self.started.elapsed()));
        };
        let service = memory.overlay(service);
        if service.role() == Role::Wanted {
            self.executor.tell(id, &memory.foreign(&service.foreign));
        }
        memory.observe(seen.as_deref());
        let defaults = &self.mirrors.defaults;
        let (targets, targets_since) = self.mirrors.targets(node_selector(&service, defaults).as_ref());
        let features = self.mirrors.features();
        let facts = Facts {
            targets: &targets,
            defaults,
            features: features.as_deref(),
            cloud: seen.as_deref(),
            now: self.started.elapsed(),
        };
        let plan = plan(&service, memory, &facts);
        if plan.is_empty() {
            memory.calm();
            return Ok(None);
        }
        debug!(plan = %plan.to_string().trim_end().replace('\n', "; "), "Carries out");
        match plan.waits {
            Some(Wait::Aloud) => return Err(Error::AdapterAway(self.mirrors.adapter_link())),
            Some(Wait::Quietly) => return Ok(None),
            None if !plan.refusals.is_empty() => return Err(Error::Refused(plan.refusals)),
            None if plan.actions.is_empty() => {
                return Ok(report_orphans(id, memory, &plan.orphans, facts.now));
            }
            None => (),
        }
        if let Some(rest) = memory.held(facts.now).filter(|_rest| plan.calls_the_adapter()) {
            return Ok(Some(Next::After(rest)));
        }
        let mut job = Job { service, memory, targets, targets_since, seen };
        self.executor.carry_out(&mut job, &plan.actions).await.map(Some)
    }

    /// Tells people, once, and says when to look again.
    fn report(&self, id: &ServiceId, memory: &mut Memory, error: &Error) -> Again {
        if let Error::AdapterAway(link) = error
            && !self.is_long_away(link)
        {
            return Again::After(BREATH);
        }
        if error.is_superseded() {
            if !self.stop.is_cancelled() {
                error!(error = %error.text(), "Ends");
                self.stop.cancel();
            }
            return error.again();
        }
        if let Some(delay) = error.hold() {
            memory.hold(self.started.elapsed(), delay);
        }
        let passes = error.refused_altogether().is_some_and(|call| !self.executor.is_refused(call));
        if passes {
            debug!(service = %id, error = %error.text(), "Tries again");
        } else if error.is_news() {
            self.executor.tell(id, &memory.trouble_named(&error.name(), &error.text()));
        } else {
            warn!(service = %id, error = %error.text(), "Tries again");
        }
        error.again()
    }

    /// An adapter that is away for a moment is being restarted, which is nobody's concern.
    fn is_long_away(&self, link: &Link) -> bool {
        match link {
            Link::Starting | Link::Up => false,
            Link::Down { since, .. } => self.clock.now().duration_since(*since) >= PATIENCE,
        }
    }

    fn memories(&self) -> MutexGuard<'_, BTreeMap<ServiceId, Memory>> {
        // Every operation on the map is a single one: it is consistent whatever happened.
        self.memories.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// There is no object to tell it at: a log line, and the metric `load_balancer_orphans`. Says when to look again.
fn report_orphans(id: &ServiceId, memory: &mut Memory, orphans: &[String], now: Duration) -> Option<Next> {
    if orphans.is_empty() {
        memory.calm();
        return None;
    }
    if let Some(doubt) = memory.orphan_doubt(now) {
        return Some(Next::After(doubt));
    }
    let vendor_ids = orphans.join(" ");
    if !memory.trouble(&vendor_ids).is_empty() {
        warn!(
            service = %id, uid = %id.uid, %vendor_ids,
            "No Service wants this load balancer; it is not deleted by itself, delete it at the cloud if nobody needs it"
        );
    }
    None
}
