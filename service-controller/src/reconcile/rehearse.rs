//! Dry run of a reconcile on a copy of the memory. The controller asks the adapter what each action of the plan would do. Nothing is
//! written.

use std::sync::Arc;

use cloud_api_proto::v1alpha1::LoadBalancerState;
use controller_core::explain::{
    Object, ObjectKey as _, Rehearsal, Rehearse,
    rehearse::{BoxStream, StreamExt as _, steps, stream},
};

use super::{ROUNDS, Reconciler, observe::Purpose};
use crate::{
    error::Error,
    execute::Job,
    explain::{failing, waiting},
    plan::{
        Action, Ask, Operation,
        cloud::{EnsureResult, Removal, State},
        memory::{Event, NextPass, Write},
        refused::Reaction,
        service::{FINALIZER, ServiceId},
        spec::Takeover,
        waiting::Waiting,
    },
};

/// Maximum number of concurrent dry runs of Services.
const AT_ONCE: usize = 10;

impl Rehearse for Reconciler {
    fn rehearse(self: Arc<Self>, objects: Vec<Object>) -> BoxStream<'static, (Object, Rehearsal)> {
        let rehearsed = move |object: Object| {
            let this = Arc::clone(&self);
            async move {
                let rehearsal = Box::pin(this.rehearsal(&object)).await;
                (object, rehearsal)
            }
        };
        stream::iter(objects).map(rehearsed).buffer_unordered(AT_ONCE).boxed()
    }
}

/// Whether a dry run can continue after a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum After {
    /// Another plan can be made from what is known now.
    More,
    /// The remaining actions depend on an action that was not executed.
    End,
}

impl Reconciler {
    /// Returns the actions that a reconcile would take, including those that only wait for a delay.
    async fn rehearsal(&self, object: &Object) -> Rehearsal {
        let id = ServiceId::of(object);
        let (mut memory, mut found) = (self.memories.of(&id), Rehearsal::default());
        let Some(service) = self.mirrors.service(&id) else {
            return self.rehearse_left_over(&id, object).await;
        };
        for _ in 0..ROUNDS {
            let job = self.observe(service.clone(), &mut memory, Purpose::Rehearse);
            match self.rehearse_round(job, &mut found).await {
                Ok(After::More) => (),
                Ok(After::End) => break,
                Err(error) => {
                    found.trouble.get_or_insert_with(|| failing(&error, false));
                    break;
                }
            }
        }
        found
    }

    async fn rehearse_round(&self, mut job: Job<'_>, found: &mut Rehearsal) -> Result<After, Error> {
        let plan = job.plan();
        if let Some(wait) = plan.waits
            && let Waiting::Fail(blocked) = Waiting::of(wait, &job.service, job.memory, job.now)
        {
            return Err(self.blocked(blocked));
        }
        if !plan.refusals.is_empty() {
            found.trouble = Some(failing(&Error::Refused(plan.refusals), false));
        }
        if plan.actions.is_empty() {
            return Ok(After::End);
        }
        for action in plan.actions {
            if self.rehearse_action(&mut job, &action, found).await? == After::End {
                return Ok(After::End);
            }
        }
        Ok(After::More)
    }

    /// Records what an action would do, and continues as if the action had been executed.
    async fn rehearse_action(
        &self,
        job: &mut Job<'_>,
        action: &Action,
        found: &mut Rehearsal,
    ) -> Result<After, Error> {
        match action {
            Action::AddFinalizer => {
                found.cluster.push(format!("add the finalizer {FINALIZER}"));
                job.service.finalizer = true;
                job.memory.pacing.wrote(Write::Finalizer, &job.service, job.now);
            }
            Action::WriteStatus(ingress) => {
                let words: Vec<String> = ingress.iter().map(ToString::to_string).collect();
                let empty = if job.service.ingress.is_empty() { ", empty so far" } else { "" };
                found.cluster.push(format!("write the status{empty}: {}", words.join(" ")));
                job.service.ingress.clone_from(ingress);
                job.memory.pacing.wrote(Write::Status, &job.service, job.now);
            }
            Action::Ensure(ask) => return self.rehearse_ensure(job, ask, found).await,
            Action::Delete(takeover) => {
                let answer = self.executor.try_delete(&job.service.id, takeover, &Operation::Sync).await?;
                found.vendor.extend(steps(answer.plan));
                let (state, why) = (State::Absent, String::new());
                let absent = Removal { state, why, budget: None, failure: None, retry_after: None };
                let (step, now) = (&Operation::Sync, job.now);
                job.memory.on(Event::DeleteAnswered { step, answer: &absent, now });
            }
            Action::Release => {
                found.cluster.push(format!("remove the finalizer {FINALIZER}, and empty the status"));
                return Ok(After::End);
            }
            Action::Forget => return Ok(After::End),
        }
        Ok(After::More)
    }

    async fn rehearse_ensure(
        &self,
        job: &mut Job<'_>,
        ask: &Ask,
        found: &mut Rehearsal,
    ) -> Result<After, Error> {
        let answer = match self.executor.try_ensure(job, ask).await {
            Ok(answer) => answer,
            Err(error) => {
                return match job.react(ask, &error) {
                    Reaction::Narrow | Reaction::IgnoreId(_) => Ok(After::More),
                    // The next plan uses the replacement settings.
                    Reaction::FallBack => {
                        found.trouble = Some(failing(&error, false));
                        Ok(After::More)
                    }
                    Reaction::Restore | Reaction::Report => Err(error),
                };
            }
        };
        let state = answer.state();
        if !answer.plan.is_empty() {
            found.vendor.extend(steps(answer.plan));
            if job.service.ingress.is_empty() {
                found.cluster.push("write the status, once the load balancer has an address".to_owned());
            }
            return Ok(After::End);
        }
        let answer = EnsureResult::from(answer);
        let outcome =
            job.memory.on(Event::EnsureAnswered { ask, answer: &answer, seen: job.seen.as_deref() });
        if let Some(problem) = &outcome.problem {
            found.trouble = Some(waiting(problem, false));
        }
        let serves = matches!(state, LoadBalancerState::Active | LoadBalancerState::Degraded);
        Ok(if serves && outcome.next == NextPass::Now { After::More } else { After::End })
    }

    /// Makes a dry run of the deletion of a leftover load balancer. If the ledger says that the deletion is held, nothing would be done.
    async fn rehearse_left_over(&self, id: &ServiceId, object: &Object) -> Rehearsal {
        if self.executor.ledger.problem(object).is_some() {
            return Rehearsal::default();
        }
        match self.executor.try_delete(id, &Takeover::None, &Operation::LeftOver).await {
            Ok(answer) => Rehearsal { vendor: steps(answer.plan), ..Rehearsal::default() },
            Err(error) => Rehearsal::trouble(failing(&error, false)),
        }
    }
}
