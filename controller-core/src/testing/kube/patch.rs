//! Implements the three patch formats, as far as the controllers use them.

use http::StatusCode;
use serde_json::{Map, Value};

use super::request::Target;

#[derive(Debug, PartialEq)]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    pub(super) message: String,
    /// The invalid field, if the error names one.
    pub(super) field: Option<&'static str>,
}

impl Refusal {
    fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), field: None }
    }
}

/// Lists of objects that a strategic merge patch merges by a key. All other lists, such as taints, are replaced.
const MERGED: [(&str, &str); 2] = [("addresses", "type"), ("conditions", "type")];
/// Lists of strings that a strategic merge patch merges.
const UNITED: [&str; 1] = ["finalizers"];
/// The prefix of the name of a list of strings in a patch. The list under the prefixed name contains the values to remove.
const TAKEN_OUT: &str = "$deleteFromPrimitiveList/";

/// Returns the object after the patch. A patch of the status subresource changes only status and metadata. A patch of the object itself
/// changes everything except the status.
pub(super) fn apply(object: &Value, target: &Target, body: &[u8]) -> Result<Value, Refusal> {
    let bad = |error: serde_json::Error| Refusal::new(StatusCode::BAD_REQUEST, error.to_string());
    let patch: Value = serde_json::from_slice(body).map_err(bad)?;
    check_guards(object, &patch)?;
    let mut new = object.clone();
    match target.content_type.as_str() {
        "application/json-patch+json" => json_patch(&mut new, &patch)?,
        "application/strategic-merge-patch+json" => merge(&mut new, &patch, true),
        "application/merge-patch+json" => merge(&mut new, &patch, false),
        other => return Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, other)),
    }
    let kept: &[&str] = if target.subresource.is_some() { &["spec"] } else { &["status"] };
    for field in kept {
        if let (Some(new), Some(old)) = (new.get_mut(field), object.get(field)) {
            *new = old.clone();
        }
    }
    Ok(new)
}

/// Checks version and UID. An old version is a conflict. A changed UID is an invalid field, and is checked after the version.
fn check_guards(object: &Value, patch: &Value) -> Result<(), Refusal> {
    let differs = |guard: &str| patch.pointer(guard).filter(|asked| Some(*asked) != object.pointer(guard));
    if differs("/metadata/resourceVersion").is_some() {
        return Err(Refusal::new(StatusCode::CONFLICT, "the object has been modified"));
    }
    let Some(uid) = differs("/metadata/uid") else { return Ok(()) };
    let message = format!("metadata.uid: Invalid value: {uid}: field is immutable");
    let field = Some("metadata.uid");
    Err(Refusal { field, ..Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, message) })
}

fn merge(target: &mut Value, patch: &Value, strategic: bool) {
    let Some(patch) = patch.as_object() else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Some(target) = target.as_object_mut() else { return };
    for (field, value) in patch {
        let list = field.strip_prefix(TAKEN_OUT);
        match (list, value) {
            (Some(list), _) if strategic => take_out(target, list, value),
            (_, Value::Null) => drop(target.remove(field)),
            (_, Value::Array(items)) if strategic => merge_list(target, field, items),
            (_, Value::Object(_)) => merge(target.entry(field).or_insert(Value::Null), value, strategic),
            _ => drop(target.insert(field.clone(), value.clone())),
        }
    }
}

fn take_out(target: &mut Map<String, Value>, list: &str, gone: &Value) {
    if let (Some(Value::Array(items)), Some(gone)) = (target.get_mut(list), gone.as_array()) {
        items.retain(|item| !gone.contains(item));
    }
}

fn merge_list(target: &mut Map<String, Value>, field: &str, patch: &[Value]) {
    let directive = |item: &Value| item.get("$patch").and_then(Value::as_str) == Some("replace");
    let plain: Vec<Value> = patch.iter().filter(|item| !directive(item)).cloned().collect();
    let replaces = plain.len() < patch.len();
    let old = target.get(field).and_then(Value::as_array).cloned().unwrap_or_default();
    let key = MERGED.iter().find(|(list, _)| *list == field).map(|(_, key)| *key);
    let new = match key {
        Some(key) if replaces => grouped(plain, key),
        _ if replaces => plain,
        Some(key) => by_key(old, plain, key),
        None if UNITED.contains(&field) => {
            let added: Vec<Value> = plain.into_iter().filter(|item| !old.contains(item)).collect();
            old.into_iter().chain(added).collect()
        }
        None => plain,
    };
    target.insert(field.to_owned(), Value::Array(new));
}

/// Groups the items of a list by key, in the sequence of each key's first item. The API server does this even for a list that replaces the
/// old list.
fn grouped(mut items: Vec<Value>, key: &str) -> Vec<Value> {
    let mut keys: Vec<Option<Value>> = Vec::new();
    for item in &items {
        let of = item.get(key).cloned();
        if !keys.contains(&of) {
            keys.push(of);
        }
    }
    // The sort is stable, so that items with the same key keep their sequence.
    items.sort_by_key(|item| keys.iter().position(|of| of.as_ref() == item.get(key)));
    items
}

/// A merge by type turns two addresses of the same type into a single address. The controllers therefore use `$patch: replace`.
fn by_key(mut old: Vec<Value>, patch: Vec<Value>, key: &str) -> Vec<Value> {
    for item in patch {
        if item.get("$patch").and_then(Value::as_str) == Some("delete") {
            old.retain(|other| other.get(key) != item.get(key));
            continue;
        }
        match old.iter_mut().find(|other| other.get(key) == item.get(key)) {
            Some(other) => merge(other, &item, true),
            None => old.push(item),
        }
    }
    old
}

fn json_patch(target: &mut Value, operations: &Value) -> Result<(), Refusal> {
    for operation in operations.as_array().into_iter().flatten() {
        let text = |field: &str| operation.get(field).and_then(Value::as_str).unwrap_or_default();
        let value = operation.get("value").cloned().unwrap_or_default();
        let path = text("path");
        let done = match text("op") {
            "test" => target.pointer(path).cloned().unwrap_or_default() == value,
            "remove" => remove(target, path),
            "replace" => target.pointer_mut(path).map(|old| *old = value).is_some(),
            "add" => add(target, path, value),
            _ => false,
        };
        if !done {
            return Err(Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, format!("cannot {operation}")));
        }
    }
    Ok(())
}

fn parent<'a>(target: &'a mut Value, path: &str) -> Option<(&'a mut Value, String)> {
    let (parent, last) = path.rsplit_once('/')?;
    Some((target.pointer_mut(parent)?, last.replace("~1", "/").replace("~0", "~")))
}

fn add(target: &mut Value, path: &str, value: Value) -> bool {
    match parent(target, path) {
        Some((Value::Object(object), last)) => {
            object.insert(last, value);
            true
        }
        Some((Value::Array(items), last)) if last == "-" => {
            items.push(value);
            true
        }
        Some((Value::Array(items), last)) => match last.parse::<usize>() {
            Ok(at) if at <= items.len() => {
                items.insert(at, value);
                true
            }
            Ok(_) | Err(_) => false,
        },
        Some(_) | None => false,
    }
}

fn remove(target: &mut Value, path: &str) -> bool {
    match parent(target, path) {
        Some((Value::Object(object), last)) => object.remove(&last).is_some(),
        Some((Value::Array(items), last)) => match last.parse::<usize>() {
            Ok(at) if at < items.len() => {
                items.remove(at);
                true
            }
            Ok(_) | Err(_) => false,
        },
        Some(_) | None => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn patched(
        object: &Value,
        kind: &str,
        subresource: bool,
        patch: &Value,
    ) -> Result<Value, (u16, Option<&'static str>)> {
        let target = Target {
            content_type: format!("application/{kind}+json"),
            subresource: subresource.then(|| "status".to_owned()),
            ..Target::default()
        };
        let refused = |refusal: Refusal| (refusal.status.as_u16(), refusal.field);
        apply(object, &target, patch.to_string().as_bytes()).map_err(refused)
    }

    #[test]
    fn addresses_are_merged_by_type_unless_replaced() {
        let node = json!({ "status": { "addresses": [{ "type": "InternalIP", "address": "1" }] } });
        let two = [
            json!({ "type": "InternalIP", "address": "2" }),
            json!({ "type": "InternalIP", "address": "3" }),
        ];
        let merged = json!({ "status": { "addresses": two } });
        let result = patched(&node, "strategic-merge-patch", true, &merged).expect("good");
        assert_eq!(result["status"]["addresses"], json!([{ "type": "InternalIP", "address": "3" }]));
        let replaced = json!({ "status": { "addresses": [two[0], two[1], { "$patch": "replace" }] } });
        let result = patched(&node, "strategic-merge-patch", true, &replaced).expect("good");
        assert_eq!(result["status"]["addresses"], json!(two));

        let name = json!({ "type": "Hostname", "address": "a" });
        let mixed = json!({ "status": { "addresses": [two[0], name, two[1], { "$patch": "replace" }] } });
        let result = patched(&node, "strategic-merge-patch", true, &mixed).expect("good");
        assert_eq!(result["status"]["addresses"], json!([two[0], two[1], name]), "as a real API server does");
        let mixed = json!({ "status": { "addresses": [two[0], name, two[1]] } });
        let result = patched(&node, "merge-patch", true, &mixed).expect("good");
        assert_eq!(result["status"]["addresses"], json!([two[0], name, two[1]]));
    }

    #[test]
    fn spec_and_status_are_patched_separately() {
        let object = json!({ "spec": { "a": 1 }, "status": { "b": 1 } });
        let patch = json!({ "spec": { "a": 2 }, "status": { "b": 2 } });
        let status = patched(&object, "merge-patch", true, &patch);
        assert_eq!(status, Ok(json!({ "spec": { "a": 1 }, "status": { "b": 2 } })));
        let spec = patched(&object, "merge-patch", false, &patch);
        assert_eq!(spec, Ok(json!({ "spec": { "a": 2 }, "status": { "b": 1 } })));
    }

    #[test]
    fn finalizers_are_added_and_removed_one_by_one() {
        let object = json!({ "metadata": { "finalizers": ["a", "b"] } });
        let add = json!({ "metadata": { "finalizers": ["c"] } });
        let result = patched(&object, "strategic-merge-patch", true, &add).expect("good");
        assert_eq!(result["metadata"]["finalizers"], json!(["a", "b", "c"]));
        let take = json!({ "metadata": { "$deleteFromPrimitiveList/finalizers": ["a"] } });
        let result = patched(&object, "strategic-merge-patch", true, &take).expect("good");
        assert_eq!(result["metadata"]["finalizers"], json!(["b"]));
    }

    #[test]
    fn guards_hold() {
        let metadata = json!({ "resourceVersion": "7", "uid": "u-1" });
        let object = json!({ "metadata": metadata, "spec": { "taints": [1] } });
        let stale = json!({ "metadata": { "resourceVersion": "6", "uid": "u-1" }, "spec": {} });
        assert_eq!(patched(&object, "merge-patch", false, &stale), Err((409, None)));
        let another = json!({ "metadata": { "uid": "u-2" }, "status": {} });
        for kind in ["merge-patch", "strategic-merge-patch"] {
            for subresource in [false, true] {
                let answer = patched(&object, kind, subresource, &another);
                assert_eq!(answer, Err((422, Some("metadata.uid"))), "{kind} {subresource}");
            }
        }
        for (path, value) in [("/spec/taints", json!([])), ("/metadata/uid", json!("u-2"))] {
            let test = json!([{ "op": "test", "path": path, "value": value }]);
            assert_eq!(patched(&object, "json-patch", false, &test), Err((422, None)), "{path}");
        }
        let label = json!([{ "op": "add", "path": "/metadata/x~1y", "value": "z" }]);
        assert_eq!(patched(&object, "json-patch", false, &label).expect("good")["metadata"]["x/y"], "z");
    }
}
