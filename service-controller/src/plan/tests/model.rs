//! A cloud of one load balancer, an adapter that converges it, and an API server that holds one Service.

use std::{fmt::Write as _, time::Duration};

use super::*;
use crate::plan::{
    annotations::keys::PREFIX,
    cloud::{Answer, Removal, listeners},
    features::name,
    memory::Next,
    service::{Family, Kind, Port, Transport},
    targets::Node,
};

/// More looks than any history needs.
const LOOKS: usize = 20;

pub(super) fn service() -> Service {
    Service {
        kind: Kind::LoadBalancer,
        ports: vec![Port { name: "http".to_owned(), transport: Transport::Tcp, port: 80, node_port: 30_080 }],
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
    /// How many more times the adapter answers "not yet".
    pub(super) pending: u32,
    pub(super) now: Duration,
}

impl World {
    pub(super) fn with(service: Service) -> Self {
        let mut world = Self {
            service,
            memory: Memory::default(),
            targets: Targets::default(),
            defaults: Defaults::default(),
            features: Some(Features::from([name::LOAD_BALANCERS, name::ALGORITHM])),
            cloud: Vec::new(),
            mirror: Vec::new(),
            mirror_lags: false,
            pending: 0,
            now: Duration::ZERO,
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
    }

    /// One of a few things that users, clouds and operators do.
    pub(super) fn happens(&mut self, event: u8) {
        match event {
            0 => self.restart(),
            1 => self.service.ports[0].port += 1,
            2 => self.nodes(&["a", "b", "c"]),
            3 => self.nodes(&[]),
            4 => self.cloud.clear(),
            5 => self.service.kind = Kind::Other,
            6 => self.service.kind = Kind::LoadBalancer,
            7 => self.pending = 2,
            _ => self.service.ingress.clear(),
        }
    }

    pub(super) fn next_ask(&mut self) -> Option<Ask> {
        self.plan().actions.into_iter().find_map(|action| match action {
            Action::Ensure(ask) => Some(*ask),
            Action::AddFinalizer | Action::WriteStatus(_) | Action::Delete(_) | Action::Release => None,
        })
    }

    /// What the next removal takes along.
    pub(super) fn left_over(&self) -> Option<Adoption> {
        self.plan().actions.iter().find_map(|action| match action {
            Action::Delete(takeover) => Some(takeover.left_over()),
            Action::AddFinalizer | Action::WriteStatus(_) | Action::Ensure(_) | Action::Release => None,
        })
    }

    /// Looks until nothing is left to do, and tells what was done and said.
    #[track_caller]
    pub(super) fn settled(&mut self) -> String {
        let mut transcript = String::new();
        for _ in 0..LOOKS {
            let (text, done) = self.look();
            transcript.push_str(&text);
            if done {
                return transcript;
            }
        }
        panic!("does not settle:\n{transcript}");
    }

    /// One look: plans and carries out. Tells whether nothing is left to do.
    pub(super) fn look(&mut self) -> (String, bool) {
        if !self.mirror_lags {
            self.mirror = self.cloud.clone();
        }
        self.memory.observe(Some(&self.mirror));
        let plan = self.plan();
        let mut text = plan.to_string();
        for action in &plan.actions {
            let outcome = self.carry_out(action);
            for news in outcome {
                writeln!(text, "  news: {news:?}").unwrap();
            }
        }
        (text, plan.actions.is_empty())
    }

    fn plan(&self) -> Plan {
        let facts = Facts {
            targets: &self.targets,
            defaults: &self.defaults,
            features: self.features.as_ref(),
            cloud: Some(&self.mirror),
            now: self.now,
        };
        plan(&self.service, &self.memory, &facts)
    }

    fn carry_out(&mut self, action: &Action) -> Vec<News> {
        match action {
            Action::AddFinalizer => self.service.finalizer = true,
            Action::WriteStatus(ingress) => self.service.ingress.clone_from(ingress),
            Action::Release => {
                self.service.finalizer = false;
                self.service.ingress.clear();
                return self.memory.released();
            }
            Action::Ensure(ask) => {
                let mut news = self.memory.asking(ask);
                let answer = self.ensure(ask);
                let outcome = self.memory.answered(ask, answer, Some(&self.mirror));
                assert_ne!(outcome.next, Next::Backoff);
                news.extend(outcome.news);
                return news;
            }
            Action::Delete(_) => {
                let mut news = self.memory.removing();
                let answer = self.delete();
                news.extend(self.memory.removal(&answer).news);
                return news;
            }
        }
        Vec::new()
    }

    fn ensure(&mut self, ask: &Ask) -> Answer {
        let hash = format!("{}/{}", ask.shape, ask.spec.backend_set_id);
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
        }];
        let steps = if unchanged { 0 } else { 3 };
        Answer { state, steps, applied_hash: hash, ingress, why: String::new(), retry_after: None }
    }

    fn delete(&mut self) -> Removal {
        let state = if self.pending == 0 { State::Absent } else { State::Deleting };
        self.pending = self.pending.saturating_sub(1);
        if state == State::Absent {
            self.cloud.clear();
        }
        Removal { state, why: String::new(), retry_after: None }
    }
}
