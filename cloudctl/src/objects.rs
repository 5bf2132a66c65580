//! Nodes and Services: their names, their Events, and names similar to an unknown one. `endpoints` reads the endpoints of Services.

pub(crate) mod endpoints;

use std::fmt;

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Event, Node, Service},
    apimachinery::pkg::apis::meta::v1::{MicroTime, Time},
};
use kube::{Api, ResourceExt as _, api::ListParams};
use serde::{Deserialize, Serialize};
use telemetry::similar;

use crate::{cluster::Cluster, missing::Missing, options::Component};

/// The names under which the controllers report Events. They are the names of Kubernetes' own controllers.
const REPORTERS: [(&str, Component); 4] = [
    ("cloud-node-controller", Component::NodeController),
    ("cloud-node-lifecycle-controller", Component::NodeController),
    ("route_controller", Component::RouteController),
    ("service-controller", Component::ServiceController),
];
const MAX_NAMED: usize = 3;

/// The name of a Service, optionally with its namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    namespace: Option<String>,
    name: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Object {
    Node(String),
    Service { namespace: String, name: String },
}

/// An Event of the controllers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectEvent {
    /// The time at which the Event last occurred.
    pub at: Option<Timestamp>,
    /// `Normal` or `Warning`.
    pub r#type: String,
    /// The reason, such as `SyncLoadBalancerFailed`.
    pub reason: String,
    /// The reporting component.
    pub from: String,
    /// Number of occurrences.
    pub count: i32,
    /// The message.
    pub message: String,
}

/// Returns the name of an object in the form that `explain` accepts: `service/NAMESPACE/NAME` or `node/NAME`.
pub(crate) fn typed_name(kind: &str, key: &str) -> String {
    format!("{}/{key}", kind.to_lowercase())
}

/// Parses the name of an object.
pub(crate) fn name(text: &str) -> Result<String, String> {
    let fine = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.');
    if (1..=253).contains(&text.len()) && text.bytes().all(fine) {
        return Ok(text.to_owned());
    }
    Err("a name consists of lower case letters, digits, dashes and dots".to_owned())
}

/// Parses `[NAMESPACE/]NAME`.
pub(crate) fn key(text: &str) -> Result<Key, String> {
    match text.split_once('/') {
        Some((namespace, rest)) => Ok(Key { namespace: Some(name(namespace)?), name: name(rest)? }),
        None => Ok(Key { namespace: None, name: name(text)? }),
    }
}

impl Key {
    /// Returns the key with the namespace that the user has named with `-n`. Fails if the key names another namespace.
    pub(crate) fn within(self, namespace: Option<&str>) -> Result<Self, String> {
        match (self.namespace.as_deref(), namespace) {
            (Some(own), Some(other)) if own != other => {
                Err(format!("invalid namespace '{other}': the Service is {own}/{}", self.name))
            }
            (None, Some(namespace)) => Ok(Self { namespace: Some(namespace.to_owned()), ..self }),
            (_, None) | (Some(_), Some(_)) => Ok(self),
        }
    }
}

impl Object {
    pub(crate) fn node(name: &str) -> Self {
        Self::Node(name.to_owned())
    }

    /// Returns the Service with this name, in namespace `home` unless the key names another namespace.
    pub(crate) fn service(key: &Key, home: &str) -> Self {
        let namespace = key.namespace.clone().unwrap_or_else(|| home.to_owned());
        Self::Service { namespace, name: key.name.clone() }
    }

    /// Returns the object's key as the pages of the controllers show it: `NAME` for a Node, `NAMESPACE/NAME` for a Service.
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

    /// Returns the namespace of the object's Events. Events about cluster-scoped objects are in `default`.
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

/// Returns the Events of the controllers about the object, oldest first. If the object no longer exists, returns the Events about all
/// objects that had its name.
pub(crate) async fn events(cluster: &Cluster, object: &Object) -> Result<Vec<ObjectEvent>, Missing> {
    // Without permission to read the object, the Events about all objects with its name are shown.
    let uid = uid(cluster, object).await.unwrap_or_default();
    let events: Api<Event> = cluster.namespaced(object.namespace());
    let about = format!("involvedObject.kind={},involvedObject.name={}", object.kind(), object.name());
    let about = ListParams::default().fields(&about);
    let events = cluster.ask("events", async { events.list(&about).await }).await?;
    let about = events.items.into_iter().filter(|event| is_about(event, uid.as_deref()));
    let mut events: Vec<ObjectEvent> = about.filter_map(of_controller).collect();
    events.sort_by(|a, b| (a.at, &a.reason, &a.message).cmp(&(b.at, &b.reason, &b.message)));
    Ok(events)
}

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

/// Whether an Event is about the object with this UID. Events about an earlier object with the same name are kept for an hour.
fn is_about(event: &Event, uid: Option<&str>) -> bool {
    uid.is_none() || event.involved_object.uid.as_deref() == uid
}

/// Returns the controller that reports Events under this name.
pub(crate) fn reporter(from: &str) -> Option<Component> {
    REPORTERS.iter().find(|(name, _)| *name == from).map(|(_, component)| *component)
}

/// Returns `None` for Events of components outside this project.
pub(crate) fn of_controller(event: Event) -> Option<ObjectEvent> {
    let from = event.reporting_component.filter(|it| reporter(it).is_some())?;
    let in_series = event.series.as_ref().and_then(|it| it.last_observed_time.clone());
    let at = in_series.or(event.event_time).map(|MicroTime(at)| at);
    let at = event.last_timestamp.map(|Time(at)| at).max(at);
    let count = event.series.and_then(|it| it.count).or(event.count).unwrap_or(1).max(1);
    let (r#type, reason) = (event.type_.unwrap_or_default(), event.reason.unwrap_or_default());
    Some(ObjectEvent { at, r#type, reason, from, count, message: event.message.unwrap_or_default() })
}

/// Returns why no controller reports the object, according to the API server. `failing`: a watch of the controllers that fails.
pub(crate) async fn why_unknown(cluster: &Cluster, object: &Object, failing: Option<String>) -> String {
    match object {
        Object::Node(_) => {
            let nodes: Api<Node> = cluster.all();
            let names =
                cluster.ask("nodes", async { nodes.list_metadata(&ListParams::default()).await }).await;
            let names = names.map(|all| all.items.iter().map(|it| it.name_any()).collect::<Vec<_>>());
            unknown(object, names.map(|names| (names, None)), failing)
        }
        Object::Service { namespace, name } => {
            let services: Api<Service> = cluster.namespaced(namespace);
            let all = cluster.ask("services", async { services.list(&ListParams::default()).await }).await;
            let seen = all.map(|all| {
                let it = all.items.iter().find(|it| it.name_any() == *name);
                (all.items.iter().map(|it| it.name_any()).collect(), it.and_then(why_unmanaged))
            });
            unknown(object, seen, failing)
        }
    }
}

/// Returns why the controllers do not manage a Service.
fn why_unmanaged(service: &Service) -> Option<String> {
    let spec = service.spec.as_ref()?;
    let of_type = spec.type_.as_deref().unwrap_or("ClusterIP");
    if of_type != "LoadBalancer" {
        return Some(format!("its type is {of_type}, which needs no load balancer"));
    }
    let class = spec.load_balancer_class.as_ref();
    class.map(|class| format!("its class {class} may belong to another controller"))
}

/// Formats as a sentence why the object is unknown. `seen` contains the names of existing objects, and why this object is not managed.
fn unknown(
    object: &Object,
    seen: Result<(Vec<String>, Option<String>), Missing>,
    failing: Option<String>,
) -> String {
    let (names, unmanaged) = match seen {
        Ok(seen) => seen,
        Err(why) => {
            return format!(
                "none of the controllers that were read has this object, and whether it exists is not known: {}",
                why.why
            );
        }
    };
    if names.iter().any(|it| it == object.name()) {
        let why = unmanaged.or(failing);
        let why = why.unwrap_or_else(|| "their caches may not be complete yet".to_owned());
        return format!("the object exists, but none of the controllers that were read has it: {why}");
    }
    let near: Vec<&str> =
        similar(object.name(), names.iter().map(String::as_str)).into_iter().take(MAX_NAMED).collect();
    let meant = if near.is_empty() { String::new() } else { format!("; similar names: {}", near.join(", ")) };
    let namespace = match object {
        Object::Node(_) => String::new(),
        Object::Service { namespace, .. } => format!(" in namespace {namespace}"),
    };
    format!("no object has this name{namespace}{meant}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_service_has_a_namespace() {
        let web = Object::service(&key("web").expect("a key"), "shop");
        assert_eq!(web.to_string(), "Service shop/web");
        assert_eq!(Object::service(&key("a/web").expect("a key"), "shop").key(), "a/web");
        for wrong in ["", "a/", "/a", "a/b/c", "Web", "a b", "a?b"] {
            assert!(key(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_unknown_name_is_explained() {
        let web = Object::service(&key("web").expect("a key"), "shop");
        let names = |all: &[&str]| all.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
        for (seen, text) in [
            (
                Ok((names(&["web-1", "db", "webs"]), None)),
                "no object has this name in namespace shop; similar names: webs, web-1",
            ),
            (Ok((names(&["db"]), None)), "no object has this name in namespace shop"),
            (
                Ok((names(&["web"]), Some("its type is ClusterIP".to_owned()))),
                "the object exists, but none of the controllers that were read has it: its type is ClusterIP",
            ),
            (
                Err(Missing::new("services", "forbidden")),
                "none of the controllers that were read has this object, and whether it exists is \
                not known: forbidden",
            ),
        ] {
            assert_eq!(unknown(&web, seen, None), text);
        }
        let exists = || Ok((names(&["web"]), None));
        assert!(unknown(&web, exists(), None).ends_with("it: their caches may not be complete yet"));
        let failing = "service-controller sc-1: the watch of services has been unavailable".to_owned();
        assert!(unknown(&web, exists(), Some(failing.clone())).ends_with(&format!("it: {failing}")));
    }

    #[test]
    fn an_unmanaged_service_has_a_reason() {
        let service = |spec| serde_json::from_value::<Service>(json!({ "spec": spec })).expect("a Service");
        let why = |spec| why_unmanaged(&service(spec)).unwrap_or_default();
        assert!(why(json!({})).contains("type is ClusterIP"));
        assert!(why(json!({ "type": "LoadBalancer", "loadBalancerClass": "a/b" })).contains("its class a/b"));
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
        assert!(is_about(&about("u-1"), None), "the object is deleted, and no other object has its name");
    }

    #[test]
    fn events_of_others_are_left_out() {
        let event = |from| {
            of_controller(serde_json::from_value(json!({
                "metadata": {}, "involvedObject": {}, "reason": "Why", "type": "Warning", "message": "words",
                "reportingComponent": from, "eventTime": "2026-01-02T03:04:05.000000Z",
                "series": { "count": 3, "lastObservedTime": "2026-01-02T03:05:05.000000Z" },
            }))
            .expect("an Event"))
        };
        assert_eq!(event("kubelet"), None);
        let event = event("service-controller").expect("an Event of a controller");
        assert_eq!(
            (event.count, event.at.map(|at| at.to_string())),
            (3, Some("2026-01-02T03:05:05Z".to_owned()))
        );
    }
}
