//! Nodes and Services: their names, their Events, and what was perhaps meant by a name that nobody knows.

use std::fmt;

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Event, Node, Service},
    apimachinery::pkg::apis::meta::v1::{MicroTime, Time},
};
use kube::{Api, ResourceExt as _, api::ListParams};
use serde::{Deserialize, Serialize};

use crate::{cluster::Cluster, missing::Missing};

/// As whom the controllers report Events: by the names that those of Kubernetes had.
const REPORTERS: [&str; 4] =
    ["cloud-node-controller", "cloud-node-lifecycle-controller", "route_controller", "service-controller"];
/// How like a name has to be to be named.
const LIKE: f64 = 0.85;
/// Names that are named.
const NAMED: usize = 3;

/// The name of a Service, perhaps with its namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    namespace: Option<String>,
    name: String,
}

/// An object that is asked about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Object {
    Node(String),
    Service { namespace: String, name: String },
}

/// An Event of the controllers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Told {
    /// When it was told last.
    pub at: Option<Timestamp>,
    /// `Normal` or `Warning`.
    pub r#type: String,
    /// A word, such as `SyncLoadBalancerFailed`.
    pub reason: String,
    /// Who tells.
    pub from: String,
    /// How often.
    pub count: i32,
    /// In words.
    pub message: String,
}

/// Reads the name of an object.
pub(crate) fn name(text: &str) -> Result<String, String> {
    let fine = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.');
    if (1..=253).contains(&text.len()) && text.bytes().all(fine) {
        return Ok(text.to_owned());
    }
    Err("a name has lower case letters, digits, dashes and dots".to_owned())
}

/// Reads `[NAMESPACE/]NAME`.
pub(crate) fn key(text: &str) -> Result<Key, String> {
    match text.split_once('/') {
        Some((namespace, rest)) => Ok(Key { namespace: Some(name(namespace)?), name: name(rest)? }),
        None => Ok(Key { namespace: None, name: name(text)? }),
    }
}

impl Key {
    /// Refuses a name without a namespace beside `-n`, which to kubectl is the object's.
    pub(crate) fn settled(&self) -> Result<(), String> {
        let Self { namespace, name } = self;
        if namespace.is_some() {
            return Ok(());
        }
        Err(format!(
            "service {name}: in which namespace? Write NAMESPACE/{name} (-n is where the chart is installed)"
        ))
    }
}

impl Object {
    pub(crate) fn node(name: &str) -> Self {
        Self::Node(name.to_owned())
    }

    /// The Service of this name, at home in a namespace unless it says another.
    pub(crate) fn service(key: &Key, home: &str) -> Self {
        let namespace = key.namespace.clone().unwrap_or_else(|| home.to_owned());
        Self::Service { namespace, name: key.name.clone() }
    }

    /// As the pages write it.
    pub(crate) fn key(&self) -> String {
        match self {
            Self::Node(name) => name.clone(),
            Self::Service { namespace, name } => format!("{namespace}/{name}"),
        }
    }

    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Node(_) => "Node",
            Self::Service { .. } => "Service",
        }
    }

    fn name(&self) -> &str {
        match self {
            Self::Node(name) | Self::Service { name, .. } => name,
        }
    }

    /// Where its Events are: those of what has no namespace are in `default`.
    fn namespace(&self) -> &str {
        match self {
            Self::Node(_) => "default",
            Self::Service { namespace, .. } => namespace,
        }
    }
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind(), self.key())
    }
}

/// The Events of the controllers about it, the oldest first. Where it is not there any more, those about the last ones of its name.
pub(crate) async fn events(cluster: &Cluster, object: &Object) -> Result<Vec<Told>, Missing> {
    // Who may not read the object may read its Events all the same, of all that had its name.
    let uid = uid(cluster, object).await.unwrap_or_default();
    let events: Api<Event> = cluster.namespaced(object.namespace());
    let about = format!("involvedObject.kind={},involvedObject.name={}", object.kind(), object.name());
    let about = ListParams::default().fields(&about);
    let events = cluster.ask("events", async { events.list(&about).await }).await?;
    let about = events.items.into_iter().filter(|event| is_about(event, uid.as_deref()));
    let mut told: Vec<Told> = about.filter_map(told).collect();
    told.sort_by(|a, b| (a.at, &a.reason, &a.message).cmp(&(b.at, &b.reason, &b.message)));
    Ok(told)
}

/// The UID of the object that has the name now, if there is one.
async fn uid(cluster: &Cluster, object: &Object) -> Result<Option<String>, Missing> {
    let name = object.name();
    match object {
        Object::Node(_) => {
            let nodes: Api<Node> = cluster.all();
            let node = cluster.ask("nodes", async { nodes.get_metadata_opt(name).await }).await?;
            Ok(node.and_then(|node| node.metadata.uid))
        }
        Object::Service { namespace, .. } => {
            let services: Api<Service> = cluster.namespaced(namespace);
            let service = cluster.ask("services", async { services.get_metadata_opt(name).await }).await?;
            Ok(service.and_then(|service| service.metadata.uid))
        }
    }
}

/// Whether an Event is about the object of this UID: one that had the name before has Events, too, for an hour.
fn is_about(event: &Event, uid: Option<&str>) -> bool {
    uid.is_none() || event.involved_object.uid.as_deref() == uid
}

/// An Event of ours.
fn told(event: Event) -> Option<Told> {
    let from = event.reporting_component.filter(|it| REPORTERS.contains(&it.as_str()))?;
    let in_series = event.series.as_ref().and_then(|it| it.last_observed_time.clone());
    let at = in_series.or(event.event_time).map(|MicroTime(at)| at);
    let at = event.last_timestamp.map(|Time(at)| at).max(at);
    let count = event.series.and_then(|it| it.count).or(event.count).unwrap_or(1).max(1);
    let (r#type, reason) = (event.type_.unwrap_or_default(), event.reason.unwrap_or_default());
    Some(Told { at, r#type, reason, from, count, message: event.message.unwrap_or_default() })
}

/// Why no controller knows it, as far as the API server tells.
pub(crate) async fn why_unknown(cluster: &Cluster, object: &Object) -> String {
    match object {
        Object::Node(_) => {
            let nodes: Api<Node> = cluster.all();
            let names =
                cluster.ask("nodes", async { nodes.list_metadata(&ListParams::default()).await }).await;
            let names = names.map(|all| all.items.iter().map(|it| it.name_any()).collect::<Vec<_>>());
            unknown(object, names.map(|names| (names, None)))
        }
        Object::Service { namespace, name } => {
            let services: Api<Service> = cluster.namespaced(namespace);
            let all = cluster.ask("services", async { services.list(&ListParams::default()).await }).await;
            let seen = all.map(|all| {
                let it = all.items.iter().find(|it| it.name_any() == *name);
                (all.items.iter().map(|it| it.name_any()).collect(), it.and_then(not_ours))
            });
            unknown(object, seen)
        }
    }
}

/// What a Service says against being one of ours.
fn not_ours(service: &Service) -> Option<String> {
    let spec = service.spec.as_ref()?;
    let of_type = spec.type_.as_deref().unwrap_or("ClusterIP");
    if of_type != "LoadBalancer" {
        return Some(format!("it is of type {of_type}, so that nothing is wanted of the cloud"));
    }
    let class = spec.load_balancer_class.as_ref();
    class.map(|class| format!("its class is {class}, which is perhaps another controller's"))
}

/// In words. `seen`: the names that there are, and why this one is not ours.
fn unknown(object: &Object, seen: Result<(Vec<String>, Option<String>), Missing>) -> String {
    let (names, not_ours) = match seen {
        Ok(seen) => seen,
        Err(why) => {
            return format!(
                "no controller that was read knows it; whether it is there cannot be told: {}",
                why.why
            );
        }
    };
    if names.iter().any(|it| it == object.name()) {
        let why = not_ours.unwrap_or_else(|| "their mirrors are perhaps not complete yet".to_owned());
        return format!("it is there, and no controller that was read knows it: {why}");
    }
    let near = nearest(object.name(), &names);
    let meant = if near.is_empty() { String::new() } else { format!("; there is {}", near.join(", ")) };
    let place = match object {
        Object::Node(_) => String::new(),
        Object::Service { namespace, .. } => format!(" in namespace {namespace}"),
    };
    format!("there is none of this name{place}{meant}")
}

/// Names that are like it, the most like first.
fn nearest(name: &str, names: &[String]) -> Vec<String> {
    let mut near: Vec<(f64, &String)> = names
        .iter()
        .map(|it| (strsim::jaro_winkler(name, it), it))
        .filter(|(like, _)| *like >= LIKE)
        .collect();
    near.sort_by(|(a, x), (b, y)| b.total_cmp(a).then_with(|| x.cmp(y)));
    near.into_iter().take(NAMED).map(|(_, it)| it.clone()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_service_has_a_namespace() {
        let at_home = Object::service(&key("web").expect("a key"), "shop");
        assert_eq!(at_home.to_string(), "Service shop/web");
        assert_eq!(Object::service(&key("a/web").expect("a key"), "shop").key(), "a/web");
        for wrong in ["", "a/", "/a", "a/b/c", "Web", "a b", "a?b"] {
            assert!(key(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_is_not_known_is_explained() {
        let web = Object::service(&key("web").expect("a key"), "shop");
        let names = |all: &[&str]| all.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
        for (seen, told) in [
            (
                Ok((names(&["web-1", "db", "webs"]), None)),
                "there is none of this name in namespace shop; there is webs, web-1",
            ),
            (Ok((names(&["db"]), None)), "there is none of this name in namespace shop"),
            (
                Ok((names(&["web"]), Some("it is of type ClusterIP".to_owned()))),
                "it is there, and no controller that was read knows it: it is of type ClusterIP",
            ),
            (
                Err(Missing::new("services", "forbidden")),
                "no controller that was read knows it; whether it is there cannot be told: forbidden",
            ),
        ] {
            assert_eq!(unknown(&web, seen), told);
        }
    }

    #[test]
    fn a_service_that_is_not_ours_says_why() {
        let service = |spec| serde_json::from_value::<Service>(json!({ "spec": spec })).expect("a Service");
        let why = |spec| not_ours(&service(spec)).unwrap_or_default();
        assert!(why(json!({})).contains("of type ClusterIP"));
        assert!(
            why(json!({ "type": "LoadBalancer", "loadBalancerClass": "a/b" })).contains("its class is a/b")
        );
        assert_eq!(why(json!({ "type": "LoadBalancer" })), "");
    }

    #[test]
    fn events_of_a_deleted_object_of_the_same_name_are_left_out() {
        let about = |uid| {
            serde_json::from_value::<Event>(
                json!({ "metadata": {}, "involvedObject": { "name": "web", "uid": uid } }),
            )
            .expect("an Event")
        };
        assert!(is_about(&about("u-2"), Some("u-2")));
        assert!(!is_about(&about("u-1"), Some("u-2")));
        assert!(is_about(&about("u-1"), None), "it is deleted, and nothing has its name");
    }

    #[test]
    fn events_of_others_are_left_out() {
        let event = |from| {
            told(serde_json::from_value(json!({
                "metadata": {}, "involvedObject": {}, "reason": "Why", "type": "Warning", "message": "words",
                "reportingComponent": from, "eventTime": "2026-01-02T03:04:05.000000Z",
                "series": { "count": 3, "lastObservedTime": "2026-01-02T03:05:05.000000Z" },
            }))
            .expect("an Event"))
        };
        assert_eq!(event("kubelet"), None);
        let ours = event("service-controller").expect("ours");
        assert_eq!(
            (ours.count, ours.at.map(|at| at.to_string())),
            (3, Some("2026-01-02T03:05:05Z".to_owned()))
        );
    }
}
