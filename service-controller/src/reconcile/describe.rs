//! Describes the state of a Service from the caches at the time of the request.

mod balancer;
mod fields;

use controller_core::{
    events::bounded,
    explain::{Describe, Object, ObjectKey as _, Seen, report::Orphan},
    mirror::ObjectName,
};
use jiff::Timestamp;

use self::{balancer::balancer, fields::fields};
use super::Reconciler;
use crate::plan::{
    annotations::settings::Settings,
    left_over::Release,
    service::{Class, Port, Role, Service, ServiceId},
    validated::Validated,
    without_nodes::WithoutNodes,
};

/// Shown while it is not known whether a load balancer is an orphan.
const DOUBTED: &str = "not confirmed yet: its Service may still appear";

/// Maximum length in characters of a setting that is shown. An annotation may be much longer.
const LINE_MAX: usize = 200;

impl Describe for Reconciler {
    fn uid(&self, name: &ObjectName) -> Option<String> {
        self.mirrors.services.get(name).map(|service| service.id.uid.clone())
    }

    fn all(&self) -> Vec<Object> {
        self.mirrors.services.read(|all| all.values().map(|service| service.id.object()).collect())
    }

    /// Whether all caches are listed. An adapter that does not support load balancers needs no listing.
    fn listed(&self) -> bool {
        let mirrors = &self.mirrors;
        let both = mirrors.services.is_synced() && mirrors.nodes.is_synced();
        both && (mirrors.has_load_balancers() == Some(false) || mirrors.cloud.is_synced())
    }

    fn describe(&self, object: &Object) -> Seen {
        let id = ServiceId::of(object);
        let cloud = match self.mirrors.balancers(&id.uid) {
            Some(all) => all.iter().flat_map(balancer).collect(),
            None => vec!["not listed yet".to_owned()],
        };
        let service = self.mirrors.service(&id);
        let apart = service.as_ref().is_some_and(|it| it.class == Class::Others);
        let wanted = match service {
            Some(service) => self.wanted(&service),
            None => vec!["nothing: the Service does not exist any more".to_owned()],
        };
        Seen { wanted, cloud, unseen: false, apart }
    }

    /// Returns the load balancers without a Service that were released, or that are in the ledger. After a restart the ledger is empty, but
    /// callers that wait for the removal must still see released load balancers. A load balancer that was not reported yet has no `since`.
    fn orphans(&self) -> Vec<Orphan> {
        let orphan = |(id, vendor_ids): (ServiceId, Vec<String>)| {
            let released = self.mirrors.release(&id) == Release::Given;
            let known = self.executor.ledger.waiting_since(&id.object());
            let since =
                known.as_ref().filter(|(_, waits)| released || waits.is_some()).map(|(since, _)| *since);
            let since = since.map(|it| Timestamp::from_second(it.as_second()).unwrap_or(it));
            (released || known.is_some()).then(|| {
                let doubted =
                    || (!released && !self.memories.of(&id).is_removing()).then(|| DOUBTED.to_owned());
                let waits_for = known.and_then(|(_, waits)| waits).or_else(doubted);
                let (key, uid) = (id.to_string(), id.uid);
                Orphan { uid, key, vendor_ids, since, released, waits_for }
            })
        };
        self.mirrors.without_service().into_iter().filter_map(orphan).collect()
    }
}

impl Reconciler {
    fn wanted(&self, service: &Service) -> Vec<String> {
        match service.role() {
            Role::Wanted => {
                let (settings, _refusals) = Settings::of(service, &self.mirrors.reading.defaults);
                let settings = fields(service).into_iter().chain(settings.lines());
                let settings = settings.map(|line| bounded(&line, LINE_MAX));
                [listeners(&service.ports)].into_iter().chain(settings).chain(self.nodes(service)).collect()
            }
            Role::Cleanup => vec!["no load balancer".to_owned()],
            Role::Ignored if service.class == Class::Others => {
                vec![self.mirrors.reading.classes.of_another(service.named_class.as_deref())]
            }
            Role::Ignored => {
                vec!["nothing: the Service is not of type LoadBalancer, or is being deleted".to_owned()]
            }
        }
    }

    /// Number of nodes behind the load balancer. `None`: the settings in force are not known yet.
    fn nodes(&self, service: &Service) -> Option<String> {
        if !self.mirrors.nodes.is_synced() {
            return None;
        }
        let (memory, now) = (self.memories.of(&service.id), self.started.elapsed());
        let (defaults, features) = (&self.mirrors.reading.defaults, self.mirrors.features());
        let validated = Validated::of(service, &memory, defaults, features.as_deref(), now);
        validated.wanted.as_ref()?;
        let (targets, _since) = self.mirrors.targets(validated.selector());
        let nodes = count(targets.len(), "node");
        Some(match WithoutNodes::of(&targets, service, defaults) {
            Some(why) => bounded(&format!("{nodes}: {why}"), LINE_MAX),
            None => nodes,
        })
    }
}

fn listeners(ports: &[Port]) -> String {
    let word = |it: &Port| {
        let target = if it.node_port == 0 { String::new() } else { format!(" -> {}", it.node_port) };
        let app = &it.app_protocol;
        let app = if app.is_empty() { String::new() } else { format!(" (appProtocol {app})") };
        format!("{} {}{target}{app}", it.transport, it.port)
    };
    let words: Vec<String> = ports.iter().map(word).collect();
    format!("{}: {}", count(words.len(), "listener"), words.join(", "))
}

fn count(number: usize, what: &str) -> String {
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
}
