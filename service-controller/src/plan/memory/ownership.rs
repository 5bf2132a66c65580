//! Tracks the evidence that a load balancer, or the finalizer of its Service, belongs to this controller. [`Ownership::step`] is pure.

use super::{
    super::{
        cloud::{Balancer, State as CloudState},
        service::{Class, Service},
    },
    Event,
    state::State,
};

/// The evidence of ownership, which does not depend on the state of the load balancer. A reset of the memory drops this evidence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ownership {
    /// This process requested a load balancer, and the adapter has not confirmed a deletion since.
    pub(crate) created: bool,
    pub(crate) other_class: OtherClass,
}

/// What was observed while the Service had another controller's class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OtherClass {
    /// Whether the Service was observed with another controller's class since the finalizer was set.
    pub(crate) with_finalizer: bool,
    /// Whether the Service has another controller's class, but its status shows a load balancer that this controller owns.
    pub(crate) serving: bool,
    /// Whether this controller's load balancer was left although it no longer served the Service. This controller then owns the load
    /// balancer, but perhaps not the finalizer.
    pub(crate) left_over: bool,
}

impl Ownership {
    /// The ownership after an event. `state`: the state of the load balancer after the event.
    pub(super) fn step(self, event: &Event<'_>, state: &State) -> Self {
        match *event {
            Event::Observed { service, cloud, .. } => self.observed(service, cloud, state),
            Event::EnsureCalled { .. } => {
                Self { created: true, other_class: OtherClass { left_over: false, ..self.other_class } }
            }
            Event::DeleteAnswered { answer, .. } => {
                Self { created: self.created && answer.state != CloudState::Absent, ..self }
            }
            Event::ServiceMissing { .. }
            | Event::OrphanKept(_)
            | Event::EnsureAnswered { .. }
            | Event::FellBack
            | Event::DeleteCalled { .. }
            | Event::InSync { .. }
            | Event::Released
            | Event::Forgotten { .. } => self,
        }
    }

    fn observed(self, service: &Service, cloud: Option<&[Balancer]>, state: &State) -> Self {
        let (before, is_other) = (self.other_class, service.class == Class::Others);
        let with_finalizer = service.finalizer && (before.with_finalizer || is_other);
        let Some(cloud) = cloud else {
            return Self { other_class: OtherClass { with_finalizer, ..before }, ..self };
        };
        // After a removal has begun, an empty or partial cache no longer shows whether the load balancer served the Service.
        let (created, serving) = if state.is_removal() {
            (self.created, before.serving)
        } else {
            let serving = is_other && cloud.iter().any(|it| service.shows(&it.ingress));
            // After the load balancer is gone, it no longer matters for the finalizer that this process created the load balancer.
            (self.created && !(is_other && cloud.is_empty()), serving)
        };
        let after = Self { created, ..self };
        let left_over = before.left_over || (is_other && !serving && after.may_own(state, Some(cloud)));
        Self { other_class: OtherClass { with_finalizer, serving, left_over }, ..after }
    }

    pub(super) fn may_own(self, state: &State, cloud: Option<&[Balancer]>) -> bool {
        let is_there = || cloud.unwrap_or_default().iter().any(|it| !state.is_gone(it));
        self.created || state.is_removal() || is_there()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::plan::{
        Operation,
        cloud::{Details, Removal},
        service::Ingress,
    };

    const NOW: Duration = Duration::ZERO;
    const REMOVING: State = State::Removing { missing_since: None };

    fn shown(ip: &str) -> Vec<Balancer> {
        vec![Balancer {
            vendor_id: "lb-1".to_owned(),
            state: CloudState::Active,
            applied_hash: String::new(),
            ingress: vec![Ingress { ip: Some(ip.to_owned()), ..Ingress::default() }],
            listeners: Vec::new(),
            backends: 1,
            details: Details::default(),
        }]
    }

    fn words(it: Ownership) -> String {
        let OtherClass { with_finalizer, serving, left_over } = it.other_class;
        let words = [
            ("created", it.created),
            ("finalizer", with_finalizer),
            ("serving", serving),
            ("left", left_over),
        ];
        words.iter().filter(|(_, is)| *is).map(|(word, _)| *word).collect::<Vec<_>>().join(" ")
    }

    fn owned(words: &str) -> Ownership {
        let has = |word: &str| words.split(' ').any(|it| it == word);
        let (with_finalizer, serving, left_over) = (has("finalizer"), has("serving"), has("left"));
        let other_class = OtherClass { with_finalizer, serving, left_over };
        Ownership { created: has("created"), other_class }
    }

    #[test]
    fn observed_class_and_cloud_decide_about_ownership() {
        let ingress = vec![Ingress { ip: Some("192.0.2.1".to_owned()), ..Ingress::default() }];
        let ours = Service { finalizer: true, ingress, ..Service::default() };
        let other = Service { class: Class::Others, ..ours.clone() };
        let bare = Service { finalizer: false, ..other.clone() };
        let (same, elsewhere) = (shown("192.0.2.1"), shown("192.0.2.2"));
        let (none, unknown) = (&[][..], State::Unknown);
        let forgotten = State::Forgotten { vendor_ids: ["lb-1".to_owned()].into(), at: NOW };
        for (before, service, cloud, state, after) in [
            ("created", &ours, Some(none), &unknown, "created"),
            ("", &ours, Some(&same[..]), &unknown, ""),
            ("serving", &ours, Some(&same), &unknown, ""),
            ("finalizer", &ours, None, &unknown, "finalizer"),
            ("created", &other, None, &unknown, "created finalizer"),
            ("finalizer", &bare, None, &unknown, ""),
            ("created", &other, Some(none), &unknown, "finalizer"),
            ("created", &other, Some(&same), &unknown, "created finalizer serving"),
            ("created", &other, Some(&elsewhere), &unknown, "created finalizer left"),
            ("", &other, Some(&elsewhere), &unknown, "finalizer left"),
            ("", &other, Some(&elsewhere), &forgotten, "finalizer"),
            ("created serving", &other, Some(none), &REMOVING, "created finalizer serving"),
            ("", &other, Some(none), &REMOVING, "finalizer left"),
            ("", &other, Some(none), &State::Removed, "finalizer left"),
            ("left", &ours, Some(none), &unknown, "left"),
        ] {
            let event = Event::Observed { service, cloud, now: NOW };
            let got = owned(before).step(&event, state);
            assert_eq!(words(got), after, "{before:?}, {:?}, {cloud:?}, {state:?}", service.class);
        }
    }

    #[test]
    fn deletion_ends_ownership_only_if_nothing_is_left() {
        let all = owned("created finalizer serving left");
        for (state, after) in [
            (CloudState::Absent, "finalizer serving left"),
            (CloudState::Deleting, "created finalizer serving left"),
            (CloudState::Unknown, "created finalizer serving left"),
        ] {
            let (why, step) = (String::new(), Operation::Sync);
            let answer = Removal { state, why, budget: None, failure: None, retry_after: None };
            let event = Event::DeleteAnswered { step: &step, answer: &answer, now: NOW };
            assert_eq!(words(all.step(&event, &REMOVING)), after, "{state}");
        }
        for event in [
            Event::ServiceMissing { shown: None, now: NOW },
            Event::OrphanKept("lb-1"),
            Event::FellBack,
            Event::DeleteCalled { now: NOW },
            Event::InSync { as_requested: true },
            Event::Released,
            Event::Forgotten { seen: None, now: NOW },
        ] {
            assert_eq!(all.step(&event, &REMOVING), all, "{event:?}");
        }
    }
}
