//! The objects of the fake API server and their history.

use std::collections::BTreeMap;

use http::StatusCode;
use serde_json::{Value, json};

use super::{
    managed,
    patch::{self, Refusal},
    refused,
    request::Target,
};

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    /// The path of the collection, such as `/api/v1/nodes`.
    pub(super) collection: String,
    pub(super) namespace: Option<String>,
    pub(super) name: String,
}

impl Key {
    /// Whether a listing or a watch includes the object.
    fn is_in(&self, target: &Target, object: &Value) -> bool {
        let here = target.namespace.is_none() || self.namespace == target.namespace;
        let meant = target.only.as_ref().is_none_or(|name| *name == self.name);
        let labels = object.pointer("/metadata/labels");
        let has =
            |(key, value): &(String, String)| labels.and_then(|it| it.get(key)?.as_str()) == Some(value);
        self.collection == target.collection && here && meant && target.labels.iter().all(has)
    }
}

#[derive(Debug, Default)]
pub(super) struct Store {
    objects: BTreeMap<Key, Value>,
    version: u64,
    log: Vec<Happened>,
    /// The version before which events have been dropped.
    oldest: u64,
}

/// An event of watches. Its resource version is its index in the log, counted from 1.
#[derive(Debug)]
struct Happened {
    type_: &'static str,
    key: Key,
    object: Value,
}

impl Store {
    pub(super) fn get(&self, key: &Key) -> Option<&Value> {
        self.objects.get(key)
    }

    pub(super) fn values<'a>(&'a self, collection: &'a str) -> impl Iterator<Item = &'a Value> {
        self.objects.iter().filter(move |(key, _)| key.collection == collection).map(|(_, value)| value)
    }

    /// Stores a whole object. An object that is marked for deletion is removed with its last finalizer.
    pub(super) fn put(&mut self, key: Key, mut object: Value) -> Value {
        let released = object.pointer("/metadata/deletionTimestamp").is_some_and(|at| !at.is_null())
            && object.pointer("/metadata/finalizers").and_then(Value::as_array).is_none_or(Vec::is_empty);
        self.version += 1;
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.insert("resourceVersion".to_owned(), self.version.to_string().into());
            metadata.entry("uid").or_insert_with(|| format!("uid-{}", key.name).into());
        }
        let before = self.objects.remove(&key).is_some();
        if !released {
            self.objects.insert(key.clone(), object.clone());
        }
        let type_ = match (released, before) {
            (true, _) => "DELETED",
            (false, true) => "MODIFIED",
            (false, false) => "ADDED",
        };
        self.log.push(Happened { type_, key, object: object.clone() });
        object
    }

    /// Marks an object with finalizers for deletion, and removes an object without finalizers.
    pub(super) fn delete(&mut self, key: &Key) -> Option<Value> {
        let mut object = self.objects.get(key)?.clone();
        let metadata = object.get_mut("metadata").and_then(Value::as_object_mut)?;
        metadata.entry("deletionTimestamp").or_insert_with(|| "2026-01-01T00:00:00Z".into());
        Some(self.put(key.clone(), object))
    }

    /// Drops the history, so that watches from an older version have to start again.
    pub(super) fn compact(&mut self) {
        self.version += 1;
        let key = Key { collection: String::new(), namespace: None, name: String::new() };
        self.log.push(Happened { type_: "BOOKMARK", key, object: Value::Null });
        self.oldest = self.version;
    }

    /// Returns the answer to a watch from a dropped version.
    pub(super) fn too_old(&self, version: u64) -> Option<Value> {
        let message = format!("too old resource version: {version} ({})", self.oldest);
        let (_, status) = refused(StatusCode::GONE, &message);
        (version < self.oldest).then_some(status)
    }

    /// Returns the first event after a version, as a line of a watch.
    pub(super) fn event_after(&self, after: u64, target: &Target) -> Option<(u64, Value)> {
        let mut events = (after + 1..).zip(self.log.iter().skip(usize::try_from(after).ok()?));
        let (version, happened) =
            events.find(|(_, happened)| happened.key.is_in(target, &happened.object))?;
        Some((version, json!({ "type": happened.type_, "object": happened.object })))
    }

    pub(super) fn answer(&mut self, target: &Target, body: &[u8]) -> (StatusCode, Value) {
        let Some(name) = target.name.clone() else {
            return if target.is_write() { self.create(target, body) } else { self.list(target) };
        };
        let key = Key { collection: target.collection.clone(), namespace: target.namespace.clone(), name };
        let Some(object) = self.objects.get(&key).cloned() else {
            return refused(StatusCode::NOT_FOUND, &format!("{} not found", target.path));
        };
        match target.method.as_str() {
            "GET" => (StatusCode::OK, object),
            "DELETE" => match broken_precondition(&object, body) {
                Some(message) => refused(StatusCode::CONFLICT, &message),
                None => (StatusCode::OK, self.delete(&key).unwrap_or(object)),
            },
            "PATCH" => match patch::apply(&object, target, body) {
                Ok(new) if new == object => (StatusCode::OK, object),
                Ok(mut new) => {
                    if let Some(manager) = &target.manager {
                        managed::note(&object, &mut new, manager);
                    }
                    (StatusCode::OK, self.put(key, new))
                }
                Err(refusal) => refused_patch(&refusal, &key.name),
            },
            _ => refused(StatusCode::METHOD_NOT_ALLOWED, "the fake API server does not know this verb"),
        }
    }

    fn create(&mut self, target: &Target, body: &[u8]) -> (StatusCode, Value) {
        let object: Value = serde_json::from_slice(body).unwrap_or_default();
        let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned();
        let key = Key { collection: target.collection.clone(), namespace: target.namespace.clone(), name };
        if self.objects.contains_key(&key) {
            return refused(StatusCode::CONFLICT, &format!("{} exists already", key.name));
        }
        (StatusCode::CREATED, self.put(key, object))
    }

    /// Returns a page of a listing. Each page shows the current objects.
    fn list(&self, target: &Target) -> (StatusCode, Value) {
        let later = |key: &Key| target.continues.as_ref().is_none_or(|last| key.token() > *last);
        let limit = target.limit.filter(|limit| *limit > 0).unwrap_or(usize::MAX);
        let mut found: Vec<(String, &Value)> = self
            .objects
            .iter()
            .filter(|(key, object)| key.is_in(target, object) && later(key))
            .map(|(key, value)| (key.token(), value))
            .collect();
        found.sort_by(|(a, _), (b, _)| a.cmp(b));
        let more = found.len() > limit;
        found.truncate(limit);
        let last = found.last().filter(|_| more).map(|(token, _)| token.as_str());
        let metadata = json!({ "resourceVersion": self.version.to_string(), "continue": last });
        let items: Vec<&Value> = found.into_iter().map(|(_, value)| value).collect();
        (StatusCode::OK, json!({ "kind": "List", "apiVersion": "v1", "metadata": metadata, "items": items }))
    }
}

impl Key {
    /// Returns the token of the page after this object. The separator is an underscore, which no name contains and which a query need not
    /// encode.
    fn token(&self) -> String {
        format!("{}_{}", self.namespace.as_deref().unwrap_or_default(), self.name)
    }
}

/// Returns the API server's answer to a refused patch.
fn refused_patch(refusal: &Refusal, name: &str) -> (StatusCode, Value) {
    let (status, mut body) = refused(refusal.status, &refusal.message);
    if let Some((field, body)) = refusal.field.zip(body.as_object_mut()) {
        let cause = json!({ "reason": "FieldValueInvalid", "message": refusal.message, "field": field });
        body.insert("details".to_owned(), json!({ "name": name, "causes": [cause] }));
    }
    (status, body)
}

/// Returns the precondition of a deletion that does not hold, because the UID or the version differs.
fn broken_precondition(object: &Value, options: &[u8]) -> Option<String> {
    let options: Value = serde_json::from_slice(options).unwrap_or_default();
    ["uid", "resourceVersion"].into_iter().find_map(|field| {
        let asked = options.pointer(&format!("/preconditions/{field}")).filter(|asked| !asked.is_null())?;
        let there = object.pointer(&format!("/metadata/{field}"));
        (Some(asked) != there).then(|| format!("Precondition failed: {field} is another one"))
    })
}
