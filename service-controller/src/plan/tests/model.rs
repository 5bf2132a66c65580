//! A model of a cloud with one load balancer, an adapter that converges it, and an API server that holds one Service.

use std::{fmt::Write as _, time::Duration};

use super::*;
use crate::plan::{
    annotations::keys::PREFIX,
    cloud::{Details, EnsureResult, Removal, listeners},
    features::name,
    memory::{Event, NextPass},
    service::{Family, Kind, Port, Transport},
    targets::Node,
};

/// Maximum number of rounds of planning and execution, which is more than any sequence of events needs.
const ROUNDS: usize = 20;

pub(super) fn service() -> Service {
    Service {
        kind: Kind::LoadBalancer,
        ports: vec![Port { name: "http".to_owned(), ..Port::plain(Transport::Tcp, 80, 30_080) }],
        families: vec![Family::V4],
        ..Service::default()
    }
}

pub(super) struct World {
    pub(super) service: Service,
    pub(super) memory: Memory,
    pub(super) targets: Targets,
    pub(super) defaults: Defaults,
    pub(super) features: Option<Features>,
    pub(super) cloud: Vec<Balancer>,
    mirror: Vec<Balancer>,
    pub(super) mirror_lags: bool,
    /// Number of further calls that the adapter answers with a pending state.
    pub(super) pending: u32,
    /// Digest of the settings that the adapter refuses.
    pub(super) refuses: Option<String>,
    /// Capabilities that the adapter will report next.
    can: Features,
    pub(super) now: Duration,
    truth: Truth,
}

/// The true facts of the model, which the controller cannot observe.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts")]
struct Truth {
    /// Whether the controller set the finalizer.
    finalizer_is_ours: bool,
    /// Whether another controller wrote the status last.
    status_is_others: bool,
    /// Whether another controller needs the finalizer, regardless of which client set it.
    another_needs_it: bool,
    /// Whether the controller created something for this Service.
    made: bool,
    /// Whether the controller could know one of two facts when the API server removed the class: its load balancer was left or just
    /// deleted, or it managed the Service. The controller then cleans up, even if another controller is involved.
    ours_was_left: bool,
}

impl World {
    pub(super) fn with(service: Service) -> Self {
        let can = Features::from([name::LOAD_BALANCERS, name::ALGORITHM]);
        let mut world = Self {
            service,
            memory: Memory::default(),
            targets: Targets::default(),
            defaults: Defaults::default(),
            features: Some(can.clone()),
            can,
            cloud: Vec::new(),
            mirror: Vec::new(),
            mirror_lags: false,
            pending: 0,
            refuses: None,
            now: Duration::ZERO,
            truth: Truth::default(),
        };
        world.nodes(&["a", "b"]);
        world
    }

    pub(super) fn nodes(&mut self, names: &[&str]) {
        let node = |name: &&str| Node {
            name: (*name).to_owned(),
            provider_id: Some(format!("sim://r1/{name}")),
            addresses: vec!["10.0.0.1".parse().unwrap()],
            ..Node::default()
        };
        let nodes: Vec<Node> = names.iter().map(node).collect();
        self.targets = Targets::of(&nodes, None);
    }

    pub(super) fn annotate(&mut self, key: &str, value: &str) {
        self.service.annotations.insert(format!("{PREFIX}{key}"), value.to_owned());
    }

    pub(super) fn restart(&mut self) {
        self.memory = Memory::default();
        // The load balancer proves ownership, and after the restart nothing shows that the Service had another class in between.
        let there = !self.cloud.is_empty() || !self.mirror.is_empty();
        self.truth.ours_was_left |= there && self.service.class == Class::Lost;
    }

    /// Whether the load balancer is gone and the owner of the finalizer is unknown. This is so if another client wrote the status after the
    /// controller set the finalizer.
    pub(super) fn is_in_doubt(&self) -> bool {
        self.service.class == Class::Lost && self.cloud.is_empty() && self.truth.status_is_others
    }

    pub(super) fn is_gone(&self) -> bool {
        self.service.deleting && !self.service.finalizer
    }

    /// All faults end: nodes are listed, and the adapter has its capabilities and accepts the settings.
    pub(super) fn end_all_faults(&mut self) {
        self.mirror_lags = false;
        self.refuses = None;
        self.features = Some(self.can.clone());
        self.nodes(&["a", "b"]);
        self.service.annotations.clear();
        if self.service.class == Class::Others {
            self.service.class = Class::default();
        }
        self.another_leaves();
        self.now += memory::LAG;
    }

    /// An action of a user, the cloud or an operator.
    pub(super) fn happens(&mut self, event: u8) {
        let of_the_service = !matches!(event, 0 | 2 | 3 | 4 | 7 | 12 | 16 | 17 | 21..);
        if of_the_service && self.is_gone() {
            return;
        }
        match event {
            0 => self.restart(),
            1 => self.service.ports[0].port += 1,
            2 => self.nodes(&["a", "b", "c"]),
            3 => self.nodes(&[]),
            4 => self.cloud.clear(),
            5 => self.stops_being_one(),
            6 => (self.service.kind, self.service.class) = (Kind::LoadBalancer, Class::default()),
            7 => self.pending = 2,
            8 => self.annotate("internal", "perhaps"),
            9 => self.service.annotations.clear(),
            10 => (self.service.kind, self.service.class) = (Kind::LoadBalancer, Class::Others),
            11 if self.service.kind == Kind::LoadBalancer => self.service.class = Class::default(),
            12 => self.cloud.iter_mut().for_each(|it| it.backends = 1),
            13 => self.service.ingress.clear(),
            14 if self.service.class == Class::Others => self.another_serves(),
            15 if self.service.class != Class::Others => self.another_leaves(),
            16 => self.mirror_lags = !self.mirror_lags,
            18 => self.service.deleting = true,
            19 if self.service.role() == Role::Wanted => {
                self.service.finalizer = false;
                self.truth.finalizer_is_ours = false;
            }
            20 => {
                let ask = self.next_ask().filter(|ask| !ask.stands_in);
                self.refuses = ask.map(|it| it.wanted.shape.digest.clone());
            }
            21 => self.refuses = None,
            22 => self.features = Some(Features::from([name::ALGORITHM])),
            23 => self.features = Some(self.can.clone()),
            24 => {
                self.nodes(&[]);
                self.targets.blind = true;
            }
            25 => self.nodes(&["a", "b"]),
            _ => self.now += Duration::from_mins(1),
        }
    }

    /// Changes the type of the Service. Removes its class and status, as the API server does. Ownership is then derived from the finalizer
    /// and the status.
    fn stops_being_one(&mut self) {
        if self.service.kind == Kind::Other {
            return;
        }
        let known = self.memory.owned.created
            || self.memory.is_removing()
            || self.memory.is_removed()
            || self.class_of_former() == Class::Ours(None);
        let left = known || !self.cloud.is_empty() || !self.mirror.is_empty();
        self.truth.ours_was_left =
            left && !(self.memory.owned.other_class.left_over && self.class_of_former() == Class::Lost);
        self.service.kind = Kind::Other;
        self.service.ingress.clear();
        self.service.class = self.class_of_former();
    }

    /// The class that the controller derives for a Service whose type is no longer LoadBalancer.
    pub(super) fn class_of_former(&self) -> Class {
        let Truth { finalizer_is_ours, status_is_others, .. } = self.truth;
        if finalizer_is_ours && !status_is_others { Class::Ours(None) } else { Class::Lost }
    }

    fn another_serves(&mut self) {
        // No controller adopts a Service that is being deleted.
        if self.service.deleting {
            return;
        }
        self.truth.finalizer_is_ours &= self.service.finalizer;
        self.service.finalizer = true;
        self.service.ingress = vec![Ingress { ip: Some("198.51.100.7".to_owned()), ..Ingress::default() }];
        (self.truth.status_is_others, self.truth.another_needs_it) = (true, true);
    }

    pub(super) fn another_leaves(&mut self) {
        if std::mem::take(&mut self.truth.another_needs_it) {
            self.service.finalizer = false;
            self.truth.finalizer_is_ours = false;
        }
    }

    pub(super) fn next_ask(&mut self) -> Option<Ask> {
        self.plan().actions.into_iter().find_map(|action| match action {
            Action::Ensure(ask) => Some(*ask),
            Action::AddFinalizer
            | Action::WriteStatus(_)
            | Action::Delete(_)
            | Action::Release
            | Action::Forget => None,
        })
    }

    pub(super) fn left_over(&self) -> Option<Adoption> {
        self.plan().actions.iter().find_map(|action| match action {
            Action::Delete(takeover) => Some(takeover.left_over()),
            Action::AddFinalizer
            | Action::WriteStatus(_)
            | Action::Ensure(_)
            | Action::Release
            | Action::Forget => None,
        })
    }

    /// Plans and executes until nothing is left to do, and returns a transcript.
    #[track_caller]
    pub(super) fn settled(&mut self) -> String {
        let mut transcript = String::new();
        for _ in 0..ROUNDS {
            let (text, done) = self.round();
            transcript.push_str(&text);
            if done {
                return transcript;
            }
        }
        panic!("the plans do not converge:\n{transcript}");
    }

    /// Plans and executes once. Returns the text of the plan, and whether nothing is left to do.
    pub(super) fn round(&mut self) -> (String, bool) {
        if self.is_gone() {
            return (String::new(), true);
        }
        if !self.mirror_lags {
            self.mirror = self.cloud.clone();
        }
        self.memory.observe(&self.service, Some(&self.mirror), self.now);
        let plan = self.plan();
        self.assert_proven(&plan);
        let mut text = plan.to_string();
        for action in &plan.actions {
            let facts = self.execute(action);
            for fact in facts {
                writeln!(text, "  fact: {fact:?}").unwrap();
            }
        }
        (text, plan.actions.is_empty())
    }

    pub(super) fn assert_proven_now(&mut self) {
        if self.is_gone() {
            return;
        }
        let memory = self.memory.clone();
        if !self.mirror_lags {
            self.mirror = self.cloud.clone();
        }
        self.memory.observe(&self.service, Some(&self.mirror), self.now);
        self.assert_proven(&self.plan());
        self.memory = memory;
    }

    /// - Unless a removal has already begun, the plan deletes no load balancer that the Service needs. It also deletes none whose address
    ///   is in the status of a Service with another controller's class, if the mirror is up to date and the Service is not being deleted.
    /// - If this controller never created anything, the plan deletes only for a Service that is being deleted.
    /// - The adapter can execute the plan, and load balancers keep their backends until it is proven that the nodes are gone.
    /// - A finalizer that another controller needs stays.
    fn assert_proven(&self, plan: &Plan) {
        let has = |wanted: fn(&Action) -> bool| plan.actions.iter().any(wanted);
        let goes = has(|action| matches!(action, Action::Delete(_)));
        let wanted = self.service.role() == Role::Wanted;
        assert!(!(goes && wanted) || self.memory.is_removing(), "{plan}");
        let able = self.features.as_ref().is_some_and(|it| it.has(name::LOAD_BALANCERS));
        let asks = goes || has(|action| matches!(action, Action::Ensure(_)));
        assert!(able || !asks, "no adapter can execute the plan\n{plan}");
        let emptied = self.targets.blind && self.mirror.iter().any(|it| it.backends > 0);
        assert!(
            !(emptied && has(|action| matches!(action, Action::Ensure(_)))),
            "there is no proof that the nodes are gone\n{plan}"
        );
        let serves = self.service.class == Class::Others
            && !self.service.deleting
            && self.cloud.iter().any(|it| self.service.shows(&it.ingress));
        let known = serves && !self.memory.is_removing() && !self.mirror_lags;
        assert!(!(goes && known), "{plan}");
        assert!(
            !goes || self.truth.made || self.service.deleting,
            "the controller never created anything\n{plan}"
        );
        let released = has(|action| *action == Action::Release);
        let Truth { another_needs_it, status_is_others, ours_was_left, .. } = self.truth;
        // This controller manages a Service that has one of its classes or whose status shows one of its load balancers.
        let of_ours = matches!(self.service.class, Class::Ours(_));
        let needed = another_needs_it && status_is_others && !ours_was_left && !of_ours;
        assert!(!(released && needed), "the other controller needs the finalizer\n{plan}");
    }

    fn plan(&self) -> Plan {
        let validated =
            Validated::of(&self.service, &self.memory, &self.defaults, self.features.as_ref(), self.now);
        let facts = Facts {
            validated: &validated,
            targets: &self.targets,
            defaults: &self.defaults,
            features: self.features.as_ref(),
            cloud: Some(&self.mirror),
            now: self.now,
        };
        plan(&self.service, &self.memory, &facts)
    }

    fn execute(&mut self, action: &Action) -> Vec<Fact> {
        match action {
            Action::AddFinalizer => {
                self.service.finalizer = true;
                (self.truth.finalizer_is_ours, self.truth.made) = (true, true);
            }
            Action::WriteStatus(ingress) => {
                self.service.ingress.clone_from(ingress);
                self.truth.status_is_others = false;
            }
            Action::Release => {
                self.service.finalizer = false;
                self.truth.finalizer_is_ours = false;
                self.service.ingress.clear();
                return self.memory.on(Event::Released).facts;
            }
            Action::Forget => {
                let event = Event::Forgotten { seen: Some(&self.mirror), now: self.now };
                return self.memory.on(event).facts;
            }
            Action::Ensure(ask) => {
                self.truth.made = true;
                let mut facts = self.memory.ensure_called(ask).facts;
                if self.refuses.as_ref() == Some(&ask.wanted.shape.digest) {
                    if !ask.stands_in {
                        self.memory.refuse(ask);
                    }
                    return facts;
                }
                let answer = self.ensure(ask);
                let event = Event::EnsureAnswered { ask, answer: &answer, seen: Some(&self.mirror) };
                let outcome = self.memory.on(event);
                assert_ne!(outcome.next, NextPass::Backoff);
                facts.extend(outcome.facts);
                return facts;
            }
            Action::Delete(_) => {
                let mut facts = self.memory.on(Event::DeleteCalled { now: Duration::ZERO }).facts;
                let (step, answer) = (&Operation::Sync, self.delete());
                let event = Event::DeleteAnswered { step, answer: &answer, now: Duration::ZERO };
                facts.extend(self.memory.on(event).facts);
                return facts;
            }
        }
        Vec::new()
    }

    pub(super) fn ensure(&mut self, ask: &Ask) -> EnsureResult {
        let hash = format!("{}/{}", ask.wanted.shape.digest, ask.spec.backend_set_id);
        let ingress = vec![Ingress { ip: Some("192.0.2.1".to_owned()), ..Ingress::default() }];
        let unchanged = self.cloud.iter().any(|it| it.state == State::Active && it.applied_hash == hash);
        let state = if unchanged || self.pending == 0 { State::Active } else { State::Pending };
        self.pending = self.pending.saturating_sub(1);
        self.cloud = vec![Balancer {
            vendor_id: "lb-1".to_owned(),
            state,
            applied_hash: if state == State::Active { hash.clone() } else { String::new() },
            ingress: ingress.clone(),
            listeners: listeners(&ask.spec),
            backends: 2,
            details: Details::default(),
        }];
        let steps = if unchanged { 0 } else { 3 };
        EnsureResult {
            state,
            steps,
            applied_hash: hash,
            ingress,
            why: String::new(),
            budget: None,
            failure: None,
            retry_after: None,
        }
    }

    fn delete(&mut self) -> Removal {
        let state = if self.pending == 0 { State::Absent } else { State::Deleting };
        self.pending = self.pending.saturating_sub(1);
        if state == State::Absent {
            self.cloud.clear();
        }
        Removal { state, why: String::new(), budget: None, failure: None, retry_after: None }
    }
}
